//! Other names of live keys: the seeds' shorthand, verl's older names, and keys that verl keeps twice.

/// A key path in full, and what to say about the name that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canonical {
    pub path: String,
    /// Set when the written name is an old or doubled one, not mere shorthand.
    pub note: Option<&'static str>,
}

/// Blocks that may be written without their parent.
const BLOCKS: &[(&str, &str)] = &[
    ("actor", "actor_rollout_ref.actor"),
    ("rollout", "actor_rollout_ref.rollout"),
    ("ref", "actor_rollout_ref.ref"),
    ("model", "actor_rollout_ref.model"),
    ("custom_reward_function", "reward.custom_reward_function"),
    ("critic.model.optim", "critic.optim"),
    ("critic.model.fsdp_config", "critic.fsdp"),
];

const KEYS: &[(&str, &str, Option<&str>)] = &[
    (
        "actor_rollout_ref.rollout.n_gpus",
        "actor_rollout_ref.rollout.n_gpus_per_node",
        None,
    ),
    ("trainer.n_gpus", "trainer.n_gpus_per_node", None),
    (
        "actor_rollout_ref.rollout.prompt_length",
        "data.max_prompt_length",
        None,
    ),
    (
        "actor_rollout_ref.rollout.response_length",
        "data.max_response_length",
        None,
    ),
    (
        "data.tool_config_path",
        "actor_rollout_ref.rollout.multi_turn.tool_config_path",
        None,
    ),
    (
        "data.tokenizer",
        "actor_rollout_ref.model.tokenizer_path",
        None,
    ),
    (
        "actor_rollout_ref.actor.ppo_micro_batch_size",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        Some("it is deprecated in verl; one process takes it as ppo_micro_batch_size_per_gpu"),
    ),
    (
        "critic.ppo_micro_batch_size",
        "critic.ppo_micro_batch_size_per_gpu",
        Some("it is deprecated in verl; one process takes it as ppo_micro_batch_size_per_gpu"),
    ),
    (
        "actor_rollout_ref.rollout.log_prob_micro_batch_size",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
        Some("it is deprecated in verl; one process takes it as log_prob_micro_batch_size_per_gpu"),
    ),
    (
        "actor_rollout_ref.ref.log_prob_micro_batch_size",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
        Some("it is deprecated in verl; one process takes it as log_prob_micro_batch_size_per_gpu"),
    ),
    (
        "actor_rollout_ref.actor.optim.warmup_style",
        "actor_rollout_ref.actor.optim.lr_scheduler_type",
        Some("it is the old name of lr_scheduler_type"),
    ),
    (
        "critic.optim.warmup_style",
        "critic.optim.lr_scheduler_type",
        Some("it is the old name of lr_scheduler_type"),
    ),
];

/// The full path of a key as written.
pub fn canonical(written: &str) -> Canonical {
    let mut path = written.to_owned();
    for (short, full) in BLOCKS {
        if let Some(rest) = path.strip_prefix(short)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            path = format!("{full}{rest}");
            break;
        }
    }
    match KEYS.iter().find(|(alias, _, _)| *alias == path) {
        Some((_, target, note)) => Canonical {
            path: (*target).to_owned(),
            note: *note,
        },
        None => Canonical { path, note: None },
    }
}

/// The names that `canonical` knows beyond the live ones, for `nearest`.
pub fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter()
        .map(|(alias, _, _)| *alias)
        .chain(BLOCKS.iter().map(|(short, _)| *short))
}
