//! Batches, estimators, clips and KL.

use super::{CLIP_RATIO, Rules};
use crate::estimators::{Estimator, Need};
use crate::settings::{AdvEstimator, KlCtrlType, LossAggMode, LossMode};

const TRAIN_BATCH: &str = "data.train_batch_size";
const MINI_BATCH: &str = "actor_rollout_ref.actor.ppo_mini_batch_size";
const CRITIC_MINI_BATCH: &str = "critic.ppo_mini_batch_size";

impl Rules<'_> {
    pub(super) fn clip_ratio(&mut self) {
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

    pub(super) fn batches(&mut self) {
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

    pub(super) fn micro_batches(&mut self) {
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

    pub(super) fn estimator(&mut self) {
        let estimator = self.experiment.algorithm.adv_estimator.row();
        let key = "algorithm.adv_estimator";
        let needs_critic = estimator.needs(Need::Critic);
        let enable = self.experiment.critic.enable;
        let chosen = estimator.name;
        match (needs_critic, enable) {
            (true, Some(false)) => {
                let name = self.name("critic.enable");
                self.error(
                    &["critic.enable", key],
                    format!("{name} is false, but adv_estimator {chosen} needs a critic; use grpo"),
                );
            }
            (false, Some(true)) => {
                let name = self.name("critic.enable");
                self.warn(&["critic.enable"], format!("{name} is true: a critic is trained, but adv_estimator {chosen} does not use it"));
            }
            (false, None) => {
                if let Some(first) = self.first_under("critic.") {
                    let name = self.name(&first);
                    self.note(
                        &[&first],
                        format!("{name} waits for adv_estimator gae: {chosen} trains no critic"),
                    );
                }
            }
            _ => {}
        }
        self.experiment.critic.enable = Some(enable.unwrap_or(needs_critic));
        if estimator.needs(Need::Group) && self.experiment.actor_rollout_ref.rollout.n == 1 {
            let n = "actor_rollout_ref.rollout.n";
            let name = self.name(n);
            if estimator.kind == AdvEstimator::Grpo {
                self.warn(&[n, key], format!("{name} is 1: grpo compares the samples of a prompt, and one sample has nothing to be compared with"));
            } else {
                self.error(
                    &[n, key],
                    format!("{name} is 1; adv_estimator {chosen} compares the samples of a prompt: expected at least 2"),
                );
            }
        }
        self.estimator_keys(estimator);
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

    /// Keys that only some estimators read.
    fn estimator_keys(&mut self, estimator: &Estimator) {
        let chosen = estimator.name;
        let algorithm = &self.experiment.algorithm;
        for (key, value) in [("lam", algorithm.lam), ("gamma", algorithm.gamma)] {
            if value != 1.0 && !estimator.reads(key) {
                let path = format!("algorithm.{key}");
                let name = self.name(&path);
                self.warn(
                    &[&path],
                    format!(
                        "{name} = {value} has no effect: adv_estimator {chosen} does not discount{}",
                        if estimator.reads("gamma") { " by it" } else { "" }
                    ),
                );
            }
        }
        for key in [
            "norm_adv_by_std_in_grpo",
            "gdpo_reward_keys",
            "gdpo_reward_weights",
        ] {
            let path = format!("algorithm.{key}");
            if self.has(&path) && !estimator.reads(key) {
                let name = self.name(&path);
                self.warn(
                    &[&path],
                    format!("{name} has no effect: adv_estimator {chosen} does not read it"),
                );
            }
        }
        if !estimator.needs(Need::Components) {
            return;
        }
        let (keys, weights) = (
            "algorithm.gdpo_reward_keys",
            "algorithm.gdpo_reward_weights",
        );
        let wanted = self.experiment.algorithm.gdpo_reward_keys.len();
        if wanted == 0 {
            self.error(
                &[keys, "algorithm.adv_estimator"],
                format!("{keys} is empty; {chosen} needs the names of the scorer's numbers to compare, e.g. [score, format]"),
            );
        }
        if let Some(given) = self
            .experiment
            .algorithm
            .gdpo_reward_weights
            .as_ref()
            .map(Vec::len)
            && given != wanted
        {
            let name = self.name(weights);
            self.error(
                &[weights, keys],
                format!("{name} has {given} numbers; expected one for each of gdpo_reward_keys, which has {wanted}"),
            );
        }
    }

    pub(super) fn policy_loss(&mut self) {
        let actor = &self.experiment.actor_rollout_ref.actor;
        let loss = actor.policy_loss.loss_mode.row();
        let chosen = loss.name;
        let mode = "actor_rollout_ref.actor.policy_loss.loss_mode";
        let on_policy = actor.ppo_epochs == 1
            && actor.ppo_mini_batch_size >= self.experiment.data.train_batch_size;
        let lacks_beta = loss.kind == LossMode::Dro && actor.policy_loss.dro_beta.is_none();
        if lacks_beta {
            let beta = "actor_rollout_ref.actor.policy_loss.dro_beta";
            self.error(
                &[beta, mode],
                format!("{beta} is not given; loss_mode dro needs it: expected > 0, e.g. 0.1"),
            );
        }
        if loss.kind == LossMode::Gpg && !on_policy {
            let name = self.name(mode);
            self.warn(
                &[mode],
                format!("{name} gpg has no ratio, but a batch is trained on in several steps (ppo_epochs, ppo_mini_batch_size): after the first its samples are not the policy's own"),
            );
        }
        if let Some(why) = loss.micro_batches_matter
            && self.has(mode)
        {
            let name = self.name(mode);
            self.note(
                &[mode],
                format!(
                    "{name} {chosen}: the gradient depends on the micro-batch size, because {why}"
                ),
            );
        }
        for key in crate::losses::SETTINGS {
            let path = format!("actor_rollout_ref.actor.{key}");
            if self.has(&path) && !loss.reads(key) {
                let name = self.name(&path);
                self.warn(
                    &[&path],
                    format!("{name} has no effect: loss_mode {chosen} does not read it"),
                );
            }
        }
    }

    pub(super) fn kl(&mut self) {
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
        let loss_ctrl = "actor_rollout_ref.actor.kl_loss_ctrl";
        if !in_loss && let Some(first) = self.first_under(&format!("{loss_ctrl}.")) {
            let name = self.name(&first);
            self.warn(
                &[&first],
                format!("{name} has no effect: use_kl_loss is false"),
            );
        }
        self.controller(
            in_reward,
            self.experiment.algorithm.kl_ctrl.kind,
            "algorithm.kl_ctrl",
            (
                "algorithm.kl_ctrl.kl_coef",
                self.experiment.algorithm.kl_ctrl.kl_coef,
            ),
        );
        let actor = &self.experiment.actor_rollout_ref.actor;
        self.controller(
            in_loss,
            actor.kl_loss_ctrl.kind,
            loss_ctrl,
            ("actor_rollout_ref.actor.kl_loss_coef", actor.kl_loss_coef),
        );
        if !in_reward && self.has("algorithm.kl_penalty") {
            let name = self.name("algorithm.kl_penalty");
            self.warn(
                &["algorithm.kl_penalty"],
                format!("{name} has no effect: algorithm.use_kl_in_reward is false"),
            );
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

    /// One of the two controllers of a KL's coefficient.
    fn controller(
        &mut self,
        is_used: bool,
        kind: KlCtrlType,
        block: &str,
        (coefficient, start): (&str, f64),
    ) {
        if !is_used {
            return;
        }
        if kind == KlCtrlType::Adaptive && start == 0.0 {
            let name = self.name(coefficient);
            self.error(
                &[coefficient, &format!("{block}.type")],
                format!("{name} is 0, where an adaptive coefficient stays for good; expected > 0"),
            );
        }
        if kind == KlCtrlType::Fixed {
            let short = block.rsplit('.').next().unwrap_or(block);
            for key in ["horizon", "target_kl", "target_kl_per"] {
                let path = format!("{block}.{key}");
                if self.has(&path) {
                    let name = self.name(&path);
                    self.warn(
                        &[&path],
                        format!("{name} has no effect: {short}.type is fixed"),
                    );
                }
            }
        }
    }

    /// DAPO: long responses and groups that teach nothing.
    pub(super) fn dapo(&mut self) {
        let buffer = "reward.reward_kwargs.overlong_buffer_cfg";
        let settings = &self.experiment.reward.reward_kwargs;
        let most = settings
            .max_resp_len
            .unwrap_or(self.experiment.data.max_response_length);
        let (enable, length) = (
            settings.overlong_buffer_cfg.enable,
            settings.overlong_buffer_cfg.len,
        );
        if enable && !(1..=most).contains(&length) {
            let path = format!("{buffer}.len");
            let name = self.name(&path);
            self.error(
                &[&path, &format!("{buffer}.enable")],
                format!("{name} is {length}; expected 1 <= len <= {most}, the longest response"),
            );
        }
        if !enable && let Some(first) = self.first_under("reward.reward_kwargs.") {
            let name = self.name(&first);
            self.warn(
                &[&first],
                format!("{name} has no effect: overlong_buffer_cfg.enable is false"),
            );
        }
        let filter = "algorithm.filter_groups";
        let enable = format!("{filter}.enable");
        if self.experiment.algorithm.filter_groups.enable {
            if self.experiment.actor_rollout_ref.rollout.n == 1 {
                let n = "actor_rollout_ref.rollout.n";
                let name = self.name(n);
                self.error(
                    &[n, &enable],
                    format!("{name} is 1; filter_groups compares the samples of a prompt: expected at least 2"),
                );
            }
        } else if let Some(first) = self.first_under(&format!("{filter}."))
            && first != enable
        {
            let name = self.name(&first);
            self.warn(
                &[&first],
                format!("{name} has no effect: filter_groups.enable is false"),
            );
        }
    }
}
