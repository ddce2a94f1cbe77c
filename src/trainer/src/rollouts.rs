//! The rollout side of a run: batch after batch from the engine, each from the version of the weights that the staleness bound
//! names, with evaluations beside them on their own lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dialogue::chat::Chat;
use dialogue::data::{Cursor, DataSet, PromptSource, Row};
use dialogue::generate::Sampling;
use dialogue::rollout::{Finish, Rollout};
use dialogue::score::Scorers;
use dialogue::session::{Batch, Limits, Prompt, Runner, SessionLabel, SessionObserver};
use dialogue::tool::ToolRegistry;
use experiment::Experiment;
use runlog::event::{EventKind, Lane, Level};
use runlog::number::Number;
use runlog::recorder::Recorder;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::control::{Begun, Draw, Held, RolloutKnobs};
use crate::engine::EngineHandle;
use crate::evaluate;
use crate::failure::Failure;
use crate::groups::{self, Gathered};
use crate::save::finish_name;
use crate::sync::{Delivery, Receiver, SyncReport};

/// Tool calls shorter than this are counted in their rollout and get no span: a calculator would fill the log.
const SHORTEST_TOOL_SPAN_MS: f64 = 5.0;

/// One training batch, ready for the learner.
#[derive(Debug)]
pub struct Sampled {
    /// The step that trains on it; counts from 1.
    pub step: u64,
    pub rollouts: Vec<Rollout>,
    pub timing: Timing,
    /// What it was drawn under.
    pub draw: Draw,
    /// Rewinds of the run before it was begun; void when there was one since.
    pub rewinds: u64,
    /// Where the data stands once this batch is trained on.
    pub cursor: Cursor,
    /// The sync that brought the weights it was drawn from; None for the starting weights.
    pub sync: Option<SyncReport>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Timing {
    pub epoch: u64,
    /// From the first session's start to the last one's end.
    pub generate_s: f64,
    /// Summed over rollouts, which score beside each other.
    pub reward_s: f64,
    /// The rollout side waited for weights.
    pub wait_learner_s: f64,
    /// Groups drawn for each one that is trained on, with `filter_groups`.
    pub groups_per_kept: Option<f64>,
    /// Sessions that came to nothing and were begun again.
    pub begun_again: u64,
}

#[derive(Debug)]
pub struct SamplerParts {
    pub experiment: Arc<Experiment>,
    pub chat: Chat,
    pub tools: ToolRegistry,
    pub scorers: Scorers,
    pub engine: EngineHandle,
    pub prompts: PromptSource,
    pub val: Option<DataSet>,
    pub receiver: Receiver,
    pub recorder: Recorder,
    /// The weights that the engine starts with.
    pub held: Held,
    /// Temperature and staleness bound, which may change while the run runs.
    pub knobs: Arc<RolloutKnobs>,
    /// The evaluation of those weights is in the log already.
    pub is_evaluated: bool,
    /// Each evaluation's event, for the guards. One every few steps: no bound is needed.
    pub evaluated: mpsc::UnboundedSender<EventKind>,
    /// 0: evaluate and end.
    pub total_steps: u64,
}

/// Owns everything that samples.
#[derive(Debug)]
pub struct Sampler {
    runner: Runner,
    stop_ids: Vec<u32>,
    parts: SamplerParts,
    /// What the engine generates from.
    held: Held,
    /// Where the data began.
    start: Cursor,
    evaluation: Option<JoinHandle<()>>,
}

impl Sampler {
    pub fn new(parts: SamplerParts) -> Self {
        let rollout = &parts.experiment.actor_rollout_ref.rollout;
        Self {
            runner: Runner::new(
                Arc::new(parts.engine.clone()),
                Arc::new(parts.chat.clone()),
                parts.tools.clone(),
                parts.scorers.clone(),
                Limits::new(&parts.experiment.data, rollout),
                rollout.agent.default_agent_loop,
            ),
            stop_ids: parts.chat.stop_ids().to_vec(),
            held: parts.held,
            start: parts.prompts.cursor().clone(),
            parts,
            evaluation: None,
        }
    }

    /// Samples every batch of the run, then takes the last weights in and evaluates them. Ends early when the learner does.
    pub async fn run(
        mut self,
        batches: mpsc::Sender<Sampled>,
        mut arrivals: mpsc::Receiver<Delivery>,
    ) -> Result<(), Failure> {
        let (version, is_evaluated) = (self.held.version, self.parts.is_evaluated);
        let settings = &self.parts.experiment.trainer;
        let is_due = match version {
            _ if self.parts.total_steps == 0 => true,
            0 => settings.val_before_train,
            _ => settings.test_freq > 0 && version.is_multiple_of(settings.test_freq as u64),
        };
        // A run that was interrupted between a checkpoint and its evaluation makes up for it. Where the same bits are promised an
        // evaluation runs again beside the first batch, which shares its decode steps, and is not recorded twice.
        let is_exact = self
            .parts
            .experiment
            .actor_rollout_ref
            .rollout
            .full_determinism;
        if is_due && (is_exact || !is_evaluated) {
            self.start_evaluation(!is_evaluated)?;
        }
        loop {
            let waiting = Instant::now();
            let sync = match self.take_in(&mut arrivals).await? {
                TakenIn::Arrived(report) => report,
                TakenIn::LearnerEnded => break,
            };
            if let Some(rewound) = self.parts.knobs.take_rewind() {
                let cursor = rewound.cursor.unwrap_or_else(|| self.start.clone());
                self.parts.prompts.rewind(cursor).map_err(Failure::run)?;
            }
            let Some(begun) = self.parts.knobs.begin(self.held) else {
                if self.parts.knobs.next().is_none() && self.parts.knobs.is_held(self.held) {
                    break;
                }
                continue;
            };
            let wait_learner_s = waiting.elapsed().as_secs_f64();
            match self.sample(begun, &mut arrivals).await? {
                Drawn::Batch(mut sampled) => {
                    sampled.timing.wait_learner_s = wait_learner_s;
                    sampled.sync = sync;
                    if batches.send(*sampled).await.is_err() {
                        break;
                    }
                }
                Drawn::Void => {}
                Drawn::NoMoreData => {
                    // The learner trains what is queued, ends, and drops its end.
                    drop(batches);
                    while let Some(delivery) = arrivals.recv().await {
                        self.accept(delivery).await?;
                    }
                    break;
                }
            }
        }
        self.finish_evaluation().await
    }

    /// Takes deliveries in, one by one, until the engine generates from weights that the next batch may begin from.
    async fn take_in(
        &mut self,
        arrivals: &mut mpsc::Receiver<Delivery>,
    ) -> Result<TakenIn, Failure> {
        let mut last = None;
        while !self.parts.knobs.is_held(self.held) {
            let waiting = self.parts.recorder.span(
                Lane::WaitLearner,
                "waiting for weights",
                self.parts.knobs.next(),
            );
            let delivery = tokio::select! {
                delivery = arrivals.recv() => delivery,
                // The bound may have been raised: then there is nothing to wait for.
                () = self.parts.knobs.changed() => continue,
            };
            waiting.end();
            let Some(delivery) = delivery else {
                return Ok(TakenIn::LearnerEnded);
            };
            last = Some(self.accept(delivery).await?);
        }
        // Elsewhere a batch begins from the version that the bound names, so that a run repeats itself.
        while self.is_async()
            && let Ok(delivery) = arrivals.try_recv()
        {
            last = Some(self.accept(delivery).await?);
        }
        Ok(TakenIn::Arrived(last))
    }

    fn is_async(&self) -> bool {
        self.parts.knobs.takes_newest()
    }

    /// Proves a delivery, swaps it in, and evaluates it if it is due.
    async fn accept(&mut self, delivery: Delivery) -> Result<SyncReport, Failure> {
        // The engine's weights may not change under an evaluation.
        self.finish_evaluation().await?;
        let rewinds = delivery.rewinds;
        let span =
            self.parts
                .recorder
                .span(Lane::WeightSync, "prove and swap", Some(delivery.version));
        let report = self
            .parts
            .receiver
            .accept(&self.parts.engine, delivery)
            .await
            .map_err(Failure::run)?;
        span.end();
        self.parts.recorder.record(report.event());
        self.held = Held {
            version: report.version,
            rewinds,
        };
        let frequency = self.parts.experiment.trainer.test_freq;
        let is_due = frequency > 0 && report.version.is_multiple_of(frequency as u64);
        let is_last = frequency > 0 && report.version == self.parts.total_steps;
        if is_due || is_last {
            self.start_evaluation(true)?;
        }
        Ok(report)
    }

    /// One training batch. With `filter_groups` it may take several draws.
    async fn sample(
        &mut self,
        begun: Begun,
        arrivals: &mut mpsc::Receiver<Delivery>,
    ) -> Result<Drawn, Failure> {
        let Some(mut gathered) = Gathered::new(&self.parts.experiment) else {
            return self.draw(begun, 0, arrivals).await;
        };
        let mut timing = Timing::default();
        let mut number = 0;
        let mut last = loop {
            // The data at their end: a step that is not full is none. Void: what was gathered is from weights left behind.
            let drawn = match self.draw(begun, number, arrivals).await? {
                Drawn::Batch(drawn) => drawn,
                nothing @ (Drawn::Void | Drawn::NoMoreData) => return Ok(nothing),
            };
            number += 1;
            timing.generate_s += drawn.timing.generate_s;
            timing.reward_s += drawn.timing.reward_s;
            timing.epoch = drawn.timing.epoch;
            timing.begun_again += drawn.timing.begun_again;
            if !gathered.take(&drawn.rollouts) {
                break drawn;
            }
        };
        let (rollouts, groups_per_kept, alarm) = gathered.finish();
        if let Some(message) = alarm {
            self.parts.recorder.record(EventKind::Alarm {
                name: "too few groups that teach".to_owned(),
                step: Some(begun.batch),
                message,
            });
        }
        timing.groups_per_kept = Some(groups_per_kept);
        last.timing = timing;
        last.rollouts = rollouts;
        Ok(Drawn::Batch(last))
    }

    /// The `number`-th draw for a step, from 0. With partial rollouts, weights that arrive meanwhile are swapped in and its
    /// sessions go on under them.
    async fn draw(
        &mut self,
        begun: Begun,
        number: u64,
        arrivals: &mut mpsc::Receiver<Delivery>,
    ) -> Result<Drawn, Failure> {
        let Some(batch) = self.parts.prompts.next_batch().map_err(Failure::run)? else {
            return Ok(Drawn::NoMoreData);
        };
        self.parts.prompts.consumed(&batch.ticket);
        let step = begun.batch;
        let (experiment, runner) = (Arc::clone(&self.parts.experiment), self.runner.clone());
        let rollout = &experiment.actor_rollout_ref.rollout;
        let is_partial = self.is_async() && experiment.async_training.partial_rollout;
        let label = match number {
            0 => format!("train-{step}"),
            _ => format!("train-{step}.{number}"),
        };
        let span = self
            .parts
            .recorder
            .span(Lane::Generate, format!("batch {step}"), Some(step));
        let observer = Arc::new(Observer {
            recorder: self.parts.recorder.clone(),
            step,
            begun_again: AtomicU64::new(0),
        });
        let generation = groups::sample(
            &runner,
            &experiment,
            Batch {
                label,
                prompts: batch
                    .rows
                    .into_iter()
                    .map(|row| Arc::new(prompt(row)))
                    .collect(),
                samples: rollout.n,
                sampling: Sampling {
                    temperature: begun.draw.temperature,
                    ..Sampling::for_training(rollout, &self.stop_ids)
                },
                seed: rollout.seed,
                // Steps are far fewer than 2^40: no two draws of a run have the same seeds.
                round: step + (number << 40),
                observer: observer.clone(),
            },
        );
        tokio::pin!(generation);
        let knobs = Arc::clone(&self.parts.knobs);
        let mut is_open = true;
        let rollouts = loop {
            if !knobs.is_valid(begun.rewinds) {
                // Dropped with their sessions, the tools are released.
                self.parts.recorder.record(EventKind::LogLine {
                    level: Level::Warning,
                    target: "rollouts".to_owned(),
                    message: format!(
                        "the batch of step {step} is dropped in mid-flight: it was begun from weights that were left behind"
                    ),
                });
                return Ok(Drawn::Void);
            }
            tokio::select! {
                biased;
                rollouts = &mut generation => break rollouts,
                () = knobs.changed() => {}
                delivery = arrivals.recv(), if is_partial && is_open => match delivery {
                    Some(delivery) => {
                        self.accept(delivery).await?;
                    }
                    None => is_open = false,
                },
            }
        };
        let generate_ms = span.end();
        Ok(Drawn::Batch(Box::new(Sampled {
            step,
            timing: Timing {
                epoch: batch.ticket.epoch,
                generate_s: generate_ms / 1e3,
                reward_s: rollouts
                    .iter()
                    .map(|rollout| rollout.reward_ms)
                    .sum::<f64>()
                    / 1e3,
                begun_again: observer.begun_again.load(Ordering::Relaxed),
                ..Timing::default()
            },
            rollouts,
            draw: begun.draw,
            rewinds: begun.rewinds,
            cursor: self.parts.prompts.cursor().clone(),
            sync: None,
        })))
    }

    /// Starts evaluating the engine's version beside whatever else it generates.
    fn start_evaluation(&mut self, is_recorded: bool) -> Result<(), Failure> {
        let Some(val) = &self.parts.val else {
            return Ok(());
        };
        let rows = val
            .scan()
            .map_err(Failure::run)?
            .collect::<Result<Vec<_>, _>>()
            .map_err(Failure::run)?;
        let rollout = &self.parts.experiment.actor_rollout_ref.rollout;
        let version = self.held.version;
        let batch = Batch {
            label: format!("val-{version}"),
            prompts: rows.into_iter().map(|row| Arc::new(prompt(row))).collect(),
            samples: rollout.val_kwargs.n,
            sampling: Sampling::for_evaluation(rollout, &self.stop_ids),
            seed: rollout.seed,
            // A constant: every evaluation draws alike, so that only the weights differ.
            round: 0,
            observer: Arc::new(()),
        };
        let (runner, recorder) = (self.runner.clone(), self.parts.recorder.clone());
        let evaluated = self.parts.evaluated.clone();
        self.evaluation = Some(tokio::spawn(async move {
            let span = recorder.span(Lane::Eval, format!("version {version}"), Some(version));
            let rollouts = runner.run(batch).await;
            let elapsed_s = span.end() / 1e3;
            let cut = rollouts
                .iter()
                .filter(|rollout| rollout.finish == Finish::Aborted)
                .count();
            if cut > 0 {
                // The mean of those that came through would be of the short ones.
                recorder.record(EventKind::Alarm {
                    name: "evaluation cut short".to_owned(),
                    step: Some(version),
                    message: format!(
                        "{cut} of {} dialogues of the evaluation at step {version} were cut short; it has no result",
                        rollouts.len()
                    ),
                });
                return;
            }
            let values = evaluate::values(&rollouts, elapsed_s);
            if !is_recorded {
                return;
            }
            let ended = EventKind::EvalEnded {
                step: version,
                policy_version: version,
                samples: rollouts.len() as u64,
                values,
            };
            recorder.record(ended.clone());
            // The learner may have ended before its last evaluation.
            drop(evaluated.send(ended));
        }));
        Ok(())
    }

    async fn finish_evaluation(&mut self) -> Result<(), Failure> {
        match self.evaluation.take() {
            Some(evaluation) => evaluation
                .await
                .map_err(|error| Failure::Run(format!("the evaluation ended early: {error}"))),
            None => Ok(()),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        if let Some(evaluation) = self.evaluation.take() {
            evaluation.abort();
        }
    }
}

/// What came of a batch that was begun.
enum Drawn {
    Batch(Box<Sampled>),
    /// The learner went back meanwhile.
    Void,
    NoMoreData,
}

enum TakenIn {
    Arrived(Option<SyncReport>),
    LearnerEnded,
}

/// A row as a session needs it.
pub fn prompt(row: Row) -> Prompt {
    Prompt {
        row_index: row.index,
        data_source: row.data_source,
        messages: row.prompt,
        ground_truth: row
            .reward_model
            .map(|model| model.ground_truth)
            .unwrap_or_default(),
        extra_info: serde_json::Value::Object(row.extra_info),
        agent_name: row.agent_name,
        tools_kwargs: Arc::new(row.tools_kwargs),
        tool_selection: row.tool_selection,
    }
}

/// Writes what happens in the sessions of one batch to the run's log.
struct Observer {
    recorder: Recorder,
    step: u64,
    begun_again: AtomicU64,
}

impl Observer {
    fn span(&self, lane: Lane, name: String, start: Instant, end: Instant) {
        let now_ms = self.recorder.elapsed_ms();
        let now = Instant::now();
        let at =
            |instant: Instant| now_ms - now.saturating_duration_since(instant).as_secs_f64() * 1e3;
        self.recorder.record(EventKind::Span {
            lane,
            name,
            step: Some(self.step),
            start_ms: at(start),
            end_ms: at(end),
        });
    }
}

impl SessionObserver for Observer {
    fn on_tool(&self, label: &SessionLabel, tool: &str, start: Instant, end: Instant) {
        if (end - start).as_secs_f64() * 1e3 >= SHORTEST_TOOL_SPAN_MS {
            self.span(
                Lane::Tool,
                format!("{tool} {}/{}", label.uid, label.sample),
                start,
                end,
            );
        }
    }

    fn on_again(&self, label: &SessionLabel, reason: &str) {
        self.begun_again.fetch_add(1, Ordering::Relaxed);
        self.recorder.record(EventKind::LogLine {
            level: Level::Warning,
            target: "rollouts".to_owned(),
            message: format!(
                "step {}: dialogue {}/{} is begun again: {reason}",
                self.step, label.uid, label.sample
            ),
        });
    }

    fn on_end(&self, rollout: &Rollout) {
        let (oldest, newest) = rollout.version_range().unwrap_or_default();
        self.recorder.record(EventKind::RolloutEnded {
            step: self.step,
            uid: rollout.uid.clone(),
            sample: rollout.sample,
            policy_version_min: oldest,
            policy_version_max: newest,
            turns: rollout.assistant_turns,
            tool_calls: rollout.tools.len() as u32,
            response_tokens: rollout.response_ids.len() as u32,
            score: rollout.score.map(Number),
            finish: finish_name(rollout.finish),
        });
    }
}
