//! `algorithm`: advantages, KL control, rollout correction, which groups are trained on.

use serde::{Deserialize, Serialize};

use super::KlEstimator;
use crate::correction::Band;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Algorithm {
    pub adv_estimator: AdvEstimator,
    pub gamma: f64,
    pub lam: f64,
    pub norm_adv_by_std_in_grpo: bool,
    /// Names of the scorer's numbers that gdpo compares, each by itself; `score` is the reward itself.
    pub gdpo_reward_keys: Vec<String>,
    /// One for each of those; None: 1.
    pub gdpo_reward_weights: Option<Vec<f64>>,
    pub use_kl_in_reward: bool,
    pub kl_penalty: KlEstimator,
    pub kl_ctrl: KlCtrl,
    pub filter_groups: FilterGroups,
    pub rollout_correction: RolloutCorrection,
}

impl Default for Algorithm {
    fn default() -> Self {
        Self {
            adv_estimator: AdvEstimator::Gae,
            gamma: 1.0,
            lam: 1.0,
            norm_adv_by_std_in_grpo: true,
            gdpo_reward_keys: Vec::new(),
            gdpo_reward_weights: None,
            use_kl_in_reward: false,
            kl_penalty: KlEstimator::K1,
            kl_ctrl: KlCtrl::default(),
            filter_groups: FilterGroups::default(),
            rollout_correction: RolloutCorrection::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdvEstimator {
    Gae,
    Grpo,
    GrpoVectorized,
    GrpoPassk,
    Gdpo,
    ReinforcePlusPlus,
    ReinforcePlusPlusBaseline,
    Remax,
    Rloo,
    RlooVectorized,
    Opo,
    Gpg,
    OptimalTokenBaseline,
    TirOptimalTokenBaseline,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KlCtrl {
    #[serde(rename = "type")]
    pub kind: KlCtrlType,
    pub kl_coef: f64,
    pub horizon: f64,
    pub target_kl: f64,
    pub target_kl_per: KlTargetPer,
}

impl Default for KlCtrl {
    fn default() -> Self {
        Self {
            kind: KlCtrlType::Fixed,
            kl_coef: 0.001,
            horizon: 10000.0,
            target_kl: 0.1,
            target_kl_per: KlTargetPer::Token,
        }
    }
}

/// How the coefficient of the KL in the loss goes on from `kl_loss_coef`; not in verl, where it never adapts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KlLossCtrl {
    #[serde(rename = "type")]
    pub kind: KlCtrlType,
    pub horizon: f64,
    pub target_kl: f64,
    pub target_kl_per: KlTargetPer,
}

impl Default for KlLossCtrl {
    fn default() -> Self {
        Self {
            kind: KlCtrlType::Fixed,
            horizon: 10000.0,
            target_kl: 0.1,
            target_kl_per: KlTargetPer::Token,
        }
    }
}

/// What a target KL is a mean of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlTargetPer {
    /// The KL of a token, as in verl: mostly 1e-4 to 1e-2 nats.
    #[default]
    Token,
    /// The sum over a response, as in Ziegler et al. 2019.
    Sequence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlCtrlType {
    Fixed,
    Adaptive,
}

/// The gap between the weights that drew a token and those before the update (verl's rollout correction).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutCorrection {
    /// Truncated importance sampling per `token` or `sequence`; None: off.
    pub rollout_is: Option<ImportanceLevel>,
    /// A cap C, or a band.
    pub rollout_is_threshold: Band,
    pub rollout_is_batch_normalize: bool,
    /// What is left out of the loss, with its thresholds; see [`crate::correction::criteria`]. None: nothing.
    pub rollout_rs: Option<String>,
    pub rollout_rs_threshold: Option<String>,
    /// Old log-probs := the rollout's own, no second pass.
    pub bypass_mode: bool,
    /// With `bypass_mode` only.
    pub loss_type: BypassLoss,
}

impl Default for RolloutCorrection {
    fn default() -> Self {
        Self {
            rollout_is: None,
            rollout_is_threshold: Band {
                lower: None,
                upper: 2.0,
            },
            rollout_is_batch_normalize: false,
            rollout_rs: None,
            rollout_rs_threshold: None,
            bypass_mode: false,
            loss_type: BypassLoss::PpoClip,
        }
    }
}

/// What corrects the gap to the rollout when there is no policy between it and the one that is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BypassLoss {
    /// The clipped ratio to the rollout.
    #[default]
    PpoClip,
    /// −A·log π, weighted by the correction's weights.
    Reinforce,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportanceLevel {
    Token,
    Sequence,
}

/// DAPO's dynamic sampling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilterGroups {
    pub enable: bool,
    /// `reward`, or the name of one of the scorer's numbers.
    pub metric: String,
    /// 0: 10.
    pub max_num_gen_batches: u32,
}

impl Default for FilterGroups {
    fn default() -> Self {
        Self {
            enable: false,
            metric: "reward".to_owned(),
            max_num_gen_batches: 0,
        }
    }
}
