//! Watches over verl: `lathe __verl --run-dir RUN`, a process of its own that outlives whoever started it.
//!
//! ```text
//!  lathe run ──spawn──► lathe __verl (setsid) ──leash──► python -m verl.trainer.main_ppo …   stdout, stderr ─► log.txt
//!                          │ events.jsonl ◄── rows ◄──────────── metrics.jsonl ◄──┘ (verl's `file` logger)
//! ```
//! It is the run's one writer: to everything else a run of verl is a run like any other. SIGINT and SIGTERM are handed on, and
//! the second one ends verl at once, with all of its workers; verl saves nothing on either. When this process is killed, verl is too.
//!
//! On another machine it runs there, under what watches over every run: events are made where verl writes, so that they are there
//! when nobody follows, and are copied like those of any other run.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use foreign::{Format, Found, Projection};
use runlog::event::{EventKind, RunStatus};
use runlog::exit_code;
use runlog::run_dir::{RunDir, host_name};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::last_lines;
use super::leash::{kill_descendants, leashed, take_in_orphans};
use super::verl::{VerlCommand, command, metrics_file};

/// Between two looks at verl and its metrics.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// verl that was told to end now (SIGTERM) has nothing to save. Shorter than what Ray leaves a job.
const TERM_PATIENCE: Duration = Duration::from_millis(1200);

/// Starts verl for the experiment of a run directory and stays until it has ended; gives the exit code.
pub fn supervise(path: &Path) -> Result<i32, String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let run_dir = RunDir::open(path).map_err(|error| told(&error))?;
    let loaded = experiment::load(&run_dir.experiment_path(), &[]).map_err(|error| told(&error))?;
    let command = command(&loaded, path);
    let trainer = &loaded.experiment.trainer;
    let found = Found {
        format: Format::Verl,
        path: metrics_file(path),
        run: String::new(),
        name: trainer.experiment_name.clone(),
        project: trainer.project_name.clone(),
        started_s: None,
    };
    let started = EventKind::RunStarted {
        experiment_name: trainer.experiment_name.clone(),
        mode: "verl".to_owned(),
        // Of epochs verl knows the number of steps only when it has read its data.
        total_steps: trainer.total_training_steps.unwrap_or(0),
        parameters: 0,
        pid: std::process::id(),
        host: host_name(),
        seed: trainer.seed,
    };
    // Ours before verl's: what comes in between is for us.
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| told(&error))?;
    let log_path = run_dir.log_path();
    let mut projection =
        Projection::within(run_dir, found, started).map_err(|error| told(&error))?;
    for left_out in &command.not_sent {
        let text = format!("{} is not sent to verl: {}", left_out.key, left_out.why);
        projection.note(&text).map_err(|error| told(&error))?;
    }
    take_in_orphans();
    // Told here too: on another machine nobody has asked before.
    let spawned = command.can_start().and_then(|()| {
        spawn(&command, &log_path)
            .map_err(|error| format!("cannot start {}: {error}", command.python))
    });
    let mut child = match spawned {
        Ok(child) => child,
        Err(reason) => {
            end(
                &mut projection,
                RunStatus::Failed,
                exit_code::INPUT,
                &reason,
            )?;
            return Err(reason);
        }
    };
    let watched = watch(&mut child, &mut projection, &mut signals);
    // None is left unless the leash itself was killed.
    kill_descendants(Duration::ZERO);
    let (status, is_asked) = watched?;
    let (run_status, code, reason) = ending(status, is_asked, &log_path);
    end(&mut projection, run_status, code, &reason)?;
    Ok(code)
}

fn spawn(command: &VerlCommand, log_path: &Path) -> std::io::Result<Child> {
    let log = File::options().append(true).create(true).open(log_path)?;
    let mut leash = leashed(&command.process())?;
    leash
        .stdout(log.try_clone()?)
        .stderr(log)
        // What ends our group is not to end the leash before it has ended verl.
        .process_group(0);
    leash.spawn()
}

/// Until verl has ended; and whether somebody asked for that.
fn watch(
    child: &mut Child,
    projection: &mut Projection,
    signals: &mut Signals,
) -> Result<(ExitStatus, bool), String> {
    let leash = Pid::from_raw(child.id().cast_signed());
    let mut asked = 0;
    let mut kill_at: Option<Instant> = None;
    loop {
        // Asked first: what was written before the end is read below.
        let status = child
            .try_wait()
            .map_err(|error| format!("cannot wait for verl: {error}"))?;
        for signal in signals.pending() {
            asked += 1;
            let now = Instant::now();
            let hand_on = match signal {
                _ if asked > 1 => {
                    kill_at = Some(now);
                    continue;
                }
                SIGTERM => {
                    kill_at = Some(now + TERM_PATIENCE);
                    Signal::TERM
                }
                _ => Signal::INT,
            };
            if let Some(leash) = leash {
                // The only failure is that it has ended already.
                let _ = kill_process(leash, hand_on);
            }
        }
        if kill_at.is_some_and(|at| Instant::now() >= at) {
            // The line's end: the leash kills all that it holds.
            drop(child.stdin.take());
        }
        match projection.advance(status.is_some()) {
            Ok(progress) if progress.has_more => continue,
            Ok(_) => {}
            Err(error) => {
                // A full disk passes; a run of hours does not end for it.
                let _ = projection.note(&error.to_string());
            }
        }
        if let Some(status) = status {
            return Ok((status, asked > 0));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn ending(status: ExitStatus, is_asked: bool, log_path: &Path) -> (RunStatus, i32, String) {
    if is_asked {
        let reason =
            "stopped on request; verl's newest checkpoint is what it saved before".to_owned();
        return (RunStatus::Stopped, exit_code::STOPPED, reason);
    }
    if status.success() {
        return (
            RunStatus::Completed,
            exit_code::OK,
            "verl ended with exit code 0".to_owned(),
        );
    }
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("verl ended with exit code {code}"),
        (_, Some(9)) => {
            "verl was killed (SIGKILL); when nobody did that, the machine ran out of memory"
                .to_owned()
        }
        (_, Some(signal)) => format!("verl was ended by signal {signal}"),
        (None, None) => "verl ended".to_owned(),
    };
    // The last line of a traceback names the error.
    let last = last_lines(log_path, 1)
        .ok()
        .and_then(|mut lines| lines.pop());
    let reason = match last {
        Some(line) if !line.trim().is_empty() => format!("{how}: {}", line.trim()),
        _ => how,
    };
    (RunStatus::Failed, exit_code::RUN_FAILED, reason)
}

fn end(
    projection: &mut Projection,
    status: RunStatus,
    exit_code: i32,
    reason: &str,
) -> Result<(), String> {
    projection
        .end(status, exit_code, reason)
        .map_err(|error| error.to_string())
}
