//! The end of a run: the rollout side comes to rest, the weights are saved, whoever waits is answered.

use std::time::Duration;

use runlog::checkpoints;
use runlog::event::{EventKind, Phase};

use super::begin::Running;
use super::{Ended, Place};
use crate::control::Control;
use crate::failure::Failure;
use crate::stop::Stop;

/// How long a disk that is full gets to have room for the last checkpoint. A second signal ends the wait.
const ROOM_PATIENCE: Duration = Duration::from_secs(600);

/// Brings everything that still runs to its end; `trained` is how the last step went.
pub(super) fn end(
    running: Running<'_>,
    control: &mut Control,
    trained: Result<(), Failure>,
) -> Result<Ended, Failure> {
    let Running {
        place,
        mut training,
        engine,
        runtime,
        mut rollout_side,
        alarms,
        ready,
        deliveries,
        mut probes,
        total_steps,
        val_only,
        ..
    } = running;
    let Place {
        run_dir,
        recorder,
        stop,
        ..
    } = place;
    let steps = training.trained;
    control.finish(steps, no_more_steps(stop, val_only, &trained));
    drop(ready);
    drop(deliveries);
    // An evaluation without training has no step to end after: it stops at once.
    let early = val_only
        .then(|| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = stop.asked() => None,
                    result = &mut rollout_side => Some(result),
                }
            })
        })
        .flatten();
    let is_stopped = early.is_none() && stop.is_asked() && steps < total_steps;
    if early.is_none() && (is_stopped || trained.is_err()) {
        // Sessions in flight are dropped with the task; their tools are released by their guards.
        rollout_side.abort();
    }
    recorder.record(EventKind::PhaseChanged {
        phase: Phase::Finish,
    });
    let joined = early.unwrap_or_else(|| runtime.block_on(&mut rollout_side));
    let rollout_result = match joined {
        Ok(result) => result,
        Err(error) if error.is_cancelled() => Ok(()),
        Err(error) => Err(Failure::Run(format!("the rollout side panicked: {error}"))),
    };
    alarms.abort();
    runtime.shutdown_background();
    engine.shutdown();
    if steps >= total_steps && trained.is_ok() {
        training.conclude_choosing(&mut probes);
    }
    // Also after a failure: what was learned until then is worth keeping.
    let saved = if !val_only && (steps > 0 || is_stopped) {
        training.last_checkpoint(ROOM_PATIENCE).map(drop)
    } else {
        Ok(())
    };
    // Where both failed the rollout side was first: of it the learner knows only that it is gone.
    rollout_result?;
    trained?;
    saved.map_err(|error| {
        let newest = checkpoints::list(&run_dir.checkpoints_dir())
            .ok()
            .and_then(|found| Some(found.last()?.step));
        let left = match newest {
            Some(step) => format!("the run goes on from the checkpoint of step {step}"),
            None => "there is no checkpoint to go on from".to_owned(),
        };
        Failure::Run(format!(
            "step {steps} is trained, and its weights are lost: {error}; {left}"
        ))
    })?;
    control.ended(steps);
    Ok(if is_stopped {
        Ended::Stopped { steps }
    } else if val_only {
        Ended::Evaluated
    } else {
        Ended::Completed { steps }
    })
}

/// Why a command that still waits when the last step is over is refused.
fn no_more_steps(stop: &Stop, val_only: bool, result: &Result<(), Failure>) -> &'static str {
    if result.is_err() {
        "the run has failed"
    } else if val_only {
        "this run only evaluates (trainer.val_only)"
    } else if stop.is_asked() {
        "the run is stopping"
    } else {
        "every step of this run is trained"
    }
}
