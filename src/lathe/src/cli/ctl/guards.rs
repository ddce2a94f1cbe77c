//! `lathe ctl RUN guards`: what watches the run, how each guard stands, and the checkpoints to go back to.

use runlog::control::{CheckpointState, GuardState, Status};
use serde_json::json;

use crate::cli::{Failure, Output};
use crate::headless::format;
use crate::terminal::{Role, Terminal};

/// ```text
/// kl          armed                     0.0021 of above 0.02
///             rollout_corr/k3_kl or actor/ppo_kl; next: sync 1 (rung 1); tripped 2 times
/// checkpoints 0 5 10 (reward 0.52, best) 15 (good)
/// ```
pub(super) fn print(
    status: &Status,
    as_json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    if as_json {
        for guard in &status.guards {
            out.json(&json!({ "guard": guard }))?;
        }
        for checkpoint in &status.checkpoints {
            out.json(&json!({ "checkpoint": checkpoint }))?;
        }
        return Ok(());
    }
    if status.guards.is_empty() {
        out.line("no guard watches this run (trainer.guards)")?;
    }
    let widest = status
        .guards
        .iter()
        .map(|guard| guard.name.chars().count())
        .max()
        .unwrap_or(0)
        .max("checkpoints".len());
    let states: Vec<String> = status.guards.iter().map(GuardState::words).collect();
    let broadest = states.iter().map(String::len).max().unwrap_or(0);
    for (guard, state) in status.guards.iter().zip(&states) {
        out.line(&format!(
            "{:widest$}  {state:broadest$}  {}",
            guard.name,
            value(guard)
        ))?;
        out.line(&format!(
            "{:widest$}  {}",
            "",
            terminal.paint(Role::Muted, &more(guard))
        ))?;
    }
    let listed: Vec<String> = status.checkpoints.iter().map(checkpoint).collect();
    if !listed.is_empty() {
        out.line(&format!("{:widest$}  {}", "checkpoints", listed.join("  ")))?;
    }
    Ok(())
}

/// In the short status: only what is out of the ordinary.
pub(super) fn print_alert(status: &Status, out: &mut Output) -> Result<(), Failure> {
    for guard in &status.guards {
        let is_quiet = !guard.is_muted && guard.cools_until.is_none() && guard.streak == 0;
        if !is_quiet || guard.sync_left.is_some() {
            let sync = guard.sync_left.map_or_else(String::new, |left| {
                format!(", {} still synchronous", format::plural(left, "step"))
            });
            out.line(&format!("  guard {} {}{sync}", guard.name, guard.words()))?;
        }
    }
    Ok(())
}

fn value(guard: &GuardState) -> String {
    let number = |value: Option<runlog::number::Number>| {
        value.map_or_else(|| "-".to_owned(), |value| format::number(value.0))
    };
    let is_alarm = guard.watches.starts_with("alarm ");
    match (is_alarm, guard.value) {
        (true, Some(value)) if value.0 > 0.5 => "raised".to_owned(),
        (true, _) => "not raised".to_owned(),
        (false, _) => format!(
            "{} now, limit {}: {}",
            number(guard.value),
            number(guard.limit),
            guard.condition
        ),
    }
}

fn more(guard: &GuardState) -> String {
    let mut words = format!(
        "{}; next: {} (rung {} of {})",
        guard.watches,
        guard.next,
        guard.rung(),
        guard.ladder.len()
    );
    if guard.window > 1 {
        words = format!(
            "{words}; window {} of {}",
            guard.window_filled, guard.window
        );
    }
    if guard.trips > 0 {
        let times = format::plural(guard.trips, "time");
        words = format!("{words}; tripped {times} in all");
    }
    if let Some(left) = guard.sync_left {
        words = format!(
            "{words}; {} still synchronous",
            format::plural(left, "step")
        );
    }
    words
}

/// `10 (reward 0.52, best)`
fn checkpoint(state: &CheckpointState) -> String {
    let score = state
        .score
        .map(|score| format!("reward {}", format::number(score.0)));
    let marks: Vec<String> = score
        .into_iter()
        .chain(state.is_best.then(|| "best".to_owned()))
        .chain(state.is_good.then(|| "good".to_owned()))
        .collect();
    if marks.is_empty() {
        state.step.to_string()
    } else {
        format!("{} ({})", state.step, marks.join(", "))
    }
}
