//! The critic's loss.

use experiment::settings::LossAggMode;
use tch::{Kind, Tensor};

use super::aggregate::{Denominators, aggregate};
use super::masked::zeroed;
use super::{ObjectiveError, same_shape};

/// One mini- or micro-batch; all \[B, T\].
#[derive(Debug)]
pub struct ValueBatch<'a> {
    /// With gradients.
    pub predictions: &'a Tensor,
    /// Predictions before the update.
    pub old_values: &'a Tensor,
    pub returns: &'a Tensor,
    pub mask: &'a Tensor,
}

/// The loss with its gradient, and sums for the metrics.
#[derive(Debug)]
pub struct ValueLoss {
    /// Scalar.
    pub loss: Tensor,
    pub sums: ValueSums,
}

/// Sums over tokens, so that micro-batches add up; on the device until [`ValueSums::metrics`] reads them.
#[derive(Debug)]
pub struct ValueSums {
    /// \[3\]: tokens, clipped, predictions.
    sums: Tensor,
}

/// Means over the tokens of the mask; 0 when it is empty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueMetrics {
    /// `critic/vf_clipfrac`: share of tokens whose clipped error is the larger.
    pub clip_fraction: f64,
    /// `critic/vpred_mean`
    pub prediction_mean: f64,
}

impl ValueSums {
    /// Of both batches together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            sums: &self.sums + &other.sums,
        }
    }

    /// Waits for the device.
    pub fn metrics(&self) -> ValueMetrics {
        let sums = Vec::<f64>::try_from(self.sums.to_device(tch::Device::Cpu))
            .expect("three float64 numbers on the CPU");
        let per_token = |sum: f64| sum / (sums[0] + 1e-8);
        ValueMetrics {
            clip_fraction: per_token(sums[1]),
            prediction_mean: per_token(sums[2]),
        }
    }
}

/// ½·max((V − R)², (V′ − R)²) with V′ = V held within `cliprange` of the value before the update (verl
/// `compute_value_loss`), aggregated over the mask by `mode`. Gradients go to the predictions.
pub fn clipped(
    batch: &ValueBatch<'_>,
    cliprange: f64,
    mode: LossAggMode,
    denominators: &Denominators,
) -> Result<ValueLoss, ObjectiveError> {
    let mask = batch.mask;
    same_shape(("value predictions", batch.predictions), ("mask", mask))?;
    same_shape(("old values", batch.old_values), ("mask", mask))?;
    same_shape(("returns", batch.returns), ("mask", mask))?;
    let predictions = zeroed(batch.predictions, mask);
    let old_values = zeroed(batch.old_values, mask);
    let returns = zeroed(batch.returns, mask);
    let held = predictions
        .minimum(&(&old_values + cliprange))
        .maximum(&(&old_values - cliprange));
    let error = (&predictions - &returns).square();
    let held_error = (held - &returns).square();
    let valid = mask.to_kind(Kind::Bool);
    let is_clipped = held_error.detach().gt_tensor(&error.detach());
    let sums = Tensor::stack(
        &[
            valid.sum(Kind::Double),
            is_clipped.logical_and(&valid).sum(Kind::Double),
            predictions.detach().sum(Kind::Double),
        ],
        0,
    );
    Ok(ValueLoss {
        loss: aggregate(&error.maximum(&held_error), mask, mode, denominators) * 0.5,
        sums: ValueSums { sums },
    })
}
