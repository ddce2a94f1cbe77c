//! What a run can be told beyond its knobs: its mode, its guards, and to go back; and how guards and checkpoints stand.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::knobs::shortened;
use crate::number::Number;

/// Stands for every guard where one is cleared, muted or unmuted; a guard of that name comes first.
pub const ALL_GUARDS: &str = "all";

/// Who changes the bound of staleness where `trainer.mode` is auto.
pub const ASYNC_ADVISOR: &str = "async advisor";

/// Longest name of a guard or an arm that a request may have.
const MAX_NAME_CHARS: usize = 80;

/// `trainer.mode`, as a running run may take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunMode {
    /// Rollouts from the newest weights, one batch at a time.
    Sync,
    /// A batch is drawn while the one before is trained.
    OneStepOff,
    /// A batch may lag several versions, and takes new weights as they come.
    Async,
    /// The async advisor measures which bound of staleness is fastest, and takes it.
    Auto,
}

impl RunMode {
    pub const ALL: [Self; 4] = [Self::Sync, Self::OneStepOff, Self::Async, Self::Auto];

    /// As the experiment says it: `one_step_off`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::OneStepOff => "one_step_off",
            Self::Async => "async",
            Self::Auto => "auto",
        }
    }

    /// Policy versions that its rollouts may lag at most; `most` for async. None: it takes no bound, it finds one.
    pub fn most_staleness(self, most: u64) -> Option<u64> {
        match self {
            Self::Sync => Some(0),
            Self::OneStepOff => Some(1),
            Self::Async => Some(most),
            Self::Auto => None,
        }
    }
}

impl FromStr for RunMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| {
                format!(
                    "no mode is called `{}`; there are sync, one_step_off, async and auto",
                    shortened(text)
                )
            })
    }
}

/// What is done with a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardOrder {
    /// Does its next rung now, whatever it sees.
    Trip,
    /// As if it had never tripped: its next trip is a first one, it does not cool down, and the synchronous steps it has under
    /// way end.
    Clear,
    /// It sees, and does not trip: for so many steps, or until it is unmuted.
    Mute {
        steps: Option<u64>,
    },
    Unmute,
}

impl GuardOrder {
    /// The word for it in requests and events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trip => "trip",
            Self::Clear => "clear",
            Self::Mute { .. } => "mute",
            Self::Unmute => "unmute",
        }
    }
}

/// A name that a guard or an arm (`what`) can have.
pub(super) fn one_word(name: &str, what: &str) -> Result<String, String> {
    let is_word = !name.is_empty()
        && name.chars().count() <= MAX_NAME_CHARS
        && !name.chars().any(|c| c.is_whitespace() || c.is_control());
    if is_word {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "`{}` is no {what}'s name; a name is one word",
            shortened(name)
        ))
    }
}

/// The checkpoint to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointName {
    /// Of this step.
    Step(u64),
    /// With the best evaluation.
    Best,
    /// The newest from before whatever the guards see wrong; the newest when they see nothing.
    Good,
}

impl fmt::Display for CheckpointName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => write!(formatter, "{step}"),
            Self::Best => formatter.write_str("best"),
            Self::Good => formatter.write_str("good"),
        }
    }
}

impl FromStr for CheckpointName {
    type Err = String;

    /// `best`, `good`, `120`, `step-000120`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "best" => Ok(Self::Best),
            "good" => Ok(Self::Good),
            other => other
                .strip_prefix("step-")
                .unwrap_or(other)
                .parse()
                .map(Self::Step)
                .map_err(|_| {
                    format!(
                        "`{}` names no checkpoint; expected a step's number, best or good",
                        shortened(text)
                    )
                }),
        }
    }
}

/// A guard of a running run, as its trainer says it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GuardState {
    pub name: String,
    /// Metric (or pattern of such) or `alarm NAME`.
    pub watches: String,
    /// `above 0.02`, `more than 0.05 below its best, for 5 values in a row`
    pub condition: String,
    /// Its ladder, in the experiment's words.
    pub ladder: Vec<String>,
    /// The rung that its next trip does.
    pub next: String,
    /// The mean of its window now; None: no value came yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Number>,
    /// What that is compared with; None: not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Number>,
    /// Values in the window, of how many.
    pub window_filled: u64,
    pub window: u64,
    /// Bad values in a row, and how many make a trip.
    pub streak: u64,
    pub consecutive: u64,
    /// Trips so far, and those without a calm since.
    pub trips: u64,
    pub relapses: u64,
    /// The last step in which it does not trip again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cools_until: Option<u64>,
    pub is_muted: bool,
    /// The last muted step; None: until it is unmuted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub muted_until: Option<u64>,
    /// Steps that it still trains synchronously.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_left: Option<u64>,
}

impl GuardState {
    /// Which rung the next trip does, from 1; the last one again and again.
    pub fn rung(&self) -> u64 {
        rung(self.relapses, self.ladder.len())
    }

    /// In a word or some: `armed`, `muted until step 40`, `cooling down until step 12`.
    pub fn words(&self) -> String {
        match (self.is_muted, self.muted_until, self.cools_until) {
            (true, Some(step), _) => format!("muted until step {step}"),
            (true, None, _) => "muted".to_owned(),
            (false, _, Some(step)) => format!("cooling down until step {step}"),
            (false, _, None) if self.value.is_none() => "armed, no value yet".to_owned(),
            (false, _, None) if self.limit.is_none() => "armed, no limit yet".to_owned(),
            (false, _, None) if self.streak > 0 => {
                format!("bad, {} of {}", self.streak, self.consecutive)
            }
            (false, _, None) => "armed".to_owned(),
        }
    }
}

/// Which rung, from 1, follows so many trips without a calm: the last one again and again.
pub fn rung(relapses: u64, rungs: usize) -> u64 {
    (relapses + 1).min(rungs.max(1) as u64)
}

/// A checkpoint that a running run can go back to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckpointState {
    pub step: u64,
    /// Mean reward of the evaluation of its weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<Number>,
    /// What `best` and `good` name now.
    pub is_best: bool,
    pub is_good: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_named_by_its_step_its_folder_or_its_merit() {
        let read = |text: &str| text.parse::<CheckpointName>();
        assert_eq!(read("best"), Ok(CheckpointName::Best));
        assert_eq!(read("good"), Ok(CheckpointName::Good));
        assert_eq!(read("120"), Ok(CheckpointName::Step(120)));
        assert_eq!(read("step-000120"), Ok(CheckpointName::Step(120)));
        for text in ["", "last one", "-3", "1.5", "step-"] {
            let reason = read(text).expect_err(text);
            assert!(
                reason.contains("expected a step's number, best or good"),
                "{reason}"
            );
        }
    }

    #[test]
    fn a_guard_s_state_is_said_in_words_from_muted_to_armed() {
        let armed = GuardState {
            value: Some(Number(0.01)),
            limit: Some(Number(0.02)),
            consecutive: 3,
            ..GuardState::default()
        };
        assert_eq!(armed.words(), "armed");
        let bad = GuardState {
            streak: 2,
            ..armed.clone()
        };
        assert_eq!(bad.words(), "bad, 2 of 3");
        let cooling = GuardState {
            cools_until: Some(12),
            ..bad
        };
        assert_eq!(cooling.words(), "cooling down until step 12");
        let muted = GuardState {
            is_muted: true,
            muted_until: Some(40),
            ..cooling
        };
        assert_eq!(muted.words(), "muted until step 40");
        let early = GuardState {
            value: None,
            ..armed
        };
        assert_eq!(early.words(), "armed, no value yet");
    }
}
