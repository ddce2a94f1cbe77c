//! What the commands do to the sheet in front.

use experiment::Severity;

use super::document::Outside;
use super::sheet::{Sheet, View};
use super::value::{self, ValueEditor};
use super::{Command, Config, Message, Mode, answer, chooser, draw, editor, files, rows};
use crate::tui::action::Effect;
use crate::tui::shared::{Notice, Shared, Wish};
use crate::tui::widgets::field::Field;
use crate::tui::widgets::list::Move;

/// A command while a sheet is in front.
pub(super) fn command(page: &mut Config, command: Command, shared: &mut Shared) -> Vec<Effect> {
    let Some(sheet) = page.sheets.get_mut(page.shown) else {
        return Vec::new();
    };
    match command {
        Command::Move(by) => go(sheet, by, draw::body_rows(shared)),
        Command::Open => match sheet.view {
            View::Tree => page.mode = open_row(sheet, shared),
            View::Text => page.mode = start_typing(sheet, shared),
            View::Diff => open_difference(sheet),
        },
        Command::Insert => {
            if sheet.view == View::Tree
                && let Some(line) = sheet.selected_line()
            {
                sheet.text.list.select(line);
            }
            page.mode = start_typing(sheet, shared);
        }
        Command::Toggle => toggle(sheet, shared),
        Command::Fold => fold(sheet),
        Command::Unfold => unfold(sheet),
        Command::FoldAll => fold_all(sheet),
        Command::Filter => {
            page.mode = if sheet.view == View::Text {
                Mode::Search(Field::new(sheet.text.search.clone()))
            } else {
                sheet.view = View::Tree;
                Mode::Filter(Field::new(sheet.tree.filter.clone()))
            };
        }
        Command::Next | Command::Previous => {
            if sheet.text.search.is_empty() {
                shared.say(Notice::caution(
                    "nothing is searched for: / in the text (tab)",
                ));
            } else {
                sheet.view = View::Text;
                if !sheet.find(command == Command::Next) {
                    let text = format!("`{}` is not in the text", sheet.text.search);
                    shared.say(Notice::caution(text));
                }
            }
        }
        Command::ShowAll => {
            sheet.view = View::Tree;
            sheet.tree.shows_all = !sheet.tree.shows_all;
            sheet.refresh();
        }
        Command::Remove => remove(sheet, shared),
        Command::SetDefault => set_default(sheet, shared),
        Command::Undo | Command::Redo => history(sheet, command == Command::Undo, shared),
        Command::Save => return save(sheet, false, shared),
        Command::Overwrite => return save(sheet, true, shared),
        Command::Reload => return reload(sheet, shared),
        Command::SaveAs => {
            if !shared.refuse_when_read_only("saving") {
                page.mode = Mode::SaveAs(Field::new(suggested_name(sheet, shared)));
            }
        }
        Command::Switch => switch(sheet),
        Command::External => return editor::external(sheet, shared),
        Command::Compare => page.mode = Mode::Choose(chooser::chooser(sheet, shared)),
        Command::Launch => {
            if sheet.document.is_modified() {
                shared.say(Notice::caution(
                    "save first (w): a launch reads the file, not what is typed here",
                ));
            } else {
                shared.wish = Some(Wish::Launch(sheet.document.path().to_owned()));
            }
        }
        Command::NextComplaint => next_complaint(sheet, shared),
        // The page's own.
        Command::Files | Command::Record | Command::Expand => {}
    }
    Vec::new()
}

pub(super) fn go(sheet: &mut Sheet, by: Move, rows: usize) {
    match sheet.view {
        View::Tree => {
            let length = sheet.tree.visible.len();
            sheet.tree.list.go(by, length, rows);
        }
        View::Text => {
            let length = sheet.line_count();
            sheet.text.list.go(by, length, rows);
        }
        View::Diff => {
            if let Some(diff) = &mut sheet.diff {
                diff.list.go(by, diff.rows.len(), rows);
            }
        }
    }
}

/// Says why this may not be edited, when that is so.
pub(super) fn refuses(sheet: &Sheet, shared: &mut Shared) -> bool {
    if shared.refuse_when_read_only("editing") {
        return true;
    }
    if sheet.document.is_record {
        shared.say(Notice::caution(
            "a run's record is not edited; S saves a copy that can be, L prepares a launch",
        ));
    }
    sheet.document.is_record
}

fn open_row(sheet: &mut Sheet, shared: &mut Shared) -> Mode {
    let Some(row) = sheet.row() else {
        shared.say(Notice::caution("no row is selected; a shows every key"));
        return Mode::None;
    };
    if row.is_block {
        let key = row.key.clone();
        if !sheet.tree.folded.remove(&key) {
            sheet.tree.folded.insert(key);
        }
        sheet.refresh();
        return Mode::None;
    }
    if refuses(sheet, shared) {
        return Mode::None;
    }
    let Some(editor) = sheet.row().and_then(ValueEditor::new) else {
        shared.say(Notice::caution(
            "a text of several lines is edited in the text view: tab, then i",
        ));
        return Mode::None;
    };
    Mode::Value(editor)
}

fn start_typing(sheet: &mut Sheet, shared: &mut Shared) -> Mode {
    if refuses(sheet, shared) {
        return Mode::None;
    }
    sheet.view = View::Text;
    sheet.start_typing();
    Mode::Text
}

fn open_difference(sheet: &mut Sheet) {
    let key = sheet.diff.as_ref().and_then(|diff| {
        let at = diff.list.selected(diff.rows.len());
        match diff.rows.get(at)? {
            super::diff::DiffRow::Key { key, .. } => Some(key.clone()),
            _ => None,
        }
    });
    if let Some(key) = key {
        sheet.view = View::Tree;
        sheet.reveal(&key);
    }
}

fn toggle(sheet: &mut Sheet, shared: &mut Shared) {
    let Some(row) = sheet.row().filter(|_| sheet.view == View::Tree) else {
        return;
    };
    if row.is_block {
        open_row(sheet, shared);
        return;
    }
    let Some(next) = value::next_choice(row) else {
        shared.say(Notice::caution("this value is typed: enter"));
        return;
    };
    if refuses(sheet, shared) {
        return;
    }
    let path = sheet.row().map(|row| row.path.clone()).unwrap_or_default();
    set(sheet, &path, &next, shared);
}

pub(super) fn set(sheet: &mut Sheet, path: &str, value: &serde_json::Value, shared: &mut Shared) {
    let names: Vec<&str> = path.split('.').collect();
    let outcome = sheet.change(|document| document.set(&names, value));
    if let Err(problem) = outcome {
        shared.say(Notice::bad(problem.to_string()));
    }
}

fn fold(sheet: &mut Sheet) {
    let Some(row) = sheet.row().filter(|_| sheet.view == View::Tree) else {
        return;
    };
    let key = row.key.clone();
    if row.is_block && !sheet.tree.folded.contains(&key) {
        sheet.tree.folded.insert(key);
        sheet.refresh();
        return;
    }
    // To the block around.
    let depth = row.depth;
    let rows = sheet.document.rows();
    let visible = &sheet.tree.visible;
    let at = sheet.tree.list.selected(visible.len());
    let around = visible[..at]
        .iter()
        .rposition(|&row| rows[row].depth < depth);
    if let Some(around) = around {
        sheet.tree.list.select(around);
    }
}

fn unfold(sheet: &mut Sheet) {
    let Some(row) = sheet.row().filter(|_| sheet.view == View::Tree) else {
        return;
    };
    if !row.is_block {
        return;
    }
    let key = row.key.clone();
    if sheet.tree.folded.remove(&key) {
        sheet.refresh();
    } else {
        let length = sheet.tree.visible.len();
        sheet.tree.list.go(Move::Down, length, length);
    }
}

fn fold_all(sheet: &mut Sheet) {
    if sheet.tree.folded.is_empty() {
        let top = sheet
            .document
            .rows()
            .iter()
            .filter(|row| row.is_block)
            .map(|row| row.key.clone());
        sheet.tree.folded = top.collect();
    } else {
        sheet.tree.folded.clear();
    }
    sheet.view = View::Tree;
    sheet.refresh();
}

fn remove(sheet: &mut Sheet, shared: &mut Shared) {
    let Some(row) = sheet.row().filter(|_| sheet.view == View::Tree) else {
        shared.say(Notice::caution("keys are removed in the tree (tab)"));
        return;
    };
    if !row.is_in_file() {
        shared.say(Notice::caution(
            "the file does not give this key; its default holds",
        ));
        return;
    }
    if refuses(sheet, shared) {
        return;
    }
    let path = sheet.row().map(|row| row.path.clone()).unwrap_or_default();
    let names: Vec<&str> = path.split('.').collect();
    match sheet.change(|document| document.remove(&names)) {
        Ok(()) => shared.say(Notice::good(format!(
            "{path} is taken out; u brings it back"
        ))),
        Err(problem) => shared.say(Notice::bad(problem.to_string())),
    }
}

fn set_default(sheet: &mut Sheet, shared: &mut Shared) {
    let live = sheet
        .row()
        .filter(|_| sheet.view == View::Tree)
        .and_then(rows::Row::live);
    let Some(live) = live else {
        shared.say(Notice::caution("only a key of the tree has a default"));
        return;
    };
    if refuses(sheet, shared) {
        return;
    }
    let path = sheet.row().map(|row| row.path.clone()).unwrap_or_default();
    set(sheet, &path, &rows::default_value(live), shared);
}

fn history(sheet: &mut Sheet, is_undo: bool, shared: &mut Shared) {
    let what = sheet.change(|document| {
        if is_undo {
            document.undo()
        } else {
            document.redo()
        }
    });
    match what {
        Some(what) => {
            sheet.select_changed(&what);
            let verb = if is_undo { "undone" } else { "done again" };
            shared.say(Notice::good(format!("{verb}: {what}")));
        }
        None if is_undo => shared.say(Notice::caution("nothing to undo")),
        None => shared.say(Notice::caution("nothing to do again")),
    }
}

pub(super) fn save(sheet: &mut Sheet, is_forced: bool, shared: &mut Shared) -> Vec<Effect> {
    if refuses(sheet, shared) {
        return Vec::new();
    }
    let document = &mut sheet.document;
    let name = document.name().to_owned();
    if !is_forced {
        match document.outside {
            Some(Outside::Changed(_)) => {
                shared.say(Notice::caution(format!(
                    "not saved: {name} was changed outside; R takes that, W overwrites it, c compares"
                )));
                return Vec::new();
            }
            Some(Outside::Deleted) => {
                shared.say(Notice::caution(format!(
                    "not saved: {name} was deleted; W writes it again"
                )));
                return Vec::new();
            }
            None => {}
        }
        if !document.is_modified() {
            shared.say(Notice::good(format!("{name} is saved already")));
            return Vec::new();
        }
    }
    let text = document.text().to_owned();
    let expected = (!is_forced).then(|| document.saved().to_owned());
    let path = document.path().to_owned();
    document.saving = Some(text.clone());
    vec![Effect::job("save experiment", move || {
        let outcome = files::save(&path, expected.as_deref(), &text);
        answer(Message::Saved {
            path,
            text,
            outcome,
        })
    })]
}

fn reload(sheet: &mut Sheet, shared: &mut Shared) -> Vec<Effect> {
    match sheet.document.outside.take() {
        Some(Outside::Changed(disk)) => {
            sheet.change(|document| document.reload(disk));
            shared.say(Notice::good("read from disk; u brings your edits back"));
            Vec::new()
        }
        other => {
            sheet.document.outside = other;
            if sheet.document.is_modified() && sheet.document.outside.is_none() {
                let saved = sheet.document.saved().to_owned();
                sheet.change(|document| document.reload(saved));
                shared.say(Notice::good("as on disk; u brings your edits back"));
            }
            vec![super::disk_job(sheet.document.path())]
        }
    }
}

/// `experiments/quickstart-2.yaml` for `experiments/quickstart.yaml`; of a run, its experiment's name.
fn suggested_name(sheet: &Sheet, shared: &Shared) -> String {
    let path = sheet.document.path();
    if sheet.document.is_record {
        let name = sheet
            .document
            .effective()
            .pointer("/trainer/experiment_name")
            .and_then(serde_json::Value::as_str)
            .unwrap_or("copy")
            .to_owned();
        let copy = shared.project.experiments.join(format!("{name}-2.yaml"));
        return super::short_name(&copy, shared);
    }
    let stem = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    let copy = path.with_file_name(format!("{}-2.yaml", stem.unwrap_or_default()));
    super::short_name(&copy, shared)
}

fn switch(sheet: &mut Sheet) {
    sheet.view = match sheet.view {
        View::Tree => {
            if let Some(line) = sheet.selected_line() {
                sheet.text.list.select(line);
            }
            View::Text
        }
        View::Text => {
            let line = sheet.text.list.selected(sheet.line_count());
            sheet.select_line(line);
            View::Tree
        }
        View::Diff => {
            if let Some(diff) = &mut sheet.diff {
                diff.switch_form(&sheet.document);
            }
            View::Diff
        }
    };
}

/// The next in the order of the file, after the cursor, around the end.
fn next_complaint(sheet: &mut Sheet, shared: &mut Shared) {
    let all = sheet.document.complaints();
    if all.is_empty() {
        shared.say(Notice::good("nothing to complain about"));
        return;
    }
    let now = match sheet.view {
        View::Text => Some(sheet.text.list.selected(sheet.line_count()) as u32 + 1),
        _ => sheet.row().and_then(|row| row.line),
    };
    let selected = sheet.row().map(|row| row.key.clone());
    // Those without a line come last.
    let place = |line: Option<u32>| line.unwrap_or(u32::MAX);
    let after = if let Some(now) = now {
        all.iter().position(|complaint| place(complaint.line) > now)
    } else {
        let here = all
            .iter()
            .rposition(|complaint| Some(&complaint.key) == selected.as_ref());
        here.and_then(|at| (at + 1 < all.len()).then_some(at + 1))
    };
    let next = all[after.unwrap_or(0)].clone();
    let word = match next.severity {
        Severity::Error => Notice::bad(format!("error: {}", next.message)),
        Severity::Warning => Notice::caution(format!("warning: {}", next.message)),
        Severity::Note => Notice::good(format!("note: {}", next.message)),
    };
    shared.say(word);
    let is_shown = sheet.view != View::Text && !next.key.is_empty() && {
        sheet.view = View::Tree;
        sheet.reveal(&next.key)
    };
    if !is_shown && let Some(line) = next.line {
        sheet.view = View::Text;
        sheet.text.list.select(line as usize - 1);
    }
}
