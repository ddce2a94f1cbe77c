//! Whether a run directory is begun already, and where its run goes on: at the newest whole checkpoint, else from the start.

use std::path::PathBuf;

use experiment::Experiment;
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
    /// Steps that had ended after that.
    pub lost_steps: u64,
    /// Newer checkpoints that are broken, each with what is wrong.
    pub passed_over: Vec<String>,
    /// The log has an evaluation of these weights.
    pub is_evaluated: bool,
}

/// Reads the log and the checkpoints. None: the run has not started yet.
pub fn plan(run_dir: &RunDir, experiment: &Experiment) -> Result<Option<Resume>, Failure> {
    let state = runlog::open::open(run_dir).map_err(Failure::run)?.state;
    if state.started.is_none() || experiment.trainer.val_only {
        return Ok(None);
    }
    let (found, passed_over) = newest_whole(run_dir)?;
    let from_step = match &found {
        Some(path) => RunCounters::read(path).map_err(Failure::input)?.step,
        None => 0,
    };
    let total_steps = experiment
        .trainer
        .total_training_steps
        .or(state.total_steps());
    if let Some(total_steps) = total_steps
        && from_step >= total_steps
    {
        return Err(Failure::nothing_left(from_step, total_steps));
    }
    Ok(Some(Resume {
        from_step,
        checkpoint: found,
        lost_steps: state.step.saturating_sub(from_step),
        passed_over,
        is_evaluated: state
            .evals
            .iter()
            .any(|evaluation| evaluation.step == from_step),
    }))
}

/// The newest checkpoint that verifies, and what is wrong with each newer one. One of a newer format is an error: going back
/// behind it would lose what a newer program trained.
fn newest_whole(run_dir: &RunDir) -> Result<(Option<PathBuf>, Vec<String>), Failure> {
    let paths = checkpoint::list(&run_dir.checkpoints_dir()).map_err(Failure::run)?;
    newest_whole_of(paths).map_err(Failure::input)
}

/// The same of these, the oldest first.
pub fn newest_whole_of(
    paths: Vec<PathBuf>,
) -> Result<(Option<PathBuf>, Vec<String>), CheckpointError> {
    let mut passed_over = Vec::new();
    for path in paths.into_iter().rev() {
        match checkpoint::verify(&path) {
            Ok(()) => return Ok((Some(path), passed_over)),
            Err(error @ CheckpointError::Newer { .. }) => return Err(error),
            Err(error) => passed_over.push(error.to_string()),
        }
    }
    Ok((None, passed_over))
}

impl Resume {
    /// As the run's log has it.
    pub fn event(&self, run_dir: &RunDir) -> EventKind {
        EventKind::RunResumed {
            from_step: self.from_step,
            checkpoint: self.checkpoint.as_ref().map(|path| {
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
