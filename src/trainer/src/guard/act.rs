//! What a trip does to the run, at a step boundary: each action with what stood before and what stands after.

use std::path::PathBuf;

use experiment::guards::{Action, Target};
use runlog::control::find_knob;
use runlog::event::{EventKind, GuardDone};
use runlog::number::Number;

use super::{Guards, Trip};
use crate::checkpoint;
use crate::control::Controlled as _;
use crate::stop::Stop;
use crate::training::{STALENESS, Training};

/// Knobs that `lower_lr` turns.
const RATES: [&str; 2] = ["actor_rollout_ref.actor.optim.lr", "critic.optim.lr"];

/// The guards of a run, and what they have under way.
#[derive(Debug)]
pub struct Acting {
    guards: Guards,
    /// Rounds to train synchronously still, and the bound to go back to.
    synchronous: Option<(u32, f64)>,
    /// Evaluations by the step they are of.
    evaluations: Vec<(u64, f64)>,
}

impl Acting {
    pub fn new(guards: Guards) -> Self {
        Self {
            guards,
            synchronous: None,
            evaluations: Vec::new(),
        }
    }

    /// Takes a value of the starting weights in, as a baseline.
    pub fn start(&mut self, name: &str, value: f64, training: &mut Training<'_>, stop: &Stop) {
        let start = EventKind::EvalEnded {
            step: 0,
            policy_version: 0,
            samples: 0,
            values: [(name.to_owned(), Number(value))].into(),
        };
        self.after(&start, None, training, stop);
    }

    /// Whether a guard's synchronous rounds hold the bound of staleness.
    pub fn holds_staleness(&self) -> bool {
        self.synchronous.is_some()
    }

    /// Takes an event with values in and does what the guards that trip ask for. `drawn_staleness`: the bound that the step's
    /// batch was drawn under.
    pub fn after(
        &mut self,
        kind: &EventKind,
        drawn_staleness: Option<u64>,
        training: &mut Training<'_>,
        stop: &Stop,
    ) {
        if let EventKind::EvalEnded { step, values, .. } = kind {
            let scores: Vec<f64> = values
                .iter()
                .filter(|(name, _)| experiment::glob("val-core/*/reward/mean@*", name))
                .map(|(_, value)| value.0)
                .collect();
            if !scores.is_empty() {
                let mean = scores.iter().sum::<f64>() / scores.len() as f64;
                self.evaluations.push((*step, mean));
            }
        }
        if drawn_staleness == Some(0)
            && let Some((rounds, bound)) = &mut self.synchronous
        {
            *rounds -= 1;
            if *rounds == 0 {
                let bound = *bound;
                self.synchronous = None;
                drop(set(training, STALENESS, bound));
            }
        }
        let trips = self.guards.observe(training.recorder.elapsed_ms(), kind);
        for trip in trips {
            self.carry_out(trip, training, stop);
        }
    }

    fn carry_out(&mut self, trip: Trip, training: &mut Training<'_>, stop: &Stop) {
        // A checkpoint brings its own rates back; they are lowered from where they stand now.
        let rates: Vec<(&str, f64)> = RATES
            .into_iter()
            .filter_map(|key| {
                let knob = find_knob(key).ok()?;
                Some((key, training.knob(knob).ok()?))
            })
            .collect();
        let done: Vec<GuardDone> = trip
            .rung
            .0
            .iter()
            .flat_map(|action| self.act(*action, &trip, &rates, training, stop))
            .collect();
        let words: Vec<String> = done
            .iter()
            .map(|done| format!("{}: {} -> {}", done.action, done.before, done.after))
            .collect();
        let record = |kind| training.recorder.record(kind);
        record(EventKind::Alarm {
            name: format!("guard {}", trip.guard),
            step: Some(training.trained),
            message: format!("{}; {}", trip.reason, words.join("; ")),
        });
        record(EventKind::GuardTripped {
            guard: trip.guard,
            watched: trip.watched,
            step: training.trained,
            since_step: trip.since_step,
            value: Number(trip.value),
            limit: Number(trip.limit),
            reason: trip.reason,
            relapse: trip.relapse as u64,
            done,
        });
    }

    fn act(
        &mut self,
        action: Action,
        trip: &Trip,
        rates: &[(&str, f64)],
        training: &mut Training<'_>,
        stop: &Stop,
    ) -> Vec<GuardDone> {
        let done = |before: String, after: Result<String, String>| GuardDone {
            action: action.to_string(),
            before,
            is_done: after.is_ok(),
            after: after.unwrap_or_else(|error| format!("not done: {error}")),
        };
        let bound = training.rollouts.draw().staleness;
        match action {
            Action::Alert => vec![done("seen".to_owned(), Ok("told".to_owned()))],
            Action::ShrinkStaleness => {
                let to = bound.saturating_sub(1);
                let after = set(training, STALENESS, to as f64);
                vec![done(
                    format!("staleness {bound}"),
                    after.map(|()| format!("staleness {to}")),
                )]
            }
            Action::Sync { rounds } => {
                let back_to = self
                    .synchronous
                    .map_or(bound as f64, |(_, back_to)| back_to);
                let after = if bound == 0 && self.synchronous.is_none() {
                    Err("the run is synchronous already".to_owned())
                } else {
                    set(training, STALENESS, 0.0).map(|()| {
                        self.synchronous = Some((rounds, back_to));
                        format!("staleness 0 for {rounds} rounds, then {back_to}")
                    })
                };
                vec![done(format!("staleness {bound}"), after)]
            }
            Action::LowerLr { factor } => rates
                .iter()
                .map(|(key, rate)| {
                    let to = rate * factor;
                    let after = set(training, key, to).map(|()| format!("{key} {to:.3e}"));
                    done(format!("{key} {rate:.3e}"), after)
                })
                .collect(),
            Action::RollBack { to } => {
                let after = self.roll_back(to, trip, training);
                vec![done(format!("weights of step {}", training.trained), after)]
            }
            Action::Stop => {
                stop.ask();
                let after = format!("stops after step {}", training.trained);
                vec![done("running".to_owned(), Ok(after))]
            }
        }
    }

    /// Weights, optimizers, controllers and data from a checkpoint; steps and versions go on counting.
    fn roll_back(
        &mut self,
        to: Target,
        trip: &Trip,
        training: &mut Training<'_>,
    ) -> Result<String, String> {
        let path = self.target(to, trip.since_step, training)?;
        let counters = training
            .learner
            .restore(&path)
            .map_err(|error| error.to_string())?;
        training
            .rollouts
            .rewind(training.trained, counters.cursor.clone());
        training.cursor = counters.cursor;
        self.guards.rolled_back();
        Ok(format!(
            "weights, optimizer, controllers and data of step {}",
            counters.step
        ))
    }

    /// Among checkpoints from before the trouble: the newest, or the one with the best evaluation (the newest such where no
    /// checkpoint was evaluated).
    fn target(
        &self,
        to: Target,
        since_step: u64,
        training: &Training<'_>,
    ) -> Result<PathBuf, String> {
        let found = checkpoint::list(&training.run_dir.checkpoints_dir())
            .map_err(|error| error.to_string())?;
        let before: Vec<(u64, PathBuf)> = found
            .into_iter()
            .filter_map(|path| {
                let step = path.file_name()?.to_str()?.strip_prefix("step-")?;
                Some((step.parse::<u64>().ok()?, path))
            })
            .filter(|(step, _)| *step < since_step)
            .collect();
        let evaluated = |step: u64| {
            let of_step = self.evaluations.iter().rev().find(|(of, _)| *of == step);
            of_step.map(|(_, score)| *score)
        };
        let best = before
            .iter()
            .filter_map(|found| Some((evaluated(found.0)?, found)))
            .max_by(|left, right| left.0.total_cmp(&right.0))
            .map(|(_, found)| found);
        let chosen = match to {
            Target::Best => best.or(before.last()),
            Target::Last => before.last(),
        };
        chosen
            .map(|(_, path)| path.clone())
            .ok_or_else(|| format!("there is no checkpoint from before step {since_step}"))
    }
}

fn set(training: &mut Training<'_>, key: &str, value: f64) -> Result<(), String> {
    let knob = find_knob(key).map_err(|error| error.to_string())?;
    training.set(knob, value).map(drop)
}
