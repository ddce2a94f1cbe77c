//! The entropy mechanism (<https://arxiv.org/abs/2505.22617>): the few tokens whose log-prob and advantage go together most are
//! what ends exploration, and are held. Covariances are those inside the batch given, so here micro-batches do matter.

use tch::{Device, Kind, Tensor};

use super::{Clip, PerToken, Shuffle, Tokens, positive};
use crate::objective::ObjectiveError;
use crate::objective::masked::mean;

/// verl `compute_policy_loss_clip_cov`: PPO's clip, and of the tokens it leaves whose covariance (A − ⟨A⟩)·(log π − ⟨log π⟩)
/// lies strictly inside `band`, a random `share` of all tokens (one at least) teaches nothing. The ratio is not limited.
pub(super) fn clip_cov(
    tokens: &Tokens<'_>,
    clip: &Clip,
    share: f64,
    (low, high): (f64, f64),
    shuffle: Shuffle<'_>,
) -> Result<PerToken, ObjectiveError> {
    let share = positive("clip_cov_ratio", share)?;
    let log_ratio = tokens.log_ratio();
    let ratio = log_ratio.exp();
    let cost = tokens.cost();
    let unclipped = &cost * &ratio;
    let clipped = &cost * ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
    let is_clipped = clipped.detach().gt_tensor(&unclipped.detach());
    let logprobs = tokens.logprobs.detach();
    let covariance = (&tokens.advantages - mean(&tokens.advantages, tokens.mask))
        * (&logprobs - mean(&logprobs, tokens.mask));
    let candidates = covariance
        .lt(high)
        .logical_and(&covariance.gt(low))
        .logical_and(&tokens.valid)
        .logical_and(&is_clipped.logical_not());
    let places: Vec<i64> = Vec::try_from(
        candidates
            .reshape([-1])
            .nonzero()
            .reshape([-1])
            .to_device(Device::Cpu),
    )
    .expect("places on the CPU");
    let valid = tokens.valid.sum(Kind::Int64).int64_value(&[]);
    let wanted = ((share * valid as f64) as usize).max(1);
    let mut kept = vec![1.0_f32; candidates.numel()];
    if !places.is_empty() {
        let order = shuffle(places.len());
        if order.len() != places.len() || order.iter().any(|index| *index >= places.len()) {
            return Err(ObjectiveError::Order {
                given: order.len(),
                candidates: places.len(),
            });
        }
        for index in order.iter().take(wanted) {
            kept[places[*index] as usize] = 0.0;
        }
    }
    let kept = Tensor::from_slice(&kept)
        .to_device(ratio.device())
        .view_as(&ratio);
    Ok(PerToken {
        loss: unclipped.maximum(&clipped) * &kept,
        clipped: Some(kept.eq(0.0)),
        dual_clipped: None,
        kl: Some(-log_ratio),
    })
}

/// verl `compute_policy_loss_kl_cov`: −A·ρ without any clip, plus `coefficient`·|log ρ| on the `share` of tokens (one at least)
/// with the largest covariance.
pub(super) fn kl_cov(
    tokens: &Tokens<'_>,
    share: f64,
    coefficient: f64,
) -> Result<PerToken, ObjectiveError> {
    let share = positive("kl_cov_ratio", share)?;
    let log_ratio = tokens.log_ratio();
    let distance = log_ratio.abs();
    let plain = tokens.cost() * log_ratio.exp();
    let places = tokens.valid.reshape([-1]).nonzero().reshape([-1]); // [n]
    let count = places.size()[0];
    let loss = if count == 0 {
        plain
    } else {
        let wanted = ((count as f64 * share) as i64).max(1);
        if wanted > count {
            return Err(ObjectiveError::Share {
                name: "kl_cov_ratio",
                value: share,
            });
        }
        let pick = |values: &Tensor| values.detach().masked_select(&tokens.valid);
        let (advantages, logprobs) = (pick(&tokens.advantages), pick(&tokens.logprobs));
        let covariance = (&advantages - advantages.mean(advantages.kind()))
            * (&logprobs - logprobs.mean(logprobs.kind()));
        let (_, largest) = covariance.topk(wanted, 0, true, true);
        let held = plain
            .detach()
            .zeros_like()
            .reshape([-1])
            .index_fill(0, &places.index_select(0, &largest), 1.0)
            .view_as(&plain)
            .to_kind(Kind::Bool);
        (&plain + &distance * coefficient).where_self(&held, &plain)
    };
    Ok(PerToken {
        loss,
        clipped: None,
        dual_clipped: None,
        kl: Some(distance),
    })
}
