//! The run's events as lines of a log: what the trainer said, alarms, phases, evaluations, checkpoints, the end.

use runlog::RunState;
use runlog::event::{Phase, RunStatus};
use runlog::state::{Outcome, val_reward};

use super::line::{Line, Severity};
use super::older::Older;
use crate::tui::pages::words;
use crate::tui::widgets::text;

pub type Fingerprint = [u64; 9];

/// What tells that the lines are no longer those of the state: counts of everything they are made of.
pub fn fingerprint(state: &RunState) -> Fingerprint {
    [
        state.alarm_count + (state.guards.trip_count() << 32),
        state.log_lines.len() as u64,
        state
            .log_lines
            .back()
            .map_or(0, |line| line.elapsed_ms.to_bits()),
        state.phases.len() as u64 + state.resumes.len() as u64,
        state.checkpoints.len() as u64,
        state.controls.len() as u64,
        state.evals.len() as u64,
        u64::from(state.ended.is_some()) + 2 * u64::from(state.started.is_some()),
        state.syncs.iter().filter(|sync| !sync.is_verified).count() as u64,
    ]
}

/// Every line, in the order of time; with the older ones that were read back.
pub fn lines(state: &RunState, older: Option<&Older>) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut push = |elapsed_ms: f64, severity: Severity, source: &str, text: String| {
        lines.push(Line {
            id: 0,
            elapsed_ms: Some(elapsed_ms),
            severity,
            source: text::printable(source),
            text: text::printable(&text),
        });
    };
    if let Some(started) = &state.started {
        let said = if started.pid == 0 {
            format!("{}: a {} run", started.experiment_name, started.mode)
        } else {
            format!(
                "{} ({}) starts: {} steps, {} parameters, seed {}, pid {} on {}",
                started.experiment_name,
                started.mode,
                started.total_steps,
                text::number(started.parameters as f64),
                started.seed,
                started.pid,
                started.host
            )
        };
        // Its own time is not kept: it is the start.
        push(0.0, Severity::Info, "run", said);
    }
    for record in &state.phases {
        let said = phase_word(record.phase).to_owned();
        push(record.elapsed_ms, Severity::Debug, "phase", said);
    }
    for resume in &state.resumes {
        push(
            resume.elapsed_ms,
            Severity::Info,
            "resume",
            words::resume(resume),
        );
    }
    let older_lines = older.into_iter().flat_map(|older| older.logged(state));
    for line in older_lines.chain(&state.log_lines) {
        push(
            line.elapsed_ms,
            line.level.into(),
            &line.target,
            line.message.clone(),
        );
    }
    for trip in &state.guards.trips {
        push(
            trip.elapsed_ms,
            Severity::Warning,
            "guard",
            words::trip(trip),
        );
    }
    let older_alarms = older.into_iter().flat_map(|older| older.alarms(state));
    for alarm in older_alarms.chain(&state.alarms) {
        // A guard records an alarm beside its trip, which says the same.
        let trips = &state.guards.trips;
        if trips.iter().any(|trip| trip.is_told_by(alarm)) {
            continue;
        }
        push(
            alarm.elapsed_ms,
            Severity::Warning,
            "alarm",
            words::alarm(alarm),
        );
    }
    for control in &state.controls {
        let severity = match control.outcome {
            Outcome::Applied { .. } => Severity::Info,
            Outcome::Refused { .. } => Severity::Warning,
        };
        push(
            control.elapsed_ms,
            severity,
            "control",
            words::control(control),
        );
    }
    for sync in state.syncs.iter().filter(|sync| !sync.is_verified) {
        let said = format!(
            "the weights of version {} did not arrive as they were sent (canary differs by {} nats)",
            sync.version,
            text::number(sync.canary_max_diff_nats.0)
        );
        push(sync.elapsed_ms, Severity::Error, "weight sync", said);
    }
    for eval in &state.evals {
        let reward = val_reward(eval).map_or_else(String::new, |reward| {
            format!(", reward {}", text::number(reward))
        });
        let said = format!("step {}: {} samples{reward}", eval.step, eval.samples);
        push(eval.elapsed_ms, Severity::Info, "eval", said);
    }
    for checkpoint in &state.checkpoints {
        let said = words::checkpoint(checkpoint);
        push(checkpoint.elapsed_ms, Severity::Info, "checkpoint", said);
    }
    if let Some(ended) = &state.ended {
        let severity = match ended.status {
            RunStatus::Completed | RunStatus::Stopped => Severity::Info,
            RunStatus::Failed | RunStatus::Other => Severity::Error,
        };
        let said = format!(
            "{} after {} steps, exit code {}: {}",
            ended.status.word(),
            ended.steps,
            ended.exit_code,
            ended.reason
        );
        push(ended.elapsed_ms, severity, "run", said);
    }
    // Stable: what happened at one moment stays in the order above.
    lines.sort_by(|a, b| {
        let time = |line: &Line| line.elapsed_ms.unwrap_or_default();
        time(a).total_cmp(&time(b))
    });
    // Ids stay the same when older lines are gone: the moment in microseconds, and a count within it.
    let mut before = 0;
    for line in &mut lines {
        let micros = (line.elapsed_ms.unwrap_or_default() * 1e3) as u64;
        line.id = (micros << 16).max(before + 1);
        before = line.id;
    }
    lines
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Setup => "setup: loading model, tokenizer and data",
        Phase::Sft => "supervised warm-up",
        Phase::Train => "training",
        Phase::Finish => "finishing: last evaluation and checkpoint",
        Phase::Other => "a phase of a newer version",
    }
}
