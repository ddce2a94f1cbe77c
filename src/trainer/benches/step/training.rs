//! Whole training steps of a workload, phase by phase: generate, learn, sync.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use dialogue::generate::{Generator, Sampling, SessionId, Turn, TurnRequest};
use dialogue::rollout::{Finish, Rollout};
use experiment::Experiment;
use experiment::settings::{AdvEstimator, Dtype};
use runlog::recorder::{Options, Recorder};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind};
use tokio::runtime::Runtime;
use trainer::engine::{Engine, EngineHandle, EngineOptions, WeightBuffer};
use trainer::learner::Learner;
use trainer::model::parameters::Parameters;
use trainer::setup::canary_ids;
use trainer::sync::{Publisher, Receiver};

use crate::clock::{cpu_s, median, peak_rss_mib};
use crate::objectives;
use crate::workload::{NEW_TOKENS, PROMPT_TOKENS, Workload};

const WARM_UP: u64 = 1;
const MEASURED: u64 = 3;
/// As many as transformers' `generate` is given beside it.
const GENERATE_BATCH: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Grpo,
    /// With a critic of the actor's size and a KL penalty against a frozen reference in the reward.
    Ppo,
}

impl Algorithm {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "grpo" => Some(Self::Grpo),
            "ppo" => Some(Self::Ppo),
            _ => None,
        }
    }
}

/// CPU seconds of a step's phases.
#[derive(Debug, Serialize, Deserialize)]
pub struct Step {
    pub generate_s: f64,
    pub learner_s: f64,
    pub sync_s: f64,
    pub total_s: f64,
    /// Advantages, KL and losses alone; part of `learner_s`.
    pub objectives_s: f64,
    pub generated_per_s: f64,
    pub peak_rss_mib: f64,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:.2} s a step (generate {:.2}, learn {:.2}, sync {:.2}; advantages, KL and losses {:.2} % of it), {:.0} tokens a second of generation, peak {:.0} MiB",
            self.total_s,
            self.generate_s,
            self.learner_s,
            self.sync_s,
            self.objectives_s / self.total_s * 100.0,
            self.generated_per_s,
            self.peak_rss_mib
        )
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Generation {
    pub generated_per_s: f64,
    pub peak_rss_mib: f64,
}

impl fmt::Display for Generation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:.0} tokens a second, {GENERATE_BATCH} different prompts, peak {:.0} MiB",
            self.generated_per_s, self.peak_rss_mib
        )
    }
}

/// The settings of a run with one optimizer step a batch. Everything else is as a run has it by default.
pub fn experiment(workload: &Workload, kind: Kind, algorithm: Algorithm) -> Experiment {
    let mut experiment = Experiment::default();
    experiment.data.train_batch_size = workload.prompts as u32;
    experiment.data.max_prompt_length = *PROMPT_TOKENS.end() as u32;
    experiment.data.max_response_length = NEW_TOKENS;
    let settings = &mut experiment.actor_rollout_ref;
    settings.rollout.n = workload.samples as u32;
    settings.rollout.ignore_eos = true;
    settings.actor.ppo_mini_batch_size = workload.prompts as u32;
    settings.actor.use_dynamic_bsz = true;
    settings.model.enable_gradient_checkpointing = false;
    settings.actor.fsdp_config.model_dtype = match kind {
        Kind::BFloat16 => Dtype::BFloat16,
        _ => Dtype::Float32,
    };
    // The rollout's own log-probs are the old ones: batches are as young as the weights.
    experiment.algorithm.rollout_correction.bypass_mode = true;
    match algorithm {
        Algorithm::Grpo => experiment.algorithm.adv_estimator = AdvEstimator::Grpo,
        Algorithm::Ppo => {
            experiment.algorithm.adv_estimator = AdvEstimator::Gae;
            experiment.algorithm.use_kl_in_reward = true;
            experiment.algorithm.kl_ctrl.kl_coef = 0.05;
        }
    }
    experiment
}

pub fn measure(workload: &Workload, kind: Kind, algorithm: Algorithm) -> anyhow::Result<Step> {
    tch::set_num_threads(1);
    let runtime = runtime()?;
    let recorder = Recorder::with_opener(
        Box::new(|| {
            let file = std::fs::OpenOptions::new().append(true).open("/dev/null")?;
            Ok(Box::new(file))
        }),
        "/dev/null",
        None,
        Options::default(),
        None,
    )?;
    let config = workload.config()?;
    let experiment = Arc::new(experiment(workload, kind, algorithm));
    let actor = Parameters::random(&config, 1, kind, Device::Cpu);
    let engine = start_engine(&actor, &experiment)?;
    let (spare, spare_receive) = mpsc::channel();
    spare
        .send(WeightBuffer::new(&config, kind, Device::Cpu))
        .expect("the receiver is in scope");
    let mut publisher = Publisher::new(spare_receive, canary_ids(&config));
    let receiver = Receiver::new(spare, canary_ids(&config), 1);
    let mut learner = Learner::new(Arc::clone(&experiment), actor, None, WARM_UP + MEASURED)?;
    let sampling = Sampling::for_training(&experiment.actor_rollout_ref.rollout, &[]);

    let mut rows: Vec<[f64; 3]> = Vec::new();
    for step in 1..=WARM_UP + MEASURED {
        let prompts = workload.prompts(workload.prompts, step);
        let start = cpu_s();
        let rollouts = runtime.block_on(sample(
            &engine.handle(),
            &prompts,
            workload.samples,
            step,
            &sampling,
        ))?;
        let generated = cpu_s();
        let outcome = learner.step(step, step - 1, rollouts, &recorder)?;
        anyhow::ensure!(
            outcome.alarms.is_empty() && outcome.trained.is_some(),
            "step {step} did not train as it should: {:?}",
            outcome.alarms
        );
        drop(outcome);
        let learned = cpu_s();
        let delivery = publisher.publish(&learner.actor().model, step, Instant::now())?;
        runtime.block_on(receiver.accept(&engine.handle(), delivery))?;
        let synced = cpu_s();
        if step > WARM_UP {
            rows.push([generated - start, learned - generated, synced - learned]);
        }
    }
    engine.shutdown();
    let of = |pick: fn(&[f64; 3]) -> f64| median(rows.iter().map(pick).collect());
    let generate_s = of(|row| row[0]);
    let tokens = workload.prompts * workload.samples * NEW_TOKENS as usize;
    Ok(Step {
        generate_s,
        learner_s: of(|row| row[1]),
        sync_s: of(|row| row[2]),
        total_s: of(|row| row.iter().sum()),
        objectives_s: objectives::seconds(workload, algorithm)?,
        generated_per_s: tokens as f64 / generate_s,
        peak_rss_mib: peak_rss_mib(),
    })
}

/// Generation alone, of prompts that share nothing.
pub fn measure_generation(workload: &Workload, kind: Kind) -> anyhow::Result<Generation> {
    let runtime = runtime()?;
    let experiment = experiment(workload, kind, Algorithm::Grpo);
    let actor = Parameters::random(&workload.config()?, 1, kind, Device::Cpu);
    let engine = start_engine(&actor, &experiment)?;
    drop(actor);
    let sampling = Sampling::for_training(&experiment.actor_rollout_ref.rollout, &[]);
    let mut spent = Vec::new();
    for step in 1..=WARM_UP + MEASURED {
        let prompts = workload.prompts(GENERATE_BATCH, step);
        let start = cpu_s();
        runtime.block_on(sample(&engine.handle(), &prompts, 1, step, &sampling))?;
        if step > WARM_UP {
            spent.push(cpu_s() - start);
        }
    }
    Ok(Generation {
        generated_per_s: (GENERATE_BATCH * NEW_TOKENS as usize) as f64 / median(spent),
        peak_rss_mib: peak_rss_mib(),
    })
}

pub fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
}

pub fn start_engine(actor: &Parameters, experiment: &Experiment) -> std::io::Result<Engine> {
    Engine::start(
        WeightBuffer::from_parameters(actor, actor.kind(), Device::Cpu),
        0,
        EngineOptions {
            max_length_tokens: (experiment.data.max_prompt_length
                + experiment.data.max_response_length) as usize,
            max_rows: experiment.actor_rollout_ref.rollout.max_num_seqs as usize,
            ..EngineOptions::new(actor.config())
        },
    )
}

/// `samples` rollouts of each prompt, all asked for at once. A rollout's score is its share of even ids.
pub async fn sample(
    engine: &EngineHandle,
    prompts: &[Vec<u32>],
    samples: usize,
    step: u64,
    sampling: &Sampling,
) -> anyhow::Result<Vec<Rollout>> {
    let mut tasks = Vec::new();
    for (row, prompt) in prompts.iter().enumerate() {
        for sample in 0..samples {
            let session = SessionId(step * 1_000_000 + (row * samples + sample) as u64);
            let request = TurnRequest {
                session,
                context_ids: prompt.clone(),
                max_new_tokens: NEW_TOKENS,
                sampling: sampling.clone(),
                seed: session.0,
            };
            let engine = engine.clone();
            engine.open(session);
            tasks.push(tokio::spawn(async move {
                let prompt = request.context_ids.clone();
                let turn = engine.generate(request).await;
                engine.release(session);
                turn.map(|turn| rollout(row, sample, prompt, turn))
            }));
        }
    }
    let mut rollouts = Vec::with_capacity(tasks.len());
    for task in tasks {
        let rollout = task.await??;
        anyhow::ensure!(
            rollout.response_ids.len() == NEW_TOKENS as usize,
            "a sample ended after {} tokens",
            rollout.response_ids.len()
        );
        rollouts.push(rollout);
    }
    Ok(rollouts)
}

fn rollout(row: usize, sample: usize, prompt_ids: Vec<u32>, turn: Turn) -> Rollout {
    let even = turn.token_ids.iter().filter(|id| **id % 2 == 0).count();
    Rollout {
        uid: row.to_string(),
        sample: sample as u32,
        data_source: "bench".to_owned(),
        row_index: row as u64,
        prompt_ids,
        response_mask: vec![true; turn.token_ids.len()],
        score: Some(even as f64 / turn.token_ids.len() as f64),
        response_ids: turn.token_ids,
        behavior_logprobs: turn.logprobs,
        policy_versions: turn.policy_versions,
        messages: Vec::new(),
        assistant_turns: 1,
        tools: Vec::new(),
        finish: Finish::Length,
        error: None,
        score_error: None,
        score_parts: std::collections::BTreeMap::new(),
        says: None,
        generate_ms: 0.0,
        tool_ms: 0.0,
        reward_ms: 0.0,
    }
}
