//! One choice, and what became of it.

use serde::{Deserialize, Serialize};

/// What was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// This arm judges.
    One(usize),
    /// All arms judge, and these are their weights, which sum to 1 (`ensemble`).
    Blend(Vec<f64>),
}

impl Choice {
    /// None: all of them.
    pub fn arm(&self) -> Option<usize> {
        match self {
            Self::One(arm) => Some(*arm),
            Self::Blend(_) => None,
        }
    }
}

/// Why an arm was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It had never been chosen (`ucb1`, `kl_ucb`).
    FirstRound,
    /// Its upper bound is the highest.
    Bound,
    /// The draw from its posterior is the highest.
    Sampled,
    /// Its mean is the highest.
    Best,
    /// At random, with probability epsilon.
    Explored,
    /// The policy knows one arm only, or a fixed blend of all.
    Fixed,
    /// Somebody forced it.
    Forced,
    /// It is the only one that is not frozen.
    OnlyOne,
}

impl Why {
    /// As in the log: `first_round`.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstRound => "first_round",
            Self::Bound => "bound",
            Self::Sampled => "sampled",
            Self::Best => "best",
            Self::Explored => "explored",
            Self::Fixed => "fixed",
            Self::Forced => "forced",
            Self::OnlyOne => "only_one",
        }
    }
}

/// A choice that was made. Its number is what [`Bandit::learn`](crate::Bandit::learn) wants back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pull {
    /// Counts from 0 in the bandit's life.
    pub number: u64,
    pub choice: Choice,
    pub why: Why,
    /// Probability of this choice before it was drawn, 0..=1. None for `thompson`, where it costs an integral: see
    /// [`Bandit::chances`](crate::Bandit::chances).
    pub propensity: Option<f64>,
    /// What the arms were compared by: upper bound, draw or mean, in the order of the arms; infinite where an arm is
    /// unknown. Empty when nothing was compared.
    pub scores: Vec<f64>,
}

/// What the choice brought. A value is what the bandit is rewarded by, not the rollout's reward.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Value(f64),
    /// The arm did not answer in time: it counts with this default, and is marked.
    TimedOut {
        default: f64,
    },
    /// The arm failed, or the rollout was dropped: nothing is learned, and nothing counts.
    Missing,
}

/// What [`Bandit::learn`](crate::Bandit::learn) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// Kept; the statistics change after so many more outcomes.
    Waiting { outcomes_left: u32 },
    /// The statistics have changed; this many updates so far.
    Updated { updates: u64 },
    /// Missing (or not finite): counted as such, nothing learned.
    Missing,
    /// The pull already had its outcome: dropped and counted.
    Late,
}
