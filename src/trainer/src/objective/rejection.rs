//! Tokens or sequences on which the policy and the sampler part too far are left out of the loss (verl
//! `compute_rollout_rejection_mask`). With x = log π − log `π_rollout`, limited to ±20:
//!
//! ```text
//! k1 = −x      inside log [lower, upper] of a ratio            token_k*      each token by itself
//! k2 = ½x²     up to a bound                                   seq_sum_k*    a sequence by the sum over its tokens
//! k3 = eˣ−1−x  up to a bound                                   seq_mean_k*, seq_max_k2, seq_max_k3
//! ```

use tch::{Kind, Tensor};

use super::ObjectiveError;
use super::masked::{count, mean, mean_per_sequence, sum_per_sequence, zeroed};

const LOG_RATIO_LIMIT: f64 = 20.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Divergence {
    K1,
    K2,
    K3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Token,
    Sum,
    Mean,
    Max,
}

/// One criterion.
#[derive(Debug, Clone, PartialEq)]
struct Criterion {
    name: String,
    divergence: Divergence,
    over: Over,
    /// Logarithms of the ratio's bounds for k1; None and the bound for the others.
    lower: Option<f64>,
    upper: f64,
}

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
    /// `options` as `token_k1,seq_mean_k3`; `thresholds` one for all or one each, with commas: an upper bound, for k1 also
    /// `lower_upper` (without: 1/upper).
    pub fn parse(options: &str, thresholds: &str) -> Result<Self, ObjectiveError> {
        let wrong = |given: &str, expected: &'static str| ObjectiveError::Rejection {
            given: given.to_owned(),
            expected,
        };
        let mut names: Vec<&str> = Vec::new();
        for name in options
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let bounds: Vec<&str> = thresholds
            .split(',')
            .map(str::trim)
            .filter(|bound| !bound.is_empty())
            .collect();
        if names.is_empty() {
            return Err(wrong(options, "at least one criterion, e.g. token_k1"));
        }
        if bounds.len() != 1 && bounds.len() != names.len() {
            return Err(wrong(
                thresholds,
                "one threshold, or one for each criterion",
            ));
        }
        let criteria = names
            .iter()
            .enumerate()
            .map(|(index, name)| {
                let (over, divergence) = name.rsplit_once('_').ok_or_else(|| {
                    wrong(name, "token_k1 to k3, seq_sum_k1 to k3, seq_mean_k1 to k3, seq_max_k2 or seq_max_k3")
                })?;
                let over = match over {
                    "token" => Some(Over::Token),
                    "seq_sum" => Some(Over::Sum),
                    "seq_mean" => Some(Over::Mean),
                    "seq_max" => Some(Over::Max),
                    _ => None,
                };
                let divergence = match divergence {
                    "k1" => Some(Divergence::K1),
                    "k2" => Some(Divergence::K2),
                    "k3" => Some(Divergence::K3),
                    _ => None,
                };
                let (Some(over), Some(divergence)) = (over, divergence) else {
                    return Err(wrong(name, "token_k1 to k3, seq_sum_k1 to k3, seq_mean_k1 to k3, seq_max_k2 or seq_max_k3"));
                };
                if (over, divergence) == (Over::Max, Divergence::K1) {
                    return Err(wrong(name, "seq_max_k2 or seq_max_k3: the largest k1 says nothing"));
                }
                let bound = *bounds.get(index).unwrap_or(&bounds[0]);
                let number = |text: &str| {
                    text.trim()
                        .parse::<f64>()
                        .ok()
                        .filter(|number| *number > 0.0)
                        .ok_or_else(|| wrong(bound, "a number above 0, for k1 also lower_upper"))
                };
                let (lower, upper) = match (divergence, bound.split_once('_')) {
                    (Divergence::K1, Some((lower, upper))) => {
                        let (lower, upper) = (number(lower)?, number(upper)?);
                        if lower > upper {
                            return Err(wrong(bound, "lower <= upper"));
                        }
                        (Some(lower.ln()), upper.ln())
                    }
                    (Divergence::K1, None) => {
                        let upper = number(bound)?;
                        if upper < 1.0 {
                            return Err(wrong(bound, "a ratio of at least 1, whose inverse is the lower bound"));
                        }
                        (Some((1.0 / upper).ln()), upper.ln())
                    }
                    (_, Some(_)) => return Err(wrong(bound, "an upper bound alone for k2 and k3")),
                    (_, None) => (None, number(bound)?),
                };
                Ok(Criterion {
                    name: (*name).to_owned(),
                    divergence,
                    over,
                    lower,
                    upper,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { criteria })
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
            let keeps = criterion.judge(&x, &mask, &mut metrics);
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

impl Criterion {
    /// Which tokens stay, \[B, T\].
    fn judge(&self, x: &Tensor, mask: &Tensor, metrics: &mut Vec<(String, f64)>) -> Tensor {
        let per_token = match self.divergence {
            Divergence::K1 => -x,
            Divergence::K2 => x.square() * 0.5,
            Divergence::K3 => x.exp() - 1.0 - x,
        };
        let has_tokens = mask.any_dim(-1, false); // [B]
        let per_sequence = match self.over {
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
        let statistic = match self.over {
            Over::Token => per_token,
            _ => per_sequence.unsqueeze(-1).expand_as(mask),
        };
        let mut keeps = statistic.le(self.upper);
        if let Some(lower) = self.lower {
            keeps = keeps.logical_and(&statistic.ge(lower));
        }
        let mut say =
            |name: &str, value: f64| metrics.push((format!("{}_{name}", self.name), value));
        let share = |values: &Tensor| read(&mean(&values.to_kind(Kind::Float), mask));
        let of_sequences = |values: &Tensor| read(&values.to_kind(Kind::Float).mean(Kind::Float));
        let sequences = per_sequence.masked_select(&has_tokens); // at least one
        let high = |values: &Tensor| values.gt(self.upper);
        let low = |values: &Tensor| match self.lower {
            Some(lower) => values.lt(lower),
            None => values.zeros_like().to_kind(Kind::Bool),
        };
        say("mean", read(&mean(&statistic, mask)));
        let (largest, smallest) = (sequences.max(), sequences.min());
        if self.over == Over::Token {
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
        let held = statistic.clamp(self.lower.unwrap_or(0.0), self.upper);
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
        if self.lower.is_some() {
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
}

fn read(scalar: &Tensor) -> f64 {
    scalar.double_value(&[])
}
