//! A foreign run as a run directory of ours, brought up to date step by step.
//!
//! ```text
//!  Reader ─► Item ─► Fold (which step, which time, what is superseded) ─► Writer ─► events.jsonl, log.txt, experiment.yaml
//!                                                                             └─► foreign.json: the reader's place, sizes
//! ```
//! `foreign.json` is renamed into place after the files it speaks of were written, and says how long they were: what a killed
//! projection wrote beyond that is cut off by the next one. So each thing of the source stands in the log exactly once.

mod fold;
mod host;
mod terminal;
mod writer;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use runlog::event::{EventKind, RunStatus};
use runlog::run_dir::{NewRun, Origin, RunDir, RunDirError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::find::{made_s, written_at};
use crate::read::{self, Reader};
use crate::{ForeignError, Format, Found, Item, Options};
use fold::Fold;
use writer::Writer;

/// Beside `run.json` of a projection.
const STATE_FILE: &str = "foreign.json";
/// Raised when an older program would go on wrongly from a newer state.
const STATE_VERSION: u32 = 1;

/// What stands in `foreign.json`.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    version: u32,
    format: Format,
    path: PathBuf,
    run: String,
    /// Of the reader.
    place: Value,
    events_bytes: u64,
    log_bytes: u64,
    fold: Fold,
}

/// How a projection stands, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Values written, over all imports.
    pub values: u64,
    /// The newest step.
    pub step: Option<u64>,
    pub metrics: usize,
    /// What was left out or could not be read, and where.
    pub notes: Vec<String>,
    /// Notes beyond those.
    pub more_notes: u64,
    /// The source says that the run has ended.
    pub is_ended: bool,
}

/// What one [`Projection::advance`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Things that came from the source.
    pub items: usize,
    pub has_more: bool,
    pub is_ended: bool,
}

/// The one writer of a projection. Dropping it frees the run for another.
#[derive(Debug)]
pub struct Projection {
    run_dir: RunDir,
    found: Found,
    reader: Box<dyn Reader>,
    fold: Fold,
    writer: Writer,
    /// The source gave nothing new at the last look.
    is_quiet: bool,
    /// It was there before this import.
    is_continued: bool,
}

impl Projection {
    /// Opens the projection of `found` below `root`, where an earlier import left off, or makes it.
    ///
    /// Refused while another process writes it: [`RunDirError::Busy`].
    pub fn open(
        found: &Found,
        root: &Path,
        name: Option<&str>,
        options: &Options,
    ) -> Result<Self, ForeignError> {
        let known = Self::known(found, root);
        let is_continued = known.is_some();
        let mut run_dir = match known {
            Some(path) => RunDir::open(&path)?,
            None => create(found, root, name)?,
        };
        let lock = run_dir.take()?;
        let state = read_state(run_dir.path())?;
        let mut writer = Writer::open(&run_dir, lock)?;
        let (place, mut fold) = match state {
            Some(state) if writer.cut(state.events_bytes, state.log_bytes)? => {
                (Some(state.place), state.fold)
            }
            // Files that are shorter than they were: a disk that was full or lost power.
            _ => {
                writer.clear()?;
                // Sealed from what is cut off.
                let _ = std::fs::remove_dir_all(run_dir.metrics_dir());
                (None, Fold::new(found, started_s(&run_dir)))
            }
        };
        fold.begin_session();
        let reader = read::open(found, place.as_ref(), options)?;
        Ok(Self {
            run_dir,
            found: found.clone(),
            reader,
            fold,
            writer,
            is_quiet: false,
            is_continued,
        })
    }

    /// Follows a log of a program that this process started, into the run directory made for it: times are the clock's.
    /// `started` is the run's first event. The log may not be there yet.
    pub fn within(
        mut run_dir: RunDir,
        found: Found,
        started: EventKind,
    ) -> Result<Self, ForeignError> {
        let lock = run_dir.take()?;
        let mut writer = Writer::open(&run_dir, lock)?;
        let mut fold = Fold::new(&found, started_s(&run_dir));
        fold.start_live(started, &mut writer);
        let reader = read::open(&found, None, &Options::default())?;
        writer.write()?;
        Ok(Self {
            run_dir,
            found,
            reader,
            fold,
            writer,
            is_quiet: false,
            is_continued: false,
        })
    }

    /// Writes the run's end, after all that its source said.
    pub fn end(
        &mut self,
        status: RunStatus,
        exit_code: i32,
        reason: &str,
    ) -> Result<(), ForeignError> {
        let ended = Item::Ended {
            at: None,
            status,
            exit_code,
            reason: reason.to_owned(),
        };
        self.fold.take(ended, &mut self.writer);
        self.save()
    }

    /// The directory of an earlier import of the same run.
    pub fn known(found: &Found, root: &Path) -> Option<PathBuf> {
        let ending = format!("-{}", id(found));
        let names = std::fs::read_dir(root).ok()?.flatten();
        names
            .map(|entry| entry.path())
            .filter(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().ends_with(&ending))
            })
            .find(|path| path.join("run.json").exists())
    }

    /// What a projection is of; None: it is none, or that is not there any more.
    pub fn source(run_dir: &RunDir, options: &Options) -> Option<Found> {
        let Some(Origin::Foreign { path: place, .. }) = run_dir.origin() else {
            return None;
        };
        let whole = Path::new(place);
        let file = match place.rsplit_once('#') {
            Some((file, _)) if !whole.exists() => Path::new(file),
            _ => whole,
        };
        let found = crate::find(file, options).ok()?;
        found.into_iter().find(|found| found.place() == *place)
    }

    /// True: the projection is as new as its source. Costs a few looks at files' times.
    pub fn is_current(found: &Found, root: &Path) -> bool {
        let Some(known) = Self::known(found, root) else {
            return false;
        };
        let projected =
            std::fs::metadata(known.join("events.jsonl")).and_then(|metadata| metadata.modified());
        projected.is_ok_and(|at| written_at(&found.path) == Some(at))
    }

    /// True: no end is known, and the source was written lately.
    pub fn is_live(&self) -> bool {
        let silent =
            written_at(&self.found.path).and_then(|at| SystemTime::now().duration_since(at).ok());
        !self.fold.is_ended() && silent.is_none_or(|silent| silent < runlog::state::SILENCE)
    }

    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    pub fn found(&self) -> &Found {
        &self.found
    }

    /// True: it was imported before, and goes on from there.
    pub fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// Takes what is new in the source, some megabytes at most. `is_last`: nobody looks again soon.
    pub fn advance(&mut self, is_last: bool) -> Result<Progress, ForeignError> {
        if self.fold.is_live && !self.found.path.exists() {
            // Its program has not come to that yet.
            return Ok(Progress::default());
        }
        let batch = self.reader.read(is_last)?;
        let items = batch.items.len();
        for item in batch.items {
            self.fold.take(item, &mut self.writer);
        }
        let is_settled = !self.found.format.scatters_steps() || (items == 0 && self.is_quiet);
        self.is_quiet = items == 0 && !batch.has_more;
        if !batch.has_more {
            if is_last {
                self.fold.finish(&mut self.writer);
            } else if is_settled {
                self.fold.flush(&mut self.writer);
            }
            self.fold.is_caught_up = true;
        }
        if items > 0 || self.writer.has_waiting() || is_last {
            self.save()?;
        }
        Ok(Progress {
            items,
            has_more: batch.has_more,
            is_ended: self.fold.is_ended(),
        })
    }

    /// Says something about the source that a reader could not: that it is gone, for one. Said once of each text.
    pub fn note(&mut self, text: &str) -> Result<(), ForeignError> {
        if self.fold.note(text, &mut self.writer) {
            self.save()?;
        }
        Ok(())
    }

    pub fn report(&self) -> Report {
        self.fold.report()
    }

    fn save(&mut self) -> Result<(), ForeignError> {
        if let Some(config) = self.fold.changed_config() {
            let path = self.run_dir.experiment_path();
            runlog::run_dir::write_renamed(&path, config.as_bytes())?;
        }
        if let Some((host, commit)) = self.fold.changed_about() {
            let mut info = self.run_dir.info().clone();
            if let Some(host) = host {
                info.host = host;
            }
            if let Some(commit) = commit {
                info.git = Some(runlog::run_dir::Git {
                    commit,
                    dirty: false,
                });
            }
            self.run_dir.replace_info(info)?;
        }
        let (events_bytes, log_bytes) = self.writer.write()?;
        let state = State {
            version: STATE_VERSION,
            format: self.found.format,
            path: self.found.path.clone(),
            run: self.found.run.clone(),
            place: self.reader.place(),
            events_bytes,
            log_bytes,
            fold: std::mem::take(&mut self.fold),
        };
        let text = serde_json::to_vec(&state).expect("only text keys and numbers that JSON has");
        self.fold = state.fold;
        runlog::run_dir::write_renamed(&self.run_dir.path().join(STATE_FILE), &text)?;
        // As old as its source: by that lists know a live run from a silent one.
        if !self.fold.is_live
            && let Some(at) = written_at(&self.found.path)
        {
            self.writer.set_modified(at);
        }
        Ok(())
    }
}

fn read_state(run_dir: &Path) -> Result<Option<State>, ForeignError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let path = run_dir.join(STATE_FILE);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ForeignError::io("read", &path)(error)),
    };
    let version = serde_json::from_slice::<Version>(&bytes).map(|version| version.version);
    match (version, serde_json::from_slice(&bytes)) {
        (Ok(STATE_VERSION), Ok(state)) => Ok(Some(state)),
        _ => Err(ForeignError::State { path }),
    }
}

/// Eight hexadecimal digits, the same whenever this run of this source is imported.
fn id(found: &Found) -> String {
    let path = std::fs::canonicalize(&found.path).unwrap_or_else(|_| found.path.clone());
    let key = format!("{}\n{}\n{}", found.format, path.display(), found.run);
    format!("{:08x}", xxh3_64(key.as_bytes()) as u32)
}

fn create(found: &Found, root: &Path, name: Option<&str>) -> Result<RunDir, RunDirError> {
    let started_s = found.started_s.or_else(|| made_s(&found.path));
    let started_at =
        started_s.and_then(|s| jiff::Timestamp::from_microsecond((s * 1e6) as i64).ok());
    let new = NewRun {
        project_name: found.project.clone(),
        experiment_name: name.unwrap_or(&found.name).to_owned(),
        versions: [("lathe".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
        id: Some(id(found)),
        started_at,
        origin: Some(Origin::Foreign {
            format: found.format.name().to_owned(),
            path: found.place(),
        }),
        ..NewRun::default()
    };
    RunDir::create(root, &new)
}

/// Seconds since 1970, as `run.json` has it: to what all times of the projection are relative.
fn started_s(run_dir: &RunDir) -> f64 {
    run_dir.info().started_at.as_microsecond() as f64 / 1e6
}
