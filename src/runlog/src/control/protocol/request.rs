//! A line from a client, read from any bytes and written.

use serde::{Deserialize, Serialize};

use super::Command;
use super::line;
use crate::control::knobs::shortened;
use crate::control::orders::GuardOrder;

/// Longest `who` that is kept.
const MAX_WHO_CHARS: usize = 120;

/// One line from a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The client's own number, repeated in the answers.
    pub id: u64,
    /// Who asks, for the log: `ana@laptop via lathe ctl`. Never empty, one line.
    pub who: String,
    pub command: Command,
}

/// Why a line is no request; `id` is told where it could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    pub id: Option<u64>,
    pub reason: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    who: String,
    command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    knob: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guard: Option<String>,
    /// Of a mute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steps: Option<u64>,
    /// Of what is done with the bandit's arms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arm: Option<String>,
    /// Of a roll back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    staleness: Option<u64>,
}

impl Line {
    /// The command, or what is wrong with it.
    fn command(&self) -> Result<Command, String> {
        let guard = |order: GuardOrder| {
            let Some(guard) = &self.guard else {
                return Err(format!("{} needs a guard: \"guard\":\"kl\"", order.name()));
            };
            Command::guard(guard, order)
        };
        let command = match self.command.as_str() {
            "pause" => Command::Pause,
            "resume" => Command::Resume,
            "step" => Command::Step,
            "checkpoint" => Command::Checkpoint,
            "stop" => Command::Stop,
            "status" => Command::Status,
            "set" => {
                let (Some(knob), Some(value)) = (&self.knob, self.value) else {
                    return Err(
                        "set needs a knob and a value: \"knob\":\"actor.optim.lr\",\"value\":1e-5"
                            .to_owned(),
                    );
                };
                Command::set(knob, value)?
            }
            "mode" => {
                let Some(mode) = &self.mode else {
                    return Err("mode needs a mode: \"mode\":\"sync\"".to_owned());
                };
                Command::mode(mode, self.staleness)?
            }
            "trip" => guard(GuardOrder::Trip)?,
            "clear" => guard(GuardOrder::Clear)?,
            "mute" => guard(GuardOrder::Mute { steps: self.steps })?,
            "unmute" => guard(GuardOrder::Unmute)?,
            "arm_force" | "arm_release" | "arm_freeze" | "arm_unfreeze" => {
                let word = self.command.trim_start_matches("arm_");
                Command::arm(word, self.arm.as_deref())?
            }
            "roll_back" => {
                let Some(to) = &self.to else {
                    return Err("roll_back needs a checkpoint: \"to\":\"best\"".to_owned());
                };
                Command::RollBack { to: to.parse()? }
            }
            other => {
                return Err(format!(
                    "no command is called `{}`; there are {}",
                    shortened(other),
                    Command::NAMES.join(", ")
                ));
            }
        };
        let is_set = matches!(command, Command::Set { .. });
        let is_guard = matches!(command, Command::Guard { .. });
        let is_arm = matches!(command, Command::Arm(_));
        let is_mute = self.command == "mute";
        let is_mode = self.command == "mode";
        let too_much: Vec<&str> = [
            ("knob", self.knob.is_some() && !is_set),
            ("value", self.value.is_some() && !is_set),
            ("guard", self.guard.is_some() && !is_guard),
            ("arm", self.arm.is_some() && !is_arm),
            ("steps", self.steps.is_some() && !is_mute),
            ("to", self.to.is_some() && self.command != "roll_back"),
            ("mode", self.mode.is_some() && !is_mode),
            ("staleness", self.staleness.is_some() && !is_mode),
        ]
        .into_iter()
        .filter_map(|(field, is_extra)| is_extra.then_some(field))
        .collect();
        if too_much.is_empty() {
            Ok(command)
        } else {
            Err(format!(
                "{} takes no {}",
                self.command,
                too_much.join(" and no ")
            ))
        }
    }
}

impl Request {
    /// Reads one line, without its newline. Any bytes are safe.
    pub fn parse(line: &[u8]) -> Result<Self, Malformed> {
        let raw: Line = serde_json::from_slice(line).map_err(|error| {
            #[derive(Deserialize)]
            struct Id {
                id: Option<u64>,
            }
            Malformed {
                id: serde_json::from_slice::<Id>(line)
                    .ok()
                    .and_then(|found| found.id),
                reason: format!("not a request: {}", shortened(&error.to_string())),
            }
        })?;
        let malformed = |reason: String| Malformed {
            id: Some(raw.id),
            reason,
        };
        let command = raw.command().map_err(malformed)?;
        Ok(Self {
            id: raw.id,
            who: one_line(&raw.who),
            command,
        })
    }

    /// The line, with its newline.
    pub fn line(&self) -> Vec<u8> {
        let mut raw = Line {
            id: self.id,
            who: self.who.clone(),
            command: self.command.name().to_owned(),
            ..Line::default()
        };
        match &self.command {
            Command::Set { knob, value } => {
                raw.knob = Some(knob.key.to_owned());
                raw.value = Some(*value);
            }
            Command::Mode { mode, staleness } => {
                raw.mode = Some(mode.name().to_owned());
                raw.staleness = *staleness;
            }
            Command::Guard { guard, order } => {
                raw.guard = Some(guard.clone());
                if let GuardOrder::Mute { steps } = order {
                    raw.steps = *steps;
                }
            }
            Command::Arm(order) => raw.arm = order.arm().map(str::to_owned),
            Command::RollBack { to } => raw.to = Some(to.to_string()),
            Command::Pause
            | Command::Resume
            | Command::Step
            | Command::Checkpoint
            | Command::Stop
            | Command::Status => {}
        }
        line(&raw)
    }
}

/// A name that goes into logs and onto screens: no control characters, not endless, not empty.
fn one_line(who: &str) -> String {
    let who: String = who
        .trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_WHO_CHARS)
        .collect();
    if who.is_empty() {
        "unnamed".to_owned()
    } else {
        who
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::arms::ArmOrder;
    use crate::control::knobs::{self, Knob};
    use crate::control::orders::{CheckpointName, RunMode};
    use crate::control::protocol::MAX_STALENESS;

    fn any_command() -> impl Strategy<Value = Command> {
        prop_oneof![
            Just(Command::Pause),
            Just(Command::Resume),
            Just(Command::Step),
            Just(Command::Checkpoint),
            Just(Command::Stop),
            Just(Command::Status),
            (
                prop::sample::select(RunMode::ALL.to_vec()),
                prop::option::of(0_u64..=8)
            )
                .prop_map(|(mode, staleness)| Command::Mode {
                    mode,
                    staleness: staleness
                        .zip(mode.most_staleness(MAX_STALENESS))
                        .map(|(staleness, most)| staleness.min(most)),
                }),
            (
                "[a-z*/@]{1,20}",
                prop_oneof![
                    Just(GuardOrder::Trip),
                    Just(GuardOrder::Clear),
                    Just(GuardOrder::Unmute),
                    prop::option::of(1_u64..).prop_map(|steps| GuardOrder::Mute { steps }),
                ]
            )
                .prop_map(|(guard, order)| Command::Guard { guard, order }),
            ("[a-z_-]{1,20}", 0..4_usize).prop_map(|(arm, at)| {
                let word = ArmOrder::WORDS[at];
                Command::arm(word, (word != "release").then_some(&*arm)).unwrap()
            }),
            prop_oneof![
                any::<u64>().prop_map(CheckpointName::Step),
                Just(CheckpointName::Best),
                Just(CheckpointName::Good),
            ]
            .prop_map(|to| Command::RollBack { to }),
            (
                prop::sample::select(knobs::TABLE.iter().collect::<Vec<_>>()),
                0.0..1.0
            )
                .prop_map(|(knob, value): (&'static Knob, f64)| Command::Set {
                    knob,
                    value: if knob.is_whole {
                        1.0
                    } else {
                        value.max(1e-300)
                    },
                }),
        ]
    }

    proptest! {
        #[test]
        fn every_request_survives_its_line(id: u64, who in "[a-z@]{1,20}", command in any_command()) {
            let request = Request { id, who, command };
            let line = request.line();
            prop_assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
            prop_assert_eq!(Request::parse(&line), Ok(request));
        }

        #[test]
        fn any_bytes_are_a_request_or_a_short_reason(line in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Err(malformed) = Request::parse(&line) {
                prop_assert!(malformed.reason.len() < 1000);
            }
        }

        #[test]
        fn any_json_is_a_request_or_a_short_reason(
            id in "[0-9]{1,22}|-1|1.5|null|\"7\"", command in "[a-z]{0,8}|set|step", knob in "\"[a-z.]{0,9}\"|3|null",
            value in "1e-5|-1|1e999|\"NaN\"|null|[[[[1]]]]|true", more in "(,\"x\":1|,\"id\":2)?",
        ) {
            let line = format!("{{\"id\":{id},\"command\":\"{command}\",\"knob\":{knob},\"value\":{value}{more}}}");
            if let Err(malformed) = Request::parse(line.as_bytes()) {
                prop_assert!(!malformed.reason.is_empty() && malformed.reason.len() < 1000);
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said_with_its_id() {
        for (line, id, part) in [
            (
                r#"{"id":3,"command":"paus"}"#,
                Some(3),
                "no command is called `paus`; there are pause, resume",
            ),
            (
                r#"{"id":3,"command":"set","knob":"actor.optim.lr"}"#,
                Some(3),
                "set needs a knob and a value",
            ),
            (
                r#"{"id":3,"command":"set","knob":"actor.optim.lrr","value":1}"#,
                Some(3),
                "did you mean actor.optim.lr?",
            ),
            (
                r#"{"id":3,"command":"set","knob":"actor.optim.lr","value":7}"#,
                Some(3),
                "expected 0 <= x <= 1",
            ),
            (
                r#"{"id":3,"command":"pause","value":7}"#,
                Some(3),
                "pause takes no value",
            ),
            (
                r#"{"id":3,"command":"mute"}"#,
                Some(3),
                "mute needs a guard",
            ),
            (
                r#"{"id":3,"command":"mute","guard":"kl","steps":0}"#,
                Some(3),
                "for 1 step or more",
            ),
            (
                r#"{"id":3,"command":"trip","guard":"k l"}"#,
                Some(3),
                "`k l` is no guard's name",
            ),
            (
                r#"{"id":3,"command":"trip","guard":"kl","steps":4}"#,
                Some(3),
                "trip takes no steps",
            ),
            (
                r#"{"id":3,"command":"roll_back","to":"worst"}"#,
                Some(3),
                "expected a step's number, best or good",
            ),
            (
                r#"{"id":3,"command":"arm_freeze"}"#,
                Some(3),
                "arm freeze needs an arm's name",
            ),
            (
                r#"{"id":3,"command":"arm_force","arm":"a b"}"#,
                Some(3),
                "`a b` is no arm's name",
            ),
            (
                r#"{"id":3,"command":"arm_release","arm":"judge"}"#,
                Some(3),
                "arm release takes no name",
            ),
            (
                r#"{"id":3,"command":"pause","arm":"judge"}"#,
                Some(3),
                "pause takes no arm",
            ),
            (
                r#"{"id":3,"command":"mode","mode":"fast"}"#,
                Some(3),
                "there are sync, one_step_off, async and auto",
            ),
            (
                r#"{"id":3,"command":"mode","mode":"one_step_off","staleness":2}"#,
                Some(3),
                "expected 0 to 1",
            ),
            (
                r#"{"id":3,"command":"pause","at":7}"#,
                Some(3),
                "unknown field `at`",
            ),
            (r#"{"id":3}"#, Some(3), "missing field `command`"),
            (r#"{"command":"pause"}"#, None, "missing field `id`"),
            (r#"{"id":-3,"command":"pause"}"#, None, "invalid value"),
            ("pause", None, "not a request"),
        ] {
            let malformed = Request::parse(line.as_bytes()).expect_err(line);
            assert_eq!(malformed.id, id, "{line}");
            assert!(malformed.reason.contains(part), "{}", malformed.reason);
        }
    }

    #[test]
    fn a_name_cannot_move_the_cursor_of_whoever_reads_it() {
        let line = br#"{"id":1,"who":" \u001b[2Jana\n@laptop ","command":"pause"}"#;
        assert_eq!(Request::parse(line).unwrap().who, "[2Jana@laptop");
        let line = br#"{"id":1,"command":"pause"}"#;
        assert_eq!(Request::parse(line).unwrap().who, "unnamed");
    }
}
