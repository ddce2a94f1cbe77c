//! The page on the screen: the table above, the curves of the selected metric below.

use crossterm::event::MouseEvent;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use runlog::metrics::Direction;
use runlog::series::{Scale, XAxis, envelope};

use super::table::{Numbers, Row, better};
use super::{Against, Compare, Statistic};
use crate::tui::shared::{OpenRun, Shared};
use crate::tui::theme::Role;
use crate::tui::widgets::chart::{self, Chart, Curve, YAxis};
use crate::tui::widgets::{empty, frame as frames, text};

/// Of one number in a cell: three digits, an exponent, a sign and the mark of the better one.
const NUMBER: usize = 10;
/// Of a run's column when one number stands in it, and the gap to the next.
const NARROW: usize = 18;
const GAP: usize = 1;
/// Of a run in the legend at least.
const LEGEND: usize = 38;
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
        draw_chart(page, shared, frame, area);
        return;
    }
    let parts = parts(page, area);
    let columns = columns(page, area.width);
    draw_headings(page, &columns, shared, frame, parts.headings);
    draw_rows(page, &columns, shared, frame, parts.rows);
    draw_line(page, shared, frame, parts.line);
    if let Some(chart) = parts.chart {
        draw_chart(page, shared, frame, chart);
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
fn ending(shown: &str, columns: usize, unicode: bool) -> String {
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

fn draw_chart(page: &Compare, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let Some(metric) = page.metric() else {
        empty::draw(shared, frame, area, "These runs have no metrics yet", "");
        return;
    };
    let axis = page.kept().axis();
    let unit = runlog::metrics::lookup(metric).map_or("", |metric| metric.unit);
    let unit = if unit.is_empty() || unit == "1" {
        String::new()
    } else {
        format!(" [{unit}]")
    };
    let title = format!(
        " {}{unit} against {} ",
        text::printable(metric),
        axis.name()
    );
    let border = if page.is_expanded {
        Role::Focus
    } else {
        Role::Border
    };
    let block = frames::block(shared, &title, border);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let runs = shared.shown_runs();
    let legend_lines = legend(&runs, metric, shared, inner);
    let [legend, plot] = Layout::vertical([
        Constraint::Length(legend_lines.len() as u16),
        Constraint::Min(0),
    ])
    .areas(inner);
    frame.render_widget(Paragraph::new(legend_lines), legend);
    let bounds = runs
        .iter()
        .filter_map(|(_, run)| run.state.series.get(metric)?.x_bounds(axis))
        .reduce(|(low, high), (from, to)| (low.min(from), high.max(to)));
    let Some((from, to)) = bounds else {
        return;
    };
    // One point has no width.
    let (from, to) = if from < to {
        (from, to)
    } else {
        (from - 0.5, to + 0.5)
    };
    let dots = chart::dot_columns(plot.width, shared.glyphs.plot);
    let curves: Vec<Curve> = runs
        .iter()
        .enumerate()
        .filter_map(|(index, (color, run))| {
            let series = run.state.series.get(metric)?;
            Some(Curve {
                cells: envelope(series, axis, from, to, dots, Scale::Linear),
                style: shared.theme.series(*color),
                is_faint: false,
                mark: chart::mark(index, shared.glyphs),
            })
        })
        .collect();
    let label = |x: f64| match axis {
        XAxis::Time => text::clock(x),
        _ => text::number(x),
    };
    let drawn = Chart {
        y: YAxis::around(&curves, &[], false),
        curves,
        limits: Vec::new(),
        x_labels: (label(from.max(0.0)), label(to)),
        events: Vec::new(),
        crosshair: None,
    };
    chart::draw(&drawn, shared, frame.buffer_mut(), plot);
}

/// Each run's mark, name and last value; as many beside each other as fit, and never so many lines that no plot is left.
fn legend(
    runs: &[(usize, &OpenRun)],
    metric: &str,
    shared: &Shared,
    area: Rect,
) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let a_line = (width / LEGEND).clamp(1, runs.len().max(1));
    let room = width / a_line;
    let unicode = shared.glyphs.unicode;
    let entries: Vec<Vec<Span<'static>>> = runs
        .iter()
        .enumerate()
        .map(|(index, (color, run))| {
            let mark = match chart::mark(index, shared.glyphs) {
                '•' => '●',
                mark => mark,
            };
            let last = run
                .state
                .last(metric)
                .map_or_else(|| "not logged".to_owned(), text::number);
            let for_name = room.saturating_sub(text::width(&last) + 6);
            let name = ending(
                &text::printable(&super::table::label(run)),
                for_name,
                unicode,
            );
            let used = text::width(&name) + text::width(&last) + 4;
            vec![
                Span::styled(format!(" {mark} "), shared.theme.series(*color)),
                Span::raw(name),
                Span::styled(format!(" {last}"), shared.style(Role::Muted)),
                Span::raw(" ".repeat(room.saturating_sub(used))),
            ]
        })
        .collect();
    entries
        .chunks(a_line)
        .take(usize::from(area.height.saturating_sub(5)).max(1))
        .map(|line| Line::from(line.concat()))
        .collect()
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
