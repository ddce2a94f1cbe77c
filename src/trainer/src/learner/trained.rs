//! A model that is trained: weights, optimizer, learning rate.

use experiment::settings::Dtype;
use tch::Kind;

use super::LearnerError;
use crate::model::parameters::Parameters;
use crate::model::transformer::Transformer;
use crate::optimizer::{AdamW, LrSchedule, MasterWeights};

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
