//! What keys must be to each other, and the choices made where a key was left open.

use crate::complaint::Severity;
use crate::given::Givens;
use crate::settings::{
    AdvEstimator, AgentLoop, EngineName, Experiment, KlCtrlType, LoggerName, LossAggMode, Mode,
};

/// verl's dead key that we give a meaning: both sides of the clip.
pub const CLIP_RATIO: &str = "actor_rollout_ref.actor.clip_ratio";

const TRAIN_BATCH: &str = "data.train_batch_size";
const MINI_BATCH: &str = "actor_rollout_ref.actor.ppo_mini_batch_size";
const CRITIC_MINI_BATCH: &str = "critic.ppo_mini_batch_size";

/// Fills what was left open and complains about what does not fit together.
pub fn apply(experiment: &mut Experiment, givens: &mut Givens) {
    let mut rules = Rules { experiment, givens };
    rules.clip_ratio();
    rules.names_and_mirrors();
    rules.batches();
    rules.micro_batches();
    rules.estimator();
    rules.kl();
    rules.rollout();
    rules.dialogue();
    rules.mode();
    rules.files();
    rules.devices();
}

struct Rules<'a> {
    experiment: &'a mut Experiment,
    givens: &'a mut Givens,
}

impl Rules<'_> {
    fn has(&self, key: &str) -> bool {
        self.givens.get(key).is_some()
    }

    /// The first given key under a block.
    fn first_under(&self, block: &str) -> Option<String> {
        self.givens
            .all
            .iter()
            .find(|given| given.key.starts_with(block) && !given.node.to_json().is_null())
            .map(|given| given.key.clone())
    }

    /// How the user wrote a key; in full when nobody did.
    fn name(&self, key: &str) -> String {
        self.givens
            .get(key)
            .map_or_else(|| key.to_owned(), |given| given.written.clone())
    }

    /// At the first of `keys` that was given. Silent when one of them already has an error: its value here is not
    /// the user's.
    fn say(&mut self, severity: Severity, keys: &[&str], message: String) {
        let doubtful = self.givens.complaints.iter().any(|complaint| {
            complaint.severity == Severity::Error && keys.contains(&complaint.key.as_str())
        });
        if doubtful {
            return;
        }
        let key = keys
            .iter()
            .find(|key| self.has(key))
            .or(keys.first())
            .copied()
            .unwrap_or("");
        let origin = self.givens.origin(key);
        self.givens.complain(severity, &origin, key, message);
    }

    fn error(&mut self, keys: &[&str], message: String) {
        self.say(Severity::Error, keys, message);
    }

    fn warn(&mut self, keys: &[&str], message: String) {
        self.say(Severity::Warning, keys, message);
    }

    fn note(&mut self, keys: &[&str], message: String) {
        self.say(Severity::Note, keys, message);
    }

    fn clip_ratio(&mut self) {
        let low = "actor_rollout_ref.actor.clip_ratio_low";
        let high = "actor_rollout_ref.actor.clip_ratio_high";
        let Some(given) = self.givens.get(CLIP_RATIO).cloned() else {
            return;
        };
        let Some(key) = crate::keys::find(low) else {
            return;
        };
        match crate::convert::convert(key, &given.node) {
            Err(wrong) => {
                self.error(
                    &[CLIP_RATIO],
                    wrong
                        .message(&given.written)
                        .replace("clip_ratio_low", "clip_ratio"),
                );
            }
            Ok(converted) => {
                let value = converted
                    .value
                    .as_f64()
                    .unwrap_or(self.experiment.actor_rollout_ref.actor.clip_ratio_low);
                let open: Vec<&str> = [low, high]
                    .into_iter()
                    .filter(|key| !self.has(key))
                    .collect();
                let name = &given.written;
                if open.contains(&low) {
                    self.experiment.actor_rollout_ref.actor.clip_ratio_low = value;
                }
                if open.contains(&high) {
                    self.experiment.actor_rollout_ref.actor.clip_ratio_high = value;
                }
                match open.as_slice() {
                    [] => self.warn(
                        &[CLIP_RATIO],
                        format!("{name} has no effect: clip_ratio_low and clip_ratio_high are both given"),
                    ),
                    open => {
                        let names: Vec<&str> = open.iter().filter_map(|key| key.rsplit('.').next()).collect();
                        let names = names.join(" and ");
                        self.note(
                            &[CLIP_RATIO],
                            format!("{name} sets {names} to {value} here; in verl it has no effect, so write {names} to move this file"),
                        );
                    }
                }
            }
        }
    }

    fn names_and_mirrors(&mut self) {
        if !self.has("trainer.experiment_name") {
            let file = self.givens.file_stem();
            if !file.is_empty() {
                self.experiment.trainer.experiment_name = file;
            }
        }
        let rollout_gpus = "actor_rollout_ref.rollout.n_gpus_per_node";
        if !self.has(rollout_gpus) {
            self.experiment.actor_rollout_ref.rollout.n_gpus_per_node =
                self.experiment.trainer.n_gpus_per_node;
        }
    }

    fn batches(&mut self) {
        let batch = self.experiment.data.train_batch_size;
        let mini = self.experiment.actor_rollout_ref.actor.ppo_mini_batch_size;
        if mini > batch {
            if self.has(MINI_BATCH) {
                let (name, other) = (self.name(MINI_BATCH), self.name(TRAIN_BATCH));
                self.error(
                    &[MINI_BATCH, TRAIN_BATCH],
                    format!("{name} is {mini}; expected at most {other}, which is {batch}"),
                );
            } else {
                self.experiment.actor_rollout_ref.actor.ppo_mini_batch_size = batch;
                self.note(
                    &[MINI_BATCH],
                    format!("{MINI_BATCH} is not given; it is {batch}, the whole batch (verl's 256 is more than {TRAIN_BATCH})"),
                );
            }
        } else if !batch.is_multiple_of(mini) {
            let (name, other) = (self.name(MINI_BATCH), self.name(TRAIN_BATCH));
            self.warn(
                &[MINI_BATCH, TRAIN_BATCH],
                format!("{name} is {mini}, which does not divide {other} ({batch}): the last mini-batch of a step has {} prompts", batch % mini),
            );
        }
        let actor_mini = self.experiment.actor_rollout_ref.actor.ppo_mini_batch_size;
        match self.experiment.critic.ppo_mini_batch_size {
            None => self.experiment.critic.ppo_mini_batch_size = Some(actor_mini),
            Some(mini) if mini > batch => {
                let (name, other) = (self.name(CRITIC_MINI_BATCH), self.name(TRAIN_BATCH));
                self.error(
                    &[CRITIC_MINI_BATCH, TRAIN_BATCH],
                    format!("{name} is {mini}; expected at most {other}, which is {batch}"),
                );
            }
            Some(mini) if !batch.is_multiple_of(mini) => {
                let (name, other) = (self.name(CRITIC_MINI_BATCH), self.name(TRAIN_BATCH));
                self.warn(
                    &[CRITIC_MINI_BATCH, TRAIN_BATCH],
                    format!("{name} is {mini}, which does not divide {other} ({batch}): the last mini-batch of a step has {} prompts", batch % mini),
                );
            }
            Some(_) => {}
        }
        let actor = &self.experiment.actor_rollout_ref.actor;
        let critic = &mut self.experiment.critic;
        critic.ppo_epochs.get_or_insert(actor.ppo_epochs);
        critic.shuffle.get_or_insert(actor.shuffle);
        critic.loss_agg_mode.get_or_insert(actor.loss_agg_mode);
    }

    fn micro_batches(&mut self) {
        let micro = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu";
        let dynamic = "actor_rollout_ref.actor.use_dynamic_bsz";
        let actor = &mut self.experiment.actor_rollout_ref.actor;
        let longest = self
            .experiment
            .data
            .max_prompt_length
            .saturating_add(self.experiment.data.max_response_length);
        match (actor.ppo_micro_batch_size_per_gpu, actor.use_dynamic_bsz) {
            (None, false) => {
                actor.use_dynamic_bsz = true;
                let budget = actor.ppo_max_token_len_per_gpu;
                self.note(
                    &[dynamic],
                    format!("no micro-batch size is given: sequences are packed up to {budget} tokens (ppo_max_token_len_per_gpu) a forward/backward"),
                );
            }
            (Some(size), true) => {
                let name = self.name(micro);
                self.warn(
                    &[micro],
                    format!("{name} = {size} has no effect: use_dynamic_bsz packs by tokens"),
                );
            }
            _ => {}
        }
        let actor = &self.experiment.actor_rollout_ref.actor;
        let budget = actor.ppo_max_token_len_per_gpu;
        if actor.use_dynamic_bsz && budget < longest {
            let key = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu";
            let name = self.name(key);
            self.error(
                &[key],
                format!("{name} is {budget}; expected at least max_prompt_length + max_response_length, which is {longest}"),
            );
        }
        let divisor = "actor_rollout_ref.actor.loss_scale_factor";
        if self
            .experiment
            .actor_rollout_ref
            .actor
            .loss_scale_factor
            .is_some()
            && self.experiment.actor_rollout_ref.actor.loss_agg_mode
                != LossAggMode::SeqMeanTokenSumNorm
        {
            let name = self.name(divisor);
            self.warn(
                &[divisor],
                format!(
                    "{name} has no effect: only loss_agg_mode seq-mean-token-sum-norm divides by it"
                ),
            );
        }
    }

    fn estimator(&mut self) {
        let estimator = self.experiment.algorithm.adv_estimator;
        let key = "algorithm.adv_estimator";
        let enable = self.experiment.critic.enable;
        match (estimator, enable) {
            (AdvEstimator::Gae, Some(false)) => {
                let name = self.name("critic.enable");
                self.error(
                    &["critic.enable", key],
                    format!("{name} is false, but adv_estimator gae needs a critic; use grpo"),
                );
            }
            (AdvEstimator::Grpo, Some(true)) => {
                let name = self.name("critic.enable");
                self.warn(&["critic.enable"], format!("{name} is true: a critic is trained, but adv_estimator grpo does not use it"));
            }
            (AdvEstimator::Grpo, None) => {
                if let Some(first) = self.first_under("critic.") {
                    let name = self.name(&first);
                    self.note(
                        &[&first],
                        format!("{name} waits for adv_estimator gae: grpo trains no critic"),
                    );
                }
            }
            _ => {}
        }
        self.experiment.critic.enable = Some(enable.unwrap_or(estimator == AdvEstimator::Gae));
        if estimator == AdvEstimator::Grpo {
            if self.experiment.actor_rollout_ref.rollout.n == 1 {
                let n = "actor_rollout_ref.rollout.n";
                let name = self.name(n);
                self.warn(&[n, key], format!("{name} is 1: grpo compares the samples of a prompt, and one sample has nothing to be compared with"));
            }
            for (key, value) in [
                ("algorithm.lam", self.experiment.algorithm.lam),
                ("algorithm.gamma", self.experiment.algorithm.gamma),
            ] {
                if value != 1.0 {
                    let name = self.name(key);
                    self.warn(
                        &[key],
                        format!(
                            "{name} = {value} has no effect: adv_estimator grpo does not discount"
                        ),
                    );
                }
            }
        }
        let warmup = "trainer.critic_warmup";
        if self.experiment.trainer.critic_warmup > 0 && self.experiment.critic.enable == Some(false)
        {
            let name = self.name(warmup);
            self.error(
                &[warmup],
                format!(
                    "{name} is {}, but no critic is trained",
                    self.experiment.trainer.critic_warmup
                ),
            );
        }
    }

    fn kl(&mut self) {
        let in_reward = self.experiment.algorithm.use_kl_in_reward;
        let in_loss = self.experiment.actor_rollout_ref.actor.use_kl_loss;
        if in_reward && in_loss {
            let (reward, loss) = (
                "algorithm.use_kl_in_reward",
                "actor_rollout_ref.actor.use_kl_loss",
            );
            let message = format!(
                "{} and {} are both true: the KL to the reference counts twice",
                self.name(reward),
                self.name(loss)
            );
            self.warn(&[reward, loss], message);
        }
        if !in_reward && let Some(first) = self.first_under("algorithm.kl_ctrl.") {
            let name = self.name(&first);
            self.warn(
                &[&first],
                format!("{name} has no effect: algorithm.use_kl_in_reward is false, and it is the only place kl_ctrl is used"),
            );
        }
        if !in_reward && self.has("algorithm.kl_penalty") {
            let name = self.name("algorithm.kl_penalty");
            self.warn(
                &["algorithm.kl_penalty"],
                format!("{name} has no effect: algorithm.use_kl_in_reward is false"),
            );
        }
        if in_reward && self.experiment.algorithm.kl_ctrl.kind == KlCtrlType::Fixed {
            for key in ["algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.target_kl"] {
                if self.has(key) {
                    let name = self.name(key);
                    self.warn(
                        &[key],
                        format!("{name} has no effect: kl_ctrl.type is fixed"),
                    );
                }
            }
        }
        for key in [
            "actor_rollout_ref.actor.kl_loss_coef",
            "actor_rollout_ref.actor.kl_loss_type",
        ] {
            if !in_loss && self.has(key) {
                let name = self.name(key);
                self.warn(
                    &[key],
                    format!("{name} has no effect: use_kl_loss is false"),
                );
            }
        }
    }

    fn rollout(&mut self) {
        let key = "actor_rollout_ref.rollout.name";
        let engine = match self.experiment.actor_rollout_ref.rollout.name {
            EngineName::Embedded => None,
            EngineName::Vllm => Some("vllm"),
            EngineName::Sglang => Some("sglang"),
        };
        if let Some(engine) = engine {
            let name = self.name(key);
            self.warn(
                &[key],
                format!("{name} is {engine}, which is not available yet: this build generates with embedded, and a run with {engine} is refused"),
            );
        } else {
            let memory = "actor_rollout_ref.rollout.gpu_memory_utilization";
            if self.has(memory) {
                let name = self.name(memory);
                self.warn(&[memory], format!("{name} has no effect: the embedded engine sizes its cache by max_num_seqs and max_model_len"));
            }
        }
        let longest = self
            .experiment
            .data
            .max_prompt_length
            .saturating_add(self.experiment.data.max_response_length);
        let limit = "actor_rollout_ref.rollout.max_model_len";
        if let Some(length) = self.experiment.actor_rollout_ref.rollout.max_model_len
            && length < longest
        {
            let name = self.name(limit);
            self.error(
                &[limit],
                format!("{name} is {length}; expected at least max_prompt_length + max_response_length, which is {longest}"),
            );
        }
        let correction = &self.experiment.algorithm.rollout_correction;
        let (bypass, importance) = (correction.bypass_mode, correction.rollout_is.is_some());
        let keep = "actor_rollout_ref.rollout.calculate_log_probs";
        if !self
            .experiment
            .actor_rollout_ref
            .rollout
            .calculate_log_probs
            && (bypass || importance)
        {
            let name = self.name(keep);
            let user = if bypass { "bypass_mode" } else { "rollout_is" };
            self.error(&[keep], format!("{name} is false, but algorithm.rollout_correction.{user} needs the rollout's log-probs"));
        }
        if bypass && importance {
            let key = "algorithm.rollout_correction.rollout_is";
            let name = self.name(key);
            self.warn(&[key], format!("{name} has nothing to correct: with bypass_mode the old log-probs are the rollout's own, so every weight is 1"));
        }
        for key in [
            "algorithm.rollout_correction.rollout_is_threshold",
            "algorithm.rollout_correction.rollout_is_batch_normalize",
        ] {
            if !importance && self.has(key) {
                let name = self.name(key);
                self.warn(&[key], format!("{name} has no effect: rollout_is is null"));
            }
        }
    }

    fn dialogue(&mut self) {
        let enable = "actor_rollout_ref.rollout.multi_turn.enable";
        let tools = "actor_rollout_ref.rollout.multi_turn.tool_config_path";
        let agent = "actor_rollout_ref.rollout.agent.default_agent_loop";
        let rollout = &mut self.experiment.actor_rollout_ref.rollout;
        let single = rollout.agent.default_agent_loop == AgentLoop::SingleTurnAgent;
        let has_tools = rollout.multi_turn.tool_config_path.is_some();
        let multi = rollout.multi_turn.enable;
        let chosen = self.has(agent);
        if multi && single && !chosen {
            self.experiment
                .actor_rollout_ref
                .rollout
                .agent
                .default_agent_loop = AgentLoop::ToolAgent;
            let name = self.name(enable);
            self.note(
                &[enable],
                format!("{name} makes tool_agent the loop of rows without agent_name; verl wants rollout.agent.default_agent_loop=tool_agent as well"),
            );
        } else if multi && single {
            let name = self.name(agent);
            self.warn(&[agent, enable], format!("{name} is single_turn_agent, so rows without agent_name call no tool although multi_turn.enable is true"));
        } else if has_tools && single {
            let name = self.name(tools);
            self.warn(&[tools], format!("{name}: the tools are used only by rows whose agent_name is tool_agent; set multi_turn.enable=true for all rows"));
        }
        let loop_of_tools = self
            .experiment
            .actor_rollout_ref
            .rollout
            .agent
            .default_agent_loop
            == AgentLoop::ToolAgent;
        if loop_of_tools && !has_tools {
            self.warn(&[agent, enable], "dialogues run as tool_agent, but rollout.multi_turn.tool_config_path names no tools".to_owned());
        }
    }

    fn mode(&mut self) {
        let key = "trainer.max_staleness";
        let mode = self.experiment.trainer.mode;
        let (name, most) = match mode {
            Mode::Sync => ("sync", 0),
            Mode::OneStepOff => ("one_step_off", 1),
        };
        match self.experiment.trainer.max_staleness {
            None => self.experiment.trainer.max_staleness = Some(most),
            Some(staleness) if staleness > most => {
                let written = self.name(key);
                let expected = if most == 0 {
                    "0".to_owned()
                } else {
                    "0 or 1".to_owned()
                };
                self.error(
                    &[key, "trainer.mode"],
                    format!(
                        "{written} is {staleness}; with trainer.mode {name} expected {expected}"
                    ),
                );
            }
            Some(_) => {}
        }
    }

    fn files(&mut self) {
        let supervised = !self.experiment.sft.train_files.is_empty();
        if self.experiment.data.train_files.is_empty() && !supervised {
            self.error(
                &["data.train_files"],
                "data.train_files is empty; name the Parquet files to train on".to_owned(),
            );
        }
        if self.experiment.actor_rollout_ref.model.path.is_empty()
            && self.experiment.sft.init_config.is_none()
        {
            let key = "actor_rollout_ref.model.path";
            self.error(
                &[key],
                format!("{key} is not given; name a model directory in the Hugging Face layout"),
            );
        }
        if supervised
            && self.experiment.sft.output_dir.is_none()
            && self.experiment.data.train_files.is_empty()
        {
            let key = "sft.output_dir";
            self.error(
                &[key, "sft.train_files"],
                format!("{key} is not given; name the directory for the warmed-up model"),
            );
        }
        let evaluation = "data.val_files";
        if self.experiment.data.val_files.is_empty() {
            let test = "trainer.test_freq";
            if self.experiment.trainer.val_only {
                self.error(
                    &["trainer.val_only", evaluation],
                    "trainer.val_only is true, but data.val_files is empty".to_owned(),
                );
            } else if self.experiment.trainer.test_freq > 0 {
                let name = self.name(test);
                self.error(
                    &[test, evaluation],
                    format!("{name} is {}, but data.val_files is empty, so there is nothing to evaluate on", self.experiment.trainer.test_freq),
                );
            } else if self.has("trainer.val_before_train")
                && self.experiment.trainer.val_before_train
            {
                let name = self.name("trainer.val_before_train");
                self.warn(
                    &["trainer.val_before_train"],
                    format!("{name} has no effect: data.val_files is empty"),
                );
            }
        }
        let mut seen: Vec<LoggerName> = Vec::new();
        self.experiment.trainer.logger.retain(|logger| {
            let first = !seen.contains(logger);
            seen.push(*logger);
            first
        });
    }

    fn devices(&mut self) {
        let trainer = &self.experiment.trainer;
        let gpus = trainer.nnodes.saturating_mul(trainer.n_gpus_per_node);
        let keys = ["trainer.n_gpus_per_node", "trainer.nnodes"];
        if gpus > 1 && keys.iter().any(|key| self.has(key)) {
            let name = keys
                .iter()
                .find(|key| self.has(key))
                .map(|key| self.name(key))
                .unwrap_or_default();
            self.warn(
                &keys,
                format!("{name}: this build trains on one device, of the {gpus} asked for"),
            );
        }
        let hybrid = "actor_rollout_ref.hybrid_engine";
        let rollout = &self.experiment.actor_rollout_ref.rollout;
        if !self.experiment.actor_rollout_ref.hybrid_engine
            && rollout.nnodes == 0
            && rollout.name != EngineName::Embedded
        {
            let name = self.name(hybrid);
            self.warn(
                &[hybrid],
                format!(
                    "{name} is false, but rollout.nnodes is 0: verl gives such rollouts no GPUs"
                ),
            );
        }
    }
}
