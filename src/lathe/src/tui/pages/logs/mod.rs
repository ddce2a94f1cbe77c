//! The log of a run: follow, search, filter by level, and copy.
//!
//! ```text
//!  events, every line, following                                    12 of 340
//!    0:07  info   run         quickstart (one_step_off) starts: 80 steps …
//!    0:19  WARN   alarm       non-finite (step 7): the KL of step 7 is not a number
//!  ── the selected line, whole ─────────────────────────────────────────────
//! ```
//! Two sources: the run's events (`events`), and what libraries and tools printed, `log.txt` (`file`), which is read in
//! windows by jobs. `clean` makes a line readable, `line` is what both give, `commands` the keys, `draw` the screen.

mod clean;
mod commands;
mod draw;
mod events;
mod file;
mod line;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::layout::Rect;

use self::file::Window;
use self::line::{Line, Severity};
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

/// Lines of the file kept around the selected one.
const MOST_LINES: usize = 6000;
/// So near to the window's edge, more is read.
const EDGE: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Source {
    #[default]
    Events,
    File,
}

/// What a request for a window is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Tail,
    Forward,
    Backward,
    /// Around a line, which is then selected.
    Around(u64),
    Search,
}

/// The part of `log.txt` that was read.
#[derive(Debug, Default)]
struct FileView {
    is_read: bool,
    start: u64,
    end: u64,
    size: u64,
    lines: Vec<Line>,
    problem: Option<String>,
    /// One request at a time; its number and purpose.
    asked: Option<(u64, Purpose)>,
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
    is_cut: bool,
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
            self.events = events::lines(&open.state);
            self.is_cut = events::is_cut(&open.state);
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

    // ---- the file ----

    /// What must be read now: the end when following, more where the selection comes near the edge.
    fn want_file(&mut self) -> Vec<Effect> {
        if self.source != Source::File || self.file.asked.is_some() || self.file.problem.is_some() {
            return Vec::new();
        }
        let purpose = if !self.file.is_read {
            Purpose::Tail
        } else if self.is_following {
            Purpose::Forward
        } else {
            let at = self.selected();
            let count = self.file.lines.len();
            if at < EDGE && self.file.start > 0 {
                Purpose::Backward
            } else if at + EDGE >= count && self.file.end < self.file.size {
                Purpose::Forward
            } else {
                return Vec::new();
            }
        };
        self.ask(purpose).into_iter().collect()
    }

    fn ask(&mut self, purpose: Purpose) -> Option<Effect> {
        let run = self.run.clone()?;
        self.requests += 1;
        let request = self.requests;
        self.file.asked = Some((request, purpose));
        let (start, end, least) = (self.file.start, self.file.end, self.least);
        Some(Effect::job("read log.txt", move || {
            let path = run.path().join("log.txt");
            let window = match purpose {
                Purpose::Tail | Purpose::Search => file::tail(&path, least),
                Purpose::Forward => file::forward(&path, end, least),
                Purpose::Backward => file::backward(&path, start, least),
                Purpose::Around(offset) => file::around(&path, offset, least),
            };
            let window = window.map_err(|error| reason(&path, &error));
            action::Message::Page(PageMessage::Logs(Message::Read {
                run,
                request,
                window,
            }))
        }))
    }

    fn find_in_file(&mut self, pattern: String, from: u64, is_forward: bool) -> Option<Effect> {
        let run = self.run.clone()?;
        self.requests += 1;
        let request = self.requests;
        self.file.asked = Some((request, Purpose::Search));
        let least = self.least;
        Some(Effect::job("search log.txt", move || {
            let path = run.path().join("log.txt");
            let search = file::Search { from, is_forward };
            let place =
                file::find(&path, &pattern, search, least).map_err(|error| reason(&path, &error));
            action::Message::Page(PageMessage::Logs(Message::Found {
                run,
                request,
                place,
            }))
        }))
    }

    fn take_window(&mut self, purpose: Purpose, window: Window) {
        self.file.problem = None;
        let was_read = self.file.is_read;
        self.file.is_read = true;
        match purpose {
            Purpose::Forward if window.size < self.file.end => {
                // It became shorter: another file by the same name.
                self.file.is_read = false;
            }
            Purpose::Forward => {
                let file = &mut self.file;
                // The line that was written on is replaced.
                file.lines.retain(|line| line.id < window.start);
                file.lines.extend(window.lines);
                (file.end, file.size) = (window.end, window.size);
                self.drop_first(MOST_LINES);
            }
            Purpose::Backward => {
                let file = &mut self.file;
                let more = window.lines.len();
                let mut lines = window.lines;
                lines.append(&mut file.lines);
                file.lines = lines;
                file.start = window.start;
                self.list.shift(more as isize);
                self.drop_last(MOST_LINES);
            }
            Purpose::Tail | Purpose::Around(_) | Purpose::Search => {
                let file = &mut self.file;
                file.lines = window.lines;
                (file.start, file.end, file.size) = (window.start, window.end, window.size);
                if let Purpose::Around(offset) = purpose {
                    let row = file.lines.partition_point(|line| line.id < offset);
                    self.list.select(row);
                    // As many before it as after it.
                    self.drop_last(row + MOST_LINES / 2);
                } else if !was_read {
                    self.list.select(file.lines.len().saturating_sub(1));
                }
                self.drop_first(MOST_LINES);
            }
        }
        if self.is_following {
            self.list.select(self.file.lines.len().saturating_sub(1));
        }
    }

    /// Forgets the first lines beyond `most`; what is looked at stays where it is.
    fn drop_first(&mut self, most: usize) {
        let file = &mut self.file;
        let extra = file.lines.len().saturating_sub(most);
        if extra > 0 {
            file.lines.drain(..extra);
            file.start = file.lines.first().map_or(file.end, |line| line.id);
            self.list.shift(-(extra as isize));
        }
    }

    /// Forgets the last lines beyond `most`.
    fn drop_last(&mut self, most: usize) {
        let file = &mut self.file;
        if let Some(line) = file.lines.get(most) {
            file.end = line.id;
            file.lines.truncate(most);
        }
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
                effects.extend(self.want_file());
                effects
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

    /// The purpose of the request that is answered; None: an answer nobody waits for any more.
    fn answered(&mut self, run: &RunKey, request: u64) -> Option<Purpose> {
        let (asked, purpose) = self.file.asked?;
        if self.run.as_ref() != Some(run) || asked != request {
            return None;
        }
        self.file.asked = None;
        Some(purpose)
    }
}

fn reason(path: &std::path::Path, error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::NotFound {
        "this run has no log.txt: nothing was printed yet, or it was deleted".to_owned()
    } else {
        format!("{}: {error}", path.display())
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
                self.mouse(event, area, shared);
                self.want_file()
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
