//! From a loss per token to one number (verl `agg_loss`), so that micro-batches add up to exactly the whole.

use experiment::settings::LossAggMode;
use tch::{Kind, Tensor};

use super::ObjectiveError;
use super::masked::{mean_per_sequence, sum, sum_per_sequence, tokens_per_sequence};

/// What the whole mini-batch is divided by, on all ranks together, whatever part of it a micro-batch is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Denominators {
    pub tokens: f64,
    /// Sequences with at least one token in the mask.
    pub sequences: f64,
    /// All sequences of this rank's mini-batch, empty ones too; only `geo_mean` asks.
    pub rows: f64,
    /// Data-parallel ranks, whose gradients are averaged afterwards: each multiplies its part by this.
    pub ranks: f64,
    /// Divisor of seq-mean-token-sum-norm.
    pub scale: f64,
}

/// Counts that a rank cannot see in its own mask.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GlobalCounts {
    /// 0 is taken as 1.
    pub ranks: u32,
    /// Tokens of the mini-batch on all ranks; None: those of the mask.
    pub tokens: Option<f64>,
    /// Sequences of the mini-batch on all ranks; None: those of the mask that have tokens.
    pub sequences: Option<f64>,
    /// None: the padded width T of the mask.
    pub loss_scale_factor: Option<f64>,
}

impl Denominators {
    /// Of a whole mini-batch, whose mask \[B, T\] this is. With several ranks, the count that `mode` divides by must be given.
    pub fn new(
        mask: &Tensor,
        mode: LossAggMode,
        counts: &GlobalCounts,
    ) -> Result<Self, ObjectiveError> {
        let ranks = counts.ranks.max(1);
        let missing = match mode {
            LossAggMode::TokenSum => None,
            LossAggMode::TokenMean => counts.tokens.is_none().then_some("tokens"),
            _ => counts.sequences.is_none().then_some("sequences"),
        };
        if let (Some(what), true) = (missing, ranks > 1) {
            return Err(ObjectiveError::MissingGlobalCount { ranks, what });
        }
        let per_sequence = tokens_per_sequence(mask); // [B]
        let read = |count: Tensor| count.double_value(&[]);
        Ok(Self {
            tokens: counts
                .tokens
                .unwrap_or_else(|| read(per_sequence.sum(Kind::Double))),
            sequences: counts
                .sequences
                .unwrap_or_else(|| read(per_sequence.gt(0.0).sum(Kind::Double))),
            rows: *mask.size().first().unwrap_or(&0) as f64,
            ranks: f64::from(ranks),
            scale: counts
                .loss_scale_factor
                .unwrap_or_else(|| *mask.size().last().unwrap_or(&1) as f64),
        })
    }
}

impl Denominators {
    /// There is no token to take a mean over.
    pub fn is_empty(&self) -> bool {
        self.tokens == 0.0
    }
}

/// A loss per token \[B, T\] over `mask` as a scalar with gradients; D ranks, N tokens, S sequences, `n_i` tokens of sequence i:
///
/// ```text
/// token-mean               D/N · Σ_i Σ_t ℓ            every token weighs the same
/// token-sum                D   · Σ_i Σ_t ℓ
/// seq-mean-token-sum       D/S · Σ_i Σ_t ℓ
/// seq-mean-token-mean      D/S · Σ_i Σ_t ℓ / n_i      every sequence weighs the same
/// seq-mean-token-sum-norm  D/S · Σ_i Σ_t ℓ / scale    (Dr. GRPO)
/// ```
///
/// The values of the micro-batches of a mini-batch add up to the value of the whole, and so do their gradients. NaN when the
/// denominator is 0: an empty mini-batch has no mean.
pub fn aggregate(
    loss: &Tensor,
    mask: &Tensor,
    mode: LossAggMode,
    denominators: &Denominators,
) -> Tensor {
    let Denominators {
        tokens,
        sequences,
        ranks,
        scale,
        ..
    } = *denominators;
    match mode {
        LossAggMode::TokenMean => sum(loss, mask) / tokens * ranks,
        LossAggMode::TokenSum => sum(loss, mask) * ranks,
        LossAggMode::SeqMeanTokenSum => sum(loss, mask) / sequences * ranks,
        LossAggMode::SeqMeanTokenMean => {
            mean_per_sequence(loss, mask).sum(loss.kind()) / sequences * ranks
        }
        LossAggMode::SeqMeanTokenSumNorm => {
            sum_per_sequence(loss, mask).sum(loss.kind()) / sequences * ranks / scale
        }
    }
}
