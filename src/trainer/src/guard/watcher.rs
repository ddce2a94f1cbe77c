//! One guard over its run: what it has seen, and whether that is too much.

use std::collections::VecDeque;

use experiment::guards::{Against, Condition, Guard, Watch};
use runlog::control::GuardState;
use runlog::number::Number;
use runlog::state::Muted;
use serde::{Deserialize, Serialize};

use super::Trip;

#[derive(Debug)]
pub(super) struct Watcher {
    pub guard: Guard,
    pub seen: Seen,
}

/// Everything a guard remembers; it lies in checkpoints.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    window: VecDeque<Number>,
    /// Values until the baseline is known.
    first: Vec<f64>,
    baseline: Option<f64>,
    /// Only where a drop from it is watched.
    best: Option<f64>,
    previous: Option<f64>,
    /// The mean of the window, and what it was compared with.
    value: Option<Number>,
    limit: Option<Number>,
    /// Bad values in a row since the last trip.
    streak: u32,
    /// The first bad value since the last good one.
    since: Option<u64>,
    good: u32,
    /// Trips without a calm since.
    relapses: usize,
    trips: u64,
    last_trip: Option<u64>,
    muted: Option<Muted>,
}

impl Watcher {
    pub fn new(guard: Guard) -> Self {
        Self {
            guard,
            seen: Seen::default(),
        }
    }

    pub fn observe(
        &mut self,
        step: u64,
        name: &str,
        value: f64,
        warmup_steps: u64,
    ) -> Option<Trip> {
        // Step 0 is the evaluation or probe of the starting weights: a baseline, and nothing to judge.
        let is_settled = step > warmup_steps + self.guard.after;
        if !is_settled && step > 0 {
            return None;
        }
        let mean = self.take(value);
        let (limit, words) = self.limit(mean);
        let is_upper = self.is_upper();
        let is_beyond = |limit| {
            if is_upper { mean > limit } else { mean < limit }
        };
        let is_bad = limit.is_some_and(is_beyond) || !mean.is_finite();
        self.remember(mean);
        self.seen.value = Some(Number(mean));
        self.seen.limit = limit.map(Number);
        let seen = &mut self.seen;
        if !is_bad || step == 0 {
            seen.streak = 0;
            seen.since = None;
            seen.good = seen.good.saturating_add(1);
            if seen.good >= self.guard.calm {
                seen.relapses = 0;
            }
            return None;
        }
        seen.good = 0;
        seen.since.get_or_insert(step);
        seen.streak = seen.streak.saturating_add(1);
        let streak = seen.streak;
        if streak < self.guard.consecutive || self.cools(step) || self.is_muted(step) {
            return None;
        }
        let values = if streak == 1 {
            "value"
        } else {
            "values in a row"
        };
        let reason = match self.guard.watch {
            Watch::Alarm(_) => format!("alarm {name} is raised, for {streak} {values}"),
            Watch::Metric { .. } => format!("{name} is {mean:.4}, {words}, for {streak} {values}"),
        };
        Some(self.trip(step, name, reason))
    }

    /// Its next rung, whatever it sees.
    pub fn trip_by_hand(&mut self, step: u64, who: &str) -> Trip {
        let seen = match (self.seen.value, self.seen.limit) {
            (Some(value), Some(limit)) => format!(
                "{} is {:.4} and its limit {:.4}",
                self.guard.watches(),
                value.0,
                limit.0
            ),
            _ => format!("{} has no value yet", self.guard.watches()),
        };
        let watches = self.guard.watches();
        let mut trip = self.trip(step, &watches, format!("tripped by {who}; {seen}"));
        trip.by = Some(who.to_owned());
        trip
    }

    fn trip(&mut self, step: u64, watched: &str, reason: String) -> Trip {
        let seen = &mut self.seen;
        let relapse = seen.relapses;
        seen.streak = 0;
        seen.relapses += 1;
        seen.trips += 1;
        seen.last_trip = Some(step);
        Trip {
            guard: self.guard.name.clone(),
            watched: watched.to_owned(),
            step,
            since_step: seen.since.unwrap_or(step),
            value: seen.value.map_or(f64::NAN, |value| value.0),
            limit: seen.limit.map_or(f64::NAN, |limit| limit.0),
            reason,
            relapse,
            rung: self.guard.rung(relapse),
            cools_until: Some(step + self.guard.cooldown).filter(|until| *until > step),
            by: None,
        }
    }

    /// The first bad value of what is wrong now.
    pub fn trouble(&self) -> Option<u64> {
        self.seen.since
    }

    /// The run went back: what was seen since says nothing about what follows. Baseline and best stay, and so do trips,
    /// cooldown and mute, or the same cause would begin at the ladder's foot each time.
    pub fn rolled_back(&mut self) {
        self.seen.window.clear();
        self.seen.streak = 0;
        self.seen.since = None;
        self.seen.previous = None;
    }

    /// As if it had never tripped.
    pub fn clear(&mut self) {
        let seen = &mut self.seen;
        seen.window.clear();
        seen.streak = 0;
        seen.since = None;
        seen.relapses = 0;
        seen.last_trip = None;
    }

    pub fn mute(&mut self, until: Option<u64>) {
        self.seen.muted = Some(Muted { until });
    }

    pub fn unmute(&mut self) {
        self.seen.muted = None;
    }

    /// Whether a value of `step` cannot trip it.
    fn is_muted(&self, step: u64) -> bool {
        let muted = self.seen.muted;
        muted.is_some_and(|muted| muted.until.is_none_or(|until| step <= until))
    }

    fn cools(&self, step: u64) -> bool {
        let last = self.seen.last_trip;
        last.is_some_and(|last| step <= last + self.guard.cooldown)
    }

    /// As it stands after `step`.
    pub fn state(&self, step: u64, sync_left: Option<u64>) -> GuardState {
        let (guard, seen) = (&self.guard, &self.seen);
        let is_muted = self.is_muted(step + 1);
        GuardState {
            name: guard.name.clone(),
            watches: guard.watches(),
            condition: guard.condition(),
            ladder: guard.ladder.iter().map(ToString::to_string).collect(),
            next: guard.rung(seen.relapses).to_string(),
            value: seen.value,
            limit: seen.limit,
            window_filled: seen.window.len() as u64,
            window: u64::from(guard.window),
            streak: u64::from(seen.streak),
            consecutive: u64::from(guard.consecutive),
            trips: seen.trips,
            relapses: seen.relapses as u64,
            cools_until: seen
                .last_trip
                .map(|last| last + guard.cooldown)
                .filter(|until| *until > step),
            is_muted,
            muted_until: seen
                .muted
                .filter(|_| is_muted)
                .and_then(|muted| muted.until),
            sync_left,
        }
    }

    /// Into the window; gives its mean.
    fn take(&mut self, value: f64) -> f64 {
        let window = &mut self.seen.window;
        window.push_back(Number(value));
        if window.len() > self.guard.window as usize {
            window.pop_front();
        }
        window.iter().map(|value| value.0).sum::<f64>() / window.len() as f64
    }

    /// Keeps what the condition will be measured from.
    fn remember(&mut self, mean: f64) {
        let against = match &self.guard.watch {
            Watch::Metric {
                condition:
                    Condition::DropPoints { against, .. } | Condition::DropRelative { against, .. },
                ..
            } => *against,
            _ => return,
        };
        // Nothing can be measured from what is not finite.
        if !mean.is_finite() {
            return;
        }
        match against {
            Against::Best => {
                self.seen.best = Some(self.seen.best.map_or(mean, |best| best.max(mean)));
            }
            Against::Previous => self.seen.previous = Some(mean),
        }
    }

    fn is_upper(&self) -> bool {
        match &self.guard.watch {
            Watch::Alarm(_) => true,
            Watch::Metric { condition, .. } => matches!(
                condition,
                Condition::Above(_) | Condition::AboveBaseline { .. }
            ),
        }
    }

    /// What a value is compared with (None: not known yet), and in words.
    fn limit(&mut self, value: f64) -> (Option<f64>, String) {
        let condition = match &self.guard.watch {
            Watch::Alarm(_) => return (Some(0.5), String::new()),
            Watch::Metric { condition, .. } => *condition,
        };
        match condition {
            Condition::Above(limit) => (Some(limit), format!("above {limit}")),
            Condition::Below(limit) => (Some(limit), format!("below {limit}")),
            Condition::AboveBaseline { ratio, points } => {
                let baseline = self.baseline(value, points);
                let start = known(self.seen.baseline);
                (
                    baseline.map(|baseline| baseline * ratio),
                    format!("above {ratio} times its start ({start})"),
                )
            }
            Condition::BelowBaseline { ratio, points } => {
                let baseline = self.baseline(value, points);
                let start = known(self.seen.baseline);
                (
                    baseline.map(|baseline| baseline * ratio),
                    format!("below {ratio} times its start ({start})"),
                )
            }
            Condition::DropPoints { points, against } => {
                let (from, what) = self.from(against);
                (
                    from.map(|from| from - points),
                    format!("more than {points} below {what} ({})", known(from)),
                )
            }
            Condition::DropRelative { share, against } => {
                let (from, what) = self.from(against);
                let limit = from.map(|from| from - share * from.abs());
                let percent = share * 100.0;
                (
                    limit,
                    format!("more than {percent} % below {what} ({})", known(from)),
                )
            }
        }
    }

    fn from(&self, against: Against) -> (Option<f64>, &'static str) {
        match against {
            Against::Best => (self.seen.best, "its best"),
            Against::Previous => (self.seen.previous, "the value before"),
        }
    }

    /// The median of the first `points` values, once they are there.
    fn baseline(&mut self, value: f64, points: u32) -> Option<f64> {
        let seen = &mut self.seen;
        if seen.baseline.is_none() && value.is_finite() {
            seen.first.push(value);
            if seen.first.len() >= points as usize {
                seen.first.sort_unstable_by(f64::total_cmp);
                seen.baseline = Some(seen.first[seen.first.len() / 2]);
                seen.first.clear();
                // This value made the baseline; the next one is judged by it.
                return None;
            }
        }
        seen.baseline
    }
}

fn known(number: Option<f64>) -> String {
    number.map_or_else(
        || "not known yet".to_owned(),
        |number| format!("{number:.4}"),
    )
}
