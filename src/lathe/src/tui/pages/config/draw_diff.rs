//! The comparison with another text or with the defaults.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::diff::{DiffRow, DiffView, Form};
use super::sheet::Sheet;
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::{empty, frame as frames, text};

pub(super) fn comparison(sheet: &Sheet, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let Some(diff) = &sheet.diff else {
        return;
    };
    let what = match diff.form {
        Form::Keys => "keys that differ",
        Form::Lines => "lines that differ",
    };
    let other = match diff.against {
        super::Against::Defaults => "esc leaves",
        super::Against::Text { .. } if diff.form == Form::Keys => "tab: lines, esc leaves",
        super::Against::Text { .. } => "tab: keys, esc leaves",
    };
    let title = format!(
        " Against {}: {what} ({other}) ",
        text::printable(diff.name())
    );
    let block = frames::block(shared, &title, Role::Focus);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if diff.rows.is_empty() {
        let words = match diff.form {
            Form::Keys => "Every key means the same",
            Form::Lines => "Not one line differs",
        };
        empty::draw(shared, frame, inner, words, "esc leaves");
        return;
    }
    let length = diff.rows.len();
    let selected = diff.list.selected(length);
    let width = usize::from(inner.width);
    let window = diff.list.window(length, usize::from(inner.height));
    let other_width = diff.rows[window]
        .iter()
        .map(|row| match row {
            DiffRow::Key { other, .. } => text::width(other).min(28),
            _ => 0,
        })
        .max()
        .unwrap_or(0);
    let lines: Vec<Line<'_>> = diff
        .list
        .window(length, usize::from(inner.height))
        .map(|at| {
            let line = diff_line(&diff.rows[at], at == selected, (width, other_width), shared);
            if at == selected {
                line.style(shared.style(Role::Selection))
            } else {
                line
            }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

fn diff_line(
    row: &DiffRow,
    is_selected: bool,
    (width, other_width): (usize, usize),
    shared: &Shared,
) -> Line<'static> {
    let unicode = shared.glyphs.unicode;
    let mark = if is_selected { "> " } else { "  " };
    match row {
        DiffRow::Key { key, other, here } => {
            let arrow = shared.glyphs.pick(" → ", " -> ");
            let key_room = (width / 2).max(20);
            let key = if text::width(key) > key_room {
                // The end of a key says more than its start.
                let cut = text::width(key) - key_room + 1;
                let dots = shared.glyphs.pick("…", "~");
                format!("{dots}{}", text::skip_columns(key, cut))
            } else {
                text::pad(key, key_room, unicode)
            };
            let room = width.saturating_sub(key_room + 6);
            let other_room = other_width.min(room / 2);
            let here_room = room.saturating_sub(other_room);
            Line::from(vec![
                Span::raw(mark),
                Span::raw(key),
                Span::raw(" "),
                Span::styled(
                    text::pad_left(&text::printable(other), other_room, unicode),
                    shared.style(Role::Muted),
                ),
                Span::raw(arrow),
                Span::styled(
                    text::fit(&text::printable(here), here_room, unicode),
                    shared.style(Role::Accent),
                ),
            ])
        }
        DiffRow::Line { sign, text: line } => {
            let role = match sign {
                '+' => Role::Good,
                '-' => Role::Bad,
                _ => Role::Muted,
            };
            let line = text::fit(&text::printable(line), width.saturating_sub(4), unicode);
            Line::from(vec![
                Span::raw(mark),
                Span::styled(format!("{sign} {line}"), shared.style(role)),
            ])
        }
        DiffRow::Gap => Line::styled(
            format!("{mark}{}", shared.glyphs.pick("⋯", "...")),
            shared.style(Role::Muted),
        ),
    }
}

/// The comparison as text, to be copied.
pub(super) fn diff_text(diff: &DiffView) -> String {
    diff.rows
        .iter()
        .map(|row| match row {
            DiffRow::Key { key, other, here } => format!("{key}: {other} -> {here}\n"),
            DiffRow::Line { sign, text } => format!("{sign}{text}\n"),
            DiffRow::Gap => "...\n".to_owned(),
        })
        .collect()
}
