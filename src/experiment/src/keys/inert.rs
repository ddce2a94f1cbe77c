//! Keys of verl that do nothing here, each with the reason a user needs; and keys that are planned.
//!
//! Patterns, first match wins; `*` stands for anything. Traps that cost people days come first.

/// Why a key that verl knows (or knew) has no effect here; `None` for a key that verl never had.
pub fn reason(path: &str) -> Option<&'static str> {
    INERT
        .iter()
        .find(|(pattern, _)| matches(pattern, path))
        .map(|(_, reason)| *reason)
}

/// What a block of ours that does not exist yet will be; the keys under it are refused.
pub fn planned(path: &str) -> Option<&'static str> {
    PLANNED
        .iter()
        .find(|(pattern, _)| matches(pattern, path))
        .map(|(_, what)| *what)
}

/// Glob match with `*` only, which stands for any text.
pub fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = path.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        if let Some(previous) = last.replace(part) {
            match rest.find(previous) {
                Some(at) => rest = &rest[at + previous.len()..],
                None => return false,
            }
        }
    }
    match last {
        Some(part) => rest.ends_with(part),
        None => rest.is_empty(),
    }
}

const PLANNED: &[(&str, &str)] = &[];

const FSDP: &str = "FSDP spreads one model over processes; here one process holds it whole";
const SERVER: &str = "it tunes an inference server; the embedded engine has no such part";
const PROFILER: &str =
    "verl's profilers are not here; the timeline of each lane is recorded in every run";
const VISION: &str = "text models only";
const REWARD_MODEL: &str = "reward models are not supported yet; reward.scorer decides the reward";
const PYTHON_REWARD: &str =
    "reward loops are Python classes of verl; reward.custom_reward_function takes a function";
const LORA: &str = "LoRA is not supported yet: all weights are trained";
const PARALLEL: &str = "the embedded engine runs on one device";
const TUNING: &str = "a switch of verl's PyTorch model; Lathe's own model has one path, always packed and fused where it can be";
const PYTHON: &str = "it names Python code, which Lathe does not run";
const RAY: &str = "Ray is not used by the embedded trainer";
const CHECKPOINT: &str =
    "checkpoints always hold weights, optimizer and all state, in the run directory";
const RESUME: &str = "a checkpoint is never deleted because a run started from it";
const DISTILLATION: &str = "distillation is not supported yet";
const QUANTIZATION: &str = "quantization is not supported yet";
const ASYNC: &str = "trainer.mode and trainer.max_staleness decide this here";
const OTHER_LOSS: &str =
    "it belongs to a policy loss that is not available yet; loss_mode is vanilla";
const PF_PPO: &str = "PF-PPO is not supported yet";
const DEAD: &str = "it has no effect in verl either";
const MIRROR: &str = "it follows the key that it mirrors";
const CACHE: &str = "caching and replaying generations is not supported; full_determinism makes a run repeat itself";

const INERT: &[(&str, &str)] = &[
    (
        "actor_rollout_ref.actor.clip_ratio",
        "clip_ratio_low and clip_ratio_high decide; it sets those that are not given",
    ),
    // Traps: accepted by verl, without effect there too, or under another name here.
    (
        "actor_rollout_ref.actor.grad_clip",
        "it is dead in verl too; use actor_rollout_ref.actor.optim.clip_grad",
    ),
    (
        "critic.grad_clip",
        "it is dead in verl too; use critic.optim.clip_grad",
    ),
    (
        "actor_rollout_ref.nccl_timeout",
        "it is dead in verl too, and one process needs no NCCL",
    ),
    (
        "actor_rollout_ref.rollout.do_sample",
        "it is dead in verl too; rollouts are always sampled, by temperature",
    ),
    (
        "actor_rollout_ref.rollout.val_kwargs.do_sample",
        "it is dead in verl too; val_kwargs.temperature 0 is greedy",
    ),
    ("actor_rollout_ref.rollout.over_sample_rate", DEAD),
    ("actor_rollout_ref.rollout.multi_stage_wake_up", DEAD),
    ("actor_rollout_ref.actor.freeze_vision_tower", DEAD),
    (
        "actor_rollout_ref.actor.use_rollout_log_probs",
        "it is dead in verl too; use algorithm.rollout_correction.bypass_mode",
    ),
    (
        "*multi_turn.num_repeat_rollouts",
        "it is dead in verl too; use rollout.n",
    ),
    (
        "*multi_turn.use_inference_chat_template",
        "it is dead in verl too: tokens are never made from text again",
    ),
    (
        "*multi_turn.tokenization_sanity_check_mode",
        "it is dead in verl too: tokens are never made from text again",
    ),
    (
        "*multi_turn.interaction_config_path",
        "verl removed interactions; a tool plays the other side",
    ),
    (
        "*multi_turn.max_user_turns",
        "no user is simulated; max_assistant_turns bounds the dialogue",
    ),
    (
        "*multi_turn.function_tool_path",
        "tools written in Python are not supported; see tool_config_path",
    ),
    (
        "data.function_tool_path",
        "tools written in Python are not supported; see rollout.multi_turn.tool_config_path",
    ),
    (
        "data.truncation",
        "it is dead in verl too; a long prompt is dropped by filter_overlong_prompts or is an error",
    ),
    (
        "data.reward_fn_key",
        "it is dead in verl too; the scorer reads the data_source column",
    ),
    ("data.return_*", DEAD),
    (
        "data.sampler*",
        "curriculum samplers are gone from verl; rows are shuffled or in order",
    ),
    ("critic.forward_*", DEAD),
    (
        "algorithm.filter_groups.max_inflight_gen_batches",
        "the batches of dynamic sampling are drawn one after the other",
    ),
    ("algorithm.use_pf_ppo", PF_PPO),
    ("algorithm.pf_ppo.*", PF_PPO),
    (
        "trainer.v1.trainer_mode",
        "trainer.mode decides here: sync, one_step_off or async",
    ),
    (
        "trainer.v1.sampler.max_off_policy*",
        "trainer.max_staleness bounds it here",
    ),
    ("trainer.use_v1", "there is one trainer"),
    ("trainer.v1*", ASYNC),
    ("async_training*", ASYNC),
    (
        "actor_rollout_ref.rollout.total_rollout_steps",
        "use trainer.total_training_steps",
    ),
    (
        "actor_rollout_ref.rollout.test_freq",
        "use trainer.test_freq",
    ),
    ("trainer.balance_batch", "one process takes the whole batch"),
    (
        "trainer.log_val_generations",
        "every generation of an evaluation is kept in the run directory",
    ),
    (
        "trainer.rollout_data_dir",
        "rollouts are kept in the run directory; see trainer.record_rollouts",
    ),
    (
        "trainer.validation_data_dir",
        "rollouts are kept in the run directory; see trainer.record_rollouts",
    ),
    (
        "trainer.default_local_dir",
        "runs have their own directory, whose place is chosen on the command line",
    ),
    ("trainer.default_hdfs_dir", "runs stay on the local disk"),
    ("trainer.del_local_ckpt_after_load", RESUME),
    (
        "trainer.remove_previous_ckpt_in_save",
        "use trainer.max_actor_ckpt_to_keep",
    ),
    (
        "trainer.max_critic_ckpt_to_keep",
        "a checkpoint holds actor and critic; use trainer.max_actor_ckpt_to_keep",
    ),
    ("trainer.checkpoint_callback_class", PYTHON),
    (
        "trainer.esi_redundant_time",
        "it belongs to a cloud's spot instances",
    ),
    ("trainer.ray_wait_register_center_timeout", RAY),
    // Reward.
    (
        "reward.reward_manager*",
        "reward managers are Python classes of verl; reward.scorer decides the reward",
    ),
    (
        "reward_model.reward_manager",
        "reward managers are Python classes of verl; reward.scorer decides the reward",
    ),
    ("reward_model.reward_loop_*", PYTHON_REWARD),
    (
        "reward.reward_kwargs.overlong_buffer_cfg.log",
        "the penalty is always recorded: reward/overlong_penalty, and beside each sample's score",
    ),
    ("reward_model.reward_kwargs*", PYTHON_REWARD),
    (
        "reward.reward_kwargs*",
        "shaping by length is not supported yet; reward.scorer decides the reward",
    ),
    ("reward.num_workers", "scorers run inside the program"),
    ("reward_model.num_workers", "scorers run inside the program"),
    ("reward.reward_model*", REWARD_MODEL),
    ("reward_model.*", REWARD_MODEL),
    ("*sandbox_fusion*", "the code sandbox is not supported"),
    (
        "reward.timeout",
        "scorers run inside the program and need no rate limit",
    ),
    (
        "reward.max_*",
        "scorers run inside the program and need no rate limit",
    ),
    (
        "reward.estimated_tokens_per_request",
        "scorers run inside the program and need no rate limit",
    ),
    // Everywhere.
    ("*_target_", "it names a Python class of verl"),
    ("*profiler*", PROFILER),
    ("*qat*", QUANTIZATION),
    ("*quantization*", QUANTIZATION),
    ("*rollout.mtp", "multi-token prediction is not supported"),
    ("*model.mtp.*", "multi-token prediction is not supported"),
    ("*lora*", LORA),
    ("*model.target_modules", LORA),
    ("*model.exclude_modules", LORA),
    (
        "*megatron*",
        "Megatron is not used; one process holds the model",
    ),
    ("*router_replay*", "it belongs to mixture-of-experts models"),
    (
        "*ulysses_sequence_parallel_size",
        "sequences are not split over processes",
    ),
    (
        "*fsdp_config.param_offload",
        "nothing is offloaded: one process holds weights and optimizer",
    ),
    (
        "*fsdp_config.optimizer_offload",
        "nothing is offloaded: one process holds weights and optimizer",
    ),
    (
        "critic.fsdp.param_offload",
        "nothing is offloaded: one process holds weights and optimizer",
    ),
    (
        "critic.fsdp.optimizer_offload",
        "nothing is offloaded: one process holds weights and optimizer",
    ),
    (
        "critic.fsdp.*dtype",
        "the critic computes in the actor's dtypes; see actor_rollout_ref.actor.fsdp_config",
    ),
    (
        "actor_rollout_ref.ref.fsdp_config.*dtype",
        "the reference computes in the actor's dtypes; see actor_rollout_ref.actor.fsdp_config",
    ),
    ("*fsdp*", FSDP),
    ("*.rollout_n", MIRROR),
    ("*.strategy", FSDP),
    ("model_engine", FSDP),
    ("*.checkpoint.*", CHECKPOINT),
    (
        "*optim.total_training_steps",
        "the trainer knows its steps; see trainer.total_training_steps",
    ),
    ("*optim.optimizer*", "the optimizer is AdamW"),
    (
        "*optim.override_optimizer_config*",
        "the optimizer is AdamW; its settings are keys of optim",
    ),
    (
        "*optim.zero_indexed_step",
        "as its default true says: the warm-up's first step has a learning rate of 0",
    ),
    // Actor, reference, critic.
    ("actor_rollout_ref.actor.policy_loss.*", OTHER_LOSS),
    (
        "actor_rollout_ref.actor.calculate_sum_pi_squared",
        "it is computed exactly when algorithm.adv_estimator needs it",
    ),
    (
        "actor_rollout_ref.actor.use_prefix_grouper",
        "prompts of a group are computed once by the engine",
    ),
    (
        "actor_rollout_ref.ref.log_prob_*",
        "the reference packs as the actor does",
    ),
    (
        "actor_rollout_ref.rollout.log_prob_*",
        "old log-probs are packed as the actor does",
    ),
    (
        "critic.use_dynamic_bsz",
        "the critic packs as the actor does",
    ),
    (
        "critic.ppo_max_token_len_per_gpu",
        "the critic packs as the actor does",
    ),
    (
        "critic.data_loader_seed",
        "the critic takes the actor's mini-batches",
    ),
    (
        "critic.loss_scale_factor",
        "the critic takes the actor's divisor",
    ),
    ("*entropy_from_logits*", TUNING),
    ("*entropy_checkpointing", TUNING),
    ("*pad_to_length", TUNING),
    ("*use_torch_compile", TUNING),
    ("*use_remove_padding", TUNING),
    ("*use_fused_kernels", TUNING),
    // Model.
    ("*model.use_shm", "weights are mapped from the disk"),
    ("*model.trust_remote_code", PYTHON),
    ("*model.external_lib", PYTHON),
    (
        "*model.override_config*",
        "the model is what its config.json says",
    ),
    (
        "*model.hf_config_path",
        "the model is what its config.json says",
    ),
    (
        "*model.enable_activation_offload",
        "activations stay on the device; see enable_gradient_checkpointing",
    ),
    ("*model.use_liger", TUNING),
    ("*model.fused_kernel_options.*", TUNING),
    ("*model.tiled_mlp.*", TUNING),
    (
        "critic.model.*",
        "the critic is the actor's architecture with a value head, loaded from critic.model.path",
    ),
    // Rollout.
    (
        "actor_rollout_ref.rollout.mode",
        "rollouts are always asynchronous sessions",
    ),
    ("actor_rollout_ref.rollout.*parallel_size", PARALLEL),
    (
        "actor_rollout_ref.rollout.load_format",
        "the engine starts from the actor's weights",
    ),
    ("actor_rollout_ref.rollout.layered_summon", LORA),
    (
        "actor_rollout_ref.rollout.logprobs_mode",
        "log-probs are those of the sampling temperature, before top-p and top-k",
    ),
    (
        "actor_rollout_ref.rollout.agent.num_workers",
        "sessions are tasks of one process, as many as max_num_seqs lets decode",
    ),
    ("actor_rollout_ref.rollout.agent.*", PYTHON),
    (
        "actor_rollout_ref.rollout.checkpoint_engine.*",
        "weights reach the embedded engine in memory, each sync proved",
    ),
    (
        "actor_rollout_ref.rollout.trace.*",
        "every dialogue is kept in the run directory",
    ),
    (
        "actor_rollout_ref.rollout.*moe*",
        "it belongs to mixture-of-experts models",
    ),
    (
        "actor_rollout_ref.rollout.enable_rollout_routing_replay",
        "it belongs to mixture-of-experts models",
    ),
    (
        "actor_rollout_ref.rollout.skip_tokenizer_init",
        "the engine takes and gives token ids",
    ),
    (
        "actor_rollout_ref.rollout.enable_prefix_caching",
        "the prompt of a group is always computed once",
    ),
    ("actor_rollout_ref.rollout.enforce_eager", SERVER),
    ("actor_rollout_ref.rollout.cudagraph_capture_sizes", SERVER),
    ("actor_rollout_ref.rollout.free_cache_engine", SERVER),
    ("actor_rollout_ref.rollout.max_num_batched_tokens", SERVER),
    ("actor_rollout_ref.rollout.enable_chunked_prefill", SERVER),
    ("actor_rollout_ref.rollout.scheduling_policy", SERVER),
    ("actor_rollout_ref.rollout.disable_log_stats", SERVER),
    ("actor_rollout_ref.rollout.engine_kwargs*", SERVER),
    ("actor_rollout_ref.rollout.router_config_path", SERVER),
    ("actor_rollout_ref.rollout.prometheus.*", SERVER),
    ("actor_rollout_ref.rollout.disaggregation.*", SERVER),
    ("actor_rollout_ref.rollout.limit_images", VISION),
    (
        "actor_rollout_ref.rollout.standalone_gpu_memory_utilization",
        SERVER,
    ),
    // Data.
    ("data.use_shm", "files are read in place, a batch at a time"),
    (
        "data.gen_batch_size",
        "prompts are taken train_batch_size at a time",
    ),
    (
        "data.val_batch_size",
        "it is deprecated in verl too; an evaluation takes the whole set",
    ),
    (
        "data.dataloader_num_workers",
        "rows are read by the program itself",
    ),
    (
        "data.filter_overlong_prompts_workers",
        "rows are read by the program itself",
    ),
    (
        "data.validation_shuffle",
        "the evaluation takes the whole set, in order",
    ),
    ("data.trust_remote_code", PYTHON),
    ("data.custom_cls*", PYTHON),
    ("data.chat_template_func", PYTHON),
    ("data.image_*", VISION),
    ("data.video_key", VISION),
    ("data.audio_key", VISION),
    ("data.mm_processor_kwargs*", VISION),
    (
        "data.cache_dir",
        "files are read in place, a batch at a time",
    ),
    (
        "data.need_tools_kwargs",
        "a row's tools_kwargs are used where it has them",
    ),
    ("data.filter_prompts", "use data.filter_overlong_prompts"),
    // The rest.
    ("distillation*", DISTILLATION),
    ("transfer_queue*", "batches pass through memory"),
    ("skip*", CACHE),
    ("ray_kwargs*", RAY),
    ("ray_init*", RAY),
    (
        "hydra*",
        "Hydra itself is not used; overrides and ${...} work",
    ),
    (
        "defaults",
        "one file is one experiment: Hydra's composition of files is not done",
    ),
];

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_anything_and_nothing_else_does() {
        assert!(matches("a.b", "a.b"));
        assert!(!matches("a.b", "a.b.c"));
        assert!(!matches("a.b", "axb"));
        assert!(matches("a.*", "a.b.c"));
        assert!(matches("*c", "a.b.c"));
        assert!(matches("*.b.*", "a.b.c"));
        assert!(!matches("*.b.*", "a.c.d"));
        assert!(matches("a*c", "ac"));
        assert!(!matches("a.*b", "a.bc"));
    }
}
