//! An experiment from its file and overrides, with its complaints told.

use std::path::Path;

use experiment::{Complaint, Loaded, Severity, settings};
use runlog::run_dir::RunDir;

use super::Failure;
use crate::terminal::{Role, Terminal};

/// Rollouts that one step trains on.
pub fn rollouts_per_step(experiment: &settings::Experiment) -> u64 {
    u64::from(experiment.data.train_batch_size) * u64::from(experiment.actor_rollout_ref.rollout.n)
}

/// Loads for use: complaints go to standard error, an error among them refuses.
pub fn load_for_run(
    path: &Path,
    overrides: &[String],
    terminal: Terminal,
) -> Result<Loaded, Failure> {
    let loaded = experiment::inspect(path, overrides);
    for complaint in &loaded.complaints {
        // Notes are for `lathe check`.
        if complaint.severity != Severity::Note {
            eprintln!(
                "{}",
                complaint_line(complaint, |role, text| terminal.paint_stderr(role, text))
            );
        }
    }
    let errors = errors(&loaded.complaints);
    if errors > 0 {
        return Err(Failure::usage(format!(
            "{} cannot run: {} above; `lathe check {}` says more",
            path.display(),
            crate::headless::format::plural(errors, "error"),
            path.display()
        )));
    }
    Ok(loaded)
}

pub fn errors(complaints: &[Complaint]) -> u64 {
    complaints
        .iter()
        .filter(|complaint| complaint.severity == Severity::Error)
        .count() as u64
}

/// `error: experiments/x.yaml:14: …`
pub fn complaint_line(complaint: &Complaint, paint: impl Fn(Role, &str) -> String) -> String {
    let (role, word) = match complaint.severity {
        Severity::Error => (Role::Bad, "error:"),
        Severity::Warning => (Role::Caution, "warning:"),
        Severity::Note => (Role::Muted, "note:"),
    };
    format!("{} {complaint}", paint(role, word))
}

/// From the experiment that lies in a run's directory; None when it cannot be read.
pub fn rollouts_per_step_of_run(run_dir: &RunDir) -> Option<u64> {
    let loaded = experiment::load(&run_dir.experiment_path(), &[]).ok()?;
    Some(rollouts_per_step(&loaded.experiment))
}
