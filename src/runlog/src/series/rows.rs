//! The x columns that all metrics of one event source share.

use super::XAxis;

/// Where a row stands on each axis.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RowHead {
    pub step: u64,
    pub elapsed_ms: f64,
    /// Cumulative tokens.
    pub tokens: f64,
    /// Cumulative rollouts.
    pub samples: f64,
}

/// A leg is a stretch in which x never falls. A run that was resumed from an older checkpoint has two legs of steps.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows {
    pub(super) step: Vec<u64>,
    pub(super) elapsed_ms: Vec<f64>,
    pub(super) tokens: Vec<f64>,
    pub(super) samples: Vec<f64>,
    /// Rows that begin a new leg, the first leg left out; an entry of each axis.
    legs: [Vec<u32>; 4],
    /// How often the run went back: what was made of rows before that is of others.
    pub(super) rewinds: u32,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.step.len()
    }

    /// Room for `most` rows in all, if there are none yet.
    pub(super) fn reserve(&mut self, most: usize) {
        if self.len() == 0 {
            self.step.reserve(most);
            self.elapsed_ms.reserve(most);
            self.tokens.reserve(most);
            self.samples.reserve(most);
        }
    }

    pub(super) fn push(&mut self, head: RowHead) {
        let row =
            u32::try_from(self.len()).expect("a log of 4 billion rows does not fit on a disk");
        if row > 0 {
            let last = row as usize - 1;
            for axis in XAxis::ALL {
                let (before, now) = (self.x(last, axis), head.x(axis));
                // Also where a time is not a number: such a row is a leg of its own and is never looked up.
                if now
                    .partial_cmp(&before)
                    .is_none_or(std::cmp::Ordering::is_lt)
                {
                    self.legs[axis as usize].push(row);
                }
            }
        }
        self.step.push(head.step);
        self.elapsed_ms.push(head.elapsed_ms);
        self.tokens.push(head.tokens);
        self.samples.push(head.samples);
    }

    pub(super) fn head(&self, row: usize) -> RowHead {
        RowHead {
            step: self.step[row],
            elapsed_ms: self.elapsed_ms[row],
            tokens: self.tokens[row],
            samples: self.samples[row],
        }
    }

    pub(super) fn x(&self, row: usize, axis: XAxis) -> f64 {
        match axis {
            XAxis::Step => self.step[row] as f64,
            XAxis::Time => self.elapsed_ms[row],
            XAxis::Tokens => self.tokens[row],
            XAxis::Samples => self.samples[row],
        }
    }

    pub(super) fn legs(&self, axis: XAxis) -> &[u32] {
        &self.legs[axis as usize]
    }
}

impl RowHead {
    fn x(&self, axis: XAxis) -> f64 {
        match axis {
            XAxis::Step => self.step as f64,
            XAxis::Time => self.elapsed_ms,
            XAxis::Tokens => self.tokens,
            XAxis::Samples => self.samples,
        }
    }
}
