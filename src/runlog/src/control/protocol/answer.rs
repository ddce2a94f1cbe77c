//! A line from the run: what became of a request, or how the run stands.

use serde::{Deserialize, Serialize};

use super::line;
use crate::control::arms::ArmState;
use crate::control::orders::{CheckpointState, GuardState};
use crate::control::waits::WaitState;
use crate::number::Number;

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
    pub(in crate::control) fn line(&self) -> Vec<u8> {
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
    /// `mode`, `roll_back` and what is done with a guard or an arm: what stood before, and what stands now.
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
    /// Every knob, in the order of [`crate::control::KNOBS`]; empty while the run sets up.
    pub knobs: Vec<KnobState>,
    /// `sync`, `one_step_off`, `async`; empty: the run has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Of `trainer.guards`, in that order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<GuardState>,
    /// Of `reward.bandit`, in the order of the arms; empty: the run has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<ArmState>,
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
    /// [`crate::control::Knob::key`]
    pub key: String,
    /// None: this run has none to set, `why_not` says why.
    pub value: Option<Number>,
    /// What it was before the first change.
    pub started_with: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
