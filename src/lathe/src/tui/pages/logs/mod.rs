//! The log of a run: follow, search, filter by level, and copy.
//!
//! ```text
//!  events, every line, following                                    12 of 340
//!    0:07  info   run         quickstart (one_step_off) starts: 80 steps …
//!    0:19  WARN   alarm       non-finite (step 7): the KL of step 7 is not a number
//!  ── the selected line, whole ─────────────────────────────────────────────
//! ```
//! Two sources: the run's events (`events`), and what libraries and tools printed, `log.txt` (`file`), which is read in
//! windows by jobs. `view` is the part that was read, `clean` makes a line readable, `line` is what both give, `commands` the keys, `draw` the screen.

mod clean;
mod commands;
mod draw;
mod events;
mod file;
mod line;
mod older;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::layout::Rect;

use self::file::Window;
use self::line::{Line, Severity};
use self::older::{Older, Then};
use self::view::{FileView, Purpose};
use super::{Input, Page, PageId};
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::bindings::{Binding, Context, bind};
use crate::tui::shared::{Notice, RunKey, Shared};
use crate::tui::widgets::field::{Field, Outcome};
use crate::tui::widgets::list::{ListState, Move};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Move(Move),
    Left,
    Right,
    Follow,
    Source,
    Level,
    Warnings,
    Errors,
    Search,
    NextMatch,
    PreviousMatch,
    NextProblem,
    Mark,
    Range,
    Expand,
    Clock,
    Reload,
}

/// Answers to this page's jobs, and what other pages ask of it.
#[derive(Debug)]
pub enum Message {
    /// Show the line of the run's events at this moment, or the last one before it.
    JumpTo { elapsed_ms: f64 },
    /// A window of `log.txt`.
    Read {
        run: RunKey,
        request: u64,
        window: Result<Window, String>,
    },
    /// Log lines and alarms that the fold no longer has.
    Older {
        run: RunKey,
        request: u64,
        then: Then,
        older: Result<Older, String>,
    },
    /// Where a search in `log.txt` ended: the offset of the line, and whether it went around the end.
    Found {
        run: RunKey,
        request: u64,
        place: Result<Option<(u64, bool)>, String>,
    },
}

const HERE: Context = Context::Page(PageId::Logs);

const fn of(command: Command) -> action::Command {
    action::Command::Logs(command)
}

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    bind("logs.source", &["tab", "shift-tab"], HERE, of(Command::Source), "between the run's events and log.txt", "source"),
    bind("logs.follow", &["G", "end"], HERE, of(Command::Follow), "to the end, and follow; moving up stops it", "follow"),
    bind("logs.search", &["/"], HERE, of(Command::Search), "search", "search"),
    bind("logs.next_match", &["n"], HERE, of(Command::NextMatch), "next match", ""),
    bind("logs.previous_match", &["N"], HERE, of(Command::PreviousMatch), "previous match", ""),
    bind("logs.level", &["f"], HERE, of(Command::Level), "show every line, no debug lines, warnings and errors, errors only", "level"),
    bind("logs.warnings", &["w"], HERE, of(Command::Warnings), "warnings and errors only, or every line", ""),
    bind("logs.errors", &["x"], HERE, of(Command::Errors), "errors only, or every line", ""),
    bind("logs.problem", &["!"], HERE, of(Command::NextProblem), "to the next warning or error", "problem"),
    bind("logs.expand", &["e", "enter"], HERE, of(Command::Expand), "the selected line whole, or not", "whole"),
    bind("logs.mark", &["space"], HERE, of(Command::Mark), "mark the line for copying", ""),
    bind("logs.range", &["v"], HERE, of(Command::Range), "mark all lines from here to where v is pressed again", ""),
    bind("logs.clock", &["t"], HERE, of(Command::Clock), "times since the start, or of the day", ""),
    bind("logs.down", &["j", "down"], HERE, of(Command::Move(Move::Down)), "down", ""),
    bind("logs.up", &["k", "up"], HERE, of(Command::Move(Move::Up)), "up", ""),
    bind("logs.left", &["h", "left"], HERE, of(Command::Left), "the start of long lines", ""),
    bind("logs.right", &["l", "right"], HERE, of(Command::Right), "more of long lines", ""),
    bind("logs.half_down", &["ctrl-d"], HERE, of(Command::Move(Move::HalfPageDown)), "half a page down", ""),
    bind("logs.half_up", &["ctrl-u"], HERE, of(Command::Move(Move::HalfPageUp)), "half a page up", ""),
    bind("logs.page_down", &["pgdn"], HERE, of(Command::Move(Move::PageDown)), "a page down", ""),
    bind("logs.page_up", &["pgup"], HERE, of(Command::Move(Move::PageUp)), "a page up", ""),
    bind("logs.first", &["g g", "home"], HERE, of(Command::Move(Move::First)), "to the first line", ""),
    bind("logs.reload", &["r"], HERE, of(Command::Reload), "read log.txt again", ""),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Source {
    #[default]
    Events,
    File,
}

#[derive(Debug)]
pub struct Logs {
    run: Option<RunKey>,
    source: Source,
    least: Severity,
    is_following: bool,
    list: ListState,
    /// Columns that long lines are moved left.
    left: usize,
    is_expanded: bool,
    has_day_time: bool,
    typing: Option<Field>,
    pattern: String,
    /// Of the events, all levels; and what they were made of.
    events: Vec<Line>,
    made_of: Option<events::Fingerprint>,
    /// Records of the run that are neither in the fold nor read back.
    is_cut: bool,
    older: Option<Older>,
    /// The request for them that was not answered.
    older_asked: Option<u64>,
    /// Indices of the events that the filter lets through.
    shown: Vec<usize>,
    file: FileView,
    requests: u64,
    /// Marked lines by id, with their text; those of one source.
    marked: BTreeMap<u64, String>,
    /// Where a range began.
    anchor: Option<u64>,
}

impl Default for Logs {
    fn default() -> Self {
        Self {
            run: None,
            source: Source::default(),
            least: Severity::default(),
            is_following: true,
            list: ListState::default(),
            left: 0,
            is_expanded: false,
            has_day_time: false,
            typing: None,
            pattern: String::new(),
            events: Vec::new(),
            made_of: None,
            is_cut: false,
            older: None,
            older_asked: None,
            shown: Vec::new(),
            file: FileView::default(),
            requests: 0,
            marked: BTreeMap::new(),
            anchor: None,
        }
    }
}

impl Logs {
    fn count(&self) -> usize {
        match self.source {
            Source::Events => self.shown.len(),
            Source::File => self.file.lines.len(),
        }
    }

    fn line(&self, row: usize) -> Option<&Line> {
        match self.source {
            Source::Events => self.events.get(*self.shown.get(row)?),
            Source::File => self.file.lines.get(row),
        }
    }

    fn selected(&self) -> usize {
        self.list.selected(self.count())
    }

    /// Takes over the run, its events, and the end of its file.
    fn refresh(&mut self, shared: &Shared) -> Vec<Effect> {
        if shared.front != PageId::Logs {
            return Vec::new();
        }
        if self.run != shared.current {
            let old = std::mem::take(self);
            *self = Self {
                run: shared.current.clone(),
                source: old.source,
                least: old.least,
                has_day_time: old.has_day_time,
                is_expanded: old.is_expanded,
                pattern: old.pattern,
                requests: old.requests,
                ..Self::default()
            };
        }
        let Some(open) = shared.current_run() else {
            return Vec::new();
        };
        let fingerprint = events::fingerprint(&open.state);
        if self.made_of != Some(fingerprint) {
            self.made_of = Some(fingerprint);
            // Lines that are gone from the start must not move what is looked at.
            let kept = self.line_time();
            // A replay that was wound back knows nothing of what was read.
            if !older::is_cut(&open.state) {
                self.older = None;
            }
            self.events = events::lines(&open.state, self.older.as_ref());
            self.is_cut = older::is_cut(&open.state)
                && !self
                    .older
                    .as_ref()
                    .is_some_and(|older| older.reaches(&open.state));
            self.filter();
            if self.source == Source::Events && !self.is_following {
                self.select_time(kept);
            }
        }
        if self.source == Source::Events && self.is_following {
            self.list.select(self.shown.len().saturating_sub(1));
        }
        self.want_file()
    }

    /// Reads what the fold no longer has, when there is something. None: all is there, or it is being read.
    fn ask_older(&mut self, then: Then, shared: &mut Shared) -> Option<Effect> {
        if !self.is_cut || self.source != Source::Events || self.older_asked.is_some() {
            return None;
        }
        let run = self.run.clone()?;
        let until_ms = match &shared.replay {
            Some(replay) if replay.key == run => replay.at_ms,
            _ => f64::INFINITY,
        };
        self.requests += 1;
        let request = self.requests;
        self.older_asked = Some(request);
        shared.say(Notice::good("reading the older lines"));
        Some(Effect::job("read older events", move || {
            let path = run.path().join("events.jsonl");
            let older = older::read(&path, until_ms)
                .map_err(|error| format!("cannot read {}: {error}", path.display()));
            action::Message::Page(PageMessage::Logs(Message::Older {
                run,
                request,
                then,
                older,
            }))
        }))
    }

    fn take_older(
        &mut self,
        then: Then,
        older: Result<Older, String>,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        match older {
            Ok(older) => self.older = Some(older),
            Err(reason) => {
                shared.say(Notice::bad(reason));
                return Vec::new();
            }
        }
        self.is_following = false;
        self.made_of = None;
        let mut effects = self.refresh(shared);
        match then {
            Then::First => self.list.select(0),
            Then::JumpTo(elapsed_ms) => self.list.select(self.row_at(elapsed_ms)),
            Then::Search { is_forward } => {
                effects.extend(self.search_next(is_forward, shared));
            }
        }
        effects
    }

    fn line_time(&self) -> Option<(f64, String)> {
        let line = self.line(self.selected())?;
        Some((line.elapsed_ms?, line.text.clone()))
    }

    fn select_time(&mut self, kept: Option<(f64, String)>) {
        let Some((time, text)) = kept else {
            return;
        };
        let exact = self.shown.iter().position(|&at| {
            self.events[at].elapsed_ms == Some(time) && self.events[at].text == text
        });
        let row = exact.unwrap_or_else(|| self.row_at(time));
        self.list.select(row);
    }

    /// The row of the last shown event at or before a moment.
    fn row_at(&self, elapsed_ms: f64) -> usize {
        self.shown
            .partition_point(|&at| {
                self.events[at]
                    .elapsed_ms
                    .is_none_or(|time| time <= elapsed_ms + 0.5)
            })
            .saturating_sub(1)
    }

    fn filter(&mut self) {
        let least = self.least;
        self.shown = (0..self.events.len())
            .filter(|&at| self.events[at].severity >= least)
            .collect();
    }

    fn message(&mut self, message: &mut Message, shared: &mut Shared) -> Vec<Effect> {
        match message {
            Message::JumpTo { elapsed_ms } => {
                self.source = Source::Events;
                self.is_following = false;
                let mut effects = self.refresh(shared);
                // What is looked for must be seen.
                self.least = Severity::Debug;
                self.filter();
                self.list.select(self.row_at(*elapsed_ms));
                let first_kept = shared
                    .current_run()
                    .and_then(|open| open.state.log_lines.front())
                    .map_or(0.0, |line| line.elapsed_ms);
                if *elapsed_ms < first_kept {
                    effects.extend(self.ask_older(Then::JumpTo(*elapsed_ms), shared));
                }
                effects.extend(self.want_file());
                effects
            }
            Message::Older {
                run,
                request,
                then,
                older,
            } => {
                if self.run.as_ref() != Some(run) || self.older_asked != Some(*request) {
                    return Vec::new();
                }
                self.older_asked = None;
                let older = std::mem::replace(older, Err(String::new()));
                self.take_older(*then, older, shared)
            }
            Message::Read {
                run,
                request,
                window,
            } => {
                let Some(purpose) = self.answered(run, *request) else {
                    return Vec::new();
                };
                // What is moved out is replaced by nothing anybody reads.
                match std::mem::replace(window, Err(String::new())) {
                    Ok(window) => {
                        let went_on = window.end > self.file.end || window.size < self.file.end;
                        self.take_window(purpose, window);
                        // A filter may have let nothing through, or more was written meanwhile.
                        let is_more = match purpose {
                            Purpose::Forward => went_on && self.file.end < self.file.size,
                            Purpose::Backward | Purpose::Tail => self.file.start > 0,
                            Purpose::Around(_) | Purpose::Search => true,
                        };
                        if is_more || !self.file.is_read {
                            return self.want_file();
                        }
                    }
                    Err(problem) => self.file.problem = Some(problem),
                }
                Vec::new()
            }
            Message::Found {
                run,
                request,
                place,
            } => {
                if self.answered(run, *request).is_none() {
                    return Vec::new();
                }
                match place {
                    Ok(Some((offset, went_around))) => {
                        if *went_around {
                            shared.say(Notice::caution("the search went on at the other end"));
                        }
                        let row = self.file.lines.partition_point(|line| line.id < *offset);
                        let is_here = self
                            .file
                            .lines
                            .get(row)
                            .is_some_and(|line| line.id == *offset);
                        if is_here {
                            self.list.select(row);
                            self.want_file()
                        } else {
                            self.ask(Purpose::Around(*offset)).into_iter().collect()
                        }
                    }
                    Ok(None) => {
                        shared.say(Notice::caution("no line of log.txt has it"));
                        Vec::new()
                    }
                    Err(problem) => {
                        self.file.problem = Some(problem.clone());
                        Vec::new()
                    }
                }
            }
        }
    }
}

impl Page for Logs {
    fn update(&mut self, input: Input<'_>, shared: &mut Shared) -> Vec<Effect> {
        match input {
            Input::Command(action::Command::Logs(command)) => {
                let mut effects = self.refresh(shared);
                effects.extend(self.command(command, shared));
                effects.extend(self.want_file());
                effects
            }
            Input::Key(key) => {
                let Some(field) = &mut self.typing else {
                    return Vec::new();
                };
                match field.key(key) {
                    Outcome::Accepted => {
                        field.text().clone_into(&mut self.pattern);
                        self.typing = None;
                        self.search_next(true, shared)
                    }
                    Outcome::Cancelled => {
                        self.typing = None;
                        Vec::new()
                    }
                    _ => Vec::new(),
                }
            }
            Input::Paste(text) => {
                if let Some(field) = &mut self.typing {
                    field.paste(text);
                }
                Vec::new()
            }
            Input::Mouse(event, area) => {
                let mut effects = self.mouse(event, area, shared);
                effects.extend(self.want_file());
                effects
            }
            Input::Message(PageMessage::Logs(message)) => self.message(message, shared),
            Input::Shown | Input::DataChanged => self.refresh(shared),
            Input::Command(_) | Input::Message(_) => Vec::new(),
        }
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        self.draw_page(shared, frame, area);
    }

    fn is_typing(&self) -> bool {
        self.typing.is_some()
    }

    fn back(&mut self, _shared: &mut Shared) -> bool {
        if self.is_expanded {
            self.is_expanded = false;
            return true;
        }
        if self.anchor.take().is_some() {
            return true;
        }
        if !self.marked.is_empty() {
            self.marked.clear();
            return true;
        }
        if !self.pattern.is_empty() {
            self.pattern.clear();
            return true;
        }
        false
    }

    fn copied(&self, _shared: &Shared) -> Option<(String, String)> {
        if self.marked.is_empty() {
            let line = self.line(self.selected())?;
            return Some((line.text.clone() + "\n", "1 line".to_owned()));
        }
        let mut lines = String::new();
        for line in self.marked.values() {
            lines.push_str(line);
            lines.push('\n');
        }
        Some((lines, format!("{} marked lines", self.marked.len())))
    }

    fn status(&self, _shared: &Shared) -> String {
        let marked = if self.marked.is_empty() {
            String::new()
        } else {
            format!(", {} marked", self.marked.len())
        };
        format!("{}{marked}", self.least.filter_words())
    }
}
