//! Starting runs, sweeps and the queue; live control of a running run.
//!
//! ```text
//!  experiment or run ─► Form (overrides, checked) ─► plan (grid, zip) ─► Queue, K at a time ─► job: launch::start
//! ```
//! A run that has started is a process of its own; what still waits in the queue ends with the workbench, which asks before
//! it leaves.

mod checking;
mod control;
mod draw;
mod draw_control;
mod draw_guards;
mod dry_run;
mod form;
mod guards;
mod jobs;
mod queue;
mod starting;
pub mod sweep;
#[cfg(test)]
mod tests;
mod typing;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use experiment::Complaint;
use ratatui::Frame;
use ratatui::layout::Rect;
use remote::targets::TargetKind;
use runlog::control::{Command as Asked, KNOBS};

use super::config::files::Found;
use super::{Input, Page, PageId};
use crate::launch::Job;
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::bindings::{Binding, page_rows, with_moves};
use crate::tui::shared::{Notice, Problem, RunKey, Shared, Wish};
use crate::tui::widgets::field::Field;
use crate::tui::widgets::list::{ListState, Move};

use checking::Checking;
use control::Control;
use dry_run::DryRun;
use form::{Form, Row, Source};
use jobs::{again_job, list_job, read_job, targets_job};
use queue::{Queue, Stage};
use starting::command_line;
use sweep::Combine;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Move(Move),
    Open,
    Add,
    Remove,
    Choose,
    Undo,
    Start,
    /// After the question whether so many are meant.
    StartAll,
    DryRun,
    Record,
    NextPane,
    PreviousPane,
    Edit,
    ClearDone,
    Refresh,
    Pause,
    Resume,
    Step,
    Checkpoint,
    Stop,
    /// After the question.
    StopNow,
    /// The pane of guards, or that of knobs again.
    Guards,
    GuardTrip,
    GuardClear,
    GuardMute,
    RollBack,
    /// After the question of a trip or a way back.
    GuardNow,
}

/// Answers to this page's jobs.
#[derive(Debug)]
pub enum Message {
    /// Prepare the experiment of this run.
    Again(RunKey),
    /// Prepare this experiment.
    Prepare(PathBuf),
    Listed(Result<Vec<Found>, String>),
    Read(Result<Source, String>),
    /// The targets of the files, and what is wrong with those.
    Targets(Vec<(String, TargetKind)>, Option<String>),
    Checked {
        id: u64,
        outcome: DryRun,
    },
    /// Some more runs of a plan: how many, and what is wrong with which.
    RunsChecked {
        id: u64,
        count: usize,
        complaints: Vec<(String, Complaint)>,
    },
    Started {
        id: u64,
        outcome: Result<RunKey, String>,
    },
    /// The same of runs that went into a scheduler's queue together.
    StartedTogether(Vec<(u64, Result<RunKey, String>)>),
    /// What a run said to a request.
    Controlled {
        key: RunKey,
        ask: control::Ask,
        told: control::Told,
    },
}

page_rows!(Launch);

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = with_moves!["launch", row, Command::Move;
    row("launch.open", &["enter"], Command::Open, "change the line; of the queue: show the run", "change"),
    row("launch.start", &["s"], Command::Start, "start the run, or queue the runs of a sweep", "start"),
    row("launch.dry_run", &["d"], Command::DryRun, "dry run: try model, data, tools and scorer without starting", "dry run"),
    row("launch.add", &["a"], Command::Add, "add an override: a.b=v, a.b={v,w} or a.b=range(1,9,2) to sweep", "override"),
    row("launch.remove", &["x", "delete"], Command::Remove, "take the override out; of the queue: what has not started", "remove"),
    row("launch.undo", &["u"], Command::Undo, "undo the last change of the form", ""),
    row("launch.choose", &["o"], Command::Choose, "choose the experiment to start", "experiment"),
    row("launch.record", &["O"], Command::Record, "start the current run's experiment again, with changes", ""),
    row("launch.edit", &["E"], Command::Edit, "edit the experiment on page Config", ""),
    row("launch.pane", &["tab"], Command::NextPane, "next pane: start, queue, control, guards", "pane"),
    row("launch.pane_back", &["shift-tab"], Command::PreviousPane, "pane before", ""),
    row("control.pause", &["p"], Command::Pause, "control: train no further step until resumed", "pause"),
    row("control.resume", &["r"], Command::Resume, "control: go on training", "resume"),
    row("control.step", &["n"], Command::Step, "control: train one step, then be paused", ""),
    row("control.checkpoint", &["c"], Command::Checkpoint, "control: write a checkpoint now", ""),
    row("control.stop", &["X"], Command::Stop, "control: stop after this step, with a checkpoint (asks first)", ""),
    row("control.refresh", &["R"], Command::Refresh, "control: ask the run again how it stands", ""),
    row("guards.show", &["v"], Command::Guards, "control: the guards and checkpoints of the run, or its knobs again", ""),
    row("guards.mute", &["m"], Command::GuardMute, "guards: let this one see and not act, or act again", ""),
    row("guards.trip", &["t"], Command::GuardTrip, "guards: let this one do its next rung now (asks first)", ""),
    row("guards.clear", &["z"], Command::GuardClear, "guards: forget this one's trips, end what it has under way", ""),
    row("guards.back", &["b"], Command::RollBack, "guards: go back to this checkpoint, or to the newest good one (asks first)", ""),
    row("launch.clear", &["C"], Command::ClearDone, "take what has ended out of the queue's list", ""),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Pane {
    #[default]
    Start,
    Queue,
    Control,
    /// In the place of the knobs.
    Guards,
}

impl Pane {
    const ALL: [Self; 4] = [Self::Start, Self::Queue, Self::Control, Self::Guards];

    fn step(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

/// What is being typed.
#[derive(Debug, Default)]
enum Mode {
    #[default]
    None,
    Name(Field),
    AtOnce(Field),
    Override(typing::OverrideField),
    Knob(control::KnobField),
    /// An experiment from the list.
    Choose(Picker),
}

/// The experiment to start, searched by typing: no letter does anything else meanwhile.
#[derive(Debug, Default)]
struct Picker {
    field: Field,
    list: ListState,
}

impl Picker {
    /// Those with the typed text in their file's name or first words.
    fn matches<'a>(&self, files: &'a [Found]) -> Vec<&'a Found> {
        let wanted = self.field.text().to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let name = |found: &Found| {
            found
                .path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
        };
        let is_named = |found: &Found| has(&name(found).unwrap_or_default());
        let mut found: Vec<&Found> = files
            .iter()
            .filter(|found| is_named(found) || has(&found.about))
            .collect();
        // What is called so comes before what only mentions it.
        found.sort_by_key(|found| !is_named(found));
        found
    }
}

#[derive(Debug, Default)]
pub struct Launch {
    form: Form,
    rows: ListState,
    pane: Pane,
    mode: Mode,
    queue: Queue,
    queue_list: ListState,
    /// Targets whose runs go into a queue there together.
    schedulers: BTreeSet<String>,
    control: Control,
    guards: guards::Guards,
    files: Option<Result<Vec<Found>, String>>,
    checking: Checking,
    /// `s` was pressed before every run of the sweep was checked.
    is_start_wanted: bool,
    dry_run: Option<DryRun>,
    /// Of the newest dry run; older answers are passed over.
    dry_run_id: u64,
}

impl Page for Launch {
    fn update(&mut self, input: Input<'_>, shared: &mut Shared) -> Vec<Effect> {
        let mut effects = match input {
            Input::Command(action::Command::Launch(command)) => self.command(command, shared),
            Input::Key(key) => self.typed(key, shared),
            Input::Paste(pasted) => {
                self.pasted(pasted);
                Vec::new()
            }
            Input::Mouse(event, area) => self.mouse(event, area, shared),
            Input::Shown => {
                let mut effects = self.control.ask_status_of_current(shared);
                if self.form.source.is_none() {
                    effects.push(list_job(shared));
                }
                effects
            }
            Input::Message(PageMessage::Launch(message)) => self.message(message, shared),
            Input::DataChanged => {
                let shows_guards = self.pane == Pane::Guards;
                let mut effects = self.control.look(shows_guards, shared);
                if self.queue.look(&shared.runs) {
                    effects.extend(self.start_due(shared));
                }
                effects
            }
            Input::Command(_) | Input::Message(_) => Vec::new(),
        };
        effects.extend(self.check_runs());
        effects
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        draw::page(self, shared, frame, area);
    }

    fn is_typing(&self) -> bool {
        !matches!(self.mode, Mode::None)
    }

    fn back(&mut self, _shared: &mut Shared) -> bool {
        if self.dry_run.take().is_some() {
            return true;
        }
        let is_away = self.pane != Pane::Start;
        self.pane = Pane::Start;
        is_away
    }

    fn copied(&self, _shared: &Shared) -> Option<(String, String)> {
        let source = self.form.source.as_ref()?;
        let plan = self.form.plan.as_ref().ok()?;
        let lines: Vec<String> = plan
            .iter()
            .map(|planned| command_line(&self.order(source, planned, Path::new(""))).join(" "))
            .collect();
        let what = match lines.len() {
            1 => "the command that starts it".to_owned(),
            count => format!("the {count} commands that start them"),
        };
        Some((lines.join("\n"), what))
    }

    fn unsaved(&self) -> Option<String> {
        let waiting = self.queue.waiting();
        let runs = if waiting == 1 { "run" } else { "runs" };
        (waiting > 0).then(|| {
            format!("{waiting} queued {runs} not started yet: the queue ends with the workbench (what has started goes on)")
        })
    }

    fn status(&self, _shared: &Shared) -> String {
        match (self.queue.going(), self.queue.waiting()) {
            (0, 0) => String::new(),
            (going, waiting) => format!("queue: {going} going, {waiting} waiting"),
        }
    }
}

impl Launch {
    /// Checks the whole experiment of each run to start; while an override is typed, of those that it would make.
    fn check_runs(&mut self) -> Option<Effect> {
        let source = self.form.source.as_ref()?;
        let (typed, at) = match &self.mode {
            Mode::Override(typed) if typed.is_whole() => (typed.field.text().trim(), typed.at),
            _ => ("", None),
        };
        let of = (self.form.version, typed.to_owned());
        let form = &self.form;
        self.checking.want(of, || match typed {
            "" => form.plan.clone().unwrap_or_default(),
            typed => form.plan_with(at, typed),
        });
        self.checking.next_job(source)
    }

    fn command(&mut self, command: Command, shared: &mut Shared) -> Vec<Effect> {
        self.is_start_wanted = false;
        match command {
            Command::Move(by) => self.go(by, draw::body_rows(shared), shared),
            Command::NextPane => self.pane = self.pane.step(1),
            Command::PreviousPane => self.pane = self.pane.step(Pane::ALL.len() - 1),
            Command::Open => return self.open(shared),
            Command::Add if self.form.source.is_none() => {
                shared.say(Notice::caution("choose an experiment first: o"));
            }
            Command::Add => {
                self.pane = Pane::Start;
                self.mode = Mode::Override(typing::OverrideField::new(None, String::new()));
            }
            Command::Remove => return self.remove(shared),
            Command::Undo => {
                if !self.form.undo() {
                    shared.say(Notice::caution("nothing to undo"));
                }
            }
            Command::Choose => {
                self.pane = Pane::Start;
                self.mode = Mode::Choose(Picker::default());
                return vec![list_job(shared)];
            }
            Command::Record => match shared.current.clone() {
                Some(key) => return vec![again_job(&key, shared)],
                None => shared.say(Notice::caution("no run is chosen: page 1, enter")),
            },
            Command::Edit => match &self.form.source {
                Some(source) => shared.wish = Some(Wish::Edit(source.path.clone())),
                None => shared.say(Notice::caution("choose an experiment first: o")),
            },
            Command::DryRun => return self.try_out(shared),
            Command::Start => return self.start(false, shared),
            Command::StartAll => return self.start(true, shared),
            Command::ClearDone => self.queue.clear_done(),
            Command::Refresh => {
                self.pane = Pane::Control;
                if let Some(reason) = control::why_not(shared) {
                    shared.say(Notice::caution(reason));
                }
                return self.control.ask_status(shared);
            }
            Command::Pause => return self.ask(Asked::Pause, shared),
            Command::Resume => return self.ask(Asked::Resume, shared),
            Command::Step => return self.ask(Asked::Step, shared),
            Command::Checkpoint => return self.ask(Asked::Checkpoint, shared),
            Command::Stop => {
                self.pane = Pane::Control;
                match control::why_not(shared) {
                    Some(reason) => shared.say(Notice::caution(reason)),
                    None if shared.refuse_when_read_only("stopping a run") => {}
                    None => shared.wish = Some(Wish::Confirm(control::stop_question(shared))),
                }
            }
            Command::StopNow => return self.ask(Asked::Stop, shared),
            Command::Guards => {
                let is_shown = self.pane == Pane::Guards;
                self.pane = if is_shown {
                    Pane::Control
                } else {
                    Pane::Guards
                };
                return self.control.ask_status(shared);
            }
            Command::GuardMute
            | Command::GuardClear
            | Command::GuardTrip
            | Command::RollBack
            | Command::GuardNow => return self.guards_command(command, shared),
        }
        Vec::new()
    }

    fn ask(&mut self, command: Asked, shared: &mut Shared) -> Vec<Effect> {
        self.pane = Pane::Control;
        self.control.command(command, shared)
    }

    fn go(&mut self, by: Move, visible: usize, shared: &Shared) {
        match self.pane {
            Pane::Start => {
                let length = self.form.rows().len();
                self.rows.go(by, length, visible);
            }
            Pane::Queue => {
                let length = self.queue.items().len();
                self.queue_list.go(by, length, visible);
            }
            Pane::Control => self.control.list.go(by, KNOBS.len(), visible),
            Pane::Guards => {
                let length = guards::rows(self.control.status.as_ref(), shared).len();
                self.guards.list.go(by, length, visible);
            }
        }
    }

    /// The line of the form under the cursor.
    fn row(&self) -> Row {
        let rows = self.form.rows();
        rows[self.rows.selected(rows.len())]
    }

    fn open(&mut self, shared: &mut Shared) -> Vec<Effect> {
        if self.pane == Pane::Control {
            if shared.refuse_when_read_only("setting a knob") {
                return Vec::new();
            }
            match self.control.knob_field(shared) {
                Ok(field) => self.mode = Mode::Knob(field),
                Err(reason) => shared.say(Notice::caution(reason)),
            }
            return Vec::new();
        }
        if self.pane == Pane::Guards {
            let rows = guards::rows(self.control.status.as_ref(), shared);
            let is_guard = matches!(
                rows.get(self.guards.list.selected(rows.len())),
                Some(guards::Row::Guard(_))
            );
            let command = if is_guard {
                Command::GuardMute
            } else {
                Command::RollBack
            };
            return self.command(command, shared);
        }
        if self.pane == Pane::Queue {
            let items = self.queue.items();
            match items
                .get(self.queue_list.selected(items.len()))
                .map(|item| &item.stage)
            {
                Some(Stage::Running(key) | Stage::Ended(key, _)) => {
                    shared.wish = Some(Wish::ShowOn(key.clone(), PageId::Live));
                }
                Some(Stage::Failed(reason)) => {
                    let help = "mend what it names, then start it again (s)";
                    shared.wish = Some(Wish::Problem(Problem::new(
                        "It did not start",
                        reason,
                        help,
                    )));
                }
                Some(Stage::Waiting | Stage::Starting) => {
                    shared.say(Notice::caution(
                        "it has not started yet; x takes a waiting one out",
                    ));
                }
                None => shared.say(Notice::caution("the queue is empty; s starts a run")),
            }
            return Vec::new();
        }
        match self.row() {
            Row::Experiment => return self.command(Command::Choose, shared),
            Row::Name => self.mode = Mode::Name(Field::new(self.form.choices().name.clone())),
            Row::Job if self.form.jobs.len() > 1 => self.form.change(|choices| {
                choices.job = match choices.job {
                    Job::Run => Job::Sft,
                    Job::Sft | Job::Reward => Job::Run,
                };
            }),
            Row::Job => shared.say(Notice::caution(
                "a supervised warm-up: the experiment names no data.train_files to reinforce on",
            )),
            Row::Target => return vec![targets_job()],
            Row::Override(at) => {
                let text = self.form.choices().overrides[at].clone();
                self.mode = Mode::Override(typing::OverrideField::new(Some(at), text));
            }
            Row::Add => return self.command(Command::Add, shared),
            Row::Combine => self.form.change(|choices| {
                choices.combine = match choices.combine {
                    Combine::Grid => Combine::Zip,
                    Combine::Zip => Combine::Grid,
                };
            }),
            Row::AtOnce => {
                self.mode = Mode::AtOnce(Field::new(self.form.choices().at_once.to_string()));
            }
        }
        Vec::new()
    }

    fn remove(&mut self, shared: &mut Shared) -> Vec<Effect> {
        if matches!(self.pane, Pane::Control | Pane::Guards) {
            shared.say(Notice::caution("nothing to take out here; X stops the run"));
            return Vec::new();
        }
        if self.pane == Pane::Queue {
            let at = self.queue_list.selected(self.queue.items().len());
            if !self.queue.cancel(at) {
                shared.say(Notice::caution(
                    "only what waits can be taken out; a started run is stopped by itself",
                ));
            }
            return Vec::new();
        }
        match self.row() {
            Row::Override(at) => {
                self.form.change(|choices| {
                    choices.overrides.remove(at);
                });
                shared.say(Notice::good("taken out; u brings it back"));
            }
            Row::Name => self.form.change(|choices| choices.name.clear()),
            _ => shared.say(Notice::caution("only an override can be taken out")),
        }
        Vec::new()
    }

    fn message(&mut self, message: &mut Message, shared: &mut Shared) -> Vec<Effect> {
        match message {
            Message::Again(key) => return vec![again_job(key, shared)],
            Message::Prepare(path) => return vec![read_job(path, shared)],
            Message::Listed(result) => {
                self.files = Some(std::mem::replace(result, Ok(Vec::new())));
            }
            Message::Read(Ok(source)) => {
                self.dry_run = None;
                self.pane = Pane::Start;
                shared.say(Notice::good(format!("{}: s starts it", source.name)));
                self.form.take(source.clone());
            }
            Message::Read(Err(reason)) => {
                let help = "press o for the list of experiments";
                shared.wish = Some(Wish::Problem(Problem::new(
                    "The experiment cannot be read",
                    reason.clone(),
                    help,
                )));
            }
            Message::Targets(names, problem) => {
                if let Some(problem) = problem {
                    shared.say(Notice::bad(problem.clone()));
                } else if names.is_empty() {
                    shared.say(Notice::caution(
                        "targets.yaml names no other machine; `lathe targets --help` shows how",
                    ));
                }
                self.schedulers = names
                    .iter()
                    .filter(|(_, kind)| kind.has_scheduler())
                    .map(|(name, _)| name.clone())
                    .collect();
                let names: Vec<String> = std::mem::take(names)
                    .into_iter()
                    .map(|(name, _)| name)
                    .collect();
                self.form.change(|choices| {
                    let after = choices.target.as_ref().map_or(0, |now| {
                        names
                            .iter()
                            .position(|name| name == now)
                            .map_or(names.len(), |at| at + 1)
                    });
                    choices.target = names.get(after).cloned();
                });
            }
            Message::Checked { id, outcome } => {
                if *id == self.dry_run_id && self.dry_run.is_some() {
                    self.dry_run = Some(std::mem::replace(outcome, DryRun::Going));
                }
            }
            Message::RunsChecked {
                id,
                count,
                complaints,
            } => {
                self.checking.take(*id, *count, std::mem::take(complaints));
                if self.checking.is_done() && std::mem::take(&mut self.is_start_wanted) {
                    return self.start(false, shared);
                }
            }
            Message::Controlled { key, ask, told } => {
                return self.control.answered(key, ask, told, shared);
            }
            Message::Started { id, outcome } => {
                let outcome = std::mem::replace(outcome, Err(String::new()));
                return self.started(*id, outcome, shared);
            }
            Message::StartedTogether(outcomes) => {
                return self.started_together(std::mem::take(outcomes), shared);
            }
        }
        Vec::new()
    }
}

fn answer(message: Message) -> action::Message {
    action::Message::Page(PageMessage::Launch(message))
}
