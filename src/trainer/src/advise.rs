//! The async advisor at work in a run: what it measured is told in the log, and with `trainer.mode: auto` it turns the bound of
//! staleness. What it turns is written like any other change of a knob, by `async advisor`.

use std::time::Duration;

use experiment::Experiment;
use experiment::settings::{AUTO_STALENESS, Mode};
use runlog::control::{ASYNC_ADVISOR, find_knob};
use runlog::event::{EventKind, Level};
use runlog::number::Number;

use crate::control::{Advice, Advisor, Controlled, Decision, Measured, StepTimes};
use crate::training::{STALENESS, Training};

#[derive(Debug)]
pub struct Advising {
    advisor: Advisor,
    /// Deepest bound that it may take.
    most: u64,
}

/// A step that was trained and published.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// The bound that its batch was drawn under.
    pub staleness: u64,
    /// What its batch added to the time of generating.
    pub generate_s: f64,
    pub waited: Duration,
    /// Learner and publication, without checkpoints, guards and probes.
    pub trained: Duration,
    /// Nothing came in between, such as a pause or a command: while the learner stands still for those, rollouts go on.
    pub is_plain: bool,
}

impl Advising {
    /// For a run that begins with this bound of staleness.
    pub fn new(experiment: &Experiment, staleness: u64) -> Self {
        let settings = &experiment.trainer;
        let most = settings
            .max_staleness
            .filter(|_| matches!(settings.mode, Mode::Async | Mode::Auto))
            .unwrap_or(AUTO_STALENESS);
        let most = u64::from(most);
        Self {
            advisor: Advisor::watching(staleness, advised(most)),
            most,
        }
    }

    /// `is_held`: something that goes before holds the bound, such as a guard's synchronous rounds.
    pub fn after(&mut self, timed: Timed, is_held: bool, training: &mut Training<'_>) {
        let decides = training.is_auto();
        let most = if decides {
            self.most
        } else {
            advised(self.most)
        };
        self.advisor.may_decide(decides, most);
        if (is_held && decides) || !timed.is_plain {
            return;
        }
        let train_s = timed.trained.as_secs_f64();
        let decision = self.advisor.trained(
            timed.staleness,
            StepTimes {
                generate_s: timed.generate_s,
                train_s,
                whole_s: train_s + timed.waited.as_secs_f64(),
            },
        );
        let step = training.trained;
        let (to, message) = match decision {
            None => return,
            Some(Decision::Try(to, advice)) => {
                let message = format!(
                    "step {step}: the learner waits {:.0} % of the time at staleness {}, {:.3} s a step; {:.3} s are predicted at staleness {to}, which is now measured against it, back and forth",
                    advice.bubble * 100.0,
                    advice.depth,
                    advice.measured_s,
                    advice.predicted_s[to as usize],
                );
                (to, Some(message))
            }
            Some(Decision::Turn(to)) => (to, None),
            Some(Decision::Keep(at, Measured { before_s, tried_s })) => {
                let message = format!(
                    "step {step}: staleness {at} stays: {tried_s:.3} s a step, {before_s:.3} s beside it"
                );
                (at, Some(message))
            }
            Some(Decision::Back(to, Measured { before_s, tried_s })) => {
                let message = format!(
                    "step {step}: back to staleness {to}: {tried_s:.3} s a step is not faster than the {before_s:.3} s beside it"
                );
                (to, Some(message))
            }
        };
        turn(to, training);
        if let Some(message) = message {
            say(message, training);
        }
    }

    /// At the end of a run: what was measured, and what is to be tried.
    pub fn conclude(&self, training: &Training<'_>) {
        if let Some(advice) = self.advisor.advice() {
            say(words(&advice, training.is_auto()), training);
        }
    }
}

/// Deepest bound that advice is about, where `most` may be taken.
fn advised(most: u64) -> u64 {
    most.max(AUTO_STALENESS.into())
}

/// The bound of staleness from the next batch on. When every batch is begun there is nothing to turn.
fn turn(to: u64, training: &mut Training<'_>) {
    if training.rollouts.draw().staleness == to {
        return;
    }
    let Ok(knob) = find_knob(STALENESS) else {
        return;
    };
    let step = training.trained;
    if let Ok(change) = training.set(knob, to as f64) {
        training.recorder.record(EventKind::ControlApplied {
            request: 0,
            who: ASYNC_ADVISOR.to_owned(),
            command: "set".to_owned(),
            step,
            target: None,
            before: None,
            after: None,
            until_step: None,
            knob: Some(STALENESS.to_owned()),
            from: Some(Number(change.from)),
            to: Some(Number(to as f64)),
            from_step: Some(change.from_step),
        });
    }
}

fn say(message: String, training: &Training<'_>) {
    training.recorder.record(EventKind::LogLine {
        level: Level::Info,
        target: "advisor".to_owned(),
        message,
    });
}

fn words(advice: &Advice, decides: bool) -> String {
    let Advice {
        bubble,
        depth,
        measured_s,
        predicted_s,
        best,
    } = advice;
    let measured = format!(
        "at staleness {depth} the learner waited {:.0} % of the time, {measured_s:.3} s a step",
        bubble * 100.0
    );
    if decides {
        return format!(
            "{measured}; that is where the advisor settled: {} has it from the first step",
            key(*depth)
        );
    }
    let at_best = predicted_s
        .get(*best as usize)
        .copied()
        .unwrap_or(*measured_s);
    let gain = 1.0 - at_best / measured_s.max(1e-9);
    if best == depth || gain < 0.03 {
        return format!("{measured}; no other staleness promises more");
    }
    let key = key(*best);
    format!(
        "{measured}; {at_best:.3} s are predicted at staleness {best} ({key}), if generating and training do not slow each other; trainer.mode: auto measures it"
    )
}

/// How an experiment says a bound of staleness.
fn key(staleness: u64) -> String {
    match staleness {
        0 => "trainer.mode: sync".to_owned(),
        1 => "trainer.mode: one_step_off".to_owned(),
        deeper => format!("trainer.mode: async, trainer.max_staleness: {deeper}"),
    }
}
