//! `lathe runs`: every run in one table, and one run in full; `lathe stop`.

use std::ffi::OsStr;
use std::time::SystemTime;

use runlog::control::{Answer, Client, Command};
use runlog::exit_code;
use runlog::number::Values;
use runlog::run_dir::{self, Origin, RunDir, host_name};
use runlog::state::{Evaluation, Glance, Liveness, glance, val_reward};
use serde_json::json;

use super::arguments::{RunsArguments, RunsCommand, RunsPlace};
use super::run::root;
use super::{Failure, Output, elsewhere, import, plain, report};
use crate::terminal::{Role, Terminal};

pub fn runs(
    arguments: &RunsArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    match &arguments.command {
        Some(RunsCommand::Show { run, place, json }) => {
            let run_dir = find(place, run)?;
            report::show(&run_dir, *json, out, terminal)?;
            Ok(exit_code::OK)
        }
        None if arguments.json => list_json(&arguments.place, out, terminal),
        None => plain::runs(&arguments.place, out, terminal),
    }
}

/// The run that a RUN argument names. One of another tracker is read into the user's cache, as far as it goes now.
pub fn find(place: &RunsPlace, run: &OsStr) -> Result<RunDir, Failure> {
    if let Some(sources) = import::named(place, run) {
        return import::newest(&sources);
    }
    match run.to_str() {
        Some(text) => Ok(run_dir::resolve(&root(place), text)?),
        // Names and ids are plain text, so anything else can only be a path.
        None => Ok(RunDir::open(run.as_ref())?),
    }
}

fn list_json(place: &RunsPlace, out: &mut Output, terminal: Terminal) -> Result<i32, Failure> {
    let root = root(place);
    let (runs, _) = run_dir::list(&root)?;
    elsewhere::refresh(&runs);
    // What they say of their host and process may be news.
    let (runs, unreadable) = run_dir::list(&root)?;
    let now = SystemTime::now();
    let warn = |reason: &str| {
        eprintln!(
            "{} {reason}",
            terminal.paint_stderr(Role::Caution, "warning:")
        );
    };
    for run in &runs {
        match glance(run, now) {
            Ok(glance) => out.json(&json_row(run, &glance))?,
            Err(error) => warn(&format!("{}: {error}", run.events_path().display())),
        }
    }
    for found in import::not_imported(&root) {
        out.json(&json!({
            "run": null, "experiment_name": found.name, "status": "not imported",
            "origin": {"kind": "foreign", "format": found.format.name(), "path": found.place()},
        }))?;
    }
    for error in unreadable {
        warn(&error.to_string());
    }
    Ok(exit_code::OK)
}

fn json_row(run: &RunDir, glance: &Glance) -> serde_json::Value {
    let info = run.info();
    json!({
        "run": run.name(),
        "run_dir": report::absolute(run.path()),
        "id": info.id,
        "experiment_name": info.experiment_name,
        "started_at": info.started_at.to_string(),
        "host": info.host,
        "pid": info.pid,
        "status": glance.word(),
        "reason": glance.liveness.reason(),
        "waits": (glance.liveness == Liveness::Running).then(|| elsewhere::waits(run)).flatten(),
        "exit_code": glance.end.as_ref().map(|(_, code, _)| code),
        "mode": glance.mode,
        "step": glance.step,
        "total_steps": glance.total_steps,
        "elapsed_s": glance.elapsed_ms / 1e3,
        "reward": reward(&glance.last),
        "origin": info.origin,
    })
}

/// The newest reward in sight: on unseen dialogues, else on the training batch.
fn reward(last: &Values) -> Option<runlog::number::Number> {
    let evaluation = Evaluation {
        elapsed_ms: 0.0,
        step: 0,
        policy_version: 0,
        samples: 0,
        values: last.clone(),
    };
    val_reward(&evaluation)
        .map(Into::into)
        .or_else(|| last.get("critic/score/mean").copied())
}

/// `lathe stop RUN`: what Ctrl-C does, for a run that nobody holds.
pub fn stop(place: &RunsPlace, run: &OsStr, out: &mut Output) -> Result<i32, Failure> {
    let run_dir = find(place, run)?;
    let info = run_dir.info();
    let glance = glance(&run_dir, SystemTime::now()).map_err(|error| {
        Failure::unexpected(format!(
            "cannot read {}: {error}",
            run_dir.events_path().display()
        ))
    })?;
    match glance.liveness {
        Liveness::Running => {}
        Liveness::PresumedDead { reason } | Liveness::Silent { reason } => {
            return Err(Failure::usage(format!(
                "{} is not running: {reason}",
                run_dir.name()
            )));
        }
        other => {
            return Err(Failure::usage(format!(
                "{} has ended already ({})",
                run_dir.name(),
                other.word()
            )));
        }
    }
    if let Some(Origin::Target { .. }) = run_dir.origin() {
        return elsewhere::stop(&run_dir, out);
    }
    if info.host != host_name() {
        return Err(Failure::usage(format!(
            "{} runs on {}; stop it there: kill -INT {}",
            run_dir.name(),
            info.host,
            info.pid
        )));
    }
    // Over the socket first, so that the log says who; a run without one hears the signal.
    let asked = Client::connect(&run_dir, &Client::name("lathe stop"))
        .and_then(|mut client| client.ask(Command::Stop));
    if !matches!(asked, Ok((_, Answer::Accepted { .. }))) {
        crate::launch::interrupt(info.pid).map_err(|error| {
            Failure::unexpected(format!("cannot signal process {}: {error}", info.pid))
        })?;
    }
    out.line(&format!(
        "{} stops after this step, saving a checkpoint; watch it: lathe follow {}",
        run_dir.name(),
        info.id
    ))?;
    Ok(exit_code::OK)
}
