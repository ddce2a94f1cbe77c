//! Where a limit that moves with the run's own values lies: what a guard's rule makes of a metric so far.

use std::collections::VecDeque;

use experiment::guards::{Against, Condition};
use runlog::series::Series;

/// Follows one series and looks at each value once.
#[derive(Debug, Clone)]
pub struct Judged {
    condition: Condition,
    /// What is compared are means of so many values.
    window: usize,
    /// Values up to this step are not looked at, but for those of step 0.
    ignored: u64,
    /// Points looked at, and how often the run had gone back by then.
    seen: usize,
    rewinds: u32,
    newest: VecDeque<f64>,
    /// Finite means: the first ones, as many as the baseline is made of; the best; the last.
    first: Vec<f64>,
    best: Option<f64>,
    last: Option<f64>,
}

impl Judged {
    pub fn new(condition: Condition, window: u32, ignored: u64) -> Self {
        Self {
            condition,
            window: window.max(1) as usize,
            ignored,
            seen: 0,
            rewinds: 0,
            newest: VecDeque::new(),
            first: Vec::new(),
            best: None,
            last: None,
        }
    }

    /// Looks at what is new; at everything where the run went back.
    pub fn follow(&mut self, series: Series<'_>) {
        if series.rewinds() != self.rewinds || series.len() < self.seen {
            *self = Self {
                rewinds: series.rewinds(),
                ..Self::new(self.condition, self.window as u32, self.ignored)
            };
        }
        for i in self.seen..series.len() {
            if series.step(i) == 0 || series.step(i) > self.ignored {
                self.push(series.value(i));
            }
        }
        self.seen = series.len();
    }

    fn push(&mut self, value: f64) {
        if self.newest.len() == self.window {
            self.newest.pop_front();
        }
        self.newest.push_back(value);
        let mean = self.newest.iter().sum::<f64>() / self.newest.len() as f64;
        if !mean.is_finite() {
            return;
        }
        if self.first.len() < self.baseline_points() {
            self.first.push(mean);
        }
        self.best = Some(self.best.map_or(mean, |best| best.max(mean)));
        self.last = Some(mean);
    }

    fn baseline_points(&self) -> usize {
        match self.condition {
            Condition::AboveBaseline { points, .. } | Condition::BelowBaseline { points, .. } => {
                points.max(1) as usize
            }
            _ => 0,
        }
    }

    /// Where the next value is judged. None: it is not known yet.
    pub fn limit(&self) -> Option<f64> {
        let from = |against: Against| match against {
            Against::Best => self.best,
            Against::Previous => self.last,
        };
        match self.condition {
            Condition::Above(value) | Condition::Below(value) => Some(value),
            Condition::AboveBaseline { ratio, .. } | Condition::BelowBaseline { ratio, .. } => {
                let mut first = self.first.clone();
                first.sort_unstable_by(f64::total_cmp);
                let is_known = first.len() >= self.baseline_points();
                is_known.then(|| first[first.len() / 2] * ratio)
            }
            Condition::DropPoints { points, against } => Some(from(against)? - points),
            Condition::DropRelative { share, against } => {
                let from = from(against)?;
                Some(from - share * from.abs())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use runlog::series::{RowHead, SeriesSet, Source};

    use super::*;

    fn push(set: &mut SeriesSet, step: u64, value: f64) {
        let head = RowHead {
            step,
            elapsed_ms: 0.0,
            tokens: 0.0,
            samples: 0.0,
        };
        set.push_row(Source::Steps, head, [("m", value)]);
    }

    #[test]
    fn a_limit_that_was_followed_is_that_of_the_whole_series_also_when_the_run_goes_back() {
        let condition = Condition::DropPoints {
            points: 1.0,
            against: Against::Best,
        };
        let mut followed = Judged::new(condition, 2, 0);
        let mut set = SeriesSet::default();
        let whole = |set: &SeriesSet| {
            let mut judged = Judged::new(condition, 2, 0);
            judged.follow(set.get("m").unwrap());
            judged.limit()
        };
        for (step, value) in [4.0, 6.0, 90.0, 3.0].into_iter().enumerate() {
            push(&mut set, step as u64, value);
            followed.follow(set.get("m").unwrap());
            assert_eq!(followed.limit(), whole(&set));
        }
        assert_eq!(followed.limit(), Some(47.0));
        // The best value is one of those that are trained again.
        set.rewind(1);
        push(&mut set, 2, 5.0);
        push(&mut set, 3, 5.0);
        followed.follow(set.get("m").unwrap());
        assert_eq!(followed.limit(), whole(&set));
        assert_eq!(followed.limit(), Some(4.5));
    }
}
