//! What goes over the socket: requests one way, answers the other, each one JSON object on one line.
//!
//! ```text
//!  {"id":7,"who":"ana@laptop via lathe","command":"set","knob":"actor.optim.lr","value":1e-5}
//!  {"answer":"accepted","id":7,"when":"before step 13"}
//!  {"answer":"applied","id":7,"step":12,"from_step":13,"from":1e-6,"to":1e-5}
//!  {"id":8,"who":"ana@laptop via lathe","command":"mute","guard":"kl","steps":20}
//!  {"answer":"applied","id":8,"step":12,"before":"armed","after":"muted until step 32"}
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use super::knobs::{self, Knob, shortened};
use super::orders::{CheckpointName, CheckpointState, GuardOrder, GuardState, RunMode, guard_name};
use super::waits::WaitState;
use crate::number::Number;

/// Longest line either side reads, its newline included.
pub const MAX_LINE_BYTES: usize = 64 << 10;
/// Most policy versions that rollouts may lag; that of the knob `trainer.max_staleness`.
pub const MAX_STALENESS: u64 = 8;
/// Longest `who` that is kept.
const MAX_WHO_CHARS: usize = 120;

/// What a running run can be asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Train no further step until `resume` or `step`.
    Pause,
    Resume,
    /// Train one step, then be paused.
    Step,
    /// Write a checkpoint of the steps trained so far.
    Checkpoint,
    /// End after the step in progress, with a checkpoint: what SIGINT does.
    Stop,
    /// Give a knob a value, already known to be in range.
    Set {
        knob: &'static Knob,
        value: f64,
    },
    /// Another `trainer.mode`; `staleness` is for async, None: as the experiment says.
    Mode {
        mode: RunMode,
        staleness: Option<u64>,
    },
    /// Something with one guard of `trainer.guards`.
    Guard {
        guard: String,
        order: GuardOrder,
    },
    /// Weights, optimizers, controllers and data from a checkpoint; steps go on counting.
    RollBack {
        to: CheckpointName,
    },
    /// How it stands; answered at once, also in the middle of a step.
    Status,
}

impl Command {
    const NAMES: [&str; 13] = [
        "pause",
        "resume",
        "step",
        "checkpoint",
        "stop",
        "set",
        "mode",
        "trip",
        "clear",
        "mute",
        "unmute",
        "roll_back",
        "status",
    ];

    /// The word for it in requests and events.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Step => "step",
            Self::Checkpoint => "checkpoint",
            Self::Stop => "stop",
            Self::Set { .. } => "set",
            Self::Mode { .. } => "mode",
            Self::Guard { order, .. } => order.name(),
            Self::RollBack { .. } => "roll_back",
            Self::Status => "status",
        }
    }

    /// What it is about, for the log: a guard's name, a checkpoint's, a mode's.
    pub fn target(&self) -> Option<String> {
        match self {
            Self::Mode { mode, .. } => Some(mode.name().to_owned()),
            Self::Guard { guard, .. } => Some(guard.clone()),
            Self::RollBack { to } => Some(to.to_string()),
            _ => None,
        }
    }

    /// Of a guard's name as written.
    pub fn guard(name: &str, order: GuardOrder) -> Result<Self, String> {
        if order == (GuardOrder::Mute { steps: Some(0) }) {
            return Err("a guard is muted for 1 step or more".to_owned());
        }
        Ok(Self::Guard {
            guard: guard_name(name)?,
            order,
        })
    }

    /// Of a mode as written; a bound of staleness belongs to async.
    pub fn mode(name: &str, staleness: Option<u64>) -> Result<Self, String> {
        let mode: RunMode = name.parse()?;
        let most = mode.most_staleness(MAX_STALENESS);
        match staleness {
            Some(staleness) if staleness > most => Err(match most {
                0 => format!("mode {name} takes no bound of staleness: it is 0"),
                most => format!(
                    "max_staleness cannot be {staleness} in mode {name}; expected 0 to {most}"
                ),
            }),
            staleness => Ok(Self::Mode { mode, staleness }),
        }
    }

    /// Of a knob and a value as written.
    pub fn set(knob: &str, value: f64) -> Result<Self, String> {
        let knob = knobs::find(knob).map_err(|error| error.to_string())?;
        let value = knob.check(value)?;
        Ok(Self::Set { knob, value })
    }
}

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
        let is_mute = self.command == "mute";
        let is_mode = self.command == "mode";
        let too_much: Vec<&str> = [
            ("knob", self.knob.is_some() && !is_set),
            ("value", self.value.is_some() && !is_set),
            ("guard", self.guard.is_some() && !is_guard),
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

/// One line from the run. A request gets `accepted` and later `applied` or `refused`; or `refused` at once; or `status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// It waits for the next step boundary.
    Accepted {
        id: u64,
        /// When it will be applied, for people.
        when: String,
    },
    Applied {
        id: u64,
        #[serde(flatten)]
        applied: Applied,
    },
    Refused {
        /// None: the line's id could not be read.
        id: Option<u64>,
        reason: String,
    },
    Status {
        id: u64,
        status: Status,
    },
    /// An answer of a newer version.
    #[serde(other)]
    Unknown,
}

impl Answer {
    pub fn id(&self) -> Option<u64> {
        match self {
            Self::Accepted { id, .. } | Self::Applied { id, .. } | Self::Status { id, .. } => {
                Some(*id)
            }
            Self::Refused { id, .. } => *id,
            Self::Unknown => None,
        }
    }

    /// True: nothing more comes for this request.
    pub fn is_last(&self) -> bool {
        !matches!(self, Self::Accepted { .. } | Self::Unknown)
    }

    /// The line, with its newline.
    pub(super) fn line(&self) -> Vec<u8> {
        line(self)
    }
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Applied {
    /// Steps trained at that moment.
    pub step: u64,
    /// `set`, `mode`: the first step that is trained with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_step: Option<u64>,
    /// `set`: the value before, and now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Number>,
    /// `mode`, `roll_back` and what is done with a guard: what stood before, and what stands now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// `mute` for a number of steps: the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_step: Option<u64>,
    /// More for people: where the checkpoint lies, that the run was paused already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// How a run stands, as its trainer says it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The run directory's name.
    pub run: String,
    pub pid: u32,
    /// In a few words: `training step 13`, `waiting for rollouts of step 13`, `paused after step 12`.
    pub doing: String,
    /// Steps trained.
    pub step: u64,
    pub total_steps: u64,
    pub is_paused: bool,
    /// Asked to stop, and not ended yet.
    pub is_stopping: bool,
    /// Commands accepted and not yet applied.
    pub waiting: u64,
    /// Every knob, in the order of [`super::KNOBS`]; empty while the run sets up.
    pub knobs: Vec<KnobState>,
    /// `sync`, `one_step_off`, `async`; empty: the run has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Of `trainer.guards`, in that order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<GuardState>,
    /// What the run can go back to, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<CheckpointState>,
    /// What sessions wait for at this moment, what has been waited for longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitState>,
}

/// A knob of this run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KnobState {
    /// [`Knob::key`]
    pub key: String,
    /// None: this run has none to set, `why_not` says why.
    pub value: Option<Number>,
    /// What it was before the first change.
    pub started_with: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("only string keys, and numbers that JSON has");
    line.push(b'\n');
    line
}

/// `set actor.optim.lr = 0.00001`, `pause`.
impl fmt::Display for Command {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set { knob, value } => write!(formatter, "set {} = {value}", knob.name),
            Self::Mode {
                mode,
                staleness: Some(staleness),
            } => write!(formatter, "mode {} {staleness}", mode.name()),
            Self::Guard {
                guard,
                order: GuardOrder::Mute { steps: Some(steps) },
            } => write!(formatter, "mute {guard} {steps}"),
            Self::Mode { .. } | Self::Guard { .. } | Self::RollBack { .. } => write!(
                formatter,
                "{} {}",
                self.name(),
                self.target().unwrap_or_default()
            ),
            other => formatter.write_str(other.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
                        .map(|staleness| staleness.min(mode.most_staleness(MAX_STALENESS))),
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
                r#"{"id":3,"command":"mode","mode":"fast"}"#,
                Some(3),
                "there are sync, one_step_off and async",
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

    #[test]
    fn answers_read_as_documented_and_newer_ones_as_unknown() {
        let applied = Answer::Applied {
            id: 7,
            applied: Applied {
                step: 12,
                from_step: Some(13),
                from: Some(Number(1e-6)),
                to: Some(Number(1e-5)),
                ..Applied::default()
            },
        };
        let line = String::from_utf8(applied.line()).unwrap();
        assert_eq!(
            line,
            "{\"answer\":\"applied\",\"id\":7,\"step\":12,\"from_step\":13,\"from\":1e-6,\"to\":0.00001}\n"
        );
        assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), applied);
        let newer = r#"{"answer":"postponed","id":7,"until":5}"#;
        assert_eq!(
            serde_json::from_str::<Answer>(newer).unwrap(),
            Answer::Unknown
        );
    }
}
