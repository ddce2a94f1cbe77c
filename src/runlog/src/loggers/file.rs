//! verl's `file` logger: JSON lines `{"step": 12, "data": {"actor/pg_loss": 0.01, …}}`.
//!
//! Two differences, both on purpose: verl truncates the file at each start and we append, but a resumed run takes the rows
//! of the steps out that it trains again; verl writes NaN as null and we write `"NaN"`. A step and an evaluation after it are
//! two rows of one step.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::appender::Appender;
use super::{Context, Logger, again};
use crate::event::{Event, EventKind};
use crate::number::Values;

#[derive(Debug)]
pub struct FileRows {
    rows: Appender,
}

#[derive(Serialize)]
struct Row<'a> {
    step: u64,
    data: &'a Values,
}

/// `$VERL_FILE_LOGGER_PATH`, else `$VERL_FILE_LOGGER_ROOT/<project>/<experiment>.jsonl`, else `metrics.jsonl` in the run.
pub(super) fn path(context: &Context, variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    if let Some(path) = variable("VERL_FILE_LOGGER_PATH") {
        return PathBuf::from(path);
    }
    match variable("VERL_FILE_LOGGER_ROOT") {
        Some(root) => Path::new(&root)
            .join(&context.project_name)
            .join(format!("{}.jsonl", context.experiment_name)),
        None => context.run_path.join("metrics.jsonl"),
    }
}

/// The line of a step or an evaluation; None for other events.
fn line(event: &Event) -> io::Result<Option<Vec<u8>>> {
    let (EventKind::StepEnded { step, values, .. } | EventKind::EvalEnded { step, values, .. }) =
        &event.kind
    else {
        return Ok(None);
    };
    let mut line = serde_json::to_vec(&Row {
        step: *step,
        data: values,
    })?;
    line.push(b'\n');
    Ok(Some(line))
}

impl FileRows {
    /// The file at `path`; of a resumed run without the steps that are trained again.
    pub(super) fn of_run(path: &Path, context: &Context) -> io::Result<Self> {
        match context.resumed_from {
            Some(from_step) if path.starts_with(&context.run_path) && path.exists() => {
                again::rebuild(path, context, from_step, |rows| Ok(Self { rows }))
            }
            Some(from_step) => {
                again::without_superseded(path, context, from_step, line)?;
                Self::open(path)
            }
            None => Self::open(path),
        }
    }

    pub fn open(path: &Path) -> io::Result<Self> {
        let mut rows = Appender::open(path)?;
        let size = rows.size();
        let mut last = *b"\n";
        if size > 0 {
            rows.file().read_exact_at(&mut last, size - 1)?;
        }
        if last != *b"\n" {
            // An earlier writer was cut off: our first row must not continue its last.
            rows.append(b"\n")?;
        }
        Ok(Self { rows })
    }
}

impl Logger for FileRows {
    fn name(&self) -> &'static str {
        "file"
    }

    fn take(&mut self, event: &Event) -> io::Result<()> {
        match line(event)? {
            Some(row) => self.rows.append(&row),
            None => self.rows.flush(),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.rows.flush()
    }
}
