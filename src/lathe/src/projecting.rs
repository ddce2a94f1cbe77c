//! Keeps projections of other trackers' runs up to date, on a thread of its own, for as long as somebody looks.
//!
//! ```text
//!  sources ─► Projecting (thread) ─► $XDG_CACHE_HOME/lathe/foreign/<name>-<hash>/<run>/ ─► the workbench, as any run
//! ```
//! The newest runs first. Those that are being written are held open and looked at several times a second; the others are
//! read once, and again when their source has changed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etcetera::BaseStrategy;
use foreign::{ForeignError, Found, Options, Projection};
use runlog::run_dir::{RunDir, RunDirError};
use xxhash_rust::xxh3::xxh3_64;

/// Between two looks at runs that are being written.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Between two looks at all others.
const LOOK_AT_ALL_EVERY: Duration = Duration::from_secs(5);
/// Runs held open at once: each costs three files.
const MOST_OPEN: usize = 32;

/// Where the projections of what lies in `source` are kept; None without a home directory.
pub fn cache_root(source: &Path) -> Option<PathBuf> {
    let strategy = etcetera::base_strategy::Xdg::new().ok()?;
    let path = std::fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
    let name: String = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                c
            } else {
                '_'
            }
        })
        .take(60)
        .collect();
    let hash = xxh3_64(path.as_os_str().as_encoded_bytes());
    let folder = strategy.cache_dir().join("lathe/foreign");
    Some(folder.join(format!("{name}-{hash:016x}")))
}

/// A run and where its projection goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    pub found: Found,
    pub root: PathBuf,
}

#[derive(Debug, Default)]
struct Shared {
    /// Newest first.
    sources: Mutex<Vec<Source>>,
    is_stopped: AtomicBool,
}

/// The thread that reads. Dropping it ends it, after the piece that it is at.
#[derive(Debug)]
pub struct Projecting {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Projecting {
    pub fn start(options: Options) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("projecting".to_owned())
            .spawn(move || Keeper::new(of_thread, options).run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// What is to be kept up to date from now on, newest first.
    pub fn set(&self, sources: Vec<Source>) {
        *self.shared.sources.lock().expect("no holder panics") = sources;
    }
}

impl Drop for Projecting {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A reader that panics must not take the workbench with it.
            let _ = thread.join();
        }
    }
}

struct Keeper {
    shared: Arc<Shared>,
    options: Options,
    open: Vec<Projection>,
    looked_at_all: Option<Instant>,
}

impl Keeper {
    fn new(shared: Arc<Shared>, options: Options) -> Self {
        Self {
            shared,
            options,
            open: Vec::new(),
            looked_at_all: None,
        }
    }

    fn is_stopped(&self) -> bool {
        self.shared.is_stopped.load(Ordering::Acquire)
    }

    fn run(&mut self) {
        let mut known = Vec::new();
        while !self.is_stopped() {
            let sources = self
                .shared
                .sources
                .lock()
                .expect("no holder panics")
                .clone();
            let is_due = self
                .looked_at_all
                .is_none_or(|at| at.elapsed() >= LOOK_AT_ALL_EVERY);
            if is_due || sources != known {
                self.look_at_all(&sources);
                self.looked_at_all = Some(Instant::now());
                known = sources;
            }
            self.look_at_open();
            // A lock of the standard library cannot be waited for and a flag at once; this is soon enough for both.
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn look_at_all(&mut self, sources: &[Source]) {
        for source in sources {
            if self.is_stopped() {
                return;
            }
            let is_open = self.open.iter().any(|open| *open.found() == source.found);
            if is_open || Projection::is_current(&source.found, &source.root) {
                continue;
            }
            // Another process keeps it, or its source cannot be read: its list says so, and it is tried again.
            let Ok(mut projection) =
                Projection::open(&source.found, &source.root, None, &self.options)
            else {
                continue;
            };
            if self.catch_up(&mut projection) && self.open.len() < MOST_OPEN && projection.is_live()
            {
                self.open.push(projection);
            } else {
                let _ = projection.advance(true);
            }
        }
    }

    /// Reads to the end of what is there; false: it cannot be read, which its log then says.
    fn catch_up(&self, projection: &mut Projection) -> bool {
        loop {
            match projection.advance(false) {
                Ok(progress) if progress.has_more && !self.is_stopped() => {}
                Ok(_) => return true,
                Err(error) => {
                    // On a full disk the note is lost too; the next look tries both again.
                    let _ = projection.note(&error.to_string());
                    return false;
                }
            }
        }
    }

    fn look_at_open(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        open.retain_mut(|projection| {
            let is_read = self.catch_up(projection);
            let is_kept = is_read && projection.is_live();
            if is_read && !is_kept {
                let _ = projection.advance(true);
            }
            is_kept
        });
        self.open = open;
    }
}

/// The projection of a run as its source is now. Where another process keeps it up to date, that one's.
pub fn project_now(found: &Found, root: &Path, options: &Options) -> Result<RunDir, ForeignError> {
    match Projection::open(found, root, None, options) {
        Ok(mut projection) => {
            while projection.advance(true)?.has_more {}
            Ok(projection.run_dir().clone())
        }
        Err(ForeignError::RunDir(RunDirError::Busy { path, .. })) => Ok(RunDir::open(&path)?),
        Err(error) => Err(error),
    }
}

/// Makes the run's directory and reads the first megabytes, so that there is something to show.
pub fn begin(found: &Found, root: &Path, options: &Options) -> Result<RunDir, ForeignError> {
    match Projection::open(found, root, None, options) {
        Ok(mut projection) => {
            projection.advance(false)?;
            Ok(projection.run_dir().clone())
        }
        Err(ForeignError::RunDir(RunDirError::Busy { path, .. })) => Ok(RunDir::open(&path)?),
        Err(error) => Err(error),
    }
}
