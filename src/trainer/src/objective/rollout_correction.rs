//! The gap between the policy that drew the tokens and the policy before the update: other weights (staleness) or other
//! kernels (an engine in bf16). Weights for the loss, and the numbers that show the gap (verl `rollout_corr_helper.py`).

use experiment::settings::ImportanceLevel;
use tch::{Kind, Tensor};

use super::masked::{count, mean, mean_per_sequence, sum_per_sequence, zeroed};
use super::{ObjectiveError, same_shape};

/// Log-ratios are limited to ± this before they are exponentiated.
const LOG_RATIO_LIMIT: f64 = 20.0;

/// How weights are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImportanceSampling {
    /// One weight per token, or per sequence the product of its tokens' ratios.
    pub level: ImportanceLevel,
    /// Weights above it are cut to it (`rollout_is_threshold`, C).
    pub upper: f64,
    /// None: truncation. Else weights outside \[lower, upper\] become 0 (`IcePop`).
    pub lower: Option<f64>,
    /// Divide by the weights' mean, so that the learning rate keeps its meaning.
    pub batch_normalize: bool,
}

/// What [`rollout_correction`] gives.
#[derive(Debug)]
pub struct RolloutCorrected {
    /// \[B, T\], without gradients, 0 outside the mask; None without importance sampling.
    pub weights: Option<Tensor>,
    /// `rollout_corr/…` as verl names them.
    pub metrics: Vec<(&'static str, f64)>,
}

/// With x = log `π_old` − log `π_rollout` over `mask`, all \[B, T\]:
///
/// ```text
/// w = exp(x) per token, or exp(Σ_t x) per sequence; x limited to ±20;   weight = min(w, C)
/// ```
///
/// optionally divided by the mean weight over tokens (level token) or over sequences that have tokens (level sequence).
/// The metrics, which come with or without weights: mean, extremes, deviation and `eff_sample_size` = 1 / ⟨(w/⟨w⟩)²⟩ of the
/// weights, shares of ratios outside \[1/C, C\], KL(rollout‖old) as k1 and k3, perplexities, χ². Not defined for an empty mask.
pub fn rollout_correction(
    old_logprobs: &Tensor,
    rollout_logprobs: &Tensor,
    mask: &Tensor,
    sampling: Option<&ImportanceSampling>,
) -> Result<RolloutCorrected, ObjectiveError> {
    same_shape(("old log-probs", old_logprobs), ("mask", mask))?;
    same_shape(("rollout log-probs", rollout_logprobs), ("mask", mask))?;
    if count(mask).double_value(&[]) == 0.0 {
        return Err(ObjectiveError::EmptyMask {
            quantity: "the rollout correction",
        });
    }
    let _no_grad = tch::no_grad_guard();
    let gap = Gap {
        old: zeroed(old_logprobs, mask).to_kind(Kind::Float),
        rollout: zeroed(rollout_logprobs, mask).to_kind(Kind::Float),
        mask: mask.to_kind(Kind::Bool),
    };
    let mut metrics = Vec::new();
    let weights = sampling
        .map(|sampling| gap.weights(sampling, &mut metrics))
        .transpose()?;
    gap.divergence_metrics(&mut metrics);
    Ok(RolloutCorrected { weights, metrics })
}

/// Both 0 outside the mask.
struct Gap {
    old: Tensor,
    rollout: Tensor,
    mask: Tensor,
}

type Metrics = Vec<(&'static str, f64)>;

impl Gap {
    fn log_ratio(&self) -> Tensor {
        &self.old - &self.rollout
    }

    fn weights(
        &self,
        sampling: &ImportanceSampling,
        metrics: &mut Metrics,
    ) -> Result<Tensor, ObjectiveError> {
        let ImportanceSampling {
            level,
            upper,
            lower,
            batch_normalize,
        } = *sampling;
        let is_sound = upper > 0.0 && lower.is_none_or(|lower| 0.0 < lower && lower <= upper);
        if !is_sound {
            return Err(ObjectiveError::Threshold { lower, upper });
        }
        let mask = &self.mask;
        let log_ratio = match level {
            ImportanceLevel::Token => self.log_ratio(), // [B, T]
            ImportanceLevel::Sequence => sum_per_sequence(&self.log_ratio(), mask).unsqueeze(-1), // [B, 1]
        };
        let ratio = exp_limited(&log_ratio).expand_as(mask);
        let raw = zeroed(&ratio, mask);
        let outside = lower.map(|lower| raw.lt(lower).logical_or(&raw.gt(upper)));
        let weights = match &outside {
            None => raw.clamp_max(upper),
            Some(outside) => raw.masked_fill(outside, 0.0),
        };
        self.weight_metrics(sampling, &log_ratio, &raw, &weights, metrics);
        if let Some(outside) = outside {
            let fraction = mean(&outside.to_kind(Kind::Float), mask);
            metrics.push(("rollout_corr/rollout_is_oob_ratio", read(&fraction)));
        }
        if !batch_normalize {
            return Ok(weights);
        }
        let center = match level {
            ImportanceLevel::Token => mean(&weights, mask),
            ImportanceLevel::Sequence => {
                let has_tokens = mask.any_dim(-1, false);
                mean_per_sequence(&weights, mask).sum(Kind::Float) / has_tokens.sum(Kind::Float)
            }
        };
        let center = read(&center);
        let can_divide = center > 1e-8;
        metrics.push((
            "rollout_corr/rollout_is_batch_norm_factor",
            if can_divide { center } else { 1.0 },
        ));
        Ok(if can_divide {
            weights / center
        } else {
            weights
        })
    }

    fn weight_metrics(
        &self,
        sampling: &ImportanceSampling,
        log_ratio: &Tensor,
        raw: &Tensor,
        weights: &Tensor,
        metrics: &mut Metrics,
    ) {
        let mask = &self.mask;
        let (upper, lower) = (
            sampling.upper,
            sampling.lower.unwrap_or(1.0 / sampling.upper),
        );
        let share = |condition: Tensor| condition.to_kind(Kind::Float);
        let (high, low, largest, smallest) = match sampling.level {
            ImportanceLevel::Token => {
                let outside = mask.logical_not();
                (
                    mean(&share(raw.gt(upper)), mask),
                    mean(&share(raw.lt(lower)), mask),
                    weights.masked_fill(&outside, f64::NEG_INFINITY).max(),
                    weights.masked_fill(&outside, f64::INFINITY).min(),
                )
            }
            // Of the ratio itself, not of the weight.
            ImportanceLevel::Sequence => (
                share(log_ratio.gt(upper.ln())).mean(Kind::Float),
                share(log_ratio.lt(lower.ln())).mean(Kind::Float),
                log_ratio.max().clamp_max(LOG_RATIO_LIMIT).exp(),
                log_ratio.min().exp(),
            ),
        };
        let center = mean(weights, mask);
        let variance = mean(&weights.square(), mask) - center.square();
        let has_variance = read(&count(mask)) > 1.0;
        let deviation = if has_variance {
            read(&variance.clamp_min(0.0).sqrt())
        } else {
            0.0
        };
        let normalized = weights / (&center + 1e-8);
        let per_sequence = mean_per_sequence(weights, mask); // [B]
        let raw_per_sequence = mean_per_sequence(raw, mask);
        let has_many = per_sequence.numel() > 1;
        metrics.extend([
            ("rollout_corr/rollout_is_mean", read(&center)),
            ("rollout_corr/rollout_is_ratio_fraction_high", read(&high)),
            ("rollout_corr/rollout_is_ratio_fraction_low", read(&low)),
            ("rollout_corr/rollout_is_max", read(&largest)),
            ("rollout_corr/rollout_is_min", read(&smallest)),
            ("rollout_corr/rollout_is_std", deviation),
            (
                "rollout_corr/rollout_is_eff_sample_size",
                1.0 / read(&mean(&normalized.square(), mask)),
            ),
            (
                "rollout_corr/rollout_is_seq_mean",
                read(&per_sequence.mean(Kind::Float)),
            ),
            (
                "rollout_corr/rollout_is_seq_std",
                if has_many {
                    read(&per_sequence.std(true))
                } else {
                    0.0
                },
            ),
            ("rollout_corr/rollout_is_seq_max", read(&per_sequence.max())),
            ("rollout_corr/rollout_is_seq_min", read(&per_sequence.min())),
            (
                "rollout_corr/rollout_is_seq_max_deviation",
                read(&(&per_sequence - 1.0).abs().max()),
            ),
            (
                "rollout_corr/rollout_is_seq_fraction_high",
                read(&share(raw_per_sequence.gt(upper)).mean(Kind::Float)),
            ),
            (
                "rollout_corr/rollout_is_seq_fraction_low",
                read(&share(raw_per_sequence.lt(lower)).mean(Kind::Float)),
            ),
        ]);
    }

    fn divergence_metrics(&self, metrics: &mut Metrics) {
        let mask = &self.mask;
        let log_ratio = self.log_ratio();
        // Perplexity of a sequence: exp(−mean log-prob of its tokens).
        let old = mean_per_sequence(&self.old, mask); // [B]
        let rollout = mean_per_sequence(&self.rollout, mask);
        let difference = &rollout - &old;
        let over_sequences = |values: &Tensor| read(&values.mean(Kind::Float));
        let squared_product =
            (sum_per_sequence(&log_ratio, mask).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT) * 2.0)
                .exp();
        metrics.extend([
            ("rollout_corr/training_ppl", over_sequences(&(-&old).exp())),
            ("rollout_corr/training_log_ppl", over_sequences(&-&old)),
            ("rollout_corr/kl", read(&mean(&-&log_ratio, mask))),
            (
                "rollout_corr/k3_kl",
                read(&mean(&(log_ratio.exp() - &log_ratio - 1.0), mask)),
            ),
            (
                "rollout_corr/rollout_ppl",
                over_sequences(&(-&rollout).exp()),
            ),
            ("rollout_corr/rollout_log_ppl", over_sequences(&-&rollout)),
            ("rollout_corr/log_ppl_diff", over_sequences(&difference)),
            (
                "rollout_corr/log_ppl_abs_diff",
                over_sequences(&difference.abs()),
            ),
            ("rollout_corr/log_ppl_diff_max", read(&difference.max())),
            ("rollout_corr/log_ppl_diff_min", read(&difference.min())),
            ("rollout_corr/ppl_ratio", over_sequences(&difference.exp())),
            (
                "rollout_corr/chi2_token",
                read(&mean(&exp_limited(&log_ratio).square(), mask)) - 1.0,
            ),
            (
                "rollout_corr/chi2_seq",
                over_sequences(&squared_product) - 1.0,
            ),
        ]);
    }
}

fn exp_limited(log_ratio: &Tensor) -> Tensor {
    log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
}

fn read(scalar: &Tensor) -> f64 {
    scalar.double_value(&[])
}
