//! What the workbench's pages show, as lines for pipes, logs and screen readers: `lathe runs`, and `--plain`. Columns are separated by two
//! spaces or more, so that `awk -F '  +'` and people read the same.

use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;
use runlog::alarms::{Alarms, Limits, Severity};
use runlog::exit_code;
use runlog::metrics::{self, Direction};
use runlog::notes::Notes;
use runlog::run_dir::RunDir;
use runlog::run_list::Entry;
use runlog::state::{Liveness, RunState, liveness};

use super::arguments::{Form, RunsPlace};
use super::run;
use super::runs::Listed;
use super::{Failure, Output, elsewhere, import, report};
use crate::headless::judges::Judges;
use crate::headless::{self, format, summary};
use crate::terminal::{Role, Terminal};

/// Values that a mean takes.
const LAST_COUNT: usize = 10;
/// Metrics of the list, as words of the filter; those that no run has are left out.
const LISTED: [&str; 3] = ["reward", "score", "kl"];

/// What a run of another machine waits for there.
fn waits(entry: &Entry) -> Option<String> {
    if !matches!(entry.glance.liveness, Liveness::Running) {
        return None;
    }
    elsewhere::waits(&entry.run_dir).map(|why| format!("it waits {why}"))
}

/// The list of runs with all that page Runs shows of each.
pub fn runs(
    root: &Path,
    listed: &Listed,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let entries = listed.entries();
    let mut table = vec![header(&[
        "STATE", "STEPS", "AGE", "HOST", "REWARD", "BEST", "SCORE", "BEST", "KL", "TAGS", "RUN",
    ])];
    table.extend(rows(&entries));
    let not_imported = import::not_imported(root);
    if entries.is_empty() && not_imported.is_empty() {
        eprintln!(
            "no runs in {} yet; start one: lathe run EXPERIMENT",
            root.display()
        );
    } else if !entries.is_empty() {
        let mut lines = aligned(&table).into_iter();
        for head in lines.by_ref().take(1) {
            out.line(&terminal.paint(Role::Strong, &head))?;
        }
        for (line, entry) in lines.zip(&entries) {
            let state = entry.glance.word();
            let rest = line.strip_prefix(state).unwrap_or_default();
            let state = terminal.paint(role(entry), state);
            out.line(&format!("{state}{rest}"))?;
            let waits = waits(entry);
            let cut = matches!(entry.glance.liveness, Liveness::Running)
                .then(|| elsewhere::cut(&entry.run_dir))
                .flatten();
            let trouble = elsewhere::trouble(&entry.run_dir, &entry.glance.liveness);
            let reasons = [
                waits.as_deref(),
                cut.as_deref(),
                trouble.as_deref(),
                entry.glance.liveness.reason(),
                entry.problem.as_deref(),
            ];
            for text in reasons
                .into_iter()
                .flatten()
                .chain(entry.notes.note.lines())
            {
                out.line(&format!("    {}", terminal.paint(Role::Muted, text)))?;
            }
        }
    }
    if !not_imported.is_empty() {
        let text = "of other trackers, not imported (lathe watch PATH, lathe import PATH):";
        out.line(&terminal.paint(Role::Muted, text))?;
    }
    for found in &not_imported {
        out.line(&format!(
            "{:13}  {}  {}",
            found.format.name(),
            found.name,
            found.place()
        ))?;
    }
    Ok(exit_code::OK)
}

fn header(titles: &[&str]) -> Vec<String> {
    titles.iter().map(|&title| title.to_owned()).collect()
}

fn role(entry: &Entry) -> Role {
    match entry.glance.liveness {
        Liveness::Running if entry.glance.is_paused => Role::Caution,
        Liveness::Running => Role::Strong,
        Liveness::Finished => Role::Good,
        Liveness::Stopped => Role::Caution,
        Liveness::Silent { .. } => Role::Muted,
        Liveness::Failed { .. } | Liveness::PresumedDead { .. } => Role::Bad,
    }
}

/// A row each, in order. Whole logs are read for them, on all cores.
fn rows(entries: &[&Entry]) -> Vec<Vec<String>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let each = entries.len().div_ceil(cores).max(1);
    std::thread::scope(|scope| {
        let read = |part: &[&Entry]| part.iter().map(|entry| row(entry)).collect::<Vec<_>>();
        let parts: Vec<_> = entries
            .chunks(each)
            .map(|part| scope.spawn(move || read(part)))
            .collect();
        parts
            .into_iter()
            .flat_map(|part| part.join().expect("reading a log does not panic"))
            .collect()
    })
}

fn row(entry: &Entry) -> Vec<String> {
    let info = entry.run_dir.info();
    let glance = &entry.glance;
    // The end of the log may not hold the last evaluation, and never the best one.
    let state = headless::read(&entry.run_dir).ok().map(|(state, _)| state);
    let numbers = |word: &str| -> (String, String) {
        if state.as_ref().is_none_or(|state| state.series.is_empty()) {
            // Of a run of another machine whose log is not here: what was heard of it.
            let last = match runlog::filter::resolve(word, glance.last.keys().map(String::as_str)) {
                runlog::filter::Resolved::One(name) => glance.last.get(name),
                runlog::filter::Resolved::Many(names) => {
                    names.first().and_then(|name| glance.last.get(*name))
                }
                runlog::filter::Resolved::None => None,
            };
            return (number(last.map(|value| value.0)), "-".to_owned());
        }
        let Some((name, series)) = state.as_ref().and_then(|state| {
            let name = match runlog::filter::resolve(word, state.series.names()) {
                runlog::filter::Resolved::One(name) => name,
                runlog::filter::Resolved::Many(names) => names.first()?,
                runlog::filter::Resolved::None => return None,
            };
            Some((name, state.series.get(name)?))
        }) else {
            return ("-".to_owned(), "-".to_owned());
        };
        let last = series.last().map(|point| point.value.0);
        let bounds = series.bounds(0..series.len());
        let best = match direction(name) {
            Direction::Higher => bounds.map(|bounds| bounds.max),
            Direction::Lower => bounds.map(|bounds| bounds.min),
            Direction::Neither => None,
        };
        (number(last), number(best))
    };
    let [reward, score, kl] = LISTED.map(numbers);
    let age = Timestamp::now()
        .duration_since(info.started_at)
        .unsigned_abs();
    let tags: Vec<&str> = entry.notes.tags().iter().map(String::as_str).collect();
    let or_dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    vec![
        glance.word().to_owned(),
        format::steps(glance.step, glance.total_steps),
        format::age(age),
        or_dash(
            format!(
                "{} {}",
                info.host,
                info.foreign_format().unwrap_or_default()
            )
            .trim()
            .to_owned(),
        ),
        reward.0,
        reward.1,
        score.0,
        score.1,
        kl.0,
        or_dash(tags.join(",")),
        entry.run_dir.name().to_owned(),
    ]
}

fn direction(name: &str) -> Direction {
    metrics::lookup(name).map_or(Direction::Neither, |metric| metric.direction)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), format::number)
}

/// Cells in columns as wide as they need, two spaces apart.
fn aligned(table: &[Vec<String>]) -> Vec<String> {
    let columns = table.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            table
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    table
        .iter()
        .map(|row| {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
}

/// All that the pages show of one run; a running one is then followed, a line a step.
pub fn watch(
    run_dir: &RunDir,
    place: &RunsPlace,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let (state, bad_lines) = headless::read(run_dir).map_err(|error| {
        Failure::unexpected(format!(
            "cannot read {}: {error}",
            run_dir.events_path().display()
        ))
    })?;
    let state = &state;
    let end = state
        .ended
        .as_ref()
        .map(|ended| (ended.status, ended.reason.as_str()));
    let liveness = liveness(run_dir, end, SystemTime::now());
    let standing = report::standing_of(&liveness, state.is_paused);
    let judges = Judges::of_run(run_dir.path());
    let judges = judges.as_ref();
    for line in summary::lines(
        state,
        run_dir.path(),
        &standing,
        bad_lines,
        judges,
        terminal,
    ) {
        out.line(&line)?;
    }
    notes(run_dir, out)?;
    alarms(state, out, terminal)?;
    metric_table(state, out, terminal)?;
    if liveness == Liveness::Running {
        out.line("")?;
        let form = Form {
            json: false,
            verbose: false,
        };
        return run::follow(run_dir.path().as_os_str(), place, form, out, terminal);
    }
    Ok(exit_code::OK)
}

fn notes(run_dir: &RunDir, out: &mut Output) -> Result<(), Failure> {
    match Notes::read(run_dir) {
        Ok(notes) => {
            for line in notes.note.lines() {
                out.line(&format!("  note           {line}"))?;
            }
            let tags: Vec<&str> = notes.tags().iter().map(String::as_str).collect();
            if !tags.is_empty() {
                out.line(&format!("  tags           {}", tags.join(" ")))?;
            }
        }
        Err(error) => eprintln!("warning: {error}"),
    }
    Ok(())
}

fn alarms(state: &RunState, out: &mut Output, terminal: Terminal) -> Result<(), Failure> {
    let mut alarms = Alarms::new(Limits::default());
    alarms.follow(state);
    let is_over = state.ended.is_some();
    out.line("")?;
    out.line(&terminal.paint(Role::Strong, "ALARMS"))?;
    if alarms.active().is_empty() {
        let when = if is_over { "at the end" } else { "now" };
        out.line(&format!("  none {when}"))?;
    }
    for finding in alarms.active() {
        let (word, role) = match finding.severity {
            Severity::Warning => ("warning", Role::Caution),
            Severity::Critical => ("critical", Role::Bad),
        };
        out.line(&format!(
            "  {}  {}  since step {}: {}",
            terminal.paint(role, word),
            finding.name,
            finding.since_step,
            finding.message
        ))?;
        for change in &finding.what_changed {
            let seconds = (finding.since_ms - change.elapsed_ms).max(0.0) / 1e3;
            let before = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
            out.line(&format!(
                "      {} before: {}",
                format::duration(before),
                change.what
            ))?;
        }
    }
    let past = alarms.past().len();
    if past > 0 {
        out.line(&format!(
            "  {} earlier and over",
            format::plural(past as u64, "alarm")
        ))?;
    }
    Ok(())
}

fn metric_table(state: &RunState, out: &mut Output, terminal: Terminal) -> Result<(), Failure> {
    if state.series.is_empty() {
        return Ok(());
    }
    let mut names: Vec<&str> = state.series.names().collect();
    names.sort_by_key(|name| {
        let group = metrics::lookup(name).map(|metric| metric.group);
        // What a run is judged by comes before its by-products.
        (group.is_none(), group, name.starts_with("val-aux/"))
    });
    let mean_title = format!("MEAN{LAST_COUNT}");
    let mut table = vec![header(&[
        "METRIC",
        "UNIT",
        "FIRST",
        "LAST",
        "BEST",
        &mean_title,
        "VALUES",
        "NOT FINITE",
    ])];
    for name in names {
        let Some(series) = state.series.get(name) else {
            continue;
        };
        let metric = metrics::lookup(name);
        let bounds = series.bounds(0..series.len());
        let best = match direction(name) {
            Direction::Higher => bounds.map(|bounds| bounds.max),
            Direction::Lower => bounds.map(|bounds| bounds.min),
            Direction::Neither => None,
        };
        let values = series.values();
        let newest: Vec<f64> = values[values.len().saturating_sub(LAST_COUNT)..]
            .iter()
            .copied()
            .filter(|value| value.is_finite())
            .collect();
        let mean = (!newest.is_empty()).then(|| newest.iter().sum::<f64>() / newest.len() as f64);
        table.push(vec![
            name.to_owned(),
            metric.map_or("-", |metric| metric.unit).to_owned(),
            number(series.first().map(|point| point.value.0)),
            number(series.last().map(|point| point.value.0)),
            number(best),
            number(mean),
            series.len().to_string(),
            series.non_finite().to_string(),
        ]);
    }
    out.line("")?;
    for (index, line) in aligned(&table).into_iter().enumerate() {
        if index == 0 {
            out.line(&terminal.paint(Role::Strong, &line))?;
        } else {
            out.line(&line)?;
        }
    }
    Ok(())
}
