//! Other programs' logs, written from our events: console, file (verl's rows), tensorboard, wandb.
//!
//! ```text
//!  events.jsonl ─► Tail ─► thread ─► each Logger
//! ```
//! A resumed run's logs hold no step twice: `file` and `wandb` are brought back to the step it goes on from, and `tensorboard`
//! is told to forget what came after it. Loggers follow the log like any viewer, so they see what was recorded, in its order, and can neither stall nor end a
//! run. One that fails keeps what it has not written and tries again with the next event.

mod again;
mod appender;
mod console;
mod file;
mod tensorboard;
mod wandb;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, io};

use jiff::Timestamp;

pub use console::{Console, step_line};
pub use file::FileRows;
pub use tensorboard::TensorBoard;
pub use wandb::Wandb;

use crate::event::Event;
use crate::run_dir::{Git, RunDir};
use crate::tail::{self, Limits, Tail};

/// Takes events, one after another, and writes them in a form of its own.
pub trait Logger: Send {
    /// As in `trainer.logger`.
    fn name(&self) -> &'static str;
    /// On an error nothing is lost: what could not be written is tried again at the next call.
    fn take(&mut self, event: &Event) -> io::Result<()>;
    /// After the last event. What is still unwritten then is lost.
    fn finish(&mut self) -> io::Result<()>;
}

/// What a logger knows of the run beside its events.
#[derive(Debug, Clone)]
pub struct Context {
    pub run_path: PathBuf,
    pub run_id: String,
    /// The run directory's name.
    pub run_name: String,
    pub project_name: String,
    pub experiment_name: String,
    pub started_at: Timestamp,
    pub host: String,
    pub git: Option<Git>,
    pub command: Vec<String>,
    /// The effective experiment, as an object.
    pub config: serde_json::Value,
    /// The run goes on after this step: later ones are trained again.
    pub resumed_from: Option<u64>,
}

impl Context {
    pub fn new(run_dir: &RunDir, config: serde_json::Value) -> Self {
        let info = run_dir.info();
        Self {
            run_path: run_dir.path().to_owned(),
            run_id: info.id.clone(),
            run_name: info.name.clone(),
            project_name: info.project_name.clone(),
            experiment_name: info.experiment_name.clone(),
            started_at: info.started_at,
            host: info.host.clone(),
            git: info.git.clone(),
            command: info.command.clone(),
            config,
            resumed_from: None,
        }
    }

    /// Wall time of a moment of the run, seconds since 1970.
    fn wall_s(&self, elapsed_ms: f64) -> f64 {
        let elapsed_ms = if elapsed_ms.is_finite() {
            elapsed_ms
        } else {
            0.0
        };
        self.started_at.as_millisecond() as f64 / 1e3 + elapsed_ms / 1e3
    }
}

/// A name no logger answers to.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no logger `{name}`; there are: console, file, tensorboard, wandb")]
    Unknown { name: String },
    #[error("cannot open the {name} log: {source}")]
    Io { name: String, source: io::Error },
}

/// Opens a logger by its name in `trainer.logger`. `variable` looks up an environment variable.
pub fn open(
    name: &str,
    context: &Context,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Box<dyn Logger>, OpenError> {
    let variable = |key: &str| variable(key).filter(|value| !value.is_empty());
    let opened: io::Result<Box<dyn Logger>> = match name {
        "console" => Ok(Box::new(Console::new(Box::new(io::stdout())))),
        "file" => FileRows::of_run(&file::path(context, &variable), context)
            .map(|logger| Box::new(logger) as Box<dyn Logger>),
        "tensorboard" => {
            let directory = variable("TENSORBOARD_DIR")
                .map_or_else(|| context.run_path.join("tensorboard"), PathBuf::from);
            TensorBoard::open(&directory, context).map(|logger| Box::new(logger) as Box<dyn Logger>)
        }
        "wandb" => {
            let parent =
                variable("WANDB_DIR").map_or_else(|| context.run_path.clone(), PathBuf::from);
            Wandb::open(&parent, context).map(|logger| Box::new(logger) as Box<dyn Logger>)
        }
        other => {
            return Err(OpenError::Unknown {
                name: other.to_owned(),
            });
        }
    };
    opened.map_err(|source| OpenError::Io {
        name: name.to_owned(),
        source,
    })
}

/// Called when a logger starts to fail (with its error) and when it works again (None).
pub type Report = Box<dyn FnMut(&'static str, Option<&io::Error>) + Send>;

/// The thread that feeds the loggers of one run.
#[derive(Debug)]
pub struct Following {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Feeds `loggers` with what is recorded from now on. Start it before recording `RunStarted`.
pub fn follow(
    run_dir: &RunDir,
    mut loggers: Vec<Box<dyn Logger>>,
    mut report: Report,
) -> io::Result<Following> {
    let path = run_dir.events_path();
    let offset = match fs::File::open(&path) {
        Ok(file) => tail::whole_size(&file)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::Builder::new()
        .name("loggers".to_owned())
        .spawn(move || {
            let mut tail = Tail::from_offset(path, offset);
            let mut is_failing = vec![false; loggers.len()];
            let mut note = |index: usize, name, outcome: io::Result<()>| {
                if outcome.is_err() != is_failing[index] {
                    is_failing[index] = outcome.is_err();
                    report(name, outcome.as_ref().err());
                }
            };
            loop {
                // Asked first: what was recorded before the request is still read below.
                let is_last = stopped.load(Ordering::Acquire);
                let wait = if is_last {
                    Duration::ZERO
                } else {
                    Duration::from_millis(200)
                };
                let Ok(batch) = tail.wait(Limits::LIVE, wait) else {
                    if is_last {
                        break;
                    }
                    std::thread::sleep(wait);
                    continue;
                };
                for event in &batch.events {
                    for (index, logger) in loggers.iter_mut().enumerate() {
                        note(index, logger.name(), logger.take(event));
                    }
                }
                if is_last && !batch.has_more {
                    break;
                }
            }
            for (index, logger) in loggers.iter_mut().enumerate() {
                note(index, logger.name(), logger.finish());
            }
        })?;
    Ok(Following {
        stop,
        thread: Some(thread),
    })
}

impl Following {
    /// Feeds what is in the log by now, finishes the loggers and ends the thread. Call it after the recorder's `close`.
    pub fn finish(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A logger that panics must not take the run with it.
            let _ = thread.join();
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.join();
    }
}
