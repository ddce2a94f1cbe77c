//! A run on disk: makes it, finds it, says who may write to it.
//!
//! ```text
//! runs/20261129-223713-quickstart-1f0c9a3e/
//!   run.json          [`RunInfo`], renamed into place     experiment.yaml   what this run used
//!   events.jsonl      the truth, one Event a line         lock              held (flock) by the one writer
//!   metrics/  rollouts/  checkpoints/  log.txt            see `store`, and the trainer
//!   control.sock      commands for the running trainer    see `control`
//!   .reserve          room for its last words on a full disk
//!   exit.json         how its process ended, [`Exit`]     mirror.json       of a copy: how fresh it is, [`Mirror`]
//! ```
//! Knows nothing of what the events mean. Every path inside a run directory is named here and nowhere else.

mod find;
mod info;
mod lock;
mod origin;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub use find::{DEFAULT_ROOT, ROOT_VARIABLE, list, resolve, root};
pub use info::{FORMAT_VERSION, Git, RunInfo, git_state, host_name};
pub(crate) use info::{boot_id, process_start_ticks};
pub use lock::WriterLock;
pub use origin::{Exit, Mirror, MirrorLink, Origin, ProcessIdentity, Standing};

/// What went wrong with a run directory. Each names the path and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is not a run: it has no run.json", path.display())]
    NotARun { path: PathBuf },
    #[error("{}: run.json cannot be read: {reason}", path.display())]
    Corrupt { path: PathBuf, reason: String },
    #[error(
        "{} was written in run format {found}; this program reads up to {known}: use a newer lathe",
        path.display()
    )]
    Newer {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error(
        "{} is being written by process {pid} on {host}; stop that run first, or start a new one",
        path.display()
    )]
    Busy {
        path: PathBuf,
        /// 0 when the holder has not written its id yet.
        pid: u32,
        host: String,
    },
    #[error("no run matches `{argument}` in {}{}", root.display(), nearest_text(nearest.as_deref()))]
    NotFound {
        argument: String,
        root: PathBuf,
        nearest: Option<String>,
    },
    #[error("`{argument}` fits {} runs: {}; give more of the id", candidates.len(), candidates.join(", "))]
    Ambiguous {
        argument: String,
        candidates: Vec<String>,
    },
    #[error("there are no runs in {} yet", root.display())]
    NoRuns { root: PathBuf },
}

fn nearest_text(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("; the newest is {name}"),
        None => String::new(),
    }
}

impl RunDirError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

/// What a caller says of a run that is about to start.
#[derive(Debug, Clone, Default)]
pub struct NewRun {
    pub project_name: String,
    pub experiment_name: String,
    pub seed: u64,
    /// Name of the run that this one continues.
    pub parent: Option<String>,
    pub git: Option<Git>,
    /// Program name to version.
    pub versions: std::collections::BTreeMap<String, String>,
    /// The command line as typed.
    pub command: Vec<String>,
    /// The resolved experiment, comments kept; becomes `experiment.yaml`.
    pub experiment_yaml: String,
    /// Eight hexadecimal digits; None: random ones.
    pub id: Option<String>,
    /// None: now.
    pub started_at: Option<jiff::Timestamp>,
    /// Where the run lies when this directory is to show one of elsewhere.
    pub origin: Option<Origin>,
}

/// An existing run directory of a format this program reads.
#[derive(Debug, Clone, PartialEq)]
pub struct RunDir {
    path: PathBuf,
    info: RunInfo,
}

impl RunDir {
    /// Makes `<root>/<utc time>-<experiment>-<id>` with mode 0700, `experiment.yaml` and `run.json`.
    ///
    /// `run.json` comes last and by rename, so a directory without it is one whose making was interrupted, and no run.
    pub fn create(root: &Path, new: &NewRun) -> Result<Self, RunDirError> {
        if root.exists() && !root.is_dir() {
            let what = "it is no directory; choose another with --runs or LATHE_RUNS";
            let error = io::Error::new(io::ErrorKind::NotADirectory, what);
            return Err(RunDirError::io("put runs into", root)(error));
        }
        fs::create_dir_all(root).map_err(RunDirError::io("create the runs directory", root))?;
        let (info, path) = loop {
            let info = RunInfo::new(new).map_err(RunDirError::io("name a run in", root))?;
            let path = root.join(&info.name);
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break (info, path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && new.id.is_none() => {}
                Err(error) => return Err(RunDirError::io("create", path)(error)),
            }
        };
        let run_dir = Self { path, info };
        write_renamed(&run_dir.experiment_path(), new.experiment_yaml.as_bytes())?;
        run_dir.write_info()?;
        Ok(run_dir)
    }

    /// Opens a run directory for reading. Refuses one of a newer format.
    pub fn open(path: &Path) -> Result<Self, RunDirError> {
        let info = RunInfo::read(path)?;
        Ok(Self {
            path: path.to_owned(),
            info,
        })
    }

    /// Makes this process the run's one writer, for as long as the lock lives, and writes its pid and host to `run.json`.
    pub fn take(&mut self) -> Result<WriterLock, RunDirError> {
        let lock = WriterLock::acquire(&self.path)?;
        self.info.owned_by_this_process();
        self.write_info()?;
        Ok(lock)
    }

    /// Makes this process the one writer of a run that it does not run, such as a copy of one; `run.json` stays.
    pub fn lock(&self) -> Result<WriterLock, RunDirError> {
        WriterLock::acquire(&self.path)
    }

    /// Replaces `run.json`. For the one writer.
    pub fn replace_info(&mut self, info: RunInfo) -> Result<(), RunDirError> {
        self.info = info;
        self.write_info()
    }

    /// Notes how many steps there are to be in all, for whoever does not read the log from its start. For the one writer, when a run
    /// goes on: by then its first line may be of another number.
    pub fn note_total_steps(&self, total_steps: u64) -> Result<(), RunDirError> {
        let mut known = Self::open(&self.path)?;
        known.info.total_steps = Some(total_steps);
        known.write_info()
    }

    /// Where the run lies of which this directory is a copy.
    pub fn origin(&self) -> Option<&Origin> {
        self.info.origin.as_ref()
    }

    /// Waits until this run has no writer.
    pub fn wait_until_free(&self) -> Result<(), RunDirError> {
        lock::wait_until_free(&self.path)
    }

    fn write_info(&self) -> Result<(), RunDirError> {
        let mut text = serde_json::to_vec_pretty(&self.info).expect("RunInfo has only string keys");
        text.push(b'\n');
        write_renamed(&self.path.join(info::FILE), &text)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// The directory's name; also what `parent` of another run refers to.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    pub fn events_path(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    pub fn experiment_path(&self) -> PathBuf {
        self.path.join("experiment.yaml")
    }

    pub fn metrics_dir(&self) -> PathBuf {
        self.path.join("metrics")
    }

    pub fn rollouts_dir(&self) -> PathBuf {
        self.path.join("rollouts")
    }

    pub fn checkpoints_dir(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// `checkpoints/step-000120`.
    pub fn checkpoint_path(&self, step: u64) -> PathBuf {
        self.checkpoints_dir().join(step_name(step))
    }

    pub fn log_path(&self) -> PathBuf {
        self.path.join("log.txt")
    }

    /// The socket of the running trainer; see [`crate::control`].
    /// Room for the last words of a run whose disk is full; there while the run is written.
    pub fn reserve_path(&self) -> PathBuf {
        self.path.join(".reserve")
    }

    pub fn control_path(&self) -> PathBuf {
        self.path.join("control.sock")
    }
}

/// `step-000120`: sorts as text up to a million steps.
pub fn step_name(step: u64) -> String {
    format!("step-{step:06}")
}

/// Writes a file aside, fsyncs it and renames it into place: readers see the old or the new one, never half.
pub fn write_renamed(path: &Path, bytes: &[u8]) -> Result<(), RunDirError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}.tmp", std::process::id()));
    let aside = PathBuf::from(aside);
    let written = (|| {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&aside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    })();
    written.map_err(|error| {
        // Nothing may be left behind on a full disk; the first error is the one to report.
        let _ = fs::remove_file(&aside);
        RunDirError::io("write", path)(error)
    })
}
