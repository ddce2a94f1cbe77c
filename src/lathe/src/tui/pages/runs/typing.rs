//! What keys, pasted text and the mouse do while something is typed or chosen over the table.

use crossterm::event::{KeyEvent, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;

use super::{Command, Kept, Mode, Runs, changes, draw, overlay};
use crate::tui::action::Effect;
use crate::tui::shared::Shared;
use crate::tui::widgets::field::Outcome;
use crate::tui::widgets::list::Move;

impl Runs {
    pub(super) fn key(&mut self, key: KeyEvent, shared: &mut Shared) -> Vec<Effect> {
        match std::mem::take(&mut self.mode) {
            Mode::Browse => Vec::new(),
            Mode::Filter(mut field) => match field.key(key) {
                Outcome::Accepted => Vec::new(),
                Outcome::Cancelled => self.set_filter("", shared),
                outcome => {
                    let expression = field.text().to_owned();
                    self.mode = Mode::Filter(field);
                    match (outcome, Move::of_typed(key)) {
                        (Outcome::Changed, _) => self.set_filter(&expression, shared),
                        (Outcome::Unused, Some(by)) => self.go(by, shared),
                        _ => Vec::new(),
                    }
                }
            },
            Mode::Edit {
                key: run,
                what,
                mut field,
                ..
            } => match field.key(key) {
                Outcome::Cancelled => Vec::new(),
                Outcome::Accepted => match what.check(field.text()) {
                    Ok(()) => vec![changes::edit(run, what, field.text().to_owned())],
                    Err(complaint) => {
                        self.mode = Mode::Edit {
                            key: run,
                            what,
                            field,
                            complaint: Some(complaint),
                        };
                        Vec::new()
                    }
                },
                _ => {
                    self.mode = Mode::Edit {
                        key: run,
                        what,
                        field,
                        complaint: None,
                    };
                    Vec::new()
                }
            },
            Mode::Sort(mut menu) => match menu.key(key, &self.kept()) {
                overlay::Picked::Stay => {
                    self.mode = Mode::Sort(menu);
                    Vec::new()
                }
                overlay::Picked::Close => Vec::new(),
                overlay::Picked::Take(kept) => self.keep(kept, shared),
            },
            Mode::Metrics(mut picker) => match picker.key(key, &self.kept()) {
                overlay::Picked::Stay => {
                    self.mode = Mode::Metrics(picker);
                    Vec::new()
                }
                overlay::Picked::Close => Vec::new(),
                overlay::Picked::Take(kept) => {
                    self.mode = Mode::Metrics(picker);
                    self.keep(kept, shared)
                }
            },
        }
    }

    pub(super) fn paste(&mut self, pasted: &str, shared: &Shared) -> Vec<Effect> {
        match &mut self.mode {
            Mode::Filter(field) => {
                field.paste(pasted);
                let expression = field.text().to_owned();
                return self.set_filter(&expression, shared);
            }
            Mode::Edit { field, .. } => field.paste(pasted),
            Mode::Metrics(picker) => picker.paste(pasted),
            Mode::Browse | Mode::Sort(_) => {}
        }
        Vec::new()
    }

    pub(super) fn mouse(
        &mut self,
        event: MouseEvent,
        area: Rect,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        if !matches!(self.mode, Mode::Browse | Mode::Filter(_)) {
            return Vec::new();
        }
        if let Some(by) = Move::of_wheel(event.kind) {
            return self.go(by, shared);
        }
        match event.kind {
            MouseEventKind::Down(MouseButton::Left) => {
                match self.place_at(event.column, event.row, area, shared) {
                    Some(draw::Place::Heading(column)) => {
                        let kept = self.kept();
                        let is_same = kept.sort == column;
                        let next = Kept {
                            is_descending: if is_same {
                                !kept.is_descending
                            } else {
                                column.starts_descending()
                            },
                            sort: column,
                            ..kept
                        };
                        self.keep(next, shared)
                    }
                    Some(draw::Place::Row(row)) => {
                        let was_selected = self.list.selected(self.row_count(shared)) == row;
                        self.list.select(row);
                        self.remember_selected(shared);
                        if was_selected {
                            return self.command(Command::Open, shared);
                        }
                        self.wants(shared)
                    }
                    None => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }
}
