//! Commands to the running run: taken from the socket's thread, applied between steps, answered, and written as events.
//!
//! ```text
//!  control.sock ─ server thread ─ queue (bounded) ─► Control ─ at a step boundary ─► Controlled (the run: RL or supervised)
//! ```
//! A boundary is any moment in which the learner computes nothing: also while it waits for rollouts, and while it is paused.
//! Between boundaries commands wait; `status` is told at once from the board. Knows nothing of learners and samplers.

mod admission;
mod advisor;
mod desk;
mod rollout;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use dialogue::session::Waits;
use runlog::control::{
    Applied, ArmOrder, ArmState, Board, CheckpointName, CheckpointState, Command, GuardOrder,
    GuardState, Job, KNOBS, Knob, KnobState, RunMode, Server, Status,
};
use runlog::event::{EventKind, Lane};
use runlog::number::Number;
use runlog::recorder::Recorder;
use runlog::run_dir::RunDir;
use tokio::sync::mpsc;

use crate::stop::Stop;

use desk::{Desk, answer_applied, answer_refused};

pub use admission::{Held, Intake, MAX_STALENESS};
pub use advisor::{Advice, Advisor, Decision, Measured, StepTimes};
pub use rollout::{Begun, Draw, Dropped, RolloutKnobs};
pub(crate) use waiting::LEARNER;
use waiting::wait_state;

/// Commands that may wait for a boundary. Full: the next one is refused, and is told so.
const MAX_WAITING: usize = 64;

/// The alarm of a run that goes on without a control socket.
pub const NO_CONTROL_ALARM: &str = "no live control";

/// A run that can be controlled, as it stands at a step boundary.
pub trait Controlled {
    /// Steps trained.
    fn step(&self) -> u64;

    /// Writes a checkpoint of the steps trained and gives its path inside the run directory.
    fn checkpoint(&mut self) -> Result<String, String>;

    /// The same beside what follows; who asked is told when that is known. What cannot write beside its work does so at once.
    fn begin_checkpoint(&mut self, told: Told) {
        told.tell(self.checkpoint());
    }

    /// A knob's value now, or why this run has none.
    fn knob(&mut self, knob: &'static Knob) -> Result<f64, String>;

    /// What the experiment says of a knob, where that is known: a resumed run begins with what was set before.
    fn said(&self, _knob: &'static Knob) -> Option<f64> {
        None
    }

    /// Gives a knob a value that is in its range.
    fn set(&mut self, knob: &'static Knob, value: f64) -> Result<Change, String>;

    /// Another `trainer.mode`; `staleness` None: as the experiment says.
    fn set_mode(&mut self, _mode: RunMode, _staleness: Option<u64>) -> Result<Done, String> {
        Err("this run has no mode: it draws no rollouts".to_owned())
    }

    /// Something with a guard, or with all; `who` asks.
    fn guard(&mut self, _name: &str, _order: GuardOrder, _who: &str) -> Result<Done, String> {
        Err("this run has no guards".to_owned())
    }

    /// Something with the bandit's arms.
    fn arm(&mut self, _order: ArmOrder) -> Result<Done, String> {
        Err("this run has no bandit: it trains by no reward".to_owned())
    }

    /// Goes back to a checkpoint; steps go on counting.
    fn roll_back(&mut self, _to: CheckpointName) -> Result<Done, String> {
        Err("this run has no checkpoints to go back to".to_owned())
    }

    /// Waits for what still goes on beside the steps: a paused run rests.
    fn rest(&mut self) {}

    /// What a status says beside the knobs.
    fn standing(&mut self) -> Standing {
        Standing::default()
    }
}

/// Somebody who is to be told what became of a checkpoint, by whichever thread knows.
pub struct Told(Box<dyn FnOnce(Result<String, String>) + Send>);

impl Told {
    fn new(told: impl FnOnce(Result<String, String>) + Send + 'static) -> Self {
        Self(Box::new(told))
    }

    /// Its path inside the run directory, or why there is none.
    pub fn tell(self, written: Result<String, String>) {
        (self.0)(written);
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Told")
    }
}

/// What setting a knob did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    pub from: f64,
    /// The first step that is trained with the new value.
    pub from_step: u64,
    /// What else it did.
    pub note: Option<String>,
}

/// What a command did that is about no number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Done {
    pub before: String,
    pub after: String,
    /// The first step that is trained with it.
    pub from_step: Option<u64>,
    /// The last step that it holds for.
    pub until_step: Option<u64>,
    /// What else it did.
    pub note: Option<String>,
}

impl Done {
    fn applied(self, step: u64) -> Applied {
        Applied {
            step,
            from_step: self.from_step,
            before: Some(self.before),
            after: Some(self.after),
            until_step: self.until_step,
            note: self.note,
            ..Applied::default()
        }
    }
}

/// How a run stands.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Standing {
    /// `sync`, `one_step_off`, `async`; empty: none.
    pub mode: String,
    pub guards: Vec<GuardState>,
    /// Of the bandit; empty: there is none.
    pub arms: Vec<ArmState>,
    pub checkpoints: Vec<CheckpointState>,
}

/// What the run is at, for `status` and for "when will it be applied".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    SettingUp,
    /// For the rollouts of this step.
    Waiting(u64),
    Training(u64),
    /// Between this step and the next.
    Ready(u64),
    /// After this step.
    Paused(u64),
    /// No step will be trained any more, and why.
    Finishing(&'static str),
}

impl fmt::Display for Doing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SettingUp => write!(formatter, "setting up"),
            Self::Waiting(step) => write!(formatter, "waiting for the rollouts of step {step}"),
            Self::Training(step) => write!(formatter, "training step {step}"),
            Self::Ready(step) => write!(formatter, "about to go on after step {step}"),
            Self::Paused(step) => write!(formatter, "paused after step {step}"),
            Self::Finishing(_) => write!(formatter, "finishing"),
        }
    }
}

impl Doing {
    /// The step that it is about.
    fn step(self) -> Option<u64> {
        match self {
            Self::Waiting(step) | Self::Training(step) | Self::Ready(step) | Self::Paused(step) => {
                Some(step)
            }
            Self::SettingUp | Self::Finishing(_) => None,
        }
    }

    /// When a command that comes now is applied.
    fn boundary(self) -> String {
        match self {
            Self::SettingUp => "before step 1".to_owned(),
            Self::Training(step) => format!("after step {step}"),
            Self::Waiting(_) | Self::Ready(_) | Self::Paused(_) | Self::Finishing(_) => {
                "now".to_owned()
            }
        }
    }
}

/// The run's end of live control. Dropping it answers whatever still waits, then closes the socket.
#[derive(Debug)]
pub struct Control {
    jobs: mpsc::Receiver<Job>,
    /// Without a server nobody else holds one, and `recv` would end instead of waiting.
    sender: mpsc::Sender<Job>,
    /// `step` commands whose step is not trained yet.
    owed: VecDeque<Job>,
    /// `stop` commands; answered when the run has stopped.
    stopping: Vec<Job>,
    is_paused: bool,
    waits: Waits,
    doing: Arc<Mutex<Doing>>,
    board: Board,
    recorder: Recorder,
    stop: Stop,
    /// Last, so that it goes when every job has been answered.
    server: Option<Server>,
}

impl Control {
    /// Opens the run's socket. A run whose directory can hold none goes on without, and says so in an alarm.
    pub fn start(run_dir: &RunDir, recorder: &Recorder, stop: &Stop) -> Self {
        let mut control = Self::without_socket(recorder, stop);
        control.board.update(|status| {
            run_dir.name().clone_into(&mut status.run);
        });
        let mut desk = Desk {
            sender: control.sender.clone(),
            doing: Arc::clone(&control.doing),
            board: control.board.clone(),
            recorder: recorder.clone(),
            stop: stop.clone(),
        };
        match Server::start(run_dir, control.board.clone(), move |job| desk.take(job)) {
            Ok(server) => control.server = Some(server),
            Err(error) => {
                recorder.record(EventKind::Alarm {
                    name: NO_CONTROL_ALARM.to_owned(),
                    step: None,
                    message: format!("{error}; the run goes on, signals still stop it"),
                });
            }
        }
        control
    }

    /// Control that no command ever reaches.
    pub fn without_socket(recorder: &Recorder, stop: &Stop) -> Self {
        let (sender, jobs) = mpsc::channel(MAX_WAITING);
        let doing = Doing::SettingUp;
        let board = Board::new(Status {
            pid: std::process::id(),
            doing: doing.to_string(),
            ..Status::default()
        });
        let waits = Waits::default();
        let watched = waits.clone();
        board.watch(move || watched.now().into_iter().map(wait_state).collect());
        Self {
            jobs,
            sender,
            owed: VecDeque::new(),
            stopping: Vec::new(),
            is_paused: false,
            waits,
            board,
            doing: Arc::new(Mutex::new(doing)),
            recorder: recorder.clone(),
            stop: stop.clone(),
            server: None,
        }
    }

    /// What the run waits for; `status` tells it.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// The run is set up: `status` has its knobs from now on.
    pub fn ready(&self, run: &mut dyn Controlled, total_steps: u64) {
        let knobs = KNOBS
            .iter()
            .map(|knob| {
                let (value, why_not) = match run.knob(knob) {
                    Ok(value) => (Some(Number(value)), None),
                    Err(reason) => (None, Some(reason)),
                };
                KnobState {
                    key: knob.key.to_owned(),
                    value,
                    started_with: value.map(|now| run.said(knob).map_or(now, Number)),
                    why_not,
                }
            })
            .collect();
        self.board.update(|status| {
            status.total_steps = total_steps;
            status.knobs = knobs;
        });
        self.look(run);
    }

    /// What a status says of the run is brought up to date: after a step, and after a command.
    pub fn look(&self, run: &mut dyn Controlled) {
        let values: Vec<Option<Number>> = KNOBS
            .iter()
            .map(|knob| run.knob(knob).ok().map(Number))
            .collect();
        let standing = run.standing();
        self.board.update(|status| {
            for state in &mut status.knobs {
                let at = KNOBS.iter().position(|knob| knob.key == state.key);
                if let Some(value) = at.and_then(|at| values[at]) {
                    state.value = Some(value);
                }
            }
            status.mode = standing.mode;
            status.guards = standing.guards;
            status.arms = standing.arms;
            status.checkpoints = standing.checkpoints;
        });
    }

    /// Applies what has come. While the run is paused, waits for more; comes back when a step may be trained, or when the run
    /// was asked to stop. Whether there was anything.
    pub async fn boundary(&mut self, run: &mut dyn Controlled) -> bool {
        let mut is_busy = false;
        while let Ok(job) = self.jobs.try_recv() {
            self.apply(job, run);
            is_busy = true;
        }
        if !self.holds() {
            return is_busy;
        }
        self.now(Doing::Paused(run.step()));
        run.rest();
        self.look(run);
        let _span = self
            .recorder
            .span(Lane::Paused, "paused", Some(run.step() + 1));
        let _wait = self.waits_for_person();
        while self.holds() {
            let job = self.next().await;
            if let Some(job) = job {
                self.apply(job, run);
            }
        }
        true
    }

    fn holds(&self) -> bool {
        self.is_paused && self.owed.is_empty() && !self.stop.is_asked()
    }

    /// Waits for a command, to be given to [`Control::apply`]. None: the run was asked to stop.
    pub async fn next(&mut self) -> Option<Job> {
        tokio::select! {
            biased;
            () = self.stop.asked() => None,
            job = self.jobs.recv() => job,
        }
    }

    /// Carries a command out. At a step boundary only.
    pub fn apply(&mut self, job: Job, run: &mut dyn Controlled) {
        self.board.update(|status| status.waiting -= 1);
        let step = run.step();
        let plain = Applied {
            step,
            ..Applied::default()
        };
        let noted = |note: &str| Applied {
            note: Some(note.to_owned()),
            ..plain.clone()
        };
        let who = job.request().who.clone();
        let done = match job.command().clone() {
            Command::Pause => {
                if self.is_paused && self.owed.is_empty() {
                    job.applied(noted("it was paused already"));
                    return;
                }
                for owed in std::mem::take(&mut self.owed) {
                    self.refused(owed, step, "the run was paused before this step".to_owned());
                }
                self.pause(true);
                self.rests(step);
                Ok(plain)
            }
            Command::Resume => {
                if !self.is_paused {
                    job.applied(noted("it was not paused"));
                    return;
                }
                self.pause(false);
                self.rests(step);
                Ok(plain)
            }
            Command::Step => {
                self.pause(true);
                self.owed.push_back(job);
                return;
            }
            // A run that rests has nothing to do beside it.
            Command::Checkpoint if self.holds() => run.checkpoint().map(|path| noted(&path)),
            Command::Checkpoint => {
                run.begin_checkpoint(self.who_asked(job, step));
                return;
            }
            Command::Stop => {
                self.stopping.push(job);
                return;
            }
            Command::Set { knob, value } => run.set(knob, value).map(|change| Applied {
                step,
                from_step: Some(change.from_step),
                from: Some(Number(change.from)),
                to: Some(Number(value)),
                note: change.note,
                ..Applied::default()
            }),
            Command::Mode { mode, staleness } => {
                run.set_mode(mode, staleness).map(|done| done.applied(step))
            }
            Command::Guard { guard, order } => run
                .guard(&guard, order, &who)
                .map(|done| done.applied(step)),
            Command::Arm(order) => run.arm(order).map(|done| done.applied(step)),
            Command::RollBack { to } => run.roll_back(to).map(|done| done.applied(step)),
            Command::Status => {
                job.refused("status is told by the socket's own thread");
                return;
            }
        };
        // Before the answer: who asks for the status then finds it so.
        self.look(run);
        match done {
            Ok(applied) => self.applied(job, applied),
            Err(reason) => self.refused(job, step, reason),
        }
    }

    fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        self.board.update(|status| status.is_paused = is_paused);
    }

    /// Answers `job`, which asked for a checkpoint of `step`.
    fn who_asked(&self, job: Job, step: u64) -> Told {
        let (recorder, board) = (self.recorder.clone(), self.board.clone());
        Told::new(move |written| match written {
            Ok(path) => {
                // Before the answer; how good it is says the next look at the run.
                board.update(|status| {
                    let is_listed = status.checkpoints.iter().any(|held| held.step == step);
                    if !status.mode.is_empty() && !is_listed {
                        status.checkpoints.push(CheckpointState {
                            step,
                            ..CheckpointState::default()
                        });
                    }
                });
                let applied = Applied {
                    step,
                    note: Some(path),
                    ..Applied::default()
                };
                answer_applied(&recorder, job, applied);
            }
            Err(reason) => answer_refused(&recorder, job, step, reason),
        })
    }

    fn applied(&self, job: Job, applied: Applied) {
        answer_applied(&self.recorder, job, applied);
    }

    fn refused(&self, job: Job, step: u64, reason: String) {
        answer_refused(&self.recorder, job, step, reason);
    }

    fn now(&self, doing: Doing) {
        *self.doing.lock().expect("no holder panics") = doing;
        self.board.update(|status| status.doing = doing.to_string());
    }

    /// Said before whoever brought it about is answered: what is asked next finds it so.
    fn rests(&self, step: u64) {
        self.now(if self.holds() {
            Doing::Paused(step)
        } else {
            Doing::Ready(step)
        });
    }

    /// The learner begins `step`: no boundary until [`Control::trained`].
    pub fn trains(&self, step: u64) {
        self.now(Doing::Training(step));
    }

    /// `step` is trained, which answers a `step` command.
    pub fn trained(&mut self, step: u64) {
        self.board.update(|status| status.step = step);
        let owed = self.owed.pop_front();
        self.rests(step);
        if let Some(job) = owed {
            self.applied(
                job,
                Applied {
                    step,
                    ..Applied::default()
                },
            );
        }
    }

    /// No step will be trained any more: every command but `stop` is refused with `reason` from now on.
    pub fn finish(&mut self, step: u64, reason: &'static str) {
        self.now(Doing::Finishing(reason));
        for job in std::mem::take(&mut self.owed) {
            self.refused(job, step, reason.to_owned());
        }
        self.collect(step, reason);
    }

    fn collect(&mut self, step: u64, reason: &str) {
        while let Ok(job) = self.jobs.try_recv() {
            self.board.update(|status| status.waiting -= 1);
            if *job.command() == Command::Stop {
                self.stopping.push(job);
            } else {
                self.refused(job, step, reason.to_owned());
            }
        }
    }

    /// The run has ended in good order after `step` steps, its last checkpoint is written: `stop` is answered.
    pub fn ended(&mut self, step: u64) {
        self.collect(step, "the run has ended");
        for job in self.stopping.drain(..) {
            // Its event was written when it came.
            job.applied(Applied {
                step,
                ..Applied::default()
            });
        }
    }
}
