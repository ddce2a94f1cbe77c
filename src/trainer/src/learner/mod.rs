//! The learner: from the rollouts of one step to new weights. Owns the trained copies, their optimizers and the KL controller.
//!
//! ```text
//!  Rollout[] ─► TrainBatch ─► old, ref, values (no gradients) ─► token rewards ─► advantages
//!                                  └─► epochs × mini-batches × micro-batches: loss, backward ─► AdamW step
//! ```
//! Runs on one thread; knows no files, no sessions and no clocks but the recorder's.

mod advantages;
pub mod batch;
mod correction;
mod knobs;
pub mod metrics;
mod restore;
mod update;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use dialogue::rollout::Rollout;
use experiment::Experiment;
use experiment::estimators::Need;
use experiment::settings::{Dtype, KlEstimator};
use runlog::event::Lane;
use runlog::recorder::Recorder;
use tch::{Device, Kind, Tensor};

use crate::checkpoint::{self, Capture, Gate, Models};
use crate::model::parameters::Parameters;
use crate::model::transformer::Transformer;
use crate::objective::advantage::Advantages;
use crate::objective::controller::KlController;
use crate::objective::kl::{full_kl, kl_per_token, penalize};
use crate::objective::logprob::sum_pi_squared;
use crate::objective::{self, masked};
use crate::optimizer::{self, AdamW, LrSchedule, MasterWeights};
use crate::torch_ext;
pub use advantages::GREEDY_BASELINE;
use batch::{MicroBatch, MicroLimit, TrainBatch};
use metrics::{StepValues, all_equal_group_frac, rollout_values};

pub use restore::RestoreError;

#[derive(Debug, thiserror::Error)]
pub enum LearnerError {
    #[error(transparent)]
    Torch(#[from] torch_ext::Error),
    #[error(transparent)]
    Optimizer(#[from] optimizer::Error),
    #[error(transparent)]
    Objective(#[from] objective::ObjectiveError),
    #[error("step {step}: {reason}")]
    Step { step: u64, reason: String },
}

/// Name of the alarm.
const KL_OUT_OF_REACH: &str = "KL target out of reach";

/// A model that is trained: its weights, its optimizer, its learning rate.
#[derive(Debug)]
pub struct Trained {
    pub model: Transformer,
    pub optimizer: AdamW,
    schedule: LrSchedule,
}

impl Trained {
    /// Takes a model over and makes its weights collect gradients.
    pub fn new(
        parameters: Parameters,
        compute: Kind,
        gradient_checkpointing: bool,
        optim: &experiment::settings::Optim,
        total_steps: u64,
    ) -> Result<Self, LearnerError> {
        let parameters = parameters.set_requires_grad(true);
        let named = parameters
            .iter()
            .map(|(name, tensor)| (name.to_owned(), tensor.shallow_clone()))
            .collect::<Vec<_>>();
        Ok(Self {
            optimizer: AdamW::new(named, optim, MasterWeights::Float32)?,
            schedule: LrSchedule::new(optim, total_steps),
            model: Transformer::new(parameters, compute, gradient_checkpointing),
        })
    }

    /// Peak learning rate; its schedule scales it.
    pub fn peak_lr(&mut self) -> &mut f64 {
        self.schedule.peak()
    }

    /// Learning rate of training step `step` (from 1).
    pub fn lr(&self, step: u64) -> f64 {
        self.schedule.lr_at(step - 1)
    }
}

/// What one step did, beyond its numbers.
#[derive(Debug)]
pub struct StepOutcome {
    pub values: StepValues,
    /// Things a researcher must know: `(name, message)`.
    pub alarms: Vec<(&'static str, String)>,
    /// What was trained on, for the record of rollouts; None when nothing could be.
    pub trained: Option<TrainedBatch>,
}

/// A batch with everything computed for it: `[B, T]` each.
#[derive(Debug)]
pub struct TrainedBatch {
    pub batch: TrainBatch,
    pub old_logprobs: Tensor,
    pub ref_logprobs: Option<Tensor>,
    pub values: Option<Tensor>,
    pub advantages: Tensor,
}

#[derive(Debug)]
pub struct Learner {
    experiment: Arc<Experiment>,
    device: Device,
    actor: Trained,
    critic: Option<Trained>,
    reference: Option<Transformer>,
    /// Of the KL in the reward, and of the KL in the loss.
    controller: KlController,
    loss_controller: KlController,
    /// Of the last capture: shut while its tensors are being copied.
    gate: Option<Arc<Gate>>,
}

/// dtype of the weights that are stepped, and of the matrix work.
pub fn kinds(precision: &experiment::settings::Precision) -> (Kind, Kind) {
    let model = kind_of(precision.model_dtype);
    (model, precision.dtype.map_or(model, kind_of))
}

pub fn kind_of(dtype: Dtype) -> Kind {
    match dtype {
        Dtype::Float32 => Kind::Float,
        Dtype::BFloat16 => Kind::BFloat16,
    }
}

/// Whether the experiment trains a critic.
pub fn needs_critic(experiment: &Experiment) -> bool {
    experiment
        .critic
        .enable
        .unwrap_or(experiment.algorithm.adv_estimator.needs(Need::Critic))
}

/// Whether a frozen reference policy is consulted.
pub fn needs_reference(experiment: &Experiment) -> bool {
    experiment.actor_rollout_ref.actor.use_kl_loss || experiment.algorithm.use_kl_in_reward
}

impl Learner {
    /// `actor` are the starting weights; the reference policy is a frozen copy of them, the critic (if `critic` is None) starts
    /// from them too.
    pub fn new(
        experiment: Arc<Experiment>,
        actor: Parameters,
        critic: Option<Parameters>,
        total_steps: u64,
    ) -> Result<Self, LearnerError> {
        let device = actor.device();
        let settings = &experiment.actor_rollout_ref;
        let (_, compute) = kinds(&settings.actor.fsdp_config);
        let checkpointing = settings.model.enable_gradient_checkpointing;
        let reference = needs_reference(&experiment)
            .then(|| Transformer::new(actor.deep_copy(actor.kind(), device), compute, false));
        let critic = if needs_critic(&experiment) {
            let parameters = critic.unwrap_or_else(|| actor.to_critic(experiment.trainer.seed));
            Some(Trained::new(
                parameters,
                compute,
                checkpointing,
                &experiment.critic.optim,
                total_steps,
            )?)
        } else {
            None
        };
        Ok(Self {
            device,
            critic,
            reference,
            controller: KlController::new(&experiment.algorithm.kl_ctrl),
            loss_controller: KlController::of_loss(&settings.actor),
            actor: Trained::new(
                actor,
                compute,
                checkpointing,
                &settings.actor.optim,
                total_steps,
            )?,
            experiment,
            gate: None,
        })
    }

    /// Everything that is trained, lent to whoever writes it down: until the capture is dropped, this learner waits before it
    /// changes a weight.
    pub fn capture(&mut self) -> Capture {
        // One at a time: the earlier one's gate would be forgotten.
        self.wait_for_copy();
        let lend = |trained: &Trained| checkpoint::Model {
            parameters: trained.model.parameters().shallow_clone(),
            optimizer: trained.optimizer.state(),
        };
        let capture = Capture::new(Models {
            actor: lend(&self.actor),
            critic: self.critic.as_ref().map(lend),
        });
        self.gate = Some(capture.gate());
        capture
    }

    /// What comes before every change of a weight. Gives how long the last capture was waited for, once.
    pub(crate) fn wait_for_copy(&mut self) -> Duration {
        let Some(gate) = self.gate.take() else {
            return Duration::ZERO;
        };
        gate.pass();
        gate.waited()
    }

    pub fn actor(&self) -> &Trained {
        &self.actor
    }

    pub fn critic(&self) -> Option<&Trained> {
        self.critic.as_ref()
    }

    /// The controller of the KL in the reward, as it stands.
    pub fn controller(&self) -> &KlController {
        &self.controller
    }

    /// The controller of the KL in the loss, as it stands.
    pub fn loss_controller(&self) -> &KlController {
        &self.loss_controller
    }

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
            return Ok(StepOutcome {
                values,
                alarms,
                trained: None,
            });
        }
        if needs_groups && equal >= 1.0 {
            alarms.push((
                "all groups equal",
                format!("in step {step} every group's samples have the same reward, so the advantages are all zero"),
            ));
        }

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
                self.logprobs_without_gradients(&self.actor.model, &micros, &batch, wants_squares)?;
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
                    self.logprobs_without_gradients(reference, &micros, &batch, false)?;
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
                let kl = self.full_kl_without_gradients(reference, &micros, &batch)?;
                span.end();
                Some(kl)
            }
            _ => None,
        };
        let critic_values = match &self.critic {
            Some(critic) => {
                let span = recorder.span(Lane::Value, "values", Some(step));
                let state_values = values_without_gradients(&critic.model, &micros, &batch);
                values.set("timing_s/values", span.end() / 1e3);
                Some(state_values)
            }
            None => None,
        };
        drop(micros);

        let started_ms = recorder.elapsed_ms();
        let no_grad = tch::no_grad_guard();
        let corrected = self.correct(
            &old_logprobs,
            policy_version,
            &batch,
            &mut values,
            &mut alarms,
        )?;
        let mut token_rewards = batch.token_scores.shallow_clone();
        if let (true, Some(ref_logprobs)) = (algorithm.use_kl_in_reward, &ref_logprobs) {
            let beta = self.controller.coefficient();
            let kl = match &full_kl {
                Some(kl) => kl.shallow_clone(),
                None => kl_per_token(&old_logprobs, ref_logprobs, algorithm.kl_penalty)?,
            };
            let penalty = penalize(&token_rewards, &kl, &batch.mask, beta)?;
            token_rewards = penalty.token_rewards;
            values.set("actor/reward_kl_penalty", penalty.mean_kl.per_token);
            values.set("actor/reward_kl_penalty_coeff", beta);
            self.controller.update(penalty.mean_kl, batch.len() as u64);
            alarms.extend(
                self.controller
                    .out_of_reach()
                    .map(|message| (KL_OUT_OF_REACH, format!("KL in the reward: {message}"))),
            );
        }
        let Advantages {
            advantages,
            returns,
        } = advantages::estimate(
            algorithm,
            &batch,
            &advantages::Inputs {
                token_rewards: &token_rewards,
                old_logprobs: &old_logprobs,
                values: critic_values.as_ref(),
                weights: corrected.weights.as_ref(),
                sum_pi_squared: sum_pi_squared.as_ref(),
            },
        )
        .map_err(|error| match error {
            advantages::Refusal::Objective(error) => LearnerError::Objective(error),
            advantages::Refusal::Missing(reason) => LearnerError::Step { step, reason },
        })?;
        values.set_spread(
            "critic/rewards",
            Vec::<f32>::try_from(
                (&token_rewards * &batch.mask)
                    .sum_dim_intlist(&[-1i64][..], false, Kind::Float)
                    .contiguous(),
            )
            .expect("a float vector")
            .into_iter()
            .map(f64::from),
        );
        values.set_masked_spread("critic/advantages", &advantages, &batch.mask);
        values.set_masked_spread("critic/returns", &returns, &batch.mask);
        if let Some(state_values) = &critic_values {
            values.set_masked_spread("critic/values", state_values, &batch.mask);
            // One token has no variance to explain.
            if let Ok(explained) = masked::explained_variance(&returns, state_values, &batch.mask) {
                values.set("critic/vf_explained_var", explained);
            }
        }
        values.set("timing_s/adv", (recorder.elapsed_ms() - started_ms) / 1e3);
        drop(no_grad);

        // Everything until here only read.
        let copy_wait = self.wait_for_copy();
        if !copy_wait.is_zero() {
            values.set("timing_s/save_checkpoint", copy_wait.as_secs_f64());
        }
        if let Some(state_values) = &critic_values {
            let span = recorder.span(Lane::CriticUpdate, "critic update", Some(step));
            self.update_critic(
                step,
                &batch,
                state_values,
                &returns,
                &mut values,
                &mut alarms,
            )?;
            values.set("timing_s/update_critic", span.end() / 1e3);
        }
        if step > experiment.trainer.critic_warmup {
            let span = recorder.span(Lane::ActorUpdate, "actor update", Some(step));
            let inputs = update::ActorInputs {
                batch: &batch,
                old_logprobs: &old_logprobs,
                ref_logprobs: ref_logprobs.as_ref(),
                advantages: &advantages,
                corrected: &corrected,
            };
            self.update_actor(step, &inputs, &mut values, &mut alarms)?;
            values.set("timing_s/update_actor", span.end() / 1e3);
        }
        Ok(StepOutcome {
            values,
            alarms,
            trained: Some(TrainedBatch {
                batch,
                old_logprobs,
                ref_logprobs,
                values: critic_values,
                advantages,
            }),
        })
    }

    /// Sampling temperature; log-probs are of the distribution that was sampled from.
    fn temperature(&self) -> f64 {
        let temperature = self.experiment.actor_rollout_ref.rollout.temperature;
        if temperature > 0.0 { temperature } else { 1.0 }
    }

    fn forward_limit(&self) -> MicroLimit {
        let settings = &self.experiment.actor_rollout_ref;
        let sequences = settings
            .rollout
            .log_prob_micro_batch_size_per_gpu
            .or(settings.r#ref.log_prob_micro_batch_size_per_gpu);
        self.limit(sequences)
    }

    fn limit(&self, sequences: Option<u32>) -> MicroLimit {
        MicroLimit {
            sequences: sequences.map(|count| count as usize),
            tokens: sequences.is_none().then_some(
                self.experiment
                    .actor_rollout_ref
                    .actor
                    .ppo_max_token_len_per_gpu as usize,
            ),
        }
    }

    /// `[B, T]` log-probs of every drawn token under `model`, and Σ π² of the distribution each was drawn from if asked for.
    fn logprobs_without_gradients(
        &self,
        model: &Transformer,
        micros: &[MicroBatch],
        batch: &TrainBatch,
        with_squares: bool,
    ) -> Result<(Tensor, Option<Tensor>), LearnerError> {
        let _no_grad = tch::no_grad_guard();
        let mut padded = batch.mask.zeros_like();
        let mut squares = with_squares.then(|| batch.mask.zeros_like());
        for micro in micros {
            let hidden = model.hidden(&micro.packed);
            let logits = model.logits(&hidden.rows.index_select(0, &micro.source_rows));
            let (logprobs, _) =
                torch_ext::token_logprobs(&logits, &micro.targets, self.temperature(), false)?;
            let _ = padded.index_copy_(0, &micro.rows, &micro.scatter(&logprobs));
            if let Some(squares) = &mut squares {
                let sums = sum_pi_squared(&logits, self.temperature());
                let _ = squares.index_copy_(0, &micro.rows, &micro.scatter(&sums));
            }
        }
        Ok((padded, squares))
    }

    /// `[B, T]` KL(policy‖reference) over the vocabulary at every drawn token.
    fn full_kl_without_gradients(
        &self,
        reference: &Transformer,
        micros: &[MicroBatch],
        batch: &TrainBatch,
    ) -> Result<Tensor, LearnerError> {
        let _no_grad = tch::no_grad_guard();
        let mut padded = batch.mask.zeros_like();
        for micro in micros {
            let [logits, ref_logits] =
                [&self.actor.model, reference].map(|model| logits_of(model, micro));
            let kl = full_kl(&logits, &ref_logits, self.temperature())?;
            let _ = padded.index_copy_(0, &micro.rows, &micro.scatter(&kl));
        }
        Ok(padded)
    }
}

/// `[M, V]` logits that each drawn token of a micro-batch was drawn from.
fn logits_of(model: &Transformer, micro: &MicroBatch) -> Tensor {
    let hidden = model.hidden(&micro.packed);
    model.logits(&hidden.rows.index_select(0, &micro.source_rows))
}

/// `[B, T]` values of the state before every drawn token.
fn values_without_gradients(
    model: &Transformer,
    micros: &[MicroBatch],
    batch: &TrainBatch,
) -> Tensor {
    let _no_grad = tch::no_grad_guard();
    let mut padded = batch.mask.zeros_like();
    for micro in micros {
        let hidden = model.hidden(&micro.packed);
        let state_values = model.values(&hidden.rows.index_select(0, &micro.source_rows));
        let _ = padded.index_copy_(0, &micro.rows, &micro.scatter(&state_values));
    }
    padded
}
