//! The files of a projection: lines wait in memory and are written at once, by the run's one writer.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

use runlog::event::{Event, EventKind};
use runlog::run_dir::{RunDir, WriterLock};

use crate::ForeignError;

#[derive(Debug)]
pub struct Writer {
    events: Appended,
    log: Appended,
    _lock: WriterLock,
}

#[derive(Debug)]
struct Appended {
    path: PathBuf,
    file: File,
    bytes: u64,
    waiting: Vec<u8>,
}

impl Appended {
    fn open(path: PathBuf) -> Result<Self, ForeignError> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(ForeignError::io("open", &path))?;
        let bytes = file
            .metadata()
            .map_err(ForeignError::io("read", &path))?
            .len();
        Ok(Self {
            path,
            file,
            bytes,
            waiting: Vec::new(),
        })
    }

    fn cut(&mut self, bytes: u64) -> Result<(), ForeignError> {
        self.file
            .set_len(bytes)
            .map_err(ForeignError::io("cut", &self.path))?;
        self.bytes = bytes;
        Ok(())
    }

    fn write(&mut self) -> Result<u64, ForeignError> {
        if !self.waiting.is_empty() {
            if let Err(error) = self.file.write_all(&self.waiting) {
                // Half of it would be taken for a torn line; on a full disk cutting works.
                let _ = self.file.set_len(self.bytes);
                return Err(ForeignError::io("write", &self.path)(error));
            }
            self.bytes += self.waiting.len() as u64;
            self.waiting.clear();
        }
        Ok(self.bytes)
    }
}

impl Writer {
    pub fn open(run_dir: &RunDir, lock: WriterLock) -> Result<Self, ForeignError> {
        Ok(Self {
            events: Appended::open(run_dir.events_path())?,
            log: Appended::open(run_dir.log_path())?,
            _lock: lock,
        })
    }

    /// Cuts the files to what they were when the state was saved. False: they are shorter than that.
    pub fn cut(&mut self, events_bytes: u64, log_bytes: u64) -> Result<bool, ForeignError> {
        if self.events.bytes < events_bytes || self.log.bytes < log_bytes {
            return Ok(false);
        }
        self.events.cut(events_bytes)?;
        self.log.cut(log_bytes)?;
        Ok(true)
    }

    pub fn clear(&mut self) -> Result<(), ForeignError> {
        self.events.cut(0)?;
        self.log.cut(0)
    }

    /// Queues an event; `seq`: its number, which the fold counts.
    pub fn event(&mut self, seq: u64, elapsed_ms: f64, kind: EventKind) {
        let event = Event {
            seq,
            elapsed_ms,
            kind,
        };
        serde_json::to_writer(&mut self.events.waiting, &event)
            .expect("events have text keys, and memory takes all");
        self.events.waiting.push(b'\n');
    }

    /// Queues a line of `log.txt`.
    pub fn log_line(&mut self, line: &str) {
        self.log.waiting.extend(line.as_bytes());
        self.log.waiting.push(b'\n');
    }

    pub fn has_waiting(&self) -> bool {
        !self.events.waiting.is_empty() || !self.log.waiting.is_empty()
    }

    /// Writes what waits; gives the sizes of `events.jsonl` and `log.txt`. On an error it waits on.
    pub fn write(&mut self) -> Result<(u64, u64), ForeignError> {
        Ok((self.events.write()?, self.log.write()?))
    }

    pub fn set_modified(&self, at: SystemTime) {
        // On a file system that refuses, a list shows the time of the import.
        let _ = self.events.file.set_modified(at);
    }
}
