//! Guards: values go in, trips come out. What a trip does to the run is `act`'s business.
//!
//! ```text
//!  StepEnded, EvalEnded ─► Guards::observe ─► a Watcher each: window, baseline, best, streak ─► Trip {reason, rung}
//!                                                                                                │
//!  lathe ctl trip, clear, mute, roll_back ─► order ─────────────────────────► act, back: Training ◄┘
//! ```
//! Pure up to the trip: no clock, no file, no tensor; the same values give the same trips. Not judged are the first `after`
//! steps, and `cooldown` steps after a trip. A relapse (a trip before `calm` good values in a row) does the guard's next rung.

mod act;
mod alarm;
mod back;
mod order;
mod probe;
#[cfg(test)]
mod tests;
mod watcher;

use std::collections::BTreeMap;

use experiment::guards::{Guard, Rung, Watch};
use runlog::control::GuardState;
use runlog::event::{EventKind, GuardArmed};
use runlog::number::Values;
use runlog::state::RunState;
use serde::{Deserialize, Serialize};

pub use act::{Acting, Saved};
use alarm::AlarmWatch;
pub(crate) use back::mode_name;
pub use order::ALL;
pub use probe::{PROBE_METRIC, Probe};
pub use watcher::Seen;
use watcher::Watcher;

/// A guard has tripped.
#[derive(Debug, Clone, PartialEq)]
pub struct Trip {
    pub guard: String,
    /// The metric or alarm it is about.
    pub watched: String,
    pub step: u64,
    /// The first bad value since the last good one.
    pub since_step: u64,
    pub value: f64,
    pub limit: f64,
    /// `rollout_corr/k3_kl is 0.031, above 0.02, for 1 value`
    pub reason: String,
    /// Trips before this one without a calm between.
    pub relapse: usize,
    pub rung: Rung,
    /// The last step in which it does not trip again.
    pub cools_until: Option<u64>,
    /// Who tripped it by hand.
    pub by: Option<String>,
}

/// All guards of a run.
#[derive(Debug)]
pub struct Guards {
    watchers: Vec<Watcher>,
    /// Steps in which only the critic trains.
    warmup_steps: u64,
    /// None when no guard watches an alarm.
    alarms: Option<AlarmWatch>,
}

/// What a guard remembers, and what it was of: another condition's memory is worth nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    watches: String,
    condition: String,
    seen: Seen,
}

impl Guards {
    pub fn new(guards: &[Guard], warmup_steps: u64) -> Self {
        let alarms: Vec<String> = guards
            .iter()
            .filter_map(|guard| match &guard.watch {
                Watch::Alarm(name) => Some(name.clone()),
                Watch::Metric { .. } => None,
            })
            .collect();
        Self {
            watchers: guards.iter().cloned().map(Watcher::new).collect(),
            warmup_steps,
            alarms: (!alarms.is_empty()).then(|| AlarmWatch::new(alarms)),
        }
    }

    /// Takes the values of a step or an evaluation (`kind`, one of the two events) in; gives the guards that trip.
    pub fn observe(&mut self, elapsed_ms: f64, kind: &EventKind) -> Vec<Trip> {
        let (step, values) = match kind {
            EventKind::StepEnded { step, values, .. }
            | EventKind::EvalEnded { step, values, .. } => (*step, values),
            _ => return Vec::new(),
        };
        let is_step = matches!(kind, EventKind::StepEnded { .. });
        if let (Some(alarms), true) = (&mut self.alarms, is_step) {
            alarms.step(elapsed_ms, step, values);
        }
        let mut trips = Vec::new();
        for watcher in &mut self.watchers {
            let seen = match &watcher.guard.watch {
                Watch::Metric { metrics, .. } => watched(metrics, values),
                Watch::Alarm(name) => self
                    .alarms
                    .as_ref()
                    .filter(|_| is_step)
                    .map(|alarms| (name.clone(), f64::from(u8::from(alarms.is_raised(name))))),
            };
            let Some((name, value)) = seen else { continue };
            trips.extend(watcher.observe(step, &name, value, self.warmup_steps));
        }
        trips
    }

    /// The run went back to the weights of `step`: what was seen since says nothing about what follows.
    pub fn rolled_back(&mut self, step: u64) {
        for watcher in &mut self.watchers {
            watcher.rolled_back();
        }
        if let Some(alarms) = &mut self.alarms {
            alarms.rolled_back(step);
        }
    }

    /// The first bad value of whatever is wrong now; None: nothing is.
    pub fn trouble(&self) -> Option<u64> {
        self.watchers.iter().filter_map(Watcher::trouble).min()
    }

    pub fn names(&self) -> Vec<&str> {
        let names = self.watchers.iter();
        names.map(|watcher| watcher.guard.name.as_str()).collect()
    }

    fn find(&mut self, name: &str) -> Option<&mut Watcher> {
        let mut all = self.watchers.iter_mut();
        all.find(|watcher| watcher.guard.name == name)
    }

    /// As they stand after `step`; `sync_left`: the guard that has synchronous steps under way, and how many.
    pub fn states(&self, step: u64, sync_left: Option<(&str, u64)>) -> Vec<GuardState> {
        self.watchers
            .iter()
            .map(|watcher| {
                let left = sync_left.filter(|(name, _)| *name == watcher.guard.name);
                watcher.state(step, left.map(|(_, rounds)| rounds))
            })
            .collect()
    }

    /// For the log, as the run starts or goes on after `step`; None: there are none.
    pub fn armed(&self, step: u64) -> Option<EventKind> {
        let guards: Vec<GuardArmed> = self
            .states(step, None)
            .into_iter()
            .map(|state| GuardArmed {
                name: state.name,
                watches: state.watches,
                condition: state.condition,
                ladder: state.ladder,
                cools_until: state.cools_until,
                is_muted: state.is_muted,
                muted_until: state.muted_until,
            })
            .collect();
        (!guards.is_empty()).then_some(EventKind::GuardsArmed { guards })
    }

    /// What each remembers, by name.
    pub fn remembered(&self) -> BTreeMap<String, Remembered> {
        self.watchers
            .iter()
            .map(|Watcher { guard, seen }| {
                let remembered = Remembered {
                    watches: guard.watches(),
                    condition: guard.condition(),
                    seen: seen.clone(),
                };
                (guard.name.clone(), remembered)
            })
            .collect()
    }

    /// Gives each guard back what it remembered. One that watches something else now, or is new, begins anew.
    pub fn recall(&mut self, remembered: &BTreeMap<String, Remembered>) {
        for Watcher { guard, seen } in &mut self.watchers {
            if let Some(saved) = remembered.get(&guard.name)
                && saved.watches == guard.watches()
                && saved.condition == guard.condition()
            {
                *seen = saved.seen.clone();
            }
        }
    }

    /// The alarms that guards watch see the run's log as far as `step`: their trends begin there, not at the resume.
    pub fn recall_alarms(&mut self, log: &RunState, step: u64) {
        if let Some(alarms) = &mut self.alarms {
            alarms.recall(log, step);
        }
    }
}

/// The first pattern that fits a recorded metric, and the mean of all that fit it.
fn watched(metrics: &[String], values: &Values) -> Option<(String, f64)> {
    metrics.iter().find_map(|pattern| {
        if !pattern.contains('*') {
            return values.get(pattern).map(|value| (pattern.clone(), value.0));
        }
        let fitting: Vec<f64> = values
            .iter()
            .filter(|(name, _)| experiment::glob(pattern, name))
            .map(|(_, value)| value.0)
            .collect();
        let count = fitting.len();
        (count > 0).then(|| (pattern.clone(), fitting.iter().sum::<f64>() / count as f64))
    })
}
