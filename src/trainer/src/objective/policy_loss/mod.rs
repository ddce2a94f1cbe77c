//! The policy's losses. Each is a loss per token (`geo_mean`: per sequence) from the log-probs of the policy, those before the
//! update and the advantages; `aggregate` makes them one number.
//!
//! `clipped`: the ratio is held in a band. `divergence`: tokens that moved too far teach nothing. `covariance`: the few tokens
//! that would end exploration are held. `plain`: no ratio, or a soft one. Formulas and papers: `experiment::losses`.

mod clipped;
mod covariance;
mod divergence;
mod plain;

use experiment::settings::{Actor, LossAggMode, LossMode};
use tch::{Kind, Tensor};

use super::aggregate::{Denominators, aggregate};
use super::masked::zeroed;
use super::{ObjectiveError, same_shape};

pub use clipped::vanilla;

/// log π − log `π_old` is limited to ± this before it is exponentiated, where a loss limits it at all.
const LOG_RATIO_LIMIT: f64 = 20.0;

/// One mini- or micro-batch; all \[B, T\].
#[derive(Debug, Clone, Copy)]
pub struct PolicyBatch<'a> {
    /// With gradients.
    pub logprobs: &'a Tensor,
    /// Of the policy before the update.
    pub old_logprobs: &'a Tensor,
    pub advantages: &'a Tensor,
    pub mask: &'a Tensor,
    /// From the rollout correction: each token's loss is multiplied by it.
    pub rollout_weights: Option<&'a Tensor>,
}

/// How far the ratio may move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    /// `clip_ratio_low`
    pub low: f64,
    /// `clip_ratio_high`
    pub high: f64,
    /// `clip_ratio_c`. vanilla: above 1; where the advantage is negative the loss is at most −c·A. dppo: cap of the ratio.
    pub dual: f64,
}

/// A loss with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Surrogate {
    Vanilla(Clip),
    Gspo(Clip),
    Cispo(Clip),
    Sapo {
        tau_positive: f64,
        tau_negative: f64,
    },
    DppoTv(Clip),
    DppoKl(Clip),
    ClipCov {
        clip: Clip,
        /// Share of the tokens that are dropped.
        share: f64,
        /// Of the covariance of a token that may be dropped.
        band: (f64, f64),
    },
    KlCov {
        /// Share of the tokens that are held.
        share: f64,
        coefficient: f64,
    },
    GeoMean(Clip),
    Gpg,
    Dro {
        beta: f64,
    },
    /// Bypass mode without a clip: −A·log π, with the weights of the rollout correction.
    Reinforce,
}

/// Gives an order of `n` things; asked by `clip_cov` alone.
pub type Shuffle<'a> = &'a mut dyn FnMut(usize) -> Vec<usize>;

/// The loss with its gradient, and sums for the metrics.
#[derive(Debug)]
pub struct PolicyLoss {
    /// Scalar.
    pub loss: Tensor,
    pub sums: PolicySums,
}

/// Sums over tokens, so that micro-batches add up; on the device until [`PolicySums::metrics`] reads them.
#[derive(Debug)]
pub struct PolicySums {
    /// \[4\]: tokens, clipped, clipped by the dual clip, log `π_old` − log π.
    sums: Tensor,
    /// Which of the last three the loss has.
    has: [bool; 3],
}

/// Means over the tokens of the mask, 0 when it is empty; None where the loss has no such thing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicyMetrics {
    /// `actor/pg_clipfrac`: share of tokens that the loss holds (vanilla: whose clipped loss is the larger).
    pub clip_fraction: Option<f64>,
    /// `actor/pg_clipfrac_lower`: share of tokens with a negative advantage that the dual clip holds.
    pub dual_clip_fraction: Option<f64>,
    /// `actor/ppo_kl`: mean of log `π_old` − log π, in nats; may be negative. `kl_cov`: of its absolute value.
    pub ppo_kl: Option<f64>,
    pub tokens: f64,
}

impl PolicySums {
    /// Of both batches together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            sums: &self.sums + &other.sums,
            has: self.has,
        }
    }

    /// Waits for the device.
    pub fn metrics(&self) -> PolicyMetrics {
        let sums = Vec::<f64>::try_from(self.sums.to_device(tch::Device::Cpu))
            .expect("four float64 numbers on the CPU");
        let per_token = |index: usize| self.has[index].then(|| sums[index + 1] / (sums[0] + 1e-8));
        PolicyMetrics {
            clip_fraction: per_token(0),
            dual_clip_fraction: per_token(1),
            ppo_kl: per_token(2),
            tokens: sums[0],
        }
    }
}

impl PolicyMetrics {
    /// By verl's names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [
            ("pg_clipfrac", self.clip_fraction),
            ("pg_clipfrac_lower", self.dual_clip_fraction),
            ("ppo_kl", self.ppo_kl),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

impl Surrogate {
    /// As the experiment has it. `bypass_mode` is the clipped one here.
    pub fn new(actor: &Actor) -> Self {
        let clip = Clip {
            low: actor.clip_ratio_low,
            high: actor.clip_ratio_high,
            dual: actor.clip_ratio_c,
        };
        let settings = &actor.policy_loss;
        match settings.loss_mode {
            LossMode::Vanilla => Self::Vanilla(clip),
            LossMode::Gspo => Self::Gspo(clip),
            LossMode::Cispo => Self::Cispo(clip),
            LossMode::Sapo => Self::Sapo {
                tau_positive: actor.tau_pos,
                tau_negative: actor.tau_neg,
            },
            LossMode::DppoTv => Self::DppoTv(clip),
            LossMode::DppoKl => Self::DppoKl(clip),
            LossMode::ClipCov => Self::ClipCov {
                clip,
                share: settings.clip_cov_ratio,
                band: (settings.clip_cov_lb, settings.clip_cov_ub),
            },
            LossMode::KlCov => Self::KlCov {
                share: settings.kl_cov_ratio,
                coefficient: settings.ppo_kl_coef,
            },
            LossMode::GeoMean => Self::GeoMean(clip),
            LossMode::Gpg => Self::Gpg,
            LossMode::Dro => Self::Dro {
                // None is refused by the rules of the experiment, 0 by the loss.
                beta: settings.dro_beta.unwrap_or(0.0),
            },
        }
    }

    /// How the token losses become one number: as asked, unless the loss has a way of its own.
    pub fn aggregation(&self, asked: LossAggMode) -> LossAggMode {
        match self {
            Self::Sapo { .. } => LossAggMode::SeqMeanTokenMean,
            _ => asked,
        }
    }

    /// The loss of a mini-batch, or of the part of it that `batch` is. `denominators` are those of the whole mini-batch for
    /// [`Self::aggregation`] of `mode`.
    pub fn loss(
        &self,
        batch: &PolicyBatch<'_>,
        mode: LossAggMode,
        denominators: &Denominators,
        shuffle: Shuffle<'_>,
    ) -> Result<PolicyLoss, ObjectiveError> {
        let mode = self.aggregation(mode);
        let tokens = Tokens::new(batch)?;
        let per_token = match *self {
            Self::Vanilla(clip) => clipped::vanilla_tokens(&tokens, &clip)?,
            Self::Gspo(clip) => clipped::gspo(&tokens, &clip),
            Self::Cispo(clip) => clipped::cispo(&tokens, &clip),
            Self::Sapo {
                tau_positive,
                tau_negative,
            } => clipped::sapo(&tokens, tau_positive, tau_negative)?,
            Self::DppoTv(clip) => divergence::total_variation(&tokens, &clip),
            Self::DppoKl(clip) => divergence::binary_kl(&tokens, &clip),
            Self::ClipCov { clip, share, band } => {
                covariance::clip_cov(&tokens, &clip, share, band, shuffle)?
            }
            Self::KlCov { share, coefficient } => covariance::kl_cov(&tokens, share, coefficient)?,
            Self::GeoMean(clip) => return Ok(plain::geo_mean(&tokens, &clip, denominators)),
            Self::Gpg => plain::gpg(&tokens),
            Self::Dro { beta } => plain::dro(&tokens, beta)?,
            Self::Reinforce => plain::reinforce(&tokens),
        };
        Ok(tokens.aggregated(&per_token, mode, denominators))
    }
}

/// A batch whose numbers outside the mask are 0, so that nothing there, NaN included, reaches a loss or a gradient.
struct Tokens<'a> {
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Option<Tensor>,
    mask: &'a Tensor,
    valid: Tensor,
}

/// What a loss says of each token; all \[B, T\].
struct PerToken {
    /// With gradients; not yet multiplied by the rollout weights.
    loss: Tensor,
    /// Where the loss holds a token.
    clipped: Option<Tensor>,
    dual_clipped: Option<Tensor>,
    /// What `ppo_kl` is the mean of; 0 outside the mask.
    kl: Option<Tensor>,
}

impl<'a> Tokens<'a> {
    fn new(batch: &PolicyBatch<'a>) -> Result<Self, ObjectiveError> {
        let mask = batch.mask;
        same_shape(("logprobs", batch.logprobs), ("mask", mask))?;
        same_shape(("old log-probs", batch.old_logprobs), ("mask", mask))?;
        same_shape(("advantages", batch.advantages), ("mask", mask))?;
        if let Some(weights) = batch.rollout_weights {
            same_shape(("rollout weights", weights), ("mask", mask))?;
        }
        Ok(Self {
            logprobs: zeroed(batch.logprobs, mask),
            old_logprobs: zeroed(batch.old_logprobs, mask),
            advantages: zeroed(batch.advantages, mask),
            weights: batch
                .rollout_weights
                .map(|weights| zeroed(&weights.detach(), mask)),
            valid: mask.to_kind(Kind::Bool),
            mask,
        })
    }

    /// log π − log `π_old`
    fn log_ratio(&self) -> Tensor {
        &self.logprobs - &self.old_logprobs
    }

    fn limited_log_ratio(&self) -> Tensor {
        self.log_ratio().clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    }

    /// −A: what is minimised is −A·ρ.
    fn cost(&self) -> Tensor {
        -&self.advantages
    }

    fn aggregated(
        &self,
        per_token: &PerToken,
        mode: LossAggMode,
        denominators: &Denominators,
    ) -> PolicyLoss {
        let mut loss = per_token.loss.shallow_clone();
        if let Some(weights) = &self.weights {
            loss *= weights;
        }
        PolicyLoss {
            loss: aggregate(&loss, self.mask, mode, denominators),
            sums: self.sums(per_token),
        }
    }

    fn sums(&self, per_token: &PerToken) -> PolicySums {
        let zero = || Tensor::zeros([], (Kind::Double, self.mask.device()));
        let count = |condition: &Option<Tensor>| {
            condition.as_ref().map_or_else(zero, |condition| {
                condition.logical_and(&self.valid).sum(Kind::Double)
            })
        };
        let kl = per_token.kl.as_ref();
        PolicySums {
            sums: Tensor::stack(
                &[
                    self.valid.sum(Kind::Double),
                    count(&per_token.clipped),
                    count(&per_token.dual_clipped),
                    kl.map_or_else(zero, |kl| kl.detach().sum(Kind::Double)),
                ],
                0,
            ),
            has: [
                per_token.clipped.is_some(),
                per_token.dual_clipped.is_some(),
                kl.is_some(),
            ],
        }
    }
}

/// Refuses what is not above 0, NaN included.
fn positive(name: &'static str, value: f64) -> Result<f64, ObjectiveError> {
    if value > 0.0 {
        Ok(value)
    } else {
        Err(ObjectiveError::NotPositive { name, value })
    }
}
