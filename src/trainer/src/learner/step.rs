//! One step of the learner: rollouts in, new weights out.

use std::sync::Arc;
use std::time::Duration;

use dialogue::rollout::Rollout;
use experiment::estimators::Need;
use experiment::settings::{Algorithm, KlEstimator};
use runlog::event::Lane;
use runlog::recorder::Recorder;
use tch::{Kind, Tensor};

use super::advantages;
use super::batch::TrainBatch;
use super::forward::values_without_gradients;
use super::metrics::{StepValues, all_equal_group_frac, rollout_values};
use super::update::ActorInputs;
use super::{KL_OUT_OF_REACH, Learner, LearnerError, StepOutcome, TrainedBatch};
use crate::objective::advantage::Advantages;
use crate::objective::kl::{kl_per_token, penalize};
use crate::objective::masked;
use crate::tools;

/// Of a step: `(name, message)`.
type Alarms = Vec<(&'static str, String)>;

/// What the models say of a batch before it is trained on; `[B, T]` each.
struct Seen {
    old_logprobs: Tensor,
    ref_logprobs: Option<Tensor>,
    /// KL(policy‖reference) over the vocabulary, where the reward is paid for it.
    full_kl: Option<Tensor>,
    /// Σ π² of the distribution each token was drawn from, where the estimator needs it.
    sum_pi_squared: Option<Tensor>,
    values: Option<Tensor>,
}

impl Learner {
    /// Trains on the rollouts of step `step` (from 1). `policy_version` is that of the weights before this step.
    pub fn step(
        &mut self,
        step: u64,
        policy_version: u64,
        rollouts: Vec<Rollout>,
        recorder: &Recorder,
    ) -> Result<StepOutcome, LearnerError> {
        let experiment = Arc::clone(&self.experiment);
        let algorithm = &experiment.algorithm;
        let mut values = StepValues::default();
        let mut alarms = Vec::new();
        rollout_values(
            &mut values,
            &rollouts,
            policy_version,
            experiment.data.max_response_length as usize,
        );
        let broken = tools::broken(&rollouts).into_iter();
        alarms.extend(broken.map(|message| ("tool that never works", message)));
        let batch = self.batch(step, rollouts, &mut values, &mut alarms);
        if batch.is_empty() {
            return Ok(StepOutcome {
                values,
                alarms,
                trained: None,
            });
        }
        let seen = self.look(step, &batch, recorder, &mut values)?;

        let started_ms = recorder.elapsed_ms();
        let no_grad = tch::no_grad_guard();
        let corrected = self.correct(
            &seen.old_logprobs,
            policy_version,
            &batch,
            &mut values,
            &mut alarms,
        )?;
        let token_rewards =
            self.token_rewards(algorithm, &batch, &seen, &mut values, &mut alarms)?;
        let Advantages {
            advantages,
            returns,
        } = advantages::estimate(
            algorithm,
            &batch,
            &advantages::Inputs {
                token_rewards: &token_rewards,
                old_logprobs: &seen.old_logprobs,
                values: seen.values.as_ref(),
                weights: corrected.weights.as_ref(),
                sum_pi_squared: seen.sum_pi_squared.as_ref(),
            },
        )
        .map_err(|error| match error {
            advantages::Refusal::Objective(error) => LearnerError::Objective(error),
            advantages::Refusal::Missing(reason) => LearnerError::Step { step, reason },
        })?;
        spreads(
            &mut values,
            &batch,
            &token_rewards,
            (&advantages, &returns),
            seen.values.as_ref(),
        );
        values.set("timing_s/adv", (recorder.elapsed_ms() - started_ms) / 1e3);
        drop(no_grad);

        let mut copy_wait = Duration::ZERO;
        if let Some(state_values) = &seen.values {
            let span = recorder.span(Lane::CriticUpdate, "critic update", Some(step));
            self.update_critic(
                step,
                &batch,
                state_values,
                &returns,
                &mut values,
                &mut alarms,
            )?;
            let waited = self.take_waited();
            values.set(
                "timing_s/update_critic",
                span.end() / 1e3 - waited.as_secs_f64(),
            );
            copy_wait += waited;
        }
        if step > experiment.trainer.critic_warmup {
            let span = recorder.span(Lane::ActorUpdate, "actor update", Some(step));
            let inputs = ActorInputs {
                batch: &batch,
                old_logprobs: &seen.old_logprobs,
                ref_logprobs: seen.ref_logprobs.as_ref(),
                advantages: &advantages,
                corrected: &corrected,
            };
            self.update_actor(step, &inputs, &mut values, &mut alarms)?;
            let waited = self.take_waited();
            values.set(
                "timing_s/update_actor",
                span.end() / 1e3 - waited.as_secs_f64(),
            );
            copy_wait += waited;
        }
        if !copy_wait.is_zero() {
            values.set("timing_s/save_checkpoint", copy_wait.as_secs_f64());
        }
        Ok(StepOutcome {
            values,
            alarms,
            trained: Some(TrainedBatch {
                batch,
                old_logprobs: seen.old_logprobs,
                ref_logprobs: seen.ref_logprobs,
                values: seen.values,
                advantages,
            }),
        })
    }

    /// The rollouts that can be trained on. What is left out, and why a batch teaches nothing, is an alarm.
    fn batch(
        &self,
        step: u64,
        rollouts: Vec<Rollout>,
        values: &mut StepValues,
        alarms: &mut Alarms,
    ) -> TrainBatch {
        let algorithm = &self.experiment.algorithm;
        let sampled = rollouts.len();
        let needs_groups = algorithm.adv_estimator.needs(Need::Group);
        let (rollouts, unusable) = advantages::usable(algorithm, rollouts);
        alarms.extend(unusable);
        let batch = TrainBatch::new(rollouts, needs_groups, self.device);
        if batch.left_out.total() > 0 {
            let left = batch.left_out;
            alarms.push((
                "rollouts left out",
                format!(
                    "{} of {sampled} rollouts did not train: {} without a score, {} without tokens, {} alone in their group",
                    left.total(), left.missing_score, left.no_tokens, left.lone_survivor
                ),
            ));
        }
        let equal = all_equal_group_frac(batch.groups.iter().map(|rows| {
            batch.rollouts[rows.clone()]
                .iter()
                .filter_map(|row| row.score)
                .collect()
        }));
        values.set("reward/all_equal_group_frac", equal);
        if batch.is_empty() {
            alarms.push((
                "empty batch",
                format!("step {step} has no rollout to train on; the weights stay as they are"),
            ));
        } else if needs_groups && equal >= 1.0 {
            alarms.push((
                "all groups equal",
                format!("in step {step} every group's samples have the same reward, so the advantages are all zero"),
            ));
        }
        batch
    }

    /// What policy, reference and critic say of the batch, without gradients.
    fn look(
        &self,
        step: u64,
        batch: &TrainBatch,
        recorder: &Recorder,
        values: &mut StepValues,
    ) -> Result<Seen, LearnerError> {
        let algorithm = &self.experiment.algorithm;
        let all: Vec<usize> = (0..batch.groups.len()).collect();
        let micros = batch.micro_batches(&all, self.forward_limit(), self.device);
        let bypass = algorithm.rollout_correction.bypass_mode;
        let wants_squares = algorithm.adv_estimator.needs(Need::SumPiSquared);
        let mut sum_pi_squared = None;
        let old_logprobs = if bypass && !wants_squares {
            batch.behavior_logprobs.shallow_clone()
        } else {
            let span = recorder.span(Lane::OldLogProb, "old log-probs", Some(step));
            let (old, squares) =
                self.logprobs_without_gradients(&self.actor.model, &micros, batch, wants_squares)?;
            values.set("timing_s/old_log_prob", span.end() / 1e3);
            sum_pi_squared = squares;
            if bypass {
                batch.behavior_logprobs.shallow_clone()
            } else {
                old
            }
        };
        let ref_logprobs = match &self.reference {
            Some(reference) => {
                let span = recorder.span(Lane::Ref, "reference log-probs", Some(step));
                let (logprobs, _) =
                    self.logprobs_without_gradients(reference, &micros, batch, false)?;
                values.set("timing_s/ref", span.end() / 1e3);
                Some(logprobs)
            }
            None => None,
        };
        let full_kl = match &self.reference {
            Some(reference)
                if algorithm.use_kl_in_reward && algorithm.kl_penalty == KlEstimator::Full =>
            {
                let span = recorder.span(Lane::Ref, "KL over the vocabulary", Some(step));
                let kl = self.full_kl_without_gradients(reference, &micros, batch)?;
                span.end();
                Some(kl)
            }
            _ => None,
        };
        let critic_values = match &self.critic {
            Some(critic) => {
                let span = recorder.span(Lane::Value, "values", Some(step));
                let state_values = values_without_gradients(&critic.model, &micros, batch);
                values.set("timing_s/values", span.end() / 1e3);
                Some(state_values)
            }
            None => None,
        };
        Ok(Seen {
            old_logprobs,
            ref_logprobs,
            full_kl,
            sum_pi_squared,
            values: critic_values,
        })
    }

    /// `[B, T]` scores, less what the KL to the reference costs; its controller is moved on.
    fn token_rewards(
        &mut self,
        algorithm: &Algorithm,
        batch: &TrainBatch,
        seen: &Seen,
        values: &mut StepValues,
        alarms: &mut Alarms,
    ) -> Result<Tensor, LearnerError> {
        let (true, Some(ref_logprobs)) = (algorithm.use_kl_in_reward, &seen.ref_logprobs) else {
            return Ok(batch.token_scores.shallow_clone());
        };
        let beta = self.controller.coefficient();
        let kl = match &seen.full_kl {
            Some(kl) => kl.shallow_clone(),
            None => kl_per_token(&seen.old_logprobs, ref_logprobs, algorithm.kl_penalty)?,
        };
        let penalty = penalize(&batch.token_scores, &kl, &batch.mask, beta)?;
        values.set("actor/reward_kl_penalty", penalty.mean_kl.per_token);
        values.set("actor/reward_kl_penalty_coeff", beta);
        self.controller.update(penalty.mean_kl, batch.len() as u64);
        alarms.extend(
            self.controller
                .out_of_reach()
                .map(|message| (KL_OUT_OF_REACH, format!("KL in the reward: {message}"))),
        );
        Ok(penalty.token_rewards)
    }
}

/// How rewards, advantages, returns and values lie.
fn spreads(
    values: &mut StepValues,
    batch: &TrainBatch,
    token_rewards: &Tensor,
    (advantages, returns): (&Tensor, &Tensor),
    state_values: Option<&Tensor>,
) {
    values.set_spread(
        "critic/rewards",
        Vec::<f32>::try_from(
            (token_rewards * &batch.mask)
                .sum_dim_intlist(&[-1i64][..], false, Kind::Float)
                .contiguous(),
        )
        .expect("a float vector")
        .into_iter()
        .map(f64::from),
    );
    values.set_masked_spread("critic/advantages", advantages, &batch.mask);
    values.set_masked_spread("critic/returns", returns, &batch.mask);
    if let Some(state_values) = state_values {
        values.set_masked_spread("critic/values", state_values, &batch.mask);
        // One token has no variance to explain.
        if let Ok(explained) = masked::explained_variance(returns, state_values, &batch.mask) {
            values.set("critic/vf_explained_var", explained);
        }
    }
}
