//! Quality that falls: what evaluations on unseen prompts say is far below the best they have said.

use std::collections::{BTreeMap, VecDeque};

use super::detectors::{Seen, at, fresh};
use super::latch::{Latch, Look, median};
use super::reward::Reward;
use super::thresholds::QUALITY;
use super::{Detector, Raised, Severity, Threshold, short};
use crate::state::RunState;

/// Evaluations that a median is taken of: one odd one is no fall, and no best.
const EVALUATIONS: usize = 3;

/// The validation reward or accuracy, of any data source.
pub(super) fn reads(metric: &str) -> bool {
    metric.starts_with("val-core/")
        && (metric.contains("/reward/mean@") || metric.contains("/acc/mean@"))
}

#[derive(Debug, Default)]
pub(super) struct QualityFall {
    metrics: BTreeMap<String, Course>,
}

#[derive(Debug, Default)]
struct Course {
    seen: Seen,
    latest: VecDeque<f64>,
    now: f64,
    best: Option<Best>,
    latch: Latch,
}

#[derive(Debug, Clone, Copy)]
struct Best {
    value: f64,
    /// The last step of its evaluations.
    step: u64,
}

impl Course {
    /// One more value; gives how far the median is below the best one. None: too few.
    fn take(&mut self, value: f64, step: u64) -> Option<f64> {
        self.latest.push_back(value);
        if self.latest.len() > EVALUATIONS {
            self.latest.pop_front();
        }
        if self.latest.len() < EVALUATIONS {
            return None;
        }
        self.now = median(self.latest.iter().copied());
        let value = self.now;
        let best = self.best.get_or_insert(Best { value, step });
        if value > best.value {
            *best = Best { value, step };
        }
        Some(best.value - value)
    }
}

impl Detector for QualityFall {
    fn threshold(&self) -> &'static Threshold {
        &QUALITY
    }

    fn check(&mut self, state: &RunState) -> Vec<Raised> {
        let mut found = Vec::new();
        let reward = Reward::of(state);
        for (name, series) in state.series.iter().filter(|(name, _)| reads(name)) {
            if !self.metrics.contains_key(name) {
                self.metrics.insert(name.to_owned(), Course::default());
            }
            let course = self.metrics.get_mut(name).expect("it was just put there");
            for i in fresh(&mut course.seen, series) {
                let (value, at) = (series.value(i), at(series, i));
                if !value.is_finite() {
                    continue;
                }
                let Some(fall) = course.take(value, at.step) else {
                    continue;
                };
                let best = course.best.map_or(0.0, |best| best.value.abs());
                let range = reward
                    .and_then(|reward| reward.range(at.step))
                    .map(|(low, high)| high - low)
                    .filter(|range| *range > 0.0)
                    .unwrap_or(best);
                let share = if range > 0.0 { fall / range } else { 0.0 };
                course.latch.take(Look::of(share, &QUALITY), at, &QUALITY);
            }
            let (Some(since), Some(best)) = (course.latch.raised(), course.best) else {
                continue;
            };
            found.push(Raised {
                subject: name.to_owned(),
                severity: Severity::Critical,
                since,
                message: format!(
                    "{name} fell from {} (step {}) to {}, medians of {EVALUATIONS} evaluations",
                    short(best.value),
                    best.step,
                    short(course.now),
                ),
            });
        }
        found
    }
}
