//! Page Bandit: which arm scores the rollouts, what is believed of each, and who says so. Arms that are summed stand in the same
//! table, with their weights.
//!
//! ```text
//!  thompson  34 choices  33 updates  regret 2.31                     facts
//!  > * rule   forced  22 65 %  0.71 ± 0.03  ▁▃█▃▁  chance 0.88       a row an arm, on one axis; then the held-out judges
//!  latest choices  **+o****                                          a mark a choice, then shares, curves and reasons
//! ```
//! Every arm has a mark and a colour, the same in each part. An order for the arm under the cursor goes over the run's control
//! socket; what became of it comes back as an event of the run, as everything here does.

mod choices;
mod draw;
mod facts;
mod history;
mod posterior;
#[cfg(test)]
mod tests;

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::Frame;
use ratatui::layout::Rect;
use runlog::control::{ArmOrder, Command as Asked};

use self::facts::{Facts, Row};
use super::asking::{self, Ask, Told};
use super::{Input, Page};
use crate::headless::judges::Judges;
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::bindings::{Binding, page_rows, with_moves};
use crate::tui::shared::{Notice, RunKey, Shared};
use crate::tui::widgets::list::{ListState, Move};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Move(Move),
    Force,
    Freeze,
}

/// Answers to this page's jobs.
#[derive(Debug)]
pub enum Message {
    /// What became of an order.
    Answered { run: RunKey, told: Told },
    /// The arms of the run's experiment.
    Judges { run: RunKey, judges: Option<Judges> },
}

page_rows!(Bandit);

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = with_moves!("bandit", row, Command::Move;
    row("bandit.force", &["f"], Command::Force, "force the arm under the cursor: every choice is this arm; or release it", "force"),
    row("bandit.freeze", &["z"], Command::Freeze, "freeze the arm under the cursor: it is not chosen any more; or let it go", "freeze"),
);

#[derive(Debug, Default)]
pub struct Bandit {
    list: ListState,
    /// Of which run the cursor is, and the arms.
    run: Option<RunKey>,
    /// None: not read yet, or there are none.
    judges: Option<Judges>,
    is_asked: bool,
}

impl Bandit {
    /// None: no run is open, or it has no arms.
    fn facts<'a>(&self, shared: &'a Shared) -> Option<Facts<'a>> {
        let run = shared.current_run()?;
        let is_of_current = self.run.as_ref() == Some(&run.key);
        Facts::of(&run.state, self.judges.as_ref().filter(|_| is_of_current))
    }

    /// Reads the experiment of the run, once.
    fn ask_judges(&mut self) -> Vec<Effect> {
        let Some(run) = self.run.clone().filter(|_| !self.is_asked) else {
            return Vec::new();
        };
        self.is_asked = true;
        vec![Effect::job("read the arms", move || {
            let judges = Judges::of_run(run.path());
            action::Message::Page(PageMessage::Bandit(Message::Judges { run, judges }))
        })]
    }

    /// The row under the cursor.
    fn chosen<'a>(&self, facts: &'a Facts<'_>) -> Option<&'a Row> {
        facts.rows.get(self.list.selected(facts.rows.len()))
    }

    /// The order that a key means for the row under the cursor, or why there is none.
    fn order(&self, command: Command, shared: &Shared) -> Result<ArmOrder, String> {
        let Some(facts) = self.facts(shared) else {
            return Err("this run has no bandit".to_owned());
        };
        if !facts.is_choosing {
            return Err("nothing is chosen in this run: its arms are summed".to_owned());
        }
        let Some(row) = self.chosen(&facts) else {
            return Err("no arm is known yet".to_owned());
        };
        let name = row.name.clone();
        if row.is_held_out {
            return Err(format!("{name} is held out: it judges and is never chosen"));
        }
        Ok(match command {
            Command::Force if row.is_forced => ArmOrder::Release,
            Command::Force => ArmOrder::Force(name),
            _ if row.is_frozen => ArmOrder::Unfreeze(name),
            _ => ArmOrder::Freeze(name),
        })
    }

    fn ask(&self, command: Command, shared: &mut Shared) -> Vec<Effect> {
        if shared.refuse_when_read_only("controlling a run") {
            return Vec::new();
        }
        let may = asking::why_not(shared).map_or(Ok(()), Err);
        let order = may.and_then(|()| self.order(command, shared));
        match (order, shared.current.clone()) {
            (Ok(order), Some(run)) => {
                let ask = Ask::Do(Asked::Arm(order));
                if let Ask::Do(asked) = &ask {
                    shared.say(Notice::good(format!("asked: {asked}")));
                }
                vec![Effect::job("control run", move || {
                    let told = asking::carry_out(run.path(), &ask);
                    let message = Message::Answered { run, told };
                    action::Message::Page(PageMessage::Bandit(message))
                })]
            }
            (Err(reason), _) => {
                shared.say(Notice::caution(reason));
                Vec::new()
            }
            (Ok(_), None) => Vec::new(),
        }
    }

    fn mouse(&mut self, event: MouseEvent, area: Rect, shared: &Shared) {
        let Some(facts) = self.facts(shared) else {
            return;
        };
        let length = facts.rows.len();
        let parts = draw::parts(&facts, area);
        if let Some(by) = Move::of_wheel(event.kind) {
            self.list.go(by, length, usize::from(parts.rows.height));
        }
        if event.kind == MouseEventKind::Down(MouseButton::Left)
            && parts.rows.contains((event.column, event.row).into())
        {
            let window = self.list.window(length, usize::from(parts.rows.height));
            let row = window.start + usize::from(event.row - parts.rows.y);
            if row < length {
                self.list.select(row);
            }
        }
    }
}

impl Page for Bandit {
    fn update(&mut self, input: Input<'_>, shared: &mut Shared) -> Vec<Effect> {
        if self.run != shared.current {
            *self = Self {
                run: shared.current.clone(),
                ..Self::default()
            };
        }
        match input {
            Input::Command(action::Command::Bandit(Command::Move(by))) => {
                if let Some(facts) = self.facts(shared) {
                    let visible = draw::parts(&facts, shared.page_area()).rows.height;
                    self.list.go(by, facts.rows.len(), usize::from(visible));
                }
            }
            Input::Command(action::Command::Bandit(command)) => return self.ask(command, shared),
            Input::Mouse(event, area) => self.mouse(event, area, shared),
            Input::Shown | Input::DataChanged => return self.ask_judges(),
            Input::Message(PageMessage::Bandit(Message::Judges { run, judges }))
                if self.run.as_ref() == Some(&*run) =>
            {
                self.judges = judges.take();
            }
            Input::Message(PageMessage::Bandit(Message::Answered { run, told }))
                if shared.current.as_ref() == Some(&*run) =>
            {
                match told {
                    Told::Done(words) => shared.say(Notice::good(words.clone())),
                    Told::Refused(reason) | Told::Failed(reason) => {
                        shared.say(Notice::bad(reason.clone()));
                    }
                    Told::Status(_) => {}
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        draw::page(self, shared, frame, area);
    }

    fn copied(&self, shared: &Shared) -> Option<(String, String)> {
        let facts = self.facts(shared)?;
        let known = if facts.is_choosing {
            "is believed"
        } else {
            "is known"
        };
        let what = format!("what {known} of {} arms", facts.rows.len());
        Some((facts.as_text(), what))
    }

    fn status(&self, shared: &Shared) -> String {
        let bandit = shared
            .current_run()
            .and_then(|run| run.state.bandit.as_ref());
        bandit.map_or_else(String::new, |bandit| match bandit.choices {
            1 => "1 choice".to_owned(),
            choices => format!("{choices} choices"),
        })
    }
}
