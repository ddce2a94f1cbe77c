//! The reinforcement-learning run: rollouts on one side, learner on the other, weights and batches between them.
//!
//! ```text
//!  rollout side (tokio) ── batch k ──► queue ──► learner (this thread) ── version k ──► Publisher
//!        ▲  waits until version k−1−staleness has arrived, proves it, swaps it in          │
//!        └────────────────────────────── Delivery ◄────────────────────────────────────────┘
//! ```
//! Batch k is generated from version max(0, k−1−`max_staleness`), neither older nor newer: with 0 the run is synchronous, with 1
//! batch k+1 is generated while batch k is trained. In mode `async` it is generated from the newest weights there are, and with
//! partial rollouts its sessions go on under each version that arrives; that of the oldest token is bounded all the same. Evaluation of a version runs beside the training batch of the same version,
//! on its own lane. While the learner waits, and only then, it follows the commands of `control`.
//!
//! `begin` loads and starts everything, `steps` trains, `end` stops in good order.

mod begin;
mod end;
mod given;
mod steps;

use std::sync::Arc;

use experiment::Experiment;
use experiment::settings::Mode;
use runlog::event::{EventKind, Phase};
use runlog::recorder::Recorder;
use runlog::run_dir::RunDir;

use crate::control::Control;
use crate::failure::Failure;
use crate::resume::Resume;
use crate::setup;
use crate::stop::Stop;

/// How a run that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Completed {
        steps: u64,
    },
    Stopped {
        steps: u64,
    },
    /// `trainer.val_only`: the starting weights were evaluated, and nothing was to be trained.
    Evaluated,
}

/// Runs the experiment of `run_dir` to its end. Everything that happens is in `recorder`'s log.
pub fn run(
    experiment: &Arc<Experiment>,
    run_dir: &RunDir,
    recorder: &Recorder,
    stop: &Stop,
    control: &mut Control,
    resume: Option<&Resume>,
) -> Result<Ended, Failure> {
    setup::refuse_unavailable(experiment)?;
    recorder.record(EventKind::PhaseChanged {
        phase: Phase::Setup,
    });
    let place = Place {
        experiment,
        run_dir,
        recorder,
        stop,
    };
    let mut running = begin::begin(place, control, resume)?;
    let trained = steps::train(&mut running, control);
    end::end(running, control, trained)
}

/// What a run is of, and where it writes.
#[derive(Debug, Clone, Copy)]
struct Place<'r> {
    experiment: &'r Arc<Experiment>,
    run_dir: &'r RunDir,
    recorder: &'r Recorder,
    stop: &'r Stop,
}

/// Policy versions that a batch may lag, as the experiment says.
pub fn staleness(experiment: &Experiment) -> u32 {
    match experiment.trainer.mode {
        Mode::Sync | Mode::Auto => 0,
        Mode::OneStepOff | Mode::Async => experiment.trainer.max_staleness.unwrap_or(1),
    }
}

/// The words of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "no message".to_owned())
}
