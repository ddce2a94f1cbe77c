//! A model that is trained: weights, optimizer, learning rate.

use std::sync::Arc;
use std::time::Duration;

use experiment::settings::Dtype;
use tch::Kind;

use super::LearnerError;
use crate::checkpoint::{self, Gate};
use crate::model::parameters::Parameters;
use crate::model::transformer::Transformer;
use crate::optimizer::{self, AdamW, LrSchedule, MasterWeights, StepOutcome};

/// A model that is trained: its weights, its optimizer, its learning rate.
#[derive(Debug)]
pub struct Trained {
    pub model: Transformer,
    pub optimizer: AdamW,
    schedule: LrSchedule,
    /// Of the last capture: shut while its tensors are being copied.
    gate: Option<Arc<Gate>>,
    /// Time before gates, not told yet.
    waited: Duration,
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
            gate: None,
            waited: Duration::ZERO,
        })
    }

    /// All of it, sharing its storage.
    pub(super) fn lend(&self) -> checkpoint::Model {
        checkpoint::Model {
            parameters: self.model.parameters().shallow_clone(),
            optimizer: self.optimizer.state(),
        }
    }

    /// Nothing is changed from now on before `gate` is open.
    pub(super) fn shut(&mut self, gate: Arc<Gate>) {
        self.gate = Some(gate);
    }

    /// What comes before every change: what was lent is copied.
    pub(super) fn wait_for_copy(&mut self) {
        pass(&mut self.gate, &mut self.waited);
    }

    /// How long copies were waited for since this was asked last.
    pub(super) fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// One optimizer step, once what was lent is copied.
    pub fn step(&mut self, lr: f64) -> Result<StepOutcome, optimizer::Error> {
        let Self {
            optimizer,
            gate,
            waited,
            ..
        } = self;
        optimizer.step_after(lr, || pass(gate, waited))
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

fn pass(gate: &mut Option<Arc<Gate>>, waited: &mut Duration) {
    if let Some(gate) = gate.take() {
        gate.pass();
        *waited += gate.waited();
    }
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
