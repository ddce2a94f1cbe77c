//! `lathe runs`: every run in one table, and one run in full; `lathe stop`.

use std::ffi::OsStr;
use std::time::SystemTime;

use jiff::Timestamp;
use runlog::control::{Answer, Client, Command};
use runlog::exit_code;
use runlog::number::Values;
use runlog::run_dir::{self, RunDir, host_name};
use runlog::state::{Evaluation, Glance, Liveness, glance, val_reward};
use serde_json::json;

use super::arguments::{RunsArguments, RunsCommand, RunsPlace};
use super::run::root;
use super::{Failure, Output, plain, report};
use crate::headless::format;
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
        None if terminal.plain && !arguments.json => plain::runs(&arguments.place, out, terminal),
        None => list(&arguments.place, arguments.json, out, terminal),
    }
}

/// The run that a RUN argument names.
pub fn find(place: &RunsPlace, run: &OsStr) -> Result<RunDir, Failure> {
    match run.to_str() {
        Some(text) => Ok(run_dir::resolve(&root(place), text)?),
        // Names and ids are plain text, so anything else can only be a path.
        None => Ok(RunDir::open(run.as_ref())?),
    }
}

fn list(
    place: &RunsPlace,
    json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let root = root(place);
    let (runs, unreadable) = run_dir::list(&root)?;
    let now = SystemTime::now();
    let mut rows = Vec::new();
    for run in &runs {
        match glance(run, now) {
            Ok(glance) if json => out.json(&json_row(run, &glance))?,
            Ok(glance) => rows.push(Row::new(run, &glance)),
            Err(error) => eprintln!(
                "{} {}: {error}",
                terminal.paint(Role::Caution, "warning:"),
                run.events_path().display()
            ),
        }
    }
    for error in unreadable {
        eprintln!("{} {error}", terminal.paint(Role::Caution, "warning:"));
    }
    if !json {
        if rows.is_empty() {
            eprintln!(
                "no runs in {} yet; start one: lathe run EXPERIMENT",
                root.display()
            );
        }
        print_table(&rows, out, terminal)?;
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
        "exit_code": glance.end.as_ref().map(|(_, code, _)| code),
        "mode": glance.mode,
        "step": glance.step,
        "total_steps": glance.total_steps,
        "elapsed_s": glance.elapsed_ms / 1e3,
        "reward": reward(&glance.last),
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

#[derive(Debug)]
struct Row {
    status: &'static str,
    role: Role,
    steps: String,
    age: String,
    reward: String,
    name: String,
    reason: Option<String>,
}

impl Row {
    fn new(run: &RunDir, glance: &Glance) -> Self {
        let age = Timestamp::now().duration_since(run.info().started_at);
        Self {
            status: glance.word(),
            role: match glance.liveness {
                Liveness::Running if glance.is_paused => Role::Caution,
                Liveness::Running => Role::Strong,
                Liveness::Finished => Role::Good,
                Liveness::Stopped => Role::Caution,
                Liveness::Failed { .. } | Liveness::PresumedDead { .. } => Role::Bad,
            },
            steps: format!("{}/{}", glance.step, glance.total_steps),
            age: format::age(age.unsigned_abs()),
            reward: reward(&glance.last)
                .map_or_else(|| "-".to_owned(), |reward| format::number(reward.0)),
            name: run.name().to_owned(),
            reason: glance.liveness.reason().map(str::to_owned),
        }
    }
}

fn print_table(rows: &[Row], out: &mut Output, terminal: Terminal) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let steps = rows
        .iter()
        .map(|row| row.steps.len())
        .max()
        .unwrap_or(0)
        .max(5);
    let header = format!(
        "{:9}  {:>steps$}  {:>4}  {:>8}  RUN",
        "STATUS", "STEPS", "AGE", "REWARD"
    );
    out.line(&terminal.paint(Role::Muted, &header))?;
    for row in rows {
        let status = terminal.paint(row.role, &format!("{:9}", row.status));
        out.line(&format!(
            "{status}  {:>steps$}  {:>4}  {:>8}  {}",
            row.steps, row.age, row.reward, row.name
        ))?;
        if let Some(reason) = &row.reason {
            out.line(&format!("{:11}{}", "", terminal.paint(Role::Muted, reason)))?;
        }
    }
    Ok(())
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
        Liveness::PresumedDead { reason } => {
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
