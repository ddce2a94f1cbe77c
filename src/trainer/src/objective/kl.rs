//! KL divergence from samples, in the reward or in the loss (verl `kl_penalty`, `apply_kl_penalty`).

use experiment::settings::{KlEstimator, LossAggMode};
use tch::{Kind, Tensor};

use super::aggregate::{Denominators, aggregate};
use super::masked::{mean_per_sequence, sum_per_sequence, zeroed};
use super::{ObjectiveError, same_shape};

/// Estimates of KL(π‖ref) per token, of tokens drawn from π (<http://joschu.net/blog/kl-approx.html>). With d = log π − log ref:
///
/// ```text
/// k1  d               unbiased, may be negative; its gradient has mean 0, so as a loss it does nothing
/// abs |d|
/// k2  ½d²             biased value, the right gradient
/// k3  e⁻ᵈ + d − 1     unbiased, never negative; −d limited to ±20, the result to ±10
/// …+  the value of the estimator, the gradient of k2
/// ```
///
/// No mask: both \[B, T\] and the result are taken as they are. `full` is no estimate: see [`full_kl`].
pub fn kl_per_token(
    logprobs: &Tensor,
    reference: &Tensor,
    estimator: KlEstimator,
) -> Result<Tensor, ObjectiveError> {
    use KlEstimator::{Abs, AbsPlus, Full, K1, K1Plus, K2, K2Plus, K3, K3Plus};
    let log_ratio = logprobs - reference;
    let k2 = || log_ratio.square() * 0.5;
    let value = match estimator {
        K1 | K1Plus => log_ratio.shallow_clone(),
        Abs | AbsPlus => log_ratio.abs(),
        K2 | K2Plus => return Ok(k2()),
        Full => return Err(ObjectiveError::NeedsLogits),
        K3 | K3Plus => {
            let negated = (-&log_ratio).clamp(-20.0, 20.0);
            (negated.exp() - negated - 1.0).clamp(-10.0, 10.0)
        }
    };
    Ok(match estimator {
        K1Plus | AbsPlus | K3Plus => {
            let gradient = k2();
            &gradient - gradient.detach() + value.detach()
        }
        _ => value,
    })
}

/// KL(π‖ref) itself, summed over the vocabulary, of M rows of `logits` and `ref_logits` \[M, V\] at `temperature`: \[M\],
/// float32 (float64 for float64 logits), with gradients to `logits`.
///
/// ```text
/// KL = Σ π·(log π − log ref);   ∂KL/∂logit = π·(log π − log ref − KL) / temperature
/// ```
///
/// Saves one \[M, V\] of gradients for the backward pass.
pub fn full_kl(
    logits: &Tensor,
    ref_logits: &Tensor,
    temperature: f64,
) -> Result<Tensor, ObjectiveError> {
    same_shape(("reference logits", ref_logits), ("logits", logits))?;
    let kind = match logits.kind() {
        Kind::Double => Kind::Double,
        _ => Kind::Float,
    };
    let (kl, slope) = {
        let _no_grad = tch::no_grad_guard();
        let log_softmax =
            |logits: &Tensor| (logits.to_kind(kind) / temperature).log_softmax(-1, kind);
        let logprobs = log_softmax(logits);
        let probabilities = logprobs.exp();
        let gap = logprobs - log_softmax(ref_logits);
        let kl = (&probabilities * &gap).sum_dim_intlist(-1, false, kind);
        let slope = probabilities * (gap - kl.unsqueeze(-1)) / temperature;
        (kl, slope)
    };
    // 0, with the gradient that belongs to it.
    let linear = (logits.to_kind(kind) * slope).sum_dim_intlist(-1, false, kind);
    Ok(&linear - linear.detach() + kl)
}

/// KL to the reference as a loss over `mask`, aggregated like the policy loss (verl `actor/kl_loss`). Gradients go to
/// `logprobs`.
pub fn kl_loss(
    logprobs: &Tensor,
    reference: &Tensor,
    mask: &Tensor,
    estimator: KlEstimator,
    mode: LossAggMode,
    denominators: &Denominators,
) -> Result<Tensor, ObjectiveError> {
    same_shape(("logprobs", logprobs), ("mask", mask))?;
    same_shape(("reference log-probs", reference), ("mask", mask))?;
    let kl = kl_per_token(&zeroed(logprobs, mask), &zeroed(reference, mask), estimator)?;
    Ok(aggregate(&kl, mask, mode, denominators))
}

/// What [`apply_kl_penalty`] gives.
#[derive(Debug)]
pub struct KlPenalty {
    /// \[B, T\]: scores − β·KL inside the mask, the scores outside.
    pub token_rewards: Tensor,
    /// For the controller.
    pub mean_kl: MeanKl,
}

/// KL of a batch in nats, in both units a target may be given in. A sequence without tokens counts as 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanKl {
    /// Mean over sequences of each one's mean over its tokens (verl's).
    pub per_token: f64,
    /// Mean over sequences of each one's sum over its tokens (Ziegler et al. 2019).
    pub per_sequence: f64,
}

/// Sums over sequences, so that micro-batches add up; on the device until [`KlSums::mean`] reads them.
#[derive(Debug)]
pub struct KlSums {
    /// \[3\]: sequences, their token means, their sums.
    sums: Tensor,
}

impl KlSums {
    /// Of a KL per token \[B, T\] over `mask`.
    pub fn new(kl: &Tensor, mask: &Tensor) -> Self {
        let kl = kl.detach();
        let sequences = Tensor::from(mask.size()[0] as f64).to_device(kl.device());
        let total = |per_sequence: Tensor| per_sequence.sum(Kind::Double);
        Self {
            sums: Tensor::stack(
                &[
                    sequences.to_kind(Kind::Double),
                    total(mean_per_sequence(&kl, mask)),
                    total(sum_per_sequence(&kl, mask)),
                ],
                0,
            ),
        }
    }

    /// Of both batches together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            sums: &self.sums + &other.sums,
        }
    }

    /// Waits for the device.
    pub fn mean(&self) -> MeanKl {
        let read = |index| self.sums.double_value(&[index]);
        MeanKl {
            per_token: read(1) / read(0),
            per_sequence: read(2) / read(0),
        }
    }
}

/// Takes `coefficient`·KL(old‖ref) off each token's reward, over `mask`. All \[B, T\].
///
/// The controller is told `mean_kl` afterwards.
pub fn apply_kl_penalty(
    token_scores: &Tensor,
    old_logprobs: &Tensor,
    reference: &Tensor,
    mask: &Tensor,
    estimator: KlEstimator,
    coefficient: f64,
) -> Result<KlPenalty, ObjectiveError> {
    same_shape(("token scores", token_scores), ("mask", mask))?;
    same_shape(("old log-probs", old_logprobs), ("mask", mask))?;
    same_shape(("reference log-probs", reference), ("mask", mask))?;
    penalize(
        token_scores,
        &kl_per_token(old_logprobs, reference, estimator)?,
        mask,
        coefficient,
    )
}

/// Takes `coefficient`·`kl` off each token's reward, over `mask`. All \[B, T\].
pub fn penalize(
    token_scores: &Tensor,
    kl: &Tensor,
    mask: &Tensor,
    coefficient: f64,
) -> Result<KlPenalty, ObjectiveError> {
    same_shape(("token scores", token_scores), ("mask", mask))?;
    same_shape(("KL", kl), ("mask", mask))?;
    let kl = zeroed(kl, mask);
    Ok(KlPenalty {
        mean_kl: KlSums::new(&kl, mask).mean(),
        token_rewards: token_scores - kl * coefficient,
    })
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    #[test]
    fn the_full_kl_and_its_gradient_are_those_of_plain_operations_at_any_temperature() {
        tch::manual_seed(3);
        let random = || Tensor::randn([7, 30], (Kind::Double, Device::Cpu)) * 3.0;
        let (logits, reference) = (random(), random());
        let weights = Tensor::randn([7], (Kind::Double, Device::Cpu));
        for temperature in [1.0, 0.6] {
            let gradient = |kl: &dyn Fn(&Tensor) -> Tensor| {
                let leaf = logits.copy().set_requires_grad(true);
                let kl = kl(&leaf);
                (&kl * &weights).sum(Kind::Double).backward();
                (kl.detach(), leaf.grad())
            };
            let ours = gradient(&|leaf| full_kl(leaf, &reference, temperature).unwrap());
            let plain = gradient(&|leaf| {
                let log_softmax =
                    |logits: &Tensor| (logits / temperature).log_softmax(-1, Kind::Double);
                let (log_pi, log_ref) = (log_softmax(leaf), log_softmax(&reference));
                (log_pi.exp() * (&log_pi - log_ref)).sum_dim_intlist(-1, false, Kind::Double)
            });
            assert!((ours.0 - plain.0).abs().max().double_value(&[]) < 1e-12);
            assert!((ours.1 - plain.1).abs().max().double_value(&[]) < 1e-12);
        }
    }
}
