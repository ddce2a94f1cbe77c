//! A line per step in verl's console form, a line per evaluation, alarm and checkpoint. For pipes, logs and batch jobs.

use runlog::event::{Event, EventKind, Level, Phase};
use runlog::loggers::step_line;
use runlog::state::RunState;

use super::{View, format};
use crate::cli::{Failure, Output};

#[derive(Debug)]
pub struct PlainView<'a> {
    out: &'a mut Output,
}

impl<'a> PlainView<'a> {
    pub fn new(out: &'a mut Output) -> Self {
        Self { out }
    }
}

impl View for PlainView<'_> {
    fn event(&mut self, event: &Event, _state: &RunState) -> Result<(), Failure> {
        match line(&event.kind) {
            Some(line) => self.out.line(&line),
            None => Ok(()),
        }
    }
}

/// None: an event that has no line.
pub fn line(kind: &EventKind) -> Option<String> {
    Some(match kind {
        EventKind::RunStarted {
            experiment_name,
            mode,
            total_steps,
            parameters,
            seed,
            ..
        } => format!(
            "started {experiment_name}: {mode}, {}, {} parameters, seed {seed}",
            format::plural(*total_steps, "step"),
            format::count(*parameters)
        ),
        EventKind::PhaseChanged { phase } => format!("phase {}", phase_text(*phase)),
        EventKind::StepEnded { step, values, .. } => step_line(*step, values),
        EventKind::EvalEnded {
            step,
            samples,
            values,
            ..
        } => format!("eval {} - samples:{samples}", step_line(*step, values)),
        EventKind::CheckpointSaved {
            step, path, bytes, ..
        } => {
            format!(
                "checkpoint at step {step}: {path} ({})",
                format::bytes(*bytes)
            )
        }
        EventKind::Alarm {
            name,
            step,
            message,
        } => match step {
            Some(step) => format!("alarm {name} at step {step}: {message}"),
            None => format!("alarm {name}: {message}"),
        },
        EventKind::LogLine {
            level: level @ (Level::Warning | Level::Error),
            message,
            ..
        } => {
            let word = if *level == Level::Error {
                "error"
            } else {
                "warning"
            };
            format!("{word}: {message}")
        }
        EventKind::WeightsSynced {
            version,
            verified: false,
            ..
        } => format!("alarm weight sync of version {version} could not be verified"),
        _ => return None,
    })
}

pub fn phase_text(phase: Phase) -> &'static str {
    match phase {
        Phase::Setup => "setup",
        Phase::Sft => "warm-up",
        Phase::Train => "train",
        Phase::Finish => "finish",
        Phase::Other => "other",
    }
}
