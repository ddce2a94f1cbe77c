//! Keeps a copy of a run that goes on elsewhere: `events.jsonl` and `log.txt` byte by byte from where the copy ends, again after
//! each cut, so that nothing is missing and nothing is there twice. All that reads runs then reads the copy.
//!
//! One process keeps a copy (the run's lock); every other that wants it waits for that lock and takes over. The copy is only
//! ever appended to; where the other side holds something else, it is begun anew, and that is said.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use runlog::disk;
use runlog::run_dir::{
    Exit, Mirror, MirrorLink, Origin, ProcessIdentity, RunDir, RunDirError, RunInfo, Standing,
    write_renamed,
};

use super::link::{Link, LinkError};
use super::waits::{self, Waits, network_changes};
use crate::far::{GROWING, now_ms};
use crate::hash;
use crate::targets::Target;
use crate::wire::{Ask, Beat, Have, Say};

/// On its way unacknowledged: enough for half a megabyte a second at a fifth of a second of delay, and little for a command to
/// wait behind.
const WINDOW_BYTES: u64 = 256 << 10;
/// Every second there is a beat, so this long without a word is a dead line.
const SILENCE: Duration = Duration::from_secs(8);
const PING_EVERY: Duration = Duration::from_secs(1);
/// Between two notes of how the copy stands, when nothing but its lag changed.
const NOTE_EVERY: Duration = Duration::from_secs(2);
/// Between two looks at whether the lock is free.
const LOCK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks, in a wait for a cut line, at whether this machine's network has changed.
const NETWORK_EVERY: Duration = Duration::from_millis(250);
/// A line that held this long was a good one: the next wait is short again.
const GOOD_LINE: SignedDuration = SignedDuration::from_secs(10);
/// Between two looks at whether a disk that was full has room.
const ROOM_EVERY: Duration = Duration::from_secs(1);
/// With less than this on the disk here nothing is asked for that could not be kept.
const SOME_ROOM_BYTES: u64 = 1 << 20;

/// A thread that keeps the copy of one run. Dropping it has the thread end soon; it is not waited for, since it may be in a
/// connection that takes its time, and the copy is whole at every moment.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    is_stopping: bool,
    /// Another process keeps the copy.
    is_kept_elsewhere: bool,
    /// The thread is gone.
    has_ended: bool,
    /// As it was last noted, if this process keeps the copy.
    mirror: Option<Mirror>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True: told to stop.
    fn wait(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if state.is_stopping || left.is_zero() {
                return state.is_stopping;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits for a while, and no longer than until the network has changed since it was at `changes`. True: told to stop.
    fn wait_for_network(&self, patience: Duration, changes: u64) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // At least one wait, however often the network changes.
            if self.wait(left.min(NETWORK_EVERY)) {
                return true;
            }
            if left <= NETWORK_EVERY || network_changes() != changes {
                return false;
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }
}

impl Keeper {
    /// Keeps the copy in `run_dir`, as soon as nobody else does.
    pub fn start(run_dir: &RunDir, target: Target) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                is_stopping: false,
                is_kept_elsewhere: false,
                has_ended: false,
                mirror: None,
            }),
            changed: Condvar::new(),
        });
        let keeper = Self {
            shared: Arc::clone(&shared),
        };
        let path = run_dir.path().to_owned();
        std::thread::Builder::new()
            .name("mirror".to_owned())
            .spawn(move || {
                keep(&path, &target, &shared);
                shared.lock().has_ended = true;
            })?;
        Ok(keeper)
    }

    /// Waits until everything is here, whoever brings it; false: not within this time.
    pub fn wait_until_complete(&self, patience: Duration) -> bool {
        self.wait_for(patience, |mirror| mirror.link == MirrorLink::Complete)
    }

    /// Waits until it is known how the run stands now, or that this cannot be known; false: not within this time.
    pub fn wait_for_news(&self, patience: Duration) -> bool {
        self.wait_for(patience, |mirror| mirror.link != MirrorLink::Connecting)
    }

    fn wait_for(&self, patience: Duration, is_so: impl Fn(&Mirror) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            {
                let state = self.shared.lock();
                if state.mirror.as_ref().is_some_and(&is_so) || state.is_kept_elsewhere {
                    return true;
                }
                if state.has_ended {
                    return false;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let state = self.shared.lock();
            drop(
                self.shared
                    .changed
                    .wait_timeout(state, left.min(Duration::from_millis(50)))
                    .unwrap_or_else(PoisonError::into_inner),
            );
        }
    }

    /// How the copy stands, if it is this process that keeps it.
    pub fn status(&self) -> Option<Mirror> {
        self.shared.lock().mirror.clone()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.changed.notify_all();
    }
}

/// Whether everything of a run is here already.
pub fn is_complete(run_dir: &RunDir) -> bool {
    Mirror::read(run_dir).is_some_and(|mirror| mirror.link == MirrorLink::Complete)
}

/// Has the copy be looked at anew: what was complete may have gone on there since, told to by somebody else.
pub fn reopen(run_dir: &RunDir) -> Result<(), RunDirError> {
    match Mirror::read(run_dir) {
        Some(mirror) if mirror.link == MirrorLink::Complete => Mirror {
            keeper: ProcessIdentity::of(std::process::id()),
            link: MirrorLink::Connecting,
            ..mirror
        }
        .write(run_dir),
        _ => Ok(()),
    }
}

/// The run of this copy, which is complete, was told to go on there.
pub fn goes_on(run_dir: &RunDir) -> Result<(), RunDirError> {
    let log_bytes = std::fs::metadata(run_dir.events_path()).map_or(0, |log| log.len());
    Exit::put_aside(run_dir.path())?;
    Mirror {
        keeper: ProcessIdentity::of(std::process::id()),
        link: MirrorLink::Connecting,
        standing: Standing::Queued {
            why: "to begin".to_owned(),
        },
        heard_at: Some(Timestamp::now()),
        warning: None,
        received_bytes: 0,
        resumed_after: Some(log_bytes),
    }
    .write(run_dir)
}

#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The copy's own disk.
    #[error("{0}")]
    Here(String),
}

fn keep(path: &Path, target: &Target, shared: &Shared) {
    let mut waits = Waits::default();
    let (mut run_dir, _lock) = loop {
        let Ok(run_dir) = RunDir::open(path) else {
            return;
        };
        if is_complete(&run_dir) {
            return;
        }
        match run_dir.lock() {
            Ok(lock) => break (run_dir, lock),
            Err(RunDirError::Busy { .. }) => {
                shared.lock().is_kept_elsewhere = true;
                if shared.wait(LOCK_EVERY) {
                    return;
                }
            }
            Err(_) => {
                if shared.wait(waits.next(Instant::now())) {
                    return;
                }
            }
        }
    };
    shared.lock().is_kept_elsewhere = false;
    let before = Mirror::read(&run_dir);
    let mut notes = Notes {
        mirror: Mirror {
            keeper: ProcessIdentity::of(std::process::id()),
            link: MirrorLink::Connecting,
            standing: before
                .as_ref()
                .map_or(Standing::Running, |mirror| mirror.standing.clone()),
            heard_at: before.as_ref().and_then(|mirror| mirror.heard_at),
            warning: None,
            received_bytes: 0,
            resumed_after: before.and_then(|mirror| mirror.resumed_after),
        },
        noted_at: None,
        shared,
    };
    notes.note(&run_dir);
    let mut attempts = 0;
    let opened_at = Timestamp::now();
    loop {
        let began = Timestamp::now();
        let changes = network_changes();
        let ended = follow(&mut run_dir, target, shared, &mut notes, changes);
        if shared.is_stopping() || matches!(ended, Ok(true)) {
            return;
        }
        // By what was heard: an attempt to connect takes its time too.
        let heard_at = notes.mirror.heard_at.unwrap_or(began);
        if heard_at.duration_since(began) >= GOOD_LINE {
            waits = Waits::default();
            attempts = 0;
        }
        let (reason, is_passing) = match &ended {
            Ok(_) => ("the line was closed".to_owned(), true),
            Err(KeepError::Link(error)) => (error.to_string(), error.is_passing()),
            Err(KeepError::Here(reason)) => {
                // The line is as good as it was.
                if wait_for_room(&run_dir, reason, shared, &mut notes) {
                    return;
                }
                continue;
            }
        };
        if is_passing && !target.is_here() {
            // It may hang on the dead line, and the next conversation with it.
            target.ssh().drop_master();
        }
        attempts += 1;
        let since = notes.mirror.heard_at.unwrap_or(opened_at);
        notes.mirror.link = MirrorLink::Disconnected {
            since,
            attempts,
            reason,
        };
        notes.note(&run_dir);
        let is_told_to_stop = if is_passing {
            shared.wait_for_network(waits.next(Instant::now()), changes)
        } else {
            // A refusal lasts until somebody does something about it.
            shared.wait(waits::LONGEST)
        };
        if is_told_to_stop {
            return;
        }
    }
}

/// Says that nothing can be written here, and waits until that may be over. True: told to stop.
fn wait_for_room(run_dir: &RunDir, reason: &str, shared: &Shared, notes: &mut Notes<'_>) -> bool {
    let since = match &notes.mirror.link {
        MirrorLink::Unwritten { since, .. } => *since,
        _ => Timestamp::now(),
    };
    loop {
        let full = disk::full(run_dir.path());
        notes.mirror.link = MirrorLink::Unwritten {
            since,
            reason: full.map_or_else(
                || reason.to_owned(),
                |free| Mirror::no_room(run_dir.path(), free),
            ),
        };
        notes.note(run_dir);
        if shared.wait(ROOM_EVERY) {
            return true;
        }
        if full.is_none_or(|free| free >= SOME_ROOM_BYTES) {
            return false;
        }
    }
}

/// `mirror.json`, and the same for whoever asks this process.
struct Notes<'a> {
    mirror: Mirror,
    noted_at: Option<Instant>,
    shared: &'a Shared,
}

impl Notes<'_> {
    fn note(&mut self, run_dir: &RunDir) {
        self.noted_at = Some(Instant::now());
        // Noted meanwhile by a process that had the run go on.
        let noted = Mirror::read(run_dir).and_then(|mirror| mirror.resumed_after);
        self.mirror.resumed_after = self.mirror.resumed_after.max(noted);
        // On a full disk whoever reads it sees that it is old, and that the disk is full.
        let _ = self.mirror.write(run_dir);
        self.shared.lock().mirror = Some(self.mirror.clone());
    }

    fn note_sometimes(&mut self, run_dir: &RunDir) {
        if self.noted_at.is_none_or(|at| at.elapsed() >= NOTE_EVERY) {
            self.note(run_dir);
        } else {
            self.shared.lock().mirror = Some(self.mirror.clone());
        }
    }
}

/// The difference between the two clocks, from the quickest question and answer.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    best: Option<(u64, i64)>,
}

impl Clocks {
    pub fn take(&mut self, sent_ms: u64, far_ms: u64, now_ms: u64) {
        let round_ms = now_ms.saturating_sub(sent_ms);
        if self.best.is_none_or(|(best, _)| round_ms <= best) {
            let middle = sent_ms + round_ms / 2;
            self.best = Some((round_ms, far_ms as i64 - middle as i64));
        }
    }

    /// How long ago it was there `far_ms`.
    fn since(&self, far_ms: u64, now_ms: u64) -> u64 {
        let (_, ahead) = self.best.unwrap_or_default();
        (now_ms as i64 + ahead - far_ms as i64).max(0) as u64
    }

    /// By how much the clock there is ahead, and how exactly that is known.
    pub fn ahead_ms(&self) -> Option<(i64, u64)> {
        self.best.map(|(round_ms, ahead)| (ahead, round_ms / 2))
    }
}

/// One connection. True: everything is here; false: closed, or told to stop. `changes`: of the network until now; one that changes while it
/// connects may have left the attempt with an address that is no more.
fn follow(
    run_dir: &mut RunDir,
    target: &Target,
    shared: &Shared,
    notes: &mut Notes<'_>,
    changes: u64,
) -> Result<bool, KeepError> {
    let Some(Origin::Target { path, .. }) = run_dir.origin().cloned() else {
        return Err(KeepError::Here(format!(
            "{} is no copy of a run of another machine",
            run_dir.path().display()
        )));
    };
    let name = Path::new(&path)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let mut files = Vec::new();
    for name in GROWING {
        files.push(Copied::open(run_dir.path(), name).map_err(|error| {
            KeepError::Here(format!("cannot write {name} of the copy: {error}"))
        })?);
    }
    let mut link = Link::open_unless(target, || network_changes() != changes)?;
    let have: Result<Vec<Have>, io::Error> = files.iter().map(Copied::have).collect();
    link.tell(&Ask::Stream {
        run: name,
        have: have.map_err(|error| KeepError::Here(format!("cannot read the copy: {error}")))?,
        window: WINDOW_BYTES,
    })?;
    let mut clocks = Clocks::default();
    let mut pinged_at: Option<Instant> = None;
    let mut heard_at = Instant::now();
    let mut data_at: Option<Instant> = None;
    loop {
        if shared.is_stopping() {
            return Ok(false);
        }
        if pinged_at.is_none_or(|at| at.elapsed() >= PING_EVERY) {
            pinged_at = Some(Instant::now());
            link.tell(&Ask::Ping { sent_ms: now_ms() })?;
        }
        let (say, body) = match link.next(Duration::from_millis(250)) {
            Ok(frame) => frame,
            Err(LinkError::Silent { host, .. }) => {
                let waited = heard_at.elapsed();
                if waited >= SILENCE {
                    return Err(LinkError::Silent { host, waited }.into());
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        heard_at = Instant::now();
        notes.mirror.heard_at = Some(Timestamp::now());
        let file_of = |name: &str| files.iter().position(|file| file.name == name);
        match say {
            Say::From { name, offset, why } => {
                if let Some(index) = file_of(&name) {
                    files[index]
                        .begin(offset)
                        .map_err(|error| KeepError::Here(format!("{name}: {error}")))?;
                    if let Some(why) = why {
                        notes.mirror.warning = Some(format!("{name} was copied anew: {why}"));
                    }
                }
            }
            Say::Data {
                name,
                offset,
                read_ms,
                age_ms,
            } => {
                let Some(index) = file_of(&name) else {
                    continue;
                };
                let file = &mut files[index];
                if offset != file.size {
                    return Err(link
                        .garbled(&format!("{name} from {offset}, and {} are here", file.size))
                        .into());
                }
                file.append(&body).map_err(|error| {
                    KeepError::Here(format!("cannot write {name} of the copy: {error}"))
                })?;
                notes.mirror.received_bytes += body.len() as u64;
                link.tell(&Ask::Ack {
                    bytes: body.len() as u64,
                })?;
                data_at = Some(Instant::now());
                let behind_ms = clocks.since(read_ms.saturating_sub(age_ms), now_ms());
                let was_live = matches!(notes.mirror.link, MirrorLink::Live { .. });
                notes.mirror.link = MirrorLink::Live { behind_ms };
                if was_live {
                    notes.note_sometimes(run_dir);
                } else {
                    notes.note(run_dir);
                }
            }
            Say::File { name } => take_small(run_dir, &name, &body)?,
            Say::Pong { sent_ms, at_ms } => clocks.take(sent_ms, at_ms, now_ms()),
            Say::Beat(beat) => {
                let is_new = notes.mirror.standing != beat.standing
                    || !matches!(notes.mirror.link, MirrorLink::Live { .. });
                take_beat(&beat, &mut notes.mirror);
                if matches!(beat.standing, Standing::Queued { .. } | Standing::Running) {
                    // It goes on: how it ended before is not its end.
                    Exit::put_aside(run_dir.path())
                        .map_err(|error| KeepError::Here(error.to_string()))?;
                }
                if data_at.is_none_or(|at| at.elapsed() > NOTE_EVERY) {
                    let behind_ms = clocks.since(beat.at_ms, now_ms());
                    notes.mirror.link = MirrorLink::Live { behind_ms };
                }
                if beat.is_complete {
                    notes.mirror.link = MirrorLink::Complete;
                    notes.note(run_dir);
                    return Ok(true);
                }
                if is_new {
                    notes.note(run_dir);
                } else {
                    notes.note_sometimes(run_dir);
                }
            }
            _ => {}
        }
    }
}

fn take_beat(beat: &Beat, mirror: &mut Mirror) {
    mirror.standing = beat.standing.clone();
    let is_full = (beat.free_bytes).is_some_and(|free| free < disk::LEAST_FREE_BYTES);
    if is_full {
        mirror.warning = Some(format!(
            "{} ({} KB left): events wait in its memory and checkpoints fail; free some space",
            Mirror::DISK_THERE,
            beat.free_bytes.unwrap_or(0) >> 10
        ));
    } else if mirror
        .warning
        .as_ref()
        .is_some_and(|warning| warning.starts_with(Mirror::DISK_THERE))
    {
        mirror.warning = None;
    }
}

/// `run.json` as it is there, with the origin it has here; `exit.json` as it is.
fn take_small(run_dir: &mut RunDir, name: &str, body: &[u8]) -> Result<(), KeepError> {
    let here = |error: RunDirError| KeepError::Here(error.to_string());
    match name {
        "run.json" => {
            // One that cannot be read is of a newer program there: what is here stays.
            if let Ok(mut info) = serde_json::from_slice::<RunInfo>(body) {
                info.origin = run_dir.origin().cloned();
                info.name.clone_from(&run_dir.info().name);
                if info != *run_dir.info() {
                    run_dir.replace_info(info).map_err(here)?;
                }
            }
            Ok(())
        }
        Exit::FILE => write_renamed(&run_dir.path().join(Exit::FILE), body).map_err(here),
        _ => Ok(()),
    }
}

/// A growing file of the copy.
#[derive(Debug)]
struct Copied {
    name: &'static str,
    file: File,
    size: u64,
}

impl Copied {
    fn open(run: &Path, name: &'static str) -> io::Result<Self> {
        let path: PathBuf = run.join(name);
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { name, file, size })
    }

    fn have(&self) -> io::Result<Have> {
        let tail_bytes = self.size.min(hash::TAIL_BYTES);
        Ok(Have {
            name: self.name.to_owned(),
            size: self.size,
            tail_bytes,
            tail_hash: hash::of_range(&self.file, self.size, tail_bytes)?,
        })
    }

    fn begin(&mut self, offset: u64) -> io::Result<()> {
        if offset > self.size {
            return Err(io::Error::other("it would begin behind its end"));
        }
        self.cut(offset)
    }

    fn cut(&mut self, size: u64) -> io::Result<()> {
        if size != self.size {
            self.file.set_len(size)?;
            self.size = size;
        }
        Ok(())
    }

    /// All of it or nothing.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.size += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Part of it may have been written. If it cannot be cut either, the next connection finds out what is here.
                let _ = self.file.set_len(self.size);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_told_by_the_clock_there_however_wrong_that_is() {
        let mut clocks = Clocks::default();
        // The clock there is 100 s ahead; the first answer took long on its way back.
        clocks.take(1_000, 101_010, 3_000);
        clocks.take(5_000, 105_050, 5_100);
        clocks.take(9_000, 109_900, 10_000);
        assert_eq!(clocks.ahead_ms(), Some((100_000, 50)));
        assert_eq!(clocks.since(106_000, 6_400), 400);
        assert_eq!(clocks.since(107_000, 6_400), 0);
    }

    #[test]
    fn a_copy_says_what_it_has_and_is_cut_where_it_must_begin_anew() {
        let run = tempfile::tempdir().unwrap();
        std::fs::write(run.path().join("log.txt"), "one\ntwo\n").unwrap();
        let mut copied = Copied::open(run.path(), "log.txt").unwrap();
        let have = copied.have().unwrap();
        assert_eq!((have.size, have.tail_bytes), (8, 8));
        assert_eq!(have.tail_hash, hash::of_bytes(b"one\ntwo\n"));
        copied.append(b"three\n").unwrap();
        assert!(copied.begin(99).is_err());
        copied.begin(0).unwrap();
        copied.append(b"new\n").unwrap();
        assert_eq!(std::fs::read(run.path().join("log.txt")).unwrap(), b"new\n");
    }
}
