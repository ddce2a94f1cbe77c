//! KL divergence from samples, in the reward or in the loss (verl `kl_penalty`, `apply_kl_penalty`).

use experiment::settings::{KlEstimator, LossAggMode};
use tch::Tensor;

use super::aggregate::{Denominators, aggregate};
use super::masked::{mean_per_sequence, zeroed};
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
/// No mask: both \[B, T\] and the result are taken as they are.
pub fn kl_per_token(logprobs: &Tensor, reference: &Tensor, estimator: KlEstimator) -> Tensor {
    use KlEstimator::{Abs, AbsPlus, K1, K1Plus, K2, K2Plus, K3, K3Plus};
    let log_ratio = logprobs - reference;
    let k2 = || log_ratio.square() * 0.5;
    let value = match estimator {
        K1 | K1Plus => log_ratio.shallow_clone(),
        Abs | AbsPlus => log_ratio.abs(),
        K2 | K2Plus => return k2(),
        K3 | K3Plus => {
            let negated = (-&log_ratio).clamp(-20.0, 20.0);
            (negated.exp() - negated - 1.0).clamp(-10.0, 10.0)
        }
    };
    match estimator {
        K1Plus | AbsPlus | K3Plus => {
            let gradient = k2();
            &gradient - gradient.detach() + value.detach()
        }
        _ => value,
    }
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
    let kl = kl_per_token(&zeroed(logprobs, mask), &zeroed(reference, mask), estimator);
    Ok(aggregate(&kl, mask, mode, denominators))
}

/// What [`apply_kl_penalty`] gives.
#[derive(Debug)]
pub struct KlPenalty {
    /// \[B, T\]: scores − β·KL inside the mask, the scores outside.
    pub token_rewards: Tensor,
    /// Mean over sequences of each one's token mean, in nats; a sequence without tokens counts as 0. For the controller.
    pub mean_kl: f64,
}

/// Takes `coefficient`·KL(old‖ref) off each token's reward, over `mask`. All \[B, T\].
///
/// The controller is told `mean_kl` afterwards: a mean over tokens, where Ziegler et al. 2019 sum over the sequence.
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
    let kl = zeroed(&kl_per_token(old_logprobs, reference, estimator), mask);
    Ok(KlPenalty {
        mean_kl: mean_per_sequence(&kl, mask)
            .mean(kl.kind())
            .double_value(&[]),
        token_rewards: token_scores - kl * coefficient,
    })
}
