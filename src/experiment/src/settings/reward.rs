//! `reward`: who scores a dialogue, and what length costs.

use serde::{Deserialize, Serialize};

use crate::bandit::Bandit;
use crate::scorers::ScorerName;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reward {
    /// `auto`: by the row's `data_source`.
    pub scorer: ScorerName,
    pub reward_kwargs: RewardKwargs,
    /// Names of the reward sources; what each of them is comes later.
    pub arms: Vec<String>,
    pub bandit: Bandit,
}

impl Default for Reward {
    fn default() -> Self {
        Self {
            scorer: ScorerName::Auto,
            reward_kwargs: RewardKwargs::default(),
            arms: Vec::new(),
            bandit: Bandit::default(),
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
