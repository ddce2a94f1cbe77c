//! Page Rollouts on the screen.

use std::fmt::Write as _;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::library::Shelf;
use super::list::{Columns, Look, Row, reward, signed};
use super::turns::{self, DialogueLine};
use super::{Pane, Rollouts, tokens};
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::{empty, frame as frames, text};

/// Below this width one pane is shown at a time.
const NARROW: u16 = 72;
/// Below this height panes have no frame.
const LOW: u16 = 12;

/// Where the inside of each pane is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Panes {
    pub list: Option<Rect>,
    pub dialogue: Option<Rect>,
    pub beside: Option<Rect>,
    list_frame: Option<Rect>,
    dialogue_frame: Option<Rect>,
    beside_frame: Option<Rect>,
}

fn inside(area: Rect) -> Rect {
    if area.height < LOW {
        // A line for the title.
        Rect {
            y: area.y + 1.min(area.height),
            height: area.height.saturating_sub(1),
            ..area
        }
    } else {
        Rect::new(
            area.x + 1,
            area.y + 1,
            area.width.saturating_sub(2),
            area.height.saturating_sub(2),
        )
    }
}

impl Rollouts {
    pub(super) fn panes(&self, area: Rect) -> Panes {
        let mut panes = Panes::default();
        let has_beside = self.beside.is_some();
        if has_beside && area.width >= NARROW {
            let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(area);
            panes.dialogue_frame = Some(left);
            panes.beside_frame = Some(right);
        } else if has_beside {
            let [above, below] = Layout::vertical([Constraint::Fill(1); 2]).areas(area);
            panes.dialogue_frame = Some(above);
            panes.beside_frame = Some(below);
        } else if self.is_expanded || (area.width < NARROW && self.pane == Pane::Dialogue) {
            panes.dialogue_frame = Some(area);
        } else if area.width < NARROW {
            panes.list_frame = Some(area);
        } else {
            let width = (area.width * 9 / 20).clamp(36, 84);
            let [left, right] =
                Layout::horizontal([Constraint::Length(width), Constraint::Fill(1)]).areas(area);
            panes.list_frame = Some(left);
            panes.dialogue_frame = Some(right);
        }
        panes.list = panes.list_frame.map(inside);
        panes.dialogue = panes.dialogue_frame.map(inside);
        panes.beside = panes.beside_frame.map(inside);
        panes
    }

    pub(super) fn draw_page(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let [page, search] = Layout::vertical([
            Constraint::Fill(1),
            Constraint::Length(u16::from(self.typing.is_some())),
        ])
        .areas(area);
        if !self.draw_absence(shared, frame, page) {
            let panes = self.panes(page);
            self.draw_list(shared, frame, &panes);
            self.draw_dialogue(shared, frame, &panes);
            self.draw_beside(shared, frame, &panes);
        }
        if let Some(field) = &self.typing {
            let styles = (shared.style(Role::Accent), shared.style(Role::Text));
            field.draw(frame, search, "/", styles, true);
        }
    }

    fn draw_list(&self, shared: &Shared, frame: &mut Frame<'_>, panes: &Panes) {
        let (Some(outer), Some(inner), Some(batch)) = (panes.list_frame, panes.list, self.batch())
        else {
            return;
        };
        let title = format!(
            " step {}: {}, {} ",
            batch.step,
            turns::counted(batch.samples.len(), "sample"),
            turns::counted(batch.groups.len(), "prompt"),
        );
        let is_focused = self.pane == Pane::List;
        draw_frame(shared, frame, outer, &title, is_focused);
        let columns = Columns::fitting(usize::from(inner.width), batch.parts.len());
        let visible = usize::from(inner.height).saturating_sub(1);
        let selected = self.list.selected(self.rows.len());
        let rows = self.list.window(self.rows.len(), visible).map(|at| {
            let look = Look {
                is_selected: at == selected,
                is_focused,
                is_match: self.is_match(at),
                has_prompt: self.arrangement.is_flat,
            };
            columns.row(batch, self.rows[at], look, shared)
        });
        let lines: Vec<Line<'_>> = std::iter::once(columns.head(Some(batch), shared))
            .chain(rows)
            .collect();
        frame.render_widget(Paragraph::new(lines), inner);
    }

    // ---- dialogue ----

    /// What the dialogue's pane shows, whole.
    pub(super) fn dialogue_lines(&self, shared: &Shared) -> Vec<DialogueLine> {
        let area = self.panes(shared.page_area()).dialogue;
        let width = area.map_or(40, |area| usize::from(area.width)).max(4);
        self.lines_of_selection(width, shared)
    }

    pub(super) fn dialogue_height(&self, shared: &Shared) -> usize {
        let here = self.dialogue_lines(shared).len();
        let there = match (self.beside_sample(), self.panes(shared.page_area()).beside) {
            (Some((batch, index)), Some(area)) => {
                lines_of(batch, index, usize::from(area.width).max(4), shared).len()
            }
            _ => 0,
        };
        here.max(there)
    }

    fn lines_of_selection(&self, width: usize, shared: &Shared) -> Vec<DialogueLine> {
        if let (Some(Row::Group(group)), Some(batch), None) =
            (self.row(), self.batch(), &self.beside)
        {
            return group_lines(batch, group, width, shared);
        }
        match self.sample() {
            Some((batch, index)) => lines_of(batch, index, width, shared),
            None => Vec::new(),
        }
    }

    fn draw_dialogue(&self, shared: &Shared, frame: &mut Frame<'_>, panes: &Panes) {
        let (Some(outer), Some(inner)) = (panes.dialogue_frame, panes.dialogue) else {
            return;
        };
        let is_focused = self.pane == Pane::Dialogue;
        let name = match (self.row(), self.sample()) {
            (Some(Row::Group(_)), Some(_)) if self.beside.is_none() && self.tokens.is_none() => {
                " group ".to_owned()
            }
            (_, Some((batch, index))) => {
                let run = if self.beside.is_some() {
                    shared.current.as_ref().map_or_else(String::new, |run| {
                        format!("{} ", text::printable(&short_name(shared, run)))
                    })
                } else {
                    String::new()
                };
                format!(
                    " {run}step {} sample {} ",
                    batch.step, batch.samples[index].row.sample
                )
            }
            _ => " dialogue ".to_owned(),
        };
        let title = match &self.tokens {
            Some(_) => format!("{name}by {} ", self.shade.word()),
            None => name,
        };
        draw_frame(shared, frame, outer, &title, is_focused);
        if self.tokens.is_some() {
            self.draw_tokens(shared, frame, inner);
            return;
        }
        // Both columns are wrapped alike, so that the same text gives the same lines.
        let width = panes
            .beside
            .map_or(inner.width, |beside| beside.width.min(inner.width));
        let lines = self.lines_of_selection(usize::from(width).max(4), shared);
        self.draw_lines(&lines, shared, frame, inner);
    }

    fn draw_lines(
        &self,
        lines: &[DialogueLine],
        shared: &Shared,
        frame: &mut Frame<'_>,
        area: Rect,
    ) {
        let visible = usize::from(area.height);
        let top = self.scroll.min(lines.len().saturating_sub(visible));
        let shown: Vec<Line<'_>> = lines
            .iter()
            .skip(top)
            .take(visible)
            .map(|line| highlighted(&line.text, &self.pattern, line.role, shared))
            .collect();
        frame.render_widget(Paragraph::new(shown), area);
        // What is left below, on the frame's last line or over the last line of text.
        let left = lines.len().saturating_sub(top + visible);
        if left > 0 && area.height > 0 {
            let more = format!(" {left} more {} ", shared.glyphs.pick("↓", "v"));
            let width = (text::width(&more) as u16).min(area.width);
            let place = Rect::new(area.right() - width, area.bottom() - 1, width, 1);
            frame.render_widget(Line::styled(more, shared.style(Role::Accent)), place);
        }
    }

    fn draw_beside(&self, shared: &Shared, frame: &mut Frame<'_>, panes: &Panes) {
        let (Some(outer), Some(inner), Some(beside)) =
            (panes.beside_frame, panes.beside, &self.beside)
        else {
            return;
        };
        let count = beside.counted();
        let sample = self.beside_sample();
        let title = match (beside.place(), &sample) {
            (Some((run, step)), Some((batch, index))) => format!(
                " {} step {step} sample {} ({} of {count}, {} differs) ",
                text::printable(&short_name(shared, run)),
                batch.samples[*index].row.sample,
                beside.place + 1,
                shared.glyphs.pick("≠", "!"),
            ),
            _ => " the same prompt ".to_owned(),
        };
        draw_frame(shared, frame, outer, &title, false);
        match (sample, beside.place()) {
            (Some((batch, index)), _) => {
                let width = panes
                    .dialogue
                    .map_or(inner.width, |here| here.width.min(inner.width));
                let width = usize::from(width).max(4);
                let mut lines = lines_of(batch, index, width, shared);
                let mark = shared.glyphs.pick("≠", "!");
                mark_differences(&mut lines, &self.lines_of_selection(width, shared), mark);
                self.draw_lines(&lines, shared, frame, inner);
            }
            (None, None) => empty::draw(
                shared,
                frame,
                inner,
                "Looking for this prompt",
                &beside.progress(),
            ),
            (None, Some((run, step))) => match self.library.get(run, *step) {
                Shelf::Broken(problem) => empty::problem(shared, frame, inner, problem),
                Shelf::Absent => {
                    empty::draw(shared, frame, inner, &format!("Reading step {step}"), "");
                }
                Shelf::Ready(_) => empty::draw(
                    shared,
                    frame,
                    inner,
                    "This prompt was sampled once here",
                    "mark runs on page 1 to see their samples of it",
                ),
            },
        }
    }

    // ---- tokens ----

    /// Width and height of the tokens themselves.
    pub(super) fn token_room(&self, shared: &Shared) -> Option<(usize, usize)> {
        let area = self.panes(shared.page_area()).dialogue?;
        let below = self.token_notes(area, shared).len();
        Some((
            usize::from(area.width).max(1),
            usize::from(area.height).saturating_sub(below),
        ))
    }

    /// The read-out of the cursor's token and the legend, in at most half of the room.
    fn token_notes(&self, area: Rect, shared: &Shared) -> Vec<(String, Role)> {
        let width = usize::from(area.width);
        let (Some(view), Some((batch, index))) = (&self.tokens, self.sample()) else {
            return Vec::new();
        };
        let row = &batch.samples[index].row;
        let mut shown = view
            .shown
            .texts
            .get(view.cursor)
            .cloned()
            .unwrap_or_default();
        if !shared.glyphs.unicode {
            shown = shown.replace('⏎', "$");
        }
        let read = tokens::readout(row, view.cursor, &shown, view.shown.has_tokenizer);
        let mut notes: Vec<(String, Role)> = Vec::new();
        for line in read {
            notes.extend(
                text::wrap(&line, width)
                    .into_iter()
                    .map(|line| (line, Role::Text)),
            );
        }
        if !view.shown.has_tokenizer {
            let why = match self
                .shown
                .as_ref()
                .map(|(run, _)| self.library.vocabulary(run))
            {
                Some(Some(Err(reason))) => format!("ids, for want of a tokenizer: {reason}"),
                _ => "ids, while the tokenizer is loaded".to_owned(),
            };
            notes.extend(
                text::wrap(&why, width)
                    .into_iter()
                    .map(|line| (line, Role::Caution)),
            );
        }
        notes.extend(
            text::wrap(&self.shade.legend(shared.glyphs), width)
                .into_iter()
                .map(|line| (line, Role::Muted)),
        );
        notes.truncate(usize::from(area.height / 2));
        notes
    }

    fn draw_tokens(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let (Some(view), Some((batch, index))) = (&self.tokens, self.sample()) else {
            return;
        };
        let row = &batch.samples[index].row;
        let notes = self.token_notes(area, shared);
        let [above, below] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(notes.len() as u16)])
                .areas(area);
        let width = usize::from(area.width).max(1);
        let lines = tokens::layout(&view.shown.texts, width);
        let at = lines
            .iter()
            .position(|line| line.contains(&view.cursor))
            .unwrap_or(0);
        let visible = usize::from(above.height / 2).max(1);
        let top = tokens::top(at, lines.len(), visible);
        let shown: Vec<Line<'_>> = lines
            .iter()
            .skip(top)
            .take(visible)
            .flat_map(|range| {
                let look = (self.shade, view.cursor);
                tokens::draw_line(row, &view.shown.texts, range.clone(), look, width, shared)
            })
            .collect();
        frame.render_widget(Paragraph::new(shown), above);
        if let Some(line) = lines.get(at) {
            let column: usize = view.shown.texts[line.start..view.cursor.min(line.end)]
                .iter()
                .map(|shown| text::width(shown))
                .sum();
            let y = above.y + 2 * (at - top) as u16;
            if self.pane == Pane::Dialogue && y < above.bottom() && column < width {
                frame.set_cursor_position(Position::new(above.x + column as u16, y));
            }
        }
        let notes: Vec<Line<'_>> = notes
            .into_iter()
            .map(|(note, role)| Line::styled(note, shared.style(role)))
            .collect();
        frame.render_widget(Paragraph::new(notes), below);
    }
}

fn lines_of(
    batch: &super::Batch,
    index: usize,
    width: usize,
    shared: &Shared,
) -> Vec<DialogueLine> {
    let mut lines = turns::head(batch, index, width, shared.glyphs);
    lines.push(DialogueLine {
        text: String::new(),
        role: Role::Text,
    });
    lines.extend(turns::lines(&batch.samples[index], width, shared.glyphs));
    lines
}

/// Marks what was said here and not there. Lines in other places are no difference: one side may have said more before.
fn mark_differences(lines: &mut [DialogueLine], other: &[DialogueLine], mark: &str) {
    let there: std::collections::HashSet<&str> =
        other.iter().map(|line| line.text.as_str()).collect();
    for line in lines {
        // What is said is indented; headings and facts are not.
        if let Some(said) = line.text.strip_prefix("  ")
            && !there.contains(line.text.as_str())
        {
            line.text = format!("{mark} {said}");
            line.role = Role::Caution;
        }
    }
}

/// A group's heading is selected: its prompt, its numbers, and how each sample ended.
fn group_lines(
    batch: &super::Batch,
    group: usize,
    width: usize,
    shared: &Shared,
) -> Vec<DialogueLine> {
    let group = &batch.groups[group];
    let mut lines = Vec::new();
    let mut push = |text: String, role: Role| {
        for text in text::wrap(&text, width) {
            lines.push(DialogueLine { text, role });
        }
    };
    push(group.title.clone(), Role::Title);
    push(String::from(" "), Role::Text);
    match (group.mean, group.spread) {
        (Some(mean), Some(spread)) => {
            let missing = group
                .samples
                .iter()
                .filter(|&&index| batch.samples[index].row.score.is_none())
                .count();
            let mut said = format!(
                "{}, mean reward {}, spread {}",
                turns::counted(group.samples.len(), "sample"),
                text::number(mean),
                text::number(spread)
            );
            if missing > 0 {
                let _ = write!(said, ", {missing} without a reward");
            }
            push(said, Role::Text);
            if batch.teaches_nothing(group) {
                push(
                    "all rewards are equal: this group has no advantage to learn from".to_owned(),
                    Role::Caution,
                );
            }
        }
        _ => push("no sample has a reward".to_owned(), Role::Caution),
    }
    push(String::from(" "), Role::Text);
    push("  #  reward  advantage  last said".to_owned(), Role::Muted);
    for &index in &group.samples {
        let sample = &batch.samples[index];
        let last = sample
            .messages
            .iter()
            .rev()
            .map(dialogue_text)
            .find(|said| !said.is_empty())
            .unwrap_or_default();
        let said = format!(
            "{:>3}  {:>6}  {:>9}  {}",
            sample.row.sample,
            reward(sample.row.score),
            signed(sample.advantage),
            text::printable(&last)
        );
        lines.push(DialogueLine {
            text: text::fit(&said, width, shared.glyphs.unicode),
            role: Role::Text,
        });
    }
    lines
}

fn dialogue_text(message: &dialogue::message::Message) -> String {
    message
        .text()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last part of a run's name tells runs of one experiment apart.
fn short_name(shared: &Shared, run: &crate::tui::shared::RunKey) -> String {
    let name = run.name();
    let id = name.rsplit('-').next().unwrap_or_default();
    let experiment = shared
        .open
        .get(run)
        .and_then(|open| open.state.started.as_ref())
        .map(|started| started.experiment_name.clone());
    match experiment {
        Some(experiment) => format!("{experiment}-{}", id.chars().take(4).collect::<String>()),
        None => name,
    }
}

fn draw_frame(shared: &Shared, frame: &mut Frame<'_>, area: Rect, title: &str, is_focused: bool) {
    let role = if is_focused {
        Role::Focus
    } else {
        Role::Border
    };
    // Which pane has the keys is said by a mark, too.
    let title = if is_focused {
        format!(
            "{}{}",
            shared.glyphs.pick("▪", "*"),
            text::fit(
                title,
                usize::from(area.width).saturating_sub(4),
                shared.glyphs.unicode
            )
        )
    } else {
        text::fit(
            title,
            usize::from(area.width).saturating_sub(3),
            shared.glyphs.unicode,
        )
    };
    if area.height < LOW {
        let line = Rect { height: 1, ..area };
        frame.render_widget(Line::styled(title, shared.style(Role::Title)), line);
    } else {
        frame.render_widget(frames::block(shared, &title, role), area);
    }
}

/// A line with what is searched standing out.
fn highlighted<'a>(line: &'a str, pattern: &str, role: Role, shared: &Shared) -> Line<'a> {
    let style = shared.style(role);
    let mut spans = Vec::new();
    let mut at = 0;
    for found in text::matches(line, pattern) {
        spans.push(Span::styled(&line[at..found.start], style));
        spans.push(Span::styled(
            &line[found.clone()],
            shared.style(Role::Match),
        ));
        at = found.end;
    }
    spans.push(Span::styled(&line[at..], style));
    Line::from(spans)
}
