//! Losses that hold the ratio in a band, hard or soft.

use experiment::settings::LossAggMode;
use tch::Tensor;

use super::{Clip, PerToken, PolicyBatch, PolicyLoss, Tokens, positive};
use crate::objective::ObjectiveError;
use crate::objective::aggregate::Denominators;
use crate::objective::masked::{sum_per_sequence, tokens_per_sequence};

/// log of a sequence's ratio is at most this before it is exponentiated.
const SEQUENCE_LOG_RATIO_LIMIT: f64 = 10.0;

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
    let tokens = Tokens::new(batch)?;
    let per_token = vanilla_tokens(&tokens, clip)?;
    Ok(tokens.aggregated(&per_token, mode, denominators))
}

pub(super) fn vanilla_tokens(tokens: &Tokens<'_>, clip: &Clip) -> Result<PerToken, ObjectiveError> {
    // Also refuses NaN.
    if clip.dual.partial_cmp(&1.0) != Some(std::cmp::Ordering::Greater) {
        return Err(ObjectiveError::DualClip(clip.dual));
    }
    let log_ratio = tokens.limited_log_ratio();
    let ratio = log_ratio.exp();
    let cost = tokens.cost();
    let unclipped = &cost * &ratio;
    let clipped = &cost * ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
    let larger = unclipped.maximum(&clipped);
    let ceiling = &cost * clip.dual;
    let is_negative = cost.gt(0.0); // A < 0
    Ok(PerToken {
        loss: larger.minimum(&ceiling).where_self(&is_negative, &larger),
        clipped: Some(clipped.detach().gt_tensor(&unclipped.detach())),
        dual_clipped: Some(
            larger
                .detach()
                .gt_tensor(&ceiling)
                .logical_and(&is_negative),
        ),
        kl: Some(-log_ratio),
    })
}

/// Group sequence policy optimization (<https://arxiv.org/abs/2507.18071>; verl `compute_policy_loss_gspo`): every token has the
/// ratio of its sequence, the geometric mean of its tokens' ratios, and the gradient of its own log-prob.
pub(super) fn gspo(tokens: &Tokens<'_>, clip: &Clip) -> PerToken {
    let log_ratio = tokens.log_ratio();
    let lengths = tokens_per_sequence(tokens.mask).clamp_min(1.0); // [B]
    let of_sequence = (sum_per_sequence(&log_ratio, tokens.mask) / lengths).unsqueeze(-1); // [B, 1]
    let ratio = (&tokens.logprobs - tokens.logprobs.detach() + of_sequence.detach())
        .clamp_max(SEQUENCE_LOG_RATIO_LIMIT)
        .exp();
    let cost = tokens.cost();
    let unclipped = &cost * &ratio;
    let clipped = &cost * ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
    PerToken {
        loss: unclipped.maximum(&clipped),
        clipped: Some(clipped.detach().gt_tensor(&unclipped.detach())),
        dual_clipped: Some(never(tokens)),
        kl: Some(-log_ratio),
    }
}

/// Clipped importance weights (<https://arxiv.org/abs/2506.13585>; verl `compute_policy_loss_cispo`): the weight is clipped and
/// held, and every token keeps the gradient of its log-prob.
pub(super) fn cispo(tokens: &Tokens<'_>, clip: &Clip) -> PerToken {
    let log_ratio = tokens.limited_log_ratio();
    let ratio = log_ratio.detach().exp();
    let weight = ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
    PerToken {
        loss: -&weight * &tokens.advantages * &tokens.logprobs,
        clipped: Some(ratio.ne_tensor(&weight)),
        dual_clipped: Some(never(tokens)),
        kl: Some(-log_ratio),
    }
}

/// Soft adaptive policy optimization (<https://arxiv.org/abs/2511.20347>; verl `compute_policy_loss_sapo`): a sigmoid gate in
/// place of the clip, narrower (larger τ) where the advantage is not positive.
pub(super) fn sapo(
    tokens: &Tokens<'_>,
    tau_positive: f64,
    tau_negative: f64,
) -> Result<PerToken, ObjectiveError> {
    let (tau_positive, tau_negative) = (
        positive("tau_pos", tau_positive)?,
        positive("tau_neg", tau_negative)?,
    );
    let log_ratio = tokens.limited_log_ratio();
    let advantages = &tokens.advantages;
    let tau = advantages
        .full_like(tau_positive)
        .where_self(&advantages.gt(0.0), &advantages.full_like(tau_negative));
    let gate = ((log_ratio.exp() - 1.0) * &tau).sigmoid() * (tau.reciprocal() * 4.0);
    Ok(PerToken {
        loss: -gate * advantages,
        // Nothing is cut off; verl says 0.
        clipped: Some(never(tokens)),
        dual_clipped: Some(never(tokens)),
        kl: Some(-log_ratio),
    })
}

fn never(tokens: &Tokens<'_>) -> Tensor {
    tokens.valid.zeros_like()
}
