//! The page on the screen.
//!
//! ```text
//!  ┌ Start ─────────────────────────┐┌ Queue ─────────────────────┐
//!  │ experiment  quickstart.yaml    ││ ▸ running   quick-lr-1e-5  │
//!  │ override    actor.optim.lr=…   ││   waiting   quick-lr-3e-5  │
//!  │ 2 runs: …                      │└────────────────────────────┘
//!  └────────────────────────────────┘ one pane at a time where it is narrow
//! ```

use experiment::Severity;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Wrap};

use super::dry_run::DryRun;
use super::form::Row;
use super::queue::{Item, Stage};
use super::sweep::{self, Combine};
use super::typing::OverrideField;
use super::{Launch, Mode, Pane, Picker, draw_control, draw_guards};
use crate::launch::Job;
use crate::tui::modal::boxed;
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::{empty, frame as frames, text};

/// Narrower than this, one pane is shown at a time.
const WIDE: u16 = 110;
/// Columns of the words before a line's value.
const LABEL: usize = 12;

/// The panes on the screen and their frames.
pub(super) fn panes(page: &Launch, area: Rect) -> Vec<(Pane, Rect)> {
    if area.width < WIDE {
        return vec![(page.pane, area)];
    }
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let queue_height = if page.queue.items().is_empty() {
        6
    } else {
        (page.queue.items().len() as u16 + 5).min(right.height / 2)
    };
    let [above, below] =
        Layout::vertical([Constraint::Length(queue_height), Constraint::Min(0)]).areas(right);
    vec![
        (Pane::Start, left),
        (Pane::Queue, above),
        match page.pane {
            Pane::Guards => (Pane::Guards, below),
            _ => (Pane::Control, below),
        },
    ]
}

/// About how many rows a page of a list has.
pub(super) fn body_rows(shared: &Shared) -> usize {
    usize::from(shared.rows.saturating_sub(6)).max(1)
}

pub(super) fn page(page: &Launch, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let panes = panes(page, area);
    let is_alone = panes.len() == 1;
    for (pane, place) in panes {
        let border = if pane == page.pane {
            Role::Focus
        } else {
            Role::Border
        };
        match pane {
            Pane::Start => start(page, shared, frame, place, (border, is_alone)),
            Pane::Queue => queue(page, shared, frame, place, (border, is_alone)),
            Pane::Control => draw_control::pane(page, shared, frame, place, (border, is_alone)),
            Pane::Guards => draw_guards::pane(page, shared, frame, place, (border, is_alone)),
        }
    }
    if let Mode::Choose(picker) = &page.mode {
        choose(page, picker, shared, frame, area);
    }
}

fn start(
    page: &Launch,
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
    (border, is_alone): (Role, bool),
) {
    let queued = page.queue.items().len();
    let title = match (is_alone, queued) {
        (false, _) => " Start ".to_owned(),
        (true, 0) => " Start (tab: queue, control) ".to_owned(),
        (true, _) => format!(" Start (tab: queue of {queued}, control) "),
    };
    let block = frames::block(shared, &title, border);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if page.form.source.is_none() {
        let help = "o chooses an experiment\nO takes the one of the current run, to start it again with changes\n\
                    on page Config, L brings the experiment here";
        empty::draw(shared, frame, inner, "Nothing to start yet", help);
        return;
    }
    let rows = page.form.rows();
    // The form never pushes what it makes off the screen.
    let most = usize::from(inner.height).saturating_sub(3).max(1);
    let form_height = rows.len().min(most) as u16;
    let [form, below] =
        Layout::vertical([Constraint::Length(form_height), Constraint::Min(0)]).areas(inner);
    let selected = page.rows.selected(rows.len());
    let window = page.rows.window(rows.len(), usize::from(form_height));
    let top = window.start;
    let is_focused = page.pane == Pane::Start;
    let width = usize::from(form.width);
    let lines: Vec<Line<'_>> = window
        .map(|at| {
            let line = form_line(page, rows[at], at == selected, shared, width);
            if at == selected && is_focused {
                line.style(shared.style(Role::Selection))
            } else {
                line
            }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), form);
    let cursor_row = form.y + selected.saturating_sub(top).min(usize::from(form_height)) as u16;
    match &page.mode {
        Mode::Name(field) | Mode::AtOnce(field) => {
            value_field(field, shared, frame, form, cursor_row);
        }
        Mode::Override(typed) => {
            override_field(page, typed, shared, frame, below);
            return;
        }
        Mode::None | Mode::Choose(_) | Mode::Knob(_) => {}
    }
    let lines = match &page.dry_run {
        Some(dry_run) => dry_run_lines(dry_run, shared),
        None => outcome_lines(page, shared, usize::from(below.height)),
    };
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), below);
}

fn form_line(
    page: &Launch,
    row: Row,
    is_selected: bool,
    shared: &Shared,
    width: usize,
) -> Line<'static> {
    let choices = page.form.choices();
    let (label, value, role) = match row {
        Row::Experiment => (
            "experiment",
            page.form
                .source
                .as_ref()
                .map_or_else(String::new, |source| source.name.clone()),
            Role::Accent,
        ),
        Row::Name if choices.name.is_empty() => (
            "name",
            format!("{} (the experiment's own)", page.form.base_name),
            Role::Muted,
        ),
        Row::Name => ("name", choices.name.clone(), Role::Accent),
        Row::Job => (
            "does",
            match (page.form.job(), page.form.jobs.len() > 1) {
                (Job::Run, _) => "run: reinforcement learning (enter: sft, the warm-up)",
                (Job::Sft, true) => "sft: the supervised warm-up (enter: run)",
                (Job::Sft, false) => "sft: a supervised warm-up",
                (Job::Reward, _) => "reward train: a reward model from preferences",
            }
            .to_owned(),
            Role::Accent,
        ),
        Row::Target => (
            "target",
            match &choices.target {
                None => "local: this machine (enter: another)".to_owned(),
                Some(name) => format!("{name} (enter: the next)"),
            },
            if choices.target.is_some() {
                Role::Accent
            } else {
                Role::Muted
            },
        ),
        Row::Override(at) => ("override", choices.overrides[at].clone(), Role::Accent),
        Row::Add => (
            "",
            "a adds an override: a.b=v, or a.b={v,w} to sweep".to_owned(),
            Role::Muted,
        ),
        Row::Combine => (
            "sweep",
            match choices.combine {
                Combine::Grid => "grid: every combination (enter: zip)",
                Combine::Zip => "zip: the lists in step (enter: grid)",
            }
            .to_owned(),
            Role::Accent,
        ),
        Row::AtOnce => (
            "at a time",
            match (choices.at_once, page.scheduler()) {
                (_, Some(target)) => format!("as many as the queue of {target} allows"),
                (1, None) => "1 run".to_owned(),
                (count, None) => format!("{count} runs"),
            },
            Role::Accent,
        ),
    };
    let mark = if is_selected { "> " } else { "  " };
    let unicode = shared.glyphs.unicode;
    let room = width.saturating_sub(LABEL + 2);
    Line::from(vec![
        Span::raw(mark),
        Span::styled(text::pad(label, LABEL, unicode), shared.style(Role::Text)),
        Span::styled(
            text::fit(&text::printable(&value), room, unicode),
            shared.style(role),
        ),
    ])
}

fn value_field(
    field: &crate::tui::widgets::field::Field,
    shared: &Shared,
    frame: &mut Frame<'_>,
    form: Rect,
    y: u16,
) {
    let x = form.x + (LABEL as u16 + 2).min(form.width.saturating_sub(1));
    let place = Rect::new(x, y, form.right().saturating_sub(x), 1);
    frame.render_widget(Clear, place);
    let styles = (shared.style(Role::Accent), shared.style(Role::Text));
    field.draw(frame, place, "", styles, true);
}

/// The field, what is wrong so far, and what may follow.
fn override_field(
    page: &Launch,
    typed: &OverrideField,
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    if area.height == 0 {
        return;
    }
    let [field, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let role = if typed.problem.is_some() {
        Role::Bad
    } else {
        Role::Text
    };
    let styles = (shared.style(Role::Accent), shared.style(role));
    typed.field.draw(frame, field, "  override: ", styles, true);
    let mut lines = Vec::new();
    if let Some(problem) = &typed.problem {
        lines.push(said(Some(Severity::Error), problem, shared));
    } else if let Some(key) = typed_key(typed.field.text()) {
        lines.push(Line::styled(key, shared.style(Role::Muted)));
    }
    if typed.is_whole() {
        lines.extend(checked_lines(page, shared, 4));
    }
    let selected = typed.list.selected(typed.completions.len());
    for (at, completion) in typed.completions.iter().enumerate() {
        let mark = if at == selected { "  > " } else { "    " };
        let tab = if at == selected {
            "  (tab takes it)"
        } else {
            ""
        };
        let line = Line::raw(format!("{mark}{completion}{tab}"));
        lines.push(if at == selected {
            line.style(shared.style(Role::Selection))
        } else {
            line
        });
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), rest);
}

/// What the table says of the key that is typed.
fn typed_key(typed: &str) -> Option<String> {
    let key = typed.split('=').next()?.trim_start_matches(['+', '~']);
    let live = experiment::keys::find(&experiment::keys::canonical(key.trim()).path)?;
    let name = live.path.rsplit('.').next().unwrap_or(&live.path);
    let range = live.kind.range(name);
    let holds = if range.is_empty() {
        live.kind.noun()
    } else {
        format!("{}, {range}", live.kind.noun())
    };
    let unit = if live.unit.is_empty() {
        String::new()
    } else {
        format!(" {}", live.unit)
    };
    Some(format!(
        "  {} ({holds}; default {}{unit})",
        live.help, live.default
    ))
}

fn said(severity: Option<Severity>, message: &str, shared: &Shared) -> Line<'static> {
    let (word, role) = match severity {
        Some(Severity::Error) => ("  error: ", Role::Bad),
        Some(Severity::Warning) => ("  warning: ", Role::Caution),
        Some(Severity::Note) => ("  note: ", Role::Muted),
        None => ("  ", Role::Text),
    };
    Line::from(vec![
        Span::styled(word, shared.style(role)),
        Span::raw(text::printable(message)),
    ])
}

/// What is wrong, or the runs that `s` starts.
fn outcome_lines(page: &Launch, shared: &Shared, height: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    let mut complaints: Vec<_> = page.form.complaints.iter().collect();
    complaints.sort_by_key(|complaint| complaint.severity);
    let plan = match &page.form.plan {
        Ok(plan) => plan,
        Err(reason) => {
            lines.push(said(Some(Severity::Error), reason, shared));
            return lines;
        }
    };
    let errors = page.form.errors();
    if errors > 0 {
        lines.push(Line::styled("  It cannot run:", shared.style(Role::Title)));
    }
    lines.extend(
        complaints
            .iter()
            .filter(|complaint| complaint.severity != Severity::Note)
            .map(|complaint| said(Some(complaint.severity), &complaint.to_string(), shared)),
    );
    if errors > 0 {
        return lines;
    }
    lines.extend(checked_lines(
        page,
        shared,
        height.saturating_sub(lines.len() + 2).max(1),
    ));
    if page.checking.errors() > 0 {
        return lines;
    }
    let heading = match plan.len() {
        1 => format!("  s starts {}; d tries it first", page.form.base_name),
        count => format!("  s queues {count} runs; d tries them first"),
    };
    lines.push(Line::styled(heading, shared.style(Role::Title)));
    if let Some((_, run)) = page
        .form
        .source
        .as_ref()
        .and_then(|source| source.parent.as_ref())
    {
        lines.push(Line::styled(
            format!("  as a child of {}", text::printable(run)),
            shared.style(Role::Muted),
        ));
    }
    if plan.len() > 1 {
        let room = height.saturating_sub(lines.len() + 1).max(1);
        for planned in plan.iter().take(room) {
            lines.push(Line::raw(format!(
                "    {}",
                text::printable(&sweep::run_name(&page.form.base_name, &planned.label))
            )));
        }
        if plan.len() > room {
            lines.push(Line::styled(
                format!("    and {} more", plan.len() - room),
                shared.style(Role::Muted),
            ));
        }
    }
    lines
}

/// What is wrong with which runs of a sweep beside what is wrong with the first, in at most `most` lines.
fn checked_lines(page: &Launch, shared: &Shared, most: usize) -> Vec<Line<'static>> {
    let found: Vec<_> = page.checking.found(&page.form.complaints).collect();
    let room = if found.len() > most { most - 1 } else { most };
    let mut lines: Vec<Line<'static>> = found
        .iter()
        .take(room)
        .map(|found| said(Some(found.complaint.severity), &found.words(), shared))
        .collect();
    if found.len() > room {
        lines.push(Line::styled(
            format!("  and {} more complaints", found.len() - room),
            shared.style(Role::Muted),
        ));
    }
    let (done, all) = page.checking.progress();
    if done < all && all > 1 {
        lines.push(Line::styled(
            format!("  {done} of {all} runs checked"),
            shared.style(Role::Muted),
        ));
    }
    lines
}

fn dry_run_lines(dry_run: &DryRun, shared: &Shared) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    let DryRun::Done(told) = dry_run else {
        lines.push(Line::styled(
            "  Trying model, data, tools and scorer",
            shared.style(Role::Title),
        ));
        return lines;
    };
    lines.push(match dry_run.errors() {
        Some(0) => Line::styled(
            "  Dry run: ok, it can run (esc closes)",
            shared.style(Role::Good),
        ),
        errors => Line::styled(
            format!("  Dry run: {} wrong (esc closes)", errors.unwrap_or(0)),
            shared.style(Role::Bad),
        ),
    });
    lines.extend(
        told.iter()
            .map(|line| said(line.severity, &line.text, shared)),
    );
    lines
}

fn queue(
    page: &Launch,
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
    (border, is_alone): (Role, bool),
) {
    let items = page.queue.items();
    let title = if is_alone {
        " Queue (tab: control, start) "
    } else {
        " Queue "
    };
    let block = frames::block(shared, title, border);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if items.is_empty() {
        let help = "s on the left starts runs; those of a sweep wait here for their turn";
        let help = if is_alone {
            "s in the start pane (tab) starts runs; those of a sweep wait here for their turn"
        } else {
            help
        };
        empty::draw(shared, frame, inner, "The queue is empty", help);
        return;
    }
    let waiting = page.queue.waiting();
    let note_height = if waiting > 0 { 2 } else { 0 };
    let [list, note] =
        Layout::vertical([Constraint::Min(1), Constraint::Length(note_height)]).areas(inner);
    let selected = page.queue_list.selected(items.len());
    let lines: Vec<Line<'_>> = page
        .queue_list
        .window(items.len(), usize::from(list.height))
        .map(|at| {
            let is_selected = at == selected && page.pane == Pane::Queue;
            let line = queue_line(&items[at], is_selected, shared, usize::from(list.width));
            if is_selected {
                line.style(shared.style(Role::Selection))
            } else {
                line
            }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), list);
    if waiting > 0 {
        let words = format!(
            "{waiting} waiting, {} at a time; what waits ends with the workbench, what has started goes on",
            page.form.choices().at_once
        );
        frame.render_widget(
            Paragraph::new(Line::styled(words, shared.style(Role::Caution)))
                .wrap(Wrap { trim: true }),
            note,
        );
    }
}

fn queue_line(item: &Item, is_selected: bool, shared: &Shared, width: usize) -> Line<'static> {
    let (word, role, more) = match &item.stage {
        Stage::Waiting => ("waiting", Role::Muted, String::new()),
        Stage::Starting => ("starting", Role::Accent, String::new()),
        Stage::Running(_) => ("running", Role::Accent, String::new()),
        Stage::Ended(_, word) => (
            *word,
            if *word == "finished" {
                Role::Good
            } else {
                Role::Caution
            },
            String::new(),
        ),
        Stage::Failed(reason) => (
            "failed",
            Role::Bad,
            reason.lines().next().unwrap_or_default().to_owned(),
        ),
    };
    let unicode = shared.glyphs.unicode;
    let mark = if is_selected { "> " } else { "  " };
    let name = text::printable(&item.name);
    let room = width.saturating_sub(12);
    let label = if more.is_empty() {
        name
    } else {
        format!("{name}: {}", text::printable(&more))
    };
    Line::from(vec![
        Span::raw(mark),
        Span::styled(text::pad(word, 10, unicode), shared.style(role)),
        Span::raw(text::fit(&label, room, unicode)),
    ])
}

fn choose(page: &Launch, picker: &Picker, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let files = match &page.files {
        Some(Ok(found)) => found.as_slice(),
        _ => &[],
    };
    let height = (files.len() as u16 + 3).clamp(6, area.height.saturating_sub(2).max(6));
    let inner = boxed(
        shared,
        frame,
        crate::tui::modal::middle(area, 76, height),
        " Which experiment? (type to search, enter takes it, esc leaves) ",
        Role::Focus,
    );
    let [line, inner] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(inner);
    let styles = (shared.style(Role::Accent), shared.style(Role::Text));
    picker.field.draw(frame, line, "/", styles, true);
    let found = picker.matches(files);
    if found.is_empty() {
        let words = match &page.files {
            Some(Ok(files)) if !files.is_empty() => {
                "None has that in its name or first words".to_owned()
            }
            None => "Looking for experiments".to_owned(),
            Some(Err(reason)) => reason.clone(),
            Some(Ok(_)) => format!("There is none in {}", shared.project.experiments.display()),
        };
        empty::draw(shared, frame, inner, &words, "");
        return;
    }
    let selected = picker.list.selected(found.len());
    let unicode = shared.glyphs.unicode;
    let width = usize::from(inner.width);
    let lines: Vec<Line<'_>> = picker
        .list
        .window(found.len(), usize::from(inner.height))
        .map(|at| {
            let mark = if at == selected { "> " } else { "  " };
            let name = found[at]
                .path
                .file_name()
                .map(|name| text::printable(&name.to_string_lossy()))
                .unwrap_or_default();
            let about = text::fit(
                &text::printable(&found[at].about),
                width.saturating_sub(26),
                unicode,
            );
            let line = Line::from(vec![
                Span::raw(mark),
                Span::raw(text::pad(&name, 24, unicode)),
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
