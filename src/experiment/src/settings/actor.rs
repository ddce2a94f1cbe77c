//! `actor_rollout_ref` but for its rollout, and `critic`: models, losses, optimizers, precision.

use serde::{Deserialize, Serialize};

use super::{KlLossCtrl, Rollout};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActorRolloutRef {
    pub hybrid_engine: bool,
    pub model: Model,
    pub actor: Actor,
    pub rollout: Rollout,
    pub r#ref: Ref,
}

impl Default for ActorRolloutRef {
    fn default() -> Self {
        Self {
            hybrid_engine: true,
            model: Model::default(),
            actor: Actor::default(),
            rollout: Rollout::default(),
            r#ref: Ref::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// Hugging Face directory.
    pub path: String,
    pub tokenizer_path: Option<String>,
    /// Jinja text that replaces the tokenizer's template.
    pub custom_chat_template: Option<String>,
    pub enable_gradient_checkpointing: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Actor {
    /// In prompts; multiplied by `rollout.n`. One optimizer step each.
    pub ppo_mini_batch_size: u32,
    /// Sequences a forward/backward; None with `use_dynamic_bsz`.
    pub ppo_micro_batch_size_per_gpu: Option<u32>,
    pub use_dynamic_bsz: bool,
    pub ppo_max_token_len_per_gpu: u32,
    pub ppo_epochs: u32,
    pub shuffle: bool,
    pub data_loader_seed: u64,
    pub clip_ratio_low: f64,
    pub clip_ratio_high: f64,
    pub clip_ratio_c: f64,
    pub tau_pos: f64,
    pub tau_neg: f64,
    pub policy_loss: PolicyLoss,
    pub loss_agg_mode: LossAggMode,
    pub loss_scale_factor: Option<f64>,
    pub entropy_coeff: f64,
    pub calculate_entropy: bool,
    pub use_kl_loss: bool,
    pub kl_loss_coef: f64,
    pub kl_loss_type: KlEstimator,
    pub kl_loss_ctrl: KlLossCtrl,
    pub optim: Optim,
    pub fsdp_config: Precision,
}

impl Default for Actor {
    fn default() -> Self {
        Self {
            ppo_mini_batch_size: 256,
            ppo_micro_batch_size_per_gpu: None,
            use_dynamic_bsz: false,
            ppo_max_token_len_per_gpu: 16384,
            ppo_epochs: 1,
            shuffle: false,
            data_loader_seed: 42,
            clip_ratio_low: 0.2,
            clip_ratio_high: 0.2,
            clip_ratio_c: 3.0,
            tau_pos: 1.0,
            tau_neg: 1.05,
            policy_loss: PolicyLoss::default(),
            loss_agg_mode: LossAggMode::TokenMean,
            loss_scale_factor: None,
            entropy_coeff: 0.0,
            calculate_entropy: true,
            use_kl_loss: false,
            kl_loss_coef: 0.001,
            kl_loss_type: KlEstimator::K3,
            kl_loss_ctrl: KlLossCtrl::default(),
            optim: Optim::default(),
            fsdp_config: Precision::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyLoss {
    pub loss_mode: LossMode,
    pub clip_cov_ratio: f64,
    pub clip_cov_lb: f64,
    pub clip_cov_ub: f64,
    pub kl_cov_ratio: f64,
    pub ppo_kl_coef: f64,
    /// dro cannot do without.
    pub dro_beta: Option<f64>,
}

impl Default for PolicyLoss {
    fn default() -> Self {
        Self {
            loss_mode: LossMode::Vanilla,
            clip_cov_ratio: 0.0002,
            clip_cov_lb: 1.0,
            clip_cov_ub: 5.0,
            kl_cov_ratio: 0.0002,
            ppo_kl_coef: 0.1,
            dro_beta: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossMode {
    #[serde(alias = "bypass_mode")]
    Vanilla,
    DppoTv,
    DppoKl,
    Gspo,
    Sapo,
    Gpg,
    ClipCov,
    KlCov,
    GeoMean,
    Dro,
    Cispo,
}

/// verl's `loss_agg_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossAggMode {
    TokenMean,
    TokenSum,
    SeqMeanTokenSum,
    SeqMeanTokenMean,
    SeqMeanTokenSumNorm,
}

/// Estimator of KL(a‖b) from samples of a (Schulman 2020). A trailing `+` in YAML keeps the value and takes k2's gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KlEstimator {
    #[serde(rename = "kl", alias = "k1")]
    K1,
    #[serde(rename = "abs")]
    Abs,
    #[serde(rename = "mse", alias = "k2")]
    K2,
    #[serde(rename = "low_var_kl", alias = "k3")]
    K3,
    #[serde(rename = "kl+", alias = "k1+")]
    K1Plus,
    #[serde(rename = "abs+")]
    AbsPlus,
    #[serde(rename = "mse+", alias = "k2+")]
    K2Plus,
    #[serde(rename = "low_var_kl+", alias = "k3+")]
    K3Plus,
    /// No estimate: the sum over the vocabulary, from logits.
    #[serde(rename = "full")]
    Full,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Optim {
    pub lr: f64,
    /// > 0 wins over the ratio.
    pub lr_warmup_steps: i64,
    pub lr_warmup_steps_ratio: f64,
    pub lr_scheduler_type: LrScheduler,
    pub min_lr_ratio: f64,
    pub num_cycles: f64,
    pub weight_decay: f64,
    pub betas: [f64; 2],
    pub eps: f64,
    pub clip_grad: f64,
}

impl Default for Optim {
    fn default() -> Self {
        Self {
            lr: 1e-6,
            lr_warmup_steps: -1,
            lr_warmup_steps_ratio: 0.0,
            lr_scheduler_type: LrScheduler::Constant,
            min_lr_ratio: 0.0,
            num_cycles: 0.5,
            weight_decay: 0.01,
            betas: [0.9, 0.999],
            eps: 1e-8,
            clip_grad: 1.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LrScheduler {
    Constant,
    Cosine,
}

/// Of verl's `fsdp_config` what one process needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Precision {
    /// Of the weights the optimizer steps.
    pub model_dtype: Dtype,
    /// Of the matrix work; None: as `model_dtype`.
    pub dtype: Option<Dtype>,
}

impl Default for Precision {
    fn default() -> Self {
        Self {
            model_dtype: Dtype::Float32,
            dtype: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dtype {
    #[serde(rename = "fp32", alias = "float32")]
    Float32,
    #[serde(rename = "bfloat16", alias = "bf16")]
    BFloat16,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ref {
    pub log_prob_micro_batch_size_per_gpu: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Critic {
    /// None: on when `adv_estimator` needs values.
    pub enable: Option<bool>,
    /// `path` None: starts as a copy of the actor.
    pub model: CriticModel,
    pub optim: Optim,
    pub ppo_mini_batch_size: Option<u32>,
    pub ppo_micro_batch_size_per_gpu: Option<u32>,
    pub ppo_epochs: Option<u32>,
    pub shuffle: Option<bool>,
    pub cliprange_value: f64,
    pub loss_agg_mode: Option<LossAggMode>,
}

impl Default for Critic {
    fn default() -> Self {
        Self {
            enable: None,
            model: CriticModel::default(),
            optim: Optim {
                lr: 1e-5,
                ..Optim::default()
            },
            ppo_mini_batch_size: None,
            ppo_micro_batch_size_per_gpu: None,
            ppo_epochs: None,
            shuffle: None,
            cliprange_value: 0.5,
            loss_agg_mode: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CriticModel {
    pub path: Option<String>,
}
