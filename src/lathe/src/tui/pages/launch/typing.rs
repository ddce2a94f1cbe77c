//! What keys, pasted text and the mouse do while something is typed or chosen.

use crossterm::event::{KeyCode, KeyEvent, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};
use runlog::control::KNOBS;

use super::control::KnobAnswer;
use super::form::{self, Row};
use super::jobs::read_job;
use super::{Command, Launch, Mode, Pane, draw, draw_control, guards};
use crate::tui::action::Effect;
use crate::tui::shared::{Notice, Shared};
use crate::tui::widgets::field::{Field, Outcome};
use crate::tui::widgets::list::{ListState, Move};

/// Completions that are offered at once.
pub const MOST_COMPLETIONS: usize = 6;

/// An override being typed, with what may follow.
#[derive(Debug)]
pub struct OverrideField {
    /// Which one is changed; None: a new one.
    pub at: Option<usize>,
    pub field: Field,
    pub problem: Option<String>,
    pub completions: Vec<String>,
    pub list: ListState,
}

impl OverrideField {
    pub fn new(at: Option<usize>, text: String) -> Self {
        let mut typed = Self {
            at,
            field: Field::new(text),
            problem: None,
            completions: Vec::new(),
            list: ListState::default(),
        };
        typed.look();
        typed
    }

    fn look(&mut self) {
        let text = self.field.text();
        self.completions = form::completions(text, MOST_COMPLETIONS);
        self.list.select(0);
        // A key that is not finished is not wrong yet.
        let is_unfinished = !text.contains('=') && !self.completions.is_empty();
        self.problem = if text.trim().is_empty() || is_unfinished {
            None
        } else {
            form::check_override(text).err()
        };
    }

    /// A whole override, right by itself: the experiment can be checked with it.
    pub fn is_whole(&self) -> bool {
        self.problem.is_none() && self.field.text().contains('=')
    }

    /// Takes the completion under the cursor.
    fn complete(&mut self) {
        let at = self.list.selected(self.completions.len());
        if let Some(completion) = self.completions.get(at) {
            self.field = Field::new(completion.clone());
            self.look();
        }
    }
}

impl Launch {
    pub(super) fn typed(&mut self, key: KeyEvent, shared: &mut Shared) -> Vec<Effect> {
        match &mut self.mode {
            Mode::None => {}
            Mode::Name(field) => match field.key(key) {
                Outcome::Accepted => {
                    let name = field.text().trim().to_owned();
                    self.mode = Mode::None;
                    self.form.change(|choices| choices.name = name);
                }
                Outcome::Cancelled => self.mode = Mode::None,
                _ => {}
            },
            Mode::AtOnce(field) => match field.key(key) {
                Outcome::Accepted => match field.text().trim().parse::<usize>() {
                    Ok(count @ 1..=64) => {
                        self.mode = Mode::None;
                        self.form.change(|choices| choices.at_once = count);
                        return self.start_due(shared);
                    }
                    _ => shared.say(Notice::bad("a number from 1 to 64")),
                },
                Outcome::Cancelled => self.mode = Mode::None,
                _ => {}
            },
            Mode::Knob(typed) => match typed.key(key) {
                KnobAnswer::Stay => {}
                KnobAnswer::Cancelled => self.mode = Mode::None,
                KnobAnswer::Set(command) => {
                    self.mode = Mode::None;
                    return self.control.command(command, shared);
                }
            },
            Mode::Override(typed) => {
                if let Some(by) = Move::of_typed(key) {
                    let length = typed.completions.len();
                    typed.list.go(by, length, length);
                    return Vec::new();
                }
                match key.code {
                    KeyCode::Tab => typed.complete(),
                    _ => match typed.field.key(key) {
                        Outcome::Changed => typed.look(),
                        Outcome::Cancelled => self.mode = Mode::None,
                        Outcome::Accepted => self.accept_override(),
                        Outcome::Kept | Outcome::Unused => {}
                    },
                }
            }
            Mode::Choose(picker) => {
                let files = match &self.files {
                    Some(Ok(found)) => found.as_slice(),
                    _ => &[],
                };
                let found = picker.matches(files);
                if let Some(by) = Move::of_typed(key) {
                    picker.list.go(by, found.len(), 20);
                    return Vec::new();
                }
                let chosen = found.get(picker.list.selected(found.len()));
                let chosen = chosen.map(|found| found.path.clone());
                match picker.field.key(key) {
                    Outcome::Changed => picker.list.select(0),
                    Outcome::Cancelled => self.mode = Mode::None,
                    Outcome::Accepted => {
                        if let Some(path) = chosen {
                            self.mode = Mode::None;
                            return vec![read_job(&path, shared)];
                        }
                    }
                    Outcome::Kept | Outcome::Unused => {}
                }
            }
        }
        Vec::new()
    }

    fn accept_override(&mut self) {
        let Mode::Override(typed) = &mut self.mode else {
            return;
        };
        let text = typed.field.text().trim().to_owned();
        let at = typed.at;
        if text.is_empty() {
            // An emptied override is one taken out.
            self.mode = Mode::None;
            if let Some(at) = at {
                self.form.change(|choices| {
                    choices.overrides.remove(at);
                });
            }
            return;
        }
        if let Err(reason) = form::check_override(&text) {
            typed.problem = Some(reason);
            return;
        }
        self.mode = Mode::None;
        self.form.change(|choices| match at {
            Some(at) => choices.overrides[at] = text,
            None => choices.overrides.push(text),
        });
        if at.is_none() {
            // Where the next one is added.
            let rows = self.form.rows();
            let add = rows.iter().position(|row| *row == Row::Add);
            self.rows.select(add.unwrap_or(0));
        }
    }

    pub(super) fn pasted(&mut self, pasted: &str) {
        match &mut self.mode {
            Mode::Name(field) | Mode::AtOnce(field) => field.paste(pasted),
            Mode::Override(typed) => {
                typed.field.paste(pasted);
                typed.look();
            }
            Mode::Knob(typed) => typed.paste(pasted),
            Mode::Choose(picker) => {
                picker.field.paste(pasted);
                picker.list.select(0);
            }
            Mode::None => {}
        }
    }

    /// The wheel moves; a click selects, a second one on the same row opens.
    pub(super) fn mouse(
        &mut self,
        event: MouseEvent,
        area: Rect,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        if !matches!(self.mode, Mode::None) {
            return Vec::new();
        }
        if let Some(by) = Move::of_wheel(event.kind) {
            return self.command(Command::Move(by), shared);
        }
        match event.kind {
            MouseEventKind::Down(MouseButton::Left) => {
                let at = Position::new(event.column, event.row);
                let clicked = draw::panes(self, area)
                    .into_iter()
                    .find(|(_, place)| place.contains(at));
                let Some((pane, place)) = clicked else {
                    return Vec::new();
                };
                self.pane = pane;
                let above = if pane == Pane::Control {
                    draw_control::ROWS_ABOVE
                } else {
                    0
                };
                let Some(row) = event.row.checked_sub(place.y + 1 + above) else {
                    return Vec::new();
                };
                let visible = usize::from(place.height.saturating_sub(2));
                let guards = guards::rows(self.control.status.as_ref(), shared).len();
                let (list, length) = match pane {
                    Pane::Start => (&mut self.rows, self.form.rows().len()),
                    Pane::Queue => (&mut self.queue_list, self.queue.items().len()),
                    Pane::Control => (&mut self.control.list, KNOBS.len()),
                    Pane::Guards => (&mut self.guards.list, guards),
                };
                let clicked = list.top(length, visible) + usize::from(row);
                if clicked >= length {
                    return Vec::new();
                }
                if list.selected(length) == clicked {
                    return self.command(Command::Open, shared);
                }
                list.select(clicked);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }
}
