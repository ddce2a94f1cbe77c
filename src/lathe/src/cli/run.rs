//! `lathe run`, `lathe sft`, `lathe follow`: start a run and watch it, or watch one.

use std::ffi::OsStr;
use std::path::PathBuf;

use runlog::event::{EventKind, RunStatus};
use runlog::exit_code;
use runlog::recorder::{Options, Recorder};
use runlog::run_dir::{self, RunDir};
use runlog::tail::Tail;
use serde_json::json;

use super::arguments::{Form, RunArguments, RunsPlace};
use super::check::finding_line;
use super::experiment_file;
use super::{Failure, Output, checkpoints, elsewhere, import, report, resume, reward, runs};
use crate::headless::{End, Follow, Followed, JsonView, PlainView, ProgressView, View};
use crate::launch::{self, Job, Order, Signs, StartError, Trainer};
use crate::terminal::Terminal;

/// Starts an experiment and follows it to its end.
pub fn run(
    job: Job,
    arguments: &RunArguments,
    from: Option<&OsStr>,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    told(arguments.form.json, out, |out| {
        start_and_follow(job, arguments, from, out, terminal)
    })
}

/// Whoever reads JSON gets a last line whatever happens.
pub(super) fn told(
    is_json: bool,
    out: &mut Output,
    run: impl FnOnce(&mut Output) -> Result<i32, Failure>,
) -> Result<i32, Failure> {
    let result = run(out);
    if let Err(Failure::Told { exit_code, message }) = &result
        && is_json
    {
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
    from: Option<&OsStr>,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let experiment = arguments.experiment.clone().ok_or_else(|| {
        Failure::usage(
            "which experiment? give its YAML file (or, with `lathe run`, --resume RUN)".to_owned(),
        )
    })?;
    let mut given = arguments.overrides.clone();
    let mut parent = None;
    if let Some(from) = from {
        let (checkpoint, run) = checkpoints::named(&arguments.place, from)?;
        given.push("trainer.resume_mode=resume_path".to_owned());
        given.push(launch::text_override(
            "trainer.resume_from_path",
            &checkpoint.to_string_lossy(),
        ));
        parent = run;
    }
    let order = Order {
        job,
        experiment,
        overrides: given,
        name: arguments.name.clone(),
        runs_root: root(&arguments.place),
        target: arguments.on.clone(),
        parent,
        command: typed(),
    };
    if arguments.dry_run {
        return dry_run(order, out, terminal);
    }
    if let Some(name) = &arguments.on {
        let target = elsewhere::target(name, terminal)?;
        if arguments.sweep {
            return elsewhere::sweep(&order, &target, arguments.form.json, out, terminal);
        }
        if target.kind.is_elsewhere() {
            let is_detached = arguments.detach;
            return elsewhere::run_elsewhere(
                order,
                target,
                arguments.form,
                is_detached,
                out,
                terminal,
            );
        }
    }
    let say = |followed: &Followed, out: &mut Output| match job {
        Job::Reward => reward::table(&followed.state, out, terminal),
        Job::Run | Job::Sft => Ok(()),
    };
    carry_out(order, arguments.form, arguments.detach, say, out, terminal)
}

/// What would be started, told; `RUN` stands for the directory that would be made.
fn dry_run(order: Order, out: &mut Output, terminal: Terminal) -> Result<i32, Failure> {
    let run_dir = report::absolute(&order.runs_root);
    let run_dir = run_dir.join("RUN");
    let mut overrides = order.overrides.clone();
    overrides.extend(order.name.as_deref().map(launch::name_override));
    // Tells the complaints.
    experiment_file::load_for_run(&order.experiment, &overrides, terminal)?;
    if let Some(name) = &order.target {
        let target = elsewhere::target(name, terminal)?;
        if target.kind.is_elsewhere() {
            return elsewhere::dry_run(order, target, out, terminal);
        }
    }
    let prepared = launch::prepare(order).map_err(|error| refused(error, None, terminal))?;
    out.line(&prepared.words(&run_dir))?;
    Ok(exit_code::OK)
}

/// What was typed.
pub(super) fn typed() -> Vec<String> {
    std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect()
}

/// Starts what was ordered and follows it to its end. `say` comes before the report of people, of a run that was followed.
pub(super) fn carry_out(
    order: Order,
    form: Form,
    is_detached: bool,
    say: impl FnOnce(&Followed, &mut Output) -> Result<(), Failure>,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let job = order.job;
    let mut overrides = order.overrides.clone();
    overrides.extend(order.name.as_deref().map(launch::name_override));
    // Tells the complaints.
    experiment_file::load_for_run(&order.experiment, &overrides, terminal)?;
    let refused = |error| refused(error, None, terminal);
    let prepared = launch::prepare(order).map_err(refused)?;
    let run_dir = prepared.create().map_err(refused)?;
    // Before the trainer starts, so that a Ctrl-C in between is ours and not lost.
    let follow = Follow::new(&run_dir.events_path())
        .map_err(|error| Failure::unexpected(format!("cannot take over signals: {error}")))?;
    let mut trainer = prepared.start(&run_dir).map_err(refused)?;
    if is_detached {
        let log = Tail::new(run_dir.events_path());
        return detach(
            &run_dir,
            (log, Signs::All),
            trainer,
            form.json,
            (out, terminal),
        );
    }
    let rollouts =
        (job == Job::Run).then(|| experiment_file::rollouts_per_step(&prepared.loaded.experiment));
    let followed = watch(&run_dir, form, rollouts, out, terminal, |view| {
        follow.trainer(&mut trainer, view)
    })?;
    if let Some(reason) = followed.missing_end()
        && let Err(error) = record_end(&run_dir, reason, followed.state.step)
    {
        eprintln!("lathe: the end of the run is not in its log: {error}");
    }
    if let End::Died(ending) = &followed.end
        && followed.state.started.is_none()
        && followed.missing_end().is_none()
    {
        // It said nothing in its log: later readers find a failed start, not a run that may still come to life.
        let failed = EventKind::RunEnded {
            status: RunStatus::Failed,
            exit_code: ending.exit_code(),
            reason: format!("it did not start: {}", ending.explanation()),
            steps: 0,
        };
        // The reason is told below; that the log lacks it is no further failure.
        drop(record(&run_dir, failed));
    }
    if !form.json {
        say(&followed, out)?;
    }
    report::print(&run_dir, &followed, form.json, out, terminal)
}

/// Our child is gone by our own doing and could not write how: later readers must find a stopped run, not a dead one.
fn record_end(run_dir: &RunDir, reason: &str, steps: u64) -> Result<(), String> {
    let stopped = EventKind::RunEnded {
        status: RunStatus::Stopped,
        exit_code: exit_code::STOPPED,
        reason: reason.to_owned(),
        steps,
    };
    record(run_dir, stopped)
}

fn record(run_dir: &RunDir, kind: EventKind) -> Result<(), String> {
    let mut run_dir = RunDir::open(run_dir.path()).map_err(|error| error.to_string())?;
    let recorder =
        Recorder::start(&mut run_dir, Options::default()).map_err(|error| error.to_string())?;
    recorder.record(kind);
    recorder.close().map_err(|error| error.to_string())
}

/// A run that could not be started, as a failure; `run_dir`: where its log is, if it came so far.
pub(super) fn refused(error: StartError, run_dir: Option<&RunDir>, terminal: Terminal) -> Failure {
    match error {
        StartError::Experiment { .. } | StartError::OnlySupervised { .. } => {
            Failure::usage(error.to_string())
        }
        StartError::MissingInputs { findings } => {
            let (last, others) = findings.split_last().expect("it has at least one");
            for finding in others {
                eprintln!(
                    "{}",
                    finding_line(finding, |role, text| terminal.paint_stderr(role, text))
                );
            }
            Failure::input(format!("{}: {}", last.area, last.message))
        }
        StartError::NoTrainer(error) => Failure::input(error.to_string()),
        StartError::NoVerl { reason } => Failure::input(reason),
        StartError::RunDir(error) => error.into(),
        StartError::Ended { ending } => {
            if let Some(failure) = resume::nothing_left(&ending) {
                return failure;
            }
            let excerpt = run_dir
                .map(|run_dir| report::log_excerpt(run_dir, &ending))
                .unwrap_or_default();
            let message = format!("{}\n{excerpt}", ending.explanation());
            Failure::told(ending.exit_code(), message)
        }
        StartError::Spawn { .. } | StartError::Watch(_) => Failure::unexpected(error.to_string()),
    }
}

/// The runs directory that the options and the environment name.
pub fn root(place: &RunsPlace) -> PathBuf {
    run_dir::root(
        place.runs.as_deref(),
        std::env::var_os(run_dir::ROOT_VARIABLE).as_deref(),
    )
}

/// Follows with the view that fits the form and the terminal.
pub(super) fn watch(
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

/// Waits until the run shows in what is new in its log that it lives, or that it does not.
pub(super) fn detach(
    run_dir: &RunDir,
    (log, signs): (Tail, Signs),
    mut trainer: Trainer,
    json: bool,
    (out, terminal): (&mut Output, Terminal),
) -> Result<i32, Failure> {
    let is_started = launch::first_sign(log, &mut trainer, signs)
        .map_err(|error| refused(error, Some(run_dir), terminal))?;
    if json {
        out.json(&json!({
            "event": "detached", "run": run_dir.name(), "run_dir": report::absolute(run_dir.path()),
            "pid": trainer.pid(), "is_started": is_started,
        }))?;
        return Ok(exit_code::OK);
    }
    out.line(&format!(
        "run {} (process {})",
        run_dir.path().display(),
        trainer.pid()
    ))?;
    if !is_started {
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
    // Of another tracker's run: what it writes from here on.
    let _projecting = import::kept_up_to_date(&run_dir)?;
    let keeper = elsewhere::keep(&run_dir)?;
    let rollouts = experiment_file::rollouts_per_step_of_run(&run_dir);
    let followed = watch(&run_dir, form, rollouts, out, terminal, |view| {
        follow.other(&run_dir, view)
    })?;
    elsewhere::finish(&run_dir, keeper, &followed, form.json, out, terminal)
}
