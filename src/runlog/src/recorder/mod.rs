//! Writes a run's events as they come, on a thread of its own, and never ends or stalls the run.
//!
//! ```text
//!  record() ─► queue (bounded, seq given here) ─► thread: lines ─► events.jsonl
//!                 └ full: refused and counted        └ write fails: events stay queued, back-off, retry
//! ```
//! - **Bound and policy.** [`Options::queue_events`] ordinary events; a further quarter of it is kept free for the
//!   events a run cannot be understood without (see [`is_essential`]). `record` never waits for the disk: stalling
//!   training for a slow disk would cost more than a span. Past the bound an event is refused, counted in
//!   [`Health::lost_events`], and the loss is itself an alarm in the log as soon as there is room.
//! - **Delay.** A line is in the file within [`Options::flush_after`]; at once for essential events.
//! - **Full disk.** A half-written line is cut off before the next try, so a reader never sees a line torn in the middle. When the
//!   run ends and there is still no room, a file that was kept for that ([`RunDir::reserve_path`]) is removed, and the log's most telling
//!   lines are written in its place, the run's end among them.

mod file;
mod queue;
mod reserve;
mod worker;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use file::{LogFile, Opener};
use queue::Queue;
use reserve::Reserve;

use crate::event::{EventKind, Lane};
use crate::run_dir::{RunDir, RunDirError, WriterLock};
use crate::tail;

/// Alarm: writing failed for a while and works again.
pub const RECOVERED_ALARM: &str = "recorder_recovered";
/// Alarm: events were refused because the queue was full.
pub const LOST_ALARM: &str = "recorder_lost_events";

#[derive(Debug, Clone)]
pub struct Options {
    /// Ordinary events that may wait for the disk; about 300 bytes each.
    pub queue_events: usize,
    pub flush_after: Duration,
    /// First wait after a failed write; doubles with each failure.
    pub retry_first: Duration,
    pub retry_most: Duration,
    /// How long `close` keeps trying while the disk refuses.
    pub close_patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queue_events: 65_536,
            flush_after: Duration::from_millis(100),
            retry_first: Duration::from_millis(100),
            retry_most: Duration::from_secs(5),
            close_patience: Duration::from_secs(5),
        }
    }
}

/// True: the event is written at once, and has room in the queue when ordinary events have none.
pub fn is_essential(kind: &EventKind) -> bool {
    match kind {
        EventKind::RunStarted { .. }
        | EventKind::RunResumed { .. }
        | EventKind::PhaseChanged { .. }
        | EventKind::StepEnded { .. }
        | EventKind::WeightsSynced { .. }
        | EventKind::EvalEnded { .. }
        | EventKind::CheckpointSaved { .. }
        | EventKind::Alarm { .. }
        | EventKind::ControlApplied { .. }
        | EventKind::ControlRefused { .. }
        | EventKind::GuardsArmed { .. }
        | EventKind::GuardTripped { .. }
        | EventKind::BanditUpdated { .. }
        | EventKind::RunEnded { .. } => true,
        EventKind::RolloutEnded { .. }
        | EventKind::BanditChose { .. }
        | EventKind::Span { .. }
        | EventKind::HostSampled { .. }
        | EventKind::LogLine { .. }
        | EventKind::Unknown => false,
    }
}

/// How recording goes: a banner when `failing` is some.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Health {
    pub failing: Option<Failing>,
    /// Events accepted and not yet in the file.
    pub waiting_events: usize,
    pub written_events: u64,
    /// Events refused because the queue was full.
    pub lost_events: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Failing {
    pub error: String,
    pub attempts: u32,
    pub failing_for: Duration,
}

/// Events that `close` had to give up.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{unwritten} events could not be written to {path}: {error}")]
pub struct CloseError {
    pub unwritten: usize,
    pub path: String,
    pub error: String,
}

/// The disk does not hold the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} is not on the disk: {error}")]
pub struct PersistError {
    pub path: String,
    pub error: String,
}

/// Handle to a run's log; clones share one queue, thread and file.
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Arc<Queue>,
    started: Instant,
    /// Where the clock of an earlier writer of this log had got to.
    start_ms: f64,
    path: String,
    close_patience: Duration,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Freed only after the thread has ended.
    lock: Mutex<Option<WriterLock>>,
}

impl Recorder {
    /// Takes the run (see [`RunDir::take`]) and appends to its `events.jsonl`, after what is there already.
    pub fn start(run_dir: &mut RunDir, options: Options) -> Result<Self, RunDirError> {
        let lock = run_dir.take()?;
        let path = run_dir.events_path();
        let last = tail::last_event(&path).map_err(RunDirError::io("read", &path))?;
        let opener = file::opener(path.clone());
        let reserve = Reserve::of_file(run_dir.reserve_path());
        Self::begin(
            opener,
            &path.display().to_string(),
            last,
            options,
            Some(lock),
            reserve,
        )
        .map_err(RunDirError::io("start writing", &path))
    }

    /// Appends to whatever `opener` opens. `last`: sequence number and `elapsed_ms` of the last event already there.
    pub fn with_opener(
        opener: Opener,
        path: &str,
        last: Option<(u64, f64)>,
        options: Options,
        lock: Option<WriterLock>,
    ) -> std::io::Result<Self> {
        Self::begin(opener, path, last, options, lock, None)
    }

    fn begin(
        opener: Opener,
        path: &str,
        last: Option<(u64, f64)>,
        options: Options,
        lock: Option<WriterLock>,
        reserve: Option<Reserve>,
    ) -> std::io::Result<Self> {
        let (next_seq, start_ms) = last.map_or((0, 0.0), |(seq, elapsed_ms)| (seq + 1, elapsed_ms));
        let queue = Arc::new(Queue::new(next_seq, options.queue_events));
        let started = Instant::now();
        let close_patience = options.close_patience;
        let mut worker = worker::Worker::new(
            Arc::clone(&queue),
            opener,
            options,
            started,
            start_ms,
            reserve,
        );
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || worker.run())?;
        Ok(Self {
            inner: Arc::new(Inner {
                queue,
                started,
                start_ms,
                path: path.to_owned(),
                close_patience,
                thread: Mutex::new(Some(thread)),
                lock: Mutex::new(lock),
            }),
        })
    }

    /// Milliseconds since the run started, as events carry them.
    pub fn elapsed_ms(&self) -> f64 {
        self.inner.elapsed_ms()
    }

    /// Queues an event, stamped with now. Gives its sequence number; None when it was refused (queue full or closed).
    pub fn record(&self, kind: EventKind) -> Option<u64> {
        let elapsed_ms = self.elapsed_ms();
        self.inner.queue.push(elapsed_ms, kind)
    }

    /// Starts a span that is recorded when the guard is dropped.
    #[must_use = "the span ends when the guard is dropped"]
    pub fn span(&self, lane: Lane, name: impl Into<String>, step: Option<u64>) -> SpanGuard {
        SpanGuard {
            recorder: self.clone(),
            lane,
            name: name.into(),
            step,
            start_ms: self.elapsed_ms(),
        }
    }

    pub fn health(&self) -> Health {
        self.inner.queue.health()
    }

    /// Waits until the disk itself (fsync) holds all that was recorded before this call. `patience`: how long to wait while it
    /// refuses. Whoever leaves something on disk that the log must know of first calls this in between.
    pub fn persist(&self, patience: Duration) -> Result<(), PersistError> {
        let outcome = self.inner.queue.persist(patience);
        outcome.map_err(|error| PersistError {
            path: self.inner.path.clone(),
            error,
        })
    }

    /// Writes what is queued, ends the thread and frees the run. Later events are refused. Safe to call twice.
    ///
    /// While the disk refuses it keeps trying for [`Options::close_patience`], then writes what fits into the room that was kept for
    /// that, and says how many events were given up.
    pub fn close(&self) -> Result<(), CloseError> {
        self.inner.close()
    }
}

impl Inner {
    fn elapsed_ms(&self) -> f64 {
        self.start_ms + self.started.elapsed().as_secs_f64() * 1e3
    }

    fn close(&self) -> Result<(), CloseError> {
        self.queue.close(Instant::now() + self.close_patience);
        let thread = self.thread.lock().expect("no holder panics").take();
        if let Some(thread) = thread {
            // The worker has no panic of its own; if a `LogFile` panics, the run must not.
            let _ = thread.join();
        }
        self.lock.lock().expect("no holder panics").take();
        let health = self.queue.health();
        if health.waiting_events == 0 {
            return Ok(());
        }
        Err(CloseError {
            unwritten: health.waiting_events,
            path: self.path.clone(),
            error: health.failing.map_or_else(
                || "the recorder's thread ended".to_owned(),
                |failing| failing.error,
            ),
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Whoever wants the error calls close().
        let _ = self.close();
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Recorder")
            .field("path", &self.inner.path)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}

/// An open span; dropping it records [`EventKind::Span`] from its start to that moment.
#[derive(Debug)]
pub struct SpanGuard {
    recorder: Recorder,
    lane: Lane,
    name: String,
    step: Option<u64>,
    start_ms: f64,
}

impl SpanGuard {
    pub fn start_ms(&self) -> f64 {
        self.start_ms
    }

    /// Milliseconds since the span started.
    pub fn elapsed_ms(&self) -> f64 {
        self.recorder.elapsed_ms() - self.start_ms
    }

    /// Ends the span now and gives its length in milliseconds.
    pub fn end(self) -> f64 {
        self.elapsed_ms()
    }
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        let end_ms = self.recorder.elapsed_ms();
        self.recorder.record(EventKind::Span {
            lane: self.lane,
            name: std::mem::take(&mut self.name),
            step: self.step,
            start_ms: self.start_ms,
            end_ms,
        });
    }
}
