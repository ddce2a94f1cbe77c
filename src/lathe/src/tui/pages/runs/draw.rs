//! The page on the screen.
//!
//! ```text
//!  / state:run kl>0.02                                             filter, when there is one; what is wrong with it
//!     state      name            step   reward  best reward ↑      headings
//!  >* ✓ finished sort-1a2b…    80/80    0.93         0.95          rows │ summary of the selected run, where it is wide
//!  failed: loss is NaN                                             of the selected run: reason, note; or the field
//! ```

use nucleo_matcher::pattern::{Atom, AtomKind, CaseMatching, Normalization};
use nucleo_matcher::{Config, Matcher, Utf32Str};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};
use runlog::run_dir::Origin;

use super::columns::{self, Column};
use super::details::Detail;
use super::overlay::sort_arrow;
use super::{Mode, Runs};
use crate::tui::shared::{RunEntry, Shared, Unlisted};
use crate::tui::theme::Role;
use crate::tui::widgets::{empty, frame as frames, text};

/// From this width on the summary of the selected run stands beside the table.
const PREVIEW_FROM: u16 = 150;
const PREVIEW_COLUMNS: u16 = 62;
const PREVIEW_MOST: u16 = 100;
/// Columns that the table makes use of.
const TABLE_COLUMNS: u16 = 138;
/// The pointer, the mark and a space.
const MARGIN: u16 = 3;

/// Rows of the list on the screen, about: what half a page is.
pub fn visible_rows(shared: &Shared) -> usize {
    // Header, footer, headings and the line of the selected run.
    usize::from(shared.rows.saturating_sub(4)).max(1)
}

struct Parts {
    filter: Rect,
    headings: Rect,
    rows: Rect,
    strip: Rect,
    preview: Option<Rect>,
}

fn parts(runs: &Runs, shared: &Shared, area: Rect) -> Parts {
    let spare = area.width.saturating_sub(TABLE_COLUMNS);
    let preview_columns = spare.clamp(PREVIEW_COLUMNS, PREVIEW_MOST);
    let (table, preview) = if area.width >= PREVIEW_FROM {
        let [table, preview] =
            Layout::horizontal([Constraint::Min(40), Constraint::Length(preview_columns)])
                .areas(area);
        (table, Some(preview))
    } else {
        (area, None)
    };
    let has_filter = matches!(runs.mode, Mode::Filter(_)) || !runs.filter_text.is_empty();
    let filter_rows =
        u16::from(has_filter) + u16::from(complaint(runs, shared).is_some_and(|_| true));
    let [filter, headings, rows, strip] = Layout::vertical([
        Constraint::Length(filter_rows),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(strip_rows(runs, shared, table)),
    ])
    .areas(table);
    Parts {
        filter,
        headings,
        rows,
        strip,
        preview,
    }
}

/// Most rows for why a directory cannot be read.
const REASON_ROWS: u16 = 4;

/// Rows below the list, about the run under the cursor.
fn strip_rows(runs: &Runs, shared: &Shared, area: Rect) -> u16 {
    let unlisted = runs.selected_unlisted(shared);
    let rows = unlisted.map_or(1, |unlisted| {
        text::wrap(unlisted.reason(), usize::from(area.width)).len() as u16
    });
    let most = REASON_ROWS.min(area.height / 3);
    if area.height < 6 {
        0
    } else {
        rows.clamp(1, most.max(1))
    }
}

/// What is wrong with the list or the filter, and at which column of the filter.
fn complaint(runs: &Runs, shared: &Shared) -> Option<(Option<usize>, String)> {
    if let Some(error) = runs.error.as_ref().or(runs.complaints.first()) {
        let before = runs.filter_text.get(..error.at.start).unwrap_or_default();
        return Some((Some(text::width(before)), error.to_string()));
    }
    shared.runs.problem.clone().map(|problem| (None, problem))
}

pub fn draw(runs: &Runs, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    if runs.is_preview_expanded {
        draw_preview(runs, shared, frame, area);
        return;
    }
    let parts = parts(runs, shared, area);
    draw_filter(runs, shared, frame, parts.filter);
    if runs.row_count(shared) == 0 {
        draw_empty(runs, shared, frame, parts.headings.union(parts.rows));
    } else {
        let layout = layout(runs, parts.rows.width);
        draw_headings(runs, &layout, shared, frame, parts.headings);
        draw_rows(runs, &layout, shared, frame, parts.rows);
    }
    draw_strip(runs, shared, frame, parts.strip);
    if let Some(preview) = parts.preview {
        draw_preview(runs, shared, frame, preview);
    }
    match &runs.mode {
        Mode::Sort(menu) => menu.draw(&runs.kept(), shared, frame, area),
        Mode::Metrics(picker) => picker.draw(&runs.kept(), shared, frame, area),
        _ => {}
    }
}

fn layout(runs: &Runs, width: u16) -> Vec<(Column, u16)> {
    columns::lay_out(
        width.saturating_sub(MARGIN),
        &runs.kept().metrics,
        runs.longest_names,
        runs.tells_hosts,
    )
}

fn draw_filter(runs: &Runs, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let mut area = area;
    let line = |area: Rect| Rect { height: 1, ..area };
    let styles = (shared.style(Role::Accent), shared.style(Role::Text));
    match &runs.mode {
        Mode::Filter(field) if area.height > 0 => {
            field.draw(frame, line(area), "/ ", styles, true);
            area = below(area);
        }
        _ if !runs.filter_text.is_empty() && area.height > 0 => {
            let shown = Line::from(vec![
                Span::styled("/ ", styles.0),
                Span::styled(text::printable(&runs.filter_text), styles.1),
            ]);
            frame.render_widget(shown, line(area));
            area = below(area);
        }
        _ => {}
    }
    if area.height > 0
        && let Some((at, complaint)) = complaint(runs, shared)
    {
        // A caret below the place, the words behind it.
        let indent = at.map_or(0, |at| at + 2);
        let caret = if at.is_some() { "^ " } else { "" };
        let width = usize::from(area.width);
        let wanted = text::width(&complaint) + caret.len();
        let indent = indent.min(width.saturating_sub(wanted));
        let shown = format!("{}{caret}{complaint}", " ".repeat(indent));
        let shown = text::fit(&shown, width, shared.glyphs.unicode);
        frame.render_widget(Line::styled(shown, shared.style(Role::Bad)), line(area));
    }
}

fn below(area: Rect) -> Rect {
    Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(1),
        ..area
    }
}

fn draw_empty(runs: &Runs, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    if !shared.runs.is_read {
        empty::draw(shared, frame, area, "Looking for runs", "");
    } else if !runs.filter_text.is_empty() && !shared.runs.entries.is_empty() {
        let what = format!("No run of {} fits the filter", shared.runs.entries.len());
        empty::draw(shared, frame, area, &what, "esc clears it");
    } else {
        let roots: Vec<String> = shared
            .project
            .runs_roots
            .iter()
            .map(|root| root.display().to_string())
            .collect();
        let what = format!("No runs yet in {}", roots.join(", "));
        let help = "Page 6 starts one from an experiment; in a shell:\nlathe run experiments/quickstart.yaml\nRuns elsewhere: lathe --runs DIR, or `runs: [DIR]` in the settings";
        empty::draw(shared, frame, area, &what, help);
    }
}

fn draw_headings(
    runs: &Runs,
    layout: &[(Column, u16)],
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let kept = runs.kept();
    let unicode = shared.glyphs.unicode;
    let mut spans = vec![Span::raw(" ".repeat(usize::from(MARGIN)))];
    for (column, width) in layout {
        let is_sorted = *column == kept.sort;
        let arrow = if is_sorted {
            sort_arrow(kept.is_descending, shared)
        } else {
            ""
        };
        let width = usize::from(*width);
        let title = text::fit(
            &text::printable(&column.title()),
            width.saturating_sub(arrow.chars().count()),
            unicode,
        );
        let title = format!("{title}{arrow}");
        let cell = if column.is_right() {
            text::pad_left(&title, width, unicode)
        } else {
            text::pad(&title, width, unicode)
        };
        let role = if is_sorted { Role::Accent } else { Role::Title };
        spans.push(Span::styled(cell, shared.style(role)));
        spans.push(Span::raw(" "));
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_rows(
    runs: &Runs,
    layout: &[(Column, u16)],
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let count = runs.row_count(shared);
    let selected = runs.list.selected(count);
    let words: Vec<&str> = runs
        .filter
        .iter()
        .flat_map(runlog::filter::Filter::words)
        .collect();
    let mut matcher = Matcher::new(Config::DEFAULT);
    let (longest_full, _) = runs.longest_names;
    let lines: Vec<Line<'_>> = runs
        .list
        .window(count, usize::from(area.height))
        .map(|row| {
            let is_selected = row == selected;
            let line = if let Some(entry) = runs.row_entry(row, shared) {
                let detail = runs.details.get(&entry.key);
                let search = (words.as_slice(), &mut matcher);
                entry_line(
                    entry,
                    detail,
                    (layout, longest_full),
                    search,
                    is_selected,
                    shared,
                )
            } else {
                let unlisted = row
                    .checked_sub(runs.order.len())
                    .and_then(|at| shared.runs.unlisted.get(at));
                match unlisted {
                    Some(unlisted) => unlisted_line(unlisted, is_selected, area.width, shared),
                    None => Line::default(),
                }
            };
            if is_selected {
                line.style(shared.style(Role::Selection))
            } else {
                line
            }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn unlisted_line(
    unlisted: &Unlisted,
    is_selected: bool,
    width: u16,
    shared: &Shared,
) -> Line<'static> {
    let pointer = if is_selected { ">" } else { " " };
    let mark = shared.glyphs.pick("⚠", "?");
    let reason = text::printable(unlisted.reason());
    let shown = format!("{pointer}  {mark} {}: {reason}", unlisted.word());
    let shown = text::pad(&shown, usize::from(width), shared.glyphs.unicode);
    Line::styled(shown, shared.style(Role::Bad))
}

fn entry_line(
    entry: &RunEntry,
    detail: Option<&Detail>,
    (layout, longest_full): (&[(Column, u16)], usize),
    (words, matcher): (&[&str], &mut Matcher),
    is_selected: bool,
    shared: &Shared,
) -> Line<'static> {
    let is_marked = shared.marked.contains(&entry.key);
    let is_current = shared.current.as_ref() == Some(&entry.key);
    let mark = if is_marked {
        Span::styled(
            shared.glyphs.pick("●", "*"),
            shared.theme.series(shared.series_index(&entry.key)),
        )
    } else if is_current {
        Span::styled(
            shared.glyphs.pick("○", "o"),
            shared.theme.series(shared.series_index(&entry.key)),
        )
    } else {
        Span::raw(" ")
    };
    let mut spans = vec![
        Span::raw(if is_selected { ">" } else { " " }),
        mark,
        Span::raw(" "),
    ];
    for (column, width) in layout {
        cell(
            &mut spans,
            column,
            usize::from(*width),
            (entry, detail),
            longest_full,
            (words, matcher),
            is_marked,
            shared,
        );
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}

#[expect(
    clippy::too_many_arguments,
    reason = "a row's facts, handed on one by one"
)]
fn cell(
    spans: &mut Vec<Span<'static>>,
    column: &Column,
    width: usize,
    (entry, detail): (&RunEntry, Option<&Detail>),
    longest_full: usize,
    (words, matcher): (&[&str], &mut Matcher),
    is_marked: bool,
    shared: &Shared,
) {
    let unicode = shared.glyphs.unicode;
    let plain = |text: &str, role: Role| {
        Span::styled(
            text::pad(&text::printable(text), width, unicode),
            shared.style(role),
        )
    };
    let right = |text: &str, role: Role| {
        Span::styled(text::pad_left(text, width, unicode), shared.style(role))
    };
    let number = |value: Option<f64>, role: Role| match value {
        Some(value) if value.is_finite() => right(&text::number(value), role),
        Some(value) => right(&text::number(value), Role::Bad),
        None => right(shared.glyphs.pick("·", "-"), Role::Muted),
    };
    match column {
        Column::State => {
            let (mark, word, role) = columns::state_cell(entry, shared.glyphs);
            spans.push(plain(&format!("{mark} {word}"), role));
        }
        Column::Name => {
            let full = text::printable(&entry.info.name);
            // All are full or all are short, so that they can be compared by eye.
            let name = if longest_full <= width {
                full
            } else {
                text::printable(&columns::short_name(entry))
            };
            let role = if is_marked { Role::Marked } else { Role::Text };
            let shown = text::pad(&name, width, unicode);
            highlighted(spans, &shown, words, matcher, (role, shared));
        }
        Column::Experiment => spans.push(plain(&entry.info.experiment_name, Role::Text)),
        Column::Progress => spans.extend(progress(entry, width, shared)),
        Column::Age => {
            let age = text::age(columns::age_s(entry, shared.now));
            spans.push(right(&age, Role::Muted));
        }
        Column::Host => spans.push(plain(&columns::host(entry), Role::Muted)),
        Column::Last(metric) => {
            spans.push(number(
                columns::last_value(metric, entry, detail),
                Role::Text,
            ));
        }
        Column::Best(metric) => {
            spans.push(number(
                columns::best_value(metric, entry, detail),
                Role::Good,
            ));
        }
        Column::Tags => spans.push(plain(&columns::tags(entry), Role::Accent)),
        Column::Note => match reason(entry) {
            Some(reason) if entry.notes.note.is_empty() => spans.push(plain(reason, Role::Bad)),
            _ => spans.push(plain(&entry.notes.note, Role::Muted)),
        },
    }
}

/// Why it failed or is dead, why it cannot be read, or what is wrong while it runs.
fn reason(entry: &RunEntry) -> Option<&str> {
    if entry.is_replayed {
        return None;
    }
    let of_glance = entry
        .glance
        .as_ref()
        .and_then(|glance| glance.liveness.reason());
    let trouble = entry.trouble.as_ref().map(|trouble| trouble.words.as_str());
    let stuck = entry.stuck().filter(|_| entry.is_running());
    let problem = entry.problem.as_deref();
    problem.or(of_glance).or(trouble).or(stuck)
}

/// `━━━━━──── 41/80`; without the bar where there is no room for it.
fn progress(entry: &RunEntry, width: usize, shared: &Shared) -> Vec<Span<'static>> {
    let unicode = shared.glyphs.unicode;
    let (step, total) = entry
        .glance
        .as_ref()
        .map_or((0, 0), |glance| (glance.step, glance.total_steps));
    let counted = if total > 0 {
        format!("{step}/{total}")
    } else {
        step.to_string()
    };
    let mut spans = Vec::new();
    let bar = width.saturating_sub(10).min(8);
    if bar >= 4 && total > 0 {
        let share = (step as f64 / total as f64).clamp(0.0, 1.0);
        let full = (share * bar as f64).round() as usize;
        spans.push(Span::styled(
            shared.glyphs.pick("━", "=").repeat(full),
            shared.style(Role::Accent),
        ));
        spans.push(Span::styled(
            shared.glyphs.pick("─", "-").repeat(bar - full),
            shared.style(Role::Grid),
        ));
        spans.push(Span::raw(text::pad_left(&counted, width - bar, unicode)));
    } else {
        spans.push(Span::raw(text::pad_left(&counted, width, unicode)));
    }
    spans
}

/// `name` with the letters that the filter's words matched set off.
fn highlighted(
    spans: &mut Vec<Span<'static>>,
    name: &str,
    words: &[&str],
    matcher: &mut Matcher,
    (role, shared): (Role, &Shared),
) {
    let base = shared.style(role);
    let mut indices: Vec<u32> = Vec::new();
    let mut buffer = Vec::new();
    for word in words {
        let atom = Atom::new(
            word,
            CaseMatching::Ignore,
            Normalization::Smart,
            AtomKind::Fuzzy,
            false,
        );
        // None: the word fits the full name, of which this is a part.
        let _ = atom.indices(Utf32Str::new(name, &mut buffer), matcher, &mut indices);
    }
    if indices.is_empty() {
        spans.push(Span::styled(name.to_owned(), base));
        return;
    }
    let mut run = String::new();
    let mut is_match = false;
    let mut push = |run: &mut String, is_match: bool| {
        if !run.is_empty() {
            let style: Style = if is_match {
                shared.style(Role::Match)
            } else {
                base
            };
            spans.push(Span::styled(std::mem::take(run), style));
        }
    };
    for (index, c) in name.chars().enumerate() {
        let now = indices.contains(&(index as u32));
        if now != is_match {
            push(&mut run, is_match);
            is_match = now;
        }
        run.push(c);
    }
    push(&mut run, is_match);
}

fn draw_strip(runs: &Runs, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    if area.height == 0 {
        return;
    }
    if let Mode::Edit {
        what,
        field,
        complaint,
        ..
    } = &runs.mode
    {
        let label = match complaint {
            Some(complaint) => format!("{complaint}  {}", what.label()),
            None => what.label().to_owned(),
        };
        let role = if complaint.is_some() {
            Role::Bad
        } else {
            Role::Accent
        };
        frame.render_widget(Clear, area);
        let styles = (shared.style(role), shared.style(Role::Text));
        field.draw(frame, area, &label, styles, true);
        return;
    }
    if let Some(unlisted) = runs.selected_unlisted(shared) {
        let lines = text::wrap(unlisted.reason(), usize::from(area.width));
        let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines).style(shared.style(Role::Bad)), area);
        return;
    }
    let Some(entry) = runs.selected_entry(shared) else {
        return;
    };
    let mut parts: Vec<(String, Role)> = Vec::new();
    if let Some(reason) = reason(entry) {
        parts.push((format!("{}: {reason}", entry.state_word()), Role::Bad));
    }
    if !entry.notes.note.is_empty() {
        parts.push((entry.notes.note.replace('\n', " / "), Role::Text));
    }
    if !entry.notes.tags().is_empty() {
        parts.push((format!("[{}]", columns::tags(entry)), Role::Accent));
    }
    let mut room = usize::from(area.width);
    let mut spans = Vec::new();
    for (shown, role) in parts {
        let shown = text::fit(&text::printable(&shown), room, shared.glyphs.unicode);
        room = room.saturating_sub(text::width(&shown) + 2);
        spans.push(Span::styled(shown, shared.style(role)));
        spans.push(Span::raw("  "));
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_preview(runs: &Runs, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let selected = runs.selected_entry(shared);
    let title = selected.map_or_else(String::new, |entry| {
        format!(" {} ", text::printable(&columns::short_name(entry)))
    });
    let border = if runs.is_preview_expanded {
        Role::Focus
    } else {
        Role::Border
    };
    let block = frames::block(shared, &title, border);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let Some(entry) = selected else {
        if let Some(unlisted) = runs.selected_unlisted(shared) {
            empty::draw(shared, frame, inner, unlisted.title(), unlisted.reason());
            return;
        }
        empty::draw(shared, frame, inner, "No run is selected", "");
        return;
    };
    let detail = runs.details.get(&entry.key);
    let problem = detail
        .and_then(|detail| detail.problem.as_ref())
        .or(entry.problem.as_ref());
    if let Some(problem) = problem {
        empty::draw(shared, frame, inner, "This run cannot be read", problem);
        return;
    }
    if entry.is_only_listed() {
        let target = entry.info.origin.as_ref().and_then(Origin::target);
        let what = format!("It lies on {}", target.unwrap_or("another machine"));
        let help = "enter fetches its log from there and shows it";
        empty::draw(shared, frame, inner, &what, help);
        return;
    }
    let Some(detail) = detail else {
        empty::draw(shared, frame, inner, "Reading the run", "");
        return;
    };
    let width = usize::from(inner.width).saturating_sub(1);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (index, line) in detail.summary.iter().enumerate() {
        let role = if index == 0 { Role::Title } else { Role::Text };
        for shown in text::wrap_under(line, width) {
            lines.push(Line::styled(format!(" {shown}"), shared.style(role)));
        }
    }
    if !entry.notes.note.is_empty() {
        lines.push(Line::default());
        for shown in text::wrap(&entry.notes.note, width) {
            lines.push(Line::styled(format!(" {shown}"), shared.style(Role::Muted)));
        }
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

/// What of the table lies under the mouse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Heading(Column),
    Row(usize),
}

impl Runs {
    pub(super) fn place_at(
        &self,
        column: u16,
        row: u16,
        area: Rect,
        shared: &Shared,
    ) -> Option<Place> {
        if self.is_preview_expanded {
            return None;
        }
        let parts = parts(self, shared, area);
        let at = ratatui::layout::Position::new(column, row);
        if parts.headings.contains(at) {
            let mut start = parts.headings.x + MARGIN;
            for (heading, width) in layout(self, parts.rows.width) {
                if (start..=start + width).contains(&column) {
                    return Some(Place::Heading(heading));
                }
                start += width + 1;
            }
            return None;
        }
        if !parts.rows.contains(at) {
            return None;
        }
        let count = self.row_count(shared);
        let window = self.list.window(count, usize::from(parts.rows.height));
        let found = window.start + usize::from(row - parts.rows.y);
        (found < window.end).then_some(Place::Row(found))
    }
}
