//! Room that is kept on a run's disk for its last words: a file that is removed when the disk is full and the run ends.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::is_essential;
use super::worker::line;
use crate::event::Event;

/// Some thousand lines.
pub(super) const RESERVE_BYTES: u64 = 1 << 20;
/// Of these what is left to whatever else is written at a run's end: its log's last line, blocks that are not full.
const SLACK_BYTES: u64 = 64 << 10;

/// Dropping it gives the room back.
pub(super) struct Reserve {
    bytes: u64,
    give_back: Option<Box<dyn FnOnce() + Send>>,
}

impl Reserve {
    /// A file of [`RESERVE_BYTES`]. None: there is no room for it either.
    pub fn of_file(path: PathBuf) -> Option<Self> {
        if allocate(&path).is_err() {
            let _ = fs::remove_file(&path);
            return None;
        }
        let give_back = move || drop(fs::remove_file(path));
        Some(Self::new(RESERVE_BYTES, give_back))
    }

    pub fn new(bytes: u64, give_back: impl FnOnce() + Send + 'static) -> Self {
        Self {
            bytes,
            give_back: Some(Box::new(give_back)),
        }
    }

    /// Bytes of lines that fit when it is given back.
    pub fn room(&self) -> u64 {
        self.bytes.saturating_sub(SLACK_BYTES)
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            give_back();
        }
    }
}

fn allocate(path: &std::path::Path) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES) {
        // Not every file system can.
        Err(Errno::OPNOTSUPP) => file.write_all(&vec![0; RESERVE_BYTES as usize]),
        outcome => Ok(outcome?),
    }
}

/// Lines of the events that fit into `room` bytes: all, else those that a run cannot be understood without, else the newest of them.
pub(super) fn most_telling(events: &[Event], room: u64) -> VecDeque<Vec<u8>> {
    let size = |lines: &VecDeque<Vec<u8>>| lines.iter().map(|line| line.len() as u64).sum::<u64>();
    let all: VecDeque<Vec<u8>> = events.iter().map(line).collect();
    if size(&all) <= room {
        return all;
    }
    let essential = events.iter().filter(|event| is_essential(&event.kind));
    let mut lines: VecDeque<Vec<u8>> = essential.map(line).collect();
    while size(&lines) > room {
        lines.pop_front();
    }
    lines
}
