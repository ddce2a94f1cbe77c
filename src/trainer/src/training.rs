//! The learner's side of a run between two waits: one batch trained, its numbers written, checkpoints; and what may be changed
//! there while it runs.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dialogue::data::Cursor;
use dialogue::rollout::{Finish, Rollout};
use dialogue::session::{Owner, Wait, Waits};
use experiment::Experiment;
use experiment::settings::Mode;
use runlog::control::{ArmOrder, CheckpointName, GuardOrder, Knob, RunMode, find_knob};
use runlog::event::{EventKind, Level};
use runlog::number::Number;
use runlog::recorder::Recorder;
use runlog::run_dir::RunDir;
use tokio::sync::mpsc;

use crate::arms;
use crate::checkpoint::{NotSaved, Request, Saver};
use crate::choosing::{self, Choosing, Labels, Probed};
use crate::control::{
    Change, Controlled, Done, Draw, Dropped, LEARNER, RolloutKnobs, Standing, Told,
};
use crate::failure::Failure;
use crate::guard::{Acting, PROBE_METRIC, Probe, mode_name};
use crate::learner::{Learner, StepOutcome};
use crate::rollouts::Sampled;
use crate::run::{panic_text, staleness};
use crate::save;
use crate::stop::Stop;

pub(crate) const TEMPERATURE: &str = "actor_rollout_ref.rollout.temperature";
pub(crate) const STALENESS: &str = "trainer.max_staleness";
/// Between two tries to write the last checkpoint on a full disk.
const ROOM_EVERY: Duration = Duration::from_secs(5);
const SAVE_WAIT: &str = "timing_s/save_checkpoint";

/// Ids of a prompt and of its response in a checkpoint's sample: enough to tell weights apart, and a forward pass of no account.
const SAMPLE_IDS: usize = 12;

/// A learner on its way through a run.
#[derive(Debug)]
pub struct Training<'r> {
    pub learner: Learner,
    pub experiment: &'r Arc<Experiment>,
    pub run_dir: &'r RunDir,
    pub recorder: &'r Recorder,
    pub rollouts: Arc<RolloutKnobs>,
    /// Steps trained; also the version of the weights.
    pub trained: u64,
    /// Rows consumed by the steps trained.
    pub cursor: Option<Cursor>,
    /// Knobs that were set while the run ran: key to value.
    pub changed: BTreeMap<String, f64>,
    /// `trainer.mode`, which may change.
    pub mode: Mode,
    /// Fixed dialogues whose perplexity is recorded.
    pub probe: Option<Probe>,
    pub guards: Acting,
    /// The bandit among the arms of the reward, where one learns.
    pub choosing: Option<Choosing>,
    /// What its arms are held against, where they are rewarded by agreement with people.
    pub labels: Option<Labels>,
    pub stop: &'r Stop,
    pub saver: Saver,
    /// Token ids whose log-probs each checkpoint holds; the first of them always the same.
    pub sample_ids: Vec<Vec<u32>>,
    /// How long the learner stood still for a checkpoint since the last step ended.
    pub save_wait: Duration,
    /// What the learner waits for, told while it does.
    pub waits: Waits,
}

impl Training<'_> {
    /// Counts a batch that is void, by the length of its responses too: long ones are drawn longest and dropped most.
    pub fn drop_batch(&self, sampled: &Sampled) {
        let mut by_length = BTreeMap::<usize, usize>::new();
        let mut dropped = Dropped::default();
        for rollout in &sampled.rollouts {
            dropped.rollouts += 1;
            dropped.tokens += rollout.model_tokens() as u64;
            let within = rollout.response_ids.len().max(1).next_power_of_two();
            *by_length.entry(within).or_default() += 1;
        }
        self.rollouts.dropped(dropped);
        let lengths: Vec<String> = by_length
            .iter()
            .map(|(within, count)| format!("{count} up to {within} tokens"))
            .collect();
        self.recorder.record(EventKind::LogLine {
            level: Level::Warning,
            target: "rollouts".to_owned(),
            message: format!(
                "the batch of step {} is dropped, drawn from weights that were left behind: {}",
                sampled.step,
                lengths.join(", ")
            ),
        });
    }

    /// One batch through the learner. A panic inside libtorch is a failure of the run, with its message.
    /// Gives the event of the step's end, recorded already, and how long the learner was at something else than learning:
    /// it waited for a checkpoint's copy, or computed a guard's probe.
    pub fn train(
        &mut self,
        sampled: Sampled,
        waited_ms: f64,
    ) -> Result<(EventKind, Duration), Failure> {
        let recorder = self.recorder;
        let started_ms = recorder.elapsed_ms();
        let Sampled {
            step,
            mut rollouts,
            timing,
            cursor,
            draw,
            ..
        } = sampled;
        let tokens: usize = rollouts
            .iter()
            .map(|rollout| rollout.prompt_ids.len() + rollout.response_ids.len())
            .sum();
        if let Some(error) = failed_everywhere(&rollouts) {
            return Err(Failure::Run(format!(
                "step {step}: every dialogue failed, the first with: {error}"
            )));
        }
        self.choose(step, draw.staleness, &mut rollouts)?;
        self.learner.drawn_at(draw.temperature);
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            self.learner.step(step, step - 1, rollouts, recorder)
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
        let copied_s = values.0.get(SAVE_WAIT).map_or(0.0, |seconds| seconds.0);
        let mut aside = Duration::from_secs_f64(copied_s.max(0.0));
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
        values.set("async/begun_again", timing.begun_again as f64);
        let dropped = self.rollouts.take_dropped();
        values.set("async/dropped_rollouts", dropped.rollouts as f64);
        values.set("async/dropped_tokens", dropped.tokens as f64);
        if let Some(choosing) = &mut self.choosing {
            let loss = values.0.get("actor/pg_loss").map(|loss| loss.0);
            choosing.trained(step, loss);
            choosing.rows(&mut values);
        }
        let chosen = self.choosing.as_ref().and_then(Choosing::chosen);
        arms::weigh(&self.experiment.reward, chosen, &mut values);
        if let Some(drawn) = timing.groups_per_kept {
            values.set("reward/groups_per_kept", drawn);
        }
        values.set("perf/total_num_tokens", tokens as f64);
        values.set("perf/time_per_step", step_s);
        values.set("perf/throughput", tokens as f64 / step_s.max(1e-9));
        for (name, value) in self.changed_metrics(draw) {
            values.0.entry(name.to_owned()).or_insert(Number(value));
        }
        if let Some(probe) = &self.probe
            && step.is_multiple_of(u64::from(self.experiment.trainer.guard_probe_freq))
        {
            let started = Instant::now();
            values.set(PROBE_METRIC, probe.perplexity(self.learner.actor())?);
            aside += started.elapsed();
        }
        let save_wait = std::mem::take(&mut self.save_wait).as_secs_f64();
        if save_wait > 0.0 {
            let seconds = values.0.entry(SAVE_WAIT.to_owned()).or_default();
            seconds.0 += save_wait;
        }
        if let Some(trained) = &trained {
            self.sample_ids.truncate(1);
            self.sample_ids
                .extend(trained.batch.rollouts.iter().take(2).map(sample_ids));
        }
        if let Some(trained) = &trained
            && self.experiment.trainer.record_rollouts
            && let Err(error) = save::rollouts(trained, step, self.run_dir)
        {
            recorder.record(EventKind::Alarm {
                name: "rollouts not recorded".to_owned(),
                step: Some(step),
                message: error.to_string(),
            });
        }
        let ended = EventKind::StepEnded {
            step,
            policy_version: step,
            values: values.0,
        };
        recorder.record(ended.clone());
        self.trained = step;
        self.cursor = Some(cursor);
        Ok((ended, aside))
    }

    /// The bandit learns what is due before step `step`, whose batch may lag `lag` versions, and chooses the arm that scores it.
    fn choose(&mut self, step: u64, lag: u64, rollouts: &mut [Rollout]) -> Result<(), Failure> {
        let Some(choosing) = &mut self.choosing else {
            return Ok(());
        };
        for event in choosing
            .learn(choosing.limit(step, lag), step - 1)
            .map_err(Failure::run)?
        {
            self.recorder.record(event);
        }
        let context = choosing
            .wants_context()
            .then(|| choosing::context(&self.learner.actor().model, rollouts))
            .transpose()
            .map_err(Failure::run)?;
        let chose = choosing.choose(step, rollouts, context.as_ref());
        if let Some(event) = chose.map_err(Failure::run)? {
            self.recorder.record(event);
        }
        Ok(())
    }

    /// After the last step of a pull that is rewarded by agreement with people: how far its arm agrees with the newest labels.
    pub async fn ask_labels(&mut self) {
        let (Some(choosing), Some(labels)) = (&mut self.choosing, &mut self.labels) else {
            return;
        };
        let Some((arm, weight)) = choosing.ended_at(self.trained) else {
            return;
        };
        let bad = labels.read().unwrap_or_else(|error| vec![error]);
        for error in bad {
            self.recorder.record(EventKind::Alarm {
                name: "labels that cannot be read".to_owned(),
                step: Some(self.trained),
                message: error.to_string(),
            });
        }
        let told = self.waits.enter_part(
            LEARNER,
            format!("arm {arm}, which judges the newest labels"),
        );
        let agreement = labels.agreement(arm, weight).await;
        drop(told);
        if agreement.is_nan() {
            let why = if labels.is_empty() {
                "reward.bandit.label_files hold no labels yet".to_owned()
            } else {
                format!(
                    "it scored none of the newest {} pairs; an arm that compares with a truth needs ground_truth in their rows",
                    labels.len()
                )
            };
            self.recorder.record(EventKind::Alarm {
                name: "nothing to agree with".to_owned(),
                step: Some(self.trained),
                message: format!("the pull of arm {arm} counts for nothing: {why}"),
            });
        }
        choosing.agrees(agreement);
    }

    /// Every step is trained: what the last pulls brought is learned, too.
    pub fn conclude_choosing(&mut self, probes: &mut mpsc::UnboundedReceiver<Probed>) {
        let Some(choosing) = &mut self.choosing else {
            return;
        };
        while let Ok(probed) = probes.try_recv() {
            choosing.take(probed, self.rollouts.rewinds());
        }
        match choosing.learn(self.trained, self.trained) {
            Ok(events) => events.into_iter().for_each(|event| {
                self.recorder.record(event);
            }),
            Err(error) => {
                self.recorder.record(EventKind::Alarm {
                    name: "bandit".to_owned(),
                    step: Some(self.trained),
                    message: error.to_string(),
                });
            }
        }
    }

    /// What every knob that was ever set had in this step, by metric; rates and KL weights are there anyway.
    fn changed_metrics(&self, draw: Draw) -> impl Iterator<Item = (&'static str, f64)> {
        self.changed.iter().filter_map(move |(key, value)| {
            let value = match key.as_str() {
                TEMPERATURE => draw.temperature,
                STALENESS => draw.staleness as f64,
                _ => *value,
            };
            Some((find_knob(key).ok()?.metric, value))
        })
    }

    /// Has a checkpoint of the steps trained written beside what follows. A failure is an alarm, and the run goes on.
    pub fn begin_checkpoint(&mut self) {
        let started = Instant::now();
        let _told = self.waits_for_disk();
        self.save(false, None);
        self.save_wait += started.elapsed();
    }

    /// Writes a checkpoint of the steps trained and waits for it; gives its path inside the run directory. A failure is also
    /// an alarm.
    pub fn checkpoint(&mut self) -> Result<String, String> {
        let started = Instant::now();
        let written = self.save_now();
        self.save_wait += started.elapsed();
        written.map_err(|not| not.message)
    }

    /// The run's last checkpoint. Where the disk has no room for it, it is tried again for as long as `patience`: what was trained
    /// since the one before is lost without it.
    pub fn last_checkpoint(&mut self, patience: Duration) -> Result<String, String> {
        let deadline = Instant::now() + patience;
        loop {
            match self.save_now() {
                Err(not) if not.lacks_room && Instant::now() < deadline => {
                    let what = format!(
                        "room on the disk for the checkpoint of step {}",
                        self.trained
                    );
                    let _told = self
                        .waits
                        .enter(Owner::Part(LEARNER), what, Some(deadline.into()));
                    std::thread::sleep(ROOM_EVERY);
                }
                written => return written.map_err(|not| not.message),
            }
        }
    }

    fn save_now(&mut self) -> Result<String, NotSaved> {
        let _told = self.waits_for_disk();
        self.save(true, None);
        self.saver.wait().expect("one was just written")
    }

    /// Whether the async advisor turns the bound of staleness.
    pub fn is_auto(&self) -> bool {
        self.mode == Mode::Auto
    }

    fn waits_for_disk(&self) -> Wait {
        let what = format!("the checkpoint of step {}", self.trained);
        self.waits.enter_part(LEARNER, what)
    }

    fn save(&mut self, is_awaited: bool, told: Option<Told>) {
        let counters = save::RunCounters {
            step: self.trained,
            kl_controller: *self.learner.controller(),
            kl_loss_controller: Some(*self.learner.loss_controller()),
            knobs: self.changed.clone(),
            cursor: self.cursor.clone(),
            seed: self.experiment.trainer.seed,
            mode: (self.mode != self.experiment.trainer.mode).then_some(self.mode),
            guards: self.guards.save(),
            choosing: self.choosing.as_ref().map(Choosing::save),
        };
        let request = Request {
            capture: self.learner.capture(),
            counters,
            sample_ids: self.sample_ids.clone(),
            is_awaited,
            told,
        };
        self.saver.save(request);
    }

    /// A knob's value; None: this run has no such knob.
    pub(crate) fn knob_value(&mut self, key: &str) -> Option<f64> {
        self.knob(find_knob(key).ok()?).ok()
    }

    /// Gives a knob a value for the run's own reasons.
    pub(crate) fn turn(&mut self, key: &str, value: f64) -> Result<(), String> {
        let knob = find_knob(key).map_err(|error| error.to_string())?;
        self.put(knob, value).map(drop)
    }

    fn put(&mut self, knob: &'static Knob, value: f64) -> Result<Change, String> {
        let change = match knob.key {
            TEMPERATURE => self.rollouts.set_temperature(value)?,
            STALENESS => self.rollouts.set_staleness(value as u64)?,
            key => Change {
                from: std::mem::replace(self.learner.knob(key)?, value),
                from_step: self.trained + 1,
                note: None,
            },
        };
        self.changed.insert(knob.key.to_owned(), value);
        Ok(change)
    }
}

impl Controlled for Training<'_> {
    fn step(&self) -> u64 {
        self.trained
    }

    fn checkpoint(&mut self) -> Result<String, String> {
        Training::checkpoint(self)
    }

    fn begin_checkpoint(&mut self, told: Told) {
        let started = Instant::now();
        let _told = self.waits_for_disk();
        self.save(false, Some(told));
        self.save_wait += started.elapsed();
    }

    fn knob(&mut self, knob: &'static Knob) -> Result<f64, String> {
        match knob.key {
            TEMPERATURE => Ok(self.rollouts.draw().temperature),
            STALENESS => Ok(self.rollouts.draw().staleness as f64),
            key => self.learner.knob(key).copied(),
        }
    }

    fn said(&self, knob: &'static Knob) -> Option<f64> {
        let is_set = self.changed.contains_key(knob.key);
        is_set.then(|| said(self.experiment, knob.key)).flatten()
    }

    fn set(&mut self, knob: &'static Knob, value: f64) -> Result<Change, String> {
        let mut change = self.put(knob, value)?;
        if knob.key == STALENESS {
            change.note = self.end_synchronous_for("a bound that is set");
        }
        Ok(change)
    }

    fn set_mode(&mut self, mode: RunMode, staleness: Option<u64>) -> Result<Done, String> {
        self.change_mode(mode, staleness)
    }

    fn guard(&mut self, name: &str, order: GuardOrder, who: &str) -> Result<Done, String> {
        self.guard_order(name, order, who)
    }

    fn arm(&mut self, order: ArmOrder) -> Result<Done, String> {
        self.arm_order(&order)
    }

    fn roll_back(&mut self, to: CheckpointName) -> Result<Done, String> {
        Ok(Done {
            before: format!("weights of step {}", self.trained),
            after: self.back_to_named(to)?,
            from_step: Some(self.trained + 1),
            ..Done::default()
        })
    }

    fn rest(&mut self) {
        let _told = self.waits_for_disk();
        // What became of the checkpoint under way is in the log.
        drop(self.saver.wait());
    }

    fn standing(&mut self) -> Standing {
        // A bound that was set lets a synchronous run draw ahead, which is no synchronous run.
        let mode = match (self.mode, self.rollouts.draw().staleness) {
            (Mode::Sync, 1..) => Mode::OneStepOff,
            (mode, _) => mode,
        };
        Standing {
            mode: mode_name(mode).to_owned(),
            guards: self.guard_states(),
            arms: self.arm_states(),
            checkpoints: self.checkpoint_states(),
        }
    }
}

/// What an experiment says of a knob.
pub(crate) fn said(experiment: &Experiment, key: &str) -> Option<f64> {
    match key {
        TEMPERATURE => Some(experiment.actor_rollout_ref.rollout.temperature),
        STALENESS => Some(f64::from(staleness(experiment))),
        key => {
            let whole = serde_json::to_value(experiment).ok()?;
            whole
                .pointer(&format!("/{}", key.replace('.', "/")))?
                .as_f64()
        }
    }
}

/// The end of a prompt and the beginning of its response, two ids or more.
fn sample_ids(rollout: &Rollout) -> Vec<u32> {
    let prompt = &rollout.prompt_ids;
    let tail = &prompt[prompt.len().saturating_sub(SAMPLE_IDS)..];
    let head = rollout.response_ids.iter().take(SAMPLE_IDS);
    tail.iter().chain(head).copied().collect()
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
