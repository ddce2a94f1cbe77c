//! What a running run can be told about the arms of its bandit, and how each stands.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::event::BanditArm;
use crate::number::Number;

/// What is done with an arm of `reward.bandit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArmOrder {
    /// Every choice is this arm, until it is released.
    Force(String),
    /// The bandit chooses by itself again.
    Release,
    /// It is not chosen any more; what is known of it stays.
    Freeze(String),
    Unfreeze(String),
}

impl ArmOrder {
    /// The words for them after `arm`.
    pub const WORDS: [&str; 4] = ["force", "release", "freeze", "unfreeze"];

    /// Of a word and an arm's name as written.
    pub fn new(word: &str, arm: Option<&str>) -> Result<Self, String> {
        let named = |order: fn(String) -> Self| match arm {
            Some(arm) => Ok(order(super::orders::one_word(arm, "arm")?)),
            None => Err(format!("arm {word} needs an arm's name")),
        };
        match (word, arm) {
            ("force", _) => named(Self::Force),
            ("freeze", _) => named(Self::Freeze),
            ("unfreeze", _) => named(Self::Unfreeze),
            ("release", None) => Ok(Self::Release),
            ("release", Some(_)) => {
                Err("arm release takes no name: one arm at most is forced".to_owned())
            }
            (other, _) => Err(format!(
                "nothing called `{}` is done with an arm; there are {}",
                super::knobs::shortened(other),
                Self::WORDS.join(", ")
            )),
        }
    }

    /// The command's name in requests and events: `arm_force`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Force(_) => "arm_force",
            Self::Release => "arm_release",
            Self::Freeze(_) => "arm_freeze",
            Self::Unfreeze(_) => "arm_unfreeze",
        }
    }

    /// The arm that it is about; None: a release.
    pub fn arm(&self) -> Option<&str> {
        match self {
            Self::Force(arm) | Self::Freeze(arm) | Self::Unfreeze(arm) => Some(arm),
            Self::Release => None,
        }
    }
}

/// An arm of a running run's bandit, as its trainer says it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ArmState {
    pub name: String,
    /// Times that it was chosen.
    pub pulls: u64,
    /// Outcomes in its statistics, time-outs among them.
    pub counted: u64,
    pub timed_out: u64,
    /// Outcomes that never came.
    pub missing: u64,
    /// What is believed of its value, and how unsure that is; None while nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sd: Option<Number>,
    /// Probability that it is chosen next, 0..1; None of a policy that does not draw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chance: Option<Number>,
    pub is_frozen: bool,
    pub is_forced: bool,
}

impl ArmState {
    /// What an update says of the arm, with how often it was chosen.
    pub fn of(arm: &BanditArm, pulls: u64) -> Self {
        Self {
            name: arm.name.clone(),
            pulls,
            counted: arm.counted,
            timed_out: arm.timed_out,
            missing: arm.missing,
            mean: arm.mean,
            sd: arm.sd,
            chance: arm.chance,
            is_frozen: arm.is_frozen,
            is_forced: arm.is_forced,
        }
    }

    /// `forced`, `frozen`, both, or `free`.
    pub fn words(&self) -> &'static str {
        words(self.is_forced, self.is_frozen)
    }

    /// What did not go well with its outcomes: `2 timed out, 1 missing`; empty where all is well.
    pub fn losses(&self) -> String {
        let mut losses = String::new();
        if self.timed_out > 0 {
            let _ = write!(losses, "{} timed out", self.timed_out);
        }
        if self.missing > 0 {
            let comma = if losses.is_empty() { "" } else { ", " };
            let _ = write!(losses, "{comma}{} missing", self.missing);
        }
        losses
    }
}

/// How an arm that is forced or frozen is called everywhere; a forced arm is chosen though it is frozen.
pub fn words(is_forced: bool, is_frozen: bool) -> &'static str {
    match (is_forced, is_frozen) {
        (true, true) => "forced, frozen",
        (true, false) => "forced",
        (false, true) => "frozen",
        (false, false) => "free",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_names_its_arm_or_says_what_is_wrong() {
        let force = ArmOrder::Force("judge".to_owned());
        assert_eq!(ArmOrder::new("force", Some("judge")), Ok(force.clone()));
        assert_eq!((force.name(), force.arm()), ("arm_force", Some("judge")));
        assert_eq!(ArmOrder::new("release", None), Ok(ArmOrder::Release));
        for (word, arm, part) in [
            ("freeze", None, "arm freeze needs an arm's name"),
            ("force", Some("two words"), "`two words` is no arm's name"),
            ("force", Some(""), "`` is no arm's name"),
            ("release", Some("judge"), "takes no name"),
            ("thaw", Some("judge"), "force, release, freeze, unfreeze"),
        ] {
            let reason = ArmOrder::new(word, arm).expect_err(word);
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn an_arm_s_state_is_said_in_words() {
        let arm = ArmState {
            timed_out: 2,
            missing: 1,
            is_forced: true,
            is_frozen: true,
            ..ArmState::default()
        };
        assert_eq!(arm.words(), "forced, frozen");
        assert_eq!(arm.losses(), "2 timed out, 1 missing");
        assert_eq!(ArmState::default().words(), "free");
        assert_eq!(ArmState::default().losses(), "");
    }
}
