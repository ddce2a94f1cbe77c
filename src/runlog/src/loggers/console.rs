//! verl's console line: `step:12 - actor/pg_loss:0.01 - actor/lr:1e-6`.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::Logger;
use crate::event::{Event, EventKind, Level};
use crate::number::Values;

/// One line a step and an evaluation; warnings, errors and alarms between them.
pub struct Console {
    out: Box<dyn Write + Send>,
}

impl Console {
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out }
    }
}

/// The line of one step, without a newline.
pub fn step_line(step: u64, values: &Values) -> String {
    let mut line = format!("step:{step}");
    for (name, value) in values {
        write!(line, " - {name}:{:?}", value.0).expect("writing to a String cannot fail");
    }
    line
}

/// What an event says on a console; None: nothing.
pub(super) fn line(event: &Event) -> Option<String> {
    match &event.kind {
        EventKind::StepEnded { step, values, .. } | EventKind::EvalEnded { step, values, .. } => {
            Some(step_line(*step, values))
        }
        EventKind::RunResumed {
            from_step,
            lost_steps,
            ..
        } => Some(format!(
            "resumed after step {from_step}; {lost_steps} later steps are trained again"
        )),
        EventKind::Alarm { name, message, .. } => Some(format!("alarm {name}: {message}")),
        EventKind::LogLine {
            level: level @ (Level::Warning | Level::Error),
            target,
            message,
        } => {
            let level = if *level == Level::Error {
                "error"
            } else {
                "warning"
            };
            Some(format!("{level} {target}: {message}"))
        }
        EventKind::ControlApplied {
            who,
            command,
            knob,
            target,
            to,
            ..
        } => {
            let change = match (knob, to, target) {
                (Some(knob), Some(to), _) => format!(" {knob} = {:?}", to.0),
                (_, _, Some(target)) => format!(" {target}"),
                _ => String::new(),
            };
            Some(format!("control {command}{change} by {who}"))
        }
        EventKind::RunEnded { reason, steps, .. } => {
            Some(format!("ended after {steps} steps: {reason}"))
        }
        _ => None,
    }
}

impl Logger for Console {
    fn name(&self) -> &'static str {
        "console"
    }

    fn take(&mut self, event: &Event) -> io::Result<()> {
        match line(event) {
            Some(line) => writeln!(self.out, "{line}").and_then(|()| self.out.flush()),
            None => Ok(()),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl std::fmt::Debug for Console {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Console").finish_non_exhaustive()
    }
}
