//! What several batches at once are worth: the quickstart's model and prompts, a calculator of which one call in a few takes
//! long, rollouts up to two versions old. The same with one batch at a time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use dialogue::generate::BoxFuture;
use dialogue::session::Waits;
use dialogue::tool::calculator::Calculator;
use dialogue::tool::{
    InstanceId, Parameters as Arguments, Tool, ToolClass, ToolClasses, ToolError, ToolKwargs,
    ToolOutcome, ToolRegistry,
};
use runlog::recorder::{Options, Recorder};
use runlog::run_dir::{NewRun, RunDir};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind};
use tokio::sync::mpsc;
use trainer::control::{Draw, Held, MAX_STALENESS, RolloutKnobs};
use trainer::engine::{Engine, EngineOptions, WeightBuffer};
use trainer::model::transformer::Transformer;
use trainer::rollouts::{Dialogues, Sampler, SamplerParts};
use trainer::setup;
use trainer::sync::{Publisher, Receiver};

use crate::training::runtime;

const STALENESS: u64 = 2;
/// One call in so many is slow.
const ONE_IN: u64 = 64;
const SLOW: Duration = Duration::from_millis(1500);
/// What a step of the learner takes, without computing anything: the engine has its processor for itself either way.
const TRAINS: Duration = Duration::from_millis(250);
/// At least; and until as many batches are in flight as may be.
const WARM_UP: u64 = 4;
const MEASURED: u64 = 24;

/// Wall time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Drawing {
    pub tokens_per_s: f64,
    /// Share of the time that the learner waited.
    bubble: f64,
    /// Mean versions that a batch's oldest token lagged, and the most.
    mean_lag: f64,
    most_lag: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Overlap {
    one: Drawing,
    several: Drawing,
}

impl fmt::Display for Overlap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { one, several } = self;
        write!(
            formatter,
            "async, staleness {STALENESS}, one tool call in {ONE_IN} takes {:.1} s: {:.0} tokens a second, the learner waits {:.0} % of the time, lag {:.1} (most {}); one batch at a time {:.0}, {:.0} %, {:.1} ({}): {:.2}x (wall)",
            SLOW.as_secs_f64(),
            several.tokens_per_s,
            100.0 * several.bubble,
            several.mean_lag,
            several.most_lag,
            one.tokens_per_s,
            100.0 * one.bubble,
            one.mean_lag,
            one.most_lag,
            several.tokens_per_s / one.tokens_per_s
        )
    }
}

/// How batches are drawn.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub batches_at_once: usize,
    pub staleness: u64,
    /// No dialogue goes on before all have their tools' answers.
    pub lockstep: bool,
    /// One call in so many takes `slow`.
    pub one_in: u64,
    pub slow: Duration,
    /// What a step of the learner takes.
    pub trains: Duration,
    pub measured: u64,
}

/// Answers right, now and then late.
#[derive(Debug)]
struct Slow {
    one_in: u64,
    takes: Duration,
    calls: AtomicU64,
    calculator: Calculator,
}

impl Tool for Slow {
    fn execute<'a>(
        &'a self,
        instance: &'a InstanceId,
        arguments: &'a Arguments,
        kwargs: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<ToolOutcome, ToolError>> {
        Box::pin(async move {
            if self
                .calls
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(self.one_in)
                && !self.takes.is_zero()
            {
                tokio::time::sleep(self.takes).await;
            }
            self.calculator.execute(instance, arguments, kwargs).await
        })
    }
}

pub fn measure() -> anyhow::Result<Overlap> {
    tch::set_num_threads(1);
    let plan = Plan {
        batches_at_once: 1,
        staleness: STALENESS,
        lockstep: false,
        one_in: ONE_IN,
        slow: SLOW,
        trains: TRAINS,
        measured: MEASURED,
    };
    Ok(Overlap {
        one: draw(plan)?,
        several: draw(Plan {
            batches_at_once: MAX_STALENESS as usize + 1,
            ..plan
        })?,
    })
}

/// Draws the quickstart's batches, with a tool that is late as planned.
pub fn draw(plan: Plan) -> anyhow::Result<Drawing> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let at = |path: &str| -> PathBuf { home.join(path) };
    let warm_up = WARM_UP.max(plan.staleness + 2);
    let steps = warm_up + plan.measured;
    let overrides = [
        format!(
            "data.train_files=[\"{}\"]",
            at("datasets/calc-train.parquet").display()
        ),
        "data.val_files=[]".to_owned(),
        format!(
            "actor_rollout_ref.model.path=\"{}\"",
            at("experiments/models/calc-tiny").display()
        ),
        format!(
            "trainer.mode={}",
            if plan.lockstep { "sync" } else { "async" }
        ),
        format!("trainer.max_staleness={}", plan.staleness),
        format!(
            "actor_rollout_ref.rollout.full_determinism={}",
            plan.lockstep
        ),
        format!("trainer.total_training_steps={steps}"),
        "trainer.test_freq=-1".to_owned(),
    ];
    let experiment = experiment::load(&at("experiments/quickstart.yaml"), &overrides)?.experiment;
    let experiment = Arc::new(experiment);
    let mut classes = ToolClasses::default();
    classes.add(
        "calculator",
        ToolClass::new(Some(Calculator::schema()), move |_| {
            Ok(Slow {
                one_in: plan.one_in,
                takes: plan.slow,
                calls: AtomicU64::new(0),
                calculator: Calculator::default(),
            })
        }),
    );
    let tools = ToolRegistry::load(&at("experiments/tools/calculator.yaml"), &classes)?;
    let folder = std::env::temp_dir().join(format!("lathe-bench-{}", std::process::id()));
    let mut run_dir = RunDir::create(&folder, &NewRun::default())?;
    let recorder = Recorder::start(&mut run_dir, Options::default())?;

    let chat = setup::chat(&experiment)?;
    let prompts = setup::train_prompts(&experiment, &chat, &tools)?;
    let actor = setup::actor(&experiment, Device::Cpu)?;
    let config = Arc::clone(actor.config());
    let engine = Engine::start(
        WeightBuffer::from_parameters(&actor, Kind::Float, Device::Cpu),
        0,
        EngineOptions {
            eos_token_ids: chat.stop_ids().to_vec(),
            lockstep: plan.lockstep,
            ..EngineOptions::new(&config)
        },
    )?;
    let model = Transformer::new(actor, Kind::Float, false);
    let (spare, spare_receive) = std_mpsc::channel();
    spare
        .send(WeightBuffer::new(&config, Kind::Float, Device::Cpu))
        .expect("the receiver is in scope");
    let canary_ids = setup::canary_ids(&config);
    let mut publisher = Publisher::new(spare_receive, canary_ids.clone());
    let draw = Draw {
        temperature: 1.0,
        staleness: plan.staleness,
    };
    let knobs = Arc::new(RolloutKnobs::new(draw, steps));
    knobs.set_takes_newest(!plan.lockstep);
    let sampler = Sampler::new(SamplerParts {
        dialogues: Dialogues {
            scorers: setup::scorers(&experiment)?,
            chat,
            tools,
            prompts,
            val: None,
        },
        experiment,
        engine: engine.handle(),
        receiver: Receiver::new(spare, canary_ids, 1),
        recorder: recorder.clone(),
        is_evaluated: false,
        answers: None,
        evaluated: mpsc::unbounded_channel().0,
        probing: None,
        waits: Waits::default(),
        held: Held {
            version: 0,
            rewinds: 0,
        },
        knobs,
        total_steps: steps,
        batches_at_once: plan.batches_at_once,
    });
    let runtime = runtime()?;
    let (batches, mut ready) = mpsc::channel(MAX_STALENESS as usize + 1);
    let (deliveries, arrivals) = mpsc::channel(2);
    let side = runtime.spawn(sampler.run(batches, arrivals));
    let (mut tokens, mut waited, mut lags) = (0, Duration::ZERO, Vec::new());
    let mut began = Instant::now();
    for step in 1..=steps {
        if step == warm_up + 1 {
            (tokens, waited) = (0, Duration::ZERO);
            lags.clear();
            began = Instant::now();
        }
        let waits = Instant::now();
        let sampled = ready.blocking_recv().context("the rollout side ended")?;
        waited += waits.elapsed();
        anyhow::ensure!(sampled.step == step, "batches come in order");
        for rollout in &sampled.rollouts {
            tokens += rollout.model_tokens();
        }
        let oldest = sampled
            .rollouts
            .iter()
            .filter_map(|rollout| Some(rollout.version_range()?.0));
        lags.push(step - 1 - oldest.min().unwrap_or(step - 1));
        std::thread::sleep(plan.trains);
        let delivery = publisher.publish(&model, step, Instant::now())?;
        let is_taken = deliveries.blocking_send(delivery).is_ok();
        anyhow::ensure!(is_taken, "the rollout side takes weights to the end");
    }
    let elapsed_s = began.elapsed().as_secs_f64();
    drop(deliveries);
    runtime.block_on(side)??;
    engine.shutdown();
    recorder.close()?;
    std::fs::remove_dir_all(&folder)?;
    Ok(Drawing {
        tokens_per_s: tokens as f64 / elapsed_s,
        bubble: waited.as_secs_f64() / elapsed_s,
        mean_lag: lags.iter().sum::<u64>() as f64 / lags.len() as f64,
        most_lag: lags.iter().copied().max().unwrap_or(0),
    })
}
