//! The reinforcement-learning run: rollouts on one side, learner on the other, weights and batches between them.
//!
//! ```text
//!  rollout side (tokio) ── batch k ──► queue ──► learner (this thread) ── version k ──► Publisher
//!        ▲  waits until version k−1−staleness has arrived, proves it, swaps it in          │
//!        └────────────────────────────── Delivery ◄────────────────────────────────────────┘
//! ```
//! Batch k is generated from version max(0, k−1−`max_staleness`), neither older nor newer: with 0 the run is synchronous, with 1
//! batch k+1 is generated while batch k is trained. The bound of the queue is the staleness bound. Evaluation of a version runs
//! beside the training batch of the same version, on its own lane.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Instant;

use dialogue::data::Cursor;
use dialogue::rollout::{Finish, Rollout};
use experiment::Experiment;
use runlog::event::{EventKind, Lane, Phase};
use runlog::recorder::Recorder;
use runlog::run_dir::RunDir;
use tokio::sync::mpsc;

use crate::engine::{Engine, EngineOptions, TokenDecoder, WeightBuffer};
use crate::failure::Failure;
use crate::learner::{Learner, StepOutcome, kind_of};
use crate::rollouts::{Sampled, Sampler, SamplerParts};
use crate::save;
use crate::setup;
use crate::stop::Stop;
use crate::sync::{Publisher, Receiver};

/// How a run that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Completed { steps: u64 },
    Stopped { steps: u64 },
}

/// Runs the experiment of `run_dir` to its end. Everything that happens is in `recorder`'s log.
pub fn run(
    experiment: &Arc<Experiment>,
    run_dir: &RunDir,
    recorder: &Recorder,
    stop: &Stop,
) -> Result<Ended, Failure> {
    setup::refuse_unavailable(experiment)?;
    recorder.record(EventKind::PhaseChanged {
        phase: Phase::Setup,
    });
    let threads = experiment.trainer.threads as i32;
    tch::set_num_threads(threads);
    let device = setup::device(experiment)?;
    let chat = setup::chat(experiment)?;
    let tools = setup::tools(experiment)?;
    let scorers = setup::scorers(experiment);
    let prompts = setup::train_prompts(experiment, &chat, &tools)?;
    let val = setup::val_prompts(experiment, &chat, &tools)?;
    let actor = setup::actor(experiment, device)?;
    let critic = setup::critic(experiment, device)?;
    setup::check_vocabulary(&chat, actor.config())?;
    let total_steps = experiment.trainer.total_training_steps.unwrap_or_else(|| {
        prompts.batches_per_epoch() * u64::from(experiment.trainer.total_epochs)
    });
    if total_steps == 0 && !experiment.trainer.val_only {
        return Err(Failure::Input(
            "there is nothing to train: trainer.total_training_steps is 0".to_owned(),
        ));
    }
    recorder.record(EventKind::RunStarted {
        experiment_name: experiment.trainer.experiment_name.clone(),
        mode: match experiment.trainer.mode {
            experiment::settings::Mode::Sync => "sync".to_owned(),
            experiment::settings::Mode::OneStepOff => "one_step_off".to_owned(),
        },
        total_steps: if experiment.trainer.val_only {
            0
        } else {
            total_steps
        },
        parameters: actor.config().num_parameters() as u64,
        pid: std::process::id(),
        host: runlog::run_dir::host_name(),
        seed: experiment.trainer.seed,
    });

    let rollout = &experiment.actor_rollout_ref.rollout;
    let engine_kind = rollout.dtype.map_or(actor.kind(), kind_of);
    let config = Arc::clone(actor.config());
    let active = WeightBuffer::from_parameters(&actor, engine_kind, device);
    let spare = WeightBuffer::new(&config, engine_kind, device);
    let canary_ids = setup::canary_ids(&config);
    let tokenizer = Arc::clone(chat.tokenizer());
    let engine = Engine::start(
        active,
        0,
        EngineOptions {
            max_length_tokens: rollout.max_model_len.map_or(
                (experiment.data.max_prompt_length + experiment.data.max_response_length) as usize,
                |most| most as usize,
            ),
            max_rows: rollout.max_num_seqs as usize,
            threads,
            lockstep: rollout.full_determinism,
            eos_token_ids: chat.stop_ids().to_vec(),
            decoder: Some(TokenDecoder::new(move |ids| {
                tokenizer.decode(ids, false).unwrap_or_default()
            })),
            ..EngineOptions::new(&config)
        },
    )
    .map_err(Failure::run)?;
    let mut learner =
        Learner::new(Arc::clone(experiment), actor, critic, total_steps).map_err(Failure::run)?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("rollouts")
        .build()
        .map_err(Failure::run)?;
    let (spare_send, spare_receive) = std_mpsc::channel();
    spare_send.send(spare).expect("the receiver is in scope");
    let staleness = staleness(experiment);
    // Batches that wait for the learner. Full: the rollout side waits, which is the staleness bound at work.
    let (batches, mut ready) = mpsc::channel::<Sampled>(staleness.max(1) as usize);
    // One spare buffer, so at most one delivery is under way; the second place keeps the learner from waiting to hand it over.
    let (deliveries, arrivals) = mpsc::channel(2);
    let mut publisher = Publisher::new(spare_receive, canary_ids.clone());
    let sampler = Sampler::new(SamplerParts {
        experiment: Arc::clone(experiment),
        chat,
        tools,
        scorers,
        engine: engine.handle(),
        prompts,
        val,
        receiver: Receiver::new(spare_send, canary_ids, threads),
        recorder: recorder.clone(),
        staleness: u64::from(staleness),
        total_steps: if experiment.trainer.val_only {
            0
        } else {
            total_steps
        },
    });
    recorder.record(EventKind::PhaseChanged {
        phase: Phase::Train,
    });
    let mut rollout_side = runtime.spawn(sampler.run(batches, arrivals));

    let mut trained = 0;
    let mut cursor: Option<Cursor> = None;
    let mut learner_result = Ok(());
    while trained < total_steps && !experiment.trainer.val_only {
        let wait = recorder.span(
            Lane::WaitRollouts,
            "waiting for rollouts",
            Some(trained + 1),
        );
        let sampled = runtime.block_on(async {
            tokio::select! {
                biased;
                () = stop.asked() => None,
                sampled = ready.recv() => sampled,
            }
        });
        let waited_ms = wait.end();
        // None: asked to stop, or the rollout side ended; its own result says why.
        let Some(sampled) = sampled else { break };
        let at = sampled.cursor.clone();
        match train_one(
            &mut learner,
            sampled,
            waited_ms,
            run_dir,
            recorder,
            experiment,
        ) {
            Ok(step) => {
                trained = step;
                cursor = Some(at);
            }
            Err(failure) => {
                learner_result = Err(failure);
                break;
            }
        }
        let due = experiment.trainer.save_freq > 0
            && trained.is_multiple_of(experiment.trainer.save_freq as u64);
        if due && trained < total_steps {
            save::checkpoint(
                &learner,
                experiment,
                run_dir,
                recorder,
                trained,
                cursor.as_ref(),
            );
        }
        let step_ended = Instant::now();
        let span = recorder.span(Lane::WeightSync, "publish", Some(trained));
        let published = publisher.publish(&learner.actor().model, trained, step_ended);
        span.end();
        match published {
            Ok(delivery) => {
                if deliveries.blocking_send(delivery).is_err() {
                    break;
                }
            }
            Err(error) => {
                learner_result = Err(Failure::run(error));
                break;
            }
        }
    }
    drop(ready);
    drop(deliveries);
    let is_stopped = stop.is_asked() && trained < total_steps;
    if is_stopped || learner_result.is_err() {
        // Sessions in flight are dropped with the task; their tools are released by their guards.
        rollout_side.abort();
    }
    recorder.record(EventKind::PhaseChanged {
        phase: Phase::Finish,
    });
    let rollout_result = match runtime.block_on(&mut rollout_side) {
        Ok(result) => result,
        Err(error) if error.is_cancelled() => Ok(()),
        Err(error) => Err(Failure::Run(format!("the rollout side panicked: {error}"))),
    };
    runtime.shutdown_background();
    engine.shutdown();
    // Also after a failure: what was learned until then is worth keeping.
    if !experiment.trainer.val_only && (trained > 0 || is_stopped) {
        save::checkpoint(
            &learner,
            experiment,
            run_dir,
            recorder,
            trained,
            cursor.as_ref(),
        );
    }
    learner_result?;
    rollout_result?;
    Ok(if is_stopped {
        Ended::Stopped { steps: trained }
    } else {
        Ended::Completed { steps: trained }
    })
}

/// Policy versions that a batch may lag.
pub fn staleness(experiment: &Experiment) -> u32 {
    match experiment.trainer.mode {
        experiment::settings::Mode::Sync => 0,
        experiment::settings::Mode::OneStepOff => experiment.trainer.max_staleness.unwrap_or(1),
    }
}

/// One batch through the learner; gives the step. A panic inside libtorch is a failure of the run, with its message.
fn train_one(
    learner: &mut Learner,
    sampled: Sampled,
    waited_ms: f64,
    run_dir: &RunDir,
    recorder: &Recorder,
    experiment: &Experiment,
) -> Result<u64, Failure> {
    let step = sampled.step;
    let started_ms = recorder.elapsed_ms();
    let tokens: usize = sampled
        .rollouts
        .iter()
        .map(|rollout| rollout.prompt_ids.len() + rollout.response_ids.len())
        .sum();
    let Sampled {
        rollouts, timing, ..
    } = sampled;
    if let Some(error) = failed_everywhere(&rollouts) {
        return Err(Failure::Run(format!(
            "step {step}: every dialogue failed, the first with: {error}"
        )));
    }
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        learner.step(step, step - 1, rollouts, recorder)
    }))
    .map_err(|panic| {
        Failure::Run(format!(
            "step {step}: the learner panicked: {}",
            panic_text(&*panic)
        ))
    })?
    .map_err(Failure::run)?;
    let StepOutcome {
        mut values,
        alarms,
        trained,
    } = outcome;
    for (name, message) in alarms {
        recorder.record(EventKind::Alarm {
            name: name.to_owned(),
            step: Some(step),
            message,
        });
    }
    let step_s = (recorder.elapsed_ms() - started_ms + waited_ms) / 1e3;
    values.set("training/global_step", step as f64);
    values.set("training/epoch", timing.epoch as f64);
    values.set("timing_s/gen", timing.generate_s);
    values.set("timing_s/reward", timing.reward_s);
    values.set("timing_s/step", step_s);
    values.set("async/wait_rollouts_s", waited_ms / 1e3);
    values.set("async/wait_learner_s", timing.wait_learner_s);
    values.set("perf/total_num_tokens", tokens as f64);
    values.set("perf/time_per_step", step_s);
    values.set("perf/throughput", tokens as f64 / step_s.max(1e-9));
    if let Some(trained) = &trained
        && experiment.trainer.record_rollouts
        && let Err(error) = save::rollouts(trained, step, run_dir)
    {
        recorder.record(EventKind::Alarm {
            name: "rollouts not recorded".to_owned(),
            step: Some(step),
            message: error.to_string(),
        });
    }
    recorder.record(EventKind::StepEnded {
        step,
        policy_version: step,
        values: values.0,
    });
    Ok(step)
}

/// The first error when no dialogue reached an end: then the fault is not the dialogues'.
fn failed_everywhere(rollouts: &[Rollout]) -> Option<&str> {
    let failed = |rollout: &Rollout| rollout.finish == Finish::Error;
    if !rollouts.iter().all(failed) {
        return None;
    }
    rollouts
        .first()
        .map(|rollout| rollout.error.as_deref().unwrap_or("no reason given"))
}

/// The words of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "no message".to_owned())
}
