//! What the keys do on page Runs, and which runs they do it to.

use super::changes::Edited;
use super::overlay::{MetricPicker, SortMenu};
use super::{KEPT, Kept, Mode, Runs, changes};
use crate::tui::action::Effect;
use crate::tui::bindings::{Binding, page_rows, with_moves};
use crate::tui::shared::{Notice, Problem, RunEntry, RunKey, Shared, Unlisted, Wish};
use crate::tui::widgets::field::Field;
use crate::tui::widgets::list::Move;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Go(Move),
    Open,
    Mark,
    MarkShown,
    UnmarkAll,
    Filter,
    ClearFilter,
    Sort,
    ReverseSort,
    Metrics,
    EditNote,
    EditTags,
    Again,
    Resume,
    /// The other key's answer to `Resume`.
    ResumeConfirmed,
    Delete,
    /// The other key's answer to `Delete`.
    DeleteConfirmed,
    Refresh,
    Preview,
}

page_rows!(Runs);

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = with_moves!["runs", row, Command::Go;
    row("runs.open", &["enter"], Command::Open, "show this run on page Live", "open"),
    row("runs.filter", &["/"], Command::Filter, "filter: words, state:running, kl>0.02, tag:x, cfg.actor.optim.lr<1e-5", "filter"),
    row("runs.mark", &["space"], Command::Mark, "mark this run: drawn with the current one, compared, deleted together", "mark"),
    row("runs.sort", &["o"], Command::Sort, "sort by a column", "sort"),
    row("runs.again", &["a"], Command::Again, "launch this run's experiment again, with changes", "again"),
    row("runs.resume", &["r"], Command::Resume, "have this run go on from its newest checkpoint, where it is; asks first", "resume"),
    row("runs.note", &["c"], Command::EditNote, "write this run's note", "note"),
    row("runs.tags", &["t"], Command::EditTags, "give this run tags", "tags"),
    row("runs.delete", &["d"], Command::Delete, "delete the marked runs, else this one; asks first", "delete"),
    row("runs.reverse", &["O"], Command::ReverseSort, "turn the order round", ""),
    row("runs.metrics", &["m"], Command::Metrics, "choose the metrics that have columns", ""),
    row("runs.preview", &["e"], Command::Preview, "the summary of this run: on the whole page, or back", ""),
    row("runs.refresh", &["R", "f5"], Command::Refresh, "read the list again now, and ask every target for its runs", ""),
    row("runs.mark_shown", &["M"], Command::MarkShown, "mark every run that is shown", ""),
    row("runs.unmark", &["u"], Command::UnmarkAll, "unmark all runs", ""),
    row("runs.clear_filter", &["x"], Command::ClearFilter, "clear the filter", ""),
];

impl Runs {
    pub(super) fn command(&mut self, command: Command, shared: &mut Shared) -> Vec<Effect> {
        match command {
            Command::Go(by) => return self.go(by, shared),
            Command::Open => match self.selected_entry(shared) {
                Some(entry) => shared.wish = Some(Wish::Watch(entry.key.clone())),
                None => self.say_nothing_selected(shared),
            },
            Command::Mark => return self.mark(shared),
            Command::MarkShown => {
                for index in &self.order {
                    let key = &shared.runs.entries[*index].key;
                    if !shared.marked.contains(key) {
                        shared.marked.push(key.clone());
                    }
                }
                shared.wish = Some(Wish::MarkedChanged);
            }
            Command::UnmarkAll => {
                shared.marked.clear();
                shared.wish = Some(Wish::MarkedChanged);
            }
            Command::Filter => self.mode = Mode::Filter(Field::new(self.filter_text.as_str())),
            Command::ClearFilter => return self.set_filter("", shared),
            Command::Sort => self.mode = Mode::Sort(SortMenu::new(&self.kept())),
            Command::ReverseSort => {
                let mut kept = self.kept();
                kept.is_descending = !kept.is_descending;
                return self.keep(kept, shared);
            }
            Command::Metrics => {
                self.mode = Mode::Metrics(MetricPicker::new(&self.kept().metrics, shared));
            }
            Command::EditNote => self.edit(Edited::Note, shared),
            Command::EditTags => self.edit(Edited::Tags, shared),
            Command::Again => match self.selected_entry(shared) {
                Some(entry) => shared.wish = Some(Wish::Again(entry.key.clone())),
                None => self.say_nothing_selected(shared),
            },
            Command::Resume => self.ask_to_resume(shared),
            Command::ResumeConfirmed => {
                let key = self.to_resume.take();
                if let Some(key) = key
                    && !shared.refuse_when_read_only("having a run go on")
                {
                    shared.say(Notice::good(format!("{} is started again", key.name())));
                    return vec![changes::resume(key)];
                }
            }
            Command::Delete => self.ask_to_delete(shared),
            Command::DeleteConfirmed => {
                let keys = std::mem::take(&mut self.to_delete);
                if !keys.is_empty() && !shared.refuse_when_read_only("deleting runs") {
                    return vec![changes::delete(keys)];
                }
            }
            Command::Refresh => {
                shared.say(Notice::good("reading the list again"));
                return vec![Effect::AskTargets, Effect::RefreshRuns];
            }
            Command::Preview => self.is_preview_expanded = !self.is_preview_expanded,
        }
        Vec::new()
    }

    /// What is under the cursor and is no run that can be shown.
    pub(super) fn selected_unlisted<'s>(&self, shared: &'s Shared) -> Option<&'s Unlisted> {
        let row = self.list.selected(self.row_count(shared));
        let at = row.checked_sub(self.order.len())?;
        shared.runs.unlisted.get(at)
    }

    pub(super) fn say_nothing_selected(&self, shared: &mut Shared) {
        let notice = match self.selected_unlisted(shared) {
            Some(unlisted) => Notice::bad(unlisted.reason().to_owned()),
            None => Notice::caution("there is no run here"),
        };
        shared.say(notice);
    }

    fn mark(&mut self, shared: &mut Shared) -> Vec<Effect> {
        let Some(key) = self.selected_entry(shared).map(|entry| entry.key.clone()) else {
            self.say_nothing_selected(shared);
            return Vec::new();
        };
        if shared.marked.contains(&key) {
            shared.marked.retain(|marked| *marked != key);
        } else {
            shared.marked.push(key);
        }
        shared.wish = Some(Wish::MarkedChanged);
        self.go(Move::Down, shared)
    }

    pub(super) fn keep(&mut self, kept: Kept, shared: &mut Shared) -> Vec<Effect> {
        shared.kept.set(KEPT, &kept);
        self.kept = Some(kept);
        self.rebuild(shared);
        let mut effects = vec![Effect::SaveState];
        effects.extend(self.wants(shared));
        effects
    }

    fn edit(&mut self, what: Edited, shared: &mut Shared) {
        if shared.refuse_when_read_only("writing notes") {
            return;
        }
        match self.selected_entry(shared) {
            Some(entry) => {
                self.mode = Mode::Edit {
                    key: entry.key.clone(),
                    what,
                    field: Field::new(what.text(&entry.notes)),
                    complaint: None,
                }
            }
            None => self.say_nothing_selected(shared),
        }
    }

    fn ask_to_resume(&mut self, shared: &mut Shared) {
        if shared.refuse_when_read_only("having a run go on") {
            return;
        }
        let Some(entry) = self.selected_entry(shared) else {
            self.say_nothing_selected(shared);
            return;
        };
        if entry.is_running() {
            shared.say(Notice::caution(format!("{} is running", entry.key.name())));
            return;
        }
        let (key, question) = (entry.key.clone(), changes::resume_question(entry));
        shared.wish = Some(Wish::Confirm(question));
        self.to_resume = Some(key);
    }

    fn ask_to_delete(&mut self, shared: &mut Shared) {
        if shared.refuse_when_read_only("deleting runs") {
            return;
        }
        let keys: Vec<RunKey> = if shared.marked.is_empty() {
            self.selected
                .iter()
                .filter(|_| self.selected_entry(shared).is_some())
                .cloned()
                .collect()
        } else {
            shared.marked.clone()
        };
        if keys.is_empty() {
            self.say_nothing_selected(shared);
            return;
        }
        let entries = || keys.iter().filter_map(|key| shared.runs.find(key));
        let there: Vec<String> = entries()
            .filter(|entry| entry.is_only_listed())
            .map(|entry| entry.key.name())
            .collect();
        if !there.is_empty() {
            shared.wish = Some(Wish::Problem(Problem::new(
                "Nothing of it is here",
                there.join("\n"),
                "it lies on another machine, and is listed for as long as it lies there",
            )));
            return;
        }
        let is_running = |key: &&RunKey| shared.runs.find(key).is_some_and(RunEntry::is_running);
        let running: Vec<String> = keys.iter().filter(is_running).map(RunKey::name).collect();
        if !running.is_empty() {
            shared.wish = Some(Wish::Problem(Problem::new(
                "A running run is not deleted",
                running.join("\n"),
                "stop it first (page 6), or unmark it",
            )));
            return;
        }
        let copies = entries().filter(|entry| entry.mirror.is_some()).count();
        shared.wish = Some(Wish::Confirm(changes::question(&keys, copies)));
        self.to_delete = keys;
    }
}
