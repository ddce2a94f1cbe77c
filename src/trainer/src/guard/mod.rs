//! Guards: values go in, trips come out. What a trip does to the run is `act`'s business.
//!
//! ```text
//!  StepEnded, EvalEnded ─► Guards::observe ─► a Watcher each: window, baseline, best, streak ─► Trip {reason, rung}
//! ```
//! Pure: no clock, no file, no tensor; the same values give the same trips. Not judged are the first `after` steps, and
//! `cooldown` steps after a trip. A relapse (a trip before `calm` good values in a row) does the guard's next rung.

mod act;
mod probe;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use experiment::guards::{Against, Condition, Guard, Rung, Watch};
use runlog::alarms::{Alarms, Limits};
use runlog::event::{Event, EventKind};
use runlog::number::Values;
use runlog::state::RunState;

pub use act::Acting;
pub use probe::{PROBE_METRIC, Probe};

/// A guard has tripped.
#[derive(Debug, Clone, PartialEq)]
pub struct Trip {
    pub guard: String,
    /// The metric or alarm it is about.
    pub watched: String,
    pub step: u64,
    /// First bad value of the streak.
    pub since_step: u64,
    pub value: f64,
    pub limit: f64,
    /// `rollout_corr/k3_kl is 0.031, above 0.02, for 1 value`
    pub reason: String,
    /// Trips before this one without a calm between.
    pub relapse: usize,
    pub rung: Rung,
}

/// One guard over its run.
#[derive(Debug)]
struct Watcher {
    guard: Guard,
    window: VecDeque<f64>,
    /// Values until the baseline is known.
    first: Vec<f64>,
    baseline: Option<f64>,
    best: Option<f64>,
    previous: Option<f64>,
    streak: u32,
    since_step: u64,
    good: u32,
    trips: usize,
    last_trip: Option<u64>,
}

/// All guards of a run.
#[derive(Debug)]
pub struct Guards {
    watchers: Vec<Watcher>,
    /// Steps in which only the critic trains.
    warmup_steps: u64,
    /// Folds the run for the alarms; None when no guard watches one.
    alarms: Option<(RunState, Alarms)>,
}

impl Guards {
    pub fn new(guards: &[Guard], warmup_steps: u64) -> Self {
        let watches_alarm = guards
            .iter()
            .any(|guard| matches!(guard.watch, Watch::Alarm(_)));
        Self {
            watchers: guards.iter().cloned().map(Watcher::new).collect(),
            warmup_steps,
            alarms: watches_alarm.then(|| (RunState::default(), Alarms::new(Limits::default()))),
        }
    }

    /// Takes the values of a step or an evaluation (`kind`, one of the two events) in; gives the guards that trip.
    pub fn observe(&mut self, elapsed_ms: f64, kind: &EventKind) -> Vec<Trip> {
        let (step, values) = match kind {
            EventKind::StepEnded { step, values, .. }
            | EventKind::EvalEnded { step, values, .. } => (*step, values),
            _ => return Vec::new(),
        };
        if let Some((state, alarms)) = &mut self.alarms {
            state.apply(&Event {
                seq: state.events,
                elapsed_ms,
                kind: kind.clone(),
            });
            alarms.follow(state);
        }
        let is_step = matches!(kind, EventKind::StepEnded { .. });
        let mut trips = Vec::new();
        for watcher in &mut self.watchers {
            let seen = match &watcher.guard.watch {
                Watch::Metric { metrics, .. } => watched(metrics, values),
                Watch::Alarm(name) => {
                    self.alarms.as_ref().filter(|_| is_step).map(|(_, alarms)| {
                        let is_raised = alarms.active().iter().any(|found| found.name == *name);
                        (name.clone(), f64::from(u8::from(is_raised)))
                    })
                }
            };
            let Some((name, value)) = seen else { continue };
            trips.extend(watcher.observe(step, &name, value, self.warmup_steps));
        }
        trips
    }

    /// The run went back to a checkpoint: what was seen since says nothing about what follows. Baselines, bests and how often
    /// each guard tripped stay.
    pub fn rolled_back(&mut self) {
        for watcher in &mut self.watchers {
            watcher.window.clear();
            watcher.streak = 0;
            watcher.previous = None;
        }
    }
}

/// The first pattern that fits a recorded metric, and the mean of all that fit it.
fn watched(metrics: &[String], values: &Values) -> Option<(String, f64)> {
    metrics.iter().find_map(|pattern| {
        let fitting: Vec<f64> = values
            .iter()
            .filter(|(name, _)| experiment::glob(pattern, name))
            .map(|(_, value)| value.0)
            .collect();
        let count = fitting.len();
        (count > 0).then(|| (pattern.clone(), fitting.iter().sum::<f64>() / count as f64))
    })
}

impl Watcher {
    fn new(guard: Guard) -> Self {
        Self {
            guard,
            window: VecDeque::new(),
            first: Vec::new(),
            baseline: None,
            best: None,
            previous: None,
            streak: 0,
            since_step: 0,
            good: 0,
            trips: 0,
            last_trip: None,
        }
    }

    fn observe(&mut self, step: u64, name: &str, value: f64, warmup_steps: u64) -> Option<Trip> {
        // Step 0 is the evaluation or probe of the starting weights: a baseline, and nothing to judge.
        let is_settled = step > warmup_steps + self.guard.after;
        if !is_settled && step > 0 {
            return None;
        }
        self.window.push_back(value);
        if self.window.len() > self.guard.window as usize {
            self.window.pop_front();
        }
        let mean = self.window.iter().sum::<f64>() / self.window.len() as f64;
        let (limit, words) = self.limit(mean);
        let is_upper = self.is_upper();
        let is_beyond = |limit| {
            if is_upper { mean > limit } else { mean < limit }
        };
        let is_bad = limit.is_some_and(is_beyond) || !mean.is_finite();
        self.previous = Some(mean);
        if mean.is_finite() {
            self.best = Some(self.best.map_or(mean, |best| best.max(mean)));
        }
        if !is_bad || step == 0 {
            self.streak = 0;
            self.good = self.good.saturating_add(1);
            if self.good >= self.guard.calm {
                self.trips = 0;
            }
            return None;
        }
        self.good = 0;
        if self.streak == 0 {
            self.since_step = step;
        }
        self.streak += 1;
        let cools = self
            .last_trip
            .is_some_and(|last| step <= last + self.guard.cooldown);
        if self.streak < self.guard.consecutive || cools {
            return None;
        }
        let relapse = self.trips;
        let streak = std::mem::take(&mut self.streak);
        self.trips += 1;
        self.last_trip = Some(step);
        let values = if streak == 1 {
            "value"
        } else {
            "values in a row"
        };
        Some(Trip {
            guard: self.guard.name.clone(),
            watched: name.to_owned(),
            step,
            since_step: self.since_step,
            value: mean,
            limit: limit.unwrap_or(f64::NAN),
            reason: match self.guard.watch {
                Watch::Alarm(_) => format!("alarm {name} is raised, for {streak} {values}"),
                Watch::Metric { .. } => {
                    format!("{name} is {mean:.4}, {words}, for {streak} {values}")
                }
            },
            relapse,
            rung: self.guard.rung(relapse),
        })
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
                let limit = self
                    .baseline(value, points)
                    .map(|baseline| baseline * ratio);
                (
                    limit,
                    format!("above {ratio} times its start ({})", known(self.baseline)),
                )
            }
            Condition::BelowBaseline { ratio, points } => {
                let limit = self
                    .baseline(value, points)
                    .map(|baseline| baseline * ratio);
                (
                    limit,
                    format!("below {ratio} times its start ({})", known(self.baseline)),
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
                (
                    limit,
                    format!(
                        "more than {} % below {what} ({})",
                        share * 100.0,
                        known(from)
                    ),
                )
            }
        }
    }

    fn from(&self, against: Against) -> (Option<f64>, &'static str) {
        match against {
            Against::Best => (self.best, "its best"),
            Against::Previous => (self.previous, "the value before"),
        }
    }

    /// The median of the first `points` values, once they are there.
    fn baseline(&mut self, value: f64, points: u32) -> Option<f64> {
        if self.baseline.is_none() && value.is_finite() {
            self.first.push(value);
            if self.first.len() >= points as usize {
                self.first.sort_unstable_by(f64::total_cmp);
                self.baseline = Some(self.first[self.first.len() / 2]);
                // This value made the baseline; the next one is judged by it.
                return None;
            }
        }
        self.baseline
    }
}

fn known(number: Option<f64>) -> String {
    number.map_or_else(
        || "not known yet".to_owned(),
        |number| format!("{number:.4}"),
    )
}
