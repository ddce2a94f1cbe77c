//! The experiment as a tree and as text, checked while it is edited.
//!
//! ```text
//!  files (jobs: read, save) ─► Sheet { Document (text, history, rows, complaints) · tree · text · comparison } ─► draw
//!                keys ─► update ─► one line being typed (Mode) ─► Document::set, remove, replace
//! ```
//! Saving is a job that refuses when somebody else wrote the file; nothing typed is ever lost by it.

mod chooser;
mod diff;
mod document;
mod draw;
mod draw_diff;
mod draw_text;
mod edit;
mod editor;
mod explain;
pub(super) mod files;
mod outside;
mod rows;
mod sheet;
#[cfg(test)]
mod tests;
mod typing;
mod value;

use std::path::{Path, PathBuf};

use ratatui::Frame;
use ratatui::layout::Rect;

use super::{Input, Page};
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::bindings::{Binding, page_rows, with_moves};
use crate::tui::shared::{Notice, Problem, Shared, Wish};
use crate::tui::widgets::field::Field;
use crate::tui::widgets::list::{ListState, Move};

use chooser::Chooser;
use diff::{Against, DiffView};
use document::Document;
use files::{Found, Saved};
use sheet::{Sheet, View};
use value::ValueEditor;

/// The name of the comparison with the file.
const ON_DISK: &str = "the file on disk";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Move(Move),
    Open,
    Toggle,
    Fold,
    Unfold,
    FoldAll,
    Filter,
    Next,
    Previous,
    ShowAll,
    Remove,
    SetDefault,
    Undo,
    Redo,
    Save,
    Overwrite,
    Reload,
    SaveAs,
    Switch,
    Insert,
    External,
    Compare,
    Files,
    Record,
    Launch,
    NextComplaint,
    Expand,
}

/// Answers to this page's jobs.
#[derive(Debug)]
pub enum Message {
    /// Show this file for editing.
    Open(PathBuf),
    /// A watched file was changed by somebody.
    FileChanged(PathBuf),
    Listed(Result<Vec<Found>, String>),
    Read {
        path: PathBuf,
        is_record: bool,
        result: Result<String, String>,
    },
    /// What a file that changed holds now; `Ok(None)`: it is gone.
    Disk {
        path: PathBuf,
        result: Result<Option<String>, String>,
    },
    Saved {
        path: PathBuf,
        text: String,
        outcome: Saved,
    },
    SavedAs {
        path: PathBuf,
        text: String,
        result: Result<(), String>,
    },
    /// The text to compare with.
    Compared {
        of: PathBuf,
        name: String,
        result: Result<String, String>,
    },
    /// A copy lies ready for the editor.
    EditorReady {
        path: PathBuf,
        copy: PathBuf,
        editor: String,
    },
    /// The editor was left.
    Edited {
        path: PathBuf,
        result: Result<String, String>,
    },
}

page_rows!(Config);

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = with_moves!["config", row, Command::Move;
    row("config.open", &["enter"], Command::Open, "edit the value, fold or unfold the block, open the file", "edit"),
    row("config.save", &["w", "ctrl-s"], Command::Save, "save, in one step; refused when the file changed outside", "save"),
    row("config.undo", &["u"], Command::Undo, "undo the last change", "undo"),
    row("config.redo", &["ctrl-r"], Command::Redo, "do again what was undone", ""),
    row("config.switch", &["tab"], Command::Switch, "tree or text; in a comparison: keys or lines", "text"),
    row("config.filter", &["/"], Command::Filter, "find keys by name or meaning, also those not in the file; in the text: search", "find"),
    row("config.all", &["a"], Command::ShowAll, "show every key with its default, or only what the file gives", "all keys"),
    row("config.compare", &["c"], Command::Compare, "compare with the defaults, the file on disk or a run", "compare"),
    row("config.files", &["o"], Command::Files, "open another experiment", "files"),
    row("config.launch", &["L"], Command::Launch, "prepare a launch of this experiment", "launch"),
    row("config.toggle", &["space"], Command::Toggle, "turn true to false and back, or take the next choice", ""),
    row("config.remove", &["x", "delete"], Command::Remove, "take the key out of the file, so that its default holds", ""),
    row("config.default", &["D"], Command::SetDefault, "write the default into the file", ""),
    row("config.insert", &["i"], Command::Insert, "type into the text, at the line of the cursor; esc ends it", ""),
    row("config.external", &["E"], Command::External, "edit the text in $VISUAL or $EDITOR", ""),
    row("config.complaint", &["!"], Command::NextComplaint, "to the next error, warning or note", ""),
    row("config.reload", &["R"], Command::Reload, "take the file as it is on disk; u brings your edits back", ""),
    row("config.overwrite", &["W"], Command::Overwrite, "save even though the file changed outside", ""),
    row("config.save_as", &["S"], Command::SaveAs, "save a copy under another name and edit that", ""),
    row("config.record", &["O"], Command::Record, "the experiment of the current run, as it was used (read-only)", ""),
    row("config.fold", &["h", "left"], Command::Fold, "fold the block, or go to the block around", ""),
    row("config.unfold", &["l", "right"], Command::Unfold, "unfold the block, or go into it", ""),
    row("config.fold_all", &["z"], Command::FoldAll, "fold all blocks, or unfold all", ""),
    row("config.next", &["n"], Command::Next, "next match of the search", ""),
    row("config.previous", &["N"], Command::Previous, "match before", ""),
    row("config.expand", &["e"], Command::Expand, "hide or show the pane that explains the key", ""),
];

/// What is being typed.
#[derive(Debug, Default)]
enum Mode {
    #[default]
    None,
    Filter(Field),
    Search(Field),
    SaveAs(Field),
    Value(ValueEditor),
    /// Into the text of the shown sheet.
    Text,
    Choose(Chooser),
}

#[derive(Debug, Default)]
pub struct Config {
    sheets: Vec<Sheet>,
    /// The sheet in front.
    shown: usize,
    /// The list of experiments is in front.
    is_choosing_file: bool,
    files: Option<Result<Vec<Found>, String>>,
    files_list: ListState,
    mode: Mode,
    is_expanded: bool,
}

impl Page for Config {
    fn update(&mut self, input: Input<'_>, shared: &mut Shared) -> Vec<Effect> {
        match input {
            Input::Command(action::Command::Config(command)) => self.command(command, shared),
            Input::Key(key) => self.typed(key, shared),
            Input::Paste(pasted) => {
                self.pasted(pasted);
                Vec::new()
            }
            Input::Mouse(event, area) => self.mouse(event, area, shared),
            Input::Shown => {
                let wants_list = self.sheets.is_empty() || self.is_choosing_file;
                if wants_list {
                    self.is_choosing_file = self.sheets.is_empty();
                    return vec![list_job(shared)];
                }
                Vec::new()
            }
            Input::Message(PageMessage::Config(message)) => self.message(message, shared),
            Input::Command(_) | Input::Message(_) | Input::DataChanged => Vec::new(),
        }
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        draw::page(self, shared, frame, area);
    }

    fn is_typing(&self) -> bool {
        !matches!(self.mode, Mode::None)
    }

    fn back(&mut self, _shared: &mut Shared) -> bool {
        if self.is_choosing_file && !self.sheets.is_empty() {
            self.is_choosing_file = false;
            return true;
        }
        let Some(sheet) = self.sheets.get_mut(self.shown) else {
            return false;
        };
        match sheet.view {
            View::Diff => {
                sheet.view = View::Tree;
                sheet.diff = None;
            }
            View::Text if !sheet.text.search.is_empty() => sheet.text.search.clear(),
            View::Text => sheet.view = View::Tree,
            View::Tree if !sheet.tree.filter.is_empty() => {
                sheet.tree.filter.clear();
                sheet.refresh();
            }
            View::Tree => return false,
        }
        true
    }

    fn copied(&self, _shared: &Shared) -> Option<(String, String)> {
        let sheet = self.sheet()?;
        match sheet.view {
            View::Tree => {
                let row = sheet.row()?;
                if row.is_block {
                    return Some((row.key.clone(), "the block's name".to_owned()));
                }
                let text = format!("{}={}", row.key, row.value);
                Some((text, "the key and its value".to_owned()))
            }
            View::Text => {
                let text = sheet.document.text().to_owned();
                Some((text, format!("the text of {}", sheet.document.name())))
            }
            View::Diff => {
                let diff = sheet.diff.as_ref()?;
                let text = draw_diff::diff_text(diff);
                Some((text, format!("{} lines of the comparison", diff.rows.len())))
            }
        }
    }

    fn unsaved(&self) -> Option<String> {
        let mut names: Vec<String> = self
            .sheets
            .iter()
            .filter(|sheet| sheet.document.is_modified() && !sheet.document.is_record)
            .map(|sheet| format!("{} has unsaved changes", sheet.document.name()))
            .collect();
        if let Mode::Value(editor) = &self.mode
            && editor.is_changed()
        {
            names.push(format!("the value of {} is being typed", editor.path));
        }
        (!names.is_empty()).then(|| names.join("\n"))
    }

    fn status(&self, _shared: &Shared) -> String {
        self.sheet().map_or_else(String::new, |sheet| {
            let document = &sheet.document;
            let mark = if document.is_modified() { " *" } else { "" };
            format!("{}{mark}", document.name())
        })
    }
}

/// An experiment in the list of those that can be opened.
#[derive(Debug)]
struct Offered {
    path: PathBuf,
    name: String,
    about: String,
    /// Of a run: it is shown, not edited.
    is_record: bool,
}

impl Config {
    /// The sheet in front, unless the list of files is.
    fn sheet(&self) -> Option<&Sheet> {
        if self.is_choosing_file {
            return None;
        }
        self.sheets.get(self.shown)
    }

    /// The experiments that are edited, and the folder of those that can be.
    fn watch(&self, shared: &Shared) -> Effect {
        let listed = shared.project.experiments.join("any.yaml");
        let edited = self.sheets.iter().map(|sheet| sheet.document.path());
        Effect::WatchFiles {
            owner: "config",
            files: std::iter::once(listed)
                .chain(edited.map(PathBuf::from))
                .collect(),
        }
    }

    fn sheet_of(&mut self, path: &Path) -> Option<&mut Sheet> {
        self.sheets
            .iter_mut()
            .find(|sheet| sheet.document.path() == path)
    }

    fn command(&mut self, command: Command, shared: &mut Shared) -> Vec<Effect> {
        match command {
            Command::Files => {
                self.is_choosing_file = true;
                return vec![list_job(shared)];
            }
            Command::Record => return record(shared),
            Command::Expand => {
                self.is_expanded = !self.is_expanded;
                return Vec::new();
            }
            _ => {}
        }
        if self.is_choosing_file || self.sheets.is_empty() {
            return self.command_on_files(command, shared);
        }
        edit::command(self, command, shared)
    }

    /// What can be opened: the project's experiments, then that of the current run, as it was used.
    fn offered(&self, shared: &Shared) -> Vec<Offered> {
        let found = self.files.iter().flatten().flatten();
        let mut offered: Vec<Offered> = found
            .map(|found| Offered {
                path: found.path.clone(),
                name: found
                    .path
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned())
                    .unwrap_or_default(),
                about: found.about.clone(),
                is_record: false,
            })
            .collect();
        if let Some(key) = &shared.current {
            offered.push(Offered {
                path: key.path().join("experiment.yaml"),
                name: format!("run {}", key.name()),
                about: "the current run's, as it was used (read-only)".to_owned(),
                is_record: true,
            });
        }
        offered
    }

    fn command_on_files(&mut self, command: Command, shared: &mut Shared) -> Vec<Effect> {
        if self.files.is_none() {
            shared.say(Notice::caution("there is no experiment to open yet"));
            return Vec::new();
        }
        let offered = self.offered(shared);
        match command {
            Command::Move(by) => {
                let rows = draw::body_rows(shared);
                self.files_list.go(by, offered.len(), rows);
            }
            Command::Open | Command::Unfold => {
                let selected = self.files_list.selected(offered.len());
                if let Some(chosen) = offered.get(selected) {
                    return self.open(&chosen.path, chosen.is_record);
                }
                shared.say(Notice::caution("there is no experiment to open"));
            }
            Command::Reload => return vec![list_job(shared)],
            _ => shared.say(Notice::caution("open an experiment first: enter")),
        }
        Vec::new()
    }

    /// Shows a file; one that is open already keeps its edits.
    fn open(&mut self, path: &Path, is_record: bool) -> Vec<Effect> {
        let known = self
            .sheets
            .iter()
            .position(|sheet| sheet.document.path() == path);
        if let Some(at) = known {
            self.shown = at;
            self.is_choosing_file = false;
            return vec![disk_job(path)];
        }
        let path = path.to_owned();
        vec![Effect::job("read experiment", move || {
            let result = files::read(&path);
            answer(Message::Read {
                path,
                is_record,
                result,
            })
        })]
    }

    fn message(&mut self, message: &mut Message, shared: &mut Shared) -> Vec<Effect> {
        match message {
            Message::Open(path) => return self.open(&path.clone(), false),
            Message::FileChanged(path) => {
                let is_listed = self.is_choosing_file
                    && path.parent() == Some(shared.project.experiments.as_path());
                let mut effects = Vec::new();
                if is_listed {
                    effects.push(list_job(shared));
                }
                if self.sheet_of(path).is_some() {
                    effects.push(disk_job(path));
                }
                return effects;
            }
            Message::Listed(result) => {
                self.files = Some(std::mem::replace(result, Ok(Vec::new())));
                return vec![self.watch(shared)];
            }
            Message::Read {
                path,
                is_record,
                result,
            } => {
                let text = match result {
                    Ok(text) => std::mem::take(text),
                    Err(reason) => {
                        let help = "press o for the list of experiments";
                        return problem(shared, "The experiment cannot be opened", reason, help);
                    }
                };
                if self.sheet_of(path).is_none() {
                    let name = short_name(path, shared);
                    let document = Document::new(path, &name, text, *is_record);
                    self.sheets.push(Sheet::new(document));
                }
                self.shown = self
                    .sheets
                    .iter()
                    .position(|sheet| sheet.document.path() == path)
                    .unwrap_or(0);
                self.is_choosing_file = false;
                return vec![self.watch(shared)];
            }
            Message::Disk { path, result } => {
                if let Some(sheet) = self.sheet_of(path) {
                    outside::on_disk(sheet, result, shared);
                    self.retype_after_reload();
                }
            }
            Message::Saved {
                path,
                text,
                outcome,
            } => {
                if let Some(sheet) = self.sheet_of(path) {
                    return outside::on_saved(sheet, std::mem::take(text), outcome, shared);
                }
            }
            Message::SavedAs { path, text, result } => {
                if let Err(reason) = result {
                    let help = "your edits are kept; S tries another name";
                    return problem(shared, "The copy was not saved", reason, help);
                }
                let name = short_name(path, shared);
                shared.say(Notice::good(format!("saved as {name}")));
                // The copy goes on; the file it was made from is as it is on disk.
                let is_copied = |sheet: &Sheet| sheet.document.text() == text.as_str();
                if let Some(sheet) = self.sheets.get_mut(self.shown)
                    && is_copied(sheet)
                    && sheet.document.is_modified()
                {
                    let saved = sheet.document.saved().to_owned();
                    sheet.change(|document| document.replace(saved, "save as", false));
                }
                return self.open(&path.clone(), false);
            }
            Message::Compared { of, name, result } => {
                let text = match result {
                    Ok(text) => std::mem::take(text),
                    Err(reason) => {
                        return problem(shared, "There is nothing to compare with", reason, "");
                    }
                };
                let against = Against::Text {
                    name: std::mem::take(name),
                    text,
                };
                if let Some(sheet) = self.sheet_of(of) {
                    sheet.diff = Some(DiffView::new(against, &sheet.document));
                    sheet.view = View::Diff;
                }
            }
            Message::EditorReady { path, copy, editor } => {
                return vec![editor::foreground(path, copy, editor)];
            }
            Message::Edited { path, result } => match result {
                Ok(text) => {
                    let text = std::mem::take(text);
                    if let Some(sheet) = self.sheet_of(path) {
                        let is_same = sheet.document.text() == text;
                        sheet.change(|document| document.replace(text, "$EDITOR", false));
                        shared.say(if is_same {
                            Notice::good("the editor changed nothing")
                        } else {
                            Notice::good("taken from the editor; w saves, u undoes")
                        });
                    }
                }
                Err(reason) => {
                    return problem(shared, "The editor's text was not taken", reason, "");
                }
            },
        }
        Vec::new()
    }

    /// The text under the cursor of somebody typing may have been replaced.
    fn retype_after_reload(&mut self) {
        if let (Mode::Text, Some(sheet)) = (&self.mode, self.sheets.get_mut(self.shown)) {
            let is_behind = sheet
                .text
                .area
                .as_ref()
                .is_some_and(|area| area.lines().join("\n") != sheet.document.text());
            if is_behind {
                sheet.start_typing();
            }
        }
    }
}

fn answer(message: Message) -> action::Message {
    action::Message::Page(PageMessage::Config(message))
}

fn problem(shared: &mut Shared, title: &str, detail: &str, help: &str) -> Vec<Effect> {
    shared.wish = Some(Wish::Problem(Problem::new(title, detail, help)));
    Vec::new()
}

fn list_job(shared: &Shared) -> Effect {
    let folder = shared.project.experiments.clone();
    Effect::job("list experiments", move || {
        answer(Message::Listed(files::list(&folder)))
    })
}

fn disk_job(path: &Path) -> Effect {
    let path = path.to_owned();
    Effect::job("read experiment again", move || {
        let result = if path.exists() {
            files::read(&path).map(Some)
        } else {
            Ok(None)
        };
        answer(Message::Disk { path, result })
    })
}

/// Opens the experiment that the current run used.
fn record(shared: &mut Shared) -> Vec<Effect> {
    let Some(key) = &shared.current else {
        shared.say(Notice::caution("no run is chosen: page 1, enter"));
        return Vec::new();
    };
    let path = key.path().join("experiment.yaml");
    vec![Effect::job("read experiment", move || {
        let result = files::read(&path);
        answer(Message::Read {
            path,
            is_record: true,
            result,
        })
    })]
}

/// A path as people write it: from the project's directory on; of a run: its name and the file.
pub(super) fn short_name(path: &Path, shared: &Shared) -> String {
    if let Ok(inside) = path.strip_prefix(&shared.project.directory) {
        return inside.display().to_string();
    }
    for root in &shared.project.runs_roots {
        if let Ok(inside) = path.strip_prefix(root) {
            return inside.display().to_string();
        }
    }
    path.display().to_string()
}
