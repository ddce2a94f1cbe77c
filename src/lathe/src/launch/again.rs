//! From the copy of a run elsewhere that is over to that run going on there, in its own directory.
//!
//! ```text
//!  bring_up_to_date (its experiment and log, as they lie there) ─► edit (overrides) ─► resume_elsewhere (ask; the copy is open again)
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use experiment::Loaded;
use remote::near::launch::{ResumeError, resume};
use remote::near::mirror;
use remote::near::pull::{self, PullError};
use remote::{Keeper, Link, Target, wire};
use runlog::run_dir::{Mirror, MirrorLink, Origin, RunDir, RunDirError, Standing, write_renamed};

use crate::check;

/// How long the rest of a log may take to come.
const COPY_PATIENCE: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum ResumeElsewhereError {
    #[error(transparent)]
    Resume(#[from] ResumeError),
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    #[error("cannot read {file}: {reason}")]
    Experiment { file: String, reason: String },
    #[error(
        "the copy of {run} did not come up to date ({reason}), so it was not told to go on; try again"
    )]
    Behind { run: String, reason: String },
    #[error(
        "{key} names other files than before, and none are sent with a resume; start a run from its checkpoint instead: lathe run \
         EXPERIMENT --from RUN --on TARGET"
    )]
    Files { key: &'static str },
}

/// An experiment as it is to lie there.
#[derive(Debug, Clone, PartialEq)]
pub struct Edited {
    /// None: as it lies there.
    text: Option<String>,
    given: Vec<String>,
    total_steps: Option<u64>,
}

/// The run's name there.
fn name(run_dir: &RunDir) -> String {
    let path = match run_dir.origin() {
        Some(Origin::Target { path, .. }) => Path::new(path),
        _ => run_dir.path(),
    };
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Fetches the experiment and what is missing of the log: another machine may have had the run go on since.
pub fn bring_up_to_date(
    run_dir: &RunDir,
    target: &Target,
    link: &mut Link,
) -> Result<(), ResumeElsewhereError> {
    let file = "experiment.yaml";
    pull::pull(link, &name(run_dir), file, run_dir.path(), &mut |_, _| {})?;
    mirror::reopen(run_dir)?;
    let behind = |reason: String| ResumeElsewhereError::Behind {
        run: run_dir.name().to_owned(),
        reason,
    };
    let _keeper =
        Keeper::start(run_dir, target.clone()).map_err(|error| behind(error.to_string()))?;
    let start = Instant::now();
    loop {
        let mirror = Mirror::read(run_dir);
        match mirror
            .as_ref()
            .map(|mirror| (&mirror.link, &mirror.standing))
        {
            Some((MirrorLink::Complete, _)) => return Ok(()),
            // Whoever is asked to have it go on says so, in its words.
            Some((MirrorLink::Live { .. }, Standing::Running | Standing::Queued { .. })) => {
                return Ok(());
            }
            Some((
                MirrorLink::Unwritten { reason, .. }
                | MirrorLink::Disconnected {
                    reason,
                    attempts: 1..,
                    ..
                },
                _,
            )) => return Err(behind(reason.clone())),
            _ if start.elapsed() > COPY_PATIENCE => {
                return Err(behind(format!("within {} s", COPY_PATIENCE.as_secs())));
            }
            _ => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// What is to change in the experiment. `loaded`: with the overrides whose keys are `given`.
pub fn edit(
    run_dir: &RunDir,
    loaded: &Loaded,
    given: Vec<String>,
) -> Result<Edited, ResumeElsewhereError> {
    let total_steps = loaded.experiment.trainer.total_training_steps;
    if given.is_empty() {
        return Ok(Edited {
            text: None,
            given,
            total_steps,
        });
    }
    let path = run_dir.experiment_path();
    let before =
        experiment::load(&path, &[]).map_err(|error| ResumeElsewhereError::Experiment {
            file: path.display().to_string(),
            reason: error.to_string(),
        })?;
    let files = check::named_files(&before.experiment);
    for (key, names) in check::named_files(&loaded.experiment) {
        if !files
            .iter()
            .any(|(old, of_old)| *old == key && *of_old == names)
        {
            return Err(ResumeElsewhereError::Files { key });
        }
    }
    Ok(Edited {
        text: Some(loaded.resolved.clone()),
        given,
        total_steps,
    })
}

/// Has the run go on there; from then on its copy here shows a run that goes on.
pub fn resume_elsewhere(
    run_dir: &RunDir,
    target: &Target,
    link: &mut Link,
    edited: Edited,
) -> Result<(), ResumeElsewhereError> {
    let again = wire::Again {
        run: name(run_dir),
        experiment_yaml: edited.text.clone(),
        given: edited.given,
        total_steps: edited.total_steps,
        means: target.means(),
        scheduler: target.scheduler().map(Box::new),
    };
    resume(link, again)?;
    mirror::goes_on(run_dir)?;
    if let Some(text) = edited.text {
        write_renamed(&run_dir.experiment_path(), text.as_bytes())?;
    }
    Ok(())
}
