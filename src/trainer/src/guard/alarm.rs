//! The alarms that guards watch: a fold of the few metrics that their detectors read, and nothing else of the run.

use std::collections::BTreeMap;

use runlog::alarms::{Alarms, Limits};
use runlog::event::{Event, EventKind};
use runlog::number::{Number, Values};
use runlog::state::RunState;

#[derive(Debug)]
pub(super) struct AlarmWatch {
    names: Vec<String>,
    state: RunState,
    alarms: Alarms,
}

impl AlarmWatch {
    pub fn new(names: Vec<String>) -> Self {
        Self {
            state: RunState::default(),
            alarms: Alarms::only(names.clone(), Limits::default()),
            names,
        }
    }

    pub fn step(&mut self, elapsed_ms: f64, step: u64, values: &Values) {
        let read = values
            .iter()
            .filter(|(name, _)| Alarms::reads(&self.names, name))
            .map(|(name, value)| (name.clone(), *value))
            .collect();
        self.apply(elapsed_ms, step, read);
        self.alarms.follow(&self.state);
    }

    fn apply(&mut self, elapsed_ms: f64, step: u64, values: Values) {
        self.event(
            elapsed_ms,
            EventKind::StepEnded {
                step,
                policy_version: step,
                values,
            },
        );
    }

    fn event(&mut self, elapsed_ms: f64, kind: EventKind) {
        self.state.apply(&Event {
            seq: self.state.events,
            elapsed_ms,
            kind,
        });
    }

    pub fn is_raised(&self, name: &str) -> bool {
        self.alarms.active().iter().any(|found| found.name == name)
    }

    /// The metrics that are held.
    #[cfg(test)]
    pub fn kept(&self) -> Vec<&str> {
        self.state.series.iter().map(|(name, _)| name).collect()
    }

    /// What came after `step` is forgotten.
    pub fn rolled_back(&mut self, step: u64) {
        self.event(
            self.state.elapsed_ms,
            EventKind::RunResumed {
                from_step: step,
                checkpoint: None,
                lost_steps: 0,
                passed_over: Vec::new(),
            },
        );
        self.alarms = Alarms::only(self.names.clone(), Limits::default());
        self.alarms.follow(&self.state);
    }

    /// The run's log as far as `until`.
    pub fn recall(&mut self, log: &RunState, until: u64) {
        let mut steps: BTreeMap<u64, (f64, Values)> = BTreeMap::new();
        for (name, series) in log.series.iter() {
            if !Alarms::reads(&self.names, name) {
                continue;
            }
            for at in 0..series.len() {
                let point = series.point(at);
                if (1..=until).contains(&point.step) {
                    let entry = steps.entry(point.step);
                    let (elapsed_ms, values) = entry.or_default();
                    *elapsed_ms = point.elapsed_ms;
                    values.insert(name.to_owned(), Number(series.value(at)));
                }
            }
        }
        *self = Self::new(std::mem::take(&mut self.names));
        for (step, (elapsed_ms, values)) in steps {
            self.apply(elapsed_ms, step, values);
        }
        self.alarms.follow(&self.state);
    }
}
