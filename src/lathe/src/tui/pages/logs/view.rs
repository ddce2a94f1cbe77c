//! The part of `log.txt` that was read, and what is read next. Jobs read; this knows what to ask and what the answer changes.

use super::file::{self, Window};
use super::line::Line;
use super::{Logs, Message, Source};
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::shared::RunKey;

/// Lines of the file kept around the selected one.
pub(super) const MOST_LINES: usize = 6000;
/// So near to the window's edge, more is read.
const EDGE: usize = 100;

/// What a request for a window is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Tail,
    Forward,
    Backward,
    /// Around a line, which is then selected.
    Around(u64),
    Search,
}

/// The part of `log.txt` that was read.
#[derive(Debug, Default)]
pub(super) struct FileView {
    pub is_read: bool,
    pub start: u64,
    pub end: u64,
    pub size: u64,
    pub lines: Vec<Line>,
    pub problem: Option<String>,
    /// One request at a time; its number and purpose.
    pub asked: Option<(u64, Purpose)>,
}

impl Logs {
    /// What must be read now: the end when following, more where the selection comes near the edge.
    pub(super) fn want_file(&mut self) -> Vec<Effect> {
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

    pub(super) fn ask(&mut self, purpose: Purpose) -> Option<Effect> {
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

    pub(super) fn find_in_file(
        &mut self,
        pattern: String,
        from: u64,
        is_forward: bool,
    ) -> Option<Effect> {
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

    pub(super) fn take_window(&mut self, purpose: Purpose, window: Window) {
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

    /// The purpose of the request that is answered; None: an answer nobody waits for any more.
    pub(super) fn answered(&mut self, run: &RunKey, request: u64) -> Option<Purpose> {
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
