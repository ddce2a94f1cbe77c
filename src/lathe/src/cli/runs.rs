//! `lathe runs`: every run in one table, and one run in full; `lathe stop`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use runlog::control::{Answer, Client, Command};
use runlog::exit_code;
use runlog::number::Values;
use runlog::run_dir::{self, Origin, RunDir, RunDirError, host_name};
use runlog::run_list::{Entry, RunList};
use runlog::state::{Evaluation, Glance, Liveness, glance, val_reward};
use serde_json::json;

use super::arguments::{RunsArguments, RunsCommand, RunsPlace};
use super::run::root;
use super::{Failure, Output, elsewhere, import, plain, report};
use crate::launch::{self, Censuses};
use crate::terminal::{Role, Terminal};

/// How long `lathe runs --targets` waits for targets that were not spoken to lately: connecting through a jump host takes seconds.
const TARGETS_PATIENCE: Duration = Duration::from_secs(12);

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
        None => list(
            &arguments.place,
            arguments.targets,
            arguments.json,
            out,
            terminal,
        ),
    }
}

/// Every run, as a table or as JSON lines.
pub fn list(
    place: &RunsPlace,
    asks_targets: bool,
    json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let root = root(place);
    let listed = Listed::look(&root, asks_targets);
    for reason in &listed.complaints {
        eprintln!(
            "{} {reason}",
            terminal.paint_stderr(Role::Caution, "warning:")
        );
    }
    if json {
        list_json(&root, &listed, out, terminal)
    } else {
        plain::runs(&root, &listed, out, terminal)
    }
}

/// The run that a RUN argument names. One of another tracker is read into the user's cache, as far as it goes now.
pub fn find(place: &RunsPlace, run: &OsStr) -> Result<RunDir, Failure> {
    if let Some(sources) = import::named(place, run) {
        return import::newest(&sources);
    }
    match run.to_str() {
        Some(text) => {
            let found = run_dir::resolve(&root(place), text);
            // One that was begun elsewhere and is only listed.
            let is_elsewhere = matches!(
                found,
                Err(RunDirError::NotFound { .. } | RunDirError::NoRuns { .. })
            ) && text != "latest";
            if is_elsewhere {
                let roots = launch::census_roots();
                let listed = roots
                    .iter()
                    .find_map(|root| run_dir::resolve(root, text).ok());
                if let Some(listed) = listed {
                    return Ok(listed);
                }
            }
            Ok(found?)
        }
        // Names and ids are plain text, so anything else can only be a path.
        None => Ok(RunDir::open(run.as_ref())?),
    }
}

/// All runs that are listed, and what ought to be and is not.
pub struct Listed {
    list: RunList,
    census_roots: Vec<PathBuf>,
    complaints: Vec<String>,
}

impl Listed {
    /// Brings the copies up to date first, and with `asks_targets` what is known of all other runs on targets.
    fn look(root: &Path, asks_targets: bool) -> Self {
        let mut censuses = Censuses::default();
        if asks_targets {
            censuses.ask();
        }
        // What cannot be listed is told by the list.
        if let Ok((runs, _)) = run_dir::list(root) {
            elsewhere::refresh(&runs);
        }
        let mut complaints = Vec::new();
        for name in censuses.wait_for_news(TARGETS_PATIENCE) {
            let seconds = TARGETS_PATIENCE.as_secs();
            complaints.push(format!(
                "{name} has not answered within {seconds} s; its runs are shown as they were last heard of"
            ));
        }
        complaints.extend(censuses.problems());
        let census_roots = censuses.roots();
        let roots = std::iter::once(root.to_owned()).chain(census_roots.iter().cloned());
        let mut list = RunList::new(roots);
        list.refresh(SystemTime::now());
        complaints.extend(
            list.unreadable()
                .iter()
                .map(|unreadable| format!("{}: {}", unreadable.path.display(), unreadable.reason)),
        );
        Self {
            list,
            census_roots,
            complaints,
        }
    }

    /// Newest first.
    pub fn entries(&self) -> Vec<&Entry> {
        launch::without_doubles(self.list.entries(), &self.census_roots)
    }
}

fn list_json(
    root: &Path,
    listed: &Listed,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    for entry in listed.entries() {
        if let Some(problem) = &entry.problem {
            eprintln!(
                "{} {problem}",
                terminal.paint_stderr(Role::Caution, "warning:")
            );
        }
        out.json(&json_row(&entry.run_dir, &entry.glance))?;
    }
    for found in import::not_imported(root) {
        out.json(&json!({
            "run": null, "experiment_name": found.name, "status": "not imported",
            "origin": {"kind": "foreign", "format": found.format.name(), "path": found.place()},
        }))?;
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
        "disconnected": (glance.liveness == Liveness::Running).then(|| elsewhere::cut(run)).flatten(),
        "trouble": elsewhere::trouble(run, &glance.liveness),
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
        launch::interrupt(info.pid).map_err(|error| {
            Failure::unexpected(format!("cannot signal process {}: {error}", info.pid))
        })?;
    }
    out.line(&format!(
        "{} stops after this step, saving a checkpoint; watch it: lathe follow {}",
        run_dir.name(),
        info.id
    ))?;
    waits_for_room(&run_dir, out)?;
    Ok(exit_code::OK)
}

/// Of a run that was told to stop and whose disk has no room for its last checkpoint.
pub(super) fn waits_for_room(run_dir: &RunDir, out: &mut Output) -> Result<(), Failure> {
    match elsewhere::trouble(run_dir, &Liveness::Running) {
        Some(words) => Ok(out.line(&format!(
            "{words}; the last checkpoint waits up to ten minutes for it"
        ))?),
        None => Ok(()),
    }
}
