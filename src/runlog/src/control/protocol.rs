//! What goes over the socket: requests one way, answers the other, each one JSON object on one line.
//!
//! ```text
//!  {"id":7,"who":"ana@laptop via lathe","command":"set","knob":"actor.optim.lr","value":1e-5}
//!  {"answer":"accepted","id":7,"when":"before step 13"}
//!  {"answer":"applied","id":7,"step":12,"from_step":13,"from":1e-6,"to":1e-5}
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use super::knobs::{self, Knob, shortened};
use crate::number::Number;

/// Longest line either side reads, its newline included.
pub const MAX_LINE_BYTES: usize = 64 << 10;
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
    /// How it stands; answered at once, also in the middle of a step.
    Status,
}

impl Command {
    const NAMES: [&str; 7] = [
        "pause",
        "resume",
        "step",
        "checkpoint",
        "stop",
        "set",
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
            Self::Status => "status",
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

#[derive(Serialize, Deserialize)]
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
        let command = match raw.command.as_str() {
            "pause" => Command::Pause,
            "resume" => Command::Resume,
            "step" => Command::Step,
            "checkpoint" => Command::Checkpoint,
            "stop" => Command::Stop,
            "status" => Command::Status,
            "set" => {
                let (Some(knob), Some(value)) = (&raw.knob, raw.value) else {
                    return Err(malformed(
                        "set needs a knob and a value: \"knob\":\"actor.optim.lr\",\"value\":1e-5"
                            .to_owned(),
                    ));
                };
                return Ok(Self {
                    id: raw.id,
                    who: one_line(&raw.who),
                    command: Command::set(knob, value).map_err(malformed)?,
                });
            }
            other => {
                return Err(malformed(format!(
                    "no command is called `{}`; there are {}",
                    shortened(other),
                    Command::NAMES.join(", ")
                )));
            }
        };
        if raw.knob.is_some() || raw.value.is_some() {
            return Err(malformed(format!(
                "{} takes no knob and no value",
                command.name()
            )));
        }
        Ok(Self {
            id: raw.id,
            who: one_line(&raw.who),
            command,
        })
    }

    /// The line, with its newline.
    pub fn line(&self) -> Vec<u8> {
        let (knob, value) = match self.command {
            Command::Set { knob, value } => (Some(knob.key.to_owned()), Some(value)),
            _ => (None, None),
        };
        line(&Line {
            id: self.id,
            who: self.who.clone(),
            command: self.command.name().to_owned(),
            knob,
            value,
        })
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
    /// `set`: the first step that is trained with the new value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_step: Option<u64>,
    /// `set`: the value before, and now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Number>,
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
                "pause takes no knob and no value",
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
                note: None,
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
