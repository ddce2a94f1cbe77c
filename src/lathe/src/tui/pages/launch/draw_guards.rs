//! The pane of guards, in the place of the knobs.
//!
//! ```text
//!  ┌ Guards of the current run ────────────────────────────┐
//!  │ > kl           armed                 0.0021 limit 0.02│
//!  │   perplexity   cooling down until…   3.1 limit 2.9    │
//!  │   checkpoint   step 40               reward 0.52, best│
//!  │ rollout_corr/k3_kl or actor/ppo_kl: above 0.02        │
//!  │ next sync 3 + lower_lr 0.5, rung 2 of 4; tripped once │
//!  │ step 31 sync 1: staleness 1 → staleness 0 for 1 round │
//!  └───────────────────────────────────────────────────────┘
//! ```

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::guards::{self, GuardRow, Row};
use super::{Launch, Pane, control};
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::{empty, frame as frames, text};

const NAME: usize = 14;
const WORDS: usize = 26;
/// In a pane narrower than this the words of a state are shorter.
const NARROW: usize = 70;
const FEW_WORDS: usize = 15;

pub(super) fn pane(
    page: &Launch,
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
    (border, is_alone): (Role, bool),
) {
    let title = if is_alone {
        " Guards of the current run (v: knobs) "
    } else {
        " Guards of the current run "
    };
    let block = frames::block(shared, title, border);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let status = page.control.status.as_ref();
    let rows = guards::rows(status, shared);
    if rows.is_empty() {
        let why = control::why_not(shared);
        let (what, help) = match why {
            Some(reason) if shared.current.is_none() => (reason, String::new()),
            _ if status.is_none() && why.is_none() => {
                ("Asking how it stands".to_owned(), String::new())
            }
            _ => (
                "No guard watches this run".to_owned(),
                "trainer.guards: online in the experiment turns a set of them on (docs/guards.md)"
                    .to_owned(),
            ),
        };
        empty::draw(shared, frame, inner, &what, &help);
        return;
    }
    let below = match inner.height {
        0..8 => 0,
        8..14 => 4,
        _ => 7,
    };
    let [list, more, keys] = Layout::vertical([
        Constraint::Min(1),
        Constraint::Length(below),
        Constraint::Length(u16::from(inner.height >= 4)),
    ])
    .areas(inner);
    let selected = page.guards.list.selected(rows.len());
    let window = page
        .guards
        .list
        .window(rows.len(), usize::from(list.height));
    let lines: Vec<Line<'_>> = window
        .map(|at| {
            let is_selected = at == selected && page.pane == Pane::Guards;
            let line = line(&rows[at], is_selected, shared, usize::from(list.width));
            if is_selected {
                line.style(shared.style(Role::Selection))
            } else {
                line
            }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), list);
    let words = Paragraph::new(details(&rows[selected], shared)).wrap(Wrap { trim: false });
    frame.render_widget(words, more);
    let hint = match &rows[selected] {
        _ if control::why_not(shared).is_some() => "  as its log has it; it does not run",
        Row::Guard(_) => "  m mute  t trip  z clear  v knobs",
        Row::Checkpoint(_) => "  enter or b goes back to it (asks first)  v knobs",
    };
    let hint = Line::styled(hint, shared.style(Role::Muted));
    frame.render_widget(Paragraph::new(hint), keys);
}

fn line(row: &Row, is_selected: bool, shared: &Shared, width: usize) -> Line<'static> {
    let unicode = shared.glyphs.unicode;
    let mark = if is_selected { "> " } else { "  " };
    let (name, words, role, more) = match row {
        Row::Guard(guard) => {
            let role = match (guard.is_muted, guard.is_bad) {
                (true, _) => Role::Muted,
                (false, true) => Role::Caution,
                (false, false) => Role::Good,
            };
            (guard.name.clone(), guard.words.clone(), role, value(guard))
        }
        Row::Checkpoint(checkpoint) => {
            let score = checkpoint
                .score
                .map(|score| format!("reward {}", text::number(score.0)));
            let marks: Vec<String> = score
                .into_iter()
                .chain(checkpoint.is_best.then(|| "best".to_owned()))
                .chain(checkpoint.is_good.then(|| "good".to_owned()))
                .collect();
            (
                "checkpoint".to_owned(),
                format!("step {}", checkpoint.step),
                Role::Accent,
                marks.join(", "),
            )
        }
    };
    let (words, broad) = if width < NARROW {
        let shorter = words
            .replace("cooling down until step", "cools until")
            .replace("muted until step", "muted until");
        (shorter, FEW_WORDS)
    } else {
        (words, WORDS)
    };
    let room = width.saturating_sub(2 + NAME + 1 + broad + 1);
    Line::from(vec![
        Span::raw(mark),
        Span::raw(text::pad(&text::printable(&name), NAME, unicode)),
        Span::raw(" "),
        Span::styled(text::pad(&words, broad, unicode), shared.style(role)),
        Span::raw(" "),
        Span::styled(text::fit(&more, room, unicode), shared.style(Role::Text)),
    ])
}

/// What is known beside its state: the value, or how often it tripped.
fn value(guard: &GuardRow) -> String {
    let trips = match guard.trips {
        0 => String::new(),
        1 => "tripped once".to_owned(),
        trips => format!("tripped {trips} times"),
    };
    let value = guard.value();
    match (value.is_empty(), trips.is_empty()) {
        (false, false) => format!("{value}, {trips}"),
        _ => format!("{value}{trips}"),
    }
}

fn details(row: &Row, shared: &Shared) -> Vec<Line<'static>> {
    let muted = shared.style(Role::Muted);
    let arrow = shared.glyphs.pick("→", "->");
    let guard = match row {
        Row::Guard(guard) => guard,
        Row::Checkpoint(checkpoint) => {
            return vec![Line::styled(
                format!(
                    "  weights, optimizer, controllers, knobs and data as after step {}",
                    checkpoint.step
                ),
                muted,
            )];
        }
    };
    // A log of before guards were listed in it knows no condition.
    let colon = if guard.condition.is_empty() { "" } else { ": " };
    let mut lines = vec![Line::raw(format!(
        "  {}{colon}{}",
        text::printable(&guard.watches),
        guard.condition
    ))];
    let ladder: Vec<String> = match &guard.live {
        Some(live) => {
            let mut words = vec![format!("next {}", live.next)];
            words.push(format!(
                "rung {} of {}",
                runlog::control::rung(live.relapses, guard.ladder.len()),
                guard.ladder.len()
            ));
            let (filled, window) = live.window;
            if window > 1 {
                words.push(format!("window {filled} of {window}"));
            }
            if let Some(left) = live.sync_left {
                let steps = if left == 1 { "step" } else { "steps" };
                words.push(format!("{left} {steps} still synchronous"));
            }
            words
        }
        None => vec![format!("ladder: {}", guard.ladder.join(", then "))],
    };
    if guard.live.is_some() || !guard.ladder.is_empty() {
        lines.push(Line::styled(format!("  {}", ladder.join(", ")), muted));
    }
    if let Some((step, reason, done)) = guards::last_actions(&guard.name, shared) {
        lines.push(Line::styled(
            format!("  step {step}: {}", text::printable(&reason)),
            shared.style(Role::Caution),
        ));
        for action in done {
            let role = if action.is_done {
                Role::Text
            } else {
                Role::Bad
            };
            lines.push(Line::styled(
                text::printable(&format!(
                    "  {}: {} {arrow} {}",
                    action.action, action.before, action.after
                )),
                shared.style(role),
            ));
        }
    }
    lines
}
