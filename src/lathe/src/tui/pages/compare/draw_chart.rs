//! The curves of the selected metric over one another, zoomed and read at the crosshair as on page Live.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::Compare;
use super::draw::ending;
use crate::tui::shared::{OpenRun, Shared};
use crate::tui::theme::Role;
use crate::tui::widgets::chart::{self, Chart, Curve, Look, YAxis};
use crate::tui::widgets::{empty, frame as frames, text};

/// Of a run in the legend at least.
const LEGEND: usize = 38;

/// The room below the title.
fn below_title(area: Rect) -> Rect {
    Rect {
        y: area.y + area.height.min(1),
        width: area.width.saturating_sub(1),
        height: area.height.saturating_sub(1),
        ..area
    }
}

/// The legend's lines below the title and the plot below them.
fn split(page: &Compare, shared: &Shared, inner: Rect) -> (Vec<Line<'static>>, [Rect; 2]) {
    let lines = page
        .metric()
        .map(|metric| legend(page, &shared.shown_runs(), metric, shared, inner))
        .unwrap_or_default();
    let places =
        Layout::vertical([Constraint::Length(lines.len() as u16), Constraint::Min(0)]).areas(inner);
    (lines, places)
}

/// Where the plot lies in the room of the curves.
pub fn plot(page: &Compare, shared: &Shared, area: Rect) -> Rect {
    split(page, shared, below_title(area)).1[1]
}

pub fn draw(page: &Compare, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let Some(metric) = page.metric() else {
        empty::draw(shared, frame, area, "These runs have no metrics yet", "");
        return;
    };
    let axis = page.view.axis;
    let unit = runlog::metrics::lookup(metric).map_or("", |metric| metric.unit);
    let unit = if unit.is_empty() || unit == "1" {
        String::new()
    } else {
        format!(" [{unit}]")
    };
    let log = |is_log| if is_log { " (log)" } else { "" };
    let title = format!(
        " {}{unit}{} against {}{} ",
        text::printable(metric),
        log(page.is_log_y),
        axis.name(),
        log(page.view.is_log)
    );
    let border = if page.is_expanded {
        Role::Focus
    } else {
        Role::Grid
    };
    let title = Line::styled(title, shared.style(Role::Title));
    frames::rule(shared, &title, border, frame.buffer_mut(), area);
    let (lines, [legend, plot]) = split(page, shared, below_title(area));
    frame.render_widget(Paragraph::new(lines), legend);
    let Some(range) = page.range(shared) else {
        return;
    };
    let window = page.view.window(range);
    let marks = shared.glyphs.plot;
    let dots = (
        chart::dot_columns(plot.width, marks),
        chart::dots_across(marks),
    );
    let runs = shared.shown_runs();
    let curves: Vec<Curve> = runs
        .iter()
        .filter_map(|(color, run)| {
            let series = run.state.series.get(metric)?;
            Some(Curve {
                cells: page
                    .envelopes
                    .cut((&run.key, metric, 0.0), series, axis, window, dots),
                look: Look::of_run(*color, 0, runs.len(), &shared.theme),
                is_faint: false,
            })
        })
        .collect();
    let drawn = Chart {
        y: YAxis::around(&curves, &[], page.is_log_y),
        curves,
        limits: Vec::new(),
        x_labels: window.labels(axis),
        x_ticks: window.ticks(axis, chart::plot_columns(plot.width)),
        events: Vec::new(),
        crosshair: page
            .view
            .crosshair
            .map(|x| window.share(x))
            .filter(|share| (0.0..=1.0).contains(share)),
    };
    chart::draw(&drawn, shared, frame.buffer_mut(), plot);
}

/// What a run's curve is read as: at the crosshair the nearest point, else the last one; with its step.
fn read(page: &Compare, run: &OpenRun, metric: &str) -> Option<(u64, f64)> {
    let series = run.state.series.get(metric)?;
    let index = match page.view.crosshair {
        Some(x) => series.index_at(x, page.view.axis)?,
        None => series.len().checked_sub(1)?,
    };
    Some((series.step(index), series.value(index)))
}

/// The value, and at the crosshair how far it is from the baseline's: `0.93 +0.02`. Of a run without that step, the step that
/// is nearest is told.
fn words(
    page: &Compare,
    run: &OpenRun,
    base: Option<(&OpenRun, (u64, f64))>,
    metric: &str,
    shared: &Shared,
) -> String {
    let Some((step, value)) = read(page, run, metric) else {
        return "not logged".to_owned();
    };
    let mut words = text::number(value);
    if page.view.crosshair.is_none() {
        return words;
    }
    if let Some((base, (_, of_base))) = base
        && base.key != run.key
        && (value - of_base).is_finite()
    {
        let difference = value - of_base;
        let sign = if difference < 0.0 { "" } else { "+" };
        words = format!("{words} {sign}{}", text::number(difference));
    }
    if shared.step.is_some_and(|wanted| wanted != step) {
        words = format!("{words} (step {step})");
    }
    words
}

/// Each run's mark, name and value; as many beside each other as fit, and never so many lines that no plot is left.
fn legend(
    page: &Compare,
    runs: &[(usize, &OpenRun)],
    metric: &str,
    shared: &Shared,
    area: Rect,
) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let a_line = (width / LEGEND).clamp(1, runs.len().max(1));
    let room = width / a_line;
    let unicode = shared.glyphs.unicode;
    let base_key = page
        .table
        .runs
        .get(page.baseline_index())
        .map(|run| &run.key);
    let base = runs
        .iter()
        .find(|(_, run)| Some(&run.key) == base_key)
        .and_then(|(_, run)| Some((*run, read(page, run, metric)?)));
    let entries: Vec<Vec<Span<'static>>> = runs
        .iter()
        .map(|(color, run)| {
            let look = Look::of_run(*color, 0, runs.len(), &shared.theme);
            let sample = look.sample(shared.glyphs);
            let value = words(page, run, base, metric, shared);
            let for_name = room.saturating_sub(text::width(&value) + 7);
            let name = ending(
                &text::printable(&super::table::label(run)),
                for_name,
                unicode,
            );
            let used = text::width(&name) + text::width(&value) + text::width(&sample) + 3;
            vec![
                Span::styled(format!(" {sample} "), look.style),
                Span::raw(name),
                Span::styled(format!(" {value}"), shared.style(Role::Muted)),
                Span::raw(" ".repeat(room.saturating_sub(used))),
            ]
        })
        .collect();
    let lines = usize::from(area.height.saturating_sub(5)).max(1);
    let hidden = entries.len().saturating_sub(lines * a_line);
    let mut shown: Vec<Line<'static>> = entries
        .chunks(a_line)
        .take(lines)
        .map(|line| Line::from(line.concat()))
        .collect();
    if hidden > 0
        && let Some(last) = shown.last_mut()
    {
        let words = format!("  (+{hidden}: e)");
        // Where the last run's name ends in blanks.
        if let Some(blank) = last.spans.last_mut() {
            let room = text::width(&blank.content).saturating_sub(words.len());
            *blank = Span::raw(" ".repeat(room));
        }
        last.push_span(Span::styled(words, shared.style(Role::Caution)));
    }
    shown
}
