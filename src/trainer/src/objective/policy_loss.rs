//! The policy's loss.

use experiment::settings::LossAggMode;
use tch::{Kind, Tensor};

use super::aggregate::{Denominators, aggregate};
use super::masked::zeroed;
use super::{ObjectiveError, same_shape};

/// log π − log `π_old` is limited to ± this before it is exponentiated.
const LOG_RATIO_LIMIT: f64 = 20.0;

/// One mini- or micro-batch; all \[B, T\].
#[derive(Debug)]
pub struct PolicyBatch<'a> {
    /// With gradients.
    pub logprobs: &'a Tensor,
    /// Of the policy before the update.
    pub old_logprobs: &'a Tensor,
    pub advantages: &'a Tensor,
    pub mask: &'a Tensor,
    /// From the rollout correction: each token's loss is multiplied by it.
    pub rollout_weights: Option<&'a Tensor>,
}

/// How far the ratio may move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    /// `clip_ratio_low`
    pub low: f64,
    /// `clip_ratio_high`
    pub high: f64,
    /// `clip_ratio_c`, above 1: where the advantage is negative the loss is at most −c·A.
    pub dual: f64,
}

/// The loss with its gradient, and sums for the metrics.
#[derive(Debug)]
pub struct PolicyLoss {
    /// Scalar.
    pub loss: Tensor,
    pub sums: PolicySums,
}

/// Sums over tokens, so that micro-batches add up; on the device until [`PolicySums::metrics`] reads them.
#[derive(Debug)]
pub struct PolicySums {
    /// \[4\]: tokens, clipped, clipped by the dual clip, log `π_old` − log π.
    sums: Tensor,
}

/// Means over the tokens of the mask; 0 when it is empty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicyMetrics {
    /// `actor/pg_clipfrac`: share of tokens whose clipped loss is the larger.
    pub clip_fraction: f64,
    /// `actor/pg_clipfrac_lower`: share of tokens with a negative advantage that the dual clip holds.
    pub dual_clip_fraction: f64,
    /// `actor/ppo_kl`: mean of log `π_old` − log π, in nats; may be negative.
    pub ppo_kl: f64,
    pub tokens: f64,
}

impl PolicySums {
    /// Of both batches together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            sums: &self.sums + &other.sums,
        }
    }

    /// Waits for the device.
    pub fn metrics(&self) -> PolicyMetrics {
        let sums = Vec::<f64>::try_from(self.sums.to_device(tch::Device::Cpu))
            .expect("four float64 numbers on the CPU");
        let per_token = |sum: f64| sum / (sums[0] + 1e-8);
        PolicyMetrics {
            clip_fraction: per_token(sums[1]),
            dual_clip_fraction: per_token(sums[2]),
            ppo_kl: per_token(sums[3]),
            tokens: sums[0],
        }
    }
}

/// PPO's clipped loss (<https://arxiv.org/abs/1707.06347>) with the dual clip (<https://arxiv.org/abs/1912.09729>); verl
/// `compute_policy_loss_vanilla`. With ρ = exp(log π − log `π_old`), per token:
///
/// ```text
/// L = max(−A·ρ, −A·clip(ρ, 1 − low, 1 + high));  where A < 0: L = min(L, −c·A);  times the rollout weight
/// ```
///
/// aggregated over the mask by `mode`. Refuses c ≤ 1.
pub fn vanilla(
    batch: &PolicyBatch<'_>,
    clip: &Clip,
    mode: LossAggMode,
    denominators: &Denominators,
) -> Result<PolicyLoss, ObjectiveError> {
    // Also refuses NaN.
    if clip.dual.partial_cmp(&1.0) != Some(std::cmp::Ordering::Greater) {
        return Err(ObjectiveError::DualClip(clip.dual));
    }
    let mask = batch.mask;
    same_shape(("logprobs", batch.logprobs), ("mask", mask))?;
    same_shape(("old log-probs", batch.old_logprobs), ("mask", mask))?;
    same_shape(("advantages", batch.advantages), ("mask", mask))?;
    if let Some(weights) = batch.rollout_weights {
        same_shape(("rollout weights", weights), ("mask", mask))?;
    }

    let log_ratio = (zeroed(batch.logprobs, mask) - zeroed(batch.old_logprobs, mask))
        .clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
    let ratio = log_ratio.exp();
    let gain = -zeroed(batch.advantages, mask);
    let unclipped = &gain * &ratio;
    let clipped = &gain * ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
    let larger = unclipped.maximum(&clipped);
    let ceiling = &gain * clip.dual;
    let is_negative = gain.gt(0.0); // A < 0
    let mut loss = larger.minimum(&ceiling).where_self(&is_negative, &larger);
    if let Some(weights) = batch.rollout_weights {
        loss *= zeroed(&weights.detach(), mask);
    }

    let valid = mask.to_kind(Kind::Bool);
    let tokens_where = |condition: &Tensor| condition.logical_and(&valid).sum(Kind::Double);
    let sums = Tensor::stack(
        &[
            valid.sum(Kind::Double),
            tokens_where(&clipped.detach().gt_tensor(&unclipped.detach())),
            tokens_where(
                &larger
                    .detach()
                    .gt_tensor(&ceiling)
                    .logical_and(&is_negative),
            ),
            // 0 outside the mask.
            -log_ratio.detach().sum(Kind::Double),
        ],
        0,
    );
    Ok(PolicyLoss {
        loss: aggregate(&loss, mask, mode, denominators),
        sums: PolicySums { sums },
    })
}
