//! What the trainer itself reported of recorder, loggers and checkpoints, carried for a while.

use std::collections::BTreeMap;

use super::latch::At;
use super::thresholds::CARRIED;
use super::{Detector, Raised, Severity, Threshold};
use crate::recorder::{LOST_ALARM, RECOVERED_ALARM};
use crate::state::{AlarmRecord, RunState};

/// Alarms about training itself have detectors of their own.
const CARRIED_NAMES: [&str; 5] = [
    LOST_ALARM,
    RECOVERED_ALARM,
    "rollouts not recorded",
    "checkpoint not written",
    "old checkpoint not removed",
];
const LOGGER: &str = "logger ";
/// How a logger says that it writes again.
const WORKS_AGAIN: &str = "works again";

#[derive(Debug, Default)]
pub(super) struct Recording {
    seen: u64,
    open: BTreeMap<String, Open>,
}

#[derive(Debug)]
struct Open {
    since: At,
    last_ms: f64,
    message: String,
}

impl Recording {
    fn take(&mut self, alarm: &AlarmRecord, step: u64) {
        if alarm.message.ends_with(WORKS_AGAIN) {
            self.open.remove(&alarm.name);
            return;
        }
        let since = At {
            step: alarm.step.unwrap_or(step),
            elapsed_ms: alarm.elapsed_ms,
        };
        let open = self.open.entry(alarm.name.clone()).or_insert_with(|| Open {
            since,
            last_ms: 0.0,
            message: String::new(),
        });
        if alarm.elapsed_ms - open.last_ms > CARRIED.clear * 1e3 {
            open.since = since;
        }
        open.last_ms = alarm.elapsed_ms;
        open.message.clone_from(&alarm.message);
    }
}

impl Detector for Recording {
    fn threshold(&self) -> &'static Threshold {
        &CARRIED
    }

    fn check(&mut self, state: &RunState) -> Vec<Raised> {
        // Fewer than were seen: it is another state.
        let new = state
            .alarm_count
            .saturating_sub(self.seen)
            .min(state.alarms.len() as u64) as usize;
        self.seen = state.alarm_count;
        for alarm in state.alarms.iter().skip(state.alarms.len() - new) {
            if CARRIED_NAMES.contains(&alarm.name.as_str()) || alarm.name.starts_with(LOGGER) {
                self.take(alarm, state.step);
            }
        }
        self.open
            .retain(|_, open| state.elapsed_ms - open.last_ms <= CARRIED.clear * 1e3);
        self.open
            .iter()
            .map(|(name, open)| Raised {
                subject: name.clone(),
                severity: if name == "checkpoint not written" || name == LOST_ALARM {
                    Severity::Critical
                } else {
                    Severity::Warning
                },
                since: open.since,
                message: open.message.clone(),
            })
            .collect()
    }
}
