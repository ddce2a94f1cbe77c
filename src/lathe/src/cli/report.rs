//! What is said when a run has ended, or when its watcher leaves: to people, or as the last JSON line.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use runlog::event::RunStatus;
use runlog::run_dir::RunDir;
use runlog::state::{Liveness, RunState, Summary, liveness, word};
use serde::Serialize;

use super::{Failure, Output};
use crate::headless::judges::Judges;
use crate::headless::summary::{self, Standing};
use crate::headless::{self, End, Followed};
use crate::launch::{self, Ending};
use crate::terminal::{Role, Terminal};

/// The last line of `lathe run --json`, and all of `lathe runs show --json`.
#[derive(Debug, Serialize)]
pub struct Report {
    event: &'static str,
    run: String,
    run_dir: PathBuf,
    /// `running`, `paused`, `finished`, `stopped`, `failed`, `dead`.
    status: &'static str,
    /// None while it runs.
    exit_code: Option<i32>,
    reason: Option<String>,
    bad_lines: u64,
    summary: Summary,
}

/// Says how it ended and gives the exit code.
pub fn print(
    run_dir: &RunDir,
    followed: &Followed,
    json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let code = followed.exit_code();
    let (status, reason) = status(followed);
    if json {
        out.json(&Report {
            event: "summary",
            run: run_dir.name().to_owned(),
            run_dir: absolute(run_dir.path()),
            status,
            exit_code: (!matches!(followed.end, End::Left(_))).then_some(code),
            reason,
            bad_lines: followed.bad_lines,
            summary: followed.state.summary(),
        })?;
    } else if !matches!(followed.end, End::Left(_)) {
        out.line("")?;
        print_summary(
            &followed.state,
            run_dir,
            &standing(status, reason),
            followed.bad_lines,
            out,
            terminal,
        )?;
    }
    match &followed.end {
        End::Left(_) => goes_on(run_dir),
        End::Died(ending) if !(followed.is_interrupted && ending.signal.is_some()) => {
            eprintln!("{}", log_excerpt(run_dir, ending));
        }
        End::Recorded(ended) if ended.status == RunStatus::Failed && !json => {
            eprintln!("see {}", run_dir.log_path().display());
        }
        _ => {}
    }
    Ok(code)
}

fn status(followed: &Followed) -> (&'static str, Option<String>) {
    match &followed.end {
        End::Recorded(ended) => {
            let reason = (!ended.reason.is_empty()).then(|| ended.reason.clone());
            (ended.status.word(), reason)
        }
        End::Died(ending) if followed.is_interrupted && ending.signal.is_some() => (
            "stopped",
            Some("stopped before it could save a checkpoint".to_owned()),
        ),
        End::Died(ending) => (DEAD, Some(ending.explanation())),
        End::Gone { reason } => (DEAD, Some(reason.clone())),
        End::Killed => (
            "stopped",
            Some("ended at once; what was recorded and the checkpoints before it stay".to_owned()),
        ),
        End::Left(_) => (word(&Liveness::Running, followed.state.is_paused), None),
    }
}

/// [`Liveness::word`] of a run that ended without a word of its own.
const DEAD: &str = "dead";

fn standing(status: &str, reason: Option<String>) -> Standing {
    let role = match status {
        "finished" => Role::Good,
        "failed" | DEAD => Role::Bad,
        _ => Role::Caution,
    };
    Standing {
        word: status.to_owned(),
        role,
        // `finished` needs no reason.
        reason: reason.filter(|_| status != "finished"),
    }
}

/// Of a run that nobody follows.
pub fn standing_of(liveness: &Liveness, is_paused: bool) -> Standing {
    standing(
        word(liveness, is_paused),
        liveness.reason().map(str::to_owned),
    )
}

fn print_summary(
    state: &RunState,
    run_dir: &RunDir,
    standing: &Standing,
    bad_lines: u64,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    let judges = Judges::of_run(run_dir.path());
    let judges = judges.as_ref();
    for line in summary::lines(state, run_dir.path(), standing, bad_lines, judges, terminal) {
        out.line(&line)?;
    }
    Ok(())
}

/// `lathe runs show RUN`: the same report of a run that nobody follows.
pub fn show(
    run_dir: &RunDir,
    json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    let (state, bad_lines) = headless::read(run_dir).map_err(|error| {
        Failure::unexpected(format!(
            "cannot read {}: {error}",
            run_dir.events_path().display()
        ))
    })?;
    let end = state
        .ended
        .as_ref()
        .map(|ended| (ended.status, ended.reason.as_str()));
    let liveness = liveness(run_dir, end, SystemTime::now());
    let status = word(&liveness, state.is_paused);
    let reason = liveness.reason().map(str::to_owned);
    if json {
        return out.json(&Report {
            event: "summary",
            run: run_dir.name().to_owned(),
            run_dir: absolute(run_dir.path()),
            status,
            exit_code: state.ended.as_ref().map(|ended| ended.exit_code),
            reason,
            bad_lines,
            summary: state.summary(),
        });
    }
    print_summary(
        &state,
        run_dir,
        &standing(status, reason),
        bad_lines,
        out,
        terminal,
    )?;
    if status == DEAD {
        let lines = launch::last_lines(&run_dir.log_path(), 5).unwrap_or_default();
        if !lines.is_empty() {
            out.line(&format!("last lines of {}:", run_dir.log_path().display()))?;
            for line in lines {
                out.line(&format!("  {line}"))?;
            }
        }
    }
    Ok(())
}

/// The end of the trainer's log, or that it wrote nothing.
pub fn log_excerpt(run_dir: &RunDir, ending: &Ending) -> String {
    let path = run_dir.log_path();
    if ending.log_lines.is_empty() {
        let size = path.metadata().map_or(0, |metadata| metadata.len());
        let what = if size == 0 {
            "is empty"
        } else {
            "holds nothing but the metrics of its steps"
        };
        return format!("{} {what}", path.display());
    }
    let lines: Vec<String> = ending
        .log_lines
        .iter()
        .map(|line| format!("  {line}"))
        .collect();
    format!("last lines of {}:\n{}", path.display(), lines.join("\n"))
}

pub fn goes_on(run_dir: &RunDir) {
    let id = &run_dir.info().id;
    eprintln!("the run goes on; watch it: lathe follow {id}    stop it: lathe stop {id}");
}

pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
