//! The beginning of a run: what its experiment names is loaded, a checkpoint put in, both sides started.
//!
//! What cannot be had is an input error before the run is told to have started.

use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use dialogue::chat::Chat;
use dialogue::data::{Cursor, DataSet};
use experiment::Experiment;
use experiment::guards::Guard;
use experiment::settings::Mode;
use runlog::event::{EventKind, Phase};
use runlog::number::Number;
use runlog::store;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Place, given, staleness};
use crate::checkpoint::{self, Saver, SaverParts};
use crate::choosing::{Choosing, Labels, Probed};
use crate::control::{Control, Draw, Held, MAX_STALENESS, RolloutKnobs};
use crate::engine::{Engine, EngineOptions, TokenDecoder, WeightBuffer};
use crate::failure::Failure;
use crate::guard::{Acting, Guards, PROBE_METRIC, Probe, mode_name};
use crate::learner::{Learner, kind_of, kinds};
use crate::model::config::ModelConfig;
use crate::model::parameters::Parameters;
use crate::resume::Resume;
use crate::rollouts::{Dialogues, Probing, Sampled, Sampler, SamplerParts};
use crate::save::RunCounters;
use crate::setup;
use crate::sync::{Delivery, Publisher, Receiver};
use crate::training::{STALENESS, TEMPERATURE, Training};

/// Both sides of a run and what lies between them.
pub(super) struct Running<'r> {
    pub place: Place<'r>,
    pub training: Training<'r>,
    pub engine: Engine,
    pub runtime: Runtime,
    pub rollout_side: JoinHandle<Result<(), Failure>>,
    /// Tells of waits that last too long.
    pub alarms: JoinHandle<()>,
    /// Batches that wait for the learner.
    pub ready: mpsc::Receiver<Sampled>,
    pub deliveries: mpsc::Sender<Delivery>,
    pub evaluations: mpsc::UnboundedReceiver<EventKind>,
    /// Of the bandit, as they end.
    pub probes: mpsc::UnboundedReceiver<Probed>,
    pub publisher: Publisher,
    /// Steps of the whole run, and those of them that are trained at all: none with `trainer.val_only`.
    pub total_steps: u64,
    pub sampled_steps: u64,
    /// The bound that it begins with.
    pub staleness: u64,
    pub val_only: bool,
}

/// What an experiment names, loaded.
struct Inputs {
    dialogues: Dialogues,
    learner: Learner,
    probe: Option<Probe>,
    /// Prompts of the bandit's probe, which is another.
    bandit_probe: Option<DataSet>,
    choosing: Option<Choosing>,
    labels: Option<Labels>,
    total_steps: u64,
}

impl Inputs {
    fn load(experiment: &Arc<Experiment>) -> Result<Self, Failure> {
        let device = setup::device(experiment)?;
        let chat = setup::chat(experiment)?;
        let tools = setup::tools(experiment)?;
        setup::ready(&tools)?;
        let dialogues = Dialogues {
            prompts: setup::train_prompts(experiment, &chat, &tools)?,
            val: setup::val_prompts(experiment, &chat, &tools)?,
            scorers: setup::scorers(experiment)?,
            chat,
            tools,
        };
        let Dialogues { chat, tools, .. } = &dialogues;
        let actor = setup::actor(experiment, device)?;
        let critic = setup::critic(experiment, device)?;
        setup::check_vocabulary(chat, actor.config())?;
        let probe = Probe::load(experiment, chat, tools, device)?;
        let total_steps = experiment.trainer.total_training_steps.unwrap_or_else(|| {
            dialogues.prompts.batches_per_epoch() * u64::from(experiment.trainer.total_epochs)
        });
        if total_steps == 0 && !experiment.trainer.val_only {
            return Err(Failure::Input(
                "there is nothing to train: trainer.total_training_steps is 0".to_owned(),
            ));
        }
        let bandit_probe = setup::probe_prompts(experiment, chat, tools)?;
        let choosing = Choosing::new(experiment, total_steps).map_err(Failure::input)?;
        let labels = setup::labels(experiment, &dialogues.scorers)?;
        let learner = Learner::new(Arc::clone(experiment), actor, critic, total_steps)
            .map_err(Failure::run)?;
        Ok(Self {
            dialogues,
            learner,
            probe,
            bandit_probe,
            choosing,
            labels,
            total_steps,
        })
    }

    fn weights(&self) -> &Parameters {
        self.learner.actor().model.parameters()
    }
}

/// Where a run begins: at its first step, or at a checkpoint.
struct Start {
    /// Steps trained.
    step: u64,
    cursor: Option<Cursor>,
    mode: Mode,
    /// Of this run's own checkpoint: what was set and seen by then. A fork begins without.
    counters: Option<RunCounters>,
    /// Why the data begin anew, where a fork trains on other data.
    other_data: Option<String>,
    /// What was given anew and is now otherwise than it had been set.
    changes: Vec<EventKind>,
}

impl Start {
    /// Puts the checkpoint of `resume` in, if there is one.
    fn new(
        experiment: &Experiment,
        inputs: &mut Inputs,
        resume: Option<&Resume>,
    ) -> Result<Self, Failure> {
        let is_fork = resume.is_some_and(|resume| resume.is_fork);
        let checkpoint = resume.and_then(|resume| resume.checkpoint.as_ref());
        let mut counters = checkpoint
            .map(|path| {
                let restored = if is_fork {
                    inputs.learner.start_from(path)
                } else {
                    inputs.learner.restore(path)
                };
                restored.map_err(Failure::input)
            })
            .transpose()?;
        if let Some(path) = checkpoint {
            checkpoint::check_tokenizer(path, inputs.dialogues.chat.tokenizer())
                .map_err(Failure::input)?;
        }
        let step = counters.as_ref().map_or(0, |counters| counters.step);
        if step > 0 && step >= inputs.total_steps && !experiment.trainer.val_only {
            return Err(Failure::nothing_left(step, inputs.total_steps));
        }
        if let Some(choosing) = &mut inputs.choosing {
            let saved = counters
                .as_mut()
                .and_then(|counters| counters.choosing.take());
            match saved.filter(|_| !is_fork) {
                Some(saved) => choosing
                    .resume(saved, step)
                    .map_err(|error| Failure::Input(format!("reward.bandit: {error}")))?,
                None => choosing.begin_at(step),
            }
        }
        let mut cursor = counters
            .as_ref()
            .and_then(|counters| counters.cursor.clone());
        let mut other_data = None;
        if let Some(saved) = cursor.clone()
            && let Err(error) = inputs.dialogues.prompts.rewind(saved)
        {
            if !is_fork {
                return Err(Failure::input(error));
            }
            // Another run may train on other data; it begins at their start.
            other_data = Some(error.to_string());
            cursor = None;
        }
        let mut counters = counters.filter(|_| !is_fork);
        let changes = match (&mut counters, resume) {
            (Some(counters), Some(resume)) => {
                given::wins(experiment, &resume.given, &mut inputs.learner, counters)
            }
            _ => Vec::new(),
        };
        Ok(Self {
            step,
            cursor,
            mode: counters
                .as_ref()
                .and_then(|counters| counters.mode)
                .unwrap_or(experiment.trainer.mode),
            counters,
            other_data,
            changes,
        })
    }
}

/// Loads, restores and starts. When it comes back, rollouts are being drawn.
pub(super) fn begin<'r>(
    place: Place<'r>,
    control: &mut Control,
    resume: Option<&Resume>,
) -> Result<Running<'r>, Failure> {
    let Place {
        experiment,
        run_dir,
        recorder,
        stop,
    } = place;
    let threads = experiment.trainer.threads as i32;
    tch::set_num_threads(threads);
    let mut inputs = Inputs::load(experiment)?;
    let Start {
        step: start,
        cursor,
        mode,
        counters,
        other_data,
        changes,
    } = Start::new(experiment, &mut inputs, resume)?;
    let val_only = experiment.trainer.val_only;
    let total_steps = inputs.total_steps;
    let sampled_steps = if val_only { 0 } else { total_steps };
    if resume.is_some() {
        // Of a disk that is full its next writes tell.
        let _ = run_dir.note_total_steps(sampled_steps);
    }
    recorder.record(EventKind::RunStarted {
        experiment_name: experiment.trainer.experiment_name.clone(),
        mode: mode_name(mode).to_owned(),
        total_steps: sampled_steps,
        parameters: inputs.weights().config().num_parameters() as u64,
        pid: std::process::id(),
        host: runlog::run_dir::host_name(),
        seed: experiment.trainer.seed,
    });
    if let Some(resume) = resume {
        recorder.record(resume.event(run_dir));
    }
    for change in changes {
        recorder.record(change);
    }
    if let Some(reason) = other_data {
        recorder.record(EventKind::Alarm {
            name: "data begin anew".to_owned(),
            step: Some(start),
            message: format!("{reason}; the data begin at their start"),
        });
    }

    let rollout = &experiment.actor_rollout_ref.rollout;
    let (changed, remembered) = counters
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

    let weights = inputs.weights();
    let config = Arc::clone(weights.config());
    let engine_kind = rollout.dtype.map_or(weights.kind(), kind_of);
    let active = WeightBuffer::from_parameters(weights, engine_kind, weights.device());
    let spare = WeightBuffer::new(&config, engine_kind, weights.device());
    let canary_ids = setup::canary_ids(&config);
    let chat = &inputs.dialogues.chat;
    let tokenizer = Arc::clone(chat.tokenizer());
    let engine = Engine::start(active, start, engine_options(experiment, &config, chat))
        .map_err(Failure::run)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("rollouts")
        .build()
        .map_err(Failure::run)?;
    let patience = experiment.trainer.wait_alarm_s;
    let patience = patience.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    control.waits().alarm_after(patience);
    let alarms = runtime.spawn(control.alarms_of_waits());
    let (spare_send, spare_receive) = std_mpsc::channel();
    spare_send.send(spare).expect("the receiver is in scope");
    // Batches that wait for the learner. Never full: `Admission` begins no more than this, whatever the bound is set to.
    let (batches, ready) = mpsc::channel::<Sampled>(MAX_STALENESS as usize + 1);
    // One spare buffer, so at most one delivery is under way; the second place keeps the learner from waiting to hand it over.
    let (deliveries, arrivals) = mpsc::channel(2);
    let (evaluated, evaluations) = mpsc::unbounded_channel();
    let (probed, probes) = mpsc::unbounded_channel();
    let sampler = Sampler::new(SamplerParts {
        evaluated,
        probing: inputs.bandit_probe.map(|rows| Probing {
            rows,
            every: u64::from(experiment.reward.bandit.steps_per_pull),
            begins: (inputs.choosing.as_ref()).is_some_and(|choosing| choosing.begins_with(start)),
            probed,
        }),
        experiment: Arc::clone(experiment),
        dialogues: inputs.dialogues,
        engine: engine.handle(),
        receiver: Receiver::new(spare_send, canary_ids.clone(), threads),
        recorder: recorder.clone(),
        waits: control.waits().clone(),
        held: Held {
            version: start,
            rewinds: 0,
        },
        knobs: Arc::clone(&knobs),
        is_evaluated: resume.is_some_and(|resume| resume.is_evaluated),
        answers: (val_only && experiment.trainer.record_rollouts)
            .then(|| store::rollouts_path(run_dir, start)),
        total_steps: sampled_steps,
        batches_at_once: MAX_STALENESS as usize + 1,
    });
    let mut training = Training {
        learner: inputs.learner,
        experiment,
        run_dir,
        recorder,
        rollouts: knobs,
        trained: start,
        cursor,
        changed,
        mode,
        probe: inputs.probe,
        guards: Acting::new(Guards::new(
            &experiment.trainer.guards,
            experiment.trainer.critic_warmup,
        )),
        choosing: inputs.choosing,
        labels: inputs.labels,
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
        waits: control.waits().clone(),
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
                let samples = probe.len() as u64;
                training.guards_begin(PROBE_METRIC, perplexity);
                if val_only {
                    recorder.record(EventKind::EvalEnded {
                        step: start,
                        policy_version: start,
                        samples,
                        values: [(PROBE_METRIC.to_owned(), Number(perplexity))].into(),
                    });
                }
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
    Ok(Running {
        place,
        training,
        engine,
        rollout_side: runtime.spawn(sampler.run(batches, arrivals)),
        alarms,
        runtime,
        ready,
        deliveries,
        evaluations,
        probes,
        publisher: Publisher::new(spare_receive, canary_ids),
        total_steps,
        sampled_steps,
        staleness: draw.staleness,
        val_only,
    })
}

fn engine_options(experiment: &Experiment, config: &ModelConfig, chat: &Chat) -> EngineOptions {
    let rollout = &experiment.actor_rollout_ref.rollout;
    let decoder = Arc::clone(chat.tokenizer());
    EngineOptions {
        max_length_tokens: rollout.max_model_len.map_or(
            (experiment.data.max_prompt_length + experiment.data.max_response_length) as usize,
            |most| most as usize,
        ),
        max_rows: rollout.max_num_seqs as usize,
        threads: experiment.trainer.threads as i32,
        lockstep: rollout.full_determinism,
        eos_token_ids: chat.stop_ids().to_vec(),
        decoder: Some(TokenDecoder::new(move |ids| {
            decoder.decode(ids, false).unwrap_or_default()
        })),
        ..EngineOptions::new(config)
    }
}
