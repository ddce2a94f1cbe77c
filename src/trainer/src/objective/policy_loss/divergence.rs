//! Divergence PPO (<https://arxiv.org/abs/2602.04879>): a token teaches unless it has moved too far already, measured on the
//! probability itself (a coin: this token or any other) and not on its ratio. The ratio is capped and held.

use tch::Tensor;

use super::{Clip, PerToken, Tokens};

/// Keeps log((1 − p) / (1 − q)) finite.
const PROBABILITY_EPSILON: f64 = 1e-8;

/// verl `compute_policy_loss_dppo_tv`: π − `π_old` above `high` (A > 0) or below −`low` teaches nothing more.
pub(super) fn total_variation(tokens: &Tokens<'_>, clip: &Clip) -> PerToken {
    let gap = tokens.logprobs.detach().exp() - tokens.old_logprobs.exp();
    let (rising, falling) = (gap.le(clip.high), gap.ge(-clip.low));
    taught(tokens, clip, &rising, &falling)
}

/// verl `compute_policy_loss_dppo_kl`: KL(`π_old`‖π) of that coin above `high` (A > 0) or `low` teaches nothing more, unless the
/// token is on its way back.
pub(super) fn binary_kl(tokens: &Tokens<'_>, clip: &Clip) -> PerToken {
    let (logprobs, old) = (tokens.logprobs.detach(), &tokens.old_logprobs);
    let (probability, before) = (logprobs.exp(), old.exp());
    let rest = |probability: &Tensor| (-probability + 1.0) + PROBABILITY_EPSILON;
    let kl =
        &before * (old - &logprobs) + (-&before + 1.0) * (rest(&before) / rest(&probability)).log();
    let rising = kl.le(clip.high).logical_or(&probability.le_tensor(&before));
    let falling = kl.le(clip.low).logical_or(&probability.ge_tensor(&before));
    taught(tokens, clip, &rising, &falling)
}

/// −A·min(ρ, c)·log π, the weight held, where the token may still move the way its advantage pushes.
fn taught(tokens: &Tokens<'_>, clip: &Clip, rising: &Tensor, falling: &Tensor) -> PerToken {
    let log_ratio = tokens.limited_log_ratio();
    let ratio = log_ratio.detach().exp();
    let may_move = rising.where_self(&tokens.advantages.gt(0.0), falling);
    let weight = tokens.cost() * ratio.clamp_max(clip.dual);
    PerToken {
        loss: weight * &tokens.logprobs * may_move.to_kind(tokens.logprobs.kind()),
        clipped: Some(may_move.logical_not()),
        dual_clipped: Some(ratio.gt(clip.dual).logical_and(&may_move)),
        kl: Some(-log_ratio),
    }
}
