//! `lathe winrate`: how often one model's answers are preferred to another's, and what is left of it at equal length.
//!
//! ```text
//!  a file of preferences ─────────────────────────────┐
//!  two runs' answers ─ their scores, or a judge ─► Preferences ─► evaluation::preferences ─► a table, or JSON
//! ```

mod answers;
mod file;

use std::path::Path;

use evaluation::preferences::{LengthControlled, Preference, WinRate, length_controlled};
use runlog::exit_code;
use serde_json::{Value, json};

use super::arguments::WinrateArguments;
use super::{Failure, Output};
use crate::headless::format;
use crate::terminal::{Role, Terminal};

/// Of one model against one reference.
struct Preferences {
    model: String,
    /// Empty: the file does not say.
    reference: String,
    /// What said which is better.
    judge: String,
    found: Vec<Preference>,
    /// Prompts without a preference.
    missing: u64,
}

pub fn winrate(
    arguments: &WinrateArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let all = if let Some(against) = &arguments.against {
        vec![answers::compared(arguments, against)?]
    } else {
        let path = Path::new(&arguments.what);
        if !path.is_file() {
            return Err(Failure::usage(format!(
                "{} is no file of preferences; for a run say which one is the reference: --against RUN",
                path.display()
            )));
        }
        file::read(path)?
    };
    for preferences in &all {
        let Some(plain) = WinRate::of(&preferences.found) else {
            return Err(Failure::input(format!(
                "{}: no prompt has a preference ({} without)",
                preferences.model, preferences.missing
            )));
        };
        let controlled = length_controlled(&preferences.found);
        if arguments.json {
            out.json(&row(preferences, &plain, controlled.as_ref()))?;
        } else {
            print(preferences, &plain, controlled.as_ref(), out, terminal)?;
        }
    }
    Ok(exit_code::OK)
}

fn row(preferences: &Preferences, plain: &WinRate, controlled: Option<&LengthControlled>) -> Value {
    json!({
        "model": preferences.model,
        "reference": preferences.reference,
        "judge": preferences.judge,
        "prompts": preferences.found.len(),
        "missing": preferences.missing,
        "win_rate": plain.win_rate,
        "standard_error": plain.standard_error,
        "wins": plain.wins,
        "losses": plain.losses,
        "draws": plain.draws,
        "discrete_win_rate": plain.discrete_win_rate,
        "length": plain.model_length,
        "reference_length": plain.reference_length,
        "length_controlled_win_rate": controlled.map(|one| one.win_rate),
        "length_controlled_standard_error": controlled.map(|one| one.standard_error),
        "length_effect": controlled.map(|one| one.length_effect),
    })
}

fn print(
    preferences: &Preferences,
    plain: &WinRate,
    controlled: Option<&LengthControlled>,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    let against = if preferences.reference.is_empty() {
        String::new()
    } else {
        format!(" against {}", preferences.reference)
    };
    out.line(&format!(
        "{}{against}, judged by {}",
        terminal.paint(Role::Strong, &preferences.model),
        preferences.judge
    ))?;
    out.line(&format!(
        "  win rate           {}",
        percent(plain.win_rate, plain.standard_error)
    ))?;
    match controlled {
        Some(controlled) => {
            let likes = match controlled.length_effect {
                effect if effect > 0.1 => ", this judge likes longer answers",
                effect if effect < -0.1 => ", this judge likes shorter answers",
                _ => "",
            };
            out.line(&format!(
                "  at equal length    {}{}",
                percent(controlled.win_rate, Some(controlled.standard_error)),
                terminal.paint(
                    Role::Muted,
                    &format!(
                        "  length effect {}{likes}",
                        format::number(controlled.length_effect)
                    )
                )
            ))?;
        }
        None => out.line("  at equal length    - (too few prompts)")?,
    }
    let missing = match preferences.missing {
        0 => String::new(),
        count => format!(", {count} without a preference"),
    };
    let facts = format!(
        "{} wins, {} draws, {} losses of {}{missing}; {} characters an answer against {}",
        plain.wins,
        plain.draws,
        plain.losses,
        format::plural(preferences.found.len() as u64, "prompt"),
        format::number(plain.model_length),
        format::number(plain.reference_length),
    );
    out.line(&format!("  {}", terminal.paint(Role::Muted, &facts)))
}

/// `41.20 ± 1.04 %`
fn percent(share: f64, error: Option<f64>) -> String {
    match error {
        Some(error) => format!("{:.2} ± {:.2} %", share * 100.0, error * 100.0),
        None => format!("{:.2} %", share * 100.0),
    }
}
