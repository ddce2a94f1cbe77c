//! A log of another program brought back to the step that a resumed run goes on from: no step stands in it twice.
//!
//! What is the run's own is written anew from the run's log, aside and renamed. Of a file that other runs write to as well
//! only those rows go that are, byte for byte, rows of superseded steps of this run.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::appender::Appender;
use super::{Context, Logger};
use crate::event::{Event, EventKind};
use crate::tail::{Limits, Tail};

/// Gives every event of the run's log to `kept` or, where a resume from `from_step` supersedes it, to `dropped`.
fn sort_events(
    events_path: &Path,
    from_step: u64,
    mut kept: impl FnMut(&Event) -> io::Result<()>,
    mut dropped: impl FnMut(&Event) -> io::Result<()>,
) -> io::Result<()> {
    // A step counts if no later resume goes back behind it: each event needs the lowest of the resumes after it.
    let mut resumes: Vec<(u64, u64)> = Vec::new();
    each_event(events_path, |event| {
        if let EventKind::RunResumed { from_step, .. } = event.kind {
            resumes.push((event.seq, from_step));
        }
        Ok(())
    })?;
    let mut lowest = from_step;
    for (_, from_step) in resumes.iter_mut().rev() {
        lowest = lowest.min(*from_step);
        *from_step = lowest;
    }
    each_event(events_path, |event| {
        let after = resumes.partition_point(|(seq, _)| *seq <= event.seq);
        let limit = resumes.get(after).map_or(from_step, |(_, limit)| *limit);
        let step = match &event.kind {
            EventKind::StepEnded { step, .. } | EventKind::EvalEnded { step, .. } => *step,
            EventKind::WeightsSynced { version, .. } => *version,
            _ => 0,
        };
        if step > limit.min(from_step) {
            dropped(event)
        } else {
            kept(event)
        }
    })
}

fn each_event(path: &Path, mut take: impl FnMut(&Event) -> io::Result<()>) -> io::Result<()> {
    let mut tail = Tail::new(path);
    loop {
        let batch = tail.read(Limits::OPENING)?;
        batch.events.iter().try_for_each(&mut take)?;
        if !batch.has_more {
            return Ok(());
        }
    }
}

/// Makes `path` anew from the run's log: `begin` gives the logger of an empty file.
pub(super) fn rebuild<L: Logger>(
    path: &Path,
    context: &Context,
    from_step: u64,
    begin: impl FnOnce(Appender) -> io::Result<L>,
) -> io::Result<L> {
    let aside = beside(path);
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut logger = begin(Appender::open(&aside)?)?;
    let events = context.run_path.join("events.jsonl");
    sort_events(&events, from_step, |event| logger.take(event), |_| Ok(()))?;
    // The logger goes on writing to the same file under its new name.
    fs::rename(&aside, path)?;
    Ok(logger)
}

/// Takes lines out of `path` that are superseded by a resume; `row` gives an event's line, newline included.
pub(super) fn without_superseded(
    path: &Path,
    context: &Context,
    from_step: u64,
    row: impl Fn(&Event) -> io::Result<Option<Vec<u8>>>,
) -> io::Result<()> {
    let mut superseded: HashSet<Vec<u8>> = HashSet::new();
    let events = context.run_path.join("events.jsonl");
    sort_events(
        &events,
        from_step,
        |_| Ok(()),
        |event| {
            superseded.extend(row(event)?);
            Ok(())
        },
    )?;
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut kept = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if !superseded.contains(line) {
            kept.extend_from_slice(line);
        }
    }
    if kept.len() == text.len() {
        return Ok(());
    }
    let aside = beside(path);
    let mut file = fs::File::create(&aside)?;
    file.set_permissions(fs::metadata(path)?.permissions())?;
    file.write_all(&kept)?;
    fs::rename(&aside, path)
}

fn beside(path: &Path) -> PathBuf {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".aside");
    PathBuf::from(aside)
}
