//! The rollout correction in a step: what each drawn token weighs in the loss, and which are left out of it.
//!
//! ```text
//!  decoupled   rollout ─ w = π_old/π_rollout, rejection ─► old ─ clipped ratio ─► policy        once a step, before the updates
//!  bypass      rollout ─ ratio or weight, rejection ─────────────────────────────► policy        in every micro-batch
//! ```
//! Advantages are those of all drawn tokens: what is rejected teaches nothing, and its reward still counts in its group's
//! baseline. (verl edits the mask before the advantages, where a rejected last token takes the reward with it.)

use experiment::settings::{BypassLoss, RolloutCorrection};
use tch::{Kind, Tensor};

use super::batch::TrainBatch;
use super::metrics::StepValues;
use super::{Learner, LearnerError};
use crate::objective::policy_loss::Surrogate;
use crate::objective::rejection::Rejection;
use crate::objective::rollout_correction::{ImportanceSampling, rollout_correction};
use crate::objective::{ObjectiveError, masked};

/// Name of the alarm.
const ALL_REJECTED: &str = "every token rejected";

/// What the loss of a step's mini-batches is over.
#[derive(Debug)]
pub(super) struct Corrected {
    /// `[B, T]`; None: 1 each.
    pub weights: Option<Tensor>,
    /// `[B, T]` f32: the drawn tokens that were not rejected.
    pub mask: Tensor,
}

/// What bypass mode does inside the loss.
#[derive(Debug)]
pub(super) struct Bypass {
    /// With `loss_type: reinforce`.
    sampling: Option<ImportanceSampling>,
    rejection: Option<Rejection>,
}

/// A micro-batch under [`Bypass`].
#[derive(Debug)]
pub(super) struct BypassCorrected {
    pub weights: Option<Tensor>,
    pub mask: Tensor,
    /// Tokens that were rejected; None: nothing can be.
    pub rejected: Option<f64>,
}

/// As the experiment has it; its rules have read the band.
fn sampling(correction: &RolloutCorrection) -> Option<ImportanceSampling> {
    let level = correction.rollout_is?;
    let band = correction.rollout_is_threshold;
    Some(ImportanceSampling {
        level,
        upper: band.upper,
        lower: band.lower,
        batch_normalize: correction.rollout_is_batch_normalize,
    })
}

impl Learner {
    /// The loss of the experiment.
    pub(super) fn surrogate(&self) -> Surrogate {
        let correction = &self.experiment.algorithm.rollout_correction;
        if correction.bypass_mode && correction.loss_type == BypassLoss::Reinforce {
            return Surrogate::Reinforce;
        }
        Surrogate::new(&self.experiment.actor_rollout_ref.actor)
    }

    /// None: not in bypass mode.
    pub(super) fn bypass(&self) -> Result<Option<Bypass>, ObjectiveError> {
        let correction = &self.experiment.algorithm.rollout_correction;
        if !correction.bypass_mode {
            return Ok(None);
        }
        let is_reinforce = correction.loss_type == BypassLoss::Reinforce;
        Ok(Some(Bypass {
            sampling: sampling(correction).filter(|_| is_reinforce),
            rejection: Rejection::new(correction)?,
        }))
    }

    /// Weights and rejection for the gap between the rollout's and the learner's log-probs of the same tokens, and the metrics of
    /// that gap. In bypass mode there is no gap yet.
    pub(super) fn correct(
        &self,
        old_logprobs: &Tensor,
        policy_version: u64,
        batch: &TrainBatch,
        values: &mut StepValues,
        alarms: &mut Vec<(&'static str, String)>,
    ) -> Result<Corrected, LearnerError> {
        let correction = &self.experiment.algorithm.rollout_correction;
        let mut corrected = Corrected {
            weights: None,
            mask: batch.mask.shallow_clone(),
        };
        if correction.bypass_mode {
            return Ok(corrected);
        }
        let weighed = rollout_correction(
            old_logprobs,
            &batch.behavior_logprobs,
            &batch.mask,
            sampling(correction).as_ref(),
        )?;
        for (name, value) in weighed.metrics {
            values.set(name, value);
        }
        corrected.weights = weighed.weights;
        for (age, size) in sample_size_by_age(old_logprobs, policy_version, batch) {
            values.set(&format!("rollout_corr/ess_age_{age}"), size);
        }
        if let Some(rejection) = Rejection::new(correction)? {
            let rejected = rejection.apply(old_logprobs, &batch.behavior_logprobs, &batch.mask)?;
            for (name, value) in &rejected.metrics {
                values.set(name, *value);
            }
            corrected.mask = rejected.mask.to_kind(Kind::Float);
            if masked::count(&corrected.mask).double_value(&[]) == 0.0 {
                alarms.push((
                    ALL_REJECTED,
                    "algorithm.rollout_correction.rollout_rs leaves no token of this batch; the actor stays as it is".to_owned(),
                ));
            }
        }
        Ok(corrected)
    }
}

impl Bypass {
    /// For one micro-batch under the policy as it is now; all `[B, T]`.
    pub(super) fn apply(
        &self,
        logprobs: &Tensor,
        rollout_logprobs: &Tensor,
        mask: &Tensor,
    ) -> Result<BypassCorrected, ObjectiveError> {
        let weights = match &self.sampling {
            Some(sampling) => {
                rollout_correction(logprobs, rollout_logprobs, mask, Some(sampling))?.weights
            }
            None => None,
        };
        let Some(rejection) = &self.rejection else {
            return Ok(BypassCorrected {
                weights,
                mask: mask.shallow_clone(),
                rejected: None,
            });
        };
        let kept = rejection
            .apply(logprobs, rollout_logprobs, mask)?
            .mask
            .to_kind(mask.kind());
        let rejected = masked::count(mask) - masked::count(&kept);
        Ok(BypassCorrected {
            weights,
            mask: kept,
            rejected: Some(rejected.double_value(&[])),
        })
    }
}

/// (Σw)² / (n·Σw²) of w = `π_old/π_rollout` over the drawn tokens of each age in policy versions: 1 where the weights that drew
/// a token are as good as those that train on it.
fn sample_size_by_age(
    old_logprobs: &Tensor,
    policy_version: u64,
    batch: &TrainBatch,
) -> Vec<(u64, f64)> {
    let _no_grad = tch::no_grad_guard();
    let log_ratio = (masked::zeroed(old_logprobs, &batch.mask)
        - masked::zeroed(&batch.behavior_logprobs, &batch.mask))
    .to_kind(Kind::Double)
    .to_device(tch::Device::Cpu)
    .contiguous()
    .view([-1]);
    let log_ratio = Vec::<f64>::try_from(log_ratio).expect("a vector of float64");
    // Age to (tokens, Σw, Σw²).
    let mut sums = std::collections::BTreeMap::<u64, [f64; 3]>::new();
    for (row, rollout) in batch.rollouts.iter().enumerate() {
        let drawn = rollout.policy_versions.iter().zip(&rollout.response_mask);
        for (at, (version, _)) in drawn.enumerate().filter(|(_, (_, is_drawn))| **is_drawn) {
            let weight = log_ratio[row * batch.width + at].clamp(-20.0, 20.0).exp();
            let sums = sums
                .entry(policy_version.saturating_sub(*version))
                .or_default();
            *sums = [sums[0] + 1.0, sums[1] + weight, sums[2] + weight * weight];
        }
    }
    sums.into_iter()
        .map(|(age, [tokens, sum, squares])| (age, sum * sum / (tokens * squares)))
        .collect()
}
