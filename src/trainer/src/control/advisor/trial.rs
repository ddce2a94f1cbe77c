//! Two depths against each other in time: A │ B B │ A A │ B B │ A.
//!
//! Four pairs of neighbours, A before B and after it in turn. Load that grows or falls steadily makes every other pair too good
//! and the rest too bad by the same factor; a burst falls on one pair, or on two where it meets the middle of a double segment.
//! The two middle ratios of the four, averaged, are moved by neither.

/// Steps of one segment. Their mean is taken, not their median: uneven batches are what a deeper queue is good for.
pub const SEGMENT: usize = 3;
/// Of each pair: the depth there was, and the one tried.
const PAIRS: [(usize, usize); 4] = [(0, 1), (3, 2), (4, 5), (7, 6)];
/// A depth that is slower by this share in both of the first two pairs is not tried any longer.
const CLEARLY: f64 = 0.15;

/// A comparison under way.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    base: u64,
    tried: u64,
    /// Mean seconds a step, of each segment that is over.
    segments: Vec<f64>,
    /// Of the one under way.
    steps: Vec<f64>,
}

impl Trial {
    /// `beside`: seconds a step at `base`, in the segment that has just ended.
    pub fn new(base: u64, tried: u64, beside: f64) -> Self {
        Self {
            base,
            tried,
            segments: vec![beside],
            steps: Vec::with_capacity(SEGMENT),
        }
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    pub fn tried(&self) -> u64 {
        self.tried
    }

    /// The depth of the segment under way.
    pub fn depth(&self) -> u64 {
        let at = self.segments.len();
        if PAIRS.iter().any(|(_, tried)| *tried == at) {
            self.tried
        } else {
            self.base
        }
    }

    /// Takes a step of the segment under way.
    pub fn takes(&mut self, whole_s: f64) {
        self.steps.push(whole_s);
        if self.steps.len() == SEGMENT {
            let sum: f64 = self.steps.drain(..).sum();
            self.segments.push(sum / SEGMENT as f64);
        }
    }

    /// Seconds a step at the depth tried for one at the other; None: it is not over.
    pub fn ratio(&self) -> Option<f64> {
        let mut ratios: Vec<f64> = PAIRS
            .iter()
            .filter_map(|(base, tried)| {
                let (base, tried) = (self.segments.get(*base)?, self.segments.get(*tried)?);
                Some((tried.max(1e-9) / base.max(1e-9)).ln())
            })
            .collect();
        let is_clear = |ratio: &f64| *ratio >= CLEARLY.ln_1p();
        let is_over = match ratios.len() {
            4 => true,
            2 => self.steps.is_empty() && ratios.iter().all(is_clear),
            _ => false,
        };
        if !is_over {
            return None;
        }
        ratios.sort_by(f64::total_cmp);
        let middle = ratios.len() / 2;
        Some(f64::midpoint(ratios[middle - 1], ratios[middle]).exp())
    }

    /// Seconds a step at either depth so far.
    pub fn measured(&self) -> super::Measured {
        let of = |depth: u64| {
            let is_tried = |at: usize| PAIRS.iter().any(|(_, tried)| *tried == at);
            let seconds: Vec<f64> = (0..)
                .zip(&self.segments)
                .filter(|(at, _)| is_tried(*at) == (depth == self.tried))
                .map(|(_, seconds)| *seconds)
                .collect();
            super::mean(seconds.into_iter())
        };
        super::Measured {
            before_s: of(self.base),
            tried_s: of(self.tried),
        }
    }
}
