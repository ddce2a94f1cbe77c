//! From an experiment to a run that lives: the one way for `lathe run`, `lathe sft` and the workbench.
//!
//! ```text
//!  Order ─► prepare (read, check, find the trainer) ─► create (run directory) ─► start (process) ─► first_sign
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use experiment::{Complaint, Experiment, Loaded, Severity};
use runlog::event::EventKind;
use runlog::run_dir::{NewRun, RunDir, RunDirError, git_state};
use runlog::state::RunState;
use runlog::tail::{Limits, Tail};

use super::find::TrainerNotFound;
use super::{Ending, Job, Trainer, find_trainer, verl};
use crate::check::{self, Finding};

/// How long the first sign of life may take: loading libtorch and a model takes seconds, a cold disk more.
pub const FIRST_SIGN_PATIENCE: Duration = Duration::from_secs(120);

/// What is to be started.
#[derive(Debug, Clone)]
pub struct Order {
    pub job: Job,
    /// The experiment's file.
    pub experiment: PathBuf,
    /// In Hydra's grammar.
    pub overrides: Vec<String>,
    /// Wins over the experiment's own name.
    pub name: Option<String>,
    /// Where the run's directory is made.
    pub runs_root: PathBuf,
    /// The machine it is for, as `--on` names it; None: this one.
    pub target: Option<String>,
    /// The id of the run that this one varies.
    pub parent: Option<String>,
    /// What a person would type to start it, for `run.json`.
    pub command: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{}", first_error(complaints))]
    Experiment { complaints: Vec<Complaint> },
    /// What it names is not there; at least one.
    #[error("{}", findings.first().map_or("", |finding| &finding.message))]
    MissingInputs { findings: Vec<Finding> },
    /// It has a warm-up and nothing to reinforce.
    #[error("{} names no data.train_files: it is a supervised warm-up; start it with `lathe sft {}`", file.display(), file.display())]
    OnlySupervised { file: PathBuf },
    #[error(transparent)]
    NoTrainer(#[from] TrainerNotFound),
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    #[error("cannot start {}: {source}", program.display())]
    Spawn { program: PathBuf, source: io::Error },
    #[error("{reason}")]
    NoVerl { reason: String },
    #[error("cannot watch the trainer: {0}")]
    Watch(io::Error),
    /// It ended before it showed a sign of life.
    #[error("{}", ending.explanation())]
    Ended { ending: Ending },
}

impl StartError {
    /// All that is known of it, in lines: every missing input, or the end of the trainer's log.
    pub fn in_full(&self) -> String {
        let lines: Vec<String> = match self {
            Self::MissingInputs { findings } => findings
                .iter()
                .map(|finding| format!("{}: {}", finding.area, finding.message))
                .collect(),
            Self::Ended { ending } => std::iter::once(ending.explanation())
                .chain(ending.log_lines.iter().cloned())
                .collect(),
            other => vec![other.to_string()],
        };
        lines.join("\n")
    }
}

fn first_error(complaints: &[Complaint]) -> String {
    complaints
        .iter()
        .find(|complaint| complaint.severity == Severity::Error)
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// An experiment that can run here, and the trainer for it.
#[derive(Debug)]
pub struct Prepared {
    /// With its name and with the full paths of files beside the experiment: what the run's copy says.
    pub loaded: Loaded,
    order: Order,
    program: PathBuf,
}

/// Reads and checks everything that can be checked before a directory is made. Complaints that are no errors are left to
/// the caller, who has asked [`experiment::inspect`].
pub fn prepare(order: Order) -> Result<Prepared, StartError> {
    let mut overrides = order.overrides.clone();
    if let Some(name) = &order.name {
        overrides.push(name_override(name));
    }
    let loaded = inspected(&order.experiment, &overrides)?;
    // The trainer reads a copy in the run's directory, where names and neighbours of this file are lost.
    overrides.push(name_override(&loaded.experiment.trainer.experiment_name));
    overrides.extend(check::beside_overrides(
        &loaded.experiment,
        &order.experiment,
    ));
    let loaded = inspected(&order.experiment, &overrides)?;
    let experiment = &loaded.experiment;
    if only_supervised(experiment, order.job) {
        return Err(StartError::OnlySupervised {
            file: order.experiment,
        });
    }
    if experiment::verl::is_asked_for(experiment) {
        return for_verl(order, loaded);
    }
    let findings = check::missing_inputs(&loaded.experiment, &order.experiment, order.job);
    if !findings.is_empty() {
        return Err(StartError::MissingInputs { findings });
    }
    Ok(Prepared {
        loaded,
        program: find_trainer()?,
        order,
    })
}

/// Nothing to reinforce in what is to be a training run.
pub(super) fn only_supervised(experiment: &Experiment, job: Job) -> bool {
    job == Job::Run
        && experiment.data.train_files.is_empty()
        && !experiment.sft.train_files.is_empty()
}

/// verl finds model and data itself: it reads names of a hub, and other file systems. What is asked is whether it is there.
fn for_verl(order: Order, loaded: Loaded) -> Result<Prepared, StartError> {
    only_runs(order.job)?;
    verl::command(&loaded, &order.runs_root)
        .can_start()
        .map_err(|reason| StartError::NoVerl { reason })?;
    let program = super::this_program().map_err(StartError::Watch)?;
    Ok(Prepared {
        loaded,
        order,
        program,
    })
}

/// verl does nothing else.
pub(super) fn only_runs(job: Job) -> Result<(), StartError> {
    if job == Job::Run {
        return Ok(());
    }
    Err(StartError::NoVerl {
        reason: format!(
            "`lathe {}` is Lathe's own; launch.engine is verl",
            job.words().join(" ")
        ),
    })
}

pub(super) fn inspected(path: &Path, overrides: &[String]) -> Result<Loaded, StartError> {
    let loaded = experiment::inspect(path, overrides);
    if loaded.has_errors() {
        return Err(StartError::Experiment {
            complaints: loaded.complaints,
        });
    }
    Ok(loaded)
}

impl Prepared {
    fn verb(&self) -> &'static str {
        if experiment::verl::is_asked_for(&self.loaded.experiment) {
            super::VERL_COMMAND
        } else {
            self.order.job.verb()
        }
    }

    /// What would be started for a run directory of that path, as a person would type it.
    pub fn words(&self, run_dir: &Path) -> String {
        if experiment::verl::is_asked_for(&self.loaded.experiment) {
            return verl::command(&self.loaded, run_dir).words();
        }
        format!(
            "{} {} --run-dir {}",
            self.program.display(),
            self.verb(),
            run_dir.display()
        )
    }

    /// Makes the run's directory.
    pub fn create(&self) -> Result<RunDir, StartError> {
        let trainer = &self.loaded.experiment.trainer;
        let versions = [("lathe".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
        let new = NewRun {
            project_name: trainer.project_name.clone(),
            experiment_name: trainer.experiment_name.clone(),
            seed: trainer.seed,
            parent: self.order.parent.clone(),
            git: git_state(Path::new(".")),
            versions: versions.into(),
            command: self.order.command.clone(),
            experiment_yaml: self.loaded.resolved.clone(),
            ..NewRun::default()
        };
        Ok(RunDir::create(&self.order.runs_root, &new)?)
    }

    /// Starts the trainer in that directory, in a session of its own.
    pub fn start(&self, run_dir: &RunDir) -> Result<Trainer, StartError> {
        Trainer::start(
            &self.program,
            self.verb(),
            run_dir.path(),
            &run_dir.log_path(),
            &[],
        )
        .map_err(|source| StartError::Spawn {
            program: self.program.clone(),
            source,
        })
    }
}

/// Starts a run that goes on by itself and waits for its first sign of life: `lathe run --detach` from inside a program.
/// `Err(Ended)` leaves the run's directory, with its log.
pub fn start(order: Order) -> Result<RunDir, StartError> {
    let prepared = prepare(order)?;
    let run_dir = prepared.create()?;
    let mut trainer = prepared.start(&run_dir)?;
    let log = Tail::new(run_dir.events_path());
    first_sign(log, &mut trainer, Signs::All)?;
    trainer.leave();
    Ok(run_dir)
}

/// What shows that a run lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signs {
    /// Whatever is new in its log: nobody else writes to a new run.
    All,
    /// What our own process writes: two may be started on a run that ended, and one of them is refused.
    Ours,
}

/// Waits until the run shows in what is new in its log that it lives; false: it is still loading after
/// [`FIRST_SIGN_PATIENCE`].
pub fn first_sign(mut tail: Tail, trainer: &mut Trainer, signs: Signs) -> Result<bool, StartError> {
    let patience = Instant::now() + FIRST_SIGN_PATIENCE;
    let mut state = RunState::default();
    loop {
        let ending = trainer.ending().map_err(StartError::Watch)?;
        let batch = tail
            .wait(Limits::LIVE, Duration::from_millis(100))
            .map_err(StartError::Watch)?;
        let is_of_another = |kind: &EventKind| {
            signs == Signs::Ours
                && matches!(kind, EventKind::RunStarted { pid, .. } if *pid != trainer.pid())
        };
        (batch.events.iter())
            .filter(|event| !is_of_another(&event.kind))
            .for_each(|event| state.apply(event));
        match ending {
            Some(ending) if state.ended.is_none() => return Err(StartError::Ended { ending }),
            Some(_) => return Ok(state.started.is_some()),
            None if state.started.is_some() => return Ok(true),
            None if Instant::now() >= patience => return Ok(false),
            None => {}
        }
    }
}

/// The override that a name stands for. Quoted, so that a name with commas or colons stays one text.
pub fn name_override(name: &str) -> String {
    text_override("trainer.experiment_name", name)
}

/// An override that says a text, whatever stands in it.
pub fn text_override(key: &str, text: &str) -> String {
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{key}=\"{quoted}\"")
}
