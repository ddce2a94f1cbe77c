//! What happened to a run, in words: the same on every page that tells it.

use std::fmt::Write as _;

use runlog::state::{AlarmRecord, Checkpoint, ControlRecord, Outcome, Resume, TripRecord};

use crate::headless::format;
use crate::tui::widgets::text;

/// `somebody sets actor_rollout_ref.actor.optim.lr from 1e-6 to 2e-6, from step 42 on`
pub fn control(control: &ControlRecord) -> String {
    let what = match control.knob.as_ref().or(control.target.as_ref()) {
        Some(about) => format!("{} {about}", control.command),
        None => control.command.clone(),
    };
    let who = &control.who;
    match &control.outcome {
        Outcome::Applied {
            from,
            to,
            from_step,
            before,
            after,
            ..
        } => {
            let became = match (before, after) {
                (Some(before), Some(after)) => format!(" ({before} before, {after} now)"),
                _ => String::new(),
            };
            let from = from.map_or_else(String::new, |from| {
                format!(" from {}", text::number(from.0))
            });
            let to = to.map_or_else(String::new, |to| format!(" to {}", text::number(to.0)));
            let since = match from_step {
                Some(step) => format!(", from step {step} on"),
                None => format!(", after step {}", control.step),
            };
            format!("{who}: {what}{from}{to}{became}{since}")
        }
        Outcome::Refused { to, reason } => {
            let to = to.map_or_else(String::new, |to| format!(" to {}", text::number(to.0)));
            format!("{who}: {what}{to} was refused: {reason}")
        }
    }
}

/// `kl tripped after step 41: actor/ppo_kl is 0.03, above 0.02; sync 1: staleness 1 -> 0`
pub fn trip(trip: &TripRecord) -> String {
    let mut words = format!("{} tripped after step {}", trip.guard, trip.step);
    if trip.relapse > 0 {
        let _ = write!(words, ", relapse {}", trip.relapse);
    }
    let _ = write!(words, ": {}", trip.reason);
    for done in &trip.done {
        let _ = if done.is_done {
            write!(
                words,
                "; {}: {} -> {}",
                done.action, done.before, done.after
            )
        } else {
            write!(words, "; {} was not done: {}", done.action, done.after)
        };
    }
    words
}

/// `goes on in its own directory after step 40; 3 later steps are trained again`
pub fn resume(resume: &Resume) -> String {
    let mut said = format!(
        "goes on in its own directory after step {}",
        resume.from_step
    );
    if resume.lost_steps > 0 {
        let _ = write!(
            said,
            "; {} later steps are trained again",
            resume.lost_steps
        );
    }
    said
}

/// `checkpoints/step-40, 1.2 GB in 830 ms`, as the lines of a run without a screen say it
pub fn checkpoint(checkpoint: &Checkpoint) -> String {
    format!(
        "{}, {} in {} ms",
        checkpoint.path,
        format::bytes(checkpoint.bytes),
        text::number(checkpoint.save_ms)
    )
}

/// `KL blow-up (step 41): actor/ppo_kl is 0.03`
pub fn alarm(alarm: &AlarmRecord) -> String {
    let step = alarm
        .step
        .map_or_else(String::new, |step| format!(" (step {step})"));
    format!("{}{step}: {}", alarm.name, alarm.message)
}
