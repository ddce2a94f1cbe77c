//! The guards of a run: what each watches, how often it tripped and what it did, and what people made of it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{AlarmRecord, ControlRecord, Outcome};
use crate::control::ALL_GUARDS;
use crate::event::{EventKind, GuardArmed, GuardDone};
use crate::number::Number;

/// Trips kept one by one; each guard counts all of its own.
pub const RECENT_TRIPS: usize = 500;

/// In the order of the experiment; guards of a log that does not name them first, in the order of their first trip.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Guards {
    pub all: Vec<GuardRecord>,
    /// Of all guards, the oldest first.
    pub trips: VecDeque<TripRecord>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuardRecord {
    pub name: String,
    /// The metric (or patterns of such) or `alarm NAME`.
    pub watches: String,
    pub condition: String,
    pub ladder: Vec<String>,
    pub trips: u64,
    /// The last step in which it does not trip again.
    pub cools_until: Option<u64>,
    pub muted: Option<Muted>,
}

/// Until when a guard does not trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Muted {
    /// The last muted step; None: until it is unmuted.
    pub until: Option<u64>,
}

/// What a guard saw, and what was then done; see [`EventKind::GuardTripped`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TripRecord {
    pub guard: String,
    /// The metric, or the alarm.
    pub watched: String,
    pub elapsed_ms: f64,
    /// Steps trained at that moment.
    pub step: u64,
    /// The first bad value.
    pub since_step: u64,
    pub value: Number,
    pub limit: Number,
    pub reason: String,
    /// Trips before it without a calm since.
    pub relapse: u64,
    pub done: Vec<GuardDone>,
    /// Who tripped it by hand.
    pub by: Option<String>,
}

impl TripRecord {
    /// Whether this alarm is the one that is recorded beside the trip and says the same.
    pub fn is_told_by(&self, alarm: &AlarmRecord) -> bool {
        alarm.step == Some(self.step)
            && alarm.name.strip_prefix("guard ") == Some(self.guard.as_str())
    }
}

impl GuardRecord {
    fn new(armed: GuardArmed) -> Self {
        let GuardArmed {
            name,
            watches,
            condition,
            ladder,
            cools_until,
            is_muted,
            muted_until,
        } = armed;
        Self {
            name,
            watches,
            condition,
            ladder,
            trips: 0,
            cools_until,
            muted: is_muted.then_some(Muted { until: muted_until }),
        }
    }

    pub fn is_muted(&self, step: u64) -> bool {
        self.muted
            .is_some_and(|muted| muted.until.is_none_or(|until| step < until))
    }

    /// As it stood after `step`: `muted until step 40`, `cooling down until step 12`, `armed`.
    pub fn words(&self, step: u64) -> String {
        match self.muted.filter(|_| self.is_muted(step)) {
            Some(Muted { until: Some(until) }) => format!("muted until step {until}"),
            Some(Muted { until: None }) => "muted".to_owned(),
            None => match self.cools_until.filter(|until| step < *until) {
                Some(until) => format!("cooling down until step {until}"),
                None => "armed".to_owned(),
            },
        }
    }
}

impl Guards {
    pub fn find(&self, name: &str) -> Option<&GuardRecord> {
        self.all.iter().find(|guard| guard.name == name)
    }

    /// Of all guards, those that are no longer kept one by one too.
    pub fn trip_count(&self) -> u64 {
        self.all.iter().map(|guard| guard.trips).sum()
    }

    /// The last trip of a guard.
    pub fn last_trip(&self, name: &str) -> Option<&TripRecord> {
        self.trips.iter().rev().find(|trip| trip.guard == name)
    }

    fn entry(&mut self, name: &str, watches: &str) -> &mut GuardRecord {
        let known = self.all.iter().position(|guard| guard.name == name);
        let at = known.unwrap_or_else(|| {
            self.all.push(GuardRecord::new(GuardArmed {
                name: name.to_owned(),
                watches: watches.to_owned(),
                ..GuardArmed::default()
            }));
            self.all.len() - 1
        });
        &mut self.all[at]
    }

    /// Takes a `GuardsArmed` or `GuardTripped`; anything else changes nothing.
    pub(super) fn apply(&mut self, elapsed_ms: f64, kind: &EventKind) {
        match kind {
            EventKind::GuardsArmed { guards } => {
                let mut known = std::mem::take(&mut self.all);
                self.all = guards
                    .iter()
                    .map(|armed| {
                        let before = known.iter().position(|guard| guard.name == armed.name);
                        let mut guard = GuardRecord::new(armed.clone());
                        // The run goes on: what happened has happened, and the rest is what the checkpoint knew.
                        guard.trips = before.map_or(0, |at| known.swap_remove(at).trips);
                        guard
                    })
                    .collect();
            }
            EventKind::GuardTripped {
                guard,
                watched,
                step,
                since_step,
                value,
                limit,
                reason,
                relapse,
                done,
                cools_until,
                by,
            } => {
                let entry = self.entry(guard, watched);
                entry.trips += 1;
                entry.cools_until = *cools_until;
                if self.trips.len() == RECENT_TRIPS {
                    self.trips.pop_front();
                }
                self.trips.push_back(TripRecord {
                    guard: guard.clone(),
                    watched: watched.clone(),
                    elapsed_ms,
                    step: *step,
                    since_step: *since_step,
                    value: *value,
                    limit: *limit,
                    reason: reason.clone(),
                    relapse: *relapse,
                    done: done.clone(),
                    by: by.clone(),
                });
            }
            _ => {}
        }
    }

    /// What somebody did with a guard.
    pub(super) fn control(&mut self, record: &ControlRecord) {
        let (Some(name), Outcome::Applied { until_step, .. }) = (&record.target, &record.outcome)
        else {
            return;
        };
        let is_named = self.find(name).is_some();
        let meant =
            |guard: &&mut GuardRecord| guard.name == *name || (!is_named && name == ALL_GUARDS);
        for guard in self.all.iter_mut().filter(meant) {
            guard.told(&record.command, *until_step);
        }
    }
}

impl GuardRecord {
    fn told(&mut self, command: &str, until_step: Option<u64>) {
        let guard = self;
        match command {
            "mute" => guard.muted = Some(Muted { until: until_step }),
            "unmute" => guard.muted = None,
            "clear" => guard.cools_until = None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RunState;
    use super::*;
    use crate::event::Event;

    fn armed(names: &[&str]) -> EventKind {
        EventKind::GuardsArmed {
            guards: names
                .iter()
                .map(|name| GuardArmed {
                    name: (*name).to_owned(),
                    watches: "actor/ppo_kl".to_owned(),
                    condition: "above 0.02".to_owned(),
                    ladder: vec!["sync 1".to_owned()],
                    ..GuardArmed::default()
                })
                .collect(),
        }
    }

    fn tripped(name: &str, step: u64, relapse: u64) -> EventKind {
        EventKind::GuardTripped {
            guard: name.to_owned(),
            watched: "actor/ppo_kl".to_owned(),
            step,
            since_step: step,
            value: Number(0.03),
            limit: Number(0.02),
            reason: String::new(),
            relapse,
            done: Vec::new(),
            cools_until: Some(step + 5),
            by: None,
        }
    }

    fn told(command: &str, target: &str, until_step: Option<u64>) -> EventKind {
        EventKind::ControlApplied {
            request: 1,
            who: "ana".to_owned(),
            command: command.to_owned(),
            step: 12,
            target: Some(target.to_owned()),
            before: None,
            after: None,
            until_step,
            knob: None,
            from: None,
            to: None,
            from_step: None,
        }
    }

    fn fold(kinds: Vec<EventKind>) -> RunState {
        let events: Vec<Event> = kinds
            .into_iter()
            .enumerate()
            .map(|(seq, kind)| Event {
                seq: seq as u64,
                elapsed_ms: seq as f64,
                kind,
            })
            .collect();
        RunState::fold(&events)
    }

    #[test]
    fn the_log_says_of_each_guard_what_it_did_and_what_was_done_with_it() {
        let mut kinds = vec![armed(&["kl", "ess"]), tripped("kl", 10, 0)];
        let state = fold(kinds.clone());
        let kl = state.guards.find("kl").expect("it is armed");
        assert_eq!(kl.trips, 1);
        assert_eq!(kl.words(12), "cooling down until step 15");
        assert_eq!(kl.words(15), "armed");
        kinds.extend([
            tripped("kl", 16, 1),
            told("clear", "kl", None),
            told("mute", "ess", Some(32)),
        ]);
        let state = fold(kinds.clone());
        let kl = state.guards.find("kl").expect("it is armed");
        assert_eq!((kl.trips, kl.cools_until), (2, None));
        let ess = state.guards.find("ess").expect("it is armed");
        assert_eq!(ess.words(31), "muted until step 32");
        assert_eq!(ess.words(32), "armed");
        assert_eq!(state.guards.last_trip("kl").map(|trip| trip.step), Some(16));
        kinds.extend([told("mute", "all", None), told("unmute", "ess", None)]);
        let state = fold(kinds);
        let words = |name: &str| state.guards.find(name).expect("it is armed").words(13);
        assert_eq!(
            (words("kl"), words("ess")),
            ("muted".to_owned(), "armed".to_owned())
        );
    }

    #[test]
    fn a_resumed_run_keeps_its_trips_and_a_log_without_a_list_makes_one() {
        let state = fold(vec![
            armed(&["a", "b"]),
            tripped("b", 3, 0),
            armed(&["b", "c"]),
            tripped("d", 4, 0),
        ]);
        let all: Vec<(&str, u64)> = state
            .guards
            .all
            .iter()
            .map(|guard| (guard.name.as_str(), guard.trips))
            .collect();
        assert_eq!(all, [("b", 1), ("c", 0), ("d", 1)]);
    }
}
