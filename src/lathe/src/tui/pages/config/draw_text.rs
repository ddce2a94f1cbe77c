//! The text with line numbers, marks of complaints, and the cursor of somebody typing.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::draw::severity_mark;
use super::sheet::Sheet;
use super::{Config, Mode};
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::{frame as frames, text};

pub(super) fn text_view(
    page: &Config,
    sheet: &Sheet,
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let is_typing = matches!(page.mode, Mode::Text);
    let title = if is_typing {
        " Text: typing (esc ends it, ctrl-u undoes, ctrl-s saves) "
    } else if sheet.text.search.is_empty() {
        " Text (i to type into it) "
    } else {
        " Text (n N next match, i to type) "
    };
    let block = frames::block(shared, title, Role::Focus);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let count = sheet.line_count();
    let selected = sheet.text.list.selected(count);
    let window = sheet.text.list.window(count, usize::from(inner.height));
    let digits = count.to_string().len().max(3);
    let gutter = digits + 3;
    let room = usize::from(inner.width).saturating_sub(gutter);
    let cursor_column = sheet.text.area.as_ref().map_or(0, |area| {
        let line = &area.lines()[area.cursor().0];
        let before: String = line.chars().take(area.cursor().1).collect();
        text::width(&text::printable(&before))
    });
    // The whole text moves sideways with the cursor.
    let scroll = (cursor_column + 1).saturating_sub(room);
    let wanted = sheet.text.search.to_lowercase();
    let top = window.start;
    let lines: Vec<Line<'_>> = sheet
        .document
        .text()
        .split('\n')
        .enumerate()
        .skip(top)
        .take(window.len())
        .map(|(at, line)| {
            let severity = sheet.document.line_severity(at as u32 + 1);
            let (mark, role) = severity_mark(severity, shared);
            let number = format!(
                "{}{:>digits$} ",
                if at == selected { ">" } else { " " },
                at + 1
            );
            let number_role = if at == selected {
                Role::Accent
            } else {
                Role::Muted
            };
            let mut spans = vec![
                Span::styled(number, shared.style(number_role)),
                Span::styled(mark, shared.style(role)),
            ];
            let line = text::printable(line.trim_end_matches('\r'));
            let line = text::skip_columns(&line, scroll).to_owned();
            spans.extend(line_spans(&line, &wanted, shared));
            Line::from(spans)
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), inner);
    if is_typing && selected >= top && room > 0 {
        let column = gutter.saturating_sub(1) + cursor_column.saturating_sub(scroll);
        let x = inner.x + (column as u16).min(inner.width.saturating_sub(1));
        let y = inner.y + (selected - top) as u16;
        frame.set_cursor_position((x, y));
    }
}

/// A line of YAML: key, value and comment told apart, matches of the search marked.
fn line_spans(line: &str, wanted: &str, shared: &Shared) -> Vec<Span<'static>> {
    let lower = line.to_lowercase();
    // Lowercasing may change lengths outside of ASCII; then the line is only not marked.
    if !wanted.is_empty() && lower.len() == line.len() && lower.contains(wanted) {
        let mut spans = Vec::new();
        let mut at = 0;
        while let Some(found) = lower[at..].find(wanted) {
            let (start, end) = (at + found, at + found + wanted.len());
            if !(line.is_char_boundary(start) && line.is_char_boundary(end)) {
                break;
            }
            spans.push(Span::raw(line[at..start].to_owned()));
            spans.push(Span::styled(
                line[start..end].to_owned(),
                shared.style(Role::Match),
            ));
            at = end;
        }
        spans.push(Span::raw(line[at..].to_owned()));
        return spans;
    }
    let (code, comment) = split_comment(line);
    let mut spans = Vec::new();
    match code.split_once(':') {
        Some((key, value)) if !key.trim_start().starts_with(['"', '\'', '-', '[', '{']) => {
            spans.push(Span::styled(format!("{key}:"), shared.style(Role::Text)));
            spans.push(Span::styled(value.to_owned(), shared.style(Role::Accent)));
        }
        _ => spans.push(Span::styled(code.to_owned(), shared.style(Role::Accent))),
    }
    if !comment.is_empty() {
        spans.push(Span::styled(comment.to_owned(), shared.style(Role::Muted)));
    }
    spans
}

fn split_comment(line: &str) -> (&str, &str) {
    if line.trim_start().starts_with('#') {
        return ("", line);
    }
    line.find(" #").map_or((line, ""), |at| line.split_at(at))
}
