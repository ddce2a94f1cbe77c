//! The guards of the current run and the checkpoints it can go back to, as rows: from the run's own status while it runs, else
//! from its log.

use runlog::control::{
    CheckpointName, CheckpointState, Command as Asked, GuardOrder, GuardState, Status,
};
use runlog::event::GuardDone;
use runlog::number::Number;
use runlog::state::GuardRecord;

use super::{Command, Launch, Pane, control};
use crate::tui::action::{Command as AppCommand, Effect};
use crate::tui::modal::Confirm;
use crate::tui::shared::{Notice, RunKey, Shared, Wish};
use crate::tui::widgets::list::ListState;
use crate::tui::widgets::text;

#[derive(Debug, Default)]
pub struct Guards {
    pub list: ListState,
    /// What a question is about, until it is answered.
    pub asked: Option<Asked>,
}

/// A line of the pane.
#[derive(Debug, Clone, PartialEq)]
pub enum Row {
    Guard(Box<GuardRow>),
    Checkpoint(CheckpointState),
}

/// A guard as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardRow {
    pub name: String,
    pub words: String,
    pub watches: String,
    pub condition: String,
    pub ladder: Vec<String>,
    /// None: the run does not say (it has ended).
    pub live: Option<Live>,
    pub trips: u64,
    pub is_muted: bool,
    /// It sees something wrong, or has just acted.
    pub is_bad: bool,
}

/// What only the running run knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    pub value: Option<Number>,
    pub limit: Option<Number>,
    pub window: (u64, u64),
    pub relapses: u64,
    pub next: String,
    pub sync_left: Option<u64>,
}

impl GuardRow {
    fn of_status(state: &GuardState) -> Self {
        Self {
            name: state.name.clone(),
            words: state.words(),
            watches: state.watches.clone(),
            condition: state.condition.clone(),
            ladder: state.ladder.clone(),
            live: Some(Live {
                value: state.value,
                limit: state.limit,
                window: (state.window_filled, state.window),
                relapses: state.relapses,
                next: state.next.clone(),
                sync_left: state.sync_left,
            }),
            trips: state.trips,
            is_muted: state.is_muted,
            is_bad: state.streak > 0 || state.cools_until.is_some(),
        }
    }

    fn of_log(record: &GuardRecord, step: u64) -> Self {
        Self {
            name: record.name.clone(),
            words: record.words(step),
            watches: record.watches.clone(),
            condition: record.condition.clone(),
            ladder: record.ladder.clone(),
            live: None,
            trips: record.trips,
            is_muted: record.is_muted(step),
            is_bad: record.cools_until.is_some_and(|until| step < until),
        }
    }

    /// `0.0021 of 0.02`; an alarm is raised or not.
    pub fn value(&self) -> String {
        let Some(live) = &self.live else {
            return String::new();
        };
        if self.watches.starts_with("alarm ") {
            let is_raised = live.value.is_some_and(|value| value.0 > 0.5);
            return if is_raised { "raised" } else { "not raised" }.to_owned();
        }
        let number = |value: Option<Number>| {
            value.map_or_else(|| "-".to_owned(), |value| text::number(value.0))
        };
        format!("{} limit {}", number(live.value), number(live.limit))
    }
}

/// Guards first, then checkpoints, the newest first.
pub fn rows(status: Option<&Status>, shared: &Shared) -> Vec<Row> {
    let guard = |row: GuardRow| Row::Guard(Box::new(row));
    if let Some(status) = status {
        let guards = status.guards.iter().map(GuardRow::of_status).map(guard);
        let checkpoints = status.checkpoints.iter().rev();
        return guards
            .chain(checkpoints.cloned().map(Row::Checkpoint))
            .collect();
    }
    let Some(run) = shared.current_run() else {
        return Vec::new();
    };
    let records = run.state.guards.all.iter();
    records
        .map(|record| guard(GuardRow::of_log(record, run.state.step)))
        .collect()
}

/// The last trip's actions of a guard, with the step.
pub fn last_actions(name: &str, shared: &Shared) -> Option<(u64, String, Vec<GuardDone>)> {
    let trip = shared.current_run()?.state.guards.last_trip(name)?;
    Some((trip.step, trip.reason.clone(), trip.done.clone()))
}

/// A guard is muted until it is unmuted, and the other way round.
fn mute(row: &GuardRow) -> Asked {
    let order = if row.is_muted {
        GuardOrder::Unmute
    } else {
        GuardOrder::Mute { steps: None }
    };
    order_of(row, order)
}

fn order_of(row: &GuardRow, order: GuardOrder) -> Asked {
    Asked::Guard {
        guard: row.name.clone(),
        order,
    }
}

fn back_to(checkpoint: &CheckpointState) -> Asked {
    Asked::RollBack {
        to: CheckpointName::Step(checkpoint.step),
    }
}

/// The question before a guard acts or the run goes back.
fn question(row: &Row, shared: &Shared) -> Confirm {
    let run = shared
        .current
        .as_ref()
        .map(RunKey::name)
        .unwrap_or_default();
    let command = AppCommand::Launch(Command::GuardNow);
    match row {
        Row::Guard(guard) => {
            let next = match &guard.live {
                Some(live) => live.next.clone(),
                None => "its next rung".to_owned(),
            };
            Confirm {
                title: format!("Trip guard {}?", guard.name),
                body: format!(
                    "{run}\n\nAfter the step in progress it does what it would do if it saw something wrong: {next}."
                ),
                yes: 'y',
                yes_label: "trip it".to_owned(),
                command,
            }
        }
        Row::Checkpoint(checkpoint) => Confirm {
            title: format!("Go back to step {}?", checkpoint.step),
            body: format!(
                "{run}\n\nWeights, optimizer, controllers, knobs and the place in the data are those of step {} again; steps go \
                 on counting. Checkpoints in between stay on disk and are no longer ones to go back to.",
                checkpoint.step
            ),
            yes: 'y',
            yes_label: "go back".to_owned(),
            command,
        },
    }
}

impl Launch {
    /// What the keys of this pane do; it comes to the front.
    pub(super) fn guards_command(&mut self, command: Command, shared: &mut Shared) -> Vec<Effect> {
        match command {
            Command::GuardMute => self.guard(shared, |row| Some(mute(row))),
            Command::GuardClear => self.guard(shared, |row| Some(order_of(row, GuardOrder::Clear))),
            Command::GuardTrip => self.guard(shared, |_| None),
            Command::RollBack => self.go_back(shared),
            _ => match self.guards.asked.take() {
                Some(asked) => self.control.command(asked, shared),
                None => Vec::new(),
            },
        }
    }

    /// Does something with the guard under the cursor: at once, or (None) trips it after a question.
    fn guard(
        &mut self,
        shared: &mut Shared,
        order: impl FnOnce(&GuardRow) -> Option<Asked>,
    ) -> Vec<Effect> {
        self.pane = Pane::Guards;
        let rows = rows(self.control.status.as_ref(), shared);
        let row = rows.get(self.guards.list.selected(rows.len()));
        let Some(row @ Row::Guard(guard)) = row else {
            let why = control::why_not(shared);
            shared.say(Notice::caution(why.unwrap_or_else(|| {
                "no guard is under the cursor; j and k move it".to_owned()
            })));
            return Vec::new();
        };
        if let Some(asked) = order(guard) {
            return self.control.command(asked, shared);
        }
        let asked = order_of(guard, GuardOrder::Trip);
        self.ask_first(row, asked, shared);
        Vec::new()
    }

    /// To the checkpoint under the cursor, else to the newest good one.
    fn go_back(&mut self, shared: &mut Shared) -> Vec<Effect> {
        self.pane = Pane::Guards;
        let rows = rows(self.control.status.as_ref(), shared);
        let is_good = |row: &&Row| matches!(row, Row::Checkpoint(checkpoint) if checkpoint.is_good);
        let chosen = match rows.get(self.guards.list.selected(rows.len())) {
            Some(row @ Row::Checkpoint(_)) => Some(row),
            _ => rows.iter().find(is_good),
        };
        match (chosen, control::why_not(shared)) {
            (_, Some(reason)) => shared.say(Notice::caution(reason)),
            (Some(row @ Row::Checkpoint(checkpoint)), None) => {
                self.ask_first(row, back_to(checkpoint), shared);
            }
            _ => shared.say(Notice::caution(
                "the run has told of no checkpoint yet; c writes one",
            )),
        }
        Vec::new()
    }

    fn ask_first(&mut self, row: &Row, asked: Asked, shared: &mut Shared) {
        match control::why_not(shared) {
            Some(reason) => shared.say(Notice::caution(reason)),
            None if shared.refuse_when_read_only("controlling a run") => {}
            None => {
                shared.wish = Some(Wish::Confirm(question(row, shared)));
                self.guards.asked = Some(asked);
            }
        }
    }
}
