//! Tokens or sequences on which the policy and the sampler part too far are left out of the loss (verl
//! `compute_rollout_rejection_mask`). With x = log π − log `π_rollout`, limited to ±20:
//!
//! ```text
//! k1 = −x      inside log [lower, upper] of a ratio            token_k*      each token by itself
//! k2 = ½x²     up to a bound                                   seq_sum_k*    a sequence by the sum over its tokens
//! k3 = eˣ−1−x  up to a bound                                   seq_mean_k*, seq_max_k2, seq_max_k3
//! ```

use experiment::correction::{Criterion, Divergence, Over, criteria};
use experiment::settings::RolloutCorrection;
use tch::{Kind, Tensor};

use super::ObjectiveError;
use super::masked::{count, mean, mean_per_sequence, sum_per_sequence, zeroed};

const LOG_RATIO_LIMIT: f64 = 20.0;

/// What must hold of a token that stays: all of these.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    criteria: Vec<Criterion>,
}

/// What [`Rejection::apply`] gives.
#[derive(Debug)]
pub struct Rejected {
    /// \[B, T\] bool: the mask without what was rejected.
    pub mask: Tensor,
    /// `rollout_corr/rollout_rs_…` as verl names them.
    pub metrics: Vec<(String, f64)>,
}

impl Rejection {
    /// `rollout_rs` and `rollout_rs_threshold`; see [`criteria`].
    pub fn parse(options: &str, thresholds: &str) -> Result<Self, ObjectiveError> {
        criteria(options, thresholds)
            .map(|criteria| Self { criteria })
            .map_err(ObjectiveError::Rejection)
    }

    /// As the experiment has it.
    pub fn new(correction: &RolloutCorrection) -> Result<Option<Self>, ObjectiveError> {
        let thresholds = correction.rollout_rs_threshold.as_deref();
        correction
            .rollout_rs
            .as_deref()
            .map(|options| Self::parse(options, thresholds.unwrap_or_default()))
            .transpose()
    }

    /// `logprobs` of the policy that is trained, `rollout_logprobs` of the one that drew; all \[B, T\]. Not defined for an empty
    /// mask.
    pub fn apply(
        &self,
        logprobs: &Tensor,
        rollout_logprobs: &Tensor,
        mask: &Tensor,
    ) -> Result<Rejected, ObjectiveError> {
        let _no_grad = tch::no_grad_guard();
        if read(&count(mask)) == 0.0 {
            return Err(ObjectiveError::EmptyMask {
                quantity: "rejection",
            });
        }
        let mask = mask.to_kind(Kind::Bool);
        let x = (zeroed(logprobs, &mask) - zeroed(rollout_logprobs, &mask))
            .to_kind(Kind::Float)
            .clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
        let mut kept = mask.ones_like();
        let mut metrics = Vec::new();
        for criterion in &self.criteria {
            let keeps = judge(criterion, &x, &mask, &mut metrics);
            kept = kept.logical_and(&keeps);
        }
        let share = |rejected: &Tensor| read(&mean(&rejected.to_kind(Kind::Float), &mask));
        let rejected = kept.logical_not();
        metrics.push(("masked_fraction".to_owned(), share(&rejected)));
        let touched = rejected.logical_and(&mask).any_dim(-1, false);
        metrics.push((
            "seq_masked_fraction".to_owned(),
            read(&touched.to_kind(Kind::Float).mean(Kind::Float)),
        ));
        Ok(Rejected {
            mask: kept.logical_and(&mask),
            metrics: metrics
                .into_iter()
                .map(|(name, value)| (format!("rollout_corr/rollout_rs_{name}"), value))
                .collect(),
        })
    }
}

/// Which tokens stay, \[B, T\].
fn judge(
    criterion: &Criterion,
    x: &Tensor,
    mask: &Tensor,
    metrics: &mut Vec<(String, f64)>,
) -> Tensor {
    let per_token = match criterion.divergence {
        Divergence::K1 => -x,
        Divergence::K2 => x.square() * 0.5,
        Divergence::K3 => x.exp() - 1.0 - x,
    };
    let has_tokens = mask.any_dim(-1, false); // [B]
    let per_sequence = match criterion.over {
        Over::Token | Over::Mean => mean_per_sequence(&per_token, mask),
        Over::Sum => sum_per_sequence(&per_token, mask),
        Over::Max => {
            let outside = mask.logical_not();
            let largest = per_token
                .masked_fill(&outside, f64::NEG_INFINITY)
                .amax([-1], false);
            largest.masked_fill(&has_tokens.logical_not(), 0.0)
        }
    };
    let statistic = match criterion.over {
        Over::Token => per_token,
        _ => per_sequence.unsqueeze(-1).expand_as(mask),
    };
    let mut keeps = statistic.le(criterion.upper);
    if let Some(lower) = criterion.lower {
        keeps = keeps.logical_and(&statistic.ge(lower));
    }
    let mut say =
        |name: &str, value: f64| metrics.push((format!("{}_{name}", criterion.name), value));
    let share = |values: &Tensor| read(&mean(&values.to_kind(Kind::Float), mask));
    let of_sequences = |values: &Tensor| read(&values.to_kind(Kind::Float).mean(Kind::Float));
    let sequences = per_sequence.masked_select(&has_tokens); // at least one
    let high = |values: &Tensor| values.gt(criterion.upper);
    let low = |values: &Tensor| match criterion.lower {
        Some(lower) => values.lt(lower),
        None => values.zeros_like().to_kind(Kind::Bool),
    };
    say("mean", read(&mean(&statistic, mask)));
    let (largest, smallest) = (sequences.max(), sequences.min());
    if criterion.over == Over::Token {
        let outside = mask.logical_not();
        say(
            "max",
            read(&statistic.masked_fill(&outside, f64::NEG_INFINITY).max()),
        );
        say(
            "min",
            read(&statistic.masked_fill(&outside, f64::INFINITY).min()),
        );
        say("fraction_high", share(&high(&statistic)));
        say("fraction_low", share(&low(&statistic)));
    } else {
        say("max", read(&largest));
        say("min", read(&smallest));
        say("fraction_high", of_sequences(&high(&sequences)));
        say("fraction_low", of_sequences(&low(&sequences)));
    }
    let held = statistic.clamp(criterion.lower.unwrap_or(0.0), criterion.upper);
    let variance = mean(&held.square(), mask) - mean(&held, mask).square();
    let has_variance = read(&count(mask)) > 1.0;
    say(
        "std",
        if has_variance {
            read(&variance.clamp_min(0.0).sqrt())
        } else {
            0.0
        },
    );
    say("seq_mean", of_sequences(&sequences));
    say(
        "seq_std",
        if sequences.numel() > 1 {
            read(&sequences.std(true))
        } else {
            0.0
        },
    );
    say("seq_max", read(&largest));
    say("seq_min", read(&smallest));
    say("seq_max_deviation", read(&sequences.abs().max()));
    say("seq_fraction_high", of_sequences(&high(&sequences)));
    if criterion.lower.is_some() {
        say("seq_fraction_low", of_sequences(&low(&sequences)));
    }
    let rejected = keeps.logical_not();
    say("masked_fraction", share(&rejected));
    let touched = rejected.logical_and(mask).any_dim(-1, false);
    say(
        "seq_masked_fraction",
        of_sequences(&touched.masked_select(&has_tokens)),
    );
    keeps
}

fn read(scalar: &Tensor) -> f64 {
    scalar.double_value(&[])
}
