//! Page Timeline on the screen.

use std::borrow::Cow;
use std::fmt::Write as _;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span as Piece};
use ratatui::widgets::Paragraph;
use runlog::RunState;
use runlog::state::Span;

use super::lanes::{LaneRow, ROWS, overlap_frac};
use super::table::{cells, percent, stall_of, stall_words};
use super::window::{Window, tick_ms};
use super::{Known, Pane, Timeline, steps_touched};
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::list::ListState;
use crate::tui::widgets::{empty, text};

/// Columns left of the lanes.
pub(super) const LABEL: u16 = 15;
/// Columns right of them: the share of the window.
const SHARE: u16 = 5;
/// Lines that name what is under the cursor.
const NAMES: u16 = 4;

/// Columns of the lanes themselves.
pub(super) fn columns(width: u16) -> usize {
    usize::from(width.saturating_sub(LABEL + SHARE)).max(1)
}

/// `37 s`, `1.2 s`, `38 ms`, `2:07`.
pub(super) fn length(ms: f64) -> String {
    if ms >= 600_000.0 {
        text::clock(ms)
    } else if ms >= 1000.0 {
        format!("{} s", text::number(ms / 1000.0))
    } else {
        format!("{} ms", text::number(ms))
    }
}

/// A moment of the run, as exactly as the window can show.
fn moment(ms: f64, tick: f64) -> String {
    if tick >= 1000.0 {
        return text::clock(ms);
    }
    let whole = text::clock((ms / 1000.0 + 1e-9).floor() * 1000.0);
    let rest = (ms - ((ms / 1000.0 + 1e-9).floor() * 1000.0)).max(0.0);
    if tick >= 100.0 {
        format!("{whole}.{:01.0}", (rest / 100.0).floor())
    } else if tick >= 10.0 {
        format!("{whole}.{:02.0}", (rest / 10.0).floor())
    } else {
        format!("{whole}.{:03.0}", rest.floor())
    }
}

/// How many lanes are drawn.
pub(super) fn lane_rows(state: &RunState, area: Rect) -> u16 {
    let used = Timeline::rows(state).len() as u16;
    used.min(area.height.saturating_sub(3)).max(1)
}

/// The part of the page that the table has: its head and its rows.
fn table_area(state: &RunState, area: Rect) -> Rect {
    let above = 1 + lane_rows(state, area) + 1 + NAMES;
    Rect {
        y: area.y + above.min(area.height),
        height: area.height.saturating_sub(above),
        ..area
    }
}

/// Rows of the table on screen.
pub(super) fn table_rows(_page: &Timeline, state: &RunState, area: Rect) -> usize {
    usize::from(table_area(state, area).height.saturating_sub(1)).max(1)
}

fn table_window(page: &Timeline, state: &RunState, visible: usize) -> std::ops::Range<usize> {
    let mut list = ListState::default();
    let length = state.steps.times.len();
    let row = page.table_row(state).unwrap_or(0);
    // The selected row is kept in the middle, so that its neighbours are seen.
    list.select((row + visible / 2).min(length.saturating_sub(1)));
    let bottom = list.top(length, visible);
    bottom..(bottom + visible).min(length)
}

pub(super) fn table_row_at(
    page: &Timeline,
    state: &RunState,
    area: Rect,
    line: u16,
) -> Option<usize> {
    let table = table_area(state, area);
    let at = usize::from(line.checked_sub(table.y + 1)?);
    let window = table_window(page, state, table_rows(page, state, area));
    (at < window.len()).then_some(window.start + at)
}

impl Timeline {
    pub(super) fn draw_page(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let Some(open) = shared.current_run() else {
            empty::no_run(shared, frame, area);
            return;
        };
        let state = &open.state;
        let rows = Self::rows(state);
        if rows.is_empty() {
            let (what, help) = if !open.is_caught_up {
                ("Reading the run", "")
            } else if state.ended.is_some() || shared.how_it_ended().is_some() {
                (
                    "This run has recorded no spans",
                    "it ended before its first batch; page 8 has its log",
                )
            } else {
                (
                    "No span has ended yet",
                    "the first comes when a batch is generated",
                )
            };
            empty::draw(shared, frame, area, what, help);
            return;
        }
        let window = self.window(state);
        let width = columns(area.width);
        let mut lines = vec![self.axis(state, window, width, shared)];
        let shown = usize::from(lane_rows(state, area));
        let selected = self.lane.min(rows.len() - 1);
        let top = (selected + 1).saturating_sub(shown);
        for (index, row) in rows.iter().enumerate().skip(top).take(shown) {
            lines.push(self.lane_line(state, row, index == selected, window, width, shared));
        }
        lines.push(step_line(state, window, width, shared));
        let above = Rect {
            height: (lines.len() as u16).min(area.height),
            ..area
        };
        frame.render_widget(Paragraph::new(lines), above);
        let names = Rect {
            y: above.bottom(),
            height: NAMES.min(area.bottom().saturating_sub(above.bottom())),
            ..area
        };
        frame.render_widget(
            Paragraph::new(self.names(state, width, names, shared)),
            names,
        );
        let table = table_area(state, area);
        if table.height >= 2 {
            self.draw_table(state, shared, frame, table);
        }
    }

    fn axis(
        &self,
        state: &RunState,
        window: Window,
        width: usize,
        shared: &Shared,
    ) -> Line<'static> {
        let tick = tick_ms(window.length(), (width / 14).max(1));
        let mut marks = vec![' '; width];
        let mut at = (window.start_ms / tick).ceil() * tick;
        while at <= window.end_ms {
            if let Some(column) = window.column_of(at, width) {
                let said = format!("{}{}", shared.glyphs.pick("╷", "|"), moment(at, tick));
                if column + said.chars().count() < width {
                    for (offset, c) in said.chars().enumerate() {
                        marks[column + offset] = c;
                    }
                }
            }
            at += tick;
        }
        if let Some(column) = window.column_of(self.cursor(state), width) {
            marks[column] = if shared.glyphs.unicode { '▼' } else { 'V' };
        }
        let cursor = window.column_of(self.cursor(state), width);
        let mut spans = vec![Piece::raw(" ".repeat(usize::from(LABEL)))];
        let text_of = |range: std::ops::Range<usize>| marks[range].iter().collect::<String>();
        match cursor {
            Some(column) => {
                spans.push(Piece::styled(text_of(0..column), shared.style(Role::Muted)));
                spans.push(Piece::styled(
                    text_of(column..column + 1),
                    shared.style(Role::Crosshair),
                ));
                spans.push(Piece::styled(
                    text_of(column + 1..width),
                    shared.style(Role::Muted),
                ));
            }
            None => spans.push(Piece::styled(text_of(0..width), shared.style(Role::Muted))),
        }
        Line::from(spans)
    }

    fn lane_line(
        &self,
        state: &RunState,
        row: &LaneRow,
        is_selected: bool,
        window: Window,
        width: usize,
        shared: &Shared,
    ) -> Line<'static> {
        // Made ready by `update`; a first frame may come before.
        let index = ROWS.iter().position(|other| other == row).unwrap_or(0);
        let busy = match self.busy.get(index).filter(|busy| busy.is_of(row, state)) {
            Some(busy) => Cow::Borrowed(busy),
            None => Cow::Owned(row.busy(state)),
        };
        let shares = busy.columns(window.start_ms, window.end_ms, width);
        let cursor = window.column_of(self.cursor(state), width);
        let style = lane_style(row, shared);
        let is_focused = is_selected && self.pane == Pane::Lanes;
        let label_style = if is_focused {
            shared.style(Role::Focus)
        } else {
            shared.style(Role::Text)
        };
        let mark = if is_selected {
            shared.glyphs.pick("▸", ">")
        } else {
            " "
        };
        let label = text::pad(row.label, usize::from(LABEL) - 2, shared.glyphs.unicode);
        let mut spans = vec![
            Piece::styled(mark, shared.style(Role::Accent)),
            Piece::styled(format!("{label} "), label_style),
        ];
        let mut run = String::new();
        for (column, share) in shares.iter().enumerate() {
            let shade = shade(*share, shared);
            if cursor == Some(column) {
                spans.push(Piece::styled(std::mem::take(&mut run), style));
                let (mark, look) = if *share > 0.0 {
                    (shade, style.patch(shared.style(Role::Crosshair)))
                } else {
                    (shared.glyphs.pick("│", ":"), shared.style(Role::Crosshair))
                };
                spans.push(Piece::styled(mark, look));
            } else {
                run.push_str(shade);
            }
        }
        spans.push(Piece::styled(run, style));
        let busy = busy.between(window.start_ms, window.end_ms) / window.length().max(1e-9);
        spans.push(Piece::styled(
            text::pad_left(
                &if busy > 0.0 {
                    percent(busy)
                } else {
                    String::new()
                },
                usize::from(SHARE),
                shared.glyphs.unicode,
            ),
            label_style,
        ));
        Line::from(spans)
    }

    /// What is under the cursor, in at most `area.height` lines.
    fn names(
        &self,
        state: &RunState,
        width: usize,
        area: Rect,
        shared: &Shared,
    ) -> Vec<Line<'static>> {
        let room = usize::from(area.width);
        let unicode = shared.glyphs.unicode;
        let (from, to) = self.cell(state, width);
        let cursor = self.cursor(state);
        let step = self.step(state);
        let mut lines = Vec::new();
        let tick = (to - from).max(0.1);
        let at = moment(cursor, tick);
        let mut head = match step {
            Some(step) if cursor < step.end_ms => format!(
                "at {at}, step {} ({} to {}, {})",
                step.step,
                moment(step.start_ms, tick.min(100.0)),
                moment(step.end_ms, tick.min(100.0)),
                length(step.end_ms - step.start_ms)
            ),
            Some(step) => format!("at {at}, after step {}", step.step),
            None => format!("at {at}, before the first step"),
        };
        if let Some(overlap) = step.and_then(|step| overlap_frac(state, step.start_ms, step.end_ms))
        {
            let _ = write!(head, ", overlap {}", percent(overlap));
        }
        lines.push(Line::styled(
            text::fit(&head, room, unicode),
            shared.style(Role::Title),
        ));
        let stall = state
            .steps
            .stalls
            .iter()
            .rev()
            .find(|stall| stall.wait.start_ms <= to && stall.wait.end_ms >= from)
            .or_else(|| stall_of(state, step?));
        if let Some(stall) = stall {
            lines.push(Line::styled(
                text::fit(
                    &format!("{} {}", shared.glyphs.pick("⚠", "!"), stall_words(stall)),
                    room,
                    unicode,
                ),
                shared.style(Role::Caution),
            ));
        }
        let left = usize::from(area.height).saturating_sub(lines.len());
        match self.spans_at(state, from, to) {
            Known::Spans(mut spans) => {
                let row = self.row(state);
                let is_here = |span: &Span| row.is_some_and(|row| row.lanes.contains(&span.lane));
                spans.sort_by(|a, b| {
                    (is_here(b).cmp(&is_here(a)))
                        .then((b.end_ms - b.start_ms).total_cmp(&(a.end_ms - a.start_ms)))
                });
                let more = spans.len().saturating_sub(left.max(1));
                for (index, span) in spans.iter().take(left).enumerate() {
                    let tail = if index + 1 == left && more > 0 {
                        format!("  and {more} more")
                    } else {
                        String::new()
                    };
                    let said = span_words(span, tick, room.saturating_sub(tail.len()), shared);
                    lines.push(Line::from(vec![
                        Piece::styled(said, shared.style(Role::Text)),
                        Piece::styled(tail, shared.style(Role::Muted)),
                    ]));
                }
                if spans.is_empty() && left > 0 {
                    lines.push(Line::styled(
                        "nothing is going on here",
                        shared.style(Role::Muted),
                    ));
                }
            }
            Known::Unread => {
                let said = match &self.problem {
                    Some(problem) => format!("the spans here cannot be read: {problem}"),
                    None => "reading the spans here".to_owned(),
                };
                lines.push(Line::styled(
                    text::fit(&said, room, unicode),
                    shared.style(Role::Muted),
                ));
            }
            Known::TooMany => lines.push(Line::styled(
                format!(
                    "a column is {} here, {} steps: zoom in to name its spans",
                    length(to - from),
                    steps_touched(state, from, to)
                ),
                shared.style(Role::Muted),
            )),
        }
        lines
    }

    fn draw_table(&self, state: &RunState, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let times = &state.steps.times;
        let unicode = shared.glyphs.unicode;
        if times.is_empty() {
            frame.render_widget(
                Line::styled("no step has ended yet", shared.style(Role::Muted)),
                area,
            );
            return;
        }
        let rows = Self::rows(state);
        let rows = fitting(rows, usize::from(area.width).saturating_sub(7 + 9 + 8) / 6);
        let widths: Vec<usize> = [7, 9]
            .into_iter()
            .chain(rows.iter().map(|_| 6))
            .chain([8])
            .collect();
        let used: usize = widths.iter().sum();
        let rest = usize::from(area.width).saturating_sub(used + 2);
        let join = |cells: &[String]| {
            cells
                .iter()
                .zip(&widths)
                .map(|(cell, width)| text::pad_left(cell, *width, unicode))
                .collect::<String>()
        };
        let mut head: Vec<String> = vec!["step".to_owned(), "length".to_owned()];
        head.extend(rows.iter().map(|row| row.short.to_owned()));
        head.push("overlap".to_owned());
        let mut title = join(&head);
        if rest >= 20 {
            title += "  longest wait";
        }
        let mut lines = vec![Line::styled(title, shared.style(Role::Title))];
        let visible = usize::from(area.height).saturating_sub(1);
        let selected = self.table_row(state);
        for row in table_window(self, state, visible) {
            let step = &times[self.table_index(row)];
            let mut line = join(&cells(state, step, &rows));
            if selected == Some(row) {
                line.replace_range(0..1, ">");
            }
            let mut spans = vec![Piece::raw(line)];
            if rest >= 20
                && let Some(stall) = stall_of(state, step)
            {
                let (who, what) = stall.words();
                let said = format!(
                    "  {} {}: {}",
                    length(stall.length_ms()),
                    who.trim_start_matches("the "),
                    text::printable(&what)
                );
                spans.push(Piece::styled(
                    text::fit(&said, rest + 2, unicode),
                    shared.style(Role::Caution),
                ));
            }
            let style = match (selected == Some(row), self.pane) {
                (true, Pane::Steps) => shared.style(Role::Selection),
                (true, Pane::Lanes) => shared.style(Role::Marked),
                _ => shared.style(Role::Text),
            };
            lines.push(Line::from(spans).style(style));
        }
        frame.render_widget(Paragraph::new(lines), area);
    }
}

/// As many columns as there is room for, the least telling left out first.
fn fitting(mut rows: Vec<&'static LaneRow>, most: usize) -> Vec<&'static LaneRow> {
    const LEFT_OUT_FIRST: [&str; 7] = [
        "reward",
        "checkpoint",
        "eval",
        "weight sync",
        "tools",
        "log-probs",
        "learner",
    ];
    for label in LEFT_OUT_FIRST {
        if rows.len() > most {
            rows.retain(|row| row.label != label);
        }
    }
    rows.truncate(most);
    rows
}

fn span_words(span: &Span, tick: f64, room: usize, shared: &Shared) -> String {
    let step = span
        .step
        .map_or_else(String::new, |step| format!(", step {step}"));
    let lane = span.lane.name().replace('_', " ");
    // A name that says the lane again is left out.
    let name = if span.name == lane || super::lanes::is_wait(span.lane) {
        lane
    } else {
        format!("{lane} `{}`", text::printable(&span.name))
    };
    let said = format!(
        "{name}{step}, {} from {}",
        length(span.end_ms - span.start_ms),
        moment(span.start_ms, tick.min(100.0)),
    );
    text::fit(&said, room, shared.glyphs.unicode)
}

fn lane_style(row: &LaneRow, shared: &Shared) -> Style {
    if row.is_wait() {
        return shared.style(Role::Caution);
    }
    let index = ROWS.iter().position(|other| other == row).unwrap_or(0);
    shared.theme.series(index)
}

/// The mark of a share: at least a faint one for any work at all.
fn shade(share: f64, shared: &Shared) -> &'static str {
    let (unicode, ascii) = if share <= 0.0 {
        return " ";
    } else if share < 0.25 {
        ("░", ".")
    } else if share < 0.6 {
        ("▒", "-")
    } else if share < 0.95 {
        ("▓", "=")
    } else {
        ("█", "#")
    };
    shared.glyphs.pick(unicode, ascii)
}

/// Where steps end, with their numbers where there is room.
fn step_line(state: &RunState, window: Window, width: usize, shared: &Shared) -> Line<'static> {
    let times = &state.steps.times;
    let mut marks = vec![' '; width];
    let first = times.partition_point(|step| step.end_ms < window.start_ms);
    let bar = if shared.glyphs.unicode { '╵' } else { '|' };
    let mut free = 0;
    let in_view = times.iter().enumerate().skip(first);
    for (index, step) in in_view.take_while(|(_, step)| step.start_ms <= window.end_ms) {
        let Some(column) = window.column_of(step.start_ms.max(window.start_ms), width) else {
            continue;
        };
        let number: Vec<char> = step.step.to_string().chars().collect();
        if column < free || column + number.len() + 1 > width {
            continue;
        }
        // The step that the window begins within is told only where the next one leaves room.
        let next = times
            .get(index + 1)
            .filter(|_| step.start_ms < window.start_ms);
        let next = next.and_then(|next| window.column_of(next.start_ms, width));
        if next.is_some_and(|next| next < column + number.len() + 2) {
            continue;
        }
        marks[column] = bar;
        for (offset, digit) in number.iter().enumerate() {
            marks[column + 1 + offset] = *digit;
        }
        free = column + number.len() + 2;
    }
    Line::from(vec![
        Piece::styled(
            text::pad("  steps", usize::from(LABEL), shared.glyphs.unicode),
            shared.style(Role::Muted),
        ),
        Piece::styled(marks.iter().collect::<String>(), shared.style(Role::Muted)),
    ])
}
