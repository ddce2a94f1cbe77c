//! Supervised warm-up: next-token loss on the assistant's tokens of demonstrations, before reinforcement learning starts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialogue::chat::{Chat, Demonstration};
use dialogue::data::{DataSet, Need, Options};
use experiment::Experiment;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use runlog::control::Knob;
use runlog::event::{EventKind, Lane, Phase};
use runlog::recorder::Recorder;
use runlog::run_dir::RunDir;
use tch::{Device, Kind, Tensor};

use crate::control::{Change, Control, Controlled};
use crate::failure::Failure;
use crate::learner::metrics::{StepValues, scalar};
use crate::learner::{Trained, kinds};
use crate::model::config::ModelConfig;
use crate::model::packed::PackedBatch;
use crate::model::parameters::Parameters;
use crate::run::Ended;
use crate::stop::Stop;
use crate::{save, setup, torch_ext};

/// Packed tokens of one forward and backward pass: large enough for full matrix speed, small enough for any machine.
const MICRO_TOKENS: usize = 4096;

/// Demonstrations as one packed pass.
#[derive(Debug)]
pub struct SftMicroBatch {
    pub packed: PackedBatch,
    /// `[M]` i64: rows whose hidden state predicts a token to learn.
    source_rows: Tensor,
    /// `[M]` i64
    targets: Tensor,
}

impl SftMicroBatch {
    fn new(demonstrations: &[&Demonstration], device: Device) -> Self {
        let mut packed = PackedBatch::default();
        let (mut source_rows, mut targets) = (Vec::new(), Vec::new());
        for demonstration in demonstrations {
            let rows = packed.push_group(&demonstration.ids, &[]).prompt.clone();
            // The first token has nothing before it to be predicted from.
            for index in 1..demonstration.ids.len() {
                if demonstration.mask[index] {
                    source_rows.push((rows.start + index) as i64 - 1);
                    targets.push(i64::from(demonstration.ids[index]));
                }
            }
        }
        Self {
            packed,
            source_rows: Tensor::from_slice(&source_rows).to_device(device),
            targets: Tensor::from_slice(&targets).to_device(device),
        }
    }

    /// Tokens to learn.
    fn tokens(&self) -> i64 {
        self.targets.size()[0]
    }
}

/// Cuts demonstrations into passes of at most [`MICRO_TOKENS`].
fn micro_batches(demonstrations: &[&Demonstration], device: Device) -> Vec<SftMicroBatch> {
    let mut micros = Vec::new();
    let mut start = 0;
    let mut tokens = 0;
    for (index, demonstration) in demonstrations.iter().enumerate() {
        if index > start && tokens + demonstration.ids.len() > MICRO_TOKENS {
            micros.push(SftMicroBatch::new(&demonstrations[start..index], device));
            start = index;
            tokens = 0;
        }
        tokens += demonstration.ids.len();
    }
    if start < demonstrations.len() {
        micros.push(SftMicroBatch::new(&demonstrations[start..], device));
    }
    micros
}

/// Sum of −ln p over the tokens to learn.
fn loss_sum(
    model: &Trained,
    micro: &SftMicroBatch,
    backward_over: Option<f64>,
) -> Result<f64, Failure> {
    let hidden = model.model.hidden(&micro.packed);
    let logits = model
        .model
        .logits(&hidden.rows.index_select(0, &micro.source_rows));
    let (logprobs, _) =
        torch_ext::token_logprobs(&logits, &micro.targets, 1.0, false).map_err(Failure::run)?;
    let sum = -logprobs.sum(Kind::Float);
    if let Some(tokens) = backward_over {
        (&sum / tokens).backward();
        hidden.backward();
    }
    Ok(scalar(&sum))
}

/// Mean −ln p per token over all `demonstrations`, without gradients.
pub(crate) fn evaluate(
    model: &Trained,
    demonstrations: &[Demonstration],
    device: Device,
) -> Result<f64, Failure> {
    let _no_grad = tch::no_grad_guard();
    let all: Vec<&Demonstration> = demonstrations.iter().collect();
    let (mut sum, mut tokens) = (0.0, 0);
    for micro in micro_batches(&all, device) {
        sum += loss_sum(model, &micro, None)?;
        tokens += micro.tokens();
    }
    Ok(sum / tokens.max(1) as f64)
}

/// What the warm-up works on.
#[derive(Debug)]
pub struct SftInputs {
    pub experiment: Arc<Experiment>,
    pub parameters: Parameters,
    pub train: Vec<Demonstration>,
    pub val: Vec<Demonstration>,
}

/// A supervised phase as its control sees it between two steps.
pub(crate) struct Training {
    pub model: Trained,
    pub trained: u64,
}

impl Training {
    pub fn new(model: Trained) -> Self {
        Self { model, trained: 0 }
    }
}

impl Controlled for Training {
    fn step(&self) -> u64 {
        self.trained
    }

    fn checkpoint(&mut self) -> Result<String, String> {
        Err("a supervised run saves its model when it ends; stop it to have it now".to_owned())
    }

    fn knob(&mut self, knob: &'static Knob) -> Result<f64, String> {
        if knob.key == "sft.optim.lr" {
            Ok(*self.model.peak_lr())
        } else {
            Err("this is a supervised run".to_owned())
        }
    }

    fn set(&mut self, knob: &'static Knob, value: f64) -> Result<Change, String> {
        let from = self.knob(knob)?;
        *self.model.peak_lr() = value;
        Ok(Change {
            from,
            from_step: self.trained + 1,
            note: None,
        })
    }
}

/// Trains and gives the weights back, with the number of steps. Stops early, with what it has, when asked.
pub fn train(
    inputs: SftInputs,
    recorder: &Recorder,
    stop: &Stop,
    control: &mut Control,
) -> Result<(Trained, u64), Failure> {
    let SftInputs {
        experiment,
        parameters,
        train,
        val,
    } = inputs;
    let settings = &experiment.sft;
    let device = parameters.device();
    let (_, compute) = kinds(&experiment.actor_rollout_ref.actor.fsdp_config);
    let model = Trained::new(
        parameters,
        compute,
        experiment
            .actor_rollout_ref
            .model
            .enable_gradient_checkpointing,
        &settings.optim,
        settings.total_training_steps,
    )
    .map_err(Failure::run)?;
    let mut training = Training::new(model);
    control.ready(&mut training, settings.total_training_steps);
    // Only to wait on, while the run is paused.
    let waiting = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(Failure::run)?;
    recorder.record(EventKind::PhaseChanged { phase: Phase::Sft });
    let mut rng = ChaCha8Rng::seed_from_u64(experiment.trainer.seed);
    let mut order: Vec<usize> = Vec::new();
    let mut epoch = 0u64;
    for step in 1..=settings.total_training_steps {
        waiting.block_on(control.boundary(&mut training));
        if stop.is_asked() {
            break;
        }
        control.trains(step);
        let model = &mut training.model;
        let started_ms = recorder.elapsed_ms();
        let mut picked = Vec::new();
        while picked.len() < settings.batch_size as usize {
            if order.is_empty() {
                order = (0..train.len()).collect();
                order.shuffle(&mut rng);
                epoch += 1;
            }
            picked.push(&train[order.pop().expect("refilled above")]);
        }
        let micros = micro_batches(&picked, device);
        let tokens: i64 = micros.iter().map(SftMicroBatch::tokens).sum();
        let span = recorder.span(Lane::ActorUpdate, "supervised update", Some(step));
        model.optimizer.clear_grads().map_err(Failure::run)?;
        let mut loss = 0.0;
        for micro in &micros {
            loss += loss_sum(model, micro, Some(tokens as f64))? / tokens as f64;
        }
        let lr = model.lr(step);
        let outcome = model.optimizer.step(lr).map_err(Failure::run)?;
        span.end();
        if !outcome.grad_norm().is_finite() {
            recorder.record(EventKind::Alarm {
                name: "non-finite gradient".to_owned(),
                step: Some(step),
                message: format!(
                    "the gradient norm is {}; this update was skipped",
                    outcome.grad_norm()
                ),
            });
        }
        let mut values = StepValues::default();
        values.set("train/loss", loss);
        values.set("train/lr", lr);
        values.set("train/grad_norm", outcome.grad_norm());
        values.set("training/epoch", epoch as f64 - 1.0);
        values.set("training/global_step", step as f64);
        values.set(
            "perf/total_num_tokens",
            picked.iter().map(|row| row.ids.len()).sum::<usize>() as f64,
        );
        values.set("timing_s/step", (recorder.elapsed_ms() - started_ms) / 1e3);
        recorder.record(EventKind::StepEnded {
            step,
            policy_version: step,
            values: values.0,
        });
        let due =
            experiment.trainer.test_freq > 0 && step % experiment.trainer.test_freq as u64 == 0;
        if !val.is_empty() && (due || step == settings.total_training_steps) {
            let span = recorder.span(Lane::Eval, "held-out loss", Some(step));
            let mut values = StepValues::default();
            values.set("val/loss", evaluate(model, &val, device)?);
            span.end();
            recorder.record(EventKind::EvalEnded {
                step,
                policy_version: step,
                samples: val.len() as u64,
                values: values.0,
            });
        }
        training.trained = step;
        control.trained(step);
    }
    control.finish(training.trained, "this run trains no further step");
    Ok((training.model, training.trained))
}

/// Demonstrations (`messages` column) of Parquet or JSONL files as token ids, through the rollouts' own tokenisation.
pub fn load_demonstrations(
    files: &[String],
    chat: &Chat,
    tools: &[serde_json::Value],
    max_tokens: usize,
) -> Result<Vec<Demonstration>, Failure> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let data = DataSet::open(
        files,
        &Options {
            need: Need::Demonstrations,
            ..Options::default()
        },
    )
    .map_err(Failure::input)?;
    let mut demonstrations = Vec::new();
    for row in data.scan().map_err(Failure::input)? {
        let row = row.map_err(Failure::input)?;
        let place = format!("{}: row {}", row.place.path.display(), row.place.row);
        let demonstration = chat
            .sft_ids(&row.messages, &row.tool_schemas(tools))
            .map_err(|error| Failure::Input(format!("{place}: {error}")))?;
        if demonstration.ids.len() > max_tokens {
            return Err(Failure::Input(format!(
                "{place}: {} tokens, more than data.max_prompt_length + data.max_response_length = {max_tokens}",
                demonstration.ids.len()
            )));
        }
        demonstrations.push(demonstration);
    }
    Ok(demonstrations)
}

/// The whole warm-up: load, train, save in the Hugging Face layout.
pub fn run(
    experiment: &Arc<Experiment>,
    run_dir: &RunDir,
    recorder: &Recorder,
    stop: &Stop,
    control: &mut Control,
) -> Result<Ended, Failure> {
    recorder.record(EventKind::PhaseChanged {
        phase: Phase::Setup,
    });
    let settings = &experiment.sft;
    tch::set_num_threads(experiment.trainer.threads as i32);
    let device = setup::device(experiment)?;
    let chat = setup::chat(experiment)?;
    let tools = setup::tools(experiment)?.schemas();
    let limit = (experiment.data.max_prompt_length + experiment.data.max_response_length) as usize;
    let train_rows = load_demonstrations(&settings.train_files, &chat, &tools, limit)?;
    if train_rows.is_empty() {
        return Err(Failure::Input(
            "there is nothing to learn from: sft.train_files names no demonstrations".to_owned(),
        ));
    }
    let val = load_demonstrations(&settings.val_files, &chat, &tools, limit)?;
    let parameters = match &settings.init_config {
        Some(path) => {
            let (kind, _) = kinds(&experiment.actor_rollout_ref.actor.fsdp_config);
            let path = Path::new(path);
            // The file or the directory that holds it.
            let directory = if path.ends_with("config.json") {
                path.parent().unwrap_or(Path::new("."))
            } else {
                path
            };
            let config = Arc::new(ModelConfig::load(directory).map_err(Failure::input)?);
            Parameters::random(&config, experiment.trainer.seed, kind, device)
        }
        None => setup::actor(experiment, device)?,
    };
    setup::check_vocabulary(&chat, parameters.config())?;
    recorder.record(EventKind::RunStarted {
        experiment_name: experiment.trainer.experiment_name.clone(),
        mode: "sft".to_owned(),
        total_steps: settings.total_training_steps,
        parameters: parameters.config().num_parameters() as u64,
        pid: std::process::id(),
        host: runlog::run_dir::host_name(),
        seed: experiment.trainer.seed,
    });
    let inputs = SftInputs {
        experiment: Arc::clone(experiment),
        parameters,
        train: train_rows,
        val,
    };
    let (model, steps) = train(inputs, recorder, stop, control)?;
    recorder.record(EventKind::PhaseChanged {
        phase: Phase::Finish,
    });
    let output = settings
        .output_dir
        .as_ref()
        .map_or_else(|| run_dir.checkpoints_dir().join("sft"), PathBuf::from);
    // Whoever reads where it is may be elsewhere.
    let output = std::path::absolute(&output).unwrap_or(output);
    let span = recorder.span(Lane::Checkpoint, "sft", Some(steps));
    let bytes = model.model.parameters().bytes();
    std::fs::create_dir_all(&output)
        .and_then(|()| save::trained(&model, &output, &setup::tokenizer_directory(experiment)))
        .map_err(|error| {
            Failure::Run(format!(
                "cannot save the model in {}: {error}",
                output.display()
            ))
        })?;
    let save_ms = span.end();
    recorder.record(EventKind::CheckpointSaved {
        step: steps,
        path: output.display().to_string(),
        bytes,
        save_ms,
        blocked_ms: save_ms,
    });
    control.ended(steps);
    Ok(
        if stop.is_asked() && steps < settings.total_training_steps {
            Ended::Stopped { steps }
        } else {
            Ended::Completed { steps }
        },
    )
}
