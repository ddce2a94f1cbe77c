//! What a trip does to the run, at a step boundary: each action with what stood before and what stands after.

use std::collections::BTreeMap;

use experiment::guards::{Action, Target};
use runlog::control::find_knob;
use runlog::event::{EventKind, GuardDone};
use runlog::number::{Number, Values};
use serde::{Deserialize, Serialize};

use super::{Guards, Remembered, Trip};
use crate::training::{STALENESS, Training};

/// Knobs that `lower_lr` turns.
pub(super) const RATES: [&str; 2] = ["actor_rollout_ref.actor.optim.lr", "critic.optim.lr"];

/// The guards of a run, and what they have under way.
#[derive(Debug)]
pub struct Acting {
    pub(super) guards: Guards,
    pub(super) synchronous: Option<Synchronous>,
    /// Mean rewards of evaluations, by the step they are of, in that order.
    pub(super) evaluations: Vec<(u64, f64)>,
    /// Steps that the run went back behind: checkpoints of `from < step < to` hold what was left.
    pub(super) left_behind: Vec<(u64, u64)>,
}

/// Rounds that a guard has trained synchronously.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Synchronous {
    pub guard: String,
    /// Still to come.
    pub rounds: u32,
    /// The bound of staleness after them.
    pub back_to: u64,
}

/// What guards know, as it lies in a checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    guards: BTreeMap<String, Remembered>,
    pub(super) synchronous: Option<Synchronous>,
    evaluations: Vec<(u64, f64)>,
    left_behind: Vec<(u64, u64)>,
}

impl Saved {
    /// A bound that is given anew wins over a guard's synchronous rounds.
    pub fn end_synchronous(&mut self) {
        self.synchronous = None;
    }

    /// Steps that the run went back behind: checkpoints of `from < step < to` hold what was left.
    pub fn left_behind(&self) -> &[(u64, u64)] {
        &self.left_behind
    }
}

impl Acting {
    pub fn new(guards: Guards) -> Self {
        Self {
            guards,
            synchronous: None,
            evaluations: Vec::new(),
            left_behind: Vec::new(),
        }
    }

    /// Nothing where nothing is guarded: evaluations end beside the training, and checkpoints are else the same bits.
    pub fn save(&self) -> Saved {
        if self.guards.names().is_empty() {
            return Saved::default();
        }
        Saved {
            guards: self.guards.remembered(),
            synchronous: self.synchronous.clone(),
            evaluations: self.evaluations.clone(),
            left_behind: self.left_behind.clone(),
        }
    }

    /// Goes on from what a checkpoint knew.
    pub fn recall(&mut self, saved: Saved) {
        self.guards.recall(&saved.guards);
        let is_known = |under_way: &Synchronous| self.guards.names().contains(&&*under_way.guard);
        self.synchronous = saved.synchronous.filter(is_known);
        self.evaluations = saved.evaluations;
        self.left_behind = saved.left_behind;
    }

    pub fn guards(&mut self) -> &mut Guards {
        &mut self.guards
    }

    fn evaluated(&mut self, step: u64, values: &Values) {
        let scores: Vec<f64> = values
            .iter()
            .filter(|(name, _)| experiment::glob(experiment::guards::GOAL, name))
            .map(|(_, value)| value.0)
            .collect();
        if !scores.is_empty() {
            let mean = scores.iter().sum::<f64>() / scores.len() as f64;
            self.evaluations.push((step, mean));
        }
    }

    /// The mean reward of an evaluation of the weights of `step`.
    pub(super) fn score(&self, step: u64) -> Option<f64> {
        let mut newest_first = self.evaluations.iter().rev();
        newest_first
            .find(|(of, _)| *of == step)
            .map(|(_, score)| *score)
    }
}

impl Training<'_> {
    /// Takes a value of the starting weights in, as a baseline.
    pub fn guards_begin(&mut self, name: &str, value: f64) {
        let start = EventKind::EvalEnded {
            step: 0,
            policy_version: 0,
            samples: 0,
            values: [(name.to_owned(), Number(value))].into(),
        };
        self.guards_see(&start, None);
    }

    /// Takes an event with values in and does what the guards that trip ask for. `drawn_staleness`: the bound that the step's
    /// batch was drawn under.
    pub fn guards_see(&mut self, kind: &EventKind, drawn_staleness: Option<u64>) {
        if let EventKind::EvalEnded { step, values, .. } = kind {
            self.guards.evaluated(*step, values);
        }
        if drawn_staleness == Some(0)
            && let Some(under_way) = &mut self.guards.synchronous
        {
            under_way.rounds = under_way.rounds.saturating_sub(1);
            if under_way.rounds == 0 {
                self.end_synchronous();
            }
        }
        let trips = self.guards.guards.observe(self.recorder.elapsed_ms(), kind);
        for trip in trips {
            self.carry_out(trip);
        }
    }

    /// Whether a guard's synchronous rounds hold the bound of staleness, which is then not the async advisor's to turn.
    pub fn holds_staleness(&self) -> bool {
        self.guards.synchronous.is_some()
    }

    /// The bound of staleness as it was before a guard's synchronous rounds; gives it, when there were some.
    pub(super) fn end_synchronous(&mut self) -> Option<u64> {
        let Synchronous { back_to, .. } = self.guards.synchronous.take()?;
        // It can only fail when every batch is begun, and then it changes none.
        drop(self.turn(STALENESS, back_to as f64));
        Some(back_to)
    }

    /// Does a trip's rung and writes it down; gives what was done.
    pub(super) fn carry_out(&mut self, trip: Trip) -> Vec<GuardDone> {
        // A checkpoint brings its own rates back; they are lowered from where they stand now.
        let rates: Vec<(&str, f64)> = RATES
            .into_iter()
            .filter_map(|key| Some((key, self.knob_value(key)?)))
            .collect();
        let done: Vec<GuardDone> = trip
            .rung
            .0
            .iter()
            .flat_map(|action| self.act(*action, &trip, &rates))
            .collect();
        let words: Vec<String> = done
            .iter()
            .map(|done| format!("{}: {} -> {}", done.action, done.before, done.after))
            .collect();
        self.recorder.record(EventKind::Alarm {
            name: format!("guard {}", trip.guard),
            step: Some(self.trained),
            message: format!("{}; {}", trip.reason, words.join("; ")),
        });
        self.recorder.record(EventKind::GuardTripped {
            guard: trip.guard,
            watched: trip.watched,
            step: self.trained,
            since_step: trip.since_step,
            value: Number(trip.value),
            limit: Number(trip.limit),
            reason: trip.reason,
            relapse: trip.relapse as u64,
            done: done.clone(),
            cools_until: trip.cools_until,
            by: trip.by,
        });
        done
    }

    fn act(&mut self, action: Action, trip: &Trip, rates: &[(&str, f64)]) -> Vec<GuardDone> {
        let done = |before: String, after: Result<String, String>| GuardDone {
            action: action.to_string(),
            before,
            is_done: after.is_ok(),
            after: after.unwrap_or_else(|error| format!("not done: {error}")),
        };
        let bound = self.rollouts.draw().staleness;
        match action {
            Action::Alert => vec![done("seen".to_owned(), Ok("told".to_owned()))],
            Action::ShrinkStaleness => {
                if let Some(under_way) = &mut self.guards.synchronous {
                    let from = under_way.back_to;
                    under_way.back_to = from.saturating_sub(1);
                    let to = under_way.back_to;
                    return vec![done(
                        format!("staleness 0, then {from}"),
                        Ok(format!("staleness 0, then {to}")),
                    )];
                }
                let to = bound.saturating_sub(1);
                let after = if bound == 0 {
                    Err("rollouts are from the newest weights already".to_owned())
                } else {
                    self.turn(STALENESS, to as f64)
                };
                vec![done(
                    format!("staleness {bound}"),
                    after.map(|()| format!("staleness {to}")),
                )]
            }
            Action::Sync { rounds } => {
                let under_way = self.guards.synchronous.as_ref();
                let back_to = under_way.map_or(bound, |under_way| under_way.back_to);
                let after = if bound == 0 && under_way.is_none() {
                    Err("the run is synchronous already".to_owned())
                } else {
                    self.turn(STALENESS, 0.0).map(|()| {
                        self.guards.synchronous = Some(Synchronous {
                            guard: trip.guard.clone(),
                            rounds,
                            back_to,
                        });
                        let word = if rounds == 1 { "round" } else { "rounds" };
                        format!("staleness 0 for {rounds} {word}, then {back_to}")
                    })
                };
                vec![done(format!("staleness {bound}"), after)]
            }
            Action::LowerLr { factor } => rates
                .iter()
                .map(|(key, rate)| {
                    let to = rate * factor;
                    let after = self
                        .turn(key, to)
                        .map(|()| format!("{} {to:.3e}", knob_name(key)));
                    done(format!("{} {rate:.3e}", knob_name(key)), after)
                })
                .collect(),
            Action::RollBack { to } => {
                let before = format!("weights of step {}", self.trained);
                let after = self.back_before(trip.since_step, to == Target::Best);
                vec![done(before, after)]
            }
            Action::Stop => {
                self.stop
                    .ask_because(format!("guard {}: {}", trip.guard, trip.reason));
                let after = format!("stops after step {}", self.trained);
                vec![done("running".to_owned(), Ok(after))]
            }
        }
    }
}

/// As people write it.
pub(super) fn knob_name(key: &str) -> &str {
    find_knob(key).map_or(key, |knob| knob.name)
}
