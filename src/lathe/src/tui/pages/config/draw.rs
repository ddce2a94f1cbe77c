//! The page on the screen.
//!
//! ```text
//!  experiments/quickstart.yaml · changed · 1 error               title
//!  the file changed outside: R reads it, W overwrites it          banner, when so
//!  ┌ tree, text or comparison ─────────┐┌ the key ──────────────┐
//!  └───────────────────────────────────┘└───────────────────────┘ below instead, where it is narrow
//!  filter: lr_                                                     what is being typed
//! ```

use experiment::Severity;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::document::{Document, Outside};
use super::explain;
use super::rows::Row;
use super::sheet::{Sheet, View};
use super::value::{Form, ValueEditor};
use super::{Chooser, Config, Mode, draw_diff, draw_text};
use crate::tui::modal::boxed;
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::{empty, frame as frames, text};

/// Narrower than this, the explanation stands below the tree.
const WIDE: u16 = 100;
/// Lower than this, there is no room to explain.
const TALL: u16 = 14;

#[derive(Debug, Clone, Copy)]
struct Parts {
    title: Rect,
    banner: Rect,
    body: Rect,
    pane: Option<Rect>,
    prompt: Rect,
}

fn parts(page: &Config, area: Rect) -> Parts {
    let is_typing_below = matches!(
        page.mode,
        Mode::Filter(_) | Mode::Search(_) | Mode::SaveAs(_)
    );
    let has_banner = page
        .sheet()
        .is_some_and(|sheet| sheet.document.outside.is_some());
    let [title, banner, middle, prompt] = Layout::vertical([
        Constraint::Length(u16::from(area.height > 6)),
        Constraint::Length(u16::from(has_banner)),
        Constraint::Min(1),
        Constraint::Length(u16::from(is_typing_below)),
    ])
    .areas(area);
    let has_pane = !page.is_expanded
        && page.sheet().is_some_and(|sheet| sheet.view != View::Diff)
        && middle.height >= TALL;
    let (body, pane) = if !has_pane {
        (middle, None)
    } else if middle.width >= WIDE {
        let [body, pane] =
            Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(middle);
        (body, Some(pane))
    } else {
        let [body, pane] =
            Layout::vertical([Constraint::Min(4), Constraint::Length(8)]).areas(middle);
        (body, Some(pane))
    };
    Parts {
        title,
        banner,
        body,
        pane,
        prompt,
    }
}

/// Where the rows of the list in front are, inside of its frame.
pub(super) fn list_area(page: &Config, area: Rect) -> Rect {
    let body = parts(page, area).body;
    Rect::new(
        body.x.saturating_add(1),
        body.y.saturating_add(1),
        body.width.saturating_sub(2),
        body.height.saturating_sub(2),
    )
}

/// About how many rows a page of the list has, for moving by pages.
pub(super) fn body_rows(shared: &Shared) -> usize {
    let pane = if shared.columns < WIDE { 8 } else { 0 };
    usize::from(shared.rows.saturating_sub(5 + pane)).max(1)
}

pub(super) fn page(page: &Config, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let parts = parts(page, area);
    let Some(sheet) = page.sheet() else {
        files(page, shared, frame, area);
        return;
    };
    title(sheet, shared, frame, parts.title);
    banner(sheet, shared, frame, parts.banner);
    match sheet.view {
        View::Tree => tree(page, sheet, shared, frame, parts.body),
        View::Text => draw_text::text_view(page, sheet, shared, frame, parts.body),
        View::Diff => draw_diff::comparison(sheet, shared, frame, parts.body),
    }
    if let Some(pane) = parts.pane {
        explanation(page, sheet, shared, frame, pane);
    }
    prompt(page, shared, frame, parts.prompt);
    if let Mode::Choose(chooser) = &page.mode {
        draw_chooser(chooser, shared, frame, area);
    }
}

fn title(sheet: &Sheet, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let document = &sheet.document;
    let dot = shared.glyphs.pick(" · ", " | ");
    let mut spans = vec![Span::styled(
        format!(" {}", text::printable(document.name())),
        shared.style(Role::Title),
    )];
    let mut word = |text: String, role: Role| {
        spans.push(Span::styled(dot, shared.style(Role::Muted)));
        spans.push(Span::styled(text, shared.style(role)));
    };
    if document.is_record {
        word("a run's record, read-only".to_owned(), Role::Muted);
    } else if document.is_modified() {
        word("unsaved changes (w saves)".to_owned(), Role::Caution);
    }
    let counts = [
        (Severity::Error, "error", Role::Bad),
        (Severity::Warning, "warning", Role::Caution),
        (Severity::Note, "note", Role::Muted),
    ];
    let mut is_fine = true;
    for (severity, name, role) in counts {
        let count = document.count(severity);
        if count > 0 {
            is_fine &= severity == Severity::Note;
            let s = if count == 1 { "" } else { "s" };
            word(format!("{count} {name}{s}"), role);
        }
    }
    if is_fine {
        word("ok".to_owned(), Role::Good);
    }
    frame.render_widget(Line::from(spans), area);
}

fn banner(sheet: &Sheet, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let words = match &sheet.document.outside {
        Some(Outside::Changed(_)) => {
            " changed outside since it was read: R takes that, W overwrites it, c compares"
        }
        Some(Outside::Deleted) => " the file was deleted: W writes it again",
        None => return,
    };
    frame.render_widget(Line::styled(words, shared.style(Role::Caution)), area);
}

fn files(page: &Config, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let folder = super::short_name(&shared.project.experiments, shared);
    let found = match &page.files {
        None => return empty::draw(shared, frame, area, "Looking for experiments", ""),
        Some(Err(reason)) => {
            return empty::draw(
                shared,
                frame,
                area,
                "The experiments cannot be listed",
                &format!("{reason}\nR tries again"),
            );
        }
        Some(Ok(_)) => page.offered(shared),
    };
    if found.is_empty() {
        return empty::draw(
            shared,
            frame,
            area,
            &format!("There is no experiment in {folder}/"),
            "put a YAML file there; it appears here by itself\nO shows the experiment of the current run, S there saves a copy",
        );
    }
    let title = format!(" Experiments in {folder} (enter opens) ");
    let block = frames::block(shared, &title, Role::Focus);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let unicode = shared.glyphs.unicode;
    let selected = page.files_list.selected(found.len());
    let width = usize::from(inner.width);
    let name_of = |at: usize| text::printable(&found[at].name);
    let widest = (0..found.len())
        .map(|at| text::width(&name_of(at)))
        .max()
        .unwrap_or(0)
        .clamp(10, 40);
    let lines: Vec<Line<'_>> = page
        .files_list
        .window(found.len(), usize::from(inner.height))
        .map(|at| {
            let is_changed = page.sheets.iter().any(|sheet| {
                sheet.document.path() == found[at].path && sheet.document.is_modified()
            });
            let mark = if at == selected { ">" } else { " " };
            let star = if is_changed { "*" } else { " " };
            let about = text::fit(
                &text::printable(&found[at].about),
                width.saturating_sub(widest + 5),
                unicode,
            );
            let line = Line::from(vec![
                Span::raw(format!(
                    "{mark} {star}{}  ",
                    text::pad(&name_of(at), widest, unicode)
                )),
                Span::styled(about, shared.style(Role::Muted)),
            ]);
            if at == selected {
                line.style(shared.style(Role::Selection))
            } else {
                line
            }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

pub(super) fn severity_mark(severity: Option<Severity>, shared: &Shared) -> (&'static str, Role) {
    match severity {
        Some(Severity::Error) => (shared.glyphs.pick("✗", "x"), Role::Bad),
        Some(Severity::Warning) => ("!", Role::Caution),
        Some(Severity::Note) => ("i", Role::Accent),
        None => (" ", Role::Text),
    }
}

fn tree(page: &Config, sheet: &Sheet, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let tree = &sheet.tree;
    let rows = sheet.document.rows();
    let mut title = " Tree".to_owned();
    if !tree.filter.is_empty() {
        let keys = tree.visible.iter().filter(|&&at| !rows[at].is_block);
        title = match keys.count() {
            1 => format!(" 1 key with `{}`", tree.filter),
            count => format!(" {count} keys with `{}`", tree.filter),
        };
    } else if tree.shows_all {
        title.push_str(", every key");
    }
    title.push(' ');
    let block = frames::block(shared, &title, Role::Focus);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if tree.visible.is_empty() {
        let help = if tree.filter.is_empty() {
            "a shows every key with its default\ntab shows the text"
        } else {
            "esc takes the filter away"
        };
        empty::draw(shared, frame, inner, "No keys", help);
        return;
    }
    let length = tree.visible.len();
    let selected = tree.list.selected(length);
    let window = tree.list.window(length, usize::from(inner.height));
    let top = window.start;
    let lines: Vec<Line<'_>> = window
        .map(|at| {
            let row = &rows[tree.visible[at]];
            tree_line(row, tree, at == selected, shared, usize::from(inner.width))
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), inner);
    if let Mode::Value(editor) = &page.mode
        && selected >= top
    {
        let y = inner.y + (selected - top) as u16;
        value_editor(
            editor,
            &rows[tree.visible[selected]],
            shared,
            frame,
            inner,
            y,
        );
    }
}

/// Columns of the marks before a name.
const MARKS: usize = 5;

fn indent(row: &Row) -> usize {
    MARKS + 2 * row.depth
}

fn tree_line<'r>(
    row: &'r Row,
    tree: &super::sheet::Tree,
    is_selected: bool,
    shared: &Shared,
    width: usize,
) -> Line<'r> {
    let (severity, severity_role) = severity_mark(row.severity, shared);
    let special = if row.is_special {
        shared.glyphs.pick("≠", "#")
    } else {
        " "
    };
    let mut spans = vec![
        Span::raw(if is_selected { ">" } else { " " }),
        Span::styled(severity, shared.style(severity_role)),
        Span::styled(
            if row.is_modified { "*" } else { " " },
            shared.style(Role::Caution),
        ),
        Span::styled(special, shared.style(Role::Muted)),
        Span::raw(" ".repeat(1 + 2 * row.depth)),
    ];
    let room = width.saturating_sub(indent(row));
    let unicode = shared.glyphs.unicode;
    let name = text::printable(row.name());
    if row.is_block {
        let is_folded = tree.filter.is_empty() && tree.folded.contains(&row.key);
        let fold = if is_folded {
            shared.glyphs.pick("▸ ", "+ ")
        } else {
            shared.glyphs.pick("▾ ", "- ")
        };
        let role = if row.is_in_file() {
            Role::Title
        } else {
            Role::Muted
        };
        spans.push(Span::styled(
            text::fit(&format!("{fold}{name}"), room, unicode),
            shared.style(role),
        ));
        push_comment(
            &mut spans,
            row,
            room.saturating_sub(text::width(&name) + 2),
            shared,
        );
    } else {
        let is_given = row.is_in_file();
        let label = format!("{name} = ");
        let value_room = room.saturating_sub(text::width(&label));
        let value = text::fit(&text::printable(&row.value), value_room, unicode);
        let left = value_room.saturating_sub(text::width(&value));
        let (name_role, value_role) = if is_given {
            (Role::Text, Role::Accent)
        } else {
            (Role::Muted, Role::Muted)
        };
        spans.push(Span::styled(
            text::fit(&label, room, unicode),
            shared.style(name_role),
        ));
        spans.push(Span::styled(value, shared.style(value_role)));
        if is_given {
            push_comment(&mut spans, row, left, shared);
        } else if left > 10 {
            spans.push(Span::styled("  default", shared.style(Role::Muted)));
        }
    }
    let line = Line::from(spans);
    if is_selected {
        line.style(shared.style(Role::Selection))
    } else {
        line
    }
}

fn push_comment(spans: &mut Vec<Span<'_>>, row: &Row, room: usize, shared: &Shared) {
    if row.comment.is_empty() || room < 12 {
        return;
    }
    let comment = text::fit(
        &text::printable(&row.comment),
        room - 2,
        shared.glyphs.unicode,
    );
    spans.push(Span::styled(
        format!("  {comment}"),
        shared.style(Role::Muted),
    ));
}

/// The field over the row's value, or the list of choices under it.
fn value_editor(
    editor: &ValueEditor,
    row: &Row,
    shared: &Shared,
    frame: &mut Frame<'_>,
    inner: Rect,
    y: u16,
) {
    let label = format!("{} = ", text::printable(row.name()));
    let x = inner.x + (indent(row) as u16).min(inner.width.saturating_sub(1));
    let place = Rect::new(x, y, inner.right().saturating_sub(x), 1);
    match &editor.form {
        Form::Field { field, problem } => {
            frame.render_widget(ratatui::widgets::Clear, place);
            let role = if problem.is_some() {
                Role::Bad
            } else {
                Role::Text
            };
            field.draw(
                frame,
                place,
                &label,
                (shared.style(Role::Accent), shared.style(role)),
                true,
            );
        }
        Form::Choice { options, list } => {
            let widest = options.iter().map(|option| option.len()).max().unwrap_or(0);
            let width = (widest as u16 + 6).max(18).min(inner.width);
            let height = (options.len() as u16 + 2).min(inner.height);
            let value_x = x + text::width(&label) as u16;
            let left = value_x
                .min(inner.right().saturating_sub(width))
                .max(inner.x);
            // Under the row, or above where there is more room.
            let top = if y + 1 + height <= inner.bottom() {
                y + 1
            } else {
                y.saturating_sub(height).max(inner.y)
            };
            let inside = boxed(
                shared,
                frame,
                Rect::new(left, top, width, height),
                " enter takes it ",
                Role::Focus,
            );
            let selected = list.selected(options.len());
            let lines: Vec<Line<'_>> = list
                .window(options.len(), usize::from(inside.height))
                .map(|at| {
                    let mark = if at == selected { "> " } else { "  " };
                    let line = Line::raw(format!("{mark}{}", options[at]));
                    if at == selected {
                        line.style(shared.style(Role::Selection))
                    } else {
                        line
                    }
                })
                .collect();
            frame.render_widget(Paragraph::new(lines), inside);
        }
    }
}

fn explanation(page: &Config, sheet: &Sheet, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let document: &Document = &sheet.document;
    let (title, lines) = match (sheet.view, &page.mode) {
        (View::Tree, Mode::Value(editor)) => (
            format!(" {} ", editor.key),
            explain::edited(editor, sheet.row(), document, shared),
        ),
        (View::Tree, _) => match sheet.row() {
            Some(row) => (
                format!(" {} ", row.key),
                explain::row(row, document, shared),
            ),
            None => (" Key ".to_owned(), Vec::new()),
        },
        _ => {
            let line = sheet.text.list.selected(sheet.line_count()) as u32 + 1;
            (format!(" Line {line} "), explain::line(line, sheet, shared))
        }
    };
    let title = text::fit(
        &text::printable(&title),
        usize::from(area.width).saturating_sub(2),
        shared.glyphs.unicode,
    );
    let block = frames::block(shared, &title, Role::Border);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), inner);
}

fn prompt(page: &Config, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let (label, field) = match &page.mode {
        Mode::Filter(field) => (" keys with: ", field),
        Mode::Search(field) => (" search: ", field),
        Mode::SaveAs(field) => (" save as: ", field),
        _ => return,
    };
    field.draw(
        frame,
        area,
        label,
        (shared.style(Role::Accent), shared.style(Role::Text)),
        true,
    );
}

fn draw_chooser(chooser: &Chooser, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let found = chooser.matches();
    let height = (found.len() as u16 + 3).clamp(4, area.height.saturating_sub(2).max(4));
    let inner = boxed(
        shared,
        frame,
        crate::tui::modal::middle(area, 76, height),
        " Compare with (type to search) ",
        Role::Focus,
    );
    if inner.height == 0 {
        return;
    }
    let [line, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(inner);
    chooser.field.draw(
        frame,
        line,
        "/ ",
        (shared.style(Role::Accent), shared.style(Role::Text)),
        true,
    );
    let selected = chooser.list.selected(found.len());
    let width = usize::from(rest.width);
    let lines: Vec<Line<'_>> = chooser
        .list
        .window(found.len(), usize::from(rest.height))
        .map(|at| {
            let mark = if at == selected { "> " } else { "  " };
            let label = text::printable(&found[at].label);
            let line = Line::raw(text::fit(
                &format!("{mark}{label}"),
                width,
                shared.glyphs.unicode,
            ));
            if at == selected {
                line.style(shared.style(Role::Selection))
            } else {
                line
            }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), rest);
}
