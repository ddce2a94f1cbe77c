//! The optimizer: `AdamW` whose state can be saved, the global gradient norm, and learning-rate schedules.
//!
//! One training step: `clear_grads`, backward passes, then [`AdamW::step`] with [`LrSchedule::lr_at`] of the training step.
//! A gradient that is not finite changes nothing and is reported as a [`StepOutcome`]. Knows nothing of losses or events.

mod schedule;
mod state;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use experiment::settings::Optim;
use tch::{Kind, Tensor};

use crate::torch_ext::{self, AdamWNumbers, AdamWTensors};

pub use schedule::LrSchedule;
pub use state::{StagedState, write_state};

/// Added to the norm before dividing, as `torch.nn.utils.clip_grad_norm_` does.
const CLIP_EPSILON: f64 = 1e-6;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Torch(#[from] torch_ext::Error),
    #[error("no parameter has a gradient; was backward called on a loss that depends on them?")]
    NoGradients,
    #[error("the optimizer was given no parameters")]
    NoParameters,
    #[error("{path}: cannot {what} the optimizer's state: {source}")]
    File {
        path: PathBuf,
        what: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the saved optimizer state lacks {name}; it belongs to another model or was cut short")]
    Missing { name: String },
    #[error(
        "the saved optimizer state has {name}, which this model has not; it belongs to another model"
    )]
    Unexpected { name: String },
    #[error(
        "the saved optimizer state has {name} with shape {found:?}; this model needs {expected:?}"
    )]
    Shape {
        name: String,
        found: Vec<i64>,
        expected: Vec<i64>,
    },
}

/// In which precision 16-bit parameters are stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MasterWeights {
    /// 16-bit parameters have float32 copies, which are stepped and then rounded into them: updates smaller than a 16-bit
    /// step add up instead of vanishing. Parameters of 32 bits and more are stepped themselves.
    Float32,
    /// Parameters are stepped in their own precision, as torch does with a bf16 model. Half the state.
    None,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepOutcome {
    Stepped {
        /// Global L2 norm before clipping.
        grad_norm: f64,
        /// Whether gradients were scaled down to `clip_grad`.
        was_clipped: bool,
    },
    /// The global norm is NaN or infinite: parameters and state are as before, gradients are still there to be looked at.
    SkippedNonFinite { grad_norm: f64 },
}

impl StepOutcome {
    /// Global L2 norm of the gradients before clipping; may be NaN or infinite.
    pub fn grad_norm(self) -> f64 {
        match self {
            Self::Stepped { grad_norm, .. } | Self::SkippedNonFinite { grad_norm } => grad_norm,
        }
    }
}

/// `AdamW` (Loshchilov & Hutter 2019) with torch's formula:
///
/// ```text
/// θ ← θ·(1 − lr·λ);  m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²
/// θ ← θ − lr · (m / (1−β₁ᵗ)) / (√(v / (1−β₂ᵗ)) + ε)
/// ```
///
/// The decay λ is on every parameter, norms and biases too, as in torch and verl. t counts per parameter: one without a
/// gradient in some step is left alone in it.
#[derive(Debug)]
pub struct AdamW {
    slots: Vec<Slot>,
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    clip_grad: f64,
}

#[derive(Debug)]
struct Slot {
    name: String,
    /// Shares the model's storage.
    parameter: Tensor,
    /// Float32 copy of a 16-bit parameter.
    master: Option<Tensor>,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    /// Scalar, float32: steps taken.
    step: Tensor,
}

impl Slot {
    fn stepped(&self) -> &Tensor {
        self.master.as_ref().unwrap_or(&self.parameter)
    }
}

impl AdamW {
    /// `parameters` are named leaf tensors (shallow clones of the model's). State starts at zero. Of `settings`, the learning
    /// rate is not used here: it is given to each step.
    pub fn new(
        parameters: impl IntoIterator<Item = (String, Tensor)>,
        settings: &Optim,
        masters: MasterWeights,
    ) -> Result<Self, Error> {
        let _no_grad = tch::no_grad_guard();
        let slots: Vec<_> = parameters
            .into_iter()
            .map(|(name, parameter)| {
                let is_16_bit = matches!(parameter.kind(), Kind::BFloat16 | Kind::Half);
                let master = (is_16_bit && masters == MasterWeights::Float32)
                    .then(|| parameter.to_kind(Kind::Float));
                let like = master.as_ref().unwrap_or(&parameter);
                Slot {
                    exp_avg: like.zeros_like(),
                    exp_avg_sq: like.zeros_like(),
                    step: Tensor::zeros([], (Kind::Float, parameter.device())),
                    name,
                    master,
                    parameter,
                }
            })
            .collect();
        if slots.is_empty() {
            return Err(Error::NoParameters);
        }
        Ok(Self {
            slots,
            betas: settings.betas,
            eps: settings.eps,
            weight_decay: settings.weight_decay,
            clip_grad: settings.clip_grad,
        })
    }

    /// Drops all gradients.
    pub fn clear_grads(&self) -> Result<(), Error> {
        let parameters: Vec<_> = self.slots.iter().map(|slot| &slot.parameter).collect();
        Ok(torch_ext::clear_grads(&parameters)?)
    }

    /// Clips the gradients to a global norm of `clip_grad` and takes one step with learning rate `lr`. Waits for the device
    /// once, for the norm. Gradients are spent by it.
    pub fn step(&mut self, lr: f64) -> Result<StepOutcome, Error> {
        self.step_after(lr, || ())
    }

    /// The same; `before` comes after everything that only reads, and before the first change.
    pub fn step_after(&mut self, lr: f64, before: impl FnOnce()) -> Result<StepOutcome, Error> {
        let _no_grad = tch::no_grad_guard();
        let (slots, gradients): (Vec<&Slot>, Vec<Tensor>) = self
            .slots
            .iter()
            .filter_map(|slot| {
                let gradient = slot.parameter.grad();
                // A copy only where a 16-bit parameter has a float32 master.
                gradient
                    .defined()
                    .then(|| (slot, gradient.to_kind(slot.stepped().kind())))
            })
            .unzip();
        if slots.is_empty() {
            return Err(Error::NoGradients);
        }
        let grads: Vec<_> = gradients.iter().collect();
        let grad_norm = torch_ext::global_norm(&grads)?.double_value(&[]);
        if !grad_norm.is_finite() {
            return Ok(StepOutcome::SkippedNonFinite { grad_norm });
        }

        let factor = self.clip_grad / (grad_norm + CLIP_EPSILON);
        let was_clipped = factor < 1.0;
        // Clipping inside the fused step saves a pass over the gradients.
        let grad_scale = was_clipped.then(|| {
            Tensor::from(1.0 / factor)
                .to_kind(Kind::Float)
                .to_device(slots[0].parameter.device())
        });
        before();
        let list = |pick: fn(&Slot) -> &Tensor| -> Vec<&Tensor> {
            slots.iter().map(|slot| pick(slot)).collect()
        };
        torch_ext::fused_adamw(
            &AdamWTensors {
                params: &list(Slot::stepped),
                grads: &grads,
                exp_avgs: &list(|slot| &slot.exp_avg),
                exp_avg_sqs: &list(|slot| &slot.exp_avg_sq),
                steps: &list(|slot| &slot.step),
            },
            &AdamWNumbers {
                lr,
                betas: self.betas,
                eps: self.eps,
                weight_decay: self.weight_decay,
            },
            grad_scale.as_ref(),
        )?;
        for slot in slots {
            if let Some(master) = &slot.master {
                slot.parameter.shallow_clone().copy_(master);
            }
        }
        Ok(StepOutcome::Stepped {
            grad_norm,
            was_clipped,
        })
    }
}
