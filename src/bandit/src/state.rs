//! Everything that a bandit is made of besides its settings: what a checkpoint keeps.

use serde::{Deserialize, Serialize};

use crate::arm::ArmState;
use crate::error::BanditError;
use crate::linear::Context;
use crate::outcome::Choice;
use crate::quantiles::Quantiles;
use crate::settings::{PolicyName, Settings};

/// Raised when the fields mean something else.
pub const VERSION: u32 = 1;

/// Exact in any format that keeps `f64`s exactly (`serde_json` with `float_roundtrip`, postcard).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub version: u32,
    pub policy: PolicyName,
    pub seed: u64,
    pub arms: Vec<ArmState>,
    /// Pulls so far; the next one has this number.
    pub pulls: u64,
    /// Times the statistics have changed.
    pub updates: u64,
    /// Outcomes of pulls that already had one.
    pub late: u64,
    /// Of `epsilon_greedy`, now.
    pub epsilon: f64,
    /// The arm that somebody forced.
    pub forced: Option<usize>,
    /// Outcomes that the next update takes in, in the order in which they came.
    pub waiting: Vec<Waiting>,
    /// Pulls without an outcome so far, by number.
    pub open: Vec<Open>,
    /// Of `linucb`: the latest values.
    pub quantiles: Quantiles,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    pub arm: usize,
    pub value: f64,
    pub is_timed_out: bool,
    /// Somebody forced its pull.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_forced: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    pub pull: u64,
    pub choice: Choice,
    /// Somebody forced it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_forced: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
}

impl State {
    pub fn new(settings: &Settings, arms: &[String], seed: u64) -> Self {
        Self {
            version: VERSION,
            policy: settings.policy,
            seed,
            arms: arms.iter().map(|name| ArmState::new(name)).collect(),
            pulls: 0,
            updates: 0,
            late: 0,
            epsilon: settings.epsilon,
            forced: None,
            waiting: Vec::new(),
            open: Vec::new(),
            quantiles: Quantiles::default(),
        }
    }

    /// Whether a bandit of these settings and arms can go on from it.
    pub fn fits(&self, settings: &Settings, arms: &[String]) -> Result<(), BanditError> {
        let refuse = |message: String| Err(BanditError::state(message));
        if self.version != VERSION {
            return refuse(format!(
                "it is of version {}, and this program reads {VERSION}",
                self.version
            ));
        }
        if self.policy != settings.policy {
            return refuse(format!(
                "it belongs to policy {}, and the settings say {}",
                self.policy.row().name,
                settings.policy.row().name
            ));
        }
        let own: Vec<&str> = self.arms.iter().map(|arm| &*arm.name).collect();
        if own != arms {
            return refuse(format!(
                "its arms are {}; the settings have {}",
                own.join(", "),
                arms.join(", ")
            ));
        }
        let count = self.arms.len();
        let is_arm = |arm: usize| arm < count;
        let is_choice = |choice: &Choice| match choice {
            Choice::One(arm) => is_arm(*arm),
            Choice::Blend(weights) => weights.len() == count,
        };
        let dimensions = self.dimensions();
        let arms_are_whole = self.arms.iter().all(|arm| {
            let finite = [&arm.all, &arm.recent].iter().all(|moments| {
                moments.weight.is_finite()
                    && moments.weight >= 0.0
                    && moments.sum.is_finite()
                    && moments.spread.is_finite()
            });
            finite
                && (arm.linear.as_ref())
                    .is_none_or(|model| model.is_whole() && Some(model.dimensions()) == dimensions)
        });
        let is_whole = arms_are_whole
            && self.forced.is_none_or(is_arm)
            && (self.waiting.iter())
                .all(|waiting| is_arm(waiting.arm) && waiting.value.is_finite())
            && self
                .open
                .iter()
                .all(|open| is_choice(&open.choice) && open.pull < self.pulls)
            && self.open.is_sorted_by(|a, b| a.pull < b.pull)
            && (0.0..=1.0).contains(&self.epsilon)
            && self.arms.iter().any(|arm| !arm.is_frozen);
        if is_whole {
            Ok(())
        } else {
            refuse("its parts contradict each other; it was changed or is torn".to_owned())
        }
    }

    /// Of the contexts; None before the first one.
    pub fn dimensions(&self) -> Option<usize> {
        self.arms
            .iter()
            .find_map(|arm| Some(arm.linear.as_ref()?.dimensions()))
    }
}
