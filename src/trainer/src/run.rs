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

use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use experiment::Experiment;
use experiment::guards::Guard;
use experiment::settings::Mode;
use runlog::control::Job;
use runlog::event::{EventKind, Lane, Phase};
use runlog::recorder::Recorder;
use runlog::run_dir::RunDir;
use tokio::sync::mpsc;

use crate::advise::{Advising, Timed};
use crate::checkpoint::{self, Saver, SaverParts};
use crate::control::{Control, Draw, Held, MAX_STALENESS, RolloutKnobs};
use crate::engine::{Engine, EngineOptions, TokenDecoder, WeightBuffer};
use crate::failure::Failure;
use crate::guard::{Acting, Guards, PROBE_METRIC, Probe, mode_name};
use crate::learner::{Learner, kind_of, kinds};
use crate::resume::Resume;
use crate::rollouts::{Sampled, Sampler, SamplerParts};
use crate::setup;
use crate::stop::Stop;
use crate::sync::{Publisher, Receiver};
use crate::training::{Dropped, STALENESS, TEMPERATURE, Training};

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
    let threads = experiment.trainer.threads as i32;
    tch::set_num_threads(threads);
    let device = setup::device(experiment)?;
    let chat = setup::chat(experiment)?;
    let tools = setup::tools(experiment)?;
    let scorers = setup::scorers(experiment);
    let mut prompts = setup::train_prompts(experiment, &chat, &tools)?;
    let val = setup::val_prompts(experiment, &chat, &tools)?;
    let actor = setup::actor(experiment, device)?;
    let critic = setup::critic(experiment, device)?;
    setup::check_vocabulary(&chat, actor.config())?;
    let probe = Probe::load(experiment, &chat, &tools, device)?;
    let total_steps = experiment.trainer.total_training_steps.unwrap_or_else(|| {
        prompts.batches_per_epoch() * u64::from(experiment.trainer.total_epochs)
    });
    if total_steps == 0 && !experiment.trainer.val_only {
        return Err(Failure::Input(
            "there is nothing to train: trainer.total_training_steps is 0".to_owned(),
        ));
    }
    let config = Arc::clone(actor.config());
    let mut learner =
        Learner::new(Arc::clone(experiment), actor, critic, total_steps).map_err(Failure::run)?;
    let is_fork = resume.is_some_and(|resume| resume.is_fork);
    let counters = resume
        .and_then(|resume| resume.checkpoint.as_ref())
        .map(|path| {
            let restored = if is_fork {
                learner.start_from(path)
            } else {
                learner.restore(path)
            };
            restored.map_err(Failure::input)
        })
        .transpose()?;
    if let Some(path) = resume.and_then(|resume| resume.checkpoint.as_ref()) {
        checkpoint::check_tokenizer(path, chat.tokenizer()).map_err(Failure::input)?;
    }
    let start = counters.as_ref().map_or(0, |counters| counters.step);
    if start > 0 && start >= total_steps && !experiment.trainer.val_only {
        return Err(Failure::nothing_left(start, total_steps));
    }
    let mut cursor = counters
        .as_ref()
        .and_then(|counters| counters.cursor.clone());
    let mode = counters
        .as_ref()
        .filter(|_| !is_fork)
        .and_then(|counters| counters.mode)
        .unwrap_or(experiment.trainer.mode);
    let mut other_data = None;
    if let Some(saved) = cursor.clone()
        && let Err(error) = prompts.rewind(saved)
    {
        if !is_fork {
            return Err(Failure::input(error));
        }
        // Another run may train on other data; it begins at their start.
        other_data = Some(error.to_string());
        cursor = None;
    }
    recorder.record(EventKind::RunStarted {
        experiment_name: experiment.trainer.experiment_name.clone(),
        mode: mode_name(mode).to_owned(),
        total_steps: if experiment.trainer.val_only {
            0
        } else {
            total_steps
        },
        parameters: config.num_parameters() as u64,
        pid: std::process::id(),
        host: runlog::run_dir::host_name(),
        seed: experiment.trainer.seed,
    });

    if let Some(resume) = resume {
        recorder.record(resume.event(run_dir));
    }
    if let Some(reason) = other_data {
        recorder.record(EventKind::Alarm {
            name: "data begin anew".to_owned(),
            step: Some(start),
            message: format!("{reason}; the data begin at their start"),
        });
    }

    let rollout = &experiment.actor_rollout_ref.rollout;
    let weights = learner.actor().model.parameters();
    let engine_kind = rollout.dtype.map_or(weights.kind(), kind_of);
    let active = WeightBuffer::from_parameters(weights, engine_kind, device);
    let spare = WeightBuffer::new(&config, engine_kind, device);
    let canary_ids = setup::canary_ids(&config);
    let tokenizer = Arc::clone(chat.tokenizer());
    let decoder = Arc::clone(&tokenizer);
    let engine = Engine::start(
        active,
        start,
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
                decoder.decode(ids, false).unwrap_or_default()
            })),
            ..EngineOptions::new(&config)
        },
    )
    .map_err(Failure::run)?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("rollouts")
        .build()
        .map_err(Failure::run)?;
    let (spare_send, spare_receive) = std_mpsc::channel();
    spare_send.send(spare).expect("the receiver is in scope");
    let val_only = experiment.trainer.val_only;
    let sampled_steps = if val_only { 0 } else { total_steps };
    let (changed, remembered) = counters
        .filter(|_| !is_fork)
        .map(|counters| (counters.knobs, Some(counters.guards)))
        .unwrap_or_default();
    let draw = Draw {
        temperature: changed
            .get(TEMPERATURE)
            .copied()
            .unwrap_or(rollout.temperature),
        staleness: changed
            .get(STALENESS)
            .map_or(u64::from(staleness(experiment)), |value| *value as u64),
    };
    let knobs = Arc::new(RolloutKnobs::resumed(draw, start, sampled_steps));
    knobs.set_takes_newest(matches!(mode, Mode::Async | Mode::Auto));
    // Batches that wait for the learner. Never full: `Admission` begins no more than this, whatever the bound is set to.
    let (batches, mut ready) = mpsc::channel::<Sampled>(MAX_STALENESS as usize + 1);
    // One spare buffer, so at most one delivery is under way; the second place keeps the learner from waiting to hand it over.
    let (deliveries, arrivals) = mpsc::channel(2);
    let mut publisher = Publisher::new(spare_receive, canary_ids.clone());
    let (evaluated, mut evaluations) = mpsc::unbounded_channel();
    let sampler = Sampler::new(SamplerParts {
        evaluated,
        experiment: Arc::clone(experiment),
        chat,
        tools,
        scorers,
        engine: engine.handle(),
        prompts,
        val,
        receiver: Receiver::new(spare_send, canary_ids, threads),
        recorder: recorder.clone(),
        held: Held {
            version: start,
            rewinds: 0,
        },
        knobs: Arc::clone(&knobs),
        is_evaluated: resume.is_some_and(|resume| resume.is_evaluated),
        total_steps: sampled_steps,
    });
    let mut training = Training {
        learner,
        experiment,
        run_dir,
        recorder,
        rollouts: knobs,
        trained: start,
        cursor,
        changed,
        mode,
        probe,
        guards: Acting::new(Guards::new(
            &experiment.trainer.guards,
            experiment.trainer.critic_warmup,
        )),
        stop,
        saver: Saver::start(SaverParts {
            run_dir: run_dir.clone(),
            recorder: recorder.clone(),
            experiment: Arc::clone(experiment),
            tokenizer,
            tokenizer_files: setup::tokenizer_directory(experiment),
            compute: kinds(&experiment.actor_rollout_ref.actor.fsdp_config).1,
        })
        .map_err(Failure::run)?,
        sample_ids: vec![setup::canary_ids(&config)],
        save_wait: Duration::ZERO,
        dropped: Dropped::default(),
    };
    match remembered {
        Some(remembered) => {
            training.guards.recall(remembered);
            let log = runlog::open::open(run_dir).map_err(Failure::run)?.state;
            training.guards.guards().recall_alarms(&log, start);
        }
        None => {
            if let Some(probe) = &training.probe {
                let perplexity = probe.perplexity(training.learner.actor())?;
                training.guards_begin(PROBE_METRIC, perplexity);
            }
        }
    }
    if let Some(armed) = training.guards.guards().armed(start).filter(|_| !val_only) {
        recorder.record(armed);
    }
    let may_roll_back = experiment.trainer.guards.iter().any(Guard::may_roll_back);
    if may_roll_back && start == 0 && sampled_steps > 0 {
        // Trouble may begin before the first checkpoint is due; a failure is an alarm already.
        training.begin_checkpoint();
    }
    control.ready(&mut training, sampled_steps);
    if start > 0 {
        control.trained(start);
    }
    recorder.record(EventKind::PhaseChanged {
        phase: Phase::Train,
    });
    let mut rollout_side = runtime.spawn(sampler.run(batches, arrivals));

    let mut advising = Advising::new(experiment, draw.staleness);
    let mut learner_result = Ok(());
    // Rewinds of the weights that the rollout side was given last.
    let mut published_rewinds = 0;
    while training.trained < sampled_steps {
        let waited = next_batch(control, &mut training, &mut ready, stop, published_rewinds);
        let mut timed = None;
        match runtime.block_on(waited) {
            Waited::Batch(sampled, waited_ms) => {
                control.trains(sampled.step);
                let staleness = sampled.draw.staleness;
                let generate_s = sampled.timing.generate_s;
                let began = Instant::now();
                let ended = match training.train(*sampled, waited_ms) {
                    Ok(ended) => ended,
                    Err(failure) => {
                        learner_result = Err(failure);
                        break;
                    }
                };
                timed = Some(Timed {
                    staleness,
                    generate_s,
                    waited: Duration::from_secs_f64(waited_ms.max(0.0) / 1e3),
                    trained: began.elapsed(),
                });
                while let Ok(evaluation) = evaluations.try_recv() {
                    training.guards_see(&evaluation, None);
                }
                training.guards_see(&ended, Some(staleness));
                control.look(&mut training);
                let trained = training.trained;
                control.trained(trained);
                stop.trained(trained);
                let due = experiment.trainer.save_freq > 0
                    && trained.is_multiple_of(experiment.trainer.save_freq as u64);
                if due && trained < total_steps {
                    training.begin_checkpoint();
                }
            }
            Waited::Rewound => {}
            Waited::Over => break,
        }
        let trained = training.trained;
        let rewinds = training.rollouts.rewinds();
        let step_ended = Instant::now();
        let span = recorder.span(Lane::WeightSync, "publish", Some(trained));
        let published = publisher.publish(&training.learner.actor().model, trained, step_ended);
        span.end();
        match published {
            Ok(mut delivery) => {
                delivery.rewinds = rewinds;
                published_rewinds = rewinds;
                if deliveries.blocking_send(delivery).is_err() {
                    break;
                }
            }
            Err(error) => {
                learner_result = Err(Failure::run(error));
                break;
            }
        }
        if let Some(mut timed) = timed {
            timed.trained += step_ended.elapsed();
            advising.after(timed, training.holds_staleness(), &mut training);
        }
    }
    advising.conclude(&training);
    let trained = training.trained;
    control.finish(trained, no_more_steps(stop, val_only, &learner_result));
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
    let is_stopped = early.is_none() && stop.is_asked() && trained < total_steps;
    if early.is_none() && (is_stopped || learner_result.is_err()) {
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
    runtime.shutdown_background();
    engine.shutdown();
    // Also after a failure: what was learned until then is worth keeping.
    let saved = if !val_only && (trained > 0 || is_stopped) {
        training.checkpoint().map(drop)
    } else {
        Ok(())
    };
    learner_result?;
    rollout_result?;
    saved.map_err(|error| {
        Failure::Run(format!(
            "step {trained} is trained, and its weights are lost: {error}"
        ))
    })?;
    control.ended(trained);
    Ok(if is_stopped {
        Ended::Stopped { steps: trained }
    } else if val_only {
        Ended::Evaluated
    } else {
        Ended::Completed { steps: trained }
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

/// Policy versions that a batch may lag, as the experiment says.
pub fn staleness(experiment: &Experiment) -> u32 {
    match experiment.trainer.mode {
        Mode::Sync | Mode::Auto => 0,
        Mode::OneStepOff | Mode::Async => experiment.trainer.max_staleness.unwrap_or(1),
    }
}

/// What the learner waited for.
enum Waited {
    /// With the time it was waited for, ms.
    Batch(Box<Sampled>, f64),
    /// It went back to older weights, which the rollout side has not been given.
    Rewound,
    /// Asked to stop, or the rollout side ended; its own result says why.
    Over,
}

/// Waits for the next batch, and follows commands meanwhile. Batches from before a rewind are dropped.
async fn next_batch(
    control: &mut Control,
    training: &mut Training<'_>,
    ready: &mut mpsc::Receiver<Sampled>,
    stop: &Stop,
    published_rewinds: u64,
) -> Waited {
    let mut waited_ms = 0.0;
    loop {
        control.boundary(training).await;
        if stop.is_asked() {
            return Waited::Over;
        }
        if training.rollouts.rewinds() != published_rewinds {
            return Waited::Rewound;
        }
        let step = training.trained + 1;
        control.waits_for(step);
        let wait = training
            .recorder
            .span(Lane::WaitRollouts, "waiting for rollouts", Some(step));
        let next = tokio::select! {
            biased;
            job = control.next() => Next::Command(job),
            sampled = ready.recv() => Next::Batch(sampled.map(Box::new)),
        };
        waited_ms += wait.end();
        match next {
            Next::Command(Some(job)) => control.apply(job, training),
            Next::Batch(Some(sampled)) if training.rollouts.is_valid(sampled.rewinds) => {
                return Waited::Batch(sampled, waited_ms);
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

/// The words of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "no message".to_owned())
}
