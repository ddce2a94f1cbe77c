//! What keeps alarms from flapping, and the small windows they measure with.

use std::collections::VecDeque;

use super::Threshold;

/// Where something was seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct At {
    pub(super) step: u64,
    pub(super) elapsed_ms: f64,
}

/// How one point looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Bad,
    Good,
    /// Between the thresholds: neither begins nor ends an alarm.
    Between,
}

impl Look {
    /// Of a measure of which more is worse.
    pub(super) fn of(measure: f64, threshold: &Threshold) -> Self {
        let (worse, raise, clear) = if threshold.raise < threshold.clear {
            (-measure, -threshold.raise, -threshold.clear)
        } else {
            (measure, threshold.raise, threshold.clear)
        };
        if worse >= raise {
            Self::Bad
        } else if worse <= clear {
            Self::Good
        } else {
            Self::Between
        }
    }
}

/// Raised after some bad points in a row, cleared after some good ones in a row.
#[derive(Debug, Clone, Default)]
pub(super) struct Latch {
    bad: u32,
    good: u32,
    since: Option<At>,
    is_raised: bool,
}

impl Latch {
    pub(super) fn take(&mut self, look: Look, at: At, threshold: &Threshold) {
        match look {
            Look::Bad => {
                self.good = 0;
                self.bad += 1;
                self.since.get_or_insert(at);
                self.is_raised |= self.bad >= threshold.raise_after;
            }
            Look::Between if self.is_raised => self.good = 0,
            Look::Good if self.is_raised => {
                self.good += 1;
                if self.good >= threshold.clear_after {
                    *self = Self::default();
                }
            }
            Look::Between | Look::Good => *self = Self::default(),
        }
    }

    /// Since when, while it is raised: the first bad point of those that raised it.
    pub(super) fn raised(&self) -> Option<At> {
        self.since.filter(|_| self.is_raised)
    }

    /// True: a bad point has come and may raise, or has raised.
    pub(super) fn is_suspicious(&self) -> bool {
        self.since.is_some()
    }
}

/// The last so many finite values.
#[derive(Debug, Clone)]
pub(super) struct Window {
    values: VecDeque<f64>,
    most: usize,
}

impl Window {
    pub(super) fn new(most: usize) -> Self {
        Self {
            values: VecDeque::with_capacity(most),
            most,
        }
    }

    /// Non-finite values have an alarm of their own and are passed over. Gives the value that fell out.
    pub(super) fn push(&mut self, value: f64) -> Option<f64> {
        if !value.is_finite() {
            return None;
        }
        let oldest = (self.values.len() == self.most).then(|| self.values.pop_front());
        self.values.push_back(value);
        oldest.flatten()
    }

    pub(super) fn is_full(&self) -> bool {
        self.values.len() == self.most
    }

    /// None until it is full.
    pub(super) fn mean(&self) -> Option<f64> {
        self.is_full()
            .then(|| self.values.iter().sum::<f64>() / self.most as f64)
    }

    /// None until it is full.
    pub(super) fn median(&self) -> Option<f64> {
        self.is_full().then(|| median(self.values.iter().copied()))
    }

    pub(super) fn max(&self) -> Option<f64> {
        self.values.iter().copied().reduce(f64::max)
    }
}

/// The lower of the two in the middle; 0 of none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    if values.is_empty() {
        return 0.0;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}
