//! `lathe`, `lathe watch`, `lathe replay`: the workbench on the project or on one run; and its table of keys.

use std::ffi::OsStr;

use runlog::exit_code;

use super::arguments::{RunsPlace, WorkbenchArguments};
use super::{Failure, Output, import, plain, run, runs};
use crate::projecting::{self, Projecting, Source};
use crate::terminal::{Role, Terminal};
use crate::tui::{self, Options, bindings};

/// On the project: the list of runs first. With `--plain`: the list, printed.
pub fn project(
    arguments: &WorkbenchArguments,
    place: &RunsPlace,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    if terminal.plain {
        return runs::list(place, false, false, out, terminal);
    }
    tui::open(options(arguments, place), terminal)
}

/// On one run, at its newest step. With `--plain`: state, alarms and metrics, then a line a step while it runs.
pub fn watch(
    argument: &OsStr,
    place: &RunsPlace,
    arguments: &WorkbenchArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    if let Some(sources) = import::named(place, argument) {
        return watch_foreign(sources, place, arguments, out, terminal);
    }
    let run_dir = runs::find(place, argument)?;
    if terminal.plain {
        return plain::watch(&run_dir, place, out, terminal);
    }
    tui::open(
        Options {
            run: Some(run_dir.path().to_owned()),
            ..options(arguments, place)
        },
        terminal,
    )
}

/// On runs of another tracker, while their sources are read on: the newest first, the others in the list.
fn watch_foreign(
    sources: Vec<Source>,
    place: &RunsPlace,
    arguments: &WorkbenchArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let newest = &sources[0];
    let run_dir = if terminal.plain {
        import::newest(&sources)?
    } else {
        projecting::begin(&newest.found, &newest.root, &foreign::Options::default())?
    };
    let mut options = options(arguments, place);
    for root in import::roots(&sources) {
        if !options.runs_roots.contains(&root) {
            options.runs_roots.push(root);
        }
    }
    let projecting = Projecting::start(foreign::Options::default())
        .map_err(|error| Failure::unexpected(format!("cannot start a thread: {error}")))?;
    projecting.set(sources);
    if terminal.plain {
        return plain::watch(&run_dir, place, out, terminal);
    }
    tui::open(
        Options {
            run: Some(run_dir.path().to_owned()),
            ..options
        },
        terminal,
    )
}

/// On one run as it was; `(from_step, speed)`.
pub fn replay(
    argument: &OsStr,
    place: &RunsPlace,
    start: (Option<u64>, f64),
    arguments: &WorkbenchArguments,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let run_dir = runs::find(place, argument)?;
    tui::open(
        Options {
            run: Some(run_dir.path().to_owned()),
            replay: Some(start),
            ..options(arguments, place)
        },
        terminal,
    )
}

fn options(arguments: &WorkbenchArguments, place: &RunsPlace) -> Options {
    Options {
        runs_roots: vec![run::root(place)],
        theme: arguments.theme.clone(),
        is_read_only: arguments.read_only,
        ..Options::default()
    }
}

/// Prints the table of bindings.
pub fn bindings(
    filter: Option<&str>,
    markdown: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    if markdown {
        out.line(bindings::markdown().trim_end())?;
        return Ok(exit_code::OK);
    }
    let fits = |text: &str| {
        filter.is_none_or(|filter| text.to_lowercase().contains(&filter.to_lowercase()))
    };
    let rows: Vec<_> = bindings::all()
        .iter()
        .filter(|row| fits(row.id) || fits(row.help) || fits(row.context.title()))
        .collect();
    if rows.is_empty() {
        return Err(Failure::usage(format!(
            "no action has `{}` in its words",
            filter.unwrap_or_default()
        )));
    }
    let mut context = None;
    for row in rows {
        if context != Some(row.context) {
            context = Some(row.context);
            out.line(&terminal.paint(Role::Strong, row.context.title()))?;
        }
        let keys = row.keys.join(" or ");
        let id = terminal.paint(Role::Muted, row.id);
        out.line(&format!("  {keys:<20} {}  {id}", row.help))?;
    }
    Ok(exit_code::OK)
}
