//! `lathe checkpoints RUN`: what a run has saved, whether it is whole, why it is kept; and `prune`, which removes the rest.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use experiment::Experiment;
use runlog::checkpoints::{self, CheckpointError, Found, Judged, Lookback, Rules, Why};
use runlog::exit_code;
use runlog::number::Number;
use runlog::run_dir::RunDir;
use runlog::state::RunState;
use serde_json::json;

use super::arguments::{CheckpointsArguments, CheckpointsCommand, RunsPlace};
use super::{Failure, Output, report, runs};
use crate::headless::{self, format};
use crate::terminal::{Role, Terminal};

/// Of the steps at which a run elsewhere saved, the newest are named.
const STEPS_TOLD: usize = 8;

/// One directory with a checkpoint's name.
struct Row {
    found: Found,
    /// Bytes of a whole one, or what is wrong with it.
    state: Result<u64, CheckpointError>,
    value: Option<f64>,
    /// Of a whole one; empty: it may go.
    kept: Vec<Why>,
}

impl Row {
    fn may_go(&self) -> bool {
        self.state.is_ok() && self.kept.is_empty()
    }
}

pub fn checkpoints(
    arguments: &CheckpointsArguments,
    is_read_only: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let run_dir = runs::find(&arguments.place, &arguments.run)?;
    let loaded = experiment::inspect(&run_dir.experiment_path(), &[]);
    let mut rules = rules(arguments, &loaded.experiment);
    let metric = arguments
        .metric
        .as_deref()
        .unwrap_or(&loaded.experiment.trainer.ckpt_best_metric);
    let rows = rows(&run_dir, metric, &mut rules, arguments.verify)?;
    match arguments.command {
        Some(CheckpointsCommand::Prune) => {
            if rules.last.is_none() {
                return Err(Failure::usage(
                    "which are to stay? give --keep N (the newest N), or set trainer.max_actor_ckpt_to_keep in the experiment",
                ));
            }
            if is_read_only && !arguments.dry_run {
                return Err(Failure::usage(
                    "--read-only changes nothing; `prune --dry-run` says what would go",
                ));
            }
            prune(&run_dir, &rows, arguments, out)
        }
        None => {
            if arguments.dry_run {
                return Err(Failure::usage("--dry-run is for prune"));
            }
            list(&run_dir, &rows, metric, arguments, out, terminal)
        }
    }
}

/// What the experiment says, and what was typed over it.
fn rules(arguments: &CheckpointsArguments, experiment: &Experiment) -> Rules {
    let keep = experiment.keep();
    Rules {
        last: arguments.keep.or(keep.last),
        every: arguments.every.or(keep.every),
        best: arguments.best.unwrap_or(keep.best),
        // A run that lives may still evaluate what it saved last.
        scored_every: keep.scored_every,
        guards: keep.guards.map(|guards| Lookback {
            steps: guards.steps,
            to_best: guards.to_best,
        }),
        left_behind: Vec::new(),
    }
}

fn rows(
    run_dir: &RunDir,
    metric: &str,
    rules: &mut Rules,
    is_thorough: bool,
) -> Result<Vec<Row>, Failure> {
    let unreadable = |path: &Path, error: std::io::Error| {
        Failure::unexpected(format!("cannot read {}: {error}", path.display()))
    };
    let place = run_dir.checkpoints_dir();
    let found = checkpoints::list(&place).map_err(|error| unreadable(&place, error))?;
    let state = runlog::open::open(run_dir)
        .map_err(|error| unreadable(&run_dir.events_path(), error))?
        .state;
    let looked_at: Vec<(Found, Result<u64, CheckpointError>)> = found
        .into_iter()
        .map(|found| {
            let state = if is_thorough {
                checkpoints::verify(&found.path)
            } else {
                checkpoints::measure(&found.path)
            };
            (found, state)
        })
        .collect();
    let whole: Vec<Found> = looked_at
        .iter()
        .filter(|(_, state)| state.is_ok())
        .map(|(found, _)| found.clone())
        .collect();
    rules.left_behind = checkpoints::left_behind(&whole);
    let score = |pattern: &str, step| {
        checkpoints::score(&state, |name| experiment::glob(pattern, name), step)
    };
    let mut judged = checkpoints::judge(
        &whole,
        |step| score(metric, step),
        |step| score(experiment::guards::GOAL, step),
        rules,
    )
    .into_iter();
    Ok(looked_at
        .into_iter()
        .map(|(found, looked)| Row {
            kept: if looked.is_ok() {
                let Judged { kept, .. } = judged.next().expect("every whole one was judged");
                kept
            } else {
                Vec::new()
            },
            value: value(&state, metric, found.step),
            state: looked,
            found,
        })
        .collect())
}

fn value(state: &RunState, metric: &str, step: u64) -> Option<f64> {
    checkpoints::value(state, |name| experiment::glob(metric, name), step)
}

/// Of a run of another machine: what it says that it saved there, and how to have it here.
fn saved_there(run_dir: &RunDir) -> Option<String> {
    let target = run_dir.origin()?.target()?;
    let (state, _) = headless::read(run_dir).ok()?;
    let steps: Vec<String> = state
        .checkpoints
        .iter()
        .map(|saved| saved.step.to_string())
        .collect();
    if steps.is_empty() {
        return None;
    }
    let shown = steps.len().saturating_sub(STEPS_TOLD);
    let before = if shown > 0 { "… " } else { "" };
    Some(format!(
        "on {target} it saved at step {before}{}; here are those that were fetched: lathe pull {} --checkpoint STEP|latest|all",
        steps[shown..].join(", "),
        run_dir.info().id
    ))
}

fn list(
    run_dir: &RunDir,
    rows: &[Row],
    metric: &str,
    arguments: &CheckpointsArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    if arguments.json {
        for row in rows {
            out.json(&json!({
                "step": row.found.step,
                "path": report::absolute(&row.found.path),
                "is_whole": row.state.is_ok(),
                "problem": row.state.as_ref().err().map(ToString::to_string),
                "bytes": row.state.as_ref().ok(),
                "metric": metric,
                "value": row.value.map(Number),
                "kept": row.kept.iter().map(|why| word(*why)).collect::<Vec<_>>(),
            }))?;
        }
        return Ok(exit_code::OK);
    }
    let there = saved_there(run_dir);
    if rows.is_empty() && there.is_none() {
        eprintln!(
            "{} has no checkpoints; trainer.save_freq says how often a run makes one",
            run_dir.name()
        );
        return Ok(exit_code::OK);
    }
    if let Some(words) = there {
        eprintln!("{words}");
    }
    if rows.is_empty() {
        return Ok(exit_code::OK);
    }
    let header = format!("{:>8}  {:>8}  {:>9}  KEPT", "STEP", "SIZE", "VALUE");
    out.line(&terminal.paint(Role::Muted, &header))?;
    for row in rows {
        let (size, kept) = match &row.state {
            Ok(bytes) if row.may_go() => (format::bytes(*bytes), "no rule keeps it".to_owned()),
            Ok(bytes) => {
                let words: Vec<String> = row.kept.iter().map(|why| word(*why)).collect();
                (format::bytes(*bytes), words.join(", "))
            }
            Err(error) => ("broken".to_owned(), problem(error)),
        };
        let role = match &row.state {
            Err(_) => Role::Bad,
            Ok(_) if row.may_go() => Role::Muted,
            Ok(_) => Role::Strong,
        };
        let value = row.value.map_or_else(|| "-".to_owned(), format::number);
        out.line(&format!(
            "{:>8}  {size:>8}  {value:>9}  {}",
            row.found.step,
            terminal.paint(role, &kept)
        ))?;
    }
    let bytes: u64 = rows.iter().filter_map(|row| row.state.as_ref().ok()).sum();
    out.line(&terminal.paint(
        Role::Muted,
        &format!(
            "{} in {}; VALUE is {metric}",
            format::bytes(bytes),
            run_dir.checkpoints_dir().display()
        ),
    ))?;
    Ok(exit_code::OK)
}

fn prune(
    run_dir: &RunDir,
    rows: &[Row],
    arguments: &CheckpointsArguments,
    out: &mut Output,
) -> Result<i32, Failure> {
    let verb = if arguments.dry_run {
        "would remove"
    } else {
        "removed"
    };
    let (mut count, mut freed) = (0, 0);
    for row in rows.iter().filter(|row| row.may_go()) {
        let Ok(bytes) = row.state else { continue };
        if !arguments.dry_run {
            checkpoints::remove(&row.found.path).map_err(|error| {
                Failure::unexpected(format!(
                    "cannot remove {}: {error}",
                    row.found.path.display()
                ))
            })?;
        }
        count += 1;
        freed += bytes;
        if arguments.json {
            out.json(&json!({
                "step": row.found.step, "path": report::absolute(&row.found.path), "bytes": bytes,
                "is_removed": !arguments.dry_run,
            }))?;
        } else {
            out.line(&format!(
                "{verb} step {} ({})",
                row.found.step,
                format::bytes(bytes)
            ))?;
        }
    }
    if !arguments.json {
        let broken = rows.iter().filter(|row| row.state.is_err()).count();
        let left = match broken {
            0 => String::new(),
            _ => format!(
                "; {broken} broken left for you to look at in {}",
                run_dir.checkpoints_dir().display()
            ),
        };
        out.line(&format!(
            "{verb} {count} of {}: {}{left}",
            format::plural(rows.len() as u64, "checkpoint"),
            format::bytes(freed)
        ))?;
    }
    Ok(exit_code::OK)
}

fn word(why: Why) -> String {
    match why {
        Why::All => "all are kept".to_owned(),
        Why::Last(1) => "newest".to_owned(),
        Why::Last(count) => format!("newest {count}"),
        Why::Every(steps) => format!("every {steps} steps"),
        Why::Best(_) => "best".to_owned(),
        Why::Unscored => "not evaluated yet".to_owned(),
        Why::RollBack => "guards may go back to it".to_owned(),
    }
}

/// Without the path, which the line tells by its step.
fn problem(error: &CheckpointError) -> String {
    match error {
        CheckpointError::Broken { problem, .. } => problem.clone(),
        other => other.to_string(),
    }
}

/// The checkpoint that `--from` names: a directory, `RUN:STEP`, or a run, whose newest whole one is meant. Beside it the id
/// of the run that it is of, where that is known.
pub(super) fn named(
    place: &RunsPlace,
    argument: &OsStr,
) -> Result<(PathBuf, Option<String>), Failure> {
    let path = Path::new(argument);
    let parent = |path: &Path| {
        let run = path.parent()?.parent()?;
        RunDir::open(run).ok().map(|run| run.info().id.clone())
    };
    let broken = |error: CheckpointError| Failure::input(error.to_string());
    if path.is_dir() && !path.join("run.json").exists() {
        checkpoints::measure(path).map_err(broken)?;
        let path = report::absolute(path);
        let parent = parent(&path);
        return Ok((path, parent));
    }
    let text = argument.to_string_lossy();
    let (run, step) = match text.rsplit_once(':') {
        Some((run, step)) if !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit()) => {
            (run.to_owned(), step.parse::<u64>().ok())
        }
        _ => (text.into_owned(), None),
    };
    let run_dir = runs::find(place, OsStr::new(&run))?;
    let found = checkpoints::list(&run_dir.checkpoints_dir())
        .map_err(|error| Failure::unexpected(format!("cannot read its checkpoints: {error}")))?;
    let chosen = match step {
        Some(step) => found.into_iter().find(|found| found.step == step),
        None => found
            .into_iter()
            .rev()
            .find(|found| checkpoints::measure(&found.path).is_ok()),
    };
    let Some(chosen) = chosen else {
        return Err(Failure::input(format!(
            "{} has no {}; see `lathe checkpoints {}`",
            run_dir.name(),
            step.map_or_else(
                || "whole checkpoint".to_owned(),
                |step| format!("checkpoint of step {step}")
            ),
            run_dir.info().id
        )));
    };
    checkpoints::measure(&chosen.path).map_err(broken)?;
    Ok((
        report::absolute(&chosen.path),
        Some(run_dir.info().id.clone()),
    ))
}
