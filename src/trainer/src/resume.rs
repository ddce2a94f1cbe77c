//! Whether a run directory is begun already, and where its run goes on: at the newest whole checkpoint, else from the start, which
//! may be a checkpoint of another run (`trainer.resume_mode: resume_path`, `lathe run --from`).

use std::path::{Path, PathBuf};

use experiment::Experiment;
use experiment::settings::ResumeMode;
use runlog::event::EventKind;
use runlog::run_dir::RunDir;

use crate::checkpoint::{self, CheckpointError};
use crate::failure::Failure;
use crate::save::RunCounters;

/// How a run goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Resume {
    /// Steps trained in the weights that it goes on from.
    pub from_step: u64,
    /// None: there is no whole checkpoint, so it begins anew in the same directory.
    pub checkpoint: Option<PathBuf>,
    /// The checkpoint is another run's, and this run begins with it.
    pub is_fork: bool,
    /// Where it was, once it is adopted.
    pub origin: Option<PathBuf>,
    /// Steps that had ended after that.
    pub lost_steps: u64,
    /// Newer checkpoints that are broken, each with what is wrong.
    pub passed_over: Vec<String>,
    /// The log has an evaluation of these weights.
    pub is_evaluated: bool,
    /// Keys of the experiment that were given anew with this resume: they win over what was set while the run ran.
    pub given: Vec<String>,
}

/// Reads the log and the checkpoints. None: the run has not started yet.
pub fn plan(run_dir: &RunDir, experiment: &Experiment) -> Result<Option<Resume>, Failure> {
    let trainer = &experiment.trainer;
    let state = runlog::open::open(run_dir).map_err(Failure::run)?.state;
    let (mut found, mut passed_over) = (None, Vec::new());
    if state.started.is_some() && !trainer.val_only {
        (found, passed_over) = newest_whole(run_dir)?;
    }
    let is_fork = found.is_none() && trainer.resume_mode == ResumeMode::ResumePath;
    if is_fork {
        found = Some(named(experiment)?);
    }
    if found.is_none() && (state.started.is_none() || trainer.val_only) {
        return Ok(None);
    }
    let from_step = match &found {
        Some(path) => RunCounters::read(path).map_err(Failure::input)?.step,
        None => 0,
    };
    let total_steps = trainer.total_training_steps.or(state.total_steps());
    if let Some(total_steps) = total_steps
        && from_step >= total_steps
        && !trainer.val_only
    {
        return Err(Failure::nothing_left(from_step, total_steps));
    }
    Ok(Some(Resume {
        from_step,
        checkpoint: found,
        is_fork,
        origin: None,
        lost_steps: state.step.saturating_sub(from_step),
        passed_over,
        is_evaluated: !trainer.val_only
            && state
                .evals
                .iter()
                .any(|evaluation| evaluation.step == from_step),
        given: Vec::new(),
    }))
}

/// The checkpoint that `trainer.resume_from_path` names, if it is whole.
fn named(experiment: &Experiment) -> Result<PathBuf, Failure> {
    let name = experiment.trainer.resume_from_path.as_deref();
    let path = Path::new(name.ok_or_else(|| {
        Failure::Input(
            "trainer.resume_mode is resume_path, and trainer.resume_from_path names no checkpoint"
                .to_owned(),
        )
    })?);
    if !path.exists() {
        return Err(Failure::Input(format!(
            "trainer.resume_from_path: {} does not exist; `lathe checkpoints RUN` lists those of a run",
            path.display()
        )));
    }
    checkpoint::verify(path).map_err(Failure::input)?;
    std::path::absolute(path).map_err(Failure::run)
}

/// The newest checkpoint that verifies, and what is wrong with each newer one. One of a newer format is an error: going back
/// behind it would lose what a newer program trained.
fn newest_whole(run_dir: &RunDir) -> Result<(Option<PathBuf>, Vec<String>), Failure> {
    let found = checkpoint::list(&run_dir.checkpoints_dir()).map_err(Failure::run)?;
    let paths = found.into_iter().map(|found| found.path).collect();
    newest_whole_of(paths).map_err(Failure::input)
}

/// The same of these, the oldest first.
pub fn newest_whole_of(
    paths: Vec<PathBuf>,
) -> Result<(Option<PathBuf>, Vec<String>), CheckpointError> {
    let mut passed_over = Vec::new();
    for path in paths.into_iter().rev() {
        match checkpoint::verify(&path) {
            Ok(_) => return Ok((Some(path), passed_over)),
            Err(error @ CheckpointError::Newer { .. }) => return Err(error),
            Err(error) => passed_over.push(error.to_string()),
        }
    }
    Ok((None, passed_over))
}

impl Resume {
    /// Makes the checkpoint of another run this run's own, so that nothing that becomes of that run matters here. To be called
    /// once this process holds the run.
    pub fn adopt(&mut self, run_dir: &RunDir) -> Result<(), Failure> {
        if self.is_fork
            && let Some(path) = &mut self.checkpoint
        {
            let own = checkpoint::adopt(path, &run_dir.checkpoints_dir(), self.from_step)
                .map_err(Failure::run)?;
            self.origin = Some(std::mem::replace(path, own));
        }
        Ok(())
    }

    /// As the run's log has it.
    pub fn event(&self, run_dir: &RunDir) -> EventKind {
        EventKind::RunResumed {
            from_step: self.from_step,
            checkpoint: self
                .origin
                .as_ref()
                .or(self.checkpoint.as_ref())
                .map(|path| {
                    path.strip_prefix(run_dir.path())
                        .unwrap_or(path)
                        .display()
                        .to_string()
                }),
            lost_steps: self.lost_steps,
            passed_over: self.passed_over.clone(),
        }
    }
}
