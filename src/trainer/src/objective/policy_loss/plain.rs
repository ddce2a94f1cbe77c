//! Losses without a clip of single ratios: policy gradient, a quadratic tether, the geometric mean of a sequence.

use super::{Clip, PerToken, PolicyLoss, Tokens, positive};
use crate::objective::ObjectiveError;
use crate::objective::aggregate::Denominators;
use crate::objective::masked::{sum_per_sequence, tokens_per_sequence, zeroed};

/// Keeps the mean of an empty sequence at 0, as in verl.
const COUNT_EPSILON: f64 = 1e-8;
/// Keeps log w of a weight of 0 finite.
const WEIGHT_EPSILON: f64 = 1e-10;

/// −A·log π (<https://arxiv.org/abs/2504.02546>; verl `compute_policy_loss_gpg`). No ratio: right on policy only.
pub(super) fn gpg(tokens: &Tokens<'_>) -> PerToken {
    PerToken {
        loss: -&tokens.logprobs * &tokens.advantages,
        clipped: None,
        dual_clipped: None,
        kl: None,
    }
}

/// −A·log π with the distance to the rollout's policy measured (verl `compute_policy_loss_reinforce`).
pub(super) fn reinforce(tokens: &Tokens<'_>) -> PerToken {
    PerToken {
        kl: Some(-tokens.log_ratio()),
        ..gpg(tokens)
    }
}

/// Direct reward optimisation (<https://arxiv.org/abs/2405.19107>; verl `dro`): −(A·log π − ½β·(log π − log `π_old`)²).
pub(super) fn dro(tokens: &Tokens<'_>, beta: f64) -> Result<PerToken, ObjectiveError> {
    let beta = positive("dro_beta", beta)?;
    let log_ratio = tokens.log_ratio();
    Ok(PerToken {
        loss: -(&tokens.logprobs * &tokens.advantages - log_ratio.square() * (0.5 * beta)),
        clipped: None,
        dual_clipped: None,
        kl: Some(-log_ratio),
    })
}

/// Geometric-mean policy optimization (<https://arxiv.org/abs/2507.20673>; verl `compute_policy_loss_geo_mean`): per sequence
/// −⟨A⟩·exp⟨x⟩, where x is log ρ held in \[−low, high\] on the side that its advantage would push it to. The mean is over all
/// sequences of the mini-batch, empty ones too, whatever aggregation is asked for.
pub(super) fn geo_mean(
    tokens: &Tokens<'_>,
    clip: &Clip,
    denominators: &Denominators,
) -> PolicyLoss {
    let mask = tokens.mask;
    let log_ratio = tokens.log_ratio();
    let sign = tokens.advantages.sign();
    let held = log_ratio.clamp(-clip.low, clip.high);
    let pushed = (&sign * &log_ratio).minimum(&(&sign * &held)) * &sign;
    let lengths = tokens_per_sequence(mask) + COUNT_EPSILON; // [B]
    let ratio = (sum_per_sequence(&pushed, mask) / &lengths).exp();
    let advantage = sum_per_sequence(&tokens.advantages, mask) / &lengths;
    let mut loss = -advantage * ratio;
    if let Some(weights) = &tokens.weights {
        let log_weights = zeroed(&(weights + WEIGHT_EPSILON).log(), mask);
        loss *= (sum_per_sequence(&log_weights, mask) / &lengths).exp();
    }
    let is_held = log_ratio.detach().ne_tensor(&held.detach());
    let per_token = PerToken {
        clipped: Some(is_held.logical_and(&tokens.advantages.gt(0.0))),
        dual_clipped: Some(is_held.logical_and(&tokens.advantages.lt(0.0))),
        kl: Some(-log_ratio),
        loss: tokens.advantages.shallow_clone(),
    };
    PolicyLoss {
        loss: loss.sum(loss.kind()) / denominators.rows,
        sums: tokens.sums(&per_token),
    }
}
