//! Live control of the current run: what it is asked, what it answered, what may be set, and what was changed so far.
//!
//! Each request is a job with a connection of its own and a time-out. It comes back as soon as the run has taken the command;
//! when it is applied, at the end of the step in progress, an event of the run says so, and the history here shows that.

use crossterm::event::KeyEvent;
use runlog::control::{Command as Asked, KNOBS, Knob, KnobState, Status};
use runlog::state::{ControlRecord, Outcome};

use super::{Message, answer};
use crate::tui::action::Effect;
use crate::tui::modal::Confirm;
use crate::tui::pages::asking::carry_out;
pub use crate::tui::pages::asking::{Ask, Told, why_not};
use crate::tui::shared::{Notice, RunKey, Shared};
use crate::tui::widgets::field::{self, Field};
use crate::tui::widgets::list::ListState;
use crate::tui::widgets::text;

#[derive(Debug, Default)]
pub struct Control {
    pub list: ListState,
    /// The run that all of this is about.
    run: Option<RunKey>,
    pub status: Option<Status>,
    /// Why there is no status.
    pub problem: Option<String>,
    /// The newest answer, with whether it is good.
    pub told: Option<(bool, String)>,
    /// Requests that have not come back.
    pub waiting: usize,
    /// Changes and trips of the run, and steps while guards are shown, that the status has taken in.
    seen: (usize, u64, u64),
}

/// A value being typed for a knob.
#[derive(Debug)]
pub struct KnobField {
    pub knob: &'static Knob,
    pub field: Field,
    pub problem: Option<String>,
}

/// What a key did to a knob's field.
pub enum KnobAnswer {
    Stay,
    Cancelled,
    Set(Asked),
}

impl KnobField {
    pub fn new(knob: &'static Knob, value: Option<f64>) -> Self {
        Self {
            knob,
            field: Field::new(value.map(|value| value.to_string()).unwrap_or_default()),
            problem: None,
        }
    }

    fn command(&self) -> Result<Asked, String> {
        let typed = self.field.text().trim();
        let value: f64 = typed
            .parse()
            .map_err(|_| format!("`{typed}` is no number; {}", self.knob.range()))?;
        Asked::set(self.knob.key, value)
    }

    pub fn key(&mut self, key: KeyEvent) -> KnobAnswer {
        match self.field.key(key) {
            field::Outcome::Cancelled => return KnobAnswer::Cancelled,
            field::Outcome::Accepted => match self.command() {
                Ok(command) => return KnobAnswer::Set(command),
                Err(reason) => self.problem = Some(reason),
            },
            field::Outcome::Changed => self.problem = self.command().err(),
            field::Outcome::Kept | field::Outcome::Unused => {}
        }
        KnobAnswer::Stay
    }

    pub fn paste(&mut self, pasted: &str) {
        self.field.paste(pasted);
        self.problem = self.command().err();
    }
}

impl Control {
    /// Asks for the status when the run is another one, was changed or a guard tripped; with `each_step` also when a step has
    /// ended.
    pub fn look(&mut self, each_step: bool, shared: &Shared) -> Vec<Effect> {
        let seen = shared.current_run().map_or((0, 0, 0), |run| {
            let trips = run.state.guards.all.iter().map(|guard| guard.trips).sum();
            let step = if each_step { run.state.step } else { 0 };
            (run.state.controls.len(), trips, step)
        });
        if self.run == shared.current && self.seen == seen {
            return Vec::new();
        }
        // Faster steps than answers: the next one asks.
        if self.run == shared.current && self.waiting > 0 {
            return Vec::new();
        }
        if self.run != shared.current {
            *self = Self {
                run: shared.current.clone(),
                ..Self::default()
            };
        }
        self.seen = seen;
        self.ask_status(shared)
    }

    /// The page comes to the front: what it shows of the run may be old.
    pub fn ask_status_of_current(&mut self, shared: &Shared) -> Vec<Effect> {
        let effects = self.look(false, shared);
        if effects.is_empty() {
            return self.ask_status(shared);
        }
        effects
    }

    pub fn ask_status(&mut self, shared: &Shared) -> Vec<Effect> {
        if why_not(shared).is_some() {
            self.status = None;
            self.problem = None;
            return Vec::new();
        }
        self.ask(Ask::Status, shared)
    }

    /// Sends a command to the current run, or says why not.
    pub fn command(&mut self, command: Asked, shared: &mut Shared) -> Vec<Effect> {
        if shared.refuse_when_read_only("controlling a run") {
            return Vec::new();
        }
        if let Some(reason) = why_not(shared) {
            shared.say(Notice::caution(reason));
            return Vec::new();
        }
        shared.say(Notice::good(format!("asked: {command}")));
        self.ask(Ask::Do(command), shared)
    }

    fn ask(&mut self, ask: Ask, shared: &Shared) -> Vec<Effect> {
        let Some(key) = shared.current.clone() else {
            return Vec::new();
        };
        self.waiting += 1;
        vec![Effect::job("control run", move || {
            let told = carry_out(key.path(), &ask);
            answer(Message::Controlled { key, ask, told })
        })]
    }

    /// An answer came; one of another run is passed over.
    pub fn answered(
        &mut self,
        key: &RunKey,
        ask: &Ask,
        told: &Told,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        if self.run.as_ref() != Some(key) {
            return Vec::new();
        }
        self.waiting = self.waiting.saturating_sub(1);
        match told {
            Told::Status(status) => {
                self.status = Some((**status).clone());
                self.problem = None;
                return Vec::new();
            }
            Told::Failed(reason) if *ask == Ask::Status => {
                self.status = None;
                self.problem = Some(reason.clone());
                return Vec::new();
            }
            Told::Done(words) => {
                self.told = Some((true, words.clone()));
                shared.say(Notice::good(words.clone()));
            }
            Told::Refused(reason) | Told::Failed(reason) => {
                self.told = Some((false, reason.clone()));
                shared.say(Notice::bad(reason.clone()));
            }
        }
        self.ask_status(shared)
    }

    pub fn knob_state(&self, knob: &Knob) -> Option<&KnobState> {
        let status = self.status.as_ref()?;
        status.knobs.iter().find(|state| state.key == knob.key)
    }

    /// The field for the knob under the cursor, or why it cannot be set.
    pub fn knob_field(&self, shared: &Shared) -> Result<KnobField, String> {
        if let Some(reason) = why_not(shared) {
            return Err(reason);
        }
        let knob = &KNOBS[self.list.selected(KNOBS.len())];
        match self.knob_state(knob) {
            Some(state) => match &state.why_not {
                Some(reason) => Err(format!("{}: {reason}", knob.name)),
                None => Ok(KnobField::new(knob, state.value.map(|value| value.0))),
            },
            None => Err(self
                .problem
                .clone()
                .unwrap_or_else(|| "the run has not told its values yet; R asks again".to_owned())),
        }
    }
}

/// The question before a run is stopped.
pub fn stop_question(shared: &Shared) -> Confirm {
    let name = shared
        .current
        .as_ref()
        .map(RunKey::name)
        .unwrap_or_default();
    Confirm {
        title: "Stop the run?".to_owned(),
        body: format!(
            "{name}\n\nIt ends after the step in progress and writes a checkpoint first. A stopped run does not go on by \
             itself."
        ),
        yes: 'y',
        yes_label: "stop it".to_owned(),
        command: crate::tui::action::Command::Launch(super::Command::StopNow),
    }
}

/// One line of the history: `step 12  set actor.optim.lr 1e-6 -> 1e-5 from step 13  by ana@laptop`.
pub fn record_line(record: &ControlRecord, arrow: &str) -> String {
    let what = match (&record.knob, &record.target) {
        (Some(key), _) => {
            let name = runlog::control::find_knob(key).map_or(key.as_str(), |knob| knob.name);
            format!("{} {name}", record.command)
        }
        (None, Some(target)) => format!("{} {target}", record.command),
        (None, None) => record.command.clone(),
    };
    let outcome = match &record.outcome {
        Outcome::Applied {
            from: Some(from),
            to: Some(to),
            from_step,
            ..
        } => {
            let step = from_step.map_or_else(String::new, |step| format!(" from step {step}"));
            format!(
                " {} {arrow} {}{step}",
                text::number(from.0),
                text::number(to.0)
            )
        }
        Outcome::Applied {
            before: Some(before),
            after: Some(after),
            ..
        } => format!(" {before} {arrow} {after}"),
        Outcome::Applied { .. } => String::new(),
        Outcome::Refused { reason, .. } => format!(" refused: {reason}"),
    };
    format!(
        "{} step {}: {what}{outcome}, by {}",
        text::clock(record.elapsed_ms),
        record.step,
        record.who
    )
}
