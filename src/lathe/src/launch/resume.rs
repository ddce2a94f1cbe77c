//! A run that is over goes on in its own directory and by itself, wherever that is: page Runs, and what `lathe run --resume` refuses.

use std::time::SystemTime;

use experiment::Experiment;
use remote::near::launch::ResumeError as NotResumed;
use remote::targets::TargetError;
use remote::{Link, LinkError};
use runlog::exit_code;
use runlog::run_dir::{Origin, RunDir};
use runlog::state::{Liveness, glance};

use super::find::TrainerNotFound;
use super::start::inspected;
use super::{
    Ending, Job, ResumeElsewhereError, Signs, StartError, Trainer, bring_up_to_date, edit,
    find_trainer, first_sign, resume_elsewhere, targets,
};

#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error("{run} is running (process {pid} on {host}); watch it: lathe follow {id}")]
    Running {
        run: String,
        id: String,
        pid: u32,
        host: String,
    },
    #[error(
        "{run} is a run of verl, which goes on by itself: start it again with trainer.default_local_dir={folder} and \
         trainer.resume_mode=auto"
    )]
    OfVerl { run: String, folder: String },
    #[error("{run} is a run of another program ({format}), which alone can have it go on")]
    Foreign { run: String, format: String },
    #[error("{run} is a warm-up, which does not go on from where it was; start it anew")]
    WarmUp { run: String },
    /// The run is as it was.
    #[error("{said}")]
    NothingLeft { said: String },
    #[error("cannot read {file}: {source}")]
    Log {
        file: String,
        source: std::io::Error,
    },
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Elsewhere(#[from] ResumeElsewhereError),
}

impl ResumeError {
    /// The error, and the end of the trainer's log where that says more.
    pub fn in_full(&self) -> String {
        match self {
            Self::Start(error) => error.in_full(),
            other => other.to_string(),
        }
    }
}

impl From<TrainerNotFound> for ResumeError {
    fn from(error: TrainerNotFound) -> Self {
        StartError::from(error).into()
    }
}

impl From<NotResumed> for ResumeError {
    fn from(error: NotResumed) -> Self {
        ResumeElsewhereError::from(error).into()
    }
}

/// Has a run go on, with its experiment as it is, from its newest whole checkpoint. Waits for its first sign of life where it is of
/// this machine, and for the word of the other machine where it is of that.
pub fn resume(run_dir: &RunDir) -> Result<(), ResumeError> {
    match run_dir.origin() {
        Some(Origin::Target { target, .. }) => {
            let target = targets().find(target)?;
            let mut link = Link::open(&target)?;
            bring_up_to_date(run_dir, &target, &mut link)?;
            let loaded = inspected(&run_dir.experiment_path(), &[])?;
            let unchanged = edit(run_dir, &loaded, Vec::new())?;
            Ok(resume_elsewhere(run_dir, &target, &mut link, unchanged)?)
        }
        _ => resume_here(run_dir),
    }
}

fn resume_here(run_dir: &RunDir) -> Result<(), ResumeError> {
    can_go_on(run_dir)?;
    let loaded = inspected(&run_dir.experiment_path(), &[])?;
    refuse_verl(run_dir, &loaded.experiment)?;
    let program = find_trainer()?;
    // Before the trainer starts, so that what it writes is new.
    let log = runlog::open::open(run_dir).map_err(unread(run_dir))?.tail;
    let log_path = run_dir.log_path();
    let started = Trainer::start(&program, Job::Run.verb(), run_dir.path(), &log_path, &[]);
    let mut trainer = started.map_err(|source| StartError::Spawn { program, source })?;
    match first_sign(log, &mut trainer, Signs::Ours) {
        Ok(_) => {
            trainer.leave();
            Ok(())
        }
        Err(StartError::Ended { ending }) => Err(match nothing_left(&ending) {
            Some(said) => ResumeError::NothingLeft { said },
            None => StartError::Ended { ending }.into(),
        }),
        Err(error) => Err(error.into()),
    }
}

fn unread(run_dir: &RunDir) -> impl Fn(std::io::Error) -> ResumeError {
    let file = run_dir.events_path().display().to_string();
    move |source| ResumeError::Log {
        file: file.clone(),
        source,
    }
}

/// `Err`: its process lives, or it is none that goes on.
pub fn can_go_on(run_dir: &RunDir) -> Result<(), ResumeError> {
    let run = run_dir.name().to_owned();
    if let Some(Origin::Foreign { format, .. }) = run_dir.origin() {
        let format = format.clone();
        return Err(ResumeError::Foreign { run, format });
    }
    let glance = glance(run_dir, SystemTime::now()).map_err(unread(run_dir))?;
    let info = run_dir.info();
    if glance.liveness == Liveness::Running {
        return Err(ResumeError::Running {
            run,
            id: info.id.clone(),
            pid: info.pid,
            host: info.host.clone(),
        });
    }
    if matches!(glance.mode.as_str(), "sft" | "reward") {
        return Err(ResumeError::WarmUp { run });
    }
    Ok(())
}

/// `Err`: verl trains it, by its own rules.
pub fn refuse_verl(run_dir: &RunDir, experiment: &Experiment) -> Result<(), ResumeError> {
    if !experiment::verl::is_asked_for(experiment) {
        return Ok(());
    }
    Err(ResumeError::OfVerl {
        run: run_dir.name().to_owned(),
        folder: run_dir
            .path()
            .join("verl-checkpoints")
            .display()
            .to_string(),
    })
}

/// What the trainer said when nothing was left to train: what is trained, and what to give for more. The run is as it was.
pub fn nothing_left(ending: &Ending) -> Option<String> {
    if ending.code != Some(exit_code::NOTHING_LEFT) {
        return None;
    }
    let said = ending
        .log_lines
        .last()
        .map_or("nothing is left to train", |line| {
            line.trim_start_matches("lathe-trainer: ")
        });
    Some(said.to_owned())
}
