//! `just bench open [WORD…]`: what it costs to open a long run, to draw it, to follow it, and to list many.
//!
//! Each measurement runs in a process of its own, on one thread, over runs made by the real recorder and sealer; files are
//! read once before, so that the disk is not what is measured. Beside each stands what is compared with: a plain read of the
//! same bytes, or the fold of the whole log. WORDs narrow it down: `20k 200k list`.
//!
//! `just bench open --make DIR [--series 50] [--steps 20000] [--runs 1]` makes runs in DIR and measures nothing.

mod clock;
mod make;

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, bail};
use runlog::run_dir::RunDir;
use runlog::run_list::RunList;
use runlog::series::{Scale, Smoothing, XAxis, envelope};
use runlog::state::{RunState, SeriesSet};
use runlog::tail::{Limits, Tail};

use clock::{cpu_s, peak_rss_mb};
use make::Size;

/// Marks a child process: what to measure and of which directory.
const MEASURE: &str = "--measure";
const SERIES: usize = 50;
/// Columns of a wide terminal's chart.
const COLUMNS: usize = 200;
const LISTED_RUNS: usize = 500;

fn main() -> anyhow::Result<()> {
    // `cargo bench` adds `--bench`.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        // `just bench open …` gives its first word too.
        ["open", ref rest @ ..] => dispatch(rest),
        ref words => dispatch(words),
    }
}

fn dispatch(words: &[&str]) -> anyhow::Result<()> {
    match *words {
        [MEASURE, what, path] => measure(what, Path::new(path)),
        ["--make", directory, ref options @ ..] => make_runs(Path::new(directory), options),
        _ => report(words),
    }
}

fn make_runs(directory: &Path, options: &[&str]) -> anyhow::Result<()> {
    let (mut series, mut steps, mut runs) = (SERIES as u64, 20_000, 1);
    for pair in options.chunks(2) {
        let &[name, value] = pair else {
            bail!("{} needs a number", pair[0]);
        };
        let value = value.parse().with_context(|| format!("{name} {value}"))?;
        match name {
            "--series" => series = value,
            "--steps" => steps = value,
            "--runs" => runs = value,
            other => bail!("{other} is unknown; there are --series, --steps and --runs"),
        }
    }
    for _ in 0..runs {
        let series = series as usize;
        let run = make::run(directory, "bench", Size { series, steps })?;
        println!("{}", run.path().display());
    }
    Ok(())
}

fn report(words: &[&str]) -> anyhow::Result<()> {
    let wants = |word: &str| words.is_empty() || words.contains(&word);
    let root = tempfile::tempdir_in(std::env::temp_dir())?;
    for (word, steps) in [("20k", 20_000), ("200k", 200_000)] {
        if !wants(word) {
            continue;
        }
        let series = SERIES;
        let run = make::run(root.path(), word, Size { series, steps })?;
        let log_mb = fs::metadata(run.events_path())?.len() as f64 / 1e6;
        println!(
            "\n{series} series x {steps} points; events.jsonl has {log_mb:.0} MB, metrics/ {:.0} MB",
            size_mb(&run.metrics_dir())?
        );
        for what in ["read", "open", "fold", "first", "draw", "push"] {
            child(what, run.path())?;
        }
        fs::remove_dir_all(run.path())?;
    }
    if wants("list") {
        let root = root.path().join("many");
        for _ in 0..LISTED_RUNS {
            make::run(
                &root,
                "many",
                Size {
                    series: 50,
                    steps: 40,
                },
            )?;
        }
        println!("\n{LISTED_RUNS} runs");
        child("list", &root)?;
    }
    Ok(())
}

fn size_mb(directory: &Path) -> anyhow::Result<f64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes as f64 / 1e6)
}

/// Measures in a process of its own, which prints its line.
fn child(what: &str, path: &Path) -> anyhow::Result<()> {
    let status = Command::new(std::env::current_exe()?)
        .args([MEASURE, what])
        .arg(path)
        .stderr(Stdio::inherit())
        .status()?;
    if !status.success() {
        bail!("measuring {what} ended with {status}");
    }
    Ok(())
}

/// Best of three: what other programs take from this one only adds to it.
fn timed<T>(mut work: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let start = cpu_s();
        black_box(work()?);
        best = best.min(cpu_s() - start);
    }
    Ok(best)
}

fn line(what: &str, cpu_s: f64, note: &str) {
    println!("  {what:<58} {:>9.2} ms CPU  {note}", cpu_s * 1e3);
}

fn measure(what: &str, path: &Path) -> anyhow::Result<()> {
    if what == "list" {
        return measure_list(path);
    }
    let run = RunDir::open(path)?;
    match what {
        "read" => {
            let log = timed(|| Ok(fs::read(run.events_path())?.len()))?;
            line("plain read of events.jsonl", log, "");
            let files: Vec<PathBuf> = fs::read_dir(run.metrics_dir())?
                .map(|entry| Ok(entry?.path()))
                .collect::<anyhow::Result<_>>()?;
            let sealed = timed(|| {
                files
                    .iter()
                    .try_fold(0, |sum, file| Ok(sum + fs::read(file)?.len()))
            })?;
            line("plain read of metrics/", sealed, "");
        }
        "open" => {
            // Once: peak memory and page faults are those of a program that starts.
            let start = cpu_s();
            let opened = runlog::open::open(&run)?;
            let spent = cpu_s() - start;
            let points = opened.state.series.points();
            let problem = opened
                .problem
                .map_or(String::new(), |problem| format!("; {problem}"));
            line(
                "open",
                spent,
                &format!("{points} points, peak {:.0} MB{problem}", peak_rss_mb()),
            );
        }
        "fold" => {
            let start = cpu_s();
            let state = fold(&run)?;
            let spent = cpu_s() - start;
            line(
                "fold of the whole log, without segments",
                spent,
                &format!(
                    "{} points, peak {:.0} MB",
                    state.series.points(),
                    peak_rss_mb()
                ),
            );
        }
        "first" => {
            let start = cpu_s();
            let mut opening = runlog::open::Opening::start(&run);
            black_box(opening.state().step);
            line(
                "first stage of opening: all but the series",
                cpu_s() - start,
                "",
            );
            let start = cpu_s();
            opening.advance()?;
            line("second stage: one segment", cpu_s() - start, "");
        }
        "draw" => measure_draw(&runlog::open::open(&run)?.state.series)?,
        "push" => measure_push(runlog::open::open(&run)?.state),
        other => bail!("{MEASURE} {other}: nothing is measured under this name"),
    }
    Ok(())
}

fn fold(run: &RunDir) -> anyhow::Result<RunState> {
    let mut tail = Tail::new(run.events_path());
    let mut state = RunState::default();
    loop {
        let batch = tail.read(Limits::OPENING)?;
        for event in &batch.events {
            state.apply(event);
        }
        if !batch.has_more {
            return Ok(state);
        }
    }
}

fn measure_draw(set: &SeriesSet) -> anyhow::Result<()> {
    let whole = |axis, scale| {
        move || {
            for (_, series) in set.iter() {
                let (low, high) = series.x_bounds(axis).context("there are points")?;
                black_box(envelope(series, axis, low.max(1e-9), high, COLUMNS, scale));
            }
            Ok(())
        }
    };
    let count = set.len();
    let name = |what: &str| format!("envelope of {count} series, {COLUMNS} columns, {what}");
    line(
        &name("by step"),
        timed(whole(XAxis::Step, Scale::Linear))?,
        "",
    );
    line(
        &name("by time, logarithmic"),
        timed(whole(XAxis::Time, Scale::Log))?,
        "",
    );
    let naive = timed(|| {
        for (_, series) in set.iter() {
            let scan = series
                .values()
                .iter()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                    (low.min(*value), high.max(*value))
                });
            black_box(scan);
        }
        Ok(())
    })?;
    line(
        &format!("one scan of all values of {count} series, to compare"),
        naive,
        "",
    );
    let mut smoothing = Smoothing::new(0.9);
    let start = cpu_s();
    smoothing.follow(set, set.names());
    line(
        &format!("smoothing {count} series, the first time"),
        cpu_s() - start,
        "",
    );
    let crosshair = timed(|| {
        for (_, series) in set.iter() {
            black_box(
                series
                    .index_at(12_345.6, XAxis::Step)
                    .map(|i| series.point(i)),
            );
        }
        Ok(())
    })?;
    line(
        &format!("crosshair: the exact point of {count} series"),
        crosshair,
        "",
    );
    Ok(())
}

fn measure_push(mut state: RunState) {
    let (step, elapsed_ms) = (state.step, state.elapsed_ms);
    let names: Vec<String> = state.series.names().map(str::to_owned).collect();
    let mut smoothing = Smoothing::new(0.9);
    smoothing.follow(&state.series, names.iter().map(String::as_str));
    let mut alarms = runlog::alarms::Alarms::new(runlog::alarms::Limits::default());
    let start = cpu_s();
    alarms.follow(&state);
    line("alarms, the first look", cpu_s() - start, "");
    let pushes = 1000;
    let events: Vec<runlog::Event> = (1..=pushes)
        .map(|i| runlog::Event {
            seq: state.events + i,
            elapsed_ms: elapsed_ms + i as f64 * 100.0,
            kind: runlog::EventKind::StepEnded {
                step: step + i,
                policy_version: step + i,
                values: names
                    .iter()
                    .map(|name| (name.clone(), (i as f64).into()))
                    .collect(),
            },
        })
        .collect();
    let (mut apply_s, mut smooth_s, mut alarm_s) = (0.0, 0.0, 0.0);
    for event in &events {
        let start = cpu_s();
        state.apply(event);
        let applied = cpu_s();
        smoothing.follow(&state.series, names.iter().map(String::as_str));
        let smoothed = cpu_s();
        alarms.follow(&state);
        let watched = cpu_s();
        apply_s += applied - start;
        smooth_s += smoothed - applied;
        alarm_s += watched - smoothed;
    }
    let each = |total: f64| total / pushes as f64;
    // Reading the clock is in it, some microseconds.
    line(
        &format!("applying one step of {} values", names.len()),
        each(apply_s),
        "",
    );
    line("smoothing them", each(smooth_s), "");
    line("alarms", each(alarm_s), "");
}

fn measure_list(root: &Path) -> anyhow::Result<()> {
    let now = SystemTime::now();
    let mut list = RunList::new([root.to_owned()]);
    let start = cpu_s();
    list.refresh(now);
    line(
        "the first look at the list",
        cpu_s() - start,
        &format!("{} runs", list.entries().len()),
    );
    let again = timed(|| {
        list.refresh(now);
        Ok(())
    })?;
    line("a refresh when nothing changed", again, "");
    let names = timed(|| Ok(fs::read_dir(root)?.count()))?;
    line("reading the directory's names, to compare", names, "");
    Ok(())
}
