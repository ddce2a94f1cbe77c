//! The detectors that watch one metric of the steps or syncs.

use std::collections::BTreeMap;
use std::ops::Range;

use super::latch::{At, Latch, Look, Window, median};
use super::reward::{Reward, mean};
use super::thresholds::{
    ALL_EQUAL, CLIP, ENTROPY, KL, KL_FLOOR_NATS, KL_SURE_NATS, LENGTH, LENGTH_GRACE_STEPS,
    MOST_HISTORY, NON_FINITE, SYNC, SYNC_FLOOR_MS,
};
use super::{
    Detector, Limits, Raised, Severity, Threshold, hacking, quality, recording, short, stall,
};
use crate::series::Series;
use crate::state::RunState;

pub(super) fn all(limits: Limits) -> Vec<Box<dyn Detector>> {
    let mut all: Vec<Box<dyn Detector>> = vec![Box::<NonFinite>::default()];
    for metric in KL.metrics {
        all.push(Box::new(KlBlowUp::new(metric, limits.kl_nats)));
    }
    all.push(Box::new(EntropyCollapse::default()));
    all.push(Box::new(LengthRunaway::default()));
    all.push(Box::new(hacking::RewardHacking::default()));
    all.push(Box::new(quality::QualityFall::default()));
    all.push(Box::new(AllEqualGroups::default()));
    all.push(Box::new(ClipSaturation::default()));
    all.push(Box::new(SyncDrift::default()));
    all.push(Box::new(stall::StalledLane::default()));
    all.push(Box::new(recording::Recording::default()));
    all
}

pub(super) fn at(series: Series<'_>, i: usize) -> At {
    let point = series.point(i);
    At {
        step: point.step,
        elapsed_ms: point.elapsed_ms,
    }
}

/// How far a series was looked at.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    points: usize,
    rewinds: u32,
    /// Of the last point, in milliseconds.
    until: f64,
}

impl Seen {
    /// All of a series.
    fn of(series: Series<'_>) -> Self {
        let last = series.last();
        Self {
            points: series.len(),
            rewinds: series.rewinds(),
            until: last.map_or(f64::NEG_INFINITY, |last| last.elapsed_ms),
        }
    }
}

/// Points of a series that were not looked at yet: where the run went back since, those that came after the last one that was.
pub(super) fn fresh(seen: &mut Seen, series: Series<'_>) -> Range<usize> {
    let count = series.len();
    let known = if series.rewinds() == seen.rewinds {
        seen.points
    } else {
        let new = |i: &usize| at(series, *i).elapsed_ms > seen.until;
        count - (0..count).rev().take_while(new).count()
    };
    let start = known.max(count.saturating_sub(MOST_HISTORY)).min(count);
    *seen = Seen {
        until: seen.until.max(Seen::of(series).until),
        ..Seen::of(series)
    };
    start..count
}

/// The metric a detector watches: the first of its row that the run has.
fn watched<'a>(state: &'a RunState, threshold: &Threshold) -> Option<(&'static str, Series<'a>)> {
    threshold
        .metrics
        .iter()
        .find_map(|name| Some((*name, state.series.get(name)?)))
}

fn raised(
    latch: &Latch,
    subject: &str,
    severity: Severity,
    message: impl FnOnce() -> String,
) -> Vec<Raised> {
    latch
        .raised()
        .map(|since| Raised {
            subject: subject.to_owned(),
            severity,
            since,
            message: message(),
        })
        .into_iter()
        .collect()
}

/// NaN or infinite values, of any metric.
#[derive(Debug, Default)]
struct NonFinite {
    metrics: BTreeMap<String, (Seen, u64, Latch)>,
}

impl Detector for NonFinite {
    fn threshold(&self) -> &'static Threshold {
        &NON_FINITE
    }

    fn check(&mut self, state: &RunState) -> Vec<Raised> {
        let mut found = Vec::new();
        for (name, series) in state.series.iter() {
            let known = self.metrics.get(name).map_or(0, |(_, known, _)| *known);
            let is_latched = self
                .metrics
                .get(name)
                .is_some_and(|entry| entry.2.is_suspicious());
            // Nearly always: nothing to remember, nothing to do.
            if series.non_finite() == known && !is_latched {
                if let Some(entry) = self.metrics.get_mut(name) {
                    entry.0 = Seen::of(series);
                }
                continue;
            }
            let entry = self.metrics.entry(name.to_owned()).or_default();
            for i in fresh(&mut entry.0, series) {
                let look = if series.value(i).is_finite() {
                    Look::Good
                } else {
                    Look::Bad
                };
                entry.2.take(look, at(series, i), &NON_FINITE);
            }
            entry.1 = series.non_finite();
            let severity = if name.starts_with("actor/")
                || name.starts_with("critic/")
                || name.starts_with("train/")
            {
                Severity::Critical
            } else {
                Severity::Warning
            };
            let last = series
                .values()
                .iter()
                .rev()
                .find(|value| !value.is_finite());
            found.extend(raised(&entry.2, name, severity, || {
                let word = last.map_or("NaN".to_owned(), |value| format!("{value}"));
                format!(
                    "{name} was {word}; {} of {} values so far are not finite",
                    entry.1,
                    series.len()
                )
            }));
        }
        found
    }
}

/// KL far above its recent level, or at a guard's limit.
#[derive(Debug)]
struct KlBlowUp {
    metric: &'static str,
    limit: Option<f64>,
    seen: Seen,
    level: Window,
    /// Level before the rise: held while the rise lasts, so that it does not become the new normal.
    before: f64,
    last: f64,
    latch: Latch,
    limit_latch: Latch,
}

impl KlBlowUp {
    fn new(metric: &'static str, limit: Option<f64>) -> Self {
        Self {
            metric,
            limit,
            seen: Seen::default(),
            level: Window::new(32),
            before: 0.0,
            last: 0.0,
            latch: Latch::default(),
            limit_latch: Latch::default(),
        }
    }
}

impl Detector for KlBlowUp {
    fn threshold(&self) -> &'static Threshold {
        &KL
    }

    fn check(&mut self, state: &RunState) -> Vec<Raised> {
        let Some(series) = state.series.get(self.metric) else {
            return Vec::new();
        };
        for i in fresh(&mut self.seen, series) {
            let kl = series.value(i);
            if !kl.is_finite() {
                continue;
            }
            self.last = kl;
            if !self.latch.is_suspicious() {
                if i.is_multiple_of(8) || self.before == 0.0 {
                    // Of sizes: the k1 estimate is noise of either sign while the policy stands still.
                    self.before = self.level.median().unwrap_or(0.0);
                }
                self.level.push(kl.abs());
            }
            if self.before > 0.0 {
                let look = match Look::of(kl / self.before, &KL) {
                    Look::Bad if kl < KL_FLOOR_NATS => Look::Good,
                    look => look,
                };
                self.latch.take(look, at(series, i), &KL);
            } else {
                let look = if kl >= KL_SURE_NATS {
                    Look::Bad
                } else {
                    Look::Good
                };
                self.latch.take(look, at(series, i), &KL);
            }
            if let Some(limit) = self.limit {
                let look = if kl >= limit { Look::Bad } else { Look::Good };
                let now = Threshold {
                    raise_after: 1,
                    ..KL
                };
                self.limit_latch.take(look, at(series, i), &now);
            }
        }
        let name = self.metric;
        let by_limit = raised(&self.limit_latch, name, Severity::Critical, || {
            format!(
                "{name} is {} nats; the guard's limit is {}",
                short(self.last),
                short(self.limit.unwrap_or(f64::NAN))
            )
        });
        if !by_limit.is_empty() {
            return by_limit;
        }
        raised(&self.latch, name, Severity::Critical, || {
            if self.before == 0.0 {
                return format!(
                    "{name} is {} nats; no policy that learns is so far off",
                    short(self.last)
                );
            }
            format!(
                "{name} is {} nats, {} times its level before ({})",
                short(self.last),
                short(self.last / self.before),
                short(self.before)
            )
        })
    }
}

/// Entropy gone and nothing gained.
#[derive(Debug, Default)]
struct EntropyCollapse {
    seen: Seen,
    start: Option<f64>,
    last: f64,
    latch: Latch,
}

/// Reward gained, as a share of its range, that makes a fall of entropy learning.
const GAINED_FRAC: f64 = 0.1;

impl Detector for EntropyCollapse {
    fn threshold(&self) -> &'static Threshold {
        &ENTROPY
    }

    fn check(&mut self, state: &RunState) -> Vec<Raised> {
        let Some((name, series)) = watched(state, &ENTROPY) else {
            return Vec::new();
        };
        if series.len() < 10 {
            return Vec::new();
        }
        let start = *self.start.get_or_insert_with(|| {
            median(
                series.values()[..10]
                    .iter()
                    .copied()
                    .filter(|value| value.is_finite()),
            )
        });
        let reward = Reward::of(state);
        for i in fresh(&mut self.seen, series) {
            let entropy = series.value(i);
            if i < 10 || start <= 0.0 || !entropy.is_finite() {
                continue;
            }
            self.last = entropy;
            let at = at(series, i);
            let mut look = Look::of(entropy / start, &ENTROPY);
            if look == Look::Bad {
                let gain = reward
                    .and_then(|reward| reward.gain_frac(at.step))
                    .unwrap_or(0.0);
                if gain >= GAINED_FRAC {
                    look = Look::Good;
                }
            }
            self.latch.take(look, at, &ENTROPY);
        }
        raised(&self.latch, name, Severity::Critical, || {
            format!(
                "{name} fell from {} to {} nats and the reward has gained nothing",
                short(start),
                short(self.last)
            )
        })
    }
}

/// Answers grow while the reward does: the reward may be paying for length.
#[derive(Debug, Default)]
struct LengthRunaway {
    seen: Seen,
    now: f64,
    then: f64,
    latch: Latch,
}

impl Detector for LengthRunaway {
    fn threshold(&self) -> &'static Threshold {
        &LENGTH
    }

    fn check(&mut self, state: &RunState) -> Vec<Raised> {
        let Some((name, series)) = watched(state, &LENGTH) else {
            return Vec::new();
        };
        let reward = Reward::of(state);
        for i in fresh(&mut self.seen, series) {
            let Some(then) = (i + 1)
                .checked_sub(60)
                .filter(|then| *then as u64 >= LENGTH_GRACE_STEPS)
            else {
                continue;
            };
            let values = series.values();
            let (Some(long), Some(was)) =
                (mean(&values[i - 9..=i]), mean(&values[then..then + 10]))
            else {
                continue;
            };
            (self.now, self.then) = (long, was);
            let at_now = at(series, i);
            let mut look = Look::of(long / was, &LENGTH);
            if look == Look::Bad
                && reward
                    .is_some_and(|reward| reward.at(at_now.step) < reward.at(series.step(then + 9)))
            {
                // Longer and worse: not a reward that pays for length.
                look = Look::Between;
            }
            self.latch.take(look, at_now, &LENGTH);
        }
        raised(&self.latch, name, Severity::Warning, || {
            format!(
                "answers grew from {} to {} tokens in 50 steps while the reward rose or stayed",
                short(self.then),
                short(self.now)
            )
        })
    }
}

/// Nothing left to learn from, and the task is not solved.
#[derive(Debug)]
struct AllEqualGroups {
    seen: Seen,
    recent: Window,
    latch: Latch,
}

impl Default for AllEqualGroups {
    fn default() -> Self {
        Self {
            seen: Seen::default(),
            recent: Window::new(5),
            latch: Latch::default(),
        }
    }
}

impl Detector for AllEqualGroups {
    fn threshold(&self) -> &'static Threshold {
        &ALL_EQUAL
    }

    fn check(&mut self, state: &RunState) -> Vec<Raised> {
        let Some((name, series)) = watched(state, &ALL_EQUAL) else {
            return Vec::new();
        };
        let reward = Reward::of(state);
        for i in fresh(&mut self.seen, series) {
            self.recent.push(series.value(i));
            let Some(share) = self.recent.mean() else {
                continue;
            };
            let at = at(series, i);
            let mut look = Look::of(share, &ALL_EQUAL);
            if look == Look::Bad && reward.is_some_and(|reward| reward.is_solved(at.step)) {
                look = Look::Good;
            }
            self.latch.take(look, at, &ALL_EQUAL);
        }
        raised(&self.latch, name, Severity::Warning, || {
            format!(
                "in {} % of the groups all samples have the same reward: nothing is learned from them",
                short(self.recent.mean().unwrap_or(1.0) * 100.0)
            )
        })
    }
}

/// The clip binds the step.
#[derive(Debug, Default)]
struct ClipSaturation {
    seen: Seen,
    last: f64,
    latch: Latch,
}

impl Detector for ClipSaturation {
    fn threshold(&self) -> &'static Threshold {
        &CLIP
    }

    fn check(&mut self, state: &RunState) -> Vec<Raised> {
        let Some((name, series)) = watched(state, &CLIP) else {
            return Vec::new();
        };
        for i in fresh(&mut self.seen, series) {
            if series.value(i).is_finite() {
                self.last = series.value(i);
                self.latch
                    .take(Look::of(self.last, &CLIP), at(series, i), &CLIP);
            }
        }
        raised(&self.latch, name, Severity::Warning, || {
            format!("{} % of the tokens are clipped", short(self.last * 100.0))
        })
    }
}

/// Weights take longer and longer to reach the generator.
#[derive(Debug)]
struct SyncDrift {
    seen: Seen,
    recent: Window,
    level: Option<f64>,
    latch: Latch,
}

impl Default for SyncDrift {
    fn default() -> Self {
        Self {
            seen: Seen::default(),
            recent: Window::new(8),
            level: None,
            latch: Latch::default(),
        }
    }
}

impl Detector for SyncDrift {
    fn threshold(&self) -> &'static Threshold {
        &SYNC
    }

    fn check(&mut self, state: &RunState) -> Vec<Raised> {
        let Some((name, series)) = watched(state, &SYNC) else {
            return Vec::new();
        };
        if series.len() < 18 {
            return Vec::new();
        }
        let level = *self.level.get_or_insert_with(|| {
            median(
                series.values()[2..18]
                    .iter()
                    .copied()
                    .filter(|ms| ms.is_finite()),
            )
        });
        for i in fresh(&mut self.seen, series) {
            self.recent.push(series.value(i));
            if i < 18 || level <= 0.0 {
                continue;
            }
            let Some(now) = self.recent.median() else {
                continue;
            };
            let look = match Look::of(now / level, &SYNC) {
                Look::Bad if now < level + SYNC_FLOOR_MS => Look::Between,
                look => look,
            };
            self.latch.take(look, at(series, i), &SYNC);
        }
        raised(&self.latch, name, Severity::Warning, || {
            format!(
                "a weight sync takes {} ms; at the start it took {}",
                short(self.recent.median().unwrap_or(f64::NAN)),
                short(level)
            )
        })
    }
}
