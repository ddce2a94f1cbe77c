//! The page on the screen: the table above; `draw_chart` draws the curves of the selected metric below.

use crossterm::event::MouseEvent;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use runlog::metrics::Direction;

use super::table::{Numbers, Row, better};
use super::{Against, Compare, Statistic, draw_chart};
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::{empty, text};

/// Of one number in a cell: three digits, an exponent, a sign and the mark of the better one.
const NUMBER: usize = 10;
/// Of a run's column when one number stands in it, and the gap to the next.
const NARROW: usize = 18;
const GAP: usize = 1;
/// From this height on the curves have room below the table.
const CHART_FROM: u16 = 16;

struct Parts {
    headings: Rect,
    rows: Rect,
    line: Rect,
    chart: Option<Rect>,
}

fn parts(page: &Compare, area: Rect) -> Parts {
    let chart_rows = if page.is_expanded || area.height < CHART_FROM {
        0
    } else {
        (area.height * 2 / 5).max(8)
    };
    let [headings, rows, line, chart] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(u16::from(
            page.search.is_some() || !page.table.problems.is_empty(),
        )),
        Constraint::Length(chart_rows),
    ])
    .areas(area);
    Parts {
        headings,
        rows,
        line,
        chart: (chart_rows > 0).then_some(chart),
    }
}

/// Widths of the names and of a run, and which runs have room.
struct Columns {
    name: usize,
    run: usize,
    shown: std::ops::Range<usize>,
}

fn columns(page: &Compare, width: u16) -> Columns {
    let width = usize::from(width);
    let run = match page.kept().statistic {
        Statistic::All => 3 * NUMBER,
        _ => NARROW,
    };
    let longest = page
        .table
        .rows
        .iter()
        .filter_map(Row::name)
        .map(|name| text::width(name) + 2)
        .max()
        .unwrap_or(12);
    let count = page.table.runs.len();
    // Two runs are always beside each other where that can be; the names have what is left, up to their length.
    let wanted = count.min(2) * (run + GAP);
    let name = longest.min(width.saturating_sub(wanted)).max(12).min(width);
    let fit = ((width - name) / (run + GAP)).max(1);
    let first = (page.column + 1)
        .saturating_sub(fit)
        .min(count.saturating_sub(1));
    Columns {
        name,
        run: run.min(width.saturating_sub(name + GAP)),
        shown: first..(first + fit).min(count),
    }
}

pub fn draw(page: &Compare, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    if page.table.runs.is_empty() {
        empty::draw(
            shared,
            frame,
            area,
            "Nothing to compare yet",
            "On page 1, mark runs with space: 2 to 8 of them stand here side by side",
        );
        return;
    }
    if page.is_expanded {
        draw_chart::draw(page, shared, frame, area);
        return;
    }
    let parts = parts(page, area);
    let columns = columns(page, area.width);
    draw_headings(page, &columns, shared, frame, parts.headings);
    draw_rows(page, &columns, shared, frame, parts.rows);
    draw_line(page, shared, frame, parts.line);
    if let Some(chart) = parts.chart {
        draw_chart::draw(page, shared, frame, chart);
    }
}

fn draw_headings(
    page: &Compare,
    columns: &Columns,
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let unicode = shared.glyphs.unicode;
    let count = page.table.runs.len();
    let hidden = count - columns.shown.len();
    let note = if count == 1 {
        "mark more runs on page 1".to_owned()
    } else if hidden > 0 {
        format!("{hidden} more: h l")
    } else {
        String::new()
    };
    let mut spans = vec![Span::styled(
        text::pad(&note, columns.name, unicode),
        shared.style(Role::Muted),
    )];
    let has_baseline = page.kept().against != Against::Value;
    for index in columns.shown.clone() {
        let run = &page.table.runs[index];
        let is_selected = index == page.column;
        let pointer = if is_selected { ">" } else { " " };
        let mark = shared.glyphs.pick("●", "*");
        let base = if has_baseline && index == page.baseline_index() {
            " (base)"
        } else {
            ""
        };
        let room = columns.run.saturating_sub(3 + base.len());
        // The id at the end tells runs of one experiment apart.
        let label = ending(&text::printable(&run.label), room, unicode);
        spans.push(Span::raw(" ".repeat(GAP)));
        spans.push(Span::raw(pointer));
        spans.push(Span::styled(mark, shared.theme.series(run.color)));
        let role = if is_selected {
            Role::Accent
        } else {
            Role::Title
        };
        spans.push(Span::styled(
            text::pad(
                &format!(" {label}{base}"),
                columns.run.saturating_sub(2),
                unicode,
            ),
            shared.style(role),
        ));
    }
    frame.render_widget(Line::from(spans), area);
}

/// The last `columns` columns, with a mark where something was cut.
pub(super) fn ending(shown: &str, columns: usize, unicode: bool) -> String {
    let width = text::width(shown);
    if width <= columns {
        return shown.to_owned();
    }
    let rest = text::skip_columns(shown, width - columns.saturating_sub(1));
    format!("{}{rest}", if unicode { "…" } else { "~" })
}

fn draw_rows(
    page: &Compare,
    columns: &Columns,
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let rows = &page.table.rows;
    let selected = page.list.selected(rows.len());
    let mut window = page.list.window(rows.len(), usize::from(area.height));
    // The headings above the first row are seen when it is selected.
    if selected <= 1 {
        window = 0..usize::from(area.height).min(rows.len());
    }
    let lines: Vec<Line<'_>> = window
        .map(|at| {
            let is_selected = at == selected;
            let line = row_line(page, &rows[at], is_selected, columns, shared);
            if is_selected {
                line.style(shared.style(Role::Selection))
            } else {
                line
            }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn row_line(
    page: &Compare,
    row: &Row,
    is_selected: bool,
    columns: &Columns,
    shared: &Shared,
) -> Line<'static> {
    let unicode = shared.glyphs.unicode;
    if let Row::Heading(title) = row {
        return Line::styled(title.clone(), shared.style(Role::Title));
    }
    let name = row.name().unwrap_or_default();
    let pointer = if is_selected { "> " } else { "  " };
    let is_found =
        !page.needle.is_empty() && name.to_lowercase().contains(&page.needle.to_lowercase());
    let room = columns.name.saturating_sub(2);
    let mut spans = vec![
        Span::raw(pointer),
        Span::styled(
            text::pad(
                &ending(&text::printable(name), room, unicode),
                room,
                unicode,
            ),
            shared.style(if is_found { Role::Match } else { Role::Text }),
        ),
    ];
    match row {
        Row::Heading(_) => {}
        Row::Fact { values, .. } => {
            for index in columns.shown.clone() {
                push_text(&mut spans, &values[index], Role::Text, columns, shared);
            }
        }
        Row::Key {
            values, differs, ..
        } => {
            let base = values.get(page.baseline_index());
            for index in columns.shown.clone() {
                let is_other = *differs && Some(&values[index]) != base;
                let role = if is_other { Role::Accent } else { Role::Muted };
                push_text(&mut spans, &values[index], role, columns, shared);
            }
        }
        Row::Metric {
            direction, numbers, ..
        } => push_numbers(&mut spans, page, *direction, numbers, columns, shared),
    }
    Line::from(spans)
}

fn push_text(
    spans: &mut Vec<Span<'static>>,
    value: &str,
    role: Role,
    columns: &Columns,
    shared: &Shared,
) {
    let shown = if value.is_empty() { "-" } else { value };
    let unicode = shared.glyphs.unicode;
    spans.push(Span::raw(" ".repeat(GAP)));
    spans.push(Span::styled(
        text::pad(
            &format!(
                "  {}",
                ending(
                    &text::printable(shown),
                    columns.run.saturating_sub(3),
                    unicode
                )
            ),
            columns.run,
            unicode,
        ),
        shared.style(role),
    ));
}

fn push_numbers(
    spans: &mut Vec<Span<'static>>,
    page: &Compare,
    direction: Direction,
    numbers: &[Numbers],
    columns: &Columns,
    shared: &Shared,
) {
    let kept = page.kept();
    let which: &[usize] = match kept.statistic {
        Statistic::All => &[0, 1, 2],
        Statistic::Last => &[0],
        Statistic::Best => &[1],
        Statistic::Mean => &[2],
    };
    let base = page.baseline_index();
    let marks: Vec<Vec<bool>> = which
        .iter()
        .map(|which| {
            let values: Vec<Option<f64>> =
                numbers.iter().map(|numbers| numbers.get(*which)).collect();
            better(&values, direction)
        })
        .collect();
    let width = if which.len() == 1 {
        columns.run
    } else {
        NUMBER.min(columns.run / 3)
    };
    for index in columns.shown.clone() {
        spans.push(Span::raw(" ".repeat(GAP)));
        for (place, which) in which.iter().enumerate() {
            let value = numbers[index].get(*which);
            let is_better = marks[place][index];
            let of_base = numbers[base].get(*which);
            let (shown, role) = number_cell(value, of_base, index == base, kept.against, direction);
            let role = if is_better { Role::Good } else { role };
            let mark = if is_better { "*" } else { " " };
            spans.push(Span::styled(
                text::pad_left(&format!("{shown}{mark}"), width, shared.glyphs.unicode),
                shared.style(role),
            ));
        }
    }
}

/// A number as it is, or its difference to the baseline's.
fn number_cell(
    value: Option<f64>,
    base: Option<f64>,
    is_base: bool,
    against: Against,
    direction: Direction,
) -> (String, Role) {
    let Some(value) = value else {
        return ("-".to_owned(), Role::Muted);
    };
    if !value.is_finite() {
        return (text::number(value), Role::Bad);
    }
    if is_base || against == Against::Value {
        return (text::number(value), Role::Text);
    }
    let Some(base) = base.filter(|base| base.is_finite()) else {
        return ("-".to_owned(), Role::Muted);
    };
    let difference = value - base;
    let role = match direction {
        _ if difference == 0.0 => Role::Muted,
        Direction::Neither => Role::Text,
        Direction::Higher if difference > 0.0 => Role::Text,
        Direction::Lower if difference < 0.0 => Role::Text,
        _ => Role::Bad,
    };
    let sign = if difference > 0.0 { "+" } else { "" };
    let shown = match against {
        Against::Percent if base == 0.0 => "-".to_owned(),
        Against::Percent => format!("{sign}{}%", text::number(difference / base.abs() * 100.0)),
        _ => format!("{sign}{}", text::number(difference)),
    };
    (shown, role)
}

fn draw_line(page: &Compare, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    if area.height == 0 {
        return;
    }
    if let Some(field) = &page.search {
        let styles = (shared.style(Role::Accent), shared.style(Role::Text));
        field.draw(frame, area, "/ ", styles, true);
    } else if let Some(problem) = page.table.problems.first() {
        let shown = text::fit(
            &text::printable(problem),
            usize::from(area.width),
            shared.glyphs.unicode,
        );
        frame.render_widget(Line::styled(shown, shared.style(Role::Bad)), area);
    }
}

/// Where the curves are drawn, frame included. None: there is no room for them.
pub fn chart_area(page: &Compare, area: Rect) -> Option<Rect> {
    if page.is_expanded {
        return Some(area);
    }
    parts(page, area).chart
}

/// The row and the run under the mouse.
pub fn place_at(
    page: &Compare,
    _shared: &Shared,
    area: Rect,
    event: MouseEvent,
) -> (Option<usize>, Option<usize>) {
    if page.is_expanded || page.table.runs.is_empty() {
        return (None, None);
    }
    let parts = parts(page, area);
    let at = Position::new(event.column, event.row);
    let columns = columns(page, area.width);
    let run = usize::from(event.column - area.x)
        .checked_sub(columns.name)
        .map(|offset| columns.shown.start + offset / (columns.run + GAP))
        .filter(|run| columns.shown.contains(run));
    if parts.headings.contains(at) {
        return (None, run);
    }
    if parts.rows.contains(at) {
        let rows = page.table.rows.len();
        let window = page.list.window(rows, usize::from(parts.rows.height));
        let row = window.start + usize::from(event.row - parts.rows.y);
        return ((row < window.end).then_some(row), run);
    }
    (None, None)
}
