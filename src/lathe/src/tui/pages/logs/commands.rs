//! What the keys and the mouse do on page Logs.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;

use super::line::Severity;
use super::older::Then;
use super::view::{FileView, Purpose};
use super::{Command, Logs, Source};
use crate::tui::action::Effect;
use crate::tui::shared::{Notice, Shared};
use crate::tui::widgets::field::Field;
use crate::tui::widgets::list::{ListState, Move};
use crate::tui::widgets::text;

/// Columns that one key moves long lines.
const SIDEWAYS: usize = 16;

impl Logs {
    pub(super) fn command(&mut self, command: Command, shared: &mut Shared) -> Vec<Effect> {
        match command {
            Command::Move(by) => return self.go(by, shared).into_iter().collect(),
            Command::Left => self.left = self.left.saturating_sub(SIDEWAYS),
            Command::Right => self.left += SIDEWAYS,
            Command::Follow => {
                self.is_following = true;
                self.list.select(self.count().saturating_sub(1));
                if self.source == Source::File && self.file.end < self.file.size {
                    return self.ask(Purpose::Tail).into_iter().collect();
                }
            }
            Command::Source => return self.change_source(shared),
            Command::Level => self.set_level(self.least.next(), shared),
            Command::Warnings => self.toggle_level(Severity::Warning, shared),
            Command::Errors => self.toggle_level(Severity::Error, shared),
            Command::Search => self.typing = Some(Field::new(self.pattern.clone())),
            Command::NextMatch => return self.search_next(true, shared),
            Command::PreviousMatch => return self.search_next(false, shared),
            Command::NextProblem => self.next_problem(shared),
            Command::Mark => {
                if let Some(line) = self.line(self.selected()) {
                    let (id, text) = (line.id, line.text.clone());
                    if self.marked.remove(&id).is_none() {
                        self.marked.insert(id, text);
                    }
                    return self.go(Move::Down, shared).into_iter().collect();
                }
            }
            Command::Range => self.range(shared),
            Command::Expand => self.is_expanded = !self.is_expanded,
            Command::Clock => self.has_day_time = !self.has_day_time,
            Command::Reload => {
                self.file = FileView::default();
                self.made_of = None;
                return self.refresh(shared);
            }
        }
        Vec::new()
    }

    fn go(&mut self, by: Move, shared: &mut Shared) -> Option<Effect> {
        let visible = self.visible_rows(shared);
        let length = self.count();
        let before = self.selected();
        self.list.go(by, length, visible);
        if self.selected() != before {
            // The last line can be reached without following: only G follows.
            self.is_following = false;
        }
        // The first line of the file may be far above what was read.
        let is_far = self.source == Source::File && by == Move::First && self.file.start > 0;
        if is_far {
            self.is_following = false;
            return self.ask(Purpose::Around(0));
        }
        // Up where nothing is above: what the fold no longer has.
        let is_at_top = self.selected() == 0 && before == 0 || by == Move::First;
        if is_at_top && matches!(by, Move::First | Move::Up | Move::HalfPageUp | Move::PageUp) {
            return self.ask_older(Then::First, shared);
        }
        None
    }

    fn change_source(&mut self, shared: &mut Shared) -> Vec<Effect> {
        let time = self.line(self.selected()).and_then(|line| line.elapsed_ms);
        self.marked.clear();
        self.anchor = None;
        match self.source {
            Source::File => {
                self.source = Source::Events;
                let last = self.shown.len().saturating_sub(1);
                self.list.select(last);
                self.is_following = true;
                Vec::new()
            }
            Source::Events => {
                self.source = Source::File;
                self.list = ListState::default();
                // From an event, to what was printed about its step.
                let step = time.filter(|_| !self.is_following).and_then(|time| {
                    let steps = &shared.current_run()?.state.steps;
                    let at = steps.times.partition_point(|step| step.end_ms + 1.0 < time);
                    Some(steps.times.get(at)?.step)
                });
                self.file.is_read = false;
                if let Some(step) = step {
                    let effect = self.find_in_file(format!("step:{step} "), u64::MAX, true);
                    return effect.into_iter().collect();
                }
                self.is_following = true;
                self.want_file()
            }
        }
    }

    fn toggle_level(&mut self, level: Severity, shared: &mut Shared) {
        let next = if self.least == level {
            Severity::Debug
        } else {
            level
        };
        self.set_level(next, shared);
    }

    fn set_level(&mut self, least: Severity, shared: &mut Shared) {
        let kept = self.line_time();
        let id = self.line(self.selected()).map(|line| line.id);
        self.least = least;
        self.filter();
        if self.source == Source::Events {
            self.select_time(kept);
        } else {
            // What the filter lets through is read anew around the place that was looked at.
            self.file.is_read = false;
            self.file.asked = None;
            self.file.lines.retain(|line| line.severity >= least);
            let row = id.map_or(0, |id| self.file.lines.partition_point(|line| line.id < id));
            self.list.select(row);
        }
        shared.say(Notice::good(least.filter_words()));
    }

    fn next_problem(&mut self, shared: &mut Shared) {
        let now = self.selected();
        let next = (now + 1..self.count())
            .chain(0..now.min(self.count()))
            .find(|row| {
                self.line(*row)
                    .is_some_and(|line| line.severity >= Severity::Warning)
            });
        match next {
            Some(row) => {
                self.is_following = false;
                self.list.select(row);
            }
            None => shared.say(Notice::good("no other warning or error among these lines")),
        }
    }

    fn range(&mut self, shared: &mut Shared) {
        let Some(line) = self.line(self.selected()) else {
            return;
        };
        let id = line.id;
        let Some(anchor) = self.anchor.take() else {
            self.anchor = Some(id);
            shared.say(Notice::good("a range begins here; v ends it, y copies it"));
            return;
        };
        let range = anchor.min(id)..=anchor.max(id);
        let found: Vec<(u64, String)> = (0..self.count())
            .filter_map(|row| self.line(row))
            .filter(|line| range.contains(&line.id))
            .map(|line| (line.id, line.text.clone()))
            .collect();
        shared.say(Notice::good(format!("{} lines marked", found.len())));
        self.marked.extend(found);
    }

    pub(super) fn search_next(&mut self, is_forward: bool, shared: &mut Shared) -> Vec<Effect> {
        if self.pattern.is_empty() {
            shared.say(Notice::caution("/ searches"));
            return Vec::new();
        }
        let (now, count) = (self.selected(), self.count());
        let is_match = |row: &usize| self.line(*row).is_some_and(|line| line.has(&self.pattern));
        let near = if is_forward {
            (now + 1..count).find(is_match)
        } else {
            (0..now.min(count)).rev().find(is_match)
        };
        if let Some(row) = near {
            self.is_following = false;
            self.list.select(row);
            return self.want_file();
        }
        if self.source == Source::File {
            let Some(from) = self.line(now).map(|line| line.id) else {
                return Vec::new();
            };
            self.is_following = false;
            shared.say(Notice::good("searching log.txt"));
            return self
                .find_in_file(self.pattern.clone(), from, is_forward)
                .into_iter()
                .collect();
        }
        if let Some(effect) = self.ask_older(Then::Search { is_forward }, shared) {
            return vec![effect];
        }
        let is_match = |row: &usize| self.line(*row).is_some_and(|line| line.has(&self.pattern));
        let around = if is_forward {
            (0..count).find(is_match)
        } else {
            (0..count).rev().find(is_match)
        };
        match around {
            Some(row) => {
                if row != now {
                    shared.say(Notice::caution("the search went on at the other end"));
                }
                self.is_following = false;
                self.list.select(row);
            }
            None => shared.say(Notice::caution(format!(
                "no line has `{}`",
                text::printable(&self.pattern)
            ))),
        }
        Vec::new()
    }

    pub(super) fn mouse(
        &mut self,
        event: MouseEvent,
        area: Rect,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event.kind {
            MouseEventKind::ScrollDown | MouseEventKind::ScrollUp => {
                let by = if event.kind == MouseEventKind::ScrollDown {
                    Move::Down
                } else {
                    Move::Up
                };
                for _ in 0..3 {
                    effects.extend(self.go(by, shared));
                }
            }
            MouseEventKind::Down(MouseButton::Left) => {
                let visible = self.visible_rows(shared);
                let at = usize::from(event.row).checked_sub(usize::from(area.y) + 1);
                if let Some(at) = at.filter(|at| *at < visible) {
                    let row = self.list.top(self.count(), visible) + at;
                    if row < self.count() {
                        self.is_following = false;
                        self.list.select(row);
                    }
                }
            }
            _ => {}
        }
        effects
    }
}
