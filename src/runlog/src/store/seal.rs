//! Seals what the log says of metrics, piece by piece, so that a run of any length opens at once.
//!
//! ```text
//!  events.jsonl ─► fold ─► every 16 MiB of log: steps-000003.parquet, evals-…, syncs-…, host-…   the series
//!                                               state-000003.bin                                 all else that the fold knows
//!                                               index.json (renamed last)                        how far this goes
//! ```
//! Done by the run's writer, on a thread that only reads the log: it never holds a training step. A projection that does
//! not fit its log or was made by another version is thrown away and made again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::StoreError;
use super::segments::{self, SegmentFile};
use crate::event::EventKind;
use crate::run_dir::{self, RunDir};
use crate::series::SeriesSet;
use crate::state::RunState;
use crate::tail::{self, Limits, Tail};

/// Log bytes after which a segment is sealed: about 8,000 steps of 50 metrics; what is not sealed yet folds in a tenth of
/// a second.
const SEGMENT_BYTES: u64 = 16 << 20;
const INDEX: &str = "index.json";
/// Of the files' shape; raised when they change.
const LAYOUT: u32 = 3;
/// Log bytes before the sealed end that must be unchanged.
const CHECKED_BYTES: u64 = 4096;
/// How often a live run is looked at.
const SEAL_EVERY: Duration = Duration::from_secs(5);

/// How far the projection has got. Renamed into place after its files, so it never promises what is not there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Index {
    layout: u32,
    /// Version of the program and of its fold: the state file is only theirs.
    version: String,
    segments: u64,
    /// Bytes of `events.jsonl` that the segments hold; always the start of a line.
    events_offset: u64,
    /// Lines among them that are no events.
    bad_lines: u64,
    /// Of the [`CHECKED_BYTES`] before that: tells another log from a longer one.
    log_crc: u32,
    /// Of the state file.
    state_crc: u32,
    files: Vec<SegmentFile>,
    /// Where the run went back, in order. Files are never changed: what they have of superseded steps is cut when they are read.
    cuts: Vec<Cut>,
}

/// Once `files` files are read, rows of later steps than `step` are superseded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Cut {
    files: usize,
    step: u64,
}

fn version() -> String {
    format!(
        "{} fold {}",
        env!("CARGO_PKG_VERSION"),
        RunState::FOLD_VERSION
    )
}

fn state_path(directory: &Path, segments: u64) -> PathBuf {
    directory.join(format!("state-{segments:06}.bin"))
}

/// What is sealed of a run.
#[derive(Debug)]
struct Sealed {
    index: Index,
    /// The fold up to `index.events_offset`, without series.
    state: RunState,
}

/// Reads how far a projection goes. None: there is none. Err: there is one, and it does not fit.
fn sealed(run_dir: &RunDir) -> Result<Option<Sealed>, StoreError> {
    let directory = run_dir.metrics_dir();
    let path = directory.join(INDEX);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io("read", &path)(error)),
    };
    let index: Index = serde_json::from_slice(&text)
        .map_err(|error| StoreError::shape(&path, format!("made by another version: {error}")))?;
    if index.layout != LAYOUT || index.version != version() {
        return Err(StoreError::shape(
            &path,
            format!(
                "made by another version ({}); this is {}",
                index.version,
                version()
            ),
        ));
    }
    if log_crc(&run_dir.events_path(), index.events_offset)? != Some(index.log_crc) {
        return Err(StoreError::shape(
            &path,
            "events.jsonl is not the log it was made from",
        ));
    }
    let path = state_path(&directory, index.segments);
    let bytes = fs::read(&path).map_err(StoreError::io("read", &path))?;
    if crc32c::crc32c(&bytes) != index.state_crc {
        return Err(StoreError::shape(&path, "its checksum is wrong"));
    }
    let state = postcard::from_bytes(&bytes)
        .map_err(|error| StoreError::shape(&path, error.to_string()))?;
    Ok(Some(Sealed { index, state }))
}

/// The sealed series of a run, read a file at a time.
#[derive(Debug)]
pub(crate) struct SealedSeries {
    directory: PathBuf,
    files: std::vec::IntoIter<SegmentFile>,
    cuts: std::iter::Peekable<std::vec::IntoIter<Cut>>,
    read: usize,
    /// Rows of each source over all files: what is reserved.
    rows: [usize; 4],
}

/// What is sealed of a run, to be opened.
#[derive(Debug)]
pub(crate) struct OpenedSealed {
    pub(crate) series: SealedSeries,
    /// The fold without its series.
    pub(crate) state: RunState,
    /// Bytes of the log that this holds.
    pub(crate) events_offset: u64,
    /// Lines among them that are no events.
    pub(crate) bad_lines: u64,
}

/// None: nothing is sealed.
pub(crate) fn open_sealed(run_dir: &RunDir) -> Result<Option<OpenedSealed>, StoreError> {
    let Some(Sealed { index, state }) = sealed(run_dir)? else {
        return Ok(None);
    };
    let mut rows = [0; 4];
    for file in &index.files {
        if let Some(source) = file.source {
            rows[source as usize] += file.rows;
        }
    }
    Ok(Some(OpenedSealed {
        series: SealedSeries {
            directory: run_dir.metrics_dir(),
            files: index.files.into_iter(),
            cuts: index.cuts.into_iter().peekable(),
            read: 0,
            rows,
        },
        state,
        events_offset: index.events_offset,
        bad_lines: index.bad_lines,
    }))
}

impl SealedSeries {
    /// Adds the next file; false when there is none left.
    pub(crate) fn read_next(&mut self, series: &mut SeriesSet) -> Result<bool, StoreError> {
        while let Some(cut) = self.cuts.next_if(|cut| cut.files <= self.read) {
            series.rewind(cut.step);
        }
        let Some(file) = self.files.next() else {
            return Ok(false);
        };
        let rows = file
            .source
            .map_or(file.rows, |source| self.rows[source as usize]);
        segments::read(&self.directory, &file, rows, series)?;
        self.read += 1;
        Ok(true)
    }
}

/// Checksum of the last bytes before `offset`; None when the log is shorter.
fn log_crc(events_path: &Path, offset: u64) -> Result<Option<u32>, StoreError> {
    let from = offset.saturating_sub(CHECKED_BYTES);
    tail::read_range(events_path, from, (offset - from) as usize)
        .map(|bytes| (bytes.len() as u64 == offset - from).then(|| crc32c::crc32c(&bytes)))
        .map_err(StoreError::io("read", events_path))
}

/// Folds a log and seals it, segment by segment.
#[derive(Debug)]
pub struct Sealer {
    directory: PathBuf,
    index: Index,
    /// All that was read; `series` has only what is not sealed yet.
    state: RunState,
    tail: Tail,
    /// Bad lines before the place where `tail` began.
    bad_lines_before: u64,
    /// Of the index, and those since.
    cuts: Vec<Cut>,
}

impl Sealer {
    /// Goes on where the last one stopped, or starts anew where that does not fit the log.
    pub fn open(run_dir: &RunDir) -> Result<Self, StoreError> {
        let directory = run_dir.metrics_dir();
        fs::create_dir_all(&directory).map_err(StoreError::io("create", &directory))?;
        let found = sealed(run_dir).ok().flatten().filter(|found| {
            found.index.files.iter().all(|file| {
                fs::metadata(directory.join(&file.name))
                    .is_ok_and(|metadata| metadata.len() == file.bytes)
            })
        });
        let (index, state) = if let Some(found) = found {
            (found.index, found.state)
        } else {
            clear(&directory)?;
            let index = Index {
                layout: LAYOUT,
                version: version(),
                segments: 0,
                events_offset: 0,
                bad_lines: 0,
                log_crc: 0,
                state_crc: 0,
                files: Vec::new(),
                cuts: Vec::new(),
            };
            (index, RunState::default())
        };
        Ok(Self {
            tail: Tail::from_offset(run_dir.events_path(), index.events_offset),
            bad_lines_before: index.bad_lines,
            cuts: index.cuts.clone(),
            directory,
            index,
            state,
        })
    }

    /// Takes what the log has by now and seals each segment that is full; with `is_final` also the rest. Gives how many
    /// points were sealed.
    pub fn advance(&mut self, is_final: bool) -> Result<u64, StoreError> {
        let mut points = 0;
        loop {
            let batch = self
                .tail
                .read(Limits::OPENING)
                .map_err(StoreError::io("read", self.tail.path()))?;
            if batch.restarted {
                clear(&self.directory)?;
                self.index.segments = 0;
                self.index.events_offset = 0;
                self.bad_lines_before = 0;
                self.index.files.clear();
                self.cuts.clear();
                self.state = RunState::default();
            }
            for event in &batch.events {
                if let EventKind::RunResumed { from_step, .. } = event.kind {
                    self.cuts.push(Cut {
                        files: self.index.files.len(),
                        step: from_step,
                    });
                }
                self.state.apply(event);
            }
            let unsealed = self.tail.offset() - self.index.events_offset;
            if unsealed >= SEGMENT_BYTES || (is_final && !batch.has_more && unsealed > 0) {
                points += self.seal()?;
            }
            if !batch.has_more {
                return Ok(points);
            }
        }
    }

    fn seal(&mut self) -> Result<u64, StoreError> {
        let segment = self.index.segments;
        let files = segments::write(&self.directory, segment, &self.state.series)?;
        let state = postcard::to_allocvec(&self.state)
            .map_err(|error| StoreError::shape(&self.directory, error.to_string()))?;
        let path = state_path(&self.directory, segment + 1);
        let renamed = |path: &Path, bytes: &[u8]| {
            run_dir::write_renamed(path, bytes)
                .map_err(|error| StoreError::shape(path, error.to_string()))
        };
        renamed(&path, &state)?;
        let offset = self.tail.offset();
        let log_crc = log_crc(self.tail.path(), offset)?
            .ok_or_else(|| StoreError::shape(self.tail.path(), "it became shorter"))?;
        let mut index = self.index.clone();
        index.segments += 1;
        index.events_offset = offset;
        index.bad_lines = self.bad_lines_before + self.tail.bad_lines();
        index.log_crc = log_crc;
        index.state_crc = crc32c::crc32c(&state);
        index.cuts.clone_from(&self.cuts);
        index.files.extend(files);
        let text = serde_json::to_vec_pretty(&index).expect("numbers and names are JSON");
        renamed(&self.directory.join(INDEX), &text)?;
        // The last state is of no more use; one left behind by an error is removed with the next projection.
        let _ = fs::remove_file(state_path(&self.directory, segment));
        self.index = index;
        let points = self.state.series.points();
        self.state.series = SeriesSet::default();
        Ok(points)
    }
}

/// Removes what an earlier projection left, of whatever layout. The index goes first.
fn clear(directory: &Path) -> Result<(), StoreError> {
    let remove = |path: &Path| match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("remove", path)(error))
        }
        _ => Ok(()),
    };
    remove(&directory.join(INDEX))?;
    let entries = fs::read_dir(directory).map_err(StoreError::io("list", directory))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_ours = [
            "segment-", "steps-", "evals-", "syncs-", "host-", "mixed-", "state-", INDEX,
        ]
        .iter()
        .any(|start| name.starts_with(start));
        if is_ours {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Brings `metrics/` up to the events that are in the log now; gives the number of points it sealed.
///
/// Only full segments are sealed unless `is_final`. To be called by whoever holds the run's [`WriterLock`], or when nobody
/// does: two at once would write the same files.
///
/// [`WriterLock`]: crate::run_dir::WriterLock
pub fn project(run_dir: &RunDir, is_final: bool) -> Result<u64, StoreError> {
    Sealer::open(run_dir)?.advance(is_final)
}

/// The thread that seals a live run.
#[derive(Debug)]
pub struct Sealing {
    /// Dropped to ask for the end. Carries nothing; bound 0.
    stop: Option<mpsc::SyncSender<()>>,
    thread: Option<JoinHandle<Result<(), StoreError>>>,
}

/// Seals a run while it is written, every few seconds when there is a full segment. An error is tried again at the next
/// look; [`Sealing::finish`] gives the last one.
pub fn follow(run_dir: &RunDir) -> io::Result<Sealing> {
    let run_dir = run_dir.clone();
    let (stop, stopped) = mpsc::sync_channel::<()>(0);
    let thread = std::thread::Builder::new()
        .name("sealer".to_owned())
        .spawn(move || {
            let mut sealer = None;
            loop {
                let is_last =
                    stopped.recv_timeout(SEAL_EVERY) != Err(mpsc::RecvTimeoutError::Timeout);
                let outcome = match &mut sealer {
                    Some(sealer) => Ok(sealer),
                    None => Sealer::open(&run_dir).map(|opened| sealer.insert(opened)),
                }
                .and_then(|sealer| sealer.advance(is_last));
                if outcome.is_err() {
                    // What was folded and not sealed may be half on disk: begin again from the index.
                    sealer = None;
                }
                if is_last {
                    return outcome.map(|_| ());
                }
            }
        })?;
    Ok(Sealing {
        stop: Some(stop),
        thread: Some(thread),
    })
}

impl Sealing {
    /// Seals all that is in the log by now and ends the thread. Call it after the recorder's `close`.
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), StoreError> {
        self.stop.take();
        // A panic here must not take the run with it: what it left is made again at the next projection.
        self.thread
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or(Ok(()))
    }
}

impl Drop for Sealing {
    fn drop(&mut self) {
        let _ = self.join();
    }
}
