//! The thread that writes checkpoints, one at a time, from one copy in memory. Where a second one is due before the first is on
//! disk, it waits its turn, and the learner waits for it only when it comes to its next optimizer step.

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use dialogue::tokenizer::Tokenizer;
use experiment::Experiment;
use runlog::checkpoints::{self, Lookback, Rules};
use runlog::disk;
use runlog::event::{EventKind, Lane};
use runlog::recorder::Recorder;
use runlog::run_dir::RunDir;
use tch::Kind;

use super::capture::{Capture, Models};
use super::logprobs;
use crate::control::Told;
use crate::model::transformer::Transformer;
use crate::run::panic_text;
use crate::save::RunCounters;

/// How long a checkpoint waits for the log to be on the disk before it is given up.
const LOG_PATIENCE: Duration = Duration::from_secs(30);

/// One checkpoint to be written.
#[derive(Debug)]
pub struct Request {
    pub capture: Capture,
    pub counters: RunCounters,
    /// Token ids whose log-probs it is to hold.
    pub sample_ids: Vec<Vec<u32>>,
    /// The learner waits for the end of the write, so nothing is copied.
    pub is_awaited: bool,
    /// Who asked for it, if anybody did.
    pub told: Option<Told>,
}

#[derive(Debug)]
pub struct SaverParts {
    pub run_dir: RunDir,
    pub recorder: Recorder,
    pub experiment: Arc<Experiment>,
    pub tokenizer: Arc<Tokenizer>,
    /// Where the tokenizer files are.
    pub tokenizer_files: PathBuf,
    /// dtype of the matrix work.
    pub compute: Kind,
}

/// Why a checkpoint was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NotSaved {
    pub message: String,
    /// The disk had no room for it.
    pub lacks_room: bool,
}

/// Owns the thread; dropping it waits until all are written.
#[derive(Debug)]
pub struct Saver {
    shared: Arc<Shared>,
    // Bound 1, and hardly ever waited at: a learner lends nothing before what it lent last is copied.
    requests: Option<mpsc::SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Being written, or waiting for it.
    in_flight: usize,
    /// Path inside the run directory, or why it was not written.
    last: Option<Result<String, NotSaved>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn idle(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while state.in_flight > 0 {
            state = self.changed.wait(state).expect("no holder panics");
        }
        state
    }

    fn ended(&self, outcome: Result<String, NotSaved>) {
        let mut state = self.state();
        state.in_flight -= 1;
        state.last = Some(outcome);
        drop(state);
        self.changed.notify_all();
    }
}

impl Saver {
    pub fn start(parts: SaverParts) -> io::Result<Self> {
        let shared: Arc<Shared> = Arc::default();
        let (requests, taken) = mpsc::sync_channel::<Request>(1);
        let thread = std::thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    // The last copy: its memory is the next one's.
                    let mut copy = None;
                    while let Ok(mut request) = taken.recv() {
                        let told = request.told.take();
                        let step = request.counters.step;
                        let left_behind = request.counters.guards.left_behind().to_vec();
                        let written = std::panic::catch_unwind(AssertUnwindSafe(|| {
                            parts.write(request, &mut copy)
                        }))
                        .unwrap_or_else(|panic| {
                            let reason = panic_text(&*panic);
                            Err(parts.failed(step, format!("the writer panicked: {reason}"), false))
                        });
                        let is_written = written.is_ok();
                        // Before the end, which the run may wait for: then everybody has an answer.
                        if let Some(told) = told {
                            told.tell(written.clone().map_err(|not| not.message));
                        }
                        shared.ended(written);
                        if is_written {
                            parts.prune(step, left_behind);
                        }
                    }
                }
            })?;
        Ok(Self {
            shared,
            requests: Some(requests),
            thread: Some(thread),
        })
    }

    /// Has it written, after what was asked for before.
    pub fn save(&self, request: Request) {
        self.shared.state().in_flight += 1;
        let sender = self.requests.as_ref().expect("it is there until the drop");
        if sender.send(request).is_err() {
            self.shared.ended(Err(NotSaved {
                message: "the thread that writes checkpoints is gone".to_owned(),
                lacks_room: false,
            }));
        }
    }

    /// Waits until all are written. Gives what became of the last one: its path inside the run directory.
    pub fn wait(&self) -> Option<Result<String, NotSaved>> {
        self.shared.idle().last.clone()
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.requests.take();
        if let Some(thread) = self.thread.take() {
            // It catches its own panics; what it could not write is an alarm already.
            drop(thread.join());
        }
    }
}

impl SaverParts {
    /// `copy`: in the memory of the last one, if there was one.
    fn write(&self, request: Request, copy: &mut Option<Models>) -> Result<String, NotSaved> {
        let Request {
            capture,
            counters,
            sample_ids,
            is_awaited,
            told: _,
        } = request;
        let step = counters.step;
        let span = self
            .recorder
            .span(Lane::Checkpoint, format!("step {step}"), Some(step));
        let gates = capture.gates();
        let lent;
        let models = if is_awaited {
            lent = capture;
            lent.models()
        } else {
            let copied = capture
                .copied(copy.take())
                .map_err(|problem| self.failed(step, problem, false))?;
            copy.insert(copied)
        };
        let written = checkpoints::write(
            &self.run_dir.checkpoints_dir(),
            step,
            |directory| {
                models.write(directory, &self.tokenizer_files)?;
                let weights = models.actor.parameters.shallow_clone();
                let model = Transformer::new(weights, self.compute, false);
                logprobs::write(directory, &model, &self.tokenizer, &sample_ids)?;
                counters.write(directory)
            },
            // A checkpoint of a step that the log does not know would be resumed from into a hole.
            || {
                self.recorder
                    .persist(LOG_PATIENCE)
                    .map_err(io::Error::other)
            },
        );
        let save_ms = span.end();
        let written = written.map_err(|error| {
            let lacks_room = lacks_room(&error) || disk::full(self.run_dir.path()).is_some();
            self.failed(step, error.to_string(), lacks_room)
        })?;
        let path = written
            .path
            .strip_prefix(self.run_dir.path())
            .unwrap_or(&written.path)
            .display()
            .to_string();
        let blocked_ms = if is_awaited {
            save_ms
        } else {
            gates.waited().as_secs_f64() * 1e3
        };
        self.recorder.record(EventKind::CheckpointSaved {
            step,
            path: path.clone(),
            bytes: written.bytes,
            save_ms,
            blocked_ms,
        });
        Ok(path)
    }

    /// Tells that a checkpoint was not written; the run goes on.
    fn failed(&self, step: u64, message: String, lacks_room: bool) -> NotSaved {
        self.recorder.record(EventKind::Alarm {
            name: "checkpoint not written".to_owned(),
            step: Some(step),
            message: message.clone(),
        });
        NotSaved {
            message,
            lacks_room,
        }
    }

    fn prune(&self, step: u64, left_behind: Vec<(u64, u64)>) {
        let rules = Rules {
            left_behind,
            ..keep_rules(&self.experiment)
        };
        if rules.last.is_none() {
            return;
        }
        if let Err(error) = self.remove_surplus(&rules) {
            self.recorder.record(EventKind::Alarm {
                name: "old checkpoint not removed".to_owned(),
                step: Some(step),
                message: error.to_string(),
            });
        }
    }

    fn remove_surplus(&self, rules: &Rules) -> io::Result<()> {
        // Broken ones count for nothing and are left for whoever wants to look at them.
        let whole: Vec<_> = checkpoints::list(&self.run_dir.checkpoints_dir())?
            .into_iter()
            .filter(|found| checkpoints::measure(&found.path).is_ok())
            .collect();
        if whole.len() <= rules.last.unwrap_or(usize::MAX) {
            return Ok(());
        }
        let state = runlog::open::open(&self.run_dir)?.state;
        let metric = &self.experiment.trainer.ckpt_best_metric;
        let score = |pattern: &str, step| {
            checkpoints::score(&state, |name| experiment::glob(pattern, name), step)
        };
        let judged = checkpoints::judge(
            &whole,
            |step| score(metric, step),
            |step| score(experiment::guards::GOAL, step),
            rules,
        );
        for one in judged.iter().filter(|one| one.kept.is_empty()) {
            checkpoints::remove(&one.found.path)?;
        }
        Ok(())
    }
}

/// Also where the error of the disk lies deep in another.
fn lacks_room(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_so = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    };
    std::iter::successors(Some(error), |error| error.source())
        .any(|error| error.downcast_ref::<io::Error>().is_some_and(is_so))
}

/// What the experiment says of which checkpoints to keep.
fn keep_rules(experiment: &Experiment) -> Rules {
    let keep = experiment.keep();
    Rules {
        last: keep.last,
        every: keep.every,
        best: keep.best,
        scored_every: keep.scored_every,
        guards: keep.guards.map(|guards| Lookback {
            steps: guards.steps,
            to_best: guards.to_best,
        }),
        left_behind: Vec::new(),
    }
}
