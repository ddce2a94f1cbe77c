//! `lathe run --resume RUN`: a run that ended goes on in its own directory, from its newest whole checkpoint.

use std::ffi::OsStr;

use remote::near::launch::ResumeError;
use remote::near::pull::PullError;
use remote::wire::NotResumed;
use remote::{Link, LinkError};
use runlog::exit_code;
use runlog::run_dir::{Origin, RunDir, write_renamed};

use super::arguments::RunArguments;
use super::{Failure, Output, elsewhere, experiment_file, report, run, runs};
use crate::headless::{End, Follow};
use crate::launch::{self, Ending, Job, ResumeElsewhereError, Signs};
use crate::terminal::Terminal;

/// Starts the trainer on the run's directory again and follows it to its end.
pub fn run(
    resumed: &OsStr,
    arguments: &RunArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let run_dir = runs::find(&arguments.place, resumed)?;
    if arguments.on.is_some() {
        return Err(Failure::usage(format!(
            "{} goes on where it is: leave out --on; a new run elsewhere from its checkpoint is lathe run EXPERIMENT --from {} --on TARGET",
            run_dir.name(),
            run_dir.info().id
        )));
    }
    let is_elsewhere = run_dir.origin().and_then(Origin::target).is_some();
    if !is_elsewhere {
        // Of one elsewhere that machine decides.
        launch::can_go_on(&run_dir)?;
    }
    let overrides: Vec<String> = arguments
        .experiment
        .iter()
        .map(|first| first.to_string_lossy().into_owned())
        .chain(arguments.overrides.iter().cloned())
        .collect();
    if let Some(file) = overrides.iter().find(|text| !is_override(text)) {
        return Err(Failure::usage(format!(
            "{file} is no override; --resume goes on with the run's own experiment, {}",
            run_dir.experiment_path().display()
        )));
    }
    if is_elsewhere {
        return run_elsewhere(&run_dir, &overrides, arguments, out, terminal);
    }
    let loaded = experiment_file::load_for_run(&run_dir.experiment_path(), &overrides, terminal)?;
    launch::refuse_verl(&run_dir, &loaded.experiment)?;
    let given = keys(&overrides)?;
    let program = launch::find_trainer().map_err(|error| Failure::input(error.to_string()))?;
    if !overrides.is_empty() {
        // What the run uses from here on; the trainer reads nothing else.
        write_renamed(&run_dir.experiment_path(), loaded.resolved.as_bytes())?;
    }
    let unread = |error| Failure::unexpected(format!("cannot follow the run: {error}"));
    // Before the trainer starts, so that what it writes is new.
    let start = || {
        let (verb, log) = (Job::Run.verb(), run_dir.log_path());
        let trainer = launch::Trainer::start(&program, verb, run_dir.path(), &log, &given);
        trainer.map_err(|error| {
            Failure::unexpected(format!("cannot start {}: {error}", program.display()))
        })
    };
    if arguments.detach {
        let log = runlog::open::open(&run_dir).map_err(unread)?.tail;
        return run::detach(
            &run_dir,
            (log, Signs::Ours),
            start()?,
            arguments.form.json,
            (out, terminal),
        );
    }
    let follow = Follow::after(&run_dir).map_err(unread)?;
    let mut trainer = start()?;
    let rollouts = Some(experiment_file::rollouts_per_step(&loaded.experiment));
    let followed = run::watch(&run_dir, arguments.form, rollouts, out, terminal, |view| {
        follow.trainer(&mut trainer, view)
    })?;
    if let End::Died(ending) = &followed.end
        && let Some(failure) = nothing_left(ending)
    {
        return Err(failure);
    }
    report::print(&run_dir, &followed, arguments.form.json, out, terminal)
}

/// Has the machine that the run is on go on with it there, and follows the copy.
fn run_elsewhere(
    run_dir: &RunDir,
    overrides: &[String],
    arguments: &RunArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let name = run_dir.origin().and_then(Origin::target).unwrap_or("?");
    let target = elsewhere::target(name, terminal)?;
    let mut link = Link::open(&target)?;
    launch::bring_up_to_date(run_dir, &target, &mut link)?;
    // Tells the complaints.
    let loaded = experiment_file::load_for_run(&run_dir.experiment_path(), overrides, terminal)?;
    let edited = launch::edit(run_dir, &loaded, keys(overrides)?)?;
    let unread = |error| Failure::unexpected(format!("cannot follow the run: {error}"));
    // Before it goes on, so that what comes is new.
    let follow = Follow::after(run_dir).map_err(unread)?;
    launch::resume_elsewhere(run_dir, &target, &mut link, edited)?;
    drop(link);
    let keeper = elsewhere::keep(run_dir)?;
    if arguments.detach {
        return elsewhere::detach(run_dir, &target, arguments.form.json, out);
    }
    let rollouts = Some(experiment_file::rollouts_per_step(&loaded.experiment));
    let followed = run::watch(run_dir, arguments.form, rollouts, out, terminal, |view| {
        follow.resumed(run_dir, view)
    })?;
    elsewhere::finish(
        run_dir,
        keeper,
        &followed,
        arguments.form.json,
        out,
        terminal,
    )
}

/// Of a run of this machine, before anything is started.
impl From<launch::ResumeError> for Failure {
    fn from(error: launch::ResumeError) -> Self {
        use launch::ResumeError as Error;
        let code = match error {
            Error::Elsewhere(error) => return error.into(),
            Error::Running { .. } | Error::WarmUp { .. } => exit_code::BUSY,
            Error::OfVerl { .. } | Error::Foreign { .. } | Error::Target(_) => exit_code::USAGE,
            Error::NothingLeft { .. } => exit_code::NOTHING_LEFT,
            Error::Log { .. } => exit_code::UNEXPECTED,
            Error::Link(_) => exit_code::UNREACHABLE,
            Error::Start(_) => exit_code::INPUT,
        };
        Self::told(code, error.to_string())
    }
}

impl From<ResumeElsewhereError> for Failure {
    fn from(error: ResumeElsewhereError) -> Self {
        let code = match &error {
            ResumeElsewhereError::Resume(ResumeError::Refused { why, .. }) => match why {
                NotResumed::Busy => exit_code::BUSY,
                NotResumed::NothingLeft => exit_code::NOTHING_LEFT,
                NotResumed::Unfit => exit_code::INPUT,
            },
            ResumeElsewhereError::Resume(ResumeError::Link(LinkError::Refused { .. }))
            | ResumeElsewhereError::Pull(PullError::Link(LinkError::Refused { .. })) => {
                exit_code::INPUT
            }
            ResumeElsewhereError::Resume(ResumeError::Link(_))
            | ResumeElsewhereError::Pull(PullError::Link(_))
            | ResumeElsewhereError::Behind { .. } => exit_code::UNREACHABLE,
            ResumeElsewhereError::Files { .. } => exit_code::USAGE,
            ResumeElsewhereError::Pull(_)
            | ResumeElsewhereError::RunDir(_)
            | ResumeElsewhereError::Experiment { .. } => exit_code::INPUT,
        };
        Self::told(code, error.to_string())
    }
}

/// The run is as it was: its last line says what is trained, and what to give for more.
pub(super) fn nothing_left(ending: &Ending) -> Option<Failure> {
    let said = launch::nothing_left(ending)?;
    Some(Failure::told(exit_code::NOTHING_LEFT, said))
}

/// The keys that overrides give, in full.
fn keys(overrides: &[String]) -> Result<Vec<String>, Failure> {
    overrides
        .iter()
        .map(|text| {
            let parsed = experiment::overrides::parse(text)
                .map_err(|error| Failure::usage(format!("{text}: {error}")))?;
            Ok(experiment::keys::canonical(&parsed.path.join(".")).path)
        })
        .collect()
}

/// `a.b=v`, `+a.b=v` or `~a.b`.
fn is_override(text: &str) -> bool {
    text.contains('=') || text.starts_with('~')
}
