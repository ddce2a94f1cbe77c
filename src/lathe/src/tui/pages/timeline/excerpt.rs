//! The spans of a part of the run that the fold no longer holds one by one, read from the log in a job.
//!
//! Events stand in the log in the order of their time, so the place to start is found by halving: a few dozen short reads,
//! however long the log.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use runlog::EventKind;
use runlog::state::Span;
use runlog::tail::{Limits, Tail};

/// Most spans of one excerpt.
const MOST_SPANS: usize = 20_000;
/// Most events that are read for one.
const MOST_EVENTS: usize = 200_000;
/// A line is looked for in pieces of so many bytes.
const PIECE: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq)]
pub struct Excerpt {
    pub start_ms: f64,
    pub end_ms: f64,
    /// Those that touch it, in the order they ended.
    pub spans: Vec<Span>,
    /// There were more.
    pub is_cut: bool,
}

/// The spans that touch `start_ms..=end_ms`. A span is written when it ends, so reading goes on past `end_ms`, until two more
/// steps have ended.
pub fn read(log: &Path, start_ms: f64, end_ms: f64) -> io::Result<Excerpt> {
    let mut excerpt = Excerpt {
        start_ms,
        end_ms,
        spans: Vec::new(),
        is_cut: false,
    };
    let mut tail = Tail::from_offset(log, first_at(log, start_ms)?);
    let mut events = 0;
    let mut steps_after = 0;
    loop {
        let batch = tail.read(Limits::OPENING)?;
        for event in batch.events {
            events += 1;
            match event.kind {
                EventKind::Span {
                    lane,
                    name,
                    step,
                    start_ms: from,
                    end_ms: to,
                } if from <= end_ms && to >= start_ms => {
                    if excerpt.spans.len() == MOST_SPANS {
                        excerpt.is_cut = true;
                        return Ok(excerpt);
                    }
                    excerpt.spans.push(Span {
                        lane,
                        name,
                        step,
                        start_ms: from,
                        end_ms: to,
                    });
                }
                EventKind::StepEnded { .. } if event.elapsed_ms > end_ms => {
                    steps_after += 1;
                    if steps_after == 2 {
                        return Ok(excerpt);
                    }
                }
                _ => {}
            }
            if events > MOST_EVENTS {
                excerpt.is_cut = true;
                return Ok(excerpt);
            }
        }
        if !batch.has_more {
            return Ok(excerpt);
        }
    }
}

/// The offset of a line at or before the first event at `ms` or later.
fn first_at(log: &Path, ms: f64) -> io::Result<u64> {
    let file = File::open(log)?;
    // A line starts at `low`, and what is before it is earlier than `ms`; what starts at `high` or later is not.
    let (mut low, mut high) = (0, file.metadata()?.len());
    while high - low > PIECE as u64 {
        let middle = low + (high - low) / 2;
        match timed_line(&file, middle, high)? {
            Some((start, elapsed)) if elapsed < ms => low = start,
            // Nothing readable between the middle and `high`: look before it.
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The first whole line that starts after `from` and before `until` and has a time: its offset and its time.
fn timed_line(file: &File, from: u64, until: u64) -> io::Result<Option<(u64, f64)>> {
    let mut at = from;
    let mut is_whole = false;
    while at < until {
        let mut piece = vec![0; PIECE];
        let got = file.read_at(&mut piece, at)?;
        if got == 0 {
            return Ok(None);
        }
        let piece = &piece[..got];
        if is_whole && let Some(elapsed) = elapsed_of(piece) {
            return Ok(Some((at, elapsed)));
        }
        let newline = piece.iter().position(|byte| *byte == b'\n');
        is_whole = newline.is_some();
        at += newline.map_or(got, |at| at + 1) as u64;
    }
    Ok(None)
}

/// `elapsed_ms` of the line that starts here: it stands among the first fields.
fn elapsed_of(line: &[u8]) -> Option<f64> {
    const FIELD: &[u8] = b"\"elapsed_ms\":";
    let end = line
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(line.len());
    let line = &line[..end.min(200)];
    let at = line
        .windows(FIELD.len())
        .position(|window| window == FIELD)?
        + FIELD.len();
    let number = line[at..]
        .split(|byte| matches!(byte, b',' | b'}'))
        .next()?;
    std::str::from_utf8(number).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::testing::sample_run;

    #[test]
    fn an_excerpt_has_every_span_that_touches_it_and_no_other() {
        let (folder, events) = sample_run(300);
        let log = folder.path().join("events.jsonl");
        for (start, end) in [
            (0.0, 10.0),
            (2_000.0, 2_100.0),
            (299_000.0, 303_000.0),
            (600_000.0, 700_000.0),
            (0.0, 1e9),
        ] {
            let excerpt = read(&log, start, end).unwrap();
            let expected: Vec<(f64, f64)> = events
                .iter()
                .filter_map(|event| match &event.kind {
                    EventKind::Span {
                        start_ms, end_ms, ..
                    } if *start_ms <= end && *end_ms >= start => Some((*start_ms, *end_ms)),
                    _ => None,
                })
                .collect();
            let found: Vec<(f64, f64)> = excerpt
                .spans
                .iter()
                .map(|span| (span.start_ms, span.end_ms))
                .collect();
            assert_eq!(found, expected, "{start} to {end}");
            assert!(!excerpt.is_cut);
        }
    }

    #[test]
    fn the_place_to_start_is_near_and_never_too_late() {
        let (folder, events) = sample_run(300);
        let log = folder.path().join("events.jsonl");
        let text = std::fs::read(&log).unwrap();
        for step in [1, 77, 150, 299] {
            let ms = f64::from(step) * 2000.0;
            let offset = first_at(&log, ms).unwrap() as usize;
            let before = String::from_utf8_lossy(&text[..offset]).lines().count();
            assert!(offset == 0 || text[offset - 1] == b'\n');
            let wanted = events
                .iter()
                .position(|event| event.elapsed_ms >= ms)
                .unwrap();
            assert!(before <= wanted, "{before} {wanted}");
            let gap: usize = text[offset..]
                .split_inclusive(|byte| *byte == b'\n')
                .take(wanted - before)
                .map(<[u8]>::len)
                .sum();
            assert!(gap <= 3 * PIECE, "{gap} bytes too early");
        }
    }

    #[test]
    fn broken_lines_and_a_log_that_is_gone_do_no_harm() {
        let (folder, _) = sample_run(3);
        let log = folder.path().join("events.jsonl");
        std::fs::write(&log, "x".repeat(100_000) + "\n{\"elapsed_ms\":NaN}\n{").unwrap();
        assert!(read(&log, 5.0, 6.0).unwrap().spans.is_empty());
        std::fs::remove_file(&log).unwrap();
        assert!(read(&log, 5.0, 6.0).is_err());
    }
}
