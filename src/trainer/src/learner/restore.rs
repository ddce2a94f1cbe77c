//! A checkpoint put into a living learner, at the start of a resumed run or in the middle of one that goes back.
//!
//! Everything is read and checked first, then copied in place: a checkpoint that is broken or does not fit changes nothing.

use std::path::{Path, PathBuf};

use tch::Device;

use super::{Learner, Trained, kinds};
use crate::checkpoint::{self, CheckpointError};
use crate::model::parameters::Parameters;
use crate::model::pretrained::PretrainedError;
use crate::model::transformer::Transformer;
use crate::optimizer::{self, StagedState};
use crate::save::RunCounters;

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(
        "{path} does not fit this run: {reason}; resume with the experiment it was trained with"
    )]
    Unfit { path: PathBuf, reason: String },
}

/// A model's weights and optimizer state, read and known to fit.
struct Staged {
    weights: Parameters,
    optimizer: StagedState,
}

impl Staged {
    fn of(model: &Trained, weights: &Path, optimizer: &Path) -> Result<Self, String> {
        Ok(Self {
            weights: model
                .model
                .parameters()
                .stage(weights)
                .map_err(|error: PretrainedError| error.to_string())?,
            optimizer: model
                .optimizer
                .stage(optimizer)
                .map_err(|error: optimizer::Error| error.to_string())?,
        })
    }

    fn put_into(self, model: &mut Trained) {
        tch::no_grad(|| {
            let held = model.model.parameters();
            for ((_, tensor), (_, saved)) in held.iter().zip(self.weights.iter()) {
                tensor.shallow_clone().copy_(saved);
            }
        });
        // After the weights: float32 masters, where there are any, are the finer ones.
        model.optimizer.take(self.optimizer);
    }
}

impl Learner {
    /// Puts a verified checkpoint into this learner, in place: weights and optimizer state of actor and critic, the KL
    /// controller, and the knobs that had been set by then. The checkpoint's stored log-probs are computed again first. Gives the checkpoint's counters; what they say of steps and data
    /// is the caller's to follow or not. Knobs that were set later, and not by then, stay as they are.
    ///
    /// On an error the learner is as it was.
    pub fn restore(&mut self, path: &Path) -> Result<RunCounters, RestoreError> {
        let counters = self.put_in(path)?;
        for (key, value) in &counters.knobs {
            // The rollout side's knobs are not the learner's to set.
            if let Ok(held) = self.knob(key) {
                *held = *value;
            }
        }
        self.controller = counters.kl_controller;
        if let Some(controller) = counters.kl_loss_controller {
            self.loss_controller = controller;
        }
        Ok(counters)
    }

    /// The same at the start of another run: what the experiment says of knobs and KL stands, and only an adaptive KL
    /// coefficient goes on from where it was.
    ///
    /// On an error the learner is as it was.
    pub fn start_from(&mut self, path: &Path) -> Result<RunCounters, RestoreError> {
        let counters = self.put_in(path)?;
        self.controller.go_on_from(&counters.kl_controller);
        if let Some(saved) = &counters.kl_loss_controller {
            self.loss_controller.go_on_from(saved);
        }
        Ok(counters)
    }

    /// Weights and optimizers, and nothing else.
    fn put_in(&mut self, path: &Path) -> Result<RunCounters, RestoreError> {
        let unfit = |reason: String| RestoreError::Unfit {
            path: path.to_owned(),
            reason,
        };
        checkpoint::verify(path)?;
        let counters = RunCounters::read(path)?;
        let saved_critic = path.join("critic").is_dir();
        if saved_critic != self.critic.is_some() {
            let (saved, run) = if saved_critic {
                ("a critic", "none")
            } else {
                ("no critic", "one")
            };
            return Err(unfit(format!("it has {saved}, this run trains {run}")));
        }
        let actor = Staged::of(&self.actor, path, &path.join("actor_optimizer.safetensors"))
            .map_err(unfit)?;
        let critic = self
            .critic
            .as_ref()
            .map(|critic| {
                Staged::of(
                    critic,
                    &path.join("critic"),
                    &path.join("critic_optimizer.safetensors"),
                )
            })
            .transpose()
            .map_err(unfit)?;
        let (_, compute) = kinds(&self.experiment.actor_rollout_ref.actor.fsdp_config);
        // Where it will train: what is checked are those kernels too.
        let weights = if self.device == Device::Cpu {
            actor.weights.shallow_clone()
        } else {
            actor.weights.deep_copy(actor.weights.kind(), self.device)
        };
        let model = Transformer::new(weights, compute, false);
        checkpoint::check_model(path, &model, compute).map_err(unfit)?;
        drop(model);
        self.wait_for_copy();
        actor.put_into(&mut self.actor);
        if let (Some(saved), Some(critic)) = (critic, &mut self.critic) {
            saved.put_into(critic);
        }
        Ok(counters)
    }
}
