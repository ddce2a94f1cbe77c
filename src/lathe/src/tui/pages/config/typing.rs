//! What keys, pasted text and the mouse do while a line is typed or something is chosen.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::chooser::compare;
use super::edit::{go, save, set};
use super::sheet::{Sheet, View};
use super::{Command, Config, Message, Mode, answer, draw, files, value};
use crate::tui::action::Effect;
use crate::tui::shared::{Notice, Shared};
use crate::tui::widgets::field::Outcome;
use crate::tui::widgets::list::{ListState, Move};

impl Config {
    /// A key while something is typed.
    pub(super) fn typed(&mut self, key: KeyEvent, shared: &mut Shared) -> Vec<Effect> {
        let is_save =
            key.code == KeyCode::Char('s') && key.modifiers.contains(KeyModifiers::CONTROL);
        let Some(sheet) = self.sheets.get_mut(self.shown) else {
            self.mode = Mode::None;
            return Vec::new();
        };
        match &mut self.mode {
            Mode::None => {}
            Mode::Text if is_save => return save(sheet, false, shared),
            Mode::Text => {
                if !sheet.type_key(key) {
                    self.mode = Mode::None;
                }
            }
            Mode::Filter(field) => match field.key(key) {
                Outcome::Changed => {
                    field.text().clone_into(&mut sheet.tree.filter);
                    sheet.tree.list.select(0);
                    sheet.refresh();
                    select_first_key(sheet);
                }
                Outcome::Accepted => self.mode = Mode::None,
                Outcome::Cancelled => {
                    sheet.tree.filter.clear();
                    sheet.refresh();
                    self.mode = Mode::None;
                }
                Outcome::Unused => move_in_list(key, sheet, shared),
                Outcome::Kept => {}
            },
            Mode::Search(field) => match field.key(key) {
                Outcome::Accepted => {
                    field.text().clone_into(&mut sheet.text.search);
                    self.mode = Mode::None;
                    if !sheet.text.search.is_empty() && !sheet.find(true) {
                        let text = format!("`{}` is not in the text", sheet.text.search);
                        shared.say(Notice::caution(text));
                    }
                }
                Outcome::Cancelled => self.mode = Mode::None,
                _ => {}
            },
            Mode::SaveAs(field) => match field.key(key) {
                Outcome::Accepted => {
                    let name = field.text().trim().to_owned();
                    if name.is_empty() {
                        return Vec::new();
                    }
                    self.mode = Mode::None;
                    let path = shared.project.directory.join(name);
                    let text = sheet.document.text().to_owned();
                    return vec![Effect::job("save a copy", move || {
                        let result = files::save_new(&path, &text);
                        answer(Message::SavedAs { path, text, result })
                    })];
                }
                Outcome::Cancelled => self.mode = Mode::None,
                _ => {}
            },
            Mode::Value(editor) => match editor.key(key) {
                value::Answer::Stay => {}
                value::Answer::Cancelled => self.mode = Mode::None,
                value::Answer::Accepted(value) => {
                    let path = editor.path.clone();
                    self.mode = Mode::None;
                    set(sheet, &path, &value, shared);
                }
            },
            Mode::Choose(chooser) => {
                let length = chooser.matches().len();
                if let Some(by) = Move::of_typed(key) {
                    chooser.list.go(by, length, 10);
                    return Vec::new();
                }
                match chooser.field.key(key) {
                    Outcome::Changed => chooser.list.select(0),
                    Outcome::Cancelled => self.mode = Mode::None,
                    Outcome::Accepted => {
                        let selected = chooser.list.selected(length);
                        let choice = chooser.matches().get(selected).map(|&c| c.clone());
                        self.mode = Mode::None;
                        if let Some(choice) = choice {
                            return compare(sheet, choice, shared);
                        }
                    }
                    Outcome::Kept | Outcome::Unused => {}
                }
            }
        }
        Vec::new()
    }

    pub(super) fn pasted(&mut self, pasted: &str) {
        let sheet = self.sheets.get_mut(self.shown);
        match (&mut self.mode, sheet) {
            (Mode::Text, Some(sheet)) => sheet.type_paste(pasted),
            (Mode::Value(editor), _) => editor.paste(pasted),
            (Mode::Filter(field), Some(sheet)) => {
                field.paste(pasted);
                field.text().clone_into(&mut sheet.tree.filter);
                sheet.refresh();
            }
            (Mode::Search(field) | Mode::SaveAs(field), _) => field.paste(pasted),
            (Mode::Choose(chooser), _) => {
                chooser.field.paste(pasted);
                chooser.list.select(0);
            }
            _ => {}
        }
    }

    /// The wheel moves; a click selects, a second one on the same row opens.
    pub(super) fn mouse(
        &mut self,
        event: MouseEvent,
        area: Rect,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        if self.is_typing_now() {
            return Vec::new();
        }
        if let Some(by) = Move::of_wheel(event.kind) {
            for _ in 0..3 {
                self.command(Command::Move(by), shared);
            }
            return Vec::new();
        }
        if event.kind != MouseEventKind::Down(MouseButton::Left) {
            return Vec::new();
        }
        let body = draw::list_area(self, area);
        if !body.contains(Position::new(event.column, event.row)) {
            return Vec::new();
        }
        let row = usize::from(event.row - body.y);
        let visible = usize::from(body.height);
        let is_again = self.with_list(shared, |list, length| {
            let clicked = list.top(length, visible) + row;
            let is_again = list.selected(length) == clicked;
            if clicked < length {
                list.select(clicked);
            }
            is_again
        });
        if is_again {
            return self.command(Command::Open, shared);
        }
        Vec::new()
    }

    fn is_typing_now(&self) -> bool {
        !matches!(self.mode, Mode::None)
    }

    /// The list in front with its length.
    fn with_list<T>(&mut self, shared: &Shared, act: impl FnOnce(&mut ListState, usize) -> T) -> T {
        let is_files = self.is_choosing_file || self.sheets.is_empty();
        let Some(sheet) = self.sheets.get_mut(self.shown).filter(|_| !is_files) else {
            let length = self.offered(shared).len();
            return act(&mut self.files_list, length);
        };
        match (sheet.view, &mut sheet.diff) {
            (View::Text, _) => {
                let length = sheet.line_count();
                act(&mut sheet.text.list, length)
            }
            (View::Diff, Some(diff)) => {
                let length = diff.rows.len();
                act(&mut diff.list, length)
            }
            _ => act(&mut sheet.tree.list, sheet.tree.visible.len()),
        }
    }
}

fn move_in_list(key: KeyEvent, sheet: &mut Sheet, shared: &Shared) {
    if let Some(by) = Move::of_typed(key) {
        go(sheet, by, draw::body_rows(shared));
    }
}

/// The row that was most likely meant: a key that ends as the filter does, one that has it, one whose meaning has it. The
/// blocks around are only the way there.
fn select_first_key(sheet: &mut Sheet) {
    let rows = sheet.document.rows();
    let wanted = sheet.tree.filter.trim().to_lowercase();
    let rank = |key: &str| {
        let key = key.to_lowercase();
        (!key.ends_with(&wanted), !key.contains(&wanted))
    };
    let best = sheet
        .tree
        .visible
        .iter()
        .enumerate()
        .filter(|(_, row)| !rows[**row].is_block)
        .min_by_key(|(at, row)| (rank(&rows[**row].key), *at));
    let at = best.map_or(0, |(at, _)| at);
    sheet.tree.list.select(at);
}
