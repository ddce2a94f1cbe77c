//! The typed experiment. Field paths are the YAML's key paths; defaults are verl 0.9.1's unless the key table says otherwise.

use serde::{Deserialize, Serialize};

use crate::bandit::Bandit;
use crate::correction::Band;
use crate::guards::Guard;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Experiment {
    pub data: Data,
    pub actor_rollout_ref: ActorRolloutRef,
    pub critic: Critic,
    pub algorithm: Algorithm,
    pub async_training: AsyncTraining,
    pub reward: Reward,
    pub trainer: Trainer,
    pub sft: Sft,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Parquet files; relative paths are relative to the directory `lathe` runs in, then to the experiment's file.
    pub train_files: Vec<String>,
    pub val_files: Vec<String>,
    pub prompt_key: String,
    /// Prompts a step (times `rollout.n` samples).
    pub train_batch_size: u32,
    /// None: the whole file.
    pub train_max_samples: Option<u64>,
    pub val_max_samples: Option<u64>,
    pub max_prompt_length: u32,
    /// Tokens of the whole dialogue after the prompt, tool results included.
    pub max_response_length: u32,
    pub filter_overlong_prompts: bool,
    pub shuffle: bool,
    pub seed: u64,
    pub apply_chat_template_kwargs: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActorRolloutRef {
    pub hybrid_engine: bool,
    pub model: Model,
    pub actor: Actor,
    pub rollout: Rollout,
    pub r#ref: Ref,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dtype {
    #[serde(rename = "fp32", alias = "float32")]
    Float32,
    #[serde(rename = "bfloat16", alias = "bf16")]
    BFloat16,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rollout {
    pub name: EngineName,
    pub nnodes: u32,
    pub n_gpus_per_node: u32,
    pub gpu_memory_utilization: f64,
    /// Samples per prompt (group size G).
    pub n: u32,
    pub temperature: f64,
    /// -1: off.
    pub top_k: i64,
    pub top_p: f64,
    pub min_p: f64,
    pub ignore_eos: bool,
    pub stop: Vec<String>,
    pub seed: u64,
    pub dtype: Option<Dtype>,
    /// Sequences decoded together.
    pub max_num_seqs: u32,
    /// None: `max_prompt_length` + `max_response_length`.
    pub max_model_len: Option<u32>,
    /// Batches do not depend on timing, so the same seed gives the same bits; a slow tool then holds every session up.
    pub full_determinism: bool,
    pub calculate_log_probs: bool,
    pub log_prob_micro_batch_size_per_gpu: Option<u32>,
    /// A session older than this ends with what it has; None: no deadline.
    pub session_timeout_s: Option<f64>,
    /// How often a dialogue that fails, or reaches that with nothing drawn, is begun again.
    pub session_retries: u32,
    pub multi_turn: MultiTurn,
    pub agent: Agent,
    pub val_kwargs: ValKwargs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineName {
    /// In this process.
    Embedded,
    Vllm,
    Sglang,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MultiTurn {
    pub enable: bool,
    pub max_assistant_turns: Option<u32>,
    pub max_parallel_calls: u32,
    pub tool_config_path: Option<String>,
    pub format: ToolFormat,
    /// Characters, as in verl.
    pub max_tool_response_length: u32,
    pub tool_response_truncate_side: TruncateSide,
    pub tool_timeout_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolFormat {
    Hermes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TruncateSide {
    Left,
    Middle,
    Right,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    /// `single_turn_agent` or `tool_agent`; a row's `agent_name` wins.
    pub default_agent_loop: AgentLoop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentLoop {
    SingleTurnAgent,
    ToolAgent,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValKwargs {
    pub temperature: f64,
    pub top_k: i64,
    pub top_p: f64,
    pub n: u32,
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

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CriticModel {
    pub path: Option<String>,
}

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

/// Generation beside training (verl's `fully_async_policy`); of effect in mode `async`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AsyncTraining {
    /// Sessions in flight go on under new weights when they arrive; each token keeps its version and its log-prob.
    pub partial_rollout: bool,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScorerName {
    Auto,
    Exact,
    Numeric,
    Gsm8k,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trainer {
    pub mode: Mode,
    /// Policy versions a batch may lag; 0 is exactly `sync`. None: 0 in `sync`, else 1.
    pub max_staleness: Option<u32>,
    pub total_epochs: u32,
    /// Wins over epochs.
    pub total_training_steps: Option<u64>,
    pub project_name: String,
    pub experiment_name: String,
    pub logger: Vec<LoggerName>,
    pub nnodes: u32,
    pub n_gpus_per_node: u32,
    pub device: Device,
    pub seed: u64,
    /// Intra-op threads of libtorch for learner and engine each.
    pub threads: u32,
    /// Steps between checkpoints; -1: only at the end.
    pub save_freq: i64,
    /// Steps between evaluations; -1: never.
    pub test_freq: i64,
    pub val_before_train: bool,
    pub val_only: bool,
    pub critic_warmup: u64,
    pub max_actor_ckpt_to_keep: Option<u32>,
    /// Of those beyond `max_actor_ckpt_to_keep`: each of a step that is a multiple of this is kept.
    pub ckpt_keep_every: Option<u32>,
    /// And so many with the best `ckpt_best_metric`.
    pub ckpt_keep_best: u32,
    /// Names, `*` for any text; the mean of all that fit.
    pub ckpt_best_metric: String,
    pub resume_mode: ResumeMode,
    /// The checkpoint that `resume_path` starts from.
    pub resume_from_path: Option<String>,
    /// What is watched while the run runs, and what is done when it goes wrong.
    pub guards: Vec<Guard>,
    /// Parquet with a `messages` column whose perplexity under the policy is `probe/perplexity`.
    pub guard_probe_files: Vec<String>,
    /// Dialogues taken of them.
    pub guard_probe_rows: u32,
    /// Steps between two looks at the probe.
    pub guard_probe_freq: u32,
    /// Keep every sample of every step in `rollouts/`.
    pub record_rollouts: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Sync,
    OneStepOff,
    Async,
    /// Begins as `sync`; the async advisor measures, and turns the bound of staleness up to `max_staleness`.
    Auto,
}

/// What a run starts from. Going on in its own directory (`lathe run --resume`) is asked for on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeMode {
    /// The model's weights; a run directory that holds checkpoints of its own goes on from the newest.
    Auto,
    /// The same: a new run has a new directory, so there is nothing to find.
    Disable,
    /// The checkpoint at `resume_from_path`, with its optimizer state and its place in the data.
    ResumePath,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoggerName {
    Console,
    File,
    Tensorboard,
    Wandb,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// CUDA when there is one.
    Auto,
    Cpu,
    Cuda,
}

/// Supervised warm-up on demonstrations (`lathe sft`), not in verl's RL tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sft {
    /// Parquet with a `messages` column; loss on assistant tokens only.
    pub train_files: Vec<String>,
    pub val_files: Vec<String>,
    /// A `config.json` to start from random weights instead of `model.path`'s.
    pub init_config: Option<String>,
    pub batch_size: u32,
    pub total_training_steps: u64,
    pub optim: Optim,
    /// Where the result goes, in the Hugging Face layout.
    pub output_dir: Option<String>,
}

impl Default for Data {
    fn default() -> Self {
        Self {
            train_files: Vec::new(),
            val_files: Vec::new(),
            prompt_key: "prompt".to_owned(),
            train_batch_size: 1024,
            train_max_samples: None,
            val_max_samples: None,
            max_prompt_length: 512,
            max_response_length: 512,
            filter_overlong_prompts: false,
            shuffle: true,
            seed: 42,
            apply_chat_template_kwargs: serde_json::Map::new(),
        }
    }
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

impl Default for Precision {
    fn default() -> Self {
        Self {
            model_dtype: Dtype::Float32,
            dtype: None,
        }
    }
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            name: EngineName::Embedded,
            nnodes: 0,
            n_gpus_per_node: 8,
            gpu_memory_utilization: 0.5,
            n: 1,
            temperature: 1.0,
            top_k: -1,
            top_p: 1.0,
            min_p: 0.0,
            ignore_eos: false,
            stop: Vec::new(),
            seed: 42,
            dtype: None,
            max_num_seqs: 256,
            max_model_len: None,
            full_determinism: false,
            calculate_log_probs: true,
            log_prob_micro_batch_size_per_gpu: None,
            session_timeout_s: None,
            session_retries: 1,
            multi_turn: MultiTurn::default(),
            agent: Agent::default(),
            val_kwargs: ValKwargs::default(),
        }
    }
}

impl Default for MultiTurn {
    fn default() -> Self {
        Self {
            enable: false,
            max_assistant_turns: None,
            max_parallel_calls: 1,
            tool_config_path: None,
            format: ToolFormat::Hermes,
            max_tool_response_length: 256,
            tool_response_truncate_side: TruncateSide::Middle,
            tool_timeout_s: 60.0,
        }
    }
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            default_agent_loop: AgentLoop::SingleTurnAgent,
        }
    }
}

impl Default for ValKwargs {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: -1,
            top_p: 1.0,
            n: 1,
        }
    }
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

impl Default for FilterGroups {
    fn default() -> Self {
        Self {
            enable: false,
            metric: "reward".to_owned(),
            max_num_gen_batches: 0,
        }
    }
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

impl Default for AsyncTraining {
    fn default() -> Self {
        Self {
            partial_rollout: true,
        }
    }
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

impl Default for Trainer {
    fn default() -> Self {
        Self {
            mode: Mode::OneStepOff,
            max_staleness: None,
            total_epochs: 30,
            total_training_steps: None,
            project_name: "lathe".to_owned(),
            experiment_name: "experiment".to_owned(),
            logger: vec![LoggerName::Console],
            nnodes: 1,
            n_gpus_per_node: 8,
            device: Device::Auto,
            seed: 42,
            threads: 1,
            save_freq: -1,
            test_freq: -1,
            val_before_train: true,
            val_only: false,
            critic_warmup: 0,
            max_actor_ckpt_to_keep: None,
            ckpt_keep_every: None,
            ckpt_keep_best: 0,
            ckpt_best_metric: crate::guards::GOAL.to_owned(),
            resume_mode: ResumeMode::Auto,
            resume_from_path: None,
            guards: Vec::new(),
            guard_probe_files: Vec::new(),
            guard_probe_rows: 64,
            guard_probe_freq: 1,
            record_rollouts: true,
        }
    }
}

impl Default for Sft {
    fn default() -> Self {
        Self {
            train_files: Vec::new(),
            val_files: Vec::new(),
            init_config: None,
            batch_size: 32,
            total_training_steps: 200,
            optim: Optim {
                lr: 1e-3,
                ..Optim::default()
            },
            output_dir: None,
        }
    }
}
