//! The bounded queue between those who record and the one thread that writes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::{Failing, Health, is_essential};
use crate::event::{Event, EventKind};

pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    ordinary_limit: usize,
    total_limit: usize,
}

struct State {
    events: VecDeque<Event>,
    next_seq: u64,
    /// When the oldest queued event came; None while empty.
    oldest: Option<Instant>,
    /// Something queued may not wait for the flush delay.
    is_urgent: bool,
    /// Set by `close`: until when to keep trying.
    close_by: Option<Instant>,
    /// Events the worker holds: taken from `events`, not yet in the file.
    in_hand: usize,
    written: u64,
    lost: u64,
    failing: Option<(String, u32, Instant)>,
    /// Events with a lower sequence number are to be on the disk itself, and are.
    wanted_on_disk: u64,
    on_disk: u64,
}

/// What the worker wakes up to.
pub(super) enum Work {
    Events(Vec<Event>),
    Closed,
}

impl Queue {
    pub(super) fn new(next_seq: u64, ordinary_limit: usize) -> Self {
        Self {
            state: Mutex::new(State {
                events: VecDeque::new(),
                next_seq,
                oldest: None,
                is_urgent: false,
                close_by: None,
                in_hand: 0,
                written: 0,
                lost: 0,
                failing: None,
                wanted_on_disk: 0,
                on_disk: 0,
            }),
            changed: Condvar::new(),
            ordinary_limit,
            total_limit: ordinary_limit + ordinary_limit.div_ceil(4),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("nothing panics while holding the queue")
    }

    pub(super) fn push(&self, elapsed_ms: f64, kind: EventKind) -> Option<u64> {
        let mut state = self.state();
        let is_urgent = is_essential(&kind);
        let limit = if is_urgent {
            self.total_limit
        } else {
            self.ordinary_limit
        };
        if state.close_by.is_some() || state.events.len() + state.in_hand >= limit {
            state.lost += 1;
            return None;
        }
        let seq = state.next_seq;
        state.next_seq += 1;
        state.events.push_back(Event {
            seq,
            elapsed_ms,
            kind,
        });
        let was_empty = state.oldest.is_none();
        if was_empty {
            state.oldest = Some(Instant::now());
        }
        let became_urgent = is_urgent && !state.is_urgent;
        state.is_urgent |= is_urgent;
        drop(state);
        if was_empty || became_urgent {
            self.changed.notify_all();
        }
        Some(seq)
    }

    /// Waits for events that are due (or closing) and takes up to `most` of them.
    pub(super) fn take(&self, flush_after: Duration, most: usize) -> Work {
        let mut state = self.state();
        loop {
            let Some(oldest) = state.oldest else {
                if state.wanted_on_disk > state.on_disk {
                    return Work::Events(Vec::new());
                }
                if state.close_by.is_some() {
                    return Work::Closed;
                }
                state = self
                    .changed
                    .wait(state)
                    .expect("nothing panics while holding the queue");
                continue;
            };
            let due = oldest + flush_after;
            let now = Instant::now();
            let is_wanted = state.wanted_on_disk > state.on_disk;
            if state.is_urgent || is_wanted || state.close_by.is_some() || now >= due {
                break;
            }
            state = self
                .changed
                .wait_timeout(state, due - now)
                .expect("nothing panics while holding the queue")
                .0;
        }
        let count = state.events.len().min(most);
        let events: Vec<Event> = state.events.drain(..count).collect();
        if state.events.is_empty() {
            state.oldest = None;
            state.is_urgent = false;
        }
        state.in_hand = events.len();
        Work::Events(events)
    }

    /// Takes all that is queued; what was in hand stays so.
    pub(super) fn take_all(&self) -> Vec<Event> {
        let mut state = self.state();
        let events: Vec<Event> = state.events.drain(..).collect();
        state.oldest = None;
        state.is_urgent = false;
        state.in_hand += events.len();
        events
    }

    /// Reports that `count` of the events in hand are in the file.
    pub(super) fn written(&self, count: usize) {
        let mut state = self.state();
        state.in_hand -= count;
        state.written += count as u64;
    }

    /// Reports a failed write. Waits `back_off` (less when closing); false: closing, and patience is over.
    pub(super) fn failed(&self, error: &std::io::Error, back_off: Duration) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        let (attempts, since) = state
            .failing
            .as_ref()
            .map_or((1, now), |(_, attempts, since)| (attempts + 1, *since));
        state.failing = Some((error.to_string(), attempts, since));
        let until = now + back_off;
        loop {
            let now = Instant::now();
            let end = match state.close_by {
                Some(close_by) if now >= close_by => return false,
                Some(close_by) => until.min(close_by),
                None => until,
            };
            if now >= end {
                return true;
            }
            state = self
                .changed
                .wait_timeout(state, end - now)
                .expect("nothing panics while holding the queue")
                .0;
        }
    }

    /// Writing works again. Queues what `alarm` makes of how long it did not and of the last error, under the same lock, so
    /// that whoever sees that writing works also sees the alarm waiting; also while closing, since this is the last word.
    pub(super) fn recovered(
        &self,
        elapsed_ms: f64,
        alarm: impl FnOnce(Duration, &str) -> EventKind,
    ) {
        let mut state = self.state();
        let Some((error, _, since)) = state.failing.take() else {
            return;
        };
        let kind = alarm(since.elapsed(), &error);
        let seq = state.next_seq;
        state.next_seq += 1;
        state.events.push_back(Event {
            seq,
            elapsed_ms,
            kind,
        });
        state.oldest.get_or_insert_with(Instant::now);
        state.is_urgent = true;
    }

    /// Waits until all that was recorded before this call is on the disk. The error says why it is not after `patience`.
    pub(super) fn persist(&self, patience: Duration) -> Result<(), String> {
        let end = Instant::now() + patience;
        let mut state = self.state();
        let wanted = state.next_seq;
        state.wanted_on_disk = state.wanted_on_disk.max(wanted);
        self.changed.notify_all();
        while state.on_disk < wanted {
            let now = Instant::now();
            if now >= end {
                return Err(match &state.failing {
                    Some((error, _, _)) => error.clone(),
                    None => format!("the disk took longer than {} s", patience.as_secs_f64()),
                });
            }
            if state.close_by.is_some_and(|close_by| now >= close_by) {
                return Err("the log is closed".to_owned());
            }
            let until = state.close_by.map_or(end, |close_by| close_by.min(end));
            state = self
                .changed
                .wait_timeout(state, until - now)
                .expect("nothing panics while holding the queue")
                .0;
        }
        Ok(())
    }

    /// How far the disk is to hold the log, when somebody waits for that and the file has it already.
    pub(super) fn due_on_disk(&self) -> Option<u64> {
        let state = self.state();
        let in_file = state
            .events
            .front()
            .map_or(state.next_seq, |event| event.seq);
        (state.wanted_on_disk > state.on_disk && in_file >= state.wanted_on_disk).then_some(in_file)
    }

    pub(super) fn put_on_disk(&self, seq: u64) {
        self.state().on_disk = seq;
        self.changed.notify_all();
    }

    pub(super) fn lost(&self) -> u64 {
        self.state().lost
    }

    pub(super) fn close(&self, close_by: Instant) {
        let mut state = self.state();
        if state.close_by.is_none() {
            state.close_by = Some(close_by);
        }
        drop(state);
        self.changed.notify_all();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state().close_by.is_some()
    }

    pub(super) fn health(&self) -> Health {
        let state = self.state();
        Health {
            failing: state
                .failing
                .as_ref()
                .map(|(error, attempts, since)| Failing {
                    error: error.clone(),
                    attempts: *attempts,
                    failing_for: since.elapsed(),
                }),
            waiting_events: state.events.len() + state.in_hand,
            written_events: state.written,
            lost_events: state.lost,
        }
    }
}
