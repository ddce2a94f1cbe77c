//! What the reward says of a change: was it learning?

use crate::series::{Series, XAxis};
use crate::state::RunState;

/// Values that one mean is taken over.
const STEPS: usize = 10;

/// Names that [`Reward`] is made of, before their `/mean`, `/min` and `/max`.
const PREFIXES: [&str; 2] = ["critic/score", "critic/rewards"];

/// Whether a reward is made of this metric.
pub(super) fn reads(metric: &str) -> bool {
    PREFIXES.iter().any(|prefix| {
        metric
            .strip_prefix(prefix)
            .is_some_and(|rest| matches!(rest, "/mean" | "/min" | "/max"))
    })
}

/// The reward of training batches, at any step so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reward<'a> {
    mean: Series<'a>,
    min: Option<Series<'a>>,
    max: Option<Series<'a>>,
}

impl<'a> Reward<'a> {
    pub(super) fn of(state: &'a RunState) -> Option<Self> {
        PREFIXES.into_iter().find_map(|prefix| {
            let get = |stat: &str| state.series.get(&format!("{prefix}/{stat}"));
            Some(Self {
                mean: get("mean")?,
                min: get("min"),
                max: get("max"),
            })
        })
    }

    /// Mean of the ten values up to a step; None before there are any finite ones.
    pub(super) fn at(self, step: u64) -> Option<f64> {
        let end = self.mean.index_at(step as f64, XAxis::Step)? + 1;
        mean(&self.mean.values()[end.saturating_sub(STEPS)..end])
    }

    /// Mean of the first ten values.
    pub(super) fn at_start(self) -> Option<f64> {
        let values = self.mean.values();
        mean(&values[..values.len().min(STEPS)])
    }

    /// Lowest and highest reward of any dialogue up to a step.
    pub(super) fn range(self, step: u64) -> Option<(f64, f64)> {
        let bounds = |series: Series<'_>| {
            let end = series.index_at(step as f64, XAxis::Step)? + 1;
            series.bounds(0..end)
        };
        let low = bounds(self.min.unwrap_or(self.mean))?.min;
        let high = bounds(self.max.unwrap_or(self.mean))?.max;
        Some((low, high))
    }

    /// Gain since the start as a share of the range; 0 while all rewards were equal.
    pub(super) fn gain_frac(self, step: u64) -> Option<f64> {
        let (low, high) = self.range(step)?;
        let gain = self.at(step)? - self.at_start()?;
        Some(if high > low { gain / (high - low) } else { 0.0 })
    }

    /// True: the mean is in the upper tenth of the range.
    pub(super) fn is_solved(self, step: u64) -> bool {
        let Some((low, high)) = self.range(step) else {
            return false;
        };
        high > low
            && self
                .at(step)
                .is_some_and(|mean| mean >= low + 0.9 * (high - low))
    }
}

/// Of the finite values; None when there are none.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0_u32);
    for value in values.iter().filter(|value| value.is_finite()) {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}
