//! Step after step: a batch is waited for, trained, published; commands and guards come in between.

use std::time::{Duration, Instant};

use runlog::control::Job;
use runlog::event::Lane;
use tokio::sync::mpsc;

use super::Place;
use super::begin::Running;
use crate::advise::{Advising, Timed};
use crate::choosing::Probed;
use crate::control::Control;
use crate::failure::Failure;
use crate::rollouts::Sampled;
use crate::stop::Stop;
use crate::training::Training;

/// Trains until the last step, a stop, or a failure.
pub(super) fn train(running: &mut Running<'_>, control: &mut Control) -> Result<(), Failure> {
    let mut advising = Advising::new(running.place.experiment, running.staleness);
    let result = step_by_step(running, control, &mut advising);
    advising.conclude(&running.training);
    result
}

fn step_by_step(
    running: &mut Running<'_>,
    control: &mut Control,
    advising: &mut Advising,
) -> Result<(), Failure> {
    let Place {
        experiment,
        recorder,
        stop,
        ..
    } = running.place;
    let Running {
        training,
        runtime,
        ready,
        deliveries,
        evaluations,
        probes,
        publisher,
        ..
    } = running;
    // Rewinds of the weights that the rollout side was given last.
    let mut published_rewinds = 0;
    while training.trained < running.sampled_steps {
        let waited = next_batch(control, training, ready, stop, published_rewinds);
        let mut timed = None;
        match runtime.block_on(waited) {
            Waited::Batch(sampled, wait) => {
                let knows =
                    runtime.block_on(probes_known(control, training, probes, &sampled, stop));
                if !knows {
                    break;
                }
                control.trains(sampled.step);
                let staleness = sampled.draw.staleness;
                let generate_s = sampled.timing.lane_s;
                let is_plain = wait.is_plain && !sampled.timing.beside_evaluation;
                let began = Instant::now();
                let (ended, aside) = training.train(*sampled, wait.ms)?;
                let asked = Instant::now();
                runtime.block_on(training.ask_labels());
                let aside = aside + asked.elapsed();
                timed = Some(Timed {
                    staleness,
                    generate_s,
                    waited: Duration::from_secs_f64(wait.ms.max(0.0) / 1e3),
                    trained: began.elapsed().saturating_sub(aside),
                    is_plain,
                });
                while let Ok(evaluation) = evaluations.try_recv() {
                    training.guards_see(&evaluation, None);
                }
                training.guards_see(&ended, Some(staleness));
                control.look(training);
                let trained = training.trained;
                control.trained(trained);
                stop.trained(trained);
                let due = experiment.trainer.save_freq > 0
                    && trained.is_multiple_of(experiment.trainer.save_freq as u64);
                if due && trained < running.total_steps {
                    training.begin_checkpoint();
                }
            }
            Waited::Rewound => {}
            Waited::Over => break,
        }
        let trained = training.trained;
        let rewinds = training.rollouts.rewinds();
        let step_ended = Instant::now();
        let told = control.waits_to_publish(trained);
        let span = recorder.span(Lane::WeightSync, "publish", Some(trained));
        let published = publisher.publish(&training.learner.actor().model, trained, step_ended);
        span.end();
        let mut delivery = published.map_err(Failure::run)?;
        delivery.rewinds = rewinds;
        published_rewinds = rewinds;
        if deliveries.blocking_send(delivery).is_err() {
            break;
        }
        drop(told);
        if let Some(mut timed) = timed {
            timed.trained += step_ended.elapsed();
            advising.after(timed, training.holds_staleness(), training);
        }
    }
    Ok(())
}

/// Takes in what the bandit must know before it chooses for this batch. False: asked to stop, or the rollout side ended.
async fn probes_known(
    control: &Control,
    training: &mut Training<'_>,
    probes: &mut mpsc::UnboundedReceiver<Probed>,
    sampled: &Sampled,
    stop: &Stop,
) -> bool {
    let rewinds = training.rollouts.rewinds();
    let Some(choosing) = &mut training.choosing else {
        return true;
    };
    while let Ok(probed) = probes.try_recv() {
        choosing.take(probed, rewinds);
    }
    let limit = choosing.limit(sampled.step, sampled.draw.staleness);
    if !choosing.awaits(sampled.step, limit) {
        return true;
    }
    let _told = control.waits_for_probe(sampled.step);
    let _wait = training.recorder.span(
        Lane::WaitRollouts,
        "waiting for the bandit's probe",
        Some(sampled.step),
    );
    while choosing.awaits(sampled.step, limit) {
        let probed = tokio::select! {
            biased;
            () = stop.asked() => None,
            probed = probes.recv() => probed,
        };
        let Some(probed) = probed else {
            return false;
        };
        choosing.take(probed, rewinds);
    }
    true
}

/// What the learner waited for.
enum Waited {
    Batch(Box<Sampled>, Wait),
    /// It went back to older weights, which the rollout side has not been given.
    Rewound,
    /// Asked to stop, or the rollout side ended; its own result says why.
    Over,
}

/// How a batch was waited for.
#[derive(Debug, Clone, Copy)]
struct Wait {
    /// Without pauses and commands.
    ms: f64,
    /// There were none.
    is_plain: bool,
}

/// Waits for the next batch, and follows commands meanwhile. Batches from before a rewind are dropped.
async fn next_batch(
    control: &mut Control,
    training: &mut Training<'_>,
    ready: &mut mpsc::Receiver<Sampled>,
    stop: &Stop,
    published_rewinds: u64,
) -> Waited {
    let mut waited = Wait {
        ms: 0.0,
        is_plain: true,
    };
    loop {
        waited.is_plain &= !control.boundary(training).await;
        if stop.is_asked() {
            return Waited::Over;
        }
        if training.rollouts.rewinds() != published_rewinds {
            return Waited::Rewound;
        }
        let step = training.trained + 1;
        let told = control.waits_for(step);
        let wait = training
            .recorder
            .span(Lane::WaitRollouts, "waiting for rollouts", Some(step));
        let next = tokio::select! {
            biased;
            job = control.next() => Next::Command(job),
            sampled = ready.recv() => Next::Batch(sampled.map(Box::new)),
        };
        waited.ms += wait.end();
        drop(told);
        match next {
            Next::Command(Some(job)) => {
                control.apply(job, training);
                waited.is_plain = false;
            }
            Next::Batch(Some(sampled)) if training.rollouts.is_valid(sampled.rewinds) => {
                return Waited::Batch(sampled, waited);
            }
            Next::Batch(Some(void)) => training.drop_batch(&void),
            Next::Command(None) | Next::Batch(None) => return Waited::Over,
        }
    }
}

enum Next {
    /// None: the run was asked to stop.
    Command(Option<Job>),
    /// None: the rollout side ended.
    Batch(Option<Box<Sampled>>),
}
