//! `lathe import`: other trackers' runs, as runs of ours; and what a path of such a run means to other commands.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foreign::{ForeignError, Found, Options, Projection, Report};
use runlog::exit_code;
use runlog::run_dir::RunDir;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::arguments::{ImportArguments, RunsPlace};
use super::run::root;
use super::{Failure, Output, report};
use crate::headless::format;
use crate::projecting::{self, Projecting, Source};
use crate::terminal::{Role, Terminal};

/// Between two looks at a run that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Notes shown of one run.
const NOTES_SHOWN: usize = 10;
/// From so many values on a run opens faster from sealed segments.
const SEAL_FROM_VALUES: u64 = 50_000;

impl From<ForeignError> for Failure {
    fn from(error: ForeignError) -> Self {
        match error {
            ForeignError::RunDir(error) => error.into(),
            ForeignError::NoColumn { .. } => Self::usage(error.to_string()),
            error => Self::input(error.to_string()),
        }
    }
}

/// Puts the runs of a source among ours, and goes on with those that are there.
pub fn import(
    arguments: &ImportArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let options = arguments.reading.options();
    let found = foreign::find(&arguments.source, &options)?;
    if arguments.name.is_some() && found.len() > 1 {
        return Err(Failure::usage(format!(
            "{} holds {} runs: --name can name one; import them by their own paths",
            arguments.source.display(),
            found.len()
        )));
    }
    let root = root(&arguments.place);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::unexpected(format!("cannot take over signals: {error}")))?;
    }
    let mut open = Vec::new();
    let mut failed = None;
    for found in &found {
        match take(found, &root, arguments, &options, &stop) {
            Ok((projection, before)) => {
                if arguments.follow {
                    open.push((projection, before));
                } else {
                    seal(&projection);
                    tell(&projection, &before, arguments.json, out, terminal)?;
                }
            }
            // The other runs are no worse for it.
            Err(error) => {
                eprintln!(
                    "{} {}: {error}",
                    terminal.paint_stderr(Role::Bad, "error:"),
                    found.place()
                );
                failed.get_or_insert(Failure::from(error).exit_code());
            }
        }
    }
    if arguments.follow {
        follow(&mut open, &stop, terminal)?;
        for (projection, before) in &open {
            tell(projection, before, arguments.json, out, terminal)?;
        }
    }
    Ok(failed.unwrap_or(exit_code::OK))
}

/// Reads a run to the end of what is there; gives what was known of it before, too.
fn take(
    found: &Found,
    root: &Path,
    arguments: &ImportArguments,
    options: &Options,
    stop: &AtomicBool,
) -> Result<(Projection, Report), ForeignError> {
    let mut projection = Projection::open(found, root, arguments.name.as_deref(), options)?;
    let before = projection.report();
    while projection.advance(!arguments.follow)?.has_more && !stop.load(Ordering::Acquire) {}
    Ok((projection, before))
}

/// Until every run has ended, or a signal comes.
fn follow(
    open: &mut [(Projection, Report)],
    stop: &AtomicBool,
    terminal: Terminal,
) -> Result<(), Failure> {
    for (projection, _) in &*open {
        eprintln!(
            "following {} into {}; Ctrl-C ends the following, and nothing else",
            projection.found().place(),
            projection.run_dir().path().display()
        );
    }
    while !stop.load(Ordering::Acquire) {
        let mut is_going = false;
        for (projection, _) in &mut *open {
            loop {
                match projection.advance(false) {
                    Ok(progress) => {
                        if progress.has_more {
                            continue;
                        }
                        is_going |= !progress.is_ended;
                    }
                    Err(error) => {
                        let text = error.to_string();
                        let is_new = !projection.report().notes.contains(&text);
                        if is_new {
                            eprintln!(
                                "{} {text}",
                                terminal.paint_stderr(Role::Caution, "warning:")
                            );
                            projection.note(&text)?;
                        }
                        // It may come back: a directory that was moved away, a mount.
                        is_going = true;
                    }
                }
                break;
            }
        }
        if !is_going {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    for (projection, _) in open {
        // What cannot be read now was told above.
        let _ = projection.advance(true);
        seal(projection);
    }
    Ok(())
}

/// Segments are made again from the log whenever they are missing, so a failure costs time and nothing else.
fn seal(projection: &Projection) {
    if projection.report().values >= SEAL_FROM_VALUES {
        let _ = runlog::store::project(projection.run_dir(), false);
    }
}

fn tell(
    projection: &Projection,
    before: &Report,
    is_json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    let (run_dir, found, now) = (
        projection.run_dir(),
        projection.found(),
        projection.report(),
    );
    if is_json {
        return out.json(&json!({
            "run": run_dir.name(), "run_dir": report::absolute(run_dir.path()), "format": found.format.name(),
            "source": found.place(), "step": now.step, "values": now.values, "new_values": now.values - before.values.min(now.values),
            "metrics": now.metrics, "is_ended": now.is_ended, "notes": now.notes, "more_notes": now.more_notes,
        }));
    }
    let step = now.step.map_or_else(
        || "no step".to_owned(),
        |step| format!("step {}", format::count(step)),
    );
    let news = if projection.is_continued() {
        let new = now.values.saturating_sub(before.values);
        format!("{} new, {step}", format::plural(new, "value"))
    } else {
        format!(
            "{} of {} up to {step}",
            format::plural(now.values, "value"),
            format::plural(now.metrics as u64, "metric")
        )
    };
    out.line(&format!(
        "{} {} ({}): {news}",
        terminal.paint(Role::Strong, run_dir.name()),
        terminal.paint(Role::Muted, &found.place()),
        found.format
    ))?;
    for note in now.notes.iter().take(NOTES_SHOWN) {
        out.line(&format!("  {}", terminal.paint(Role::Muted, note)))?;
    }
    let more = now.notes.len().saturating_sub(NOTES_SHOWN) as u64 + now.more_notes;
    if more > 0 {
        let text = format!("and {more} more; the run's log has them");
        out.line(&format!("  {}", terminal.paint(Role::Muted, &text)))?;
    }
    Ok(())
}

/// The runs of other trackers that an argument names; None: it is none of those, or a run of ours.
pub fn named(place: &RunsPlace, argument: &OsStr) -> Option<Vec<Source>> {
    let path = Path::new(argument);
    if !path.exists() || path.join("run.json").exists() {
        return None;
    }
    let is_ours = argument
        .to_str()
        .is_some_and(|text| runlog::run_dir::resolve(&root(place), text).is_ok());
    if is_ours || foreign::recognise(path).is_none() {
        return None;
    }
    let found = foreign::find(path, &Options::default()).ok()?;
    let runs_root = root(place);
    let cache = projecting::cache_root(path)?;
    let source = |found: Found| {
        // What was imported is kept where it is.
        let is_imported = Projection::known(&found, &runs_root).is_some();
        let root = if is_imported {
            runs_root.clone()
        } else {
            cache.clone()
        };
        Source { found, root }
    };
    // Newest first.
    Some(found.into_iter().rev().map(source).collect())
}

/// Other trackers' runs below a root that are not among ours.
pub fn not_imported(root: &Path) -> Vec<Found> {
    let found = foreign::find(root, &Options::default()).unwrap_or_default();
    let is_new = |found: &Found| Projection::known(found, root).is_none();
    found.into_iter().filter(is_new).collect()
}

/// The newest of those runs as a run of ours, as far as its source goes now.
pub fn newest(sources: &[Source]) -> Result<RunDir, Failure> {
    let newest = &sources[0];
    tell_newest(sources);
    Ok(projecting::project_now(
        &newest.found,
        &newest.root,
        &Options::default(),
    )?)
}

/// Goes on reading another tracker's run, for as long as what is given is kept; None: it is none, or its source is gone.
pub fn kept_up_to_date(run_dir: &RunDir) -> Result<Option<Projecting>, Failure> {
    let Some(found) = Projection::source(run_dir, &Options::default()) else {
        return Ok(None);
    };
    let projecting = Projecting::start(Options::default())
        .map_err(|error| Failure::unexpected(format!("cannot read it any further: {error}")))?;
    let root = run_dir.path().parent().unwrap_or(Path::new(".")).to_owned();
    projecting.set(vec![Source { found, root }]);
    Ok(Some(projecting))
}

fn tell_newest(sources: &[Source]) {
    if sources.len() > 1 {
        eprintln!(
            "{} runs; the newest is {}",
            sources.len(),
            sources[0].found.place()
        );
    }
}

/// Roots in which those runs' projections lie.
pub fn roots(sources: &[Source]) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = sources.iter().map(|source| source.root.clone()).collect();
    roots.sort();
    roots.dedup();
    roots
}
