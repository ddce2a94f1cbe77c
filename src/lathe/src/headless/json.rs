//! The events a program wants, each on a line as it stands in `events.jsonl`; the summary comes last.

use runlog::event::{Event, EventKind};
use runlog::state::RunState;

use super::View;
use crate::cli::{Failure, Output};

#[derive(Debug)]
pub struct JsonView<'a> {
    out: &'a mut Output,
}

impl<'a> JsonView<'a> {
    pub fn new(out: &'a mut Output) -> Self {
        Self { out }
    }
}

impl View for JsonView<'_> {
    fn event(&mut self, event: &Event, _state: &RunState) -> Result<(), Failure> {
        match &event.kind {
            EventKind::RunStarted { .. }
            | EventKind::RunResumed { .. }
            | EventKind::StepEnded { .. }
            | EventKind::EvalEnded { .. }
            | EventKind::CheckpointSaved { .. }
            | EventKind::Alarm { .. }
            | EventKind::GuardTripped { .. }
            | EventKind::BanditUpdated { .. }
            | EventKind::RunEnded { .. } => self.out.json(event),
            _ => Ok(()),
        }
    }
}
