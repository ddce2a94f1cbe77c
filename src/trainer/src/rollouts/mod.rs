//! The rollout side of a run: batches from the engine, each from weights that the staleness bound allows, with evaluations
//! beside them on their own lane.
//!
//! ```text
//!  begin (admission, room) ─► Flight: sessions open ─► launched ─► drawn ─► handed over, in order ─► learner
//!  delivery ─► swapped in (between batches, or under them with partial rollouts) ─► evaluation
//! ```
//! In mode `async` the next batch begins as soon as admission and the engine have room for it, so that one long dialogue does
//! not leave the engine idle; elsewhere one batch is drawn at a time, from exactly the weights that the bound names.

mod evaluation;
mod flight;
mod observer;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dialogue::chat::Chat;
use dialogue::data::{Cursor, DataSet, PromptSource, Row};
use dialogue::generate::Sampling;
use dialogue::rollout::Rollout;
use dialogue::score::{Scorers, Tried, judge};
use dialogue::session::{Batch, Limits, Prompt, Runner, Wait, Waits};
use dialogue::tool::ToolRegistry;
use experiment::Experiment;
use runlog::event::{EventKind, Lane, Level};
use runlog::recorder::Recorder;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::choosing::Probed;
use crate::control::{Begun, Draw, Held, Intake, RolloutKnobs};
use crate::engine::EngineHandle;
use crate::failure::Failure;
use crate::groups;
use crate::sync::{Delivery, Receiver};
use evaluation::{Asked, Evaluation, IsRecorded};
use flight::Flight;
use observer::Observer;

/// Rows that each arm of the reward is tried on before the first step.
const REHEARSED_ROWS: usize = 4;

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
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Timing {
    pub epoch: u64,
    /// From the first session's start to the last one's end.
    pub generate_s: f64,
    /// Of that, after the batch that ended before it: what it adds to the time of generating.
    pub lane_s: f64,
    /// Summed over rollouts, which score beside each other.
    pub reward_s: f64,
    /// The rollout side waited for weights.
    pub wait_learner_s: f64,
    /// Groups drawn for each one that is trained on, with `filter_groups`.
    pub groups_per_kept: Option<f64>,
    /// Sessions that came to nothing and were begun again.
    pub begun_again: u64,
    /// The engine answered an evaluation meanwhile, which no other step pays for.
    pub beside_evaluation: bool,
}

/// What dialogues are begun from, held with and judged by.
#[derive(Debug)]
pub struct Dialogues {
    pub chat: Chat,
    pub tools: ToolRegistry,
    pub scorers: Scorers,
    pub prompts: PromptSource,
    /// Prompts of the evaluations, if there are any.
    pub val: Option<DataSet>,
}

/// How the bandit's probe is asked.
#[derive(Debug)]
pub struct Probing {
    /// Its prompts.
    pub rows: DataSet,
    /// Versions between two probes; the last of a run and the first after a rewind are probed too.
    pub every: u64,
    /// The first pull begins with the weights of the start, whatever their version is.
    pub begins: bool,
    /// One at a time and a few bytes each: no bound is needed.
    pub probed: mpsc::UnboundedSender<Probed>,
}

#[derive(Debug)]
pub struct SamplerParts {
    pub experiment: Arc<Experiment>,
    pub dialogues: Dialogues,
    pub engine: EngineHandle,
    pub receiver: Receiver,
    pub recorder: Recorder,
    /// What this side waits for, its sessions included, is told there.
    pub waits: Waits,
    /// The weights that the engine starts with.
    pub held: Held,
    /// Temperature and staleness bound, which may change while the run runs.
    pub knobs: Arc<RolloutKnobs>,
    /// The evaluation of those weights is in the log already.
    pub is_evaluated: bool,
    /// Where the dialogues of an evaluation are kept; None: nowhere.
    pub answers: Option<PathBuf>,
    /// Each evaluation's event, for the guards. One every few steps: no bound is needed.
    pub evaluated: mpsc::UnboundedSender<EventKind>,
    /// None: no bandit is rewarded by a probe.
    pub probing: Option<Probing>,
    /// 0: evaluate and end.
    pub total_steps: u64,
    /// Most batches that are drawn at once in mode `async`.
    pub batches_at_once: usize,
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
    /// Batches begun and not handed over, the next step's first.
    flights: VecDeque<Flight>,
    /// What draws for them: which batch it was begun as, and what it gave.
    draws: JoinSet<(Begun, Vec<Rollout>)>,
    evaluation: Option<Evaluation>,
    /// There was one of the val set since a batch was handed over last.
    is_beside_evaluation: bool,
    /// Arrived, and not swapped in yet.
    delivery: Option<Delivery>,
    /// A dialogue ended: there may be room for others.
    room: Arc<Notify>,
    /// When the draw before the next one ended.
    lane_ended: Instant,
    /// False: the data are at their end.
    has_data: bool,
    /// False: the learner sends no more weights.
    is_open: bool,
}

impl Sampler {
    pub fn new(parts: SamplerParts) -> Self {
        let rollout = &parts.experiment.actor_rollout_ref.rollout;
        let dialogues = &parts.dialogues;
        let mut runner = Runner::new(
            Arc::new(parts.engine.clone()),
            Arc::new(dialogues.chat.clone()),
            dialogues.tools.clone(),
            dialogues.scorers.clone(),
            Limits::new(&parts.experiment.data, rollout),
            rollout.agent.default_agent_loop,
        );
        runner.waits = parts.waits.clone();
        Self {
            runner,
            stop_ids: dialogues.chat.stop_ids().to_vec(),
            held: parts.held,
            start: dialogues.prompts.cursor().clone(),
            flights: VecDeque::new(),
            draws: JoinSet::new(),
            evaluation: None,
            is_beside_evaluation: false,
            delivery: None,
            room: Arc::default(),
            lane_ended: Instant::now(),
            has_data: true,
            is_open: true,
            parts,
        }
    }

    /// Samples every batch of the run, then takes the last weights in and evaluates them. Ends early when the learner does.
    pub async fn run(
        mut self,
        batches: mpsc::Sender<Sampled>,
        mut arrivals: mpsc::Receiver<Delivery>,
    ) -> Result<(), Failure> {
        let mut batches = Some(batches);
        if let Some(tried) = self.to_rehearse()? {
            let scorers = self.parts.dialogues.scorers.clone();
            let recorder = &self.parts.recorder;
            recorder.record(EventKind::LogLine {
                level: Level::Info,
                target: "reward".to_owned(),
                message: format!(
                    "every arm of the reward is tried on {} rows before the first step",
                    tried.len()
                ),
            });
            let span = recorder.span(Lane::Reward, "trying the arms", Some(1));
            let found = scorers.rehearse(&tried, &self.parts.waits).await;
            span.end();
            for message in judge(&found).map_err(Failure::Input)? {
                self.parts.recorder.record(EventKind::LogLine {
                    level: Level::Warning,
                    target: "reward".to_owned(),
                    message,
                });
            }
        }
        self.evaluate_start()?;
        loop {
            self.drop_void();
            if !self.hand_over(&mut batches).await {
                break;
            }
            if let Some(delivery) = self.may_swap() {
                self.accept(delivery).await?;
                continue;
            }
            self.follow_rewind()?;
            if self.begin()? {
                continue;
            }
            let has_ended = !self.is_open && self.delivery.is_none();
            if has_ended || self.is_over() {
                break;
            }
            self.next(&mut arrivals).await?;
        }
        // Before the last evaluation, which is no reason to hold tools and sessions.
        self.flights.clear();
        let _wait = self.waits_for("the last evaluation".to_owned());
        match self.evaluation.take() {
            Some(mut evaluation) => evaluation.end().await,
            None => Ok(()),
        }
    }

    /// The first rows, on which every arm of the reward is tried; None where there are no arms.
    fn to_rehearse(&self) -> Result<Option<Vec<Tried>>, Failure> {
        if self.parts.dialogues.scorers.arms().is_none() {
            return Ok(None);
        }
        let data = self.parts.dialogues.prompts.data();
        let mut first = data.indices();
        first.truncate(REHEARSED_ROWS);
        let rows = data.read(&first).map_err(Failure::run)?;
        let tried = rows.into_iter().map(prompt).map(|prompt| Tried {
            data_source: prompt.data_source,
            ground_truth: prompt.ground_truth,
            extra_info: prompt.extra_info,
            messages: prompt.messages,
        });
        Ok(Some(tried.collect()))
    }

    fn evaluate_start(&mut self) -> Result<(), Failure> {
        let (version, is_evaluated) = (self.held.version, self.parts.is_evaluated);
        let settings = &self.parts.experiment.trainer;
        let is_due = match version {
            _ if self.parts.total_steps == 0 => true,
            0 => settings.val_before_train,
            _ => settings.test_freq > 0 && version.is_multiple_of(settings.test_freq as u64),
        };
        // A run that was interrupted between a checkpoint and its evaluation makes up for it. Where the same bits are promised an
        // evaluation runs again beside the first batch, which shares its decode steps, and is not recorded twice.
        let is_asked = is_due && (self.is_exact() || !is_evaluated);
        self.open_evaluation(Asked {
            val: is_asked.then_some(IsRecorded(!is_evaluated)),
            probe: (self.is_probed(self.held) || self.begins_probing())
                && self.parts.total_steps > 0,
        })
    }

    fn begins_probing(&self) -> bool {
        (self.parts.probing.as_ref()).is_some_and(|probing| probing.begins)
    }

    /// Whether the bandit wants to know how good a version is: a pull ends or begins with it.
    fn is_probed(&self, held: Held) -> bool {
        let is_end = |every: u64| held.version.is_multiple_of(every);
        (self.parts.probing.as_ref()).is_some_and(|probing| is_end(probing.every))
            || held.version == self.parts.total_steps
            || held.rewinds != self.held.rewinds
    }

    fn is_exact(&self) -> bool {
        let rollout = &self.parts.experiment.actor_rollout_ref.rollout;
        rollout.full_determinism
    }

    fn intake(&self) -> Intake {
        Intake {
            takes_newest: self.parts.knobs.takes_newest(),
            partial: self.parts.experiment.async_training.partial_rollout,
        }
    }

    /// Batches that are being drawn.
    fn drawing(&self) -> usize {
        let drawing = self.flights.iter().filter(|flight| flight.is_drawing());
        drawing.count()
    }

    /// Drops batches that were begun from weights left behind; the sessions release their tools.
    fn drop_void(&mut self) {
        let (knobs, recorder) = (&self.parts.knobs, &self.parts.recorder);
        let before = self.flights.len();
        self.flights.retain(|flight| {
            let is_valid = knobs.is_valid(flight.begun.rewinds);
            if !is_valid {
                knobs.dropped(flight.lost());
                recorder.record(EventKind::LogLine {
                    level: Level::Warning,
                    target: "rollouts".to_owned(),
                    message: format!(
                        "the batch of step {} is dropped in mid-flight: it was begun from weights that were left behind",
                        flight.begun.batch
                    ),
                });
            }
            is_valid
        });
        if self.flights.len() < before {
            self.lane_ended = Instant::now();
        }
    }

    /// Gives the learner what is drawn, in order. False: it is gone.
    async fn hand_over(&mut self, batches: &mut Option<mpsc::Sender<Sampled>>) -> bool {
        while let Some(front) = self.flights.front_mut()
            && let Some(rollouts) = front.take_drawn()
        {
            let flight = self.flights.pop_front().expect("it is the front");
            for ticket in &flight.tickets {
                self.parts.dialogues.prompts.consumed(ticket);
            }
            let sampled = Sampled {
                step: flight.begun.batch,
                rollouts,
                timing: Timing {
                    beside_evaluation: self.is_beside_evaluation,
                    ..flight.timing
                },
                draw: flight.begun.draw,
                rewinds: flight.begun.rewinds,
                cursor: self.parts.dialogues.prompts.cursor().clone(),
            };
            self.is_beside_evaluation &= self.evaluation.is_some();
            let sender = batches.as_ref().expect("there were data until here");
            if sender.send(sampled).await.is_err() {
                return false;
            }
        }
        if !self.has_data && self.flights.is_empty() {
            // The learner trains what is queued, ends, and drops its end.
            *batches = None;
        }
        true
    }

    /// The weights that are to be swapped in now.
    fn may_swap(&mut self) -> Option<Delivery> {
        // The engine's weights may not change under an evaluation.
        if self.evaluation.is_some() {
            return None;
        }
        let is_needed = !self.has_data || !self.is_open || !self.parts.knobs.is_held(self.held);
        if !self.intake().may_swap(self.drawing(), is_needed) {
            return None;
        }
        self.delivery.take()
    }

    /// Proves a delivery, swaps it in, and evaluates it if it is due.
    async fn accept(&mut self, delivery: Delivery) -> Result<(), Failure> {
        let rewinds = delivery.rewinds;
        let _wait = self.waits_for(format!("weights {} to be swapped in", delivery.version));
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
        let held = Held {
            version: report.version,
            rewinds,
        };
        let is_probed = self.is_probed(held);
        self.held = held;
        let frequency = self.parts.experiment.trainer.test_freq;
        let is_due = frequency > 0 && report.version.is_multiple_of(frequency as u64);
        let is_last = frequency > 0 && report.version == self.parts.total_steps;
        self.open_evaluation(Asked {
            val: (is_due || is_last).then_some(IsRecorded(true)),
            probe: is_probed,
        })
    }

    /// The data go on where a rewind says, once its weights are there.
    fn follow_rewind(&mut self) -> Result<(), Failure> {
        if self.parts.knobs.is_held(self.held)
            && let Some(rewound) = self.parts.knobs.take_rewind()
        {
            let cursor = rewound.cursor.unwrap_or_else(|| self.start.clone());
            self.parts
                .dialogues
                .prompts
                .rewind(cursor)
                .map_err(Failure::run)?;
            self.has_data = true;
        }
        Ok(())
    }

    /// Begins the next batch, if that is allowed and there is room in the engine.
    fn begin(&mut self) -> Result<bool, Failure> {
        let drawing = self.drawing();
        let running: u64 = self.flights.iter().map(Flight::running).sum();
        let rows = self.parts.experiment.actor_rollout_ref.rollout.max_num_seqs;
        let has_room =
            drawing == 0 || (running < u64::from(rows) && drawing < self.parts.batches_at_once);
        let intake = self.intake();
        if !self.has_data || !has_room || !intake.may_begin(drawing, self.delivery.is_some()) {
            return Ok(false);
        }
        let Some(begun) = self.parts.knobs.begin(self.held) else {
            return Ok(false);
        };
        let waited = if drawing == 0 {
            self.lane_ended.elapsed()
        } else {
            Duration::ZERO
        };
        let observer = Observer::new(
            self.parts.recorder.clone(),
            begun.batch,
            self.is_exact(),
            Arc::clone(&self.room),
        );
        let mut flight = Flight::new(begun, &self.parts.experiment, Arc::new(observer), waited);
        if self.open(&mut flight)? {
            self.flights.push_back(flight);
        }
        Ok(true)
    }

    /// Opens the sessions of a flight's next draw. False: the data are at their end, and a step that is not full is none.
    fn open(&mut self, flight: &mut Flight) -> Result<bool, Failure> {
        let Some(batch) = self
            .parts
            .dialogues
            .prompts
            .next_batch()
            .map_err(Failure::run)?
        else {
            self.has_data = false;
            return Ok(false);
        };
        let experiment = &self.parts.experiment;
        let rollout = &experiment.actor_rollout_ref.rollout;
        let (step, number) = (flight.begun.batch, flight.number);
        let prompts: Vec<Arc<Prompt>> = batch
            .rows
            .into_iter()
            .map(|row| Arc::new(prompt(row)))
            .collect();
        let dialogues = prompts.len() as u64 * u64::from(rollout.n);
        let opened = groups::open(
            &self.runner,
            experiment,
            &Batch {
                label: match number {
                    0 => format!("train-{step}"),
                    _ => format!("train-{step}.{number}"),
                },
                prompts,
                samples: rollout.n,
                sampling: Sampling {
                    temperature: flight.begun.draw.temperature,
                    ..Sampling::for_training(rollout, &self.stop_ids)
                },
                seed: rollout.seed,
                // Steps are far fewer than 2^40: no two draws of a run have the same seeds.
                round: step + (number << 40),
                observer: flight.observer.clone(),
            },
        );
        flight.opens(opened, batch.ticket, dialogues);
        Ok(true)
    }

    /// Lets everything run whose sessions are open. Not before there is nothing else to begin: in lockstep the engine then sees
    /// all of it in the same step, whatever the clock says.
    fn launch(&mut self) {
        if let Some(evaluation) = &mut self.evaluation {
            evaluation.launch();
        }
        for flight in &mut self.flights {
            let Some(open) = flight.take_open() else {
                continue;
            };
            let begun = flight.begun;
            let experiment = Arc::clone(&self.parts.experiment);
            let span = self.parts.recorder.span(
                Lane::Generate,
                format!("batch {}", begun.batch),
                Some(begun.batch),
            );
            let run = async move { (begun, open.run(&experiment).await) };
            flight.draws(span, self.draws.spawn(run));
        }
    }

    /// Every batch is begun and handed over, and the last weights are there.
    fn is_over(&self) -> bool {
        let knobs = &self.parts.knobs;
        self.has_data
            && self.flights.is_empty()
            && knobs.next().is_none()
            && knobs.is_held(self.held)
    }

    /// Waits until something has happened.
    async fn next(&mut self, arrivals: &mut mpsc::Receiver<Delivery>) -> Result<(), Failure> {
        self.launch();
        let knobs = Arc::clone(&self.parts.knobs);
        let _waiting = (self.drawing() == 0 && self.delivery.is_none()).then(|| {
            let recorder = &self.parts.recorder;
            let what = match &self.evaluation {
                Some(_) => "the evaluation",
                None => "newer weights",
            };
            (
                self.waits_for(what.to_owned()),
                recorder.span(Lane::WaitLearner, "waiting for weights", knobs.next()),
            )
        });
        tokio::select! {
            biased;
            Some(drawn) = self.draws.join_next() => match drawn {
                Ok((begun, rollouts)) => self.drawn(begun, rollouts)?,
                Err(error) if error.is_cancelled() => {}
                Err(error) => return Err(Failure::Run(format!("drawing a batch ended early: {error}"))),
            },
            ended = Evaluation::end_of(&mut self.evaluation) => {
                self.evaluation = None;
                ended?;
            }
            delivery = arrivals.recv(), if self.is_open && self.delivery.is_none() => {
                self.is_open = delivery.is_some();
                self.delivery = delivery;
            }
            // The bound may have been raised, the mode set, the learner gone back.
            () = knobs.changed() => {}
            () = self.room.notified() => {}
        }
        Ok(())
    }

    /// Until it is dropped, a status says so. The learner decides how long that takes.
    fn waits_for(&self, what: String) -> Wait {
        self.parts.waits.enter_part("rollouts", what)
    }

    /// Takes a draw in.
    fn drawn(&mut self, begun: Begun, rollouts: Vec<Rollout>) -> Result<(), Failure> {
        // One that was dropped meanwhile has nobody to give it to.
        let Some(at) = self.flights.iter().position(|flight| flight.begun == begun) else {
            return Ok(());
        };
        let flight = &mut self.flights[at];
        let (wants_more, alarm) = flight.takes(rollouts, self.lane_ended);
        self.lane_ended = Instant::now();
        if let Some(message) = alarm {
            self.parts.recorder.record(EventKind::Alarm {
                name: "too few groups that teach".to_owned(),
                step: Some(begun.batch),
                message,
            });
        }
        if wants_more {
            let mut flight = self.flights.remove(at).expect("it was found there");
            if self.open(&mut flight)? {
                self.flights.insert(at, flight);
            } else {
                // None after it can be trained either.
                self.flights.truncate(at);
            }
        }
        Ok(())
    }
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
