//! The keys that do something here. Paths and defaults are `settings`'s; a test holds the two together.

use super::kind::{Bound, Choices, I64, Kind, U32, U64};

/// A key that has an effect.
#[derive(Debug, Clone)]
pub struct Live {
    pub path: String,
    pub kind: Kind,
    /// Whether `null` is a value: off, or chosen by the program.
    pub nullable: bool,
    /// As JSON.
    pub default: &'static str,
    pub unit: &'static str,
    pub help: &'static str,
}

struct Row {
    path: &'static str,
    kind: Kind,
    nullable: bool,
    default: &'static str,
    unit: &'static str,
    help: &'static str,
}

const fn row(
    path: &'static str,
    kind: Kind,
    default: &'static str,
    unit: &'static str,
    help: &'static str,
) -> Row {
    Row {
        path,
        kind,
        nullable: false,
        default,
        unit,
        help,
    }
}

/// May be null, and is by default.
const fn opt(path: &'static str, kind: Kind, unit: &'static str, help: &'static str) -> Row {
    Row {
        path,
        kind,
        nullable: true,
        default: "null",
        unit,
        help,
    }
}

const fn choice(names: &'static [&'static str], later: &'static [&'static str]) -> Choices {
    Choices {
        now: names,
        also: &[],
        later,
        later_is_dropped: false,
    }
}

const COUNT: Kind = Kind::Int {
    min: 1,
    max: U32,
    off: None,
};
const COUNT_OR_ZERO: Kind = Kind::Int {
    min: 0,
    max: U32,
    off: None,
};
const STEPS: Kind = Kind::Int {
    min: 0,
    max: I64,
    off: None,
};
const EVERY: Kind = Kind::Int {
    min: 1,
    max: I64,
    off: Some(-1),
};
const SEED: Kind = Kind::Int {
    min: 0,
    max: U64,
    off: None,
};
const ROWS: Kind = Kind::Int {
    min: 1,
    max: U64,
    off: Some(-1),
};
const TOP_K: Kind = Kind::Int {
    min: 1,
    max: U32,
    off: Some(-1),
};
const NOT_NEGATIVE: Kind = Kind::Float {
    low: Bound::Closed(0.0),
    high: Bound::None,
};
const POSITIVE: Kind = Kind::Float {
    low: Bound::Open(0.0),
    high: Bound::None,
};
const SHARE: Kind = Kind::Probability {
    low: Bound::Closed(0.0),
    high: Bound::Closed(1.0),
};
const SHARE_ABOVE_ZERO: Kind = Kind::Probability {
    low: Bound::Open(0.0),
    high: Bound::Closed(1.0),
};
const SHARE_BELOW_ONE: Kind = Kind::Probability {
    low: Bound::Closed(0.0),
    high: Bound::Open(1.0),
};
const PATHS: Kind = Kind::List(&Kind::Path);

const DTYPE: Kind = Kind::Choice(&Choices {
    now: &["fp32", "bfloat16"],
    also: &["float32", "bf16"],
    later: &["fp16", "float16", "half"],
    later_is_dropped: false,
});
const KL: Choices = Choices {
    now: &[
        "kl",
        "abs",
        "mse",
        "low_var_kl",
        "kl+",
        "abs+",
        "mse+",
        "low_var_kl+",
    ],
    also: &["k1", "k2", "k3", "k1+", "k2+", "k3+"],
    later: &["full"],
    later_is_dropped: false,
};
const AGGREGATION: Choices = choice(
    &[
        "token-mean",
        "token-sum",
        "seq-mean-token-sum",
        "seq-mean-token-mean",
        "seq-mean-token-sum-norm",
    ],
    &[],
);
const LOSS_MODES: Choices = choice(
    &["vanilla"],
    &[
        "dppo_tv",
        "dppo_kl",
        "gspo",
        "sapo",
        "gpg",
        "clip_cov",
        "kl_cov",
        "geo_mean",
        "dro",
        "cispo",
        "bypass_mode",
    ],
);
const ESTIMATORS: Choices = choice(
    &["gae", "grpo"],
    &[
        "grpo_vectorized",
        "grpo_passk",
        "gdpo",
        "reinforce_plus_plus",
        "reinforce_plus_plus_baseline",
        "remax",
        "rloo",
        "rloo_vectorized",
        "opo",
        "gpg",
        "optimal_token_baseline",
        "tir_optimal_token_baseline",
    ],
);
/// `vllm` and `sglang` are known to the typed experiment; a rule warns about them.
const ENGINES: Choices = choice(&["embedded", "vllm", "sglang"], &["trtllm", "hf"]);
const TOOL_FORMATS: Choices = choice(
    &["hermes"],
    &[
        "gpt-oss",
        "qwen3_coder",
        "glm",
        "seed",
        "minimax",
        "kimi",
        "deepseek_v4",
        "gemma4",
    ],
);
const LOGGERS: Kind = Kind::Choice(&Choices {
    now: &["console", "file", "tensorboard", "wandb"],
    also: &[],
    later: &[
        "mlflow",
        "swanlab",
        "vemlp_wandb",
        "clearml",
        "trackio",
        "rl_insight",
    ],
    later_is_dropped: true,
});

const OPTIMIZED: [(&str, &str); 3] = [
    ("actor_rollout_ref.actor.optim", "1e-6"),
    ("critic.optim", "1e-5"),
    ("sft.optim", "1e-3"),
];

/// Under each of `OPTIMIZED`.
const OPTIM: &[Row] = &[
    row(
        "lr_warmup_steps",
        Kind::Int {
            min: 0,
            max: I64,
            off: Some(-1),
        },
        "-1",
        "steps",
        "Linear warm-up; above 0 it wins over the ratio.",
    ),
    row(
        "lr_warmup_steps_ratio",
        SHARE,
        "0.0",
        "of all steps",
        "Warm-up as a share of the run, when lr_warmup_steps is not above 0.",
    ),
    row(
        "lr_scheduler_type",
        Kind::Choice(&choice(&["constant", "cosine"], &[])),
        "\"constant\"",
        "",
        "Shape after the warm-up.",
    ),
    row(
        "min_lr_ratio",
        SHARE,
        "0.0",
        "of lr",
        "Floor of the cosine.",
    ),
    row(
        "num_cycles",
        POSITIVE,
        "0.5",
        "cycles",
        "Cosine cycles; 0.5 ends at the floor.",
    ),
    row(
        "weight_decay",
        NOT_NEGATIVE,
        "0.01",
        "",
        "Decoupled weight decay (AdamW).",
    ),
    row(
        "betas",
        Kind::Pair(&SHARE_BELOW_ONE),
        "[0.9, 0.999]",
        "",
        "Adam's decay of the first and second moment.",
    ),
    row(
        "eps",
        POSITIVE,
        "1e-8",
        "",
        "Adam's epsilon (verl takes PyTorch's, the same).",
    ),
    row(
        "clip_grad",
        POSITIVE,
        "1.0",
        "",
        "Cap on the global gradient norm; verl's grad_clip is dead, this is the real one.",
    ),
];

const ROWS_OF: &[Row] = &[
    // data
    row(
        "data.train_files",
        PATHS,
        "[]",
        "",
        "Parquet files in verl's row schema; one path or a list.",
    ),
    row(
        "data.val_files",
        PATHS,
        "[]",
        "",
        "Parquet files of the evaluation.",
    ),
    row(
        "data.prompt_key",
        Kind::Text,
        "\"prompt\"",
        "",
        "Column that holds the chat messages.",
    ),
    row(
        "data.train_batch_size",
        COUNT,
        "1024",
        "prompts",
        "Prompts a step; times rollout.n samples.",
    ),
    opt(
        "data.train_max_samples",
        ROWS,
        "rows",
        "Rows taken of the training files; null or -1: all.",
    ),
    opt(
        "data.val_max_samples",
        ROWS,
        "rows",
        "Rows taken of the evaluation files; null or -1: all.",
    ),
    row(
        "data.max_prompt_length",
        COUNT,
        "512",
        "tokens",
        "Longest prompt after the chat template, tool schemas included.",
    ),
    row(
        "data.max_response_length",
        COUNT,
        "512",
        "tokens",
        "The whole dialogue after the prompt, tool results included.",
    ),
    row(
        "data.filter_overlong_prompts",
        Kind::Bool,
        "false",
        "",
        "Drop rows whose prompt is too long; otherwise such a row is an error.",
    ),
    row(
        "data.shuffle",
        Kind::Bool,
        "true",
        "",
        "Shuffle the training rows each epoch, by data.seed.",
    ),
    row(
        "data.seed",
        SEED,
        "42",
        "",
        "Seed of the row order (verl's null would not be reproducible).",
    ),
    row(
        "data.apply_chat_template_kwargs",
        Kind::Mapping,
        "{}",
        "",
        "Extra variables for the chat template, e.g. {enable_thinking: false}.",
    ),
    // actor_rollout_ref
    row(
        "actor_rollout_ref.hybrid_engine",
        Kind::Bool,
        "true",
        "",
        "Actor and rollouts on the same devices; false: each on its own.",
    ),
    row(
        "actor_rollout_ref.model.path",
        Kind::Path,
        "\"\"",
        "",
        "Directory in the Hugging Face layout (config.json, safetensors, tokenizer.json).",
    ),
    opt(
        "actor_rollout_ref.model.tokenizer_path",
        Kind::Path,
        "",
        "Tokenizer directory when it is not the model's.",
    ),
    opt(
        "actor_rollout_ref.model.custom_chat_template",
        Kind::Text,
        "",
        "Jinja text that replaces the tokenizer's template.",
    ),
    row(
        "actor_rollout_ref.model.enable_gradient_checkpointing",
        Kind::Bool,
        "false",
        "",
        "Recompute activations in the backward pass: less memory, more time.",
    ),
    row(
        "actor_rollout_ref.actor.ppo_mini_batch_size",
        COUNT,
        "256",
        "prompts",
        "One optimizer step each; times rollout.n sequences.",
    ),
    opt(
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        COUNT,
        "sequences",
        "Sequences a forward/backward; null: packed by tokens. Changes memory, not gradients.",
    ),
    row(
        "actor_rollout_ref.actor.use_dynamic_bsz",
        Kind::Bool,
        "false",
        "",
        "Pack micro-batches by ppo_max_token_len_per_gpu instead of by count.",
    ),
    row(
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
        COUNT,
        "16384",
        "tokens",
        "Token budget of a packed micro-batch.",
    ),
    row(
        "actor_rollout_ref.actor.ppo_epochs",
        COUNT,
        "1",
        "passes",
        "Passes over each batch.",
    ),
    row(
        "actor_rollout_ref.actor.shuffle",
        Kind::Bool,
        "false",
        "",
        "Shuffle mini-batches.",
    ),
    row(
        "actor_rollout_ref.actor.data_loader_seed",
        SEED,
        "42",
        "",
        "Seed of that shuffle.",
    ),
    row(
        "actor_rollout_ref.actor.clip_ratio_low",
        SHARE_BELOW_ONE,
        "0.2",
        "",
        "The policy ratio is clipped at 1 - this.",
    ),
    row(
        "actor_rollout_ref.actor.clip_ratio_high",
        NOT_NEGATIVE,
        "0.2",
        "",
        "The policy ratio is clipped at 1 + this (DAPO's clip-higher: 0.28).",
    ),
    row(
        "actor_rollout_ref.actor.clip_ratio_c",
        Kind::Float {
            low: Bound::Open(1.0),
            high: Bound::None,
        },
        "3.0",
        "",
        "Dual clip: bound on ratio x |advantage| when the advantage is negative.",
    ),
    row(
        "actor_rollout_ref.actor.policy_loss.loss_mode",
        Kind::Choice(&LOSS_MODES),
        "\"vanilla\"",
        "",
        "Policy loss; vanilla is PPO's clipped one with dual clip.",
    ),
    row(
        "actor_rollout_ref.actor.loss_agg_mode",
        Kind::Choice(&AGGREGATION),
        "\"token-mean\"",
        "",
        "How token losses become one number; denominators are global.",
    ),
    opt(
        "actor_rollout_ref.actor.loss_scale_factor",
        POSITIVE,
        "tokens",
        "Divisor of seq-mean-token-sum-norm; null: max_response_length.",
    ),
    row(
        "actor_rollout_ref.actor.entropy_coeff",
        NOT_NEGATIVE,
        "0.0",
        "",
        "loss -= this x entropy.",
    ),
    row(
        "actor_rollout_ref.actor.calculate_entropy",
        Kind::Bool,
        "true",
        "",
        "Log the entropy even when its coefficient is 0.",
    ),
    row(
        "actor_rollout_ref.actor.use_kl_loss",
        Kind::Bool,
        "false",
        "",
        "Add kl_loss_coef x KL(policy | reference) to the loss; its coefficient never adapts.",
    ),
    row(
        "actor_rollout_ref.actor.kl_loss_coef",
        NOT_NEGATIVE,
        "0.001",
        "",
        "Weight of that KL.",
    ),
    row(
        "actor_rollout_ref.actor.kl_loss_type",
        Kind::Choice(&KL),
        "\"low_var_kl\"",
        "",
        "Estimator of that KL: kl (k1), abs, mse (k2), low_var_kl (k3); + takes k2's gradient.",
    ),
    row(
        "actor_rollout_ref.actor.fsdp_config.model_dtype",
        DTYPE,
        "\"fp32\"",
        "",
        "Dtype of the weights that the optimizer steps.",
    ),
    opt(
        "actor_rollout_ref.actor.fsdp_config.dtype",
        DTYPE,
        "",
        "Dtype of the matrix work; null: as model_dtype.",
    ),
    row(
        "actor_rollout_ref.rollout.name",
        Kind::Choice(&ENGINES),
        "\"embedded\"",
        "",
        "Generation engine; embedded runs in this process.",
    ),
    row(
        "actor_rollout_ref.rollout.nnodes",
        COUNT_OR_ZERO,
        "0",
        "nodes",
        "Nodes of a rollout pool of its own; 0: shared with the actor.",
    ),
    row(
        "actor_rollout_ref.rollout.n_gpus_per_node",
        COUNT,
        "8",
        "GPUs",
        "GPUs a rollout node; by default trainer.n_gpus_per_node.",
    ),
    row(
        "actor_rollout_ref.rollout.gpu_memory_utilization",
        SHARE_ABOVE_ZERO,
        "0.5",
        "of GPU memory",
        "Memory share of a vllm or sglang server.",
    ),
    row(
        "actor_rollout_ref.rollout.n",
        COUNT,
        "1",
        "samples",
        "Samples per prompt (GRPO's group).",
    ),
    row(
        "actor_rollout_ref.rollout.temperature",
        POSITIVE,
        "1.0",
        "",
        "Sampling temperature; also divides the logits when log-probs are recomputed.",
    ),
    row(
        "actor_rollout_ref.rollout.top_k",
        TOP_K,
        "-1",
        "tokens",
        "Sample among the k likeliest.",
    ),
    row(
        "actor_rollout_ref.rollout.top_p",
        SHARE_ABOVE_ZERO,
        "1.0",
        "",
        "Nucleus sampling.",
    ),
    row(
        "actor_rollout_ref.rollout.min_p",
        SHARE_BELOW_ONE,
        "0.0",
        "",
        "Drop tokens below this share of the likeliest.",
    ),
    row(
        "actor_rollout_ref.rollout.ignore_eos",
        Kind::Bool,
        "false",
        "",
        "Generate on past the end token.",
    ),
    row(
        "actor_rollout_ref.rollout.stop",
        Kind::List(&Kind::Text),
        "[]",
        "",
        "Texts that end a model turn.",
    ),
    row(
        "actor_rollout_ref.rollout.seed",
        SEED,
        "42",
        "",
        "Each sample's own seed is made from this, the prompt and its place in the group.",
    ),
    opt(
        "actor_rollout_ref.rollout.dtype",
        DTYPE,
        "",
        "Dtype of the engine's weights; null: as the actor's matrix work.",
    ),
    row(
        "actor_rollout_ref.rollout.max_num_seqs",
        COUNT,
        "256",
        "sequences",
        "Sequences decoded together.",
    ),
    opt(
        "actor_rollout_ref.rollout.max_model_len",
        COUNT,
        "tokens",
        "Longest sequence; null: max_prompt_length + max_response_length.",
    ),
    row(
        "actor_rollout_ref.rollout.full_determinism",
        Kind::Bool,
        "false",
        "",
        "Batches do not depend on timing, so a seed gives the same bits; a slow tool then holds every session up.",
    ),
    row(
        "actor_rollout_ref.rollout.calculate_log_probs",
        Kind::Bool,
        "true",
        "",
        "Keep the log-probs of the sampled tokens.",
    ),
    opt(
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
        COUNT,
        "sequences",
        "Sequences a forward pass when old log-probs are recomputed; null: as the actor's.",
    ),
    opt(
        "actor_rollout_ref.rollout.session_timeout_s",
        Kind::Duration,
        "s",
        "A dialogue older than this ends with what it has; null: no deadline.",
    ),
    row(
        "actor_rollout_ref.rollout.multi_turn.enable",
        Kind::Bool,
        "false",
        "",
        "Dialogues with tools: rows without agent_name run tool_agent.",
    ),
    opt(
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns",
        COUNT,
        "turns",
        "Model turns a dialogue; null: no limit but max_response_length.",
    ),
    row(
        "actor_rollout_ref.rollout.multi_turn.max_parallel_calls",
        COUNT,
        "1",
        "calls",
        "Tool calls run of one turn; the rest are dropped.",
    ),
    opt(
        "actor_rollout_ref.rollout.multi_turn.tool_config_path",
        Kind::Path,
        "",
        "YAML of the tools, in verl's schema.",
    ),
    row(
        "actor_rollout_ref.rollout.multi_turn.format",
        Kind::Choice(&TOOL_FORMATS),
        "\"hermes\"",
        "",
        "How a tool call is written in the model's text.",
    ),
    row(
        "actor_rollout_ref.rollout.multi_turn.max_tool_response_length",
        COUNT,
        "256",
        "characters",
        "Longest tool result (characters, as in verl); longer ones are cut.",
    ),
    row(
        "actor_rollout_ref.rollout.multi_turn.tool_response_truncate_side",
        Kind::Choice(&choice(&["left", "middle", "right"], &[])),
        "\"middle\"",
        "",
        "Which part of a long result goes.",
    ),
    row(
        "actor_rollout_ref.rollout.multi_turn.tool_timeout_s",
        Kind::Duration,
        "60.0",
        "s",
        "A tool that takes longer answers with an error.",
    ),
    row(
        "actor_rollout_ref.rollout.agent.default_agent_loop",
        Kind::Choice(&choice(&["single_turn_agent", "tool_agent"], &[])),
        "\"single_turn_agent\"",
        "",
        "For rows without agent_name.",
    ),
    row(
        "actor_rollout_ref.rollout.val_kwargs.temperature",
        NOT_NEGATIVE,
        "0.0",
        "",
        "Of the evaluation; 0 is greedy.",
    ),
    row(
        "actor_rollout_ref.rollout.val_kwargs.top_k",
        TOP_K,
        "-1",
        "tokens",
        "Of the evaluation.",
    ),
    row(
        "actor_rollout_ref.rollout.val_kwargs.top_p",
        SHARE_ABOVE_ZERO,
        "1.0",
        "",
        "Of the evaluation.",
    ),
    row(
        "actor_rollout_ref.rollout.val_kwargs.n",
        COUNT,
        "1",
        "samples",
        "Samples per evaluation prompt.",
    ),
    opt(
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
        COUNT,
        "sequences",
        "Sequences a forward pass of the reference; null: as the actor's.",
    ),
    // critic
    opt(
        "critic.enable",
        Kind::Bool,
        "",
        "null: on when adv_estimator needs values (gae).",
    ),
    opt(
        "critic.model.path",
        Kind::Path,
        "",
        "null: the critic starts as a copy of the actor.",
    ),
    opt(
        "critic.ppo_mini_batch_size",
        COUNT,
        "prompts",
        "null: as the actor's.",
    ),
    opt(
        "critic.ppo_micro_batch_size_per_gpu",
        COUNT,
        "sequences",
        "null: as the actor's.",
    ),
    opt(
        "critic.ppo_epochs",
        COUNT,
        "passes",
        "null: as the actor's.",
    ),
    opt("critic.shuffle", Kind::Bool, "", "null: as the actor's."),
    row(
        "critic.cliprange_value",
        POSITIVE,
        "0.5",
        "",
        "Values move at most this far from the old ones before the loss is clipped.",
    ),
    opt(
        "critic.loss_agg_mode",
        Kind::Choice(&AGGREGATION),
        "",
        "null: as the actor's.",
    ),
    // algorithm
    row(
        "algorithm.adv_estimator",
        Kind::Choice(&ESTIMATORS),
        "\"gae\"",
        "",
        "gae is PPO with a critic; grpo compares the samples of a group.",
    ),
    row("algorithm.gamma", SHARE, "1.0", "", "Discount."),
    row("algorithm.lam", SHARE, "1.0", "", "GAE's lambda."),
    row(
        "algorithm.norm_adv_by_std_in_grpo",
        Kind::Bool,
        "true",
        "",
        "Divide by the group's standard deviation; false is Dr.GRPO.",
    ),
    row(
        "algorithm.use_kl_in_reward",
        Kind::Bool,
        "false",
        "",
        "Subtract beta x KL(policy | reference) from each token's reward; the only place kl_ctrl is used.",
    ),
    row(
        "algorithm.kl_penalty",
        Kind::Choice(&KL),
        "\"kl\"",
        "",
        "Estimator of that KL.",
    ),
    row(
        "algorithm.kl_ctrl.type",
        Kind::Choice(&choice(&["fixed", "adaptive"], &[])),
        "\"fixed\"",
        "",
        "Whether beta stays or follows target_kl.",
    ),
    row(
        "algorithm.kl_ctrl.kl_coef",
        NOT_NEGATIVE,
        "0.001",
        "",
        "beta at the start.",
    ),
    row(
        "algorithm.kl_ctrl.horizon",
        POSITIVE,
        "10000.0",
        "samples",
        "adaptive: larger is slower.",
    ),
    row(
        "algorithm.kl_ctrl.target_kl",
        POSITIVE,
        "0.1",
        "nats",
        "adaptive: the mean KL per token to hold.",
    ),
    opt(
        "algorithm.rollout_correction.rollout_is",
        Kind::Choice(&choice(&["token", "sequence"], &[])),
        "",
        "Truncated importance sampling for the gap between rollout and old policy; null: off.",
    ),
    row(
        "algorithm.rollout_correction.rollout_is_threshold",
        POSITIVE,
        "2.0",
        "",
        "Cap on those weights.",
    ),
    row(
        "algorithm.rollout_correction.rollout_is_batch_normalize",
        Kind::Bool,
        "false",
        "",
        "Divide the weights by their batch mean.",
    ),
    row(
        "algorithm.rollout_correction.bypass_mode",
        Kind::Bool,
        "false",
        "",
        "Old log-probs are the rollout's own: no second pass.",
    ),
    // reward
    row(
        "reward.scorer",
        Kind::Choice(&choice(&["auto", "exact", "numeric", "gsm8k"], &[])),
        "\"auto\"",
        "",
        "auto: by the row's data_source. A scorer that fails gives a missing reward, never 0.",
    ),
    // trainer
    row(
        "trainer.mode",
        Kind::Choice(&choice(
            &["sync", "one_step_off"],
            &["async", "colocate_async", "separate_async"],
        )),
        "\"one_step_off\"",
        "",
        "one_step_off: batch k+1 is generated while batch k is trained.",
    ),
    opt(
        "trainer.max_staleness",
        COUNT_OR_ZERO,
        "policy versions",
        "How far a batch may lag; 0 is exactly sync. null: 1 in one_step_off, 0 in sync.",
    ),
    row(
        "trainer.total_epochs",
        COUNT,
        "30",
        "passes",
        "Passes over the training files.",
    ),
    opt(
        "trainer.total_training_steps",
        Kind::Int {
            min: 1,
            max: U64,
            off: None,
        },
        "steps",
        "Wins over total_epochs.",
    ),
    row(
        "trainer.project_name",
        Kind::Text,
        "\"lathe\"",
        "",
        "Project in loggers.",
    ),
    row(
        "trainer.experiment_name",
        Kind::Text,
        "\"experiment\"",
        "",
        "Name in run directories and loggers; by default the file's name.",
    ),
    row(
        "trainer.logger",
        Kind::List(&LOGGERS),
        "[\"console\"]",
        "",
        "Where metrics go besides the run directory; one name or a list.",
    ),
    row("trainer.nnodes", COUNT, "1", "nodes", "Training nodes."),
    row(
        "trainer.n_gpus_per_node",
        COUNT,
        "8",
        "GPUs",
        "GPUs a training node.",
    ),
    row(
        "trainer.device",
        Kind::Choice(&choice(&["auto", "cpu", "cuda"], &["npu"])),
        "\"auto\"",
        "",
        "auto: CUDA when there is one.",
    ),
    row(
        "trainer.seed",
        SEED,
        "42",
        "",
        "Seed of what has none of its own.",
    ),
    row(
        "trainer.threads",
        COUNT,
        "1",
        "threads",
        "libtorch threads of learner and engine each.",
    ),
    row(
        "trainer.save_freq",
        EVERY,
        "-1",
        "steps",
        "Steps between checkpoints; -1: one at the end.",
    ),
    row(
        "trainer.test_freq",
        EVERY,
        "-1",
        "steps",
        "Steps between evaluations.",
    ),
    row(
        "trainer.val_before_train",
        Kind::Bool,
        "true",
        "",
        "Evaluate before the first step.",
    ),
    row(
        "trainer.val_only",
        Kind::Bool,
        "false",
        "",
        "Evaluate and stop.",
    ),
    row(
        "trainer.critic_warmup",
        STEPS,
        "0",
        "steps",
        "First steps that train only the critic.",
    ),
    opt(
        "trainer.max_actor_ckpt_to_keep",
        COUNT,
        "checkpoints",
        "Older ones are deleted; null: keep all.",
    ),
    row(
        "trainer.record_rollouts",
        Kind::Bool,
        "true",
        "",
        "Keep every sample of every step in the run directory.",
    ),
    // sft
    row(
        "sft.train_files",
        PATHS,
        "[]",
        "",
        "Parquet with a messages column; loss on assistant tokens only.",
    ),
    row(
        "sft.val_files",
        PATHS,
        "[]",
        "",
        "Demonstrations for the validation loss.",
    ),
    opt(
        "sft.init_config",
        Kind::Path,
        "",
        "A config.json to start from random weights instead of model.path's.",
    ),
    row(
        "sft.batch_size",
        COUNT,
        "32",
        "dialogues",
        "Dialogues a step.",
    ),
    row(
        "sft.total_training_steps",
        Kind::Int {
            min: 1,
            max: U64,
            off: None,
        },
        "200",
        "steps",
        "Steps of the warm-up.",
    ),
    opt(
        "sft.output_dir",
        Kind::Path,
        "",
        "Where the model goes, in the Hugging Face layout.",
    ),
];

/// Every live key, grouped by block.
pub fn table() -> Vec<Live> {
    let own = ROWS_OF.iter().map(|row| live(row.path.to_owned(), row));
    let optim = OPTIMIZED.iter().flat_map(|(block, lr)| {
        let lr = Live {
            path: format!("{block}.lr"),
            kind: NOT_NEGATIVE,
            nullable: false,
            default: lr,
            unit: "",
            help: "Peak learning rate.",
        };
        std::iter::once(lr).chain(
            OPTIM
                .iter()
                .map(move |row| live(format!("{block}.{}", row.path), row)),
        )
    });
    let mut rows: Vec<Live> = own.chain(optim).collect();
    let parent = |path: &str| {
        path.rsplit_once('.')
            .map_or(String::new(), |(parent, _)| parent.to_owned())
    };
    let mut parents: Vec<String> = Vec::new();
    for row in &rows {
        let parent = parent(&row.path);
        if !parents.contains(&parent) {
            parents.push(parent);
        }
    }
    // Each block's own keys together, then its inner blocks; stable, so keys keep the order above.
    rows.sort_by_key(|row| {
        let block = BLOCKS.iter().position(|block| row.path.starts_with(block));
        let parent = parent(&row.path);
        (block, parents.iter().position(|seen| *seen == parent))
    });
    rows
}

const BLOCKS: [&str; 12] = [
    "data.",
    "actor_rollout_ref.hybrid_engine",
    "actor_rollout_ref.model.",
    "actor_rollout_ref.actor.",
    "actor_rollout_ref.rollout.",
    "actor_rollout_ref.ref.",
    "critic.",
    "algorithm.",
    "reward.",
    "trainer.",
    "sft.",
    "",
];

fn live(path: String, row: &Row) -> Live {
    Live {
        path,
        kind: row.kind,
        nullable: row.nullable,
        default: row.default,
        unit: row.unit,
        help: row.help,
    }
}
