//! `lathe run`, `lathe sft`, `lathe follow`: start a run and watch it, or watch one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use experiment::Loaded;
use runlog::exit_code;
use runlog::run_dir::{self, NewRun, RunDir, git_state};
use runlog::state::RunState;
use serde_json::json;

use super::arguments::{Form, RunArguments, RunsPlace};
use super::check::finding_line;
use super::experiment_file;
use super::{Failure, Output, report, runs};
use crate::check;
use crate::headless::{Follow, Followed, JsonView, PlainView, ProgressView, View};
use crate::launch::{self, Ending, Job, Trainer};
use crate::terminal::Terminal;

/// How long `--detach` waits for the first sign of life: loading libtorch and a model takes seconds, a cold disk more.
const FIRST_SIGN_PATIENCE: Duration = Duration::from_secs(120);

/// Starts an experiment and follows it to its end.
pub fn run(
    job: Job,
    arguments: &RunArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let result = start_and_follow(job, arguments, out, terminal);
    if let Err(Failure::Told { exit_code, message }) = &result
        && arguments.form.json
    {
        // A program that reads the last line gets one whatever happens.
        out.json(&json!({
            "event": "summary", "status": "refused", "exit_code": exit_code, "error": message,
            "run_dir": null, "summary": null,
        }))?;
    }
    result
}

fn start_and_follow(
    job: Job,
    arguments: &RunArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let mut overrides = arguments.overrides.clone();
    if let Some(name) = &arguments.name {
        overrides.push(experiment_file::name_override(name));
    }
    let mut loaded = experiment_file::load_for_run(&arguments.experiment, &overrides, terminal)?;
    // The trainer reads a copy in the run's directory, where names and neighbours of this file are lost.
    let name = &loaded.experiment.trainer.experiment_name;
    overrides.push(experiment_file::name_override(name));
    overrides.extend(check::beside_overrides(
        &loaded.experiment,
        &arguments.experiment,
    ));
    // Its complaints have been told.
    loaded = experiment::inspect(&arguments.experiment, &overrides);
    refuse_missing_inputs(job, &loaded, &arguments.experiment, terminal)?;
    let program = launch::find_trainer().map_err(|error| Failure::input(error.to_string()))?;
    let run_dir = create(&arguments.place, &loaded)?;
    // Before the trainer starts, so that a Ctrl-C in between is ours and not lost.
    let follow = Follow::new(&run_dir.events_path())
        .map_err(|error| Failure::unexpected(format!("cannot take over signals: {error}")))?;
    let mut trainer =
        Trainer::start(&program, job, run_dir.path(), &run_dir.log_path()).map_err(|error| {
            Failure::unexpected(format!("cannot start {}: {error}", program.display()))
        })?;
    if arguments.detach {
        return detach(&run_dir, &mut trainer, arguments.form.json, out);
    }
    let rollouts =
        (job == Job::Run).then(|| experiment_file::rollouts_per_step(&loaded.experiment));
    let followed = watch(&run_dir, arguments.form, rollouts, out, terminal, |view| {
        follow.trainer(&mut trainer, view)
    })?;
    report::print(&run_dir, &followed, arguments.form.json, out, terminal)
}

/// Says what is not there before a run directory is made and libtorch is loaded.
fn refuse_missing_inputs(
    job: Job,
    loaded: &Loaded,
    file: &Path,
    terminal: Terminal,
) -> Result<(), Failure> {
    let findings = check::missing_inputs(&loaded.experiment, file, job);
    let Some((last, others)) = findings.split_last() else {
        return Ok(());
    };
    for finding in others {
        eprintln!(
            "{}",
            finding_line(finding, |role, text| terminal.paint_stderr(role, text))
        );
    }
    Err(Failure::input(format!("{}: {}", last.area, last.message)))
}

fn create(place: &RunsPlace, loaded: &Loaded) -> Result<RunDir, Failure> {
    let root = root(place);
    let versions = [("lathe".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    let new = NewRun {
        project_name: loaded.experiment.trainer.project_name.clone(),
        experiment_name: loaded.experiment.trainer.experiment_name.clone(),
        seed: loaded.experiment.trainer.seed,
        parent: None,
        git: git_state(Path::new(".")),
        versions: versions.into(),
        command: std::env::args_os()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect(),
        experiment_yaml: loaded.resolved.clone(),
    };
    Ok(RunDir::create(&root, &new)?)
}

/// The runs directory that the options and the environment name.
pub fn root(place: &RunsPlace) -> PathBuf {
    run_dir::root(
        place.runs.as_deref(),
        std::env::var_os(run_dir::ROOT_VARIABLE).as_deref(),
    )
}

/// Follows with the view that fits the form and the terminal.
fn watch(
    run_dir: &RunDir,
    form: Form,
    rollouts_per_step: Option<u64>,
    out: &mut Output,
    terminal: Terminal,
    follow: impl FnOnce(&mut dyn View) -> Result<Followed, Failure>,
) -> Result<Followed, Failure> {
    let result = if form.json {
        follow(&mut JsonView::new(out))
    } else if form.verbose || !terminal.is_interactive() {
        eprintln!("run {}", run_dir.path().display());
        follow(&mut PlainView::new(out, form.verbose))
    } else {
        follow(&mut ProgressView::new(terminal, rollouts_per_step))
    };
    if matches!(result, Err(Failure::ReaderLeft)) {
        report::goes_on(run_dir);
    }
    result
}

/// Waits until the run shows that it lives, or that it does not.
fn detach(
    run_dir: &RunDir,
    trainer: &mut Trainer,
    json: bool,
    out: &mut Output,
) -> Result<i32, Failure> {
    let patience = Instant::now() + FIRST_SIGN_PATIENCE;
    let mut tail = runlog::tail::Tail::new(run_dir.events_path());
    let mut state = RunState::default();
    let ending: Option<Ending> = loop {
        let ending = trainer.ending().map_err(|error| {
            Failure::unexpected(format!("cannot wait for the trainer: {error}"))
        })?;
        let batch = tail
            .wait(runlog::tail::Limits::LIVE, Duration::from_millis(100))
            .map_err(|error| {
                Failure::unexpected(format!("cannot read the run's events: {error}"))
            })?;
        batch.events.iter().for_each(|event| state.apply(event));
        if ending.is_some() || state.started.is_some() || Instant::now() >= patience {
            break ending;
        }
    };
    if let Some(ending) = ending
        && state.ended.is_none()
    {
        let message = format!(
            "{}\n{}",
            ending.explanation(),
            report::log_excerpt(run_dir, &ending)
        );
        return Err(Failure::told(ending.exit_code(), message));
    }
    if json {
        out.json(&json!({
            "event": "detached", "run": run_dir.name(), "run_dir": report::absolute(run_dir.path()),
            "pid": trainer.pid(), "is_started": state.started.is_some(),
        }))?;
        return Ok(exit_code::OK);
    }
    out.line(&format!(
        "run {} (process {})",
        run_dir.path().display(),
        trainer.pid()
    ))?;
    if state.started.is_none() {
        out.line("it is still loading")?;
    }
    let id = &run_dir.info().id;
    out.line(&format!(
        "watch it: lathe follow {id}    stop it: lathe stop {id}"
    ))?;
    Ok(exit_code::OK)
}

/// `lathe follow RUN`
pub fn follow(
    run: &OsStr,
    place: &RunsPlace,
    form: Form,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let run_dir = runs::find(place, run)?;
    let follow = Follow::new(&run_dir.events_path())
        .map_err(|error| Failure::unexpected(format!("cannot take over signals: {error}")))?;
    let rollouts = experiment_file::rollouts_per_step_of_run(&run_dir);
    let followed = watch(&run_dir, form, rollouts, out, terminal, |view| {
        follow.other(&run_dir, view)
    })?;
    report::print(&run_dir, &followed, form.json, out, terminal)
}
