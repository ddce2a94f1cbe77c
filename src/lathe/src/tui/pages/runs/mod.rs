//! Every run that was found: state, progress, metrics, notes; filter, sort, mark, delete.
//!
//! ```text
//!  Shared::runs ─► filter (runlog::filter) ─► sort ─► `order`: once per change of the data, not per frame
//!  order ─► the rows on screen ─► cells          details: whole logs, read in jobs for what is on screen
//! ```
//! The selection is a run, not a row: it stays with its run when the list changes.

mod changes;
mod columns;
mod commands;
mod details;
mod draw;
mod facts;
mod overlay;
#[cfg(test)]
mod tests;
mod typing;

use std::sync::Arc;

use ratatui::Frame;
use ratatui::layout::Rect;
use runlog::filter::{Filter, FilterError, RunFacts};
use runlog::notes::Notes;
use runlog::run_dir::Origin;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{Input, Page, PageId};
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::shared::{Notice, Problem, RunEntry, RunKey, Shared, Wish};
use crate::tui::widgets::field::Field;
use crate::tui::widgets::list::{ListState, Move};
use crate::tui::widgets::text;
use changes::Edited;
use columns::Column;
use details::{Detail, Details};
use facts::Facts;
use overlay::{MetricPicker, SortMenu};

pub use commands::{BINDINGS, Command};

/// Answers to this page's jobs.
#[derive(Debug)]
pub enum Message {
    Details {
        id: u64,
        found: Vec<(RunKey, Detail)>,
    },
    Configs(Vec<(RunKey, Arc<Json>)>),
    Edited {
        key: RunKey,
        result: Result<Notes, String>,
    },
    Deleted {
        gone: Vec<RunKey>,
        failures: Vec<String>,
    },
    /// It goes on, or why it does not.
    Resumed {
        key: RunKey,
        result: Result<(), String>,
    },
    /// What an earlier delete left behind is gone, as far as it can be.
    CleanedUp,
}

/// What the keys go to.
#[derive(Debug, Default)]
enum Mode {
    #[default]
    Browse,
    Filter(Field),
    Edit {
        key: RunKey,
        what: Edited,
        field: Field,
        complaint: Option<String>,
    },
    Sort(SortMenu),
    Metrics(MetricPicker),
}

/// What is remembered per project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    metrics: Vec<String>,
    sort: Column,
    is_descending: bool,
}

/// Its name in [`crate::tui::settings::PageState`].
const KEPT: &str = "runs";

impl Default for Kept {
    fn default() -> Self {
        Self {
            metrics: columns::DEFAULT_METRICS.map(str::to_owned).to_vec(),
            // Newest on top.
            sort: Column::Age,
            is_descending: false,
        }
    }
}

#[derive(Debug, Default)]
pub struct Runs {
    kept: Option<Kept>,
    mode: Mode,
    filter_text: String,
    filter: Option<Filter>,
    /// What was typed is no filter; the terms before its fault are in force.
    error: Option<FilterError>,
    /// The filter asks for what no run has.
    complaints: Vec<FilterError>,
    /// Rows of the table: indices into the list of runs.
    order: Vec<usize>,
    /// Columns of the longest full name, and of the longest short one.
    longest_names: (usize, usize),
    /// Some run of the list is of another machine.
    tells_hosts: bool,
    list: ListState,
    selected: Option<RunKey>,
    details: Details,
    is_preview_expanded: bool,
    /// Asked about, not yet confirmed.
    to_delete: Vec<RunKey>,
    to_resume: Option<RunKey>,
    /// The list that `order` was made from.
    version: Option<u64>,
    has_asked_targets: bool,
}

impl Runs {
    fn kept(&self) -> Kept {
        self.kept.clone().unwrap_or_default()
    }

    /// Rows that the list has: runs, then the directories that cannot be read.
    fn row_count(&self, shared: &Shared) -> usize {
        let unlisted = if self.filter_text.trim().is_empty() {
            shared.runs.unlisted.len()
        } else {
            0
        };
        self.order.len() + unlisted
    }

    fn selected_entry<'a>(&self, shared: &'a Shared) -> Option<&'a RunEntry> {
        let row = self.list.selected(self.row_count(shared));
        shared.runs.entries.get(*self.order.get(row)?)
    }

    /// The run that somebody went to in the list; None: nobody did, and the first is as good as any.
    pub fn chosen_entry<'a>(&self, shared: &'a Shared) -> Option<&'a RunEntry> {
        let is_touched =
            self.list.selected(self.row_count(shared)) > 0 || !self.filter_text.trim().is_empty();
        self.selected_entry(shared).filter(|_| is_touched)
    }

    fn row_entry<'a>(&self, row: usize, shared: &'a Shared) -> Option<&'a RunEntry> {
        shared.runs.entries.get(*self.order.get(row)?)
    }

    /// Filters and sorts again; the selection stays with its run.
    fn rebuild(&mut self, shared: &Shared) {
        let kept = self.kept();
        let facts = |entry| Facts {
            entry,
            detail: self.details.get(&entry.key),
            config: self.details.config(&entry.key),
            now: shared.now,
        };
        let entries = &shared.runs.entries;
        let mut keyed: Vec<(usize, columns::SortKey)> = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| {
                self.filter
                    .as_ref()
                    .is_none_or(|filter| filter.matches(&facts(entry)))
            })
            .map(|(index, entry)| {
                let key = columns::sort_key(&kept.sort, entry, &self.details, shared.now);
                (index, key)
            })
            .collect();
        // Stable: equal runs stay newest first.
        keyed.sort_by(|(_, a), (_, b)| columns::compare(a, b, kept.is_descending));
        self.complaints = match &self.filter {
            Some(filter) => {
                let facts: Vec<Facts<'_>> = entries.iter().map(facts).collect();
                filter.check(facts.iter().map(|facts| facts as &dyn RunFacts))
            }
            None => Vec::new(),
        };
        self.order = keyed.into_iter().map(|(index, _)| index).collect();
        self.longest_names = self.order.iter().fold((0, 0), |(full, short), index| {
            let entry = &entries[*index];
            (
                full.max(text::width(&entry.info.name)),
                short.max(text::width(&columns::short_name(entry))),
            )
        });
        self.tells_hosts = self.order.iter().any(|index| {
            let origin = entries[*index].info.origin.as_ref();
            origin.and_then(Origin::target).is_some()
        });
        if let Some(key) = &self.selected
            && let Some(row) = self
                .order
                .iter()
                .position(|index| entries[*index].key == *key)
        {
            self.list.select(row);
        }
        self.version = Some(shared.runs.version);
        self.remember_selected(shared);
    }

    fn remember_selected(&mut self, shared: &Shared) {
        self.selected = self
            .selected_entry(shared)
            .map(|entry| entry.key.clone())
            .or(self.selected.take().filter(|_| !shared.runs.is_read));
    }

    fn set_filter(&mut self, expression: &str, shared: &Shared) -> Vec<Effect> {
        expression.clone_into(&mut self.filter_text);
        match Filter::parse(expression) {
            Ok(filter) => {
                self.filter = (!filter.is_empty()).then_some(filter);
                self.error = None;
            }
            // While it is being typed it is wrong most of the time: the terms before the wrong one are in force.
            Err(error) => {
                let before = expression.get(..error.at.start).unwrap_or_default();
                let whole = before
                    .rfind(char::is_whitespace)
                    .map_or("", |end| &before[..end]);
                self.filter = Filter::parse(whole)
                    .ok()
                    .filter(|filter| !filter.is_empty());
                self.error = Some(error);
            }
        }
        self.rebuild(shared);
        self.wants(shared)
    }

    /// What the screen lacks: the logs of the runs on it, or of all when the order or the filter asks for that.
    fn wants(&mut self, shared: &Shared) -> Vec<Effect> {
        if shared.front != PageId::Runs {
            return Vec::new();
        }
        let mut effects = Vec::new();
        // From here on: nobody is asked before somebody wants to see the runs there.
        if shared.runs.is_read && !std::mem::replace(&mut self.has_asked_targets, true) {
            effects.push(Effect::AskTargets);
        }
        if self.filter_text.contains("cfg.") || self.filter_text.contains("config.") {
            effects.extend(self.details.request_configs(&shared.runs.entries));
        }
        let visible = draw::visible_rows(shared);
        let window = self.list.window(self.row_count(shared), visible);
        let on_screen: Vec<&RunEntry> = self
            .order
            .get(window.start.min(self.order.len())..window.end.min(self.order.len()))
            .unwrap_or_default()
            .iter()
            .filter_map(|index| shared.runs.entries.get(*index))
            .collect();
        let is_about_metrics = matches!(self.kept().sort, Column::Last(_) | Column::Best(_))
            || self.filter_text.contains(['<', '>', '=', '(']);
        let others = if is_about_metrics {
            shared.runs.entries.as_slice()
        } else {
            &[]
        };
        let first = self.selected_entry(shared);
        let wanted = first.into_iter().chain(on_screen).chain(others);
        effects.extend(self.details.request(wanted, shared));
        effects
    }

    fn go(&mut self, by: Move, shared: &Shared) -> Vec<Effect> {
        let rows = self.row_count(shared);
        self.list.go(by, rows, draw::visible_rows(shared));
        self.remember_selected(shared);
        self.wants(shared)
    }

    fn message(&mut self, message: &mut Message, shared: &mut Shared) -> Vec<Effect> {
        match message {
            Message::Details { id, found } => {
                if !self.details.take(*id, std::mem::take(found)) {
                    return Vec::new();
                }
                self.rebuild(shared);
                self.wants(shared)
            }
            Message::Configs(found) => {
                self.details.take_configs(std::mem::take(found));
                self.rebuild(shared);
                Vec::new()
            }
            Message::Edited { key, result } => {
                match result {
                    Ok(notes) => {
                        let entries = &mut shared.runs.entries;
                        if let Some(entry) = entries.iter_mut().find(|entry| entry.key == *key) {
                            entry.notes = notes.clone();
                        }
                        self.rebuild(shared);
                        shared.say(Notice::good(format!("saved in {}/notes.json", key.name())));
                    }
                    Err(reason) => {
                        shared.wish = Some(Wish::Problem(Problem::new(
                            "It was not saved",
                            reason.clone(),
                            "",
                        )));
                    }
                }
                vec![Effect::RefreshRuns]
            }
            Message::CleanedUp => Vec::new(),
            Message::Resumed { key, result } => {
                match result {
                    Ok(()) => shared.say(Notice::good(format!(
                        "{} goes on, also without the workbench",
                        key.name()
                    ))),
                    Err(reason) => {
                        shared.wish = Some(Wish::Problem(Problem::new(
                            format!("{} does not go on", key.name()),
                            reason.clone(),
                            "a starts its experiment as a run of its own",
                        )));
                    }
                }
                vec![Effect::RefreshRuns]
            }
            Message::Deleted { gone, failures } => {
                shared.marked.retain(|key| !gone.contains(key));
                if shared
                    .current
                    .as_ref()
                    .is_some_and(|key| gone.contains(key))
                {
                    shared.current = None;
                }
                shared
                    .runs
                    .entries
                    .retain(|entry| !gone.contains(&entry.key));
                self.rebuild(shared);
                if failures.is_empty() {
                    let many = gone.len();
                    let runs = if many == 1 { "run" } else { "runs" };
                    shared.say(Notice::good(format!("deleted {many} {runs}")));
                    shared.wish = Some(Wish::MarkedChanged);
                } else {
                    shared.wish = Some(Wish::Problem(Problem::new(
                        "Not all were deleted",
                        failures.join("\n"),
                        "",
                    )));
                }
                vec![Effect::RefreshRuns]
            }
        }
    }
}

impl Page for Runs {
    fn update(&mut self, input: Input<'_>, shared: &mut Shared) -> Vec<Effect> {
        if self.kept.is_none() {
            self.kept = Some(shared.kept.get(KEPT).unwrap_or_default());
        }
        match input {
            Input::Command(action::Command::Runs(command)) => self.command(command, shared),
            Input::Key(key) => self.key(key, shared),
            Input::Paste(pasted) => self.paste(pasted, shared),
            Input::Mouse(event, area) => self.mouse(event, area, shared),
            Input::Shown => {
                if shared.replay.is_some() {
                    self.details.follow_replay(shared);
                    self.rebuild(shared);
                }
                self.wants(shared)
            }
            Input::Message(PageMessage::Runs(message)) => self.message(message, shared),
            Input::Command(_) | Input::Message(_) => Vec::new(),
            Input::DataChanged => {
                if self.version == Some(shared.runs.version) {
                    return Vec::new();
                }
                let is_first = self.version.is_none() && shared.runs.is_read;
                self.details.keep_only(&shared.runs.entries);
                if shared.front == PageId::Runs || shared.replay.is_none() {
                    self.details.follow_replay(shared);
                }
                self.rebuild(shared);
                let mut effects = self.wants(shared);
                if is_first && !shared.is_read_only {
                    effects.push(changes::clean_up(shared.project.runs_roots.clone()));
                }
                effects
            }
        }
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        draw::draw(self, shared, frame, area);
    }

    fn is_typing(&self) -> bool {
        !matches!(self.mode, Mode::Browse)
    }

    fn back(&mut self, shared: &mut Shared) -> bool {
        if self.is_preview_expanded {
            self.is_preview_expanded = false;
            return true;
        }
        if !self.filter_text.is_empty() {
            self.set_filter("", shared);
            return true;
        }
        if !shared.marked.is_empty() {
            shared.marked.clear();
            shared.wish = Some(Wish::MarkedChanged);
            return true;
        }
        false
    }

    fn copied(&self, shared: &Shared) -> Option<(String, String)> {
        if !shared.marked.is_empty() {
            let names: Vec<String> = shared.marked.iter().map(ToString::to_string).collect();
            let what = format!("the paths of {} marked runs", names.len());
            return Some((names.join("\n"), what));
        }
        let entry = self.selected_entry(shared)?;
        Some((entry.key.to_string(), "the run's path".to_owned()))
    }

    fn status(&self, shared: &Shared) -> String {
        let all = shared.runs.entries.len();
        let mut status = if self.order.len() == all {
            format!("{all} run{}", if all == 1 { "" } else { "s" })
        } else {
            format!("{} of {all} runs", self.order.len())
        };
        if !shared.marked.is_empty() {
            status = format!("{} marked, {status}", shared.marked.len());
        }
        status
    }
}
