//! An offline run in W&B's own format: `wandb/offline-run-<time>-<id>/run-<id>.wandb`, for `wandb sync` and `wandb leet`.
//!
//! Each record of the file (see [`crate::wire::blocks`]) is a protobuf `Record`; the field numbers here are those of
//! `wandb_internal.proto`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::appender::Appender;
use super::{Context, Logger, again, console};
use crate::event::{Event, EventKind};
use crate::number::{Number, Values};
use crate::state::derived_values;
use crate::wire::blocks::{HEAD, chunks};
use crate::wire::proto::Message;

const STDERR: i64 = 0;
const STDOUT: i64 = 1;

#[derive(Debug)]
pub struct Wandb {
    file: Appender,
    context: Context,
    /// Records so far; each carries its number.
    records: i64,
    /// Of the row being gathered. W&B wants one row a step with steps that never go back, so a row is written when the
    /// next step begins.
    row_step: Option<u64>,
    row: Values,
    row_elapsed_ms: f64,
    exit_code: Option<i32>,
    last_elapsed_ms: f64,
}

impl Wandb {
    /// Makes the offline run under `parent`/wandb and writes its header and run record.
    pub fn open(parent: &Path, context: &Context) -> io::Result<Self> {
        let wandb = parent.join("wandb");
        let name = format!(
            "offline-run-{}-{}",
            context.started_at.strftime("%Y%m%d_%H%M%S"),
            context.run_id
        );
        let directory = wandb.join(&name);
        std::fs::create_dir_all(directory.join("files"))?;
        std::fs::create_dir_all(directory.join("logs"))?;
        // As the SDK does; where links cannot be made, nothing but convenience is lost.
        let latest = wandb.join("latest-run");
        let _ = std::fs::remove_file(&latest);
        let _ = std::os::unix::fs::symlink(&name, &latest);
        let path = directory.join(format!("run-{}.wandb", context.run_id));
        match context.resumed_from {
            // One run record, one history whose steps only rise: W&B takes nothing else.
            Some(from_step) => {
                again::rebuild(&path, context, from_step, |file| Self::begin(file, context))
            }
            None => Self::begin(Appender::open(&path)?, context),
        }
    }

    fn begin(file: Appender, context: &Context) -> io::Result<Self> {
        let is_new = file.size() == 0;
        let mut logger = Self {
            file,
            context: context.clone(),
            records: 0,
            row_step: None,
            row: Values::new(),
            row_elapsed_ms: 0.0,
            exit_code: None,
            last_elapsed_ms: 0.0,
        };
        if is_new {
            logger.file.append(&HEAD)?;
        }
        logger.write_head()?;
        Ok(logger)
    }

    fn write_head(&mut self) -> io::Result<()> {
        let version = Message::default()
            .text(1, concat!("lathe-", env!("CARGO_PKG_VERSION")))
            .text(2, "0.70.0");
        self.write(21, &Message::default().message(1, &version))?;
        let context = &self.context;
        let mut config = Message::default();
        if let Some(fields) = context.config.as_object() {
            for (key, value) in fields {
                config = config.message(
                    1,
                    &Message::default().text(1, key).text(16, &value.to_string()),
                );
            }
        }
        let mut run = Message::default()
            .text(1, &context.run_id)
            .text(
                3,
                if context.project_name.is_empty() {
                    "lathe"
                } else {
                    &context.project_name
                },
            )
            .message(4, &config)
            .text(8, &context.run_name)
            .text(6, &context.experiment_name)
            .text(13, &context.host)
            .message(17, &timestamp(context.wall_s(0.0)));
        if let Some(git) = &context.git {
            run = run.message(21, &Message::default().text(2, &git.commit));
        }
        let mut environment = Message::default();
        if let Some((program, arguments)) = context.command.split_first() {
            environment = environment.text(6, program);
            for argument in arguments {
                environment = environment.text(5, argument);
            }
        }
        environment = environment
            .message(3, &timestamp(context.wall_s(0.0)))
            .text(12, &context.host);
        self.write(17, &run)?;
        self.write(26, &environment)
    }

    /// Appends `Record { num = 1, <field> = body }`.
    fn write(&mut self, field: u32, body: &Message) -> io::Result<()> {
        self.records += 1;
        let record = Message::default()
            .integer(1, self.records)
            .message(field, body);
        let chunks = chunks(record.bytes_of(), self.file.size());
        self.file.append(&chunks)
    }

    fn add_to_row(&mut self, step: u64, values: &Values, elapsed_ms: f64) -> io::Result<()> {
        let row_step = self.row_step.unwrap_or(step);
        let mut outcome = Ok(());
        if step > row_step {
            outcome = self.write_row();
        }
        self.row_step = Some(step.max(row_step));
        self.row_elapsed_ms = elapsed_ms;
        self.row.extend(values.clone());
        if step < row_step {
            // An evaluation that came after the next step had begun.
            self.row.insert("val/step".to_owned(), Number(step as f64));
        }
        outcome
    }

    fn write_row(&mut self) -> io::Result<()> {
        let Some(step) = self.row_step.take() else {
            return Ok(());
        };
        let mut row: BTreeMap<String, Number> = std::mem::take(&mut self.row);
        row.insert("_runtime".to_owned(), Number(self.row_elapsed_ms / 1e3));
        row.insert(
            "_timestamp".to_owned(),
            Number(self.context.wall_s(self.row_elapsed_ms)),
        );
        row.insert("_step".to_owned(), Number(step as f64));
        let mut history = Message::default();
        let mut summary = Message::default();
        for (name, value) in &row {
            let item = Message::default()
                .text(2, name)
                .text(16, &almost_json(value.0));
            history = history.message(1, &item);
            summary = summary.message(1, &item);
        }
        history = history.message(2, &Message::default().integer(1, step as i64));
        let summarised = self.write(3, &summary);
        self.write(2, &history).and(summarised)
    }

    fn write_stats(&mut self, event: &Event) -> io::Result<()> {
        let mut stats = Message::default()
            .integer(1, 0)
            .message(2, &timestamp(self.context.wall_s(event.elapsed_ms)));
        for (key, value) in stats_items(&event.kind) {
            stats = stats.message(
                3,
                &Message::default()
                    .text(1, &key)
                    .text(16, &almost_json(value)),
            );
        }
        self.write(7, &stats)
    }

    fn write_output(&mut self, event: &Event) -> io::Result<()> {
        let Some(line) = console::line(event) else {
            return Ok(());
        };
        let stream = match &event.kind {
            EventKind::Alarm { .. } | EventKind::LogLine { .. } => STDERR,
            _ => STDOUT,
        };
        let output = Message::default()
            .integer(1, stream)
            .message(2, &timestamp(self.context.wall_s(event.elapsed_ms)))
            .text(3, &format!("{line}\n"));
        self.write(13, &output)
    }
}

/// System metrics under W&B's own keys, so that its panels find them.
fn stats_items(kind: &EventKind) -> Vec<(String, f64)> {
    let EventKind::HostSampled {
        cpu_percent,
        memory_used_bytes,
        memory_total_bytes,
        process_memory_bytes,
        process_cpu_percent,
        gpus,
    } = kind
    else {
        return Vec::new();
    };
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let mut items = vec![
        ("cpu".to_owned(), *process_cpu_percent),
        ("system.cpu".to_owned(), *cpu_percent),
        (
            "memory_percent".to_owned(),
            percent(*memory_used_bytes, *memory_total_bytes),
        ),
        (
            "proc.memory.rssMB".to_owned(),
            *process_memory_bytes as f64 / f64::from(1 << 20),
        ),
        (
            "proc.memory.percent".to_owned(),
            percent(*process_memory_bytes, *memory_total_bytes),
        ),
    ];
    for gpu in gpus {
        let key = |name: &str| format!("gpu.{}.{name}", gpu.index);
        items.push((key("gpu"), gpu.utilization_percent));
        items.push((key("memoryAllocatedBytes"), gpu.memory_used_bytes as f64));
        items.push((
            key("memoryAllocated"),
            percent(gpu.memory_used_bytes, gpu.memory_total_bytes),
        ));
        items.push((key("powerWatts"), gpu.power_watts));
    }
    items
}

/// Python's JSON: bare NaN and Infinity.
fn almost_json(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else {
        format!("{value:?}")
    }
}

/// `google.protobuf.Timestamp`.
fn timestamp(wall_s: f64) -> Message {
    let seconds = wall_s.floor();
    Message::default()
        .integer(1, seconds as i64)
        .integer(2, ((wall_s - seconds) * 1e9) as i64)
}

impl Logger for Wandb {
    fn name(&self) -> &'static str {
        "wandb"
    }

    fn take(&mut self, event: &Event) -> io::Result<()> {
        if event.elapsed_ms.is_finite() {
            self.last_elapsed_ms = event.elapsed_ms;
        }
        let written = match &event.kind {
            EventKind::StepEnded { step, values, .. }
            | EventKind::EvalEnded { step, values, .. } => {
                self.add_to_row(*step, values, event.elapsed_ms)
            }
            kind @ EventKind::WeightsSynced { .. } => {
                let values = derived_values(kind)
                    .into_iter()
                    .map(|(name, value)| (name, Number(value)))
                    .collect();
                self.add_to_row(self.row_step.unwrap_or(0), &values, event.elapsed_ms)
            }
            EventKind::HostSampled { .. } => self.write_stats(event),
            EventKind::RunEnded { exit_code, .. } => {
                self.exit_code = Some(*exit_code);
                Ok(())
            }
            EventKind::RunResumed { .. } => {
                self.exit_code = None;
                Ok(())
            }
            _ => self.file.flush(),
        };
        self.write_output(event).and(written)
    }

    /// Writes the last row and summary, and the exit record when the run has ended: without it W&B shows a crash.
    fn finish(&mut self) -> io::Result<()> {
        let row = self.write_row();
        if let Some(exit_code) = self.exit_code.take() {
            let exit = Message::default()
                .integer(1, i64::from(exit_code))
                .integer(2, (self.last_elapsed_ms / 1e3) as i64);
            self.write(18, &exit)?;
        }
        row.and_then(|()| self.file.flush())
    }
}
