//! What had happened before an alarm began.

use crate::state::{Outcome, RunState};

/// Something that may be the cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub elapsed_ms: f64,
    /// `checkpoint of step 40`, `evaluation at step 50`, `the run was resumed after step 12`
    pub what: String,
}

/// The last of each kind before `since_ms`, newest first.
pub(super) fn before(state: &RunState, since_ms: f64) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut add = |elapsed_ms: f64, what: String| {
        if elapsed_ms <= since_ms {
            changes.push(Change { elapsed_ms, what });
        }
    };
    // Each is in the order of the log: the last that is not later.
    let control = state
        .controls
        .iter()
        .rev()
        .find(|record| record.elapsed_ms <= since_ms && record.mark().is_some());
    if let Some(record) = control {
        let what = if let (Some(knob), Outcome::Applied { to: Some(to), .. }) =
            (&record.knob, &record.outcome)
        {
            format!("{knob} set to {} by {}", to.0, record.who)
        } else {
            let target = record.target.as_deref().unwrap_or_default();
            let space = if target.is_empty() { "" } else { " " };
            format!("{}{space}{target} by {}", record.command, record.who)
        };
        add(record.elapsed_ms, what);
    }
    if let Some(checkpoint) = state
        .checkpoints
        .iter()
        .rev()
        .find(|at| at.elapsed_ms <= since_ms)
    {
        add(
            checkpoint.elapsed_ms,
            format!("checkpoint of step {}", checkpoint.step),
        );
    }
    if let Some(eval) = state
        .evals
        .iter()
        .rev()
        .find(|at| at.elapsed_ms <= since_ms)
    {
        add(eval.elapsed_ms, format!("evaluation at step {}", eval.step));
    }
    if let Some(phase) = state
        .phases
        .iter()
        .rev()
        .find(|at| at.elapsed_ms <= since_ms)
    {
        add(
            phase.elapsed_ms,
            format!("phase {} began", phase.phase.name()),
        );
    }
    let resume = state
        .resumes
        .iter()
        .rev()
        .find(|at| at.elapsed_ms <= since_ms);
    if let Some(resume) = resume {
        let words = format!("the run was resumed after step {}", resume.from_step);
        add(resume.elapsed_ms, words);
    }
    let trips = state.guards.trips.iter();
    let trip = trips.rev().find(|at| at.elapsed_ms <= since_ms);
    if let Some(trip) = trip {
        let words = format!("guard {} tripped after step {}", trip.guard, trip.step);
        add(trip.elapsed_ms, words);
    }
    changes.sort_by(|a, b| b.elapsed_ms.total_cmp(&a.elapsed_ms));
    changes
}
