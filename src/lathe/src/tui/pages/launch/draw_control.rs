//! The pane that controls the current run.
//!
//! ```text
//!  ┌ Control ──────────────────────────────────────────┐
//!  │ sample-ab12                                       │
//!  │ training step 13, 12 of 80 steps                  │
//!  │ p pause  r resume  n step  c checkpoint  X stop   │
//!  │ > actor.optim.lr        2e-4   was 1e-4  0 <= x <= 1 │
//!  │ 0:41 step 12: set actor.optim.lr 1e-4 → 2e-4 …    │
//!  └───────────────────────────────────────────────────┘
//! ```

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};
use runlog::control::{KNOBS, Knob};

use super::control::{self, KnobField};
use super::{Launch, Mode, Pane};
use crate::tui::shared::{RunKey, Shared};
use crate::tui::theme::Role;
use crate::tui::widgets::{empty, frame as frames, text};

/// Lines over the knobs, inside of the frame.
pub const ROWS_ABOVE: u16 = 4;
/// Columns of a knob's name and value.
const NAME: usize = 26;
const VALUE: usize = 9;

pub(super) fn pane(
    page: &Launch,
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
    (border, is_alone): (Role, bool),
) {
    let title = if is_alone {
        " Control of the current run (tab: start, queue) "
    } else {
        " Control of the current run "
    };
    let block = frames::block(shared, title, border);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if let Some(reason) = control::why_not(shared) {
        let mut help =
            "a running run can be paused, stepped, stopped, and its knobs set".to_owned();
        let changes = history(shared);
        if !changes.is_empty() {
            help = format!("{help}\n\nits history:\n{}", changes.join("\n"));
        }
        empty::draw(shared, frame, inner, &capital(&reason), &help);
        return;
    }
    let changes = history(shared);
    let history_height = (changes.len() as u16 + 1).min(inner.height / 4);
    let [head, knobs, help, past] = Layout::vertical([
        Constraint::Length(ROWS_ABOVE),
        Constraint::Min(1),
        Constraint::Length(u16::from(inner.height > 9) * 3),
        Constraint::Length(if changes.is_empty() {
            0
        } else {
            history_height
        }),
    ])
    .areas(inner);
    frame.render_widget(Paragraph::new(head_lines(page, shared)), head);
    draw_knobs(page, shared, frame, knobs);
    let knob = &KNOBS[page.control.list.selected(KNOBS.len())];
    let (words, role) = match &page.mode {
        Mode::Knob(KnobField {
            problem: Some(problem),
            ..
        }) => (format!("error: {problem}"), Role::Bad),
        _ => (about(page, knob), Role::Muted),
    };
    let lines: Vec<Line<'_>> = text::wrap(&words, usize::from(help.width).saturating_sub(3))
        .into_iter()
        .map(|line| Line::styled(format!("  {line}"), shared.style(role)))
        .collect();
    frame.render_widget(Paragraph::new(lines), help);
    if past.height > 0 {
        let mut lines = vec![Line::styled("  Changed so far:", shared.style(Role::Title))];
        lines.extend(changes.iter().map(|change| {
            Line::raw(text::fit(
                &format!("  {change}"),
                usize::from(past.width),
                shared.glyphs.unicode,
            ))
        }));
        frame.render_widget(Paragraph::new(lines), past);
    }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(characters).collect()
    })
}

/// The run's changes, newest first.
fn history(shared: &Shared) -> Vec<String> {
    let arrow = shared.glyphs.pick("→", "->");
    shared.current_run().map_or_else(Vec::new, |run| {
        let records = run.state.controls.iter().rev();
        records
            .map(|record| text::printable(&control::record_line(record, arrow)))
            .collect()
    })
}

fn head_lines(page: &Launch, shared: &Shared) -> Vec<Line<'static>> {
    let control = &page.control;
    let name = shared
        .current
        .as_ref()
        .map(RunKey::name)
        .unwrap_or_default();
    let mut stands = Vec::new();
    match (&control.status, &control.problem) {
        (Some(status), _) => {
            stands.push(Span::raw(format!(
                "  {}, {} of {} steps",
                text::printable(&status.doing),
                status.step,
                status.total_steps
            )));
            let mut word = |text: &str, role| {
                stands.push(Span::styled(format!("  {text}"), shared.style(role)));
            };
            if status.is_paused {
                word("paused", Role::Caution);
            }
            if status.is_stopping {
                word("stopping", Role::Caution);
            }
            if status.waiting > 0 {
                word(&format!("{} waiting", status.waiting), Role::Muted);
            }
            // A glance at a healthy run shows turns of the moment; what is worth a word has lasted.
            if let Some(wait) = status.waits.first()
                && wait.age_s >= 1.0
            {
                let name = text::printable(&wait.name);
                word(
                    &format!("oldest wait {:.0} s: {name}", wait.age_s),
                    Role::Muted,
                );
            }
        }
        (None, Some(problem)) => stands.push(Span::styled(
            format!("  {}", text::printable(problem)),
            shared.style(Role::Bad),
        )),
        (None, None) => stands.push(Span::styled(
            "  asking how it stands",
            shared.style(Role::Muted),
        )),
    }
    let actions = Line::styled(
        "  p pause  r resume  n step  c save  X stop  v guards",
        shared.style(Role::Muted),
    );
    let told = match (&control.told, control.waiting) {
        (_, 1..) => Line::styled("  waiting for its answer", shared.style(Role::Muted)),
        (Some((true, words)), _) => Line::styled(
            format!("  {}", text::printable(words)),
            shared.style(Role::Good),
        ),
        (Some((false, words)), _) => Line::styled(
            format!("  {}", text::printable(words)),
            shared.style(Role::Bad),
        ),
        (None, _) => Line::default(),
    };
    let name = Line::styled(
        format!("  {}", text::printable(&name)),
        shared.style(Role::Title),
    );
    vec![name, Line::from(stands), told, actions]
}

fn draw_knobs(page: &Launch, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let selected = page.control.list.selected(KNOBS.len());
    let is_focused = page.pane == Pane::Control;
    let window = page
        .control
        .list
        .window(KNOBS.len(), usize::from(area.height));
    let top = window.start;
    let lines: Vec<Line<'_>> = window
        .map(|at| {
            let is_selected = at == selected && is_focused;
            let line = knob_line(
                page,
                &KNOBS[at],
                is_selected,
                shared,
                usize::from(area.width),
            );
            if is_selected {
                line.style(shared.style(Role::Selection))
            } else {
                line
            }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
    if let Mode::Knob(typed) = &page.mode
        && selected >= top
    {
        let y = area.y + (selected - top) as u16;
        let x = area.x + 2;
        let place = Rect::new(x, y, area.right().saturating_sub(x), 1);
        frame.render_widget(Clear, place);
        let styles = (shared.style(Role::Accent), shared.style(Role::Text));
        let label = format!("{} = ", typed.knob.name);
        typed.field.draw(frame, place, &label, styles, true);
    }
}

/// `0 <= x <= 8, whole policy versions`
fn allowed(knob: &Knob) -> String {
    if knob.unit.is_empty() {
        knob.range()
    } else {
        format!("{} {}", knob.range(), knob.unit)
    }
}

/// What the selected knob is, what it may be, and what it was.
fn about(page: &Launch, knob: &Knob) -> String {
    let state = page.control.knob_state(knob);
    let first = state.and_then(|state| state.started_with);
    let was = first.map_or_else(String::new, |first| {
        format!("; the run started with {}", text::number(first.0))
    });
    let more = match state.and_then(|state| state.why_not.as_deref()) {
        Some(why_not) => format!("Cannot be set: {}.", text::printable(why_not)),
        None => format!("Allowed: {}{was}.", allowed(knob)),
    };
    format!("{} {more}", knob.help)
}

fn knob_line(
    page: &Launch,
    knob: &Knob,
    is_selected: bool,
    shared: &Shared,
    width: usize,
) -> Line<'static> {
    let unicode = shared.glyphs.unicode;
    let mark = if is_selected { "> " } else { "  " };
    let state = page.control.knob_state(knob);
    let value = state
        .and_then(|state| state.value)
        .map_or_else(|| "-".to_owned(), |value| text::number(value.0));
    let first = state.and_then(|state| state.started_with);
    let is_changed = first.is_some() && first != state.and_then(|state| state.value);
    let room = width.saturating_sub(2 + NAME + 1 + VALUE + 2);
    let was = match first {
        Some(first) if is_changed => format!("was {}  ", text::number(first.0)),
        _ => String::new(),
    };
    // The longest that fits whole; all of it stands below the list for the selected knob.
    let choices = match state.and_then(|state| state.why_not.as_deref()) {
        Some(why_not) => vec![text::printable(why_not), "cannot be set".to_owned()],
        None => vec![
            format!("{was}{}", allowed(knob)),
            format!("{was}{}", knob.range()),
            was,
        ],
    };
    let more = choices
        .into_iter()
        .find(|words| text::width(words.trim_end()) <= room)
        .unwrap_or_default();
    let role = if is_changed {
        Role::Caution
    } else {
        Role::Accent
    };
    Line::from(vec![
        Span::raw(mark),
        Span::raw(text::pad(knob.name, NAME, unicode)),
        Span::raw(" "),
        Span::styled(text::pad_left(&value, VALUE, unicode), shared.style(role)),
        Span::raw("  "),
        Span::styled(text::fit(&more, room, unicode), shared.style(Role::Muted)),
    ])
}
