//! Log lines and alarms that the fold no longer has: it keeps the latest, `events.jsonl` has all. Read in a job when somebody goes
//! there, since most never do.

use std::collections::VecDeque;
use std::path::Path;

use runlog::event::EventKind;
use runlog::state::{AlarmRecord, LogRecord, RECENT_ALARMS, RECENT_LOG_LINES, RunState};
use runlog::tail::{Limits, Tail};

/// Records of a kind that are read back at most: some tens of MB. Older ones are in the file.
const MOST: usize = 100_000;

/// What is done when the older records are there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Then {
    First,
    JumpTo(f64),
    Search { is_forward: bool },
}

/// Every record of the log when it was read, those that the fold has too included.
#[derive(Debug, Default)]
pub struct Older {
    logged: VecDeque<LogRecord>,
    alarms: VecDeque<AlarmRecord>,
    /// Records before these.
    pub dropped: u64,
}

/// The log lines or alarms of the fold are not all there were.
pub fn is_cut(state: &RunState) -> bool {
    state.log_lines.len() >= RECENT_LOG_LINES || state.alarms.len() >= RECENT_ALARMS
}

/// Reads the whole log. `until_ms`: of a replay, the moment after which nothing has happened.
pub fn read(path: &Path, until_ms: f64) -> std::io::Result<Older> {
    let mut older = Older::default();
    let mut tail = Tail::new(path);
    loop {
        let batch = tail.read(Limits::OPENING)?;
        if batch.restarted {
            older = Older::default();
        }
        for event in batch.events {
            if event.elapsed_ms > until_ms {
                continue;
            }
            match event.kind {
                EventKind::LogLine {
                    level,
                    target,
                    message,
                } => {
                    older.dropped += push(
                        &mut older.logged,
                        LogRecord {
                            elapsed_ms: event.elapsed_ms,
                            level,
                            target,
                            message,
                        },
                    );
                }
                EventKind::Alarm {
                    name,
                    step,
                    message,
                } => {
                    older.dropped += push(
                        &mut older.alarms,
                        AlarmRecord {
                            elapsed_ms: event.elapsed_ms,
                            name,
                            step,
                            message,
                        },
                    );
                }
                _ => {}
            }
        }
        if !batch.has_more {
            return Ok(older);
        }
    }
}

fn push<T>(queue: &mut VecDeque<T>, record: T) -> u64 {
    queue.push_back(record);
    if queue.len() > MOST {
        queue.pop_front();
        return 1;
    }
    0
}

impl Older {
    /// The log lines before the first that the fold has.
    pub fn logged(&self, state: &RunState) -> impl Iterator<Item = &LogRecord> {
        before(&self.logged, &state.log_lines, |line| line.elapsed_ms)
    }

    pub fn alarms(&self, state: &RunState) -> impl Iterator<Item = &AlarmRecord> {
        before(&self.alarms, &state.alarms, |alarm| alarm.elapsed_ms)
    }

    /// Whether nothing lies between these and the fold: a run that has gone on for long has dropped more since.
    pub fn reaches(&self, state: &RunState) -> bool {
        let joins = |last: Option<f64>, first: Option<f64>| match (last, first) {
            (Some(last), Some(first)) => first <= last,
            (_, None) => true,
            (None, Some(_)) => false,
        };
        let is_joined = joins(
            self.logged.back().map(|line| line.elapsed_ms),
            state.log_lines.front().map(|line| line.elapsed_ms),
        );
        let are_alarms_joined = joins(
            self.alarms.back().map(|alarm| alarm.elapsed_ms),
            state.alarms.front().map(|alarm| alarm.elapsed_ms),
        );
        is_joined && are_alarms_joined
    }
}

/// The records of `all` before the first of `kept`; of several at its very moment those that `kept` does not have.
fn before<'a, T>(
    all: &'a VecDeque<T>,
    kept: &VecDeque<T>,
    time: impl Fn(&T) -> f64,
) -> impl Iterator<Item = &'a T> {
    let end = kept.front().map_or(all.len(), |first| {
        let boundary = time(first);
        let of_kept = kept
            .iter()
            .take_while(|record| time(record) == boundary)
            .count();
        let upto = all.partition_point(|record| time(record) <= boundary);
        let of_all = all
            .iter()
            .take(upto)
            .rev()
            .take_while(|record| time(record) == boundary)
            .count();
        upto - of_all.min(of_kept)
    });
    all.iter().take(end)
}
