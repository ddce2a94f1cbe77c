//! The dashboard drawn: the grid of panels, the strip of alarms.

use std::fmt::Write as _;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use runlog::alarms::{Finding, Severity};
use runlog::event::RunStatus;
use runlog::state::AlarmGroup;

use super::sizes::Grid;
use super::view::{self, View};
use super::{Live, marks, names};
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::viewport::Window;
use crate::tui::widgets::{chart, empty, frame as pane, text};

/// The least rows a panel of several is drawn in, its title among them.
const PANEL_ROWS: u16 = 7;

/// On a low screen panels are lower, so that there are [`LOW_PANELS`] of them below one another.
const LOW_PANEL_ROWS: u16 = 6;
const LOW_PANELS: u16 = 3;

/// Rows of a panel that has room for what its metric is.
const ROOMY: u16 = 7;

/// The least rows of panels that have x labels below them.
const LABELLED: u16 = 6;

/// Panels side by side on a screen of this width.
pub fn columns(width: u16) -> usize {
    match width {
        0..60 => 1,
        60..140 => 2,
        140..190 => 3,
        _ => 4,
    }
}

/// The room below a panel's title. A column to its right stays empty: panels have no frames, and what is nothing costs nothing.
pub fn inner(panel: Rect) -> Rect {
    Rect {
        y: panel.y + 1,
        width: panel.width.saturating_sub(1),
        height: panel.height.saturating_sub(1),
        ..panel
    }
}

/// Rows below the panels: the alarms, and what the letters at the foot of the curves mean.
fn below_rows(live: &Live, shared: &Shared, area: Rect) -> (u16, u16) {
    let alarms = strip_rows(live, shared, area);
    let has_marks = area.height >= 12
        && view::window(live, shared)
            .is_some_and(|window| !marks::in_view(live.at.axis, window, shared).is_empty());
    (alarms, u16::from(has_marks))
}

fn strip_rows(live: &Live, shared: &Shared, area: Rect) -> u16 {
    let ended = usize::from(shared.how_it_ended().is_some());
    let active = live.findings().len() + ended;
    if area.height < 12 {
        return u16::from(active > 0 && area.height > 8);
    }
    if live.shows_all_alarms {
        let rows = all_alarms(live, shared, area.width).len() as u16;
        return rows.clamp(1, area.height / 2);
    }
    let width = usize::from(area.width);
    let wanted: usize = strip_lines(live, shared)
        .iter()
        .map(|line| if line.width() > width { 2 } else { 1 })
        .sum();
    let most = 2 + ended + usize::from(area.height >= ROOM_FOR_WHOLE_ALARMS);
    wanted.min(most) as u16
}

/// From so many rows on an alarm that is cut has a second one.
const ROOM_FOR_WHOLE_ALARMS: u16 = 20;

/// How the run ended, where not well, and each alarm that is active.
fn strip_lines(live: &Live, shared: &Shared) -> Vec<Line<'static>> {
    let findings = live.findings().iter();
    let findings = findings.map(|finding| finding_line(finding, shared));
    ended_line(shared).into_iter().chain(findings).collect()
}

/// The room of the panels; a row below it holds the x labels, which are those of all panels.
fn panel_area(live: &Live, shared: &Shared, area: Rect) -> Rect {
    let (alarms, letters) = below_rows(live, shared, area);
    let names = names::rows(shared, area);
    let height = area.height.saturating_sub(names + alarms + letters);
    Rect {
        y: area.y + names,
        height: height - label_rows(height),
        ..area
    }
}

/// Rows for x labels where panels and labels have so many.
fn label_rows(height: u16) -> u16 {
    u16::from(height >= LABELLED)
}

/// The grid of panels; None while one fills the page.
pub fn grid(live: &Live, shared: &Shared, area: Rect) -> Option<Grid> {
    let room = panel_area(live, shared, area);
    let count = live.visible().len();
    if count == 0 || live.is_expanded || room.height < LOW_PANEL_ROWS {
        return None;
    }
    let across = columns(room.width).min(count);
    // A tall screen gives the panels of the layout more room; those of the other metrics come when it is scrolled.
    let of_layout = live.of_layout();
    let wanted = if of_layout > 0 { of_layout } else { count };
    let most = (room.height / PANEL_ROWS).max((room.height / LOW_PANEL_ROWS).min(LOW_PANELS));
    let down = usize::from(most).clamp(1, wanted.div_ceil(across));
    Some(live.sizes.grid(room, across, down))
}

/// Where each visible panel on screen lies: its place in the order and its rectangle.
pub fn places(live: &Live, shared: &Shared, area: Rect) -> Vec<(usize, Rect)> {
    let count = live.visible().len();
    if count == 0 {
        return Vec::new();
    }
    let focus = live.focus.min(count - 1);
    let Some(grid) = grid(live, shared, area) else {
        let room = panel_area(live, shared, area);
        return if room.height > 0 {
            vec![(focus, room)]
        } else {
            Vec::new()
        };
    };
    let (across, rows) = (grid.columns.len(), grid.rows.len());
    let all_rows = count.div_ceil(across);
    // Scrolled so that the focused panel is on screen.
    let focus_row = focus / across;
    let top = focus_row.saturating_sub(rows - 1).min(all_rows - rows);
    (0..rows)
        .flat_map(|row| (0..across).map(move |column| (row, column)))
        .filter_map(|(row, column)| {
            let place = (top + row) * across + column;
            let cell = grid.cell(row, column).filter(|_| place < count)?;
            Some((place, cell))
        })
        .collect()
}

pub fn draw(live: &Live, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let Some(run) = shared.current_run() else {
        empty::no_run(shared, frame, area);
        return;
    };
    let Some(window) = view::window(live, shared) else {
        let help = if !run.is_caught_up {
            "reading the log…"
        } else if run.state.events == 0 {
            "Its log is empty so far: the trainer writes its first event when it has started.\nPage 8 (Logs) shows what it printed."
        } else {
            "No metric yet: the first step has not ended."
        };
        if let Some(ended) = shared.how_it_ended().filter(|_| run.is_caught_up) {
            let help = format!("{ended}\nPage 8 (Logs) shows what it printed.");
            empty::draw(shared, frame, area, "It ended before its first step", &help);
            return;
        }
        empty::draw(shared, frame, area, "Nothing to draw yet", help);
        return;
    };
    if names::rows(shared, area) > 0 {
        let line = Rect { height: 1, ..area };
        frame.render_widget(names::line(shared, area.width), line);
    }
    let places = places(live, shared, area);
    let is_labelled = panel_area(live, shared, area).height >= LABELLED - 1;
    // An empty row between panels, where none of them is low.
    let gap = u16::from(places.iter().all(|(_, rect)| rect.height >= PANEL_ROWS));
    for (place, rect) in &places {
        // Only the lowest of each column: the x axis of those above it is the same.
        let is_below = |(_, other): &(usize, Rect)| other.x == rect.x && other.y > rect.y;
        let (height, labels) = if places.iter().any(is_below) {
            (rect.height - gap, 0)
        } else {
            (rect.height, u16::from(is_labelled))
        };
        let room = Rect { height, ..*rect };
        draw_panel(live, *place, labels, window, shared, frame, room);
    }
    let (rows, letters) = below_rows(live, shared, area);
    if rows > 0 {
        let strip = Rect::new(area.x, area.bottom() - rows - letters, area.width, rows);
        draw_alarms(live, shared, frame, strip);
    }
    // Within half a character of the crosshair, as wide as a panel is.
    let across = if live.is_expanded {
        1
    } else {
        columns(area.width)
    };
    let reach = 0.5 * across as f64 / f64::from(area.width.max(1));
    if letters > 0
        && let Some(told) = marks::line(live, window, reach, shared)
    {
        let line = Rect::new(area.x, area.bottom() - 1, area.width, 1);
        let told = cut(told, usize::from(area.width), shared.glyphs.unicode);
        frame.render_widget(told, line);
    }
    if let Some(picker) = &live.picker {
        picker.draw(shared, frame, area);
    }
}

/// A panel in its room, its x labels in so many rows below it.
fn draw_panel(
    live: &Live,
    place: usize,
    label_rows: u16,
    window: Window,
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let visible = live.visible();
    let panel = live.panel(visible[place]);
    let is_focused = place == live.focus.min(visible.len().saturating_sub(1));
    let border = if is_focused { Role::Focus } else { Role::Grid };
    let inside = inner(area);
    // How wide a plot is decides how its curves are cut, how high it is does not.
    let mut view = view::view(live, panel, window, shared, inside);
    if label_rows == 0 {
        view.chart.x_labels = (String::new(), String::new());
    }
    let note = about(live, panel, &view, inside, shared);
    let mut above = if live.is_expanded {
        legend_lines(&view, shared, inside, area.width)
    } else {
        Vec::new()
    };
    let has_legend_above = !above.is_empty();
    if !note.is_empty() {
        let note = text::fit(&note, usize::from(inside.width), shared.glyphs.unicode);
        above.push(Line::styled(note, shared.style(Role::Muted)));
    }
    let rows_above = above.len() as u16;
    let mut title = vec![Span::raw(" ")];
    if is_focused {
        title.push(Span::styled(
            shared.glyphs.pick("▸ ", "> "),
            shared.style(Role::Focus),
        ));
    }
    if panel.is_pinned {
        title.push(Span::styled("^ ", shared.style(Role::Muted)));
    }
    title.push(Span::styled(panel.title.clone(), shared.style(Role::Title)));
    if panel.is_log {
        title.push(Span::styled(" log", shared.style(Role::Muted)));
    }
    title.push(Span::raw("  "));
    let used: usize = title.iter().map(Span::width).sum();
    let room = usize::from(area.width).saturating_sub(used + 3);
    if !has_legend_above {
        title.extend(legend(&view, shared, room));
    }
    title.push(Span::raw(" "));
    pane::rule(shared, &Line::from(title), border, frame.buffer_mut(), area);
    if view.legend.is_empty() {
        let shown = Line::styled("not logged by this run", shared.style(Role::Muted));
        frame.render_widget(
            shown,
            Rect {
                height: inside.height.min(1),
                ..inside
            },
        );
        return;
    }
    let words = Rect {
        height: rows_above.min(inside.height),
        ..inside
    };
    frame.render_widget(Paragraph::new(above), words);
    let plot = Rect {
        y: inside.y + words.height,
        height: inside.height - words.height + label_rows,
        ..inside
    };
    chart::draw(&view.chart, shared, frame.buffer_mut(), plot);
}

/// What a panel says above its curves: what a log axis has no place for, percentiles; expanded also what its main metric is.
/// Empty: nothing, or no room.
fn about(
    live: &Live,
    panel: &super::panels::Panel,
    view: &View,
    inside: Rect,
    shared: &Shared,
) -> String {
    if inside.height < 4 {
        return String::new();
    }
    let width = usize::from(inside.width);
    let undrawn = match view.undrawn {
        0 => String::new(),
        1 => "1 value at or below 0 not drawn; ".to_owned(),
        count => format!("{count} values at or below 0 not drawn; "),
    };
    let note = view::note(panel, width.saturating_sub(undrawn.len()), shared);
    if !undrawn.is_empty() {
        let both = format!("{undrawn}{note}");
        let fits = !note.is_empty() && text::width(&both) <= width;
        return if fits {
            both
        } else {
            undrawn.trim_end_matches("; ").to_owned()
        };
    }
    if !note.is_empty() || !live.is_expanded || inside.height < ROOMY {
        return note;
    }
    shared
        .current_run()
        .and_then(|run| {
            let name = panel.names(&run.state).into_iter().next()?.to_owned();
            let metric = runlog::metrics::lookup(&name)?;
            Some(format!("{name}: {} [{}]", metric.formula, metric.unit))
        })
        .unwrap_or_default()
}

/// The legend of a panel that fills the page, in lines above its curves: every curve can be read. Empty: the title has room for
/// all of them, or the panel is too low.
fn legend_lines(view: &View, shared: &Shared, inside: Rect, columns: u16) -> Vec<Line<'static>> {
    let width = |entry: &Vec<Span<'_>>| entry.iter().map(Span::width).sum::<usize>();
    let entries = legend_entries(view, shared);
    let all: usize = entries.iter().map(width).sum();
    // What the title may hold beside the panel's name.
    if all + 20 <= usize::from(columns) || inside.height < 8 {
        return Vec::new();
    }
    let room = usize::from(inside.width);
    let mut lines: Vec<Vec<Span<'static>>> = vec![Vec::new()];
    for entry in entries {
        let last = lines.last_mut().expect("one at least");
        if last.is_empty() || width(last) + width(&entry) <= room + 2 {
            last.extend(entry);
        } else {
            lines.push(entry);
        }
    }
    let most = usize::from(inside.height / 2);
    if lines.len() > most {
        lines.truncate(most);
        let words = Span::styled("and more", shared.style(Role::Muted));
        *lines.last_mut().expect("some") = vec![words];
    }
    lines.into_iter().map(Line::from).collect()
}

fn legend_entries(view: &View, shared: &Shared) -> Vec<Vec<Span<'static>>> {
    let is_single = view.legend.len() == 1 && shared.shown_runs().len() < 2;
    view.legend
        .iter()
        .enumerate()
        .map(|(at, entry)| {
            // Of one metric in several runs the unit is said once.
            let unit = if at > 0 && entry.label.is_empty() {
                "1"
            } else {
                view.unit
            };
            legend_entry(entry, is_single, unit, shared)
        })
        .collect()
}

/// Names and values of the curves, as many as fit, and how many do not.
fn legend(view: &View, shared: &Shared, room: usize) -> Vec<Span<'static>> {
    let unicode = shared.glyphs.unicode;
    let entries = legend_entries(view, shared);
    let width = |entry: &Vec<Span<'_>>| entry.iter().map(Span::width).sum::<usize>();
    let more = |count: usize| format!("+{count}");
    let all: usize = entries.iter().map(width).sum();
    let mut left = room;
    let mut spans = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let rest = entries.len() - at;
        // The last two spaces of the line may be cut.
        let needed = if all <= room + 2 || rest == 1 {
            width(entry).saturating_sub(2)
        } else {
            width(entry) + more(rest - 1).len()
        };
        if needed > left {
            if spans.is_empty() {
                // The value alone, and that there are others.
                let value = entry.iter().rev().nth(2).map_or("", |span| &span.content);
                let others = match rest - 1 {
                    0 => String::new(),
                    count => format!("  {}", more(count)),
                };
                let fitted = text::fit(value, left.saturating_sub(others.len()), unicode);
                spans.push(Span::styled(fitted, view.legend[at].look.style));
                spans.push(Span::styled(others, shared.style(Role::Muted)));
            } else {
                spans.push(Span::styled(more(rest), shared.style(Role::Muted)));
            }
            break;
        }
        left = left.saturating_sub(width(entry));
        spans.extend(entry.iter().cloned());
    }
    spans
}

/// `━ train 0.98  `; of a single curve the value alone.
fn legend_entry(
    entry: &view::Legend,
    is_single: bool,
    unit: &str,
    shared: &Shared,
) -> Vec<Span<'static>> {
    let mut value = match entry.value {
        Some(value) => text::with_unit(value, unit),
        None => "none".to_owned(),
    };
    if let Some(step) = entry.at {
        let _ = write!(value, " @{step}");
    }
    let bad = match entry.non_finite {
        0 => String::new(),
        count => format!(" ({count} NaN/inf)"),
    };
    let mut spans = Vec::new();
    if !is_single {
        let sample = entry.look.sample(shared.glyphs);
        spans.push(Span::styled(format!("{sample} "), entry.look.style));
        if !entry.label.is_empty() {
            let label = format!("{} ", text::printable(&entry.label));
            spans.push(Span::styled(label, shared.style(Role::Muted)));
        }
    }
    spans.push(Span::styled(value, entry.look.style));
    spans.push(Span::styled(bad, shared.style(Role::Bad)));
    spans.push(Span::raw("  "));
    spans
}

fn draw_alarms(live: &Live, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let unicode = shared.glyphs.unicode;
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let (lines, more) = if live.shows_all_alarms {
        let all = all_alarms(live, shared, area.width);
        (all, "page 8 (Logs) has all")
    } else {
        (strip_lines(live, shared), "a shows all")
    };
    let hidden = lines.len().saturating_sub(height);
    let hint = match hidden {
        0 => String::new(),
        hidden => format!("  (+{hidden}: {more})"),
    };
    // Rows that are left go to those that are cut, first come, first served.
    let mut spare = height.saturating_sub(lines.len());
    let mut rows: Vec<Line<'_>> = Vec::new();
    for (place, line) in lines.into_iter().take(height).enumerate() {
        let is_last = place + 1 == height;
        let room = if is_last {
            width.saturating_sub(text::width(&hint))
        } else {
            width
        };
        if line.width() > room && spare > 0 {
            spare -= 1;
            rows.extend(in_two(&line, width, unicode));
        } else {
            rows.push(cut(line, room, unicode));
        }
    }
    if let Some(last) = rows.last_mut() {
        last.push_span(Span::styled(hint, shared.style(Role::Muted)));
    }
    frame.render_widget(Paragraph::new(rows), area);
}

/// A line that is too long in two rows, each span in its style; what does not fit into them is cut.
fn in_two(line: &Line<'_>, width: usize, unicode: bool) -> [Line<'static>; 2] {
    let whole: String = line.spans.iter().map(|span| &*span.content).collect();
    let first = text::wrap(&whole, width)
        .into_iter()
        .next()
        .unwrap_or_default();
    // Wrapping drops the space at which it cuts.
    let mut left = first.chars().count();
    let mut spans: [Vec<Span<'static>>; 2] = [Vec::new(), vec![Span::raw("   ")]];
    for span in &line.spans {
        let characters = span.content.chars();
        let here: String = characters.clone().take(left).collect();
        let rest: String = characters.skip(left).collect();
        left -= here.chars().count();
        let is_first = spans[1].len() == 1;
        let rest = if is_first {
            rest.trim_start()
        } else {
            rest.as_str()
        };
        if !here.is_empty() {
            spans[0].push(Span::styled(here, span.style));
        }
        if !rest.is_empty() {
            spans[1].push(Span::styled(rest.to_owned(), span.style));
        }
    }
    let [first, second] = spans.map(Line::from);
    [first, cut(second, width, unicode)]
}

/// Every alarm in full: those that are active with what was changed before them, those that the run recorded, those that are over.
fn all_alarms<'a>(live: &'a Live, shared: &'a Shared, width: u16) -> Vec<Line<'a>> {
    let width = usize::from(width);
    let muted = |text: &str| -> Vec<Line<'a>> {
        let style = shared.style(Role::Muted);
        let wrapped = text::wrap_under(text, width).into_iter();
        wrapped.map(|line| Line::styled(line, style)).collect()
    };
    let mut lines: Vec<Line<'a>> = ended_line(shared).into_iter().collect();
    for finding in live.findings() {
        lines.extend(whole(finding_line(finding, shared), width));
        let changes: Vec<String> = finding
            .what_changed
            .iter()
            .take(3)
            .map(|change| format!("{} at {}", change.what, text::clock(change.elapsed_ms)))
            .collect();
        lines.extend(muted(&if changes.is_empty() {
            "    nothing is recorded before it".to_owned()
        } else {
            format!("    before it: {}", changes.join("; "))
        }));
    }
    if live.findings().is_empty() {
        lines.push(Line::styled("no alarm is active", shared.style(Role::Good)));
    }
    if let Some(run) = shared.current_run() {
        let groups = AlarmGroup::of(&run.state.alarms);
        if !groups.is_empty() {
            let count = run.state.alarm_count;
            let what = if count == 1 { "alarm" } else { "alarms" };
            lines.extend(muted(&format!(
                "the run recorded {count} {what} (n goes from one to the next)"
            )));
        }
        for group in groups.iter().rev() {
            lines.extend(muted(&format!("  {}", group.words())));
        }
    }
    let past = live
        .alarms
        .as_ref()
        .map_or(&[][..], |(_, alarms)| alarms.past());
    for finding in past.iter().rev() {
        lines.extend(muted(&format!(
            "  over: {} from step {} to {}: {}",
            finding.name.replace('_', " "),
            finding.since_step,
            text::clock(finding.until_ms.unwrap_or(finding.since_ms)),
            finding.message
        )));
    }
    lines
}

/// A line that is too long, in as many as it takes.
fn whole(line: Line<'_>, width: usize) -> Vec<Line<'_>> {
    if line.width() <= width {
        return vec![line];
    }
    let style = line.spans.first().map_or(line.style, |span| span.style);
    let text: String = line.spans.iter().map(|span| &*span.content).collect();
    let wrapped = text::wrap_under(&text, width).into_iter();
    wrapped.map(|line| Line::styled(line, style)).collect()
}

/// Why the run ended, where it did not end well.
fn ended_line(shared: &Shared) -> Option<Line<'static>> {
    let ended = shared.how_it_ended()?;
    let run = shared.current_run()?;
    let is_stopped =
        (run.state.ended.as_ref()).is_some_and(|ended| ended.status == RunStatus::Stopped);
    // As page Runs marks them.
    let (mark, role) = if is_stopped {
        (shared.glyphs.pick("■ ", "# "), Role::Caution)
    } else {
        (shared.glyphs.pick("† ", "!! "), Role::Bad)
    };
    Some(Line::from(vec![
        Span::styled(mark, shared.style(role)),
        Span::styled(text::printable(&ended), shared.style(role)),
        Span::styled("  (8: what it printed)", shared.style(Role::Muted)),
    ]))
}

/// A line that does not fit keeps its last span (what is hidden) only when there is room.
fn cut(line: Line<'_>, width: usize, unicode: bool) -> Line<'_> {
    if line.width() <= width {
        return line;
    }
    let mut left = width;
    let mut spans = Vec::new();
    for span in line.spans {
        if left == 0 {
            break;
        }
        let fitted = text::fit(&span.content, left, unicode);
        left -= text::width(&fitted).min(left);
        spans.push(Span::styled(fitted, span.style));
    }
    Line::from(spans).style(line.style)
}

fn finding_line(finding: &Finding, shared: &Shared) -> Line<'static> {
    let (mark, role) = match finding.severity {
        Severity::Critical => ("!!", Role::Bad),
        Severity::Warning => ("! ", Role::Caution),
    };
    Line::from(vec![
        Span::styled(
            format!("{mark} {}", finding.name.replace('_', " ")),
            shared.style(role),
        ),
        Span::styled(
            format!(
                " since step {} ({})  ",
                finding.since_step,
                text::clock(finding.since_ms)
            ),
            shared.style(Role::Muted),
        ),
        Span::raw(text::printable(&finding.message)),
    ])
}
