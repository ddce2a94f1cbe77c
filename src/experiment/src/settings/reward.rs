//! `reward`: who scores a dialogue, and what length costs.

use serde::{Deserialize, Serialize};

use crate::arms::Arm;
use crate::bandit::Bandit;
use crate::scorers::ScorerName;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reward {
    /// `auto`: by the row's `data_source`.
    pub scorer: ScorerName,
    /// Of evaluations; None: as in training.
    pub val_scorer: Option<ScorerName>,
    pub reward_kwargs: RewardKwargs,
    /// The judges; empty: `custom_reward_function`, or else `scorer`, alone.
    pub arms: Vec<Arm>,
    pub custom_reward_function: CustomRewardFunction,
    pub bandit: Bandit,
}

impl Default for Reward {
    fn default() -> Self {
        Self {
            scorer: ScorerName::Auto,
            val_scorer: None,
            reward_kwargs: RewardKwargs::default(),
            arms: Vec::new(),
            custom_reward_function: CustomRewardFunction::default(),
            bandit: Bandit::default(),
        }
    }
}

/// verl's reward function in Python.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CustomRewardFunction {
    pub path: Option<String>,
    pub name: String,
    pub reward_kwargs: serde_json::Map<String, serde_json::Value>,
}

impl Default for CustomRewardFunction {
    fn default() -> Self {
        Self {
            path: None,
            name: "compute_score".to_owned(),
            reward_kwargs: serde_json::Map::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RewardKwargs {
    pub overlong_buffer_cfg: OverlongBuffer,
    /// None: `data.max_response_length`.
    pub max_resp_len: Option<u32>,
}

/// DAPO's soft punishment of long responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverlongBuffer {
    pub enable: bool,
    /// Tokens before the limit over which it grows.
    pub len: u32,
    /// What is lost at the limit.
    pub penalty_factor: f64,
}

impl Default for OverlongBuffer {
    fn default() -> Self {
        Self {
            enable: false,
            len: 0,
            penalty_factor: 1.0,
        }
    }
}
