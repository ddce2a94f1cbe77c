//! Epochs, mini-batches, micro-batches: one optimizer step per mini-batch, gradients summed over its micro-batches with the
//! mini-batch's own denominators, so that the gradient does not depend on how it is cut.

use experiment::settings::{KlEstimator, LossAggMode};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use tch::Tensor;

use super::batch::{MicroLimit, TrainBatch};
use super::correction::Corrected;
use super::metrics::{StepValues, scalar};
use super::{KL_OUT_OF_REACH, Learner, LearnerError};
use crate::objective::aggregate::{Denominators, GlobalCounts, aggregate};
use crate::objective::kl::{KlSums, full_kl, kl_per_token};
use crate::objective::logprob::token_logprobs;
use crate::objective::masked::{count as count_of, zeroed};
use crate::objective::policy_loss::{PolicyBatch, PolicySums};
use crate::objective::value_loss::{self, ValueBatch, ValueSums};
use crate::optimizer::StepOutcome;

pub(super) struct ActorInputs<'a> {
    pub batch: &'a TrainBatch,
    /// `[B, T]` each.
    pub old_logprobs: &'a Tensor,
    pub ref_logprobs: Option<&'a Tensor>,
    pub advantages: &'a Tensor,
    pub corrected: &'a Corrected,
}

/// Means over the mini-batches of a step, by name.
#[derive(Debug, Default)]
pub(super) struct Means {
    sums: Vec<(&'static str, f64)>,
    count: f64,
    /// Of the KL in the loss, over all mini-batches.
    kl: Option<KlSums>,
    /// Share of the tokens that bypass mode's rejection left out, summed over mini-batches.
    rejected: f64,
}

impl Means {
    fn add(&mut self, name: &'static str, value: f64) {
        match self.sums.iter_mut().find(|(held, _)| *held == name) {
            Some((_, sum)) => *sum += value,
            None => self.sums.push((name, value)),
        }
    }

    fn write(self, prefix: &str, values: &mut StepValues) {
        for (name, sum) in self.sums {
            values.set(&format!("{prefix}/{name}"), sum / self.count.max(1.0));
        }
    }
}

/// The order of groups for each mini-batch of each epoch.
fn mini_batches(
    groups: usize,
    size: usize,
    epochs: u32,
    shuffle_seed: Option<u64>,
) -> Vec<Vec<usize>> {
    let mut rng = shuffle_seed.map(ChaCha8Rng::seed_from_u64);
    let mut plan = Vec::new();
    for _ in 0..epochs {
        let mut order: Vec<usize> = (0..groups).collect();
        if let Some(rng) = &mut rng {
            order.shuffle(rng);
        }
        plan.extend(order.chunks(size.max(1)).map(<[usize]>::to_vec));
    }
    plan
}

impl Learner {
    pub(super) fn update_actor(
        &mut self,
        step: u64,
        inputs: &ActorInputs<'_>,
        values: &mut StepValues,
        alarms: &mut Vec<(&'static str, String)>,
    ) -> Result<(), LearnerError> {
        let experiment = std::sync::Arc::clone(&self.experiment);
        let settings = &experiment.actor_rollout_ref.actor;
        let lr = self.actor.lr(step);
        let limit = self.limit(settings.ppo_micro_batch_size_per_gpu);
        let plan = mini_batches(
            inputs.batch.groups.len(),
            settings.ppo_mini_batch_size as usize,
            settings.ppo_epochs,
            settings
                .shuffle
                .then(|| settings.data_loader_seed.wrapping_add(step)),
        );
        let mut means = Means {
            count: plan.len() as f64,
            ..Means::default()
        };
        // For losses that draw; of the step, so that a resumed run draws the same.
        let mut draws = ChaCha8Rng::seed_from_u64(settings.data_loader_seed.wrapping_add(step));
        for mini in &plan {
            self.actor.optimizer.clear_grads()?;
            if !self.actor_gradients(inputs, mini, limit, &mut draws, &mut means)? {
                continue;
            }
            match self.actor.step(lr)? {
                StepOutcome::Stepped { grad_norm, .. } => means.add("grad_norm", grad_norm),
                StepOutcome::SkippedNonFinite { grad_norm } => {
                    means.add("grad_norm", grad_norm);
                    alarms.push((
                        "non-finite gradient",
                        format!("step {step}: the actor's gradient norm is {grad_norm}; this update was skipped and its batch kept in rollouts/"),
                    ));
                }
            }
        }
        let kl = means.kl.take();
        if self.experiment.algorithm.rollout_correction.bypass_mode
            && self
                .experiment
                .algorithm
                .rollout_correction
                .rollout_rs
                .is_some()
        {
            let share = means.rejected / means.count.max(1.0);
            values.set("rollout_corr/rollout_rs_masked_fraction", share);
        }
        means.write("actor", values);
        values.set("actor/lr", lr);
        if let Some(kl) = kl {
            values.set("actor/kl_coef", self.loss_controller.coefficient());
            self.loss_controller
                .update(kl.mean(), inputs.batch.len() as u64);
            alarms.extend(
                self.loss_controller
                    .out_of_reach()
                    .map(|message| (KL_OUT_OF_REACH, format!("KL in the loss: {message}"))),
            );
        }
        Ok(())
    }

    /// Adds the gradient of one mini-batch to the actor's parameters, in micro-batches of at most `limit`. `draws` serves losses
    /// that draw tokens. False: every token of it was rejected, there is no gradient.
    pub(super) fn actor_gradients(
        &self,
        inputs: &ActorInputs<'_>,
        mini: &[usize],
        limit: MicroLimit,
        draws: &mut ChaCha8Rng,
        means: &mut Means,
    ) -> Result<bool, LearnerError> {
        let settings = &self.experiment.actor_rollout_ref.actor;
        let batch = inputs.batch;
        let mode = settings.loss_agg_mode;
        let kept = &inputs.corrected.mask;
        let denominators =
            self.denominators(batch, kept, mini, mode, settings.loss_scale_factor)?;
        if denominators.is_empty() {
            return Ok(false);
        }
        let bypass = self.bypass()?;
        let (mut rejected, mut drawn) = (None, 0.0);
        let wants_entropy = settings.entropy_coeff != 0.0 || settings.calculate_entropy;
        let surrogate = self.surrogate();
        let model = &self.actor.model;
        let mut sums: Option<PolicySums> = None;
        for micro in batch.micro_batches(mini, limit, self.device) {
            let hidden = model.hidden(&micro.packed);
            let logits = model.logits(&hidden.rows.index_select(0, &micro.source_rows));
            let tokens =
                token_logprobs(&logits, &micro.targets, self.temperature(), wants_entropy)?;
            let full = match (&self.reference, settings.kl_loss_type) {
                (Some(reference), KlEstimator::Full) if settings.use_kl_loss => {
                    let ref_logits = {
                        let _no_grad = tch::no_grad_guard();
                        super::forward::logits_of(reference, &micro)
                    };
                    Some(micro.scatter(&full_kl(&logits, &ref_logits, self.temperature())?))
                }
                _ => None,
            };
            drop(logits);
            let logprobs = micro.scatter(&tokens.logprobs);
            let mask = micro.select(kept);
            let old_logprobs = micro.select(inputs.old_logprobs);
            let in_loss = bypass
                .as_ref()
                .map(|bypass| bypass.apply(&logprobs, &old_logprobs, &mask))
                .transpose()?;
            if let Some(count) = in_loss.as_ref().and_then(|corrected| corrected.rejected) {
                rejected = Some(rejected.unwrap_or(0.0) + count);
                drawn += scalar(&count_of(&mask));
            }
            let weights = match &in_loss {
                Some(corrected) => corrected.weights.as_ref().map(Tensor::shallow_clone),
                None => inputs
                    .corrected
                    .weights
                    .as_ref()
                    .map(|weights| micro.select(weights)),
            };
            let policy = surrogate.loss(
                &PolicyBatch {
                    logprobs: &logprobs,
                    old_logprobs: &old_logprobs,
                    advantages: &micro.select(inputs.advantages),
                    mask: in_loss.as_ref().map_or(&mask, |corrected| &corrected.mask),
                    rollout_weights: weights.as_ref(),
                },
                mode,
                &denominators,
                &mut |count| {
                    let mut order: Vec<usize> = (0..count).collect();
                    order.shuffle(draws);
                    order
                },
            )?;
            means.add("pg_loss", scalar(&policy.loss));
            sums = Some(match sums {
                Some(sums) => sums.plus(&policy.sums),
                None => policy.sums,
            });
            let mut loss = policy.loss;
            if let Some(entropy) = tokens.entropy {
                let entropy = aggregate(&micro.scatter(&entropy), &mask, mode, &denominators);
                means.add("entropy", scalar(&entropy));
                if settings.entropy_coeff != 0.0 {
                    loss -= entropy * settings.entropy_coeff;
                }
            }
            if let (true, Some(ref_logprobs)) = (settings.use_kl_loss, inputs.ref_logprobs) {
                let per_token = match full {
                    Some(kl) => kl,
                    None => kl_per_token(
                        &logprobs,
                        &zeroed(&micro.select(ref_logprobs), &mask),
                        settings.kl_loss_type,
                    )?,
                };
                let observed = KlSums::new(&per_token, &mask);
                means.kl = Some(match means.kl.take() {
                    Some(kl) => kl.plus(&observed),
                    None => observed,
                });
                let kl = aggregate(&per_token, &mask, mode, &denominators);
                means.add("kl_loss", scalar(&kl));
                loss += kl * self.loss_controller.coefficient();
            }
            loss.backward();
            hidden.backward();
        }
        if let Some(sums) = sums {
            for (name, value) in sums.metrics().named() {
                means.add(name, value);
            }
        }
        if let Some(rejected) = rejected {
            means.rejected += rejected / drawn.max(1.0);
        }
        Ok(true)
    }

    pub(super) fn update_critic(
        &mut self,
        step: u64,
        batch: &TrainBatch,
        old_values: &Tensor,
        returns: &Tensor,
        values: &mut StepValues,
        alarms: &mut Vec<(&'static str, String)>,
    ) -> Result<(), LearnerError> {
        let experiment = std::sync::Arc::clone(&self.experiment);
        let settings = &experiment.critic;
        let actor = &experiment.actor_rollout_ref.actor;
        let limit = self.limit(
            settings
                .ppo_micro_batch_size_per_gpu
                .or(actor.ppo_micro_batch_size_per_gpu),
        );
        let plan = mini_batches(
            batch.groups.len(),
            settings
                .ppo_mini_batch_size
                .unwrap_or(actor.ppo_mini_batch_size) as usize,
            settings.ppo_epochs.unwrap_or(actor.ppo_epochs),
            settings
                .shuffle
                .unwrap_or(actor.shuffle)
                .then(|| actor.data_loader_seed.wrapping_add(step)),
        );
        let mode = settings.loss_agg_mode.unwrap_or(actor.loss_agg_mode);
        let mut means = Means {
            count: plan.len() as f64,
            ..Means::default()
        };
        let mut lr = 0.0;
        for mini in &plan {
            let denominators =
                self.denominators(batch, &batch.mask, mini, mode, actor.loss_scale_factor)?;
            let mut sums: Option<ValueSums> = None;
            let critic = self.critic.as_mut().ok_or_else(|| LearnerError::Step {
                step,
                reason: "there is no critic to update".to_owned(),
            })?;
            lr = critic.lr(step);
            critic.optimizer.clear_grads()?;
            for micro in batch.micro_batches(mini, limit, self.device) {
                let hidden = critic.model.hidden(&micro.packed);
                let predicted = critic
                    .model
                    .values(&hidden.rows.index_select(0, &micro.source_rows));
                let value = value_loss::clipped(
                    &ValueBatch {
                        predictions: &micro.scatter(&predicted),
                        old_values: &micro.select(old_values),
                        returns: &micro.select(returns),
                        mask: &micro.select(&batch.mask),
                    },
                    settings.cliprange_value,
                    mode,
                    &denominators,
                )?;
                means.add("vf_loss", scalar(&value.loss));
                sums = Some(match sums {
                    Some(sums) => sums.plus(&value.sums),
                    None => value.sums,
                });
                value.loss.backward();
                hidden.backward();
            }
            if let Some(sums) = sums {
                let metrics = sums.metrics();
                means.add("vf_clipfrac", metrics.clip_fraction);
                means.add("vpred_mean", metrics.prediction_mean);
            }
            match critic.step(lr)? {
                StepOutcome::Stepped { grad_norm, .. } => means.add("grad_norm", grad_norm),
                StepOutcome::SkippedNonFinite { grad_norm } => {
                    means.add("grad_norm", grad_norm);
                    alarms.push((
                        "non-finite gradient",
                        format!("step {step}: the critic's gradient norm is {grad_norm}; this update was skipped and its batch kept in rollouts/"),
                    ));
                }
            }
        }
        means.write("critic", values);
        values.set("critic/lr", lr);
        Ok(())
    }

    /// Global counts of one mini-batch over `mask`, `[B, T]`: what every micro-batch's sum is divided by.
    fn denominators(
        &self,
        batch: &TrainBatch,
        mask: &Tensor,
        mini: &[usize],
        mode: LossAggMode,
        loss_scale_factor: Option<f64>,
    ) -> Result<Denominators, LearnerError> {
        let rows: Vec<i64> = mini
            .iter()
            .flat_map(|group| batch.groups[*group].clone())
            .map(|row| row as i64)
            .collect();
        let rows = Tensor::from_slice(&rows).to_device(self.device);
        let longest = f64::from(self.experiment.data.max_response_length);
        let counts = GlobalCounts {
            // Not the width of the batch, which changes from step to step and with it the scale of the gradient.
            loss_scale_factor: Some(loss_scale_factor.unwrap_or(longest)),
            ..GlobalCounts::default()
        };
        Ok(Denominators::new(
            &mask.index_select(0, &rows),
            mode,
            &counts,
        )?)
    }
}
