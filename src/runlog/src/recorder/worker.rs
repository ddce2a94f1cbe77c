//! The recorder's thread: events to lines, lines to the file, again and again until the disk takes them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::file::{LogFile, Opener};
use super::queue::{Queue, Work};
use super::reserve::{Reserve, most_telling};
use super::{LOST_ALARM, Options, RECOVERED_ALARM};
use crate::event::{Event, EventKind};

/// Events serialised at once: keeps one write near a megabyte, and what a failure has in hand small.
const BATCH_EVENTS: usize = 4096;

pub(super) struct Worker {
    queue: Arc<Queue>,
    opener: Opener,
    options: Options,
    started: Instant,
    start_ms: f64,
    file: Option<Box<dyn LogFile>>,
    /// Bytes of the file that are whole lines; None until the file was first opened.
    whole_bytes: Option<u64>,
    /// Lost events already reported by an alarm.
    reported_lost: u64,
    reserve: Option<Reserve>,
}

impl Worker {
    pub(super) fn new(
        queue: Arc<Queue>,
        opener: Opener,
        options: Options,
        started: Instant,
        start_ms: f64,
        reserve: Option<Reserve>,
    ) -> Self {
        Self {
            queue,
            opener,
            options,
            started,
            start_ms,
            file: None,
            whole_bytes: None,
            reported_lost: 0,
            reserve,
        }
    }

    pub(super) fn run(&mut self) {
        while let Work::Events(events) = self.queue.take(self.options.flush_after, BATCH_EVENTS) {
            let unwritten = self.write_all(&events);
            if unwritten > 0 {
                return self.last_words(&events[events.len() - unwritten..]);
            }
            if !self.sync_if_wanted() {
                return;
            }
            self.report_losses();
        }
        if let Some(file) = &mut self.file {
            // Once per run: what a power cut may take is the last seconds of a live run, never a finished one.
            let _ = file.sync();
        }
    }

    /// At the end of a run whose disk is still full: what fits into the room that was kept for that.
    fn last_words(&mut self, in_hand: &[Event]) {
        let Some(reserve) = self.reserve.take() else {
            return;
        };
        let room = reserve.room();
        drop(reserve);
        let mut events = in_hand.to_vec();
        events.extend(self.queue.take_all());
        let mut lines = most_telling(&events, room);
        let before = lines.len();
        let outcome = self.write_lines(&mut lines);
        self.queue.written(before - lines.len());
        if let (Ok(()), Some(file)) = (outcome, &mut self.file) {
            let _ = file.sync();
        }
    }

    /// Writes until all are in the file. Gives how many are not: closing, and the disk still refuses.
    fn write_all(&mut self, events: &[Event]) -> usize {
        let mut lines: VecDeque<Vec<u8>> = events.iter().map(line).collect();
        let mut back_off = self.options.retry_first;
        loop {
            let before = lines.len();
            let outcome = self.write_lines(&mut lines);
            self.queue.written(before - lines.len());
            match outcome {
                Ok(()) => break,
                Err(error) => {
                    self.file = None;
                    if before != lines.len() {
                        back_off = self.options.retry_first;
                    }
                    if !self.queue.failed(&error, back_off) {
                        return lines.len();
                    }
                    back_off = (back_off * 2).min(self.options.retry_most);
                }
            }
        }
        self.tell_recovery();
        0
    }

    fn tell_recovery(&self) {
        self.queue
            .recovered(self.elapsed_ms(), |failing_for, error| {
                alarm(
                    RECOVERED_ALARM,
                    format!(
                        "events could not be written for {:.1} s and were kept in memory: {error}",
                        failing_for.as_secs_f64()
                    ),
                )
            });
    }

    /// Has the disk hold the log where somebody waits for that; false: closing, and the disk still refuses.
    fn sync_if_wanted(&mut self) -> bool {
        let mut back_off = self.options.retry_first;
        while let Some(seq) = self.queue.due_on_disk() {
            let synced = self.open().and_then(|()| {
                let file = self.file.as_mut().expect("open() sets it or fails");
                file.sync()
            });
            let Err(error) = synced else {
                self.queue.put_on_disk(seq);
                self.tell_recovery();
                break;
            };
            self.file = None;
            if !self.queue.failed(&error, back_off) {
                return false;
            }
            back_off = (back_off * 2).min(self.options.retry_most);
        }
        true
    }

    /// Writes lines from the front, removing each one that is whole in the file.
    fn write_lines(&mut self, lines: &mut VecDeque<Vec<u8>>) -> io::Result<()> {
        self.open()?;
        let (Some(file), Some(whole_bytes)) = (&mut self.file, &mut self.whole_bytes) else {
            unreachable!("open() sets both or fails");
        };
        let batch: Vec<u8> = lines.iter().flatten().copied().collect();
        let mut written = 0;
        let outcome = loop {
            if written == batch.len() {
                break Ok(());
            }
            match file.write(&batch[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let mut whole = 0;
        while let Some(line) = lines.front()
            && whole + line.len() <= written
        {
            whole += line.len();
            lines.pop_front();
        }
        *whole_bytes += whole as u64;
        if written > whole {
            // The half line goes now if it can, else before the next try.
            let _ = file.cut(*whole_bytes);
        }
        outcome.and_then(|()| file.flush())
    }

    /// Opens the file unless it is open, and leaves it ending in a whole line.
    fn open(&mut self) -> io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let mut file = (self.opener)()?;
        let size = file.size()?;
        let whole = match self.whole_bytes {
            Some(whole) if size >= whole => whole,
            // The first time, or someone else cut or replaced the file: go on after its last whole line.
            _ => file.whole_size()?,
        };
        if size > whole {
            file.cut(whole)?;
        }
        self.whole_bytes = Some(whole);
        self.file = Some(file);
        Ok(())
    }

    fn report_losses(&mut self) {
        let lost = self.queue.lost();
        if lost > self.reported_lost {
            let message = format!(
                "{} events were lost: more than {} waited for the disk",
                lost - self.reported_lost,
                self.options.queue_events
            );
            if self.alarm(LOST_ALARM, message) {
                self.reported_lost = lost;
            }
        }
    }

    /// Queues an alarm of our own; false when there is no room, or nobody will write it any more.
    fn alarm(&self, name: &str, message: String) -> bool {
        if self.queue.is_closing() {
            return false;
        }
        self.queue
            .push(self.elapsed_ms(), alarm(name, message))
            .is_some()
    }

    fn elapsed_ms(&self) -> f64 {
        self.start_ms + self.started.elapsed().as_secs_f64() * 1e3
    }
}

fn alarm(name: &str, message: String) -> EventKind {
    EventKind::Alarm {
        name: name.to_owned(),
        step: None,
        message,
    }
}

pub(super) fn line(event: &Event) -> Vec<u8> {
    let mut line =
        serde_json::to_vec(event).expect("events have string keys and numbers that JSON can hold");
    line.push(b'\n');
    line
}
