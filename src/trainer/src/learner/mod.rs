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
mod forward;
mod knobs;
pub mod metrics;
mod restore;
mod step;
mod trained;
mod update;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use experiment::Experiment;
use experiment::estimators::Need;
use tch::{Device, Tensor};

use crate::checkpoint::{Capture, Models};
use crate::model::parameters::Parameters;
use crate::model::transformer::Transformer;
use crate::objective;
use crate::objective::controller::KlController;
use crate::optimizer;
use crate::torch_ext;
pub use advantages::GREEDY_BASELINE;
use batch::TrainBatch;
use metrics::StepValues;

pub use restore::RestoreError;
pub use trained::{Trained, kind_of, kinds};

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
        })
    }

    /// Everything that is trained, lent to whoever writes it down: until the capture is copied or dropped, this learner waits
    /// before it changes a weight.
    pub fn capture(&mut self) -> Capture {
        // One at a time: the earlier one's gates would be forgotten. Whoever captures counts this time.
        self.wait_for_copy();
        self.take_waited();
        let capture = Capture::new(Models {
            actor: self.actor.lend(),
            critic: self.critic.as_ref().map(Trained::lend),
        });
        let gates = capture.gates();
        self.actor.shut(gates.actor);
        if let (Some(critic), Some(gate)) = (&mut self.critic, gates.critic) {
            critic.shut(gate);
        }
        capture
    }

    /// What comes before every change of all weights.
    fn wait_for_copy(&mut self) {
        for trained in self.critic.iter_mut().chain([&mut self.actor]) {
            trained.wait_for_copy();
        }
    }

    /// How long copies were waited for since this was asked last.
    fn take_waited(&mut self) -> Duration {
        let trained = self.critic.iter_mut().chain([&mut self.actor]);
        trained.map(Trained::take_waited).sum()
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
}
