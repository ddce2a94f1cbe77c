//! Event files of `TensorBoard`: scalars as `simple_value`, one event a step or evaluation.

use std::io;
use std::path::Path;

use super::appender::Appender;
use super::{Context, Logger};
use crate::event::{Event, EventKind};
use crate::state::derived_values;
use crate::wire::proto::Message;
use crate::wire::records::record;

#[derive(Debug)]
pub struct TensorBoard {
    events: Appender,
    context: Context,
    /// Last step that ended: the step of syncs and host samples.
    step: u64,
}

impl TensorBoard {
    /// Starts a new event file in `directory`, which `TensorBoard` shows as one run.
    pub fn open(directory: &Path, context: &Context) -> io::Result<Self> {
        // TensorBoard merges the files of a directory in the order of their names, hence the time first.
        let name = format!(
            "events.out.tfevents.{:010}.{}.{}.{}",
            jiff::Timestamp::now().as_second(),
            context.host,
            std::process::id(),
            context.run_id
        );
        let mut events = Appender::open(&directory.join(name))?;
        let first = Message::default()
            .double(1, context.wall_s(0.0))
            .text(3, "brain.Event:2");
        events.append(&record(first.bytes_of()))?;
        Ok(Self {
            events,
            context: context.clone(),
            step: 0,
        })
    }
}

/// `Event { wall_time = 1, step = 2, summary = 5 { value = 1 { tag = 1, simple_value = 2 } } }`
fn scalars<'a>(wall_s: f64, step: u64, values: impl Iterator<Item = (&'a str, f64)>) -> Vec<u8> {
    let mut summary = Message::default();
    for (name, value) in values {
        summary = summary.message(1, &Message::default().text(1, name).float(2, value as f32));
    }
    let event = Message::default()
        .double(1, wall_s)
        .integer(2, step as i64)
        .message(5, &summary);
    record(event.bytes_of())
}

impl Logger for TensorBoard {
    fn name(&self) -> &'static str {
        "tensorboard"
    }

    fn take(&mut self, event: &Event) -> io::Result<()> {
        let wall_s = self.context.wall_s(event.elapsed_ms);
        match &event.kind {
            EventKind::StepEnded { step, values, .. }
            | EventKind::EvalEnded { step, values, .. } => {
                if matches!(event.kind, EventKind::StepEnded { .. }) {
                    self.step = *step;
                }
                let values = values.iter().map(|(name, value)| (name.as_str(), value.0));
                self.events.append(&scalars(wall_s, *step, values))
            }
            // SessionLog { status = START }: TensorBoard then forgets points at this step and later.
            EventKind::RunResumed { from_step, .. } => {
                self.step = *from_step;
                let session = Message::default().integer(1, 1);
                let restart = Message::default()
                    .double(1, wall_s)
                    .integer(2, from_step.saturating_add(1) as i64)
                    .message(7, &session);
                self.events.append(&record(restart.bytes_of()))
            }
            kind => {
                let values = derived_values(kind);
                if values.is_empty() {
                    return self.events.flush();
                }
                let values = values.iter().map(|(name, value)| (name.as_str(), *value));
                self.events.append(&scalars(wall_s, self.step, values))
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.events.flush()
    }
}
