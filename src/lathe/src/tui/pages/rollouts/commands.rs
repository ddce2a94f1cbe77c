//! What the keys and the mouse do on page Rollouts.

use std::sync::Arc;

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::absence::lies_on;
use super::list::Row;
use super::{Beside, Command, Pane, Rollouts, TokenView, library, limit, tokens};
use crate::tui::action::Effect;
use crate::tui::pages::PageId;
use crate::tui::shared::{Notice, RunKey, Shared, Wish};
use crate::tui::widgets::field::Field;
use crate::tui::widgets::list::Move;
use crate::tui::widgets::text;

impl Rollouts {
    pub(super) fn command(&mut self, command: Command, shared: &mut Shared) -> Vec<Effect> {
        match command {
            Command::Move(by) => self.go(by, shared),
            Command::Left => self.sideways(false, shared),
            Command::Right => self.sideways(true, shared),
            Command::Sample(by) => self.go_sample(by),
            Command::NextPane => {
                self.pane = match self.pane {
                    Pane::List => Pane::Dialogue,
                    Pane::Dialogue => Pane::List,
                };
                self.is_expanded &= self.pane == Pane::Dialogue;
            }
            Command::Open => self.pane = Pane::Dialogue,
            Command::Expand => {
                self.is_expanded = !self.is_expanded;
                self.pane = if self.is_expanded {
                    Pane::Dialogue
                } else {
                    Pane::List
                };
            }
            Command::Sort => {
                self.arrangement.order = self.arrangement.order.next();
                self.arrange(shared);
            }
            Command::Reverse => {
                self.arrangement.is_reversed = !self.arrangement.is_reversed;
                self.arrange(shared);
            }
            Command::Flat => {
                self.arrangement.is_flat = !self.arrangement.is_flat;
                self.arrange(shared);
            }
            Command::Search => self.typing = Some(Field::new(self.pattern.clone())),
            Command::NextMatch => self.next_match(true, shared),
            Command::PreviousMatch => self.next_match(false, shared),
            Command::StepBack => self.step(false, shared),
            Command::StepForward => self.step(true, shared),
            Command::Newest => shared.step = None,
            Command::Tokens => {
                self.beside = None;
                self.scroll = 0;
                if self.tokens.take().is_none() {
                    self.pane = Pane::Dialogue;
                    self.tokens = Some(TokenView {
                        cursor: 0,
                        shown: super::TokenTexts::default(),
                    });
                }
            }
            Command::Shade => {
                self.shade = self.shade.next();
                if self.tokens.is_none() {
                    return self.command(Command::Tokens, shared);
                }
            }
            Command::Beside => {
                if self.beside.take().is_none() {
                    return self.look_beside(shared);
                }
            }
            Command::BesidePlace => match &mut self.beside {
                Some(beside) => beside.next_place(),
                None => return self.look_beside(shared),
            },
            Command::BesideSample => match &mut self.beside {
                Some(beside) => {
                    beside.sample = beside.sample.wrapping_add(1);
                    beside.scroll = 0;
                }
                None => return self.look_beside(shared),
            },
            Command::Timeline => {
                if let Some((_, step)) = self.target(shared) {
                    shared.step = Some(step);
                }
                shared.wish = Some(Wish::Go(PageId::Timeline));
            }
            Command::Reload => {
                if let Some(run) = shared.current.clone() {
                    self.reload(&run);
                    shared.say(Notice::good("reading the rollouts of this run again"));
                }
            }
            Command::Pull => return self.pull(shared),
        }
        Vec::new()
    }

    pub(super) fn reload(&mut self, run: &RunKey) {
        self.library.forget(run);
        self.listed_at = None;
        self.rows.clear();
    }

    fn pull(&mut self, shared: &mut Shared) -> Vec<Effect> {
        let Some(run) = shared.current.clone() else {
            return Vec::new();
        };
        let Some(target) = lies_on(shared).map(str::to_owned) else {
            shared.say(Notice::caution(
                "this run lies here: nothing is to be fetched",
            ));
            return Vec::new();
        };
        if shared.refuse_when_read_only("fetching rollouts") {
            return Vec::new();
        }
        if self.pulling.is_some() {
            shared.say(Notice::caution("they are on their way already"));
            return Vec::new();
        }
        shared.say(Notice::good(format!("fetching the rollouts from {target}")));
        self.pulling = Some(run.clone());
        vec![library::pull(run)]
    }

    fn go(&mut self, by: Move, shared: &Shared) {
        let panes = self.panes(shared.page_area());
        match self.pane {
            Pane::List => {
                let visible = panes
                    .list
                    .map_or(1, |list| usize::from(list.height).max(2) - 1);
                let before = self.list.selected(self.rows.len());
                self.list.go(by, self.rows.len(), visible);
                if self.list.selected(self.rows.len()) != before {
                    self.changed_sample();
                }
            }
            Pane::Dialogue if self.tokens.is_some() => self.go_token_line(by, shared),
            Pane::Dialogue => {
                let visible = panes
                    .dialogue
                    .map_or(1, |area| usize::from(area.height))
                    .max(1);
                let most = self.dialogue_height(shared).saturating_sub(visible);
                self.scroll = scrolled(self.scroll.min(most), by, visible, most);
                if let Some(beside) = &mut self.beside {
                    beside.scroll = self.scroll;
                }
            }
        }
    }

    fn changed_sample(&mut self) {
        self.scroll = 0;
        // Another prompt is at other places.
        self.beside = None;
    }

    fn go_sample(&mut self, by: Move) {
        let before = self.list.selected(self.rows.len());
        self.list.go(by, self.rows.len(), 10);
        // Over headings: samples are what is read.
        if matches!(self.row(), Some(Row::Group(_))) {
            self.list.go(by, self.rows.len(), 10);
        }
        if matches!(self.row(), Some(Row::Group(_))) {
            self.list.select(before);
        }
        if self.list.selected(self.rows.len()) != before {
            self.changed_sample();
        }
    }

    fn sideways(&mut self, is_right: bool, shared: &Shared) {
        let count = self
            .sample()
            .map_or(0, |(batch, index)| tokens::count(&batch.samples[index].row));
        match &mut self.tokens {
            Some(view) if self.pane == Pane::Dialogue => {
                view.cursor = if is_right {
                    (view.cursor + 1).min(count.saturating_sub(1))
                } else {
                    view.cursor.saturating_sub(1)
                };
            }
            _ => {
                self.pane = if is_right { Pane::Dialogue } else { Pane::List };
                self.is_expanded &= is_right;
            }
        }
        let _ = shared;
    }

    /// Up and down in the tokens: to the token above or below the cursor.
    fn go_token_line(&mut self, by: Move, shared: &Shared) {
        let Some((width, visible)) = self.token_room(shared) else {
            return;
        };
        let Some(view) = &mut self.tokens else {
            return;
        };
        let lines = tokens::layout(&view.shown.texts, width);
        let Some(now) = lines.iter().position(|line| line.contains(&view.cursor)) else {
            return;
        };
        let visible = (visible / 2).max(1);
        let wanted = scrolled(now, by, visible, lines.len() - 1);
        let column = |line: &std::ops::Range<usize>, token: usize| -> usize {
            view.shown.texts[line.start..token]
                .iter()
                .map(|shown| text::width(shown))
                .sum()
        };
        view.cursor = match by {
            Move::First => 0,
            Move::Last => view.shown.texts.len() - 1,
            _ => {
                let at = column(&lines[now], view.cursor);
                let line = lines[wanted].clone();
                line.clone()
                    .rev()
                    .find(|token| column(&line, *token) <= at)
                    .unwrap_or(line.start)
            }
        };
    }

    fn arrange(&mut self, shared: &mut Shared) {
        let row = self.row();
        if let Some(batch) = self.batch() {
            self.rows = self.arrangement.rows(batch);
        }
        // The selected sample stays selected.
        let at = row.and_then(|row| self.rows.iter().position(|other| *other == row));
        self.list.select(at.unwrap_or(0));
        shared.say(Notice::good(format!(
            "samples {}",
            self.arrangement.words()
        )));
    }

    fn step(&mut self, is_forward: bool, shared: &mut Shared) {
        let Some((run, step)) = self.target(shared) else {
            shared.say(Notice::caution("no step is recorded"));
            return;
        };
        let next = self
            .library
            .listing(&run)
            .and_then(|listing| listing.next(step, is_forward, limit(shared)));
        match next {
            Some(next) => shared.step = Some(next),
            None if is_forward => {
                shared.step = None;
                shared.say(Notice::caution("this is the newest recorded step"));
            }
            None => shared.say(Notice::caution("this is the first recorded step")),
        }
    }

    fn look_beside(&mut self, shared: &mut Shared) -> Vec<Effect> {
        let Some((batch, index)) = self.sample() else {
            shared.say(Notice::caution("no sample is selected"));
            return Vec::new();
        };
        let Some(here) = self.shown.clone() else {
            return Vec::new();
        };
        let batch = Arc::clone(batch);
        self.requests += 1;
        self.tokens = None;
        self.pane = Pane::Dialogue;
        self.scroll = 0;
        self.beside = Some(Beside::new(self.requests, (Arc::clone(&batch), index)));
        let mut runs: Vec<_> = shared
            .marked
            .iter()
            .filter(|run| **run != here.0)
            .cloned()
            .collect();
        runs.push(here.0.clone());
        vec![library::find_prompt(
            self.requests,
            batch,
            index,
            here,
            runs,
        )]
    }

    // ---- search ----

    pub(super) fn accept_search(&mut self, shared: &mut Shared) {
        let Some(field) = self.typing.take() else {
            return;
        };
        field.text().clone_into(&mut self.pattern);
        self.look_up();
        if self.pattern.is_empty() {
            return;
        }
        // A sample that matches already is the first match.
        if self.is_match(self.list.selected(self.rows.len())) {
            self.scroll_to_match(shared);
            self.tell_matches(shared);
        } else {
            self.next_match(true, shared);
        }
    }

    /// Whether the sample of a row contains what is searched.
    pub(super) fn is_match(&self, row: usize) -> bool {
        match self.rows.get(row) {
            Some(Row::Sample(index)) => self.found.get(*index).copied().unwrap_or(false),
            _ => false,
        }
    }

    /// Looks through all samples: a few milliseconds a megabyte of text, so not at each key.
    pub(super) fn look_up(&mut self) {
        self.found = match self.batch() {
            Some(batch) if !self.pattern.is_empty() => batch
                .samples
                .iter()
                .map(|sample| sample.contains(&self.pattern))
                .collect(),
            _ => Vec::new(),
        };
    }

    fn next_match(&mut self, is_forward: bool, shared: &mut Shared) {
        if self.pattern.is_empty() {
            shared.say(Notice::caution("/ searches"));
            return;
        }
        if self.scroll_to_further_match(is_forward, shared) {
            return;
        }
        let length = self.rows.len();
        let now = self.list.selected(length);
        let next = (1..=length)
            .map(|by| {
                if is_forward {
                    (now + by) % length
                } else {
                    (now + length - by) % length
                }
            })
            .find(|row| self.is_match(*row));
        match next {
            Some(row) => {
                self.list.select(row);
                self.changed_sample();
                self.scroll_to_match(shared);
                self.tell_matches(shared);
            }
            None => shared.say(Notice::caution(format!(
                "no dialogue of this step has `{}`",
                text::printable(&self.pattern)
            ))),
        }
    }

    fn tell_matches(&self, shared: &mut Shared) {
        let matching: Vec<usize> = (0..self.rows.len())
            .filter(|row| self.is_match(*row))
            .collect();
        let now = self.list.selected(self.rows.len());
        let place = matching.iter().position(|row| *row == now).unwrap_or(0) + 1;
        shared.say(Notice::good(format!(
            "dialogue {place} of {} with `{}`",
            matching.len(),
            text::printable(&self.pattern)
        )));
    }

    /// A long dialogue may have a match above or below what is seen of it.
    fn scroll_to_further_match(&mut self, is_forward: bool, shared: &Shared) -> bool {
        let is_here = self.is_match(self.list.selected(self.rows.len()));
        let area = self.panes(shared.page_area()).dialogue;
        let (true, Some(area), None) = (is_here, area, &self.tokens) else {
            return false;
        };
        let visible = usize::from(area.height);
        let lines = self.dialogue_lines(shared);
        let is_match = |at: &usize| text::finds(&lines[*at].text, &self.pattern);
        let most = lines.len().saturating_sub(visible);
        let top = self.scroll.min(most);
        let next = if is_forward {
            ((top + visible).min(lines.len())..lines.len()).find(is_match)
        } else {
            (0..top).rev().find(is_match)
        };
        if let Some(at) = next {
            self.scroll = at.saturating_sub(visible / 3).min(most);
        }
        next.is_some()
    }

    fn scroll_to_match(&mut self, shared: &Shared) {
        let lines = self.dialogue_lines(shared);
        let at = lines
            .iter()
            .position(|line| text::finds(&line.text, &self.pattern));
        let visible = self
            .panes(shared.page_area())
            .dialogue
            .map_or(1, |area| usize::from(area.height));
        let most = lines.len().saturating_sub(visible);
        self.scroll = at.unwrap_or(0).saturating_sub(visible / 3).min(most);
    }

    // ---- mouse ----

    pub(super) fn mouse(&mut self, event: MouseEvent, area: Rect, shared: &Shared) {
        let at = Position::new(event.column, event.row);
        let panes = self.panes(area);
        let in_list = panes.list.filter(|list| list.contains(at));
        let pane = match (in_list, panes.dialogue.filter(|area| area.contains(at))) {
            (Some(_), _) => Pane::List,
            (None, Some(_)) => Pane::Dialogue,
            (None, None) => return,
        };
        let before = self.pane;
        match event.kind {
            MouseEventKind::ScrollDown | MouseEventKind::ScrollUp => {
                let by = if event.kind == MouseEventKind::ScrollDown {
                    Move::Down
                } else {
                    Move::Up
                };
                // The wheel scrolls what it is over; the keys stay where they are.
                self.pane = pane;
                for _ in 0..3 {
                    self.go(by, shared);
                }
                self.pane = before;
            }
            MouseEventKind::Down(MouseButton::Left) => {
                self.pane = pane;
                self.click_token(at, shared);
                if let Some(list) = in_list {
                    // The first line is the heads of the columns.
                    let line = usize::from(at.y - list.y);
                    let visible = usize::from(list.height).saturating_sub(1);
                    let row = self.list.top(self.rows.len(), visible) + line.saturating_sub(1);
                    if line > 0 && row < self.rows.len() {
                        self.list.select(row);
                        self.changed_sample();
                    }
                }
            }
            _ => {}
        }
    }
}

impl Rollouts {
    /// The cursor goes to the token under the mouse.
    fn click_token(&mut self, at: Position, shared: &Shared) {
        let (Some(area), Some((width, height))) = (
            self.panes(shared.page_area()).dialogue,
            self.token_room(shared),
        ) else {
            return;
        };
        let Some(view) = self.tokens.as_mut().filter(|_| area.contains(at)) else {
            return;
        };
        let texts = &view.shown.texts;
        let lines = tokens::layout(texts, width);
        let now = lines.iter().position(|line| line.contains(&view.cursor));
        let top = tokens::top(now.unwrap_or(0), lines.len(), (height / 2).max(1));
        // A line of tokens is two rows: the text and its marks.
        let row = usize::from(at.y - area.y);
        let line = lines.get(top + row / 2).filter(|_| row < height);
        let column = usize::from(at.x - area.x);
        if let Some(token) = line.and_then(|line| tokens::at_column(texts, line.clone(), column)) {
            view.cursor = token;
        }
    }
}

/// A scroll position moved within `0..=most`.
fn scrolled(now: usize, by: Move, visible: usize, most: usize) -> usize {
    match by {
        Move::Up => now.saturating_sub(1),
        Move::Down => (now + 1).min(most),
        Move::HalfPageUp => now.saturating_sub((visible / 2).max(1)),
        Move::HalfPageDown => (now + (visible / 2).max(1)).min(most),
        Move::PageUp => now.saturating_sub(visible),
        Move::PageDown => (now + visible).min(most),
        Move::First => 0,
        Move::Last => most,
    }
}
