//! `lathe reward train`: a run that learns a reward model, with the settings of the supervised phase (`sft.*`).
//!
//! Of preferences it minimises −ln σ(r(chosen) − r(rejected) − margin) (Bradley and Terry), of scores (r − score)². A transformer
//! learns step by step, a head on a sentence encoder at once (`head`). What it is on answers that it has not learned from goes into
//! the events, and at the end into `reward.json` of the run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialogue::score::Transcript;
use experiment::Experiment;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use runlog::event::{EventKind, Lane, Level, Phase};
use runlog::recorder::Recorder;
use runlog::run_dir::RunDir;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use super::arm::Models;
use super::beside::Beside;
use super::examples::{self, Examples, Pair, Scored, Sources};
use super::report::{Judged, PairReport, ScoreReport};
use super::{Reader, head, numbers, scores_at};
use crate::control::Control;
use crate::encoder::{self, Encoder, Head};
use crate::failure::Failure;
use crate::learner::metrics::{StepValues, scalar};
use crate::learner::{Trained, kinds};
use crate::model::config::{Head as ModelHead, ModelConfig};
use crate::model::packed::PackedBatch;
use crate::model::parameters::Parameters;
use crate::run::Ended;
use crate::sft::Training;
use crate::stop::Stop;
use crate::{save, setup};

/// Packed tokens of one forward and backward pass.
const MICRO_TOKENS: usize = 4096;
/// On what is held out, in a run that does not say how often (`trainer.test_freq`).
const EVALUATIONS: u64 = 10;
/// In the run's directory.
pub const REPORT: &str = "reward.json";

/// How good the model is that a run has learned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Where the model is.
    pub model: PathBuf,
    pub steps: u64,
    /// Rows that were learned from.
    pub learned_from: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<ScoreReport>,
    /// Of a head on a sentence encoder: the pairs that were learned from, each by a head that has not seen its prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_validated: Option<PairReport>,
    /// Weights of the scorers beside the model (`sft.scorers`), by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scorers: BTreeMap<String, f64>,
}

/// Examples as one packed pass.
struct Micro {
    packed: PackedBatch,
    /// Rows where the numbers are read: of pairs the chosen answer's and the rejected one's, alternating.
    rows: Vec<i64>,
    /// Margins of pairs, or scores; less what scorers beside the model give already.
    asked: Vec<f32>,
    /// That, of pairs.
    beside: Vec<f64>,
}

impl Micro {
    fn of_pairs(pairs: &[&Pair]) -> Self {
        let mut micro = Self {
            packed: PackedBatch::default(),
            rows: Vec::new(),
            asked: Vec::new(),
            beside: Vec::new(),
        };
        for pair in pairs {
            // A prompt must not be empty: where nothing is common, each answer is a prompt of its own.
            if pair.prompt.is_empty() {
                for answer in [&pair.chosen, &pair.rejected] {
                    let rows = &micro.packed.push_group(answer, &[]).prompt;
                    micro.rows.push(rows.end as i64 - 1);
                }
            } else {
                let answers = [pair.chosen.as_slice(), pair.rejected.as_slice()];
                let group = micro.packed.push_group(&pair.prompt, &answers);
                let last = group.branches.iter().map(|rows| rows.end as i64 - 1);
                micro.rows.extend(last);
            }
            micro.asked.push((pair.margin - pair.beside) as f32);
            micro.beside.push(pair.beside);
        }
        micro
    }

    fn of_scored(scored: &[&Scored]) -> Self {
        let mut packed = PackedBatch::default();
        let rows = scored
            .iter()
            .map(|one| packed.push_group(&one.ids, &[]).prompt.end as i64 - 1)
            .collect();
        Self {
            packed,
            rows,
            asked: (scored.iter().map(|one| (one.score - one.beside) as f32)).collect(),
            beside: Vec::new(),
        }
    }
}

/// Cuts items into passes of at most [`MICRO_TOKENS`].
fn cut<'a, T>(
    items: &[&'a T],
    tokens_of: impl Fn(&T) -> usize,
    pass: impl Fn(&[&'a T]) -> Micro,
) -> Vec<Micro> {
    let mut micros = Vec::new();
    let (mut start, mut tokens) = (0, 0);
    for (at, item) in items.iter().enumerate() {
        let own = tokens_of(item);
        if at > start && tokens + own > MICRO_TOKENS {
            micros.push(pass(&items[start..at]));
            (start, tokens) = (at, 0);
        }
        tokens += own;
    }
    if start < items.len() {
        micros.push(pass(&items[start..]));
    }
    micros
}

fn micros(examples: &Examples, picked: &[usize]) -> Vec<Micro> {
    match examples {
        Examples::Pairs(pairs) => {
            let picked: Vec<&Pair> = picked.iter().map(|at| &pairs[*at]).collect();
            let tokens = |pair: &Pair| pair.prompt.len() + pair.chosen.len() + pair.rejected.len();
            cut(&picked, tokens, Micro::of_pairs)
        }
        Examples::Scored(scored) => {
            let picked: Vec<&Scored> = picked.iter().map(|at| &scored[*at]).collect();
            cut(&picked, |one| one.ids.len(), Micro::of_scored)
        }
    }
}

/// What a pass says, and with `backward_over` its share of the gradient of the mean loss of so many items.
struct Passed {
    loss_sum: f64,
    /// As [`Micro::rows`].
    said: Vec<f64>,
}

fn pass(model: &Trained, micro: &Micro, is_pairs: bool, backward_over: Option<f64>) -> Passed {
    let hidden = model.model.hidden(&micro.packed);
    let device = hidden.rows.device();
    let rows = Tensor::from_slice(&micro.rows).to_device(device);
    let said = model.model.values(&hidden.rows.index_select(0, &rows)); // [M] f32
    let asked = Tensor::from_slice(&micro.asked).to_device(device);
    let losses = if is_pairs {
        let both = said.view([-1, 2]);
        let delta = both.select(1, 0) - both.select(1, 1);
        -(delta - &asked).log_sigmoid()
    } else {
        (&said - &asked).square()
    };
    let sum = losses.sum(Kind::Float);
    if let Some(items) = backward_over {
        (&sum / items).backward();
        hidden.backward();
    }
    Passed {
        loss_sum: scalar(&sum),
        said: numbers(&said.detach()),
    }
}

/// How good the model is on these, and its mean loss.
pub(super) enum Measured {
    Pairs(PairReport),
    Scores(ScoreReport),
}

/// What a transformer says of each answer: of pairs the chosen one's number and the rejected one's, alternating.
fn said(model: &Trained, examples: &Examples) -> Vec<f64> {
    let _no_grad = tch::no_grad_guard();
    let all: Vec<usize> = (0..examples.len()).collect();
    let mut said = Vec::new();
    for micro in micros(examples, &all) {
        let rows = scores_at(&model.model, &micro.packed, &micro.rows);
        said.extend(numbers(&rows));
    }
    said
}

/// How good is what was said of these; None: there are none.
pub(super) fn measure(said: &[f64], held_out: &Examples) -> Option<Measured> {
    match held_out {
        Examples::Pairs(pairs) => {
            let judged: Vec<Judged> = pairs
                .iter()
                .zip(said.chunks_exact(2))
                .map(|(pair, said)| Judged {
                    delta: said[0] - said[1] + pair.beside,
                    margin: pair.margin,
                    lengths: pair.lengths,
                    prompt_number: pair.prompt_number,
                })
                .collect();
            PairReport::of(&judged).map(Measured::Pairs)
        }
        Examples::Scored(scored) => {
            let pairs: Vec<(f64, f64)> = said
                .iter()
                .copied()
                .zip(scored)
                .map(|(said, one)| (said + one.beside, one.score))
                .collect();
            ScoreReport::of(&pairs).map(Measured::Scores)
        }
    }
}

pub(super) fn values_of(measured: &Measured) -> StepValues {
    let mut values = StepValues::default();
    match measured {
        Measured::Pairs(report) => {
            values.set("val/loss", report.log_loss);
            values.set("val/accuracy", report.accuracy);
            values.set("val/accuracy/standard_error", report.standard_error);
            values.set("val/calibration_error", report.calibration_error);
            values.set("val/longer_wins", report.longer_wins);
        }
        Measured::Scores(report) => {
            values.set("val/loss", report.rmse.powi(2));
            values.set("val/rmse", report.rmse);
            if let Some(correlation) = report.correlation {
                values.set("val/correlation", correlation);
            }
        }
    }
    values
}

/// What a run has learned.
pub(super) enum Learned {
    Transformer(Box<Trained>),
    Head {
        encoder: Box<Encoder>,
        head: Head,
        /// Of pairs: how good heads are that have not learned from their prompts.
        cross_validated: Option<PairReport>,
    },
}

impl Learned {
    /// As [`said`].
    fn says(&self, examples: &Examples) -> Vec<f64> {
        match self {
            Self::Transformer(model) => said(model, examples),
            Self::Head { encoder, head, .. } => head::says(encoder, head, examples),
        }
    }

    fn cross_validated(&self) -> Option<PairReport> {
        match self {
            Self::Transformer(_) => None,
            Self::Head {
                cross_validated, ..
            } => cross_validated.clone(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Transformer(model) => model.model.parameters().bytes(),
            Self::Head { head, .. } => size_of_val(head.weights.as_slice()) as u64,
        }
    }

    /// In the Hugging Face layout.
    fn save(&self, directory: &Path, experiment: &Experiment) -> Result<(), String> {
        match self {
            Self::Transformer(model) => std::fs::create_dir_all(directory)
                .and_then(|()| {
                    save::trained(model, directory, &setup::tokenizer_directory(experiment))
                })
                .map_err(|error| error.to_string()),
            Self::Head { encoder, head, .. } => encoder
                .save_with_head(directory, head)
                .map_err(|error| error.to_string()),
        }
    }
}

/// Learns, and gives the model back with the number of steps. Stops early, with what it has, when asked.
fn learn(
    experiment: &Experiment,
    parameters: Parameters,
    (train, held_out): (&Examples, &Examples),
    recorder: &Recorder,
    stop: &Stop,
    control: &mut Control,
) -> Result<(Learned, u64), Failure> {
    let settings = &experiment.sft;
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
    let is_pairs = matches!(train, Examples::Pairs(_));
    let mut rng = ChaCha8Rng::seed_from_u64(experiment.trainer.seed);
    let mut order: Vec<usize> = Vec::new();
    let mut epoch = 0_u64;
    let every = match experiment.trainer.test_freq {
        freq if freq > 0 => freq as u64,
        _ => settings.total_training_steps.div_ceil(EVALUATIONS),
    };
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
            picked.push(order.pop().expect("refilled above"));
        }
        let micros = micros(train, &picked);
        let span = recorder.span(Lane::ActorUpdate, "reward model", Some(step));
        model.optimizer.clear_grads().map_err(Failure::run)?;
        let items = picked.len() as f64;
        let (mut loss, mut tokens) = (0.0, 0);
        let mut deltas = Vec::new();
        for micro in &micros {
            let passed = pass(model, micro, is_pairs, Some(items));
            loss += passed.loss_sum / items;
            tokens += micro.packed.len();
            if is_pairs {
                let said = passed.said.chunks_exact(2).zip(&micro.beside);
                deltas.extend(said.map(|(both, beside)| both[0] - both[1] + beside));
            }
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
        if is_pairs {
            let right = deltas.iter().filter(|delta| **delta > 0.0).count();
            values.set("train/accuracy", right as f64 / items);
            values.set("train/delta", deltas.iter().sum::<f64>() / items);
        }
        values.set("train/lr", lr);
        values.set("train/grad_norm", outcome.grad_norm());
        values.set("training/epoch", epoch as f64 - 1.0);
        values.set("training/global_step", step as f64);
        values.set("perf/total_num_tokens", tokens as f64);
        values.set("timing_s/step", (recorder.elapsed_ms() - started_ms) / 1e3);
        recorder.record(EventKind::StepEnded {
            step,
            policy_version: step,
            values: values.0,
        });
        let due = step.is_multiple_of(every);
        if due || step == settings.total_training_steps {
            let span = recorder.span(Lane::Eval, "held-out answers", Some(step));
            let measured = measure(&said(model, held_out), held_out);
            span.end();
            if let Some(measured) = measured {
                recorder.record(EventKind::EvalEnded {
                    step,
                    policy_version: step,
                    samples: held_out.len() as u64,
                    values: values_of(&measured).0,
                });
            }
        }
        training.trained = step;
        control.trained(step);
    }
    control.finish(training.trained, "this run trains no further step");
    let steps = training.trained;
    Ok((Learned::Transformer(Box::new(training.model)), steps))
}

/// The weights that it begins with: random ones of a shape, or a model's under a fresh head; a reward model as it is.
fn start(experiment: &Experiment, device: Device) -> Result<Parameters, Failure> {
    let seed = experiment.trainer.seed;
    if let Some(path) = &experiment.sft.init_config {
        let (kind, _) = kinds(&experiment.actor_rollout_ref.actor.fsdp_config);
        let path = Path::new(path);
        // The file or the directory that holds it.
        let directory = if path.ends_with("config.json") {
            path.parent().unwrap_or(Path::new("."))
        } else {
            path
        };
        let config = ModelConfig::load(directory).map_err(Failure::input)?;
        let config = Arc::new(config.with_head(ModelHead::Reward));
        return Ok(Parameters::random(&config, seed, kind, device));
    }
    let loaded = setup::actor(experiment, device)?;
    Ok(if loaded.config().head == ModelHead::Reward {
        loaded
    } else {
        loaded.under_head(ModelHead::Reward, seed)
    })
}

/// What a run begins with.
enum Begun {
    Transformer(Parameters),
    Encoder(Box<Encoder>),
}

impl Begun {
    fn new(experiment: &Experiment, device: Device) -> Result<Self, Failure> {
        let path = Path::new(&experiment.actor_rollout_ref.model.path);
        if experiment.sft.init_config.is_none() && encoder::is_encoder(path) {
            let (kind, _) = kinds(&experiment.actor_rollout_ref.actor.fsdp_config);
            let encoder = Encoder::load(path, None, kind, device).map_err(Failure::input)?;
            return Ok(Self::Encoder(Box::new(encoder)));
        }
        start(experiment, device).map(Self::Transformer)
    }

    /// How it reads dialogues.
    fn reader(&self, experiment: &Experiment) -> Result<Reader, Failure> {
        match self {
            Self::Transformer(parameters) => {
                let config = parameters.config();
                let chat = setup::chat(experiment)?;
                setup::check_vocabulary(&chat, config)?;
                let data = &experiment.data;
                let limit = (data.max_prompt_length + data.max_response_length) as usize;
                let most = config.max_position_embeddings as usize;
                Ok(Reader::new(chat, limit.min(most)))
            }
            Self::Encoder(encoder) => Ok(Reader::of_encoder(encoder)),
        }
    }

    fn total_steps(&self, experiment: &Experiment) -> u64 {
        match self {
            Self::Transformer(_) => experiment.sft.total_training_steps,
            Self::Encoder(_) => head::STEPS,
        }
    }

    /// Numbers that are learned.
    fn parameters(&self) -> u64 {
        match self {
            Self::Transformer(parameters) => parameters.config().num_parameters() as u64,
            Self::Encoder(encoder) => encoder.dimensions() as u64 + 1,
        }
    }
}

/// The scorers that the experiment names, else those that lie beside the model it begins with.
fn beside(experiment: &Experiment, device: Device) -> Result<Beside, Failure> {
    let settings = &experiment.sft;
    let mut arms = settings.scorers.clone();
    if arms.is_empty() && settings.init_config.is_none() {
        let directory = Path::new(&experiment.actor_rollout_ref.model.path);
        arms = Beside::arms_of(directory).map_err(Failure::input)?;
    }
    Beside::new(&arms, &Models { device }).map_err(Failure::input)
}

/// The whole of it: load, learn, save in the Hugging Face layout, report.
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
    if settings.train_files.is_empty() {
        return Err(Failure::Input(
            "there is nothing to learn from: sft.train_files names no preferences".to_owned(),
        ));
    }
    let begun = Begun::new(experiment, device)?;
    let reader = begun.reader(experiment)?;
    let teacher = |rows: &[dialogue::preferences::Rated]| {
        let scorers = setup::scorers(experiment)?;
        examples::taught(&scorers, rows)
    };
    let mut beside = beside(experiment, device)?;
    let asking = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Failure::run)?;
    let scores = |transcript: &Transcript| {
        (asking.block_on(beside.scores(transcript)))
            .map_err(|(name, error)| format!("sft.scorers: {name} cannot score it: {error}"))
    };
    let sources = Sources {
        reader: &reader,
        teacher: &teacher,
        scores: &scores,
    };
    let mut train = examples::load(&settings.train_files, sources)?;
    let mut held_out = if settings.val_files.is_empty() {
        train.hold_out()
    } else {
        examples::load(&settings.val_files, sources)?
    };
    if std::mem::discriminant(&train) != std::mem::discriminant(&held_out) {
        return Err(Failure::Input(
            "sft.train_files and sft.val_files must both hold preferences, or both scores"
                .to_owned(),
        ));
    }
    if train.is_empty() {
        return Err(Failure::Input(format!(
            "all {} rows are of prompts that are held out; name files in sft.val_files, or add rows",
            held_out.len()
        )));
    }
    if held_out.is_empty() {
        recorder.record(EventKind::LogLine {
            level: Level::Warning,
            target: "reward".to_owned(),
            message: "no prompt is held out: how good the model is will not be known; name files in sft.val_files".to_owned(),
        });
    }
    beside.learn(&train);
    for examples in [&mut train, &mut held_out] {
        beside.weigh(examples);
    }
    recorder.record(EventKind::RunStarted {
        experiment_name: experiment.trainer.experiment_name.clone(),
        mode: "reward".to_owned(),
        total_steps: begun.total_steps(experiment),
        parameters: begun.parameters(),
        pid: std::process::id(),
        host: runlog::run_dir::host_name(),
        seed: experiment.trainer.seed,
    });
    let examples = (&train, &held_out);
    let total_steps = begun.total_steps(experiment);
    let (model, steps) = match begun {
        Begun::Transformer(parameters) => {
            learn(experiment, parameters, examples, recorder, stop, control)?
        }
        Begun::Encoder(encoder) => head::learn(encoder, examples, recorder, stop, control),
    };
    recorder.record(EventKind::PhaseChanged {
        phase: Phase::Finish,
    });
    let output = settings
        .output_dir
        .as_ref()
        .map_or_else(|| run_dir.checkpoints_dir().join("reward"), PathBuf::from);
    // Whoever reads where it is may be elsewhere.
    let output = std::path::absolute(&output).unwrap_or(output);
    let span = recorder.span(Lane::Checkpoint, "reward model", Some(steps));
    let measured = measure(&model.says(&held_out), &held_out);
    let mut report = Report {
        model: output.clone(),
        steps,
        learned_from: train.len() as u64,
        pairs: None,
        scores: None,
        cross_validated: model.cross_validated(),
        scorers: beside.weights(),
    };
    match measured {
        Some(Measured::Pairs(pairs)) => report.pairs = Some(pairs),
        Some(Measured::Scores(scores)) => report.scores = Some(scores),
        None => {}
    }
    model
        .save(&output, experiment)
        .and_then(|()| beside.save(&output).map_err(|error| error.to_string()))
        .and_then(|()| {
            let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
            let path = run_dir.path().join(REPORT);
            std::fs::write(path, text + "\n").map_err(|error| error.to_string())
        })
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
        bytes: model.bytes(),
        save_ms,
        blocked_ms: save_ms,
    });
    control.ended(steps);
    Ok(if stop.is_asked() && steps < total_steps {
        Ended::Stopped { steps }
    } else {
        Ended::Completed { steps }
    })
}
