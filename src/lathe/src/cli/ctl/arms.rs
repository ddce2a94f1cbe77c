//! `lathe ctl RUN arm`: what the bandit believes of its arms, and what is done with one of them.

use runlog::control::{ArmState, Command, Status};
use runlog::number::Number;
use serde_json::json;

use super::too_much;
use crate::cli::{Failure, Output};
use crate::headless::format;
use crate::terminal::{Role, Terminal};

/// `force rule`, `release`, `freeze rule`, `unfreeze rule`; None: only a look at them.
pub(super) fn command(values: &[String]) -> Result<Option<Command>, Failure> {
    let (word, arm) = match values {
        [] => return Ok(None),
        [word] => (word, None),
        [word, arm] => (word, Some(arm.as_str())),
        [_, _, more, ..] => return Err(too_much(more, "arm takes what to do and one arm")),
    };
    Command::arm(word, arm).map(Some).map_err(Failure::usage)
}

/// ```text
/// rule   forced  0.712 ± 0.031  34 pulls  chance 0.881
/// judge  free    0.455 ± 0.08   12 pulls  chance 0.119  2 timed out
/// ```
pub(super) fn print(
    status: &Status,
    as_json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    if as_json {
        for arm in &status.arms {
            out.json(&json!({ "arm": arm }))?;
        }
        return Ok(());
    }
    if status.arms.is_empty() {
        out.line("no bandit chooses among arms in this run (reward.bandit.policy)")?;
    }
    for line in lines(&status.arms, terminal) {
        out.line(&line)?;
    }
    Ok(())
}

/// A line each, in columns.
pub(super) fn lines(arms: &[ArmState], terminal: Terminal) -> Vec<String> {
    let sign = terminal.glyph("±", "+-");
    let rows: Vec<[String; 5]> = arms
        .iter()
        .map(|arm| {
            [
                arm.name.clone(),
                arm.words().to_owned(),
                value(arm, sign),
                format::plural(arm.pulls, "pull"),
                arm.chance.map_or_else(String::new, |Number(chance)| {
                    format!("chance {}", format::number(chance))
                }),
            ]
        })
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; 5] = std::array::from_fn(width);
    rows.iter()
        .zip(arms)
        .map(|(row, arm)| {
            let cells: Vec<String> = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            let losses = terminal.paint(Role::Muted, &arm.losses());
            format!("{}  {losses}", cells.join("  "))
                .trim_end()
                .to_owned()
        })
        .collect()
}

/// `0.712 ± 0.031`
fn value(arm: &ArmState, sign: &str) -> String {
    match (arm.mean, arm.sd) {
        (Some(mean), Some(sd)) => {
            format!("{} {sign} {}", format::number(mean.0), format::number(sd.0))
        }
        (Some(mean), None) => format::number(mean.0),
        (None, _) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_order_is_read_from_its_words_and_no_word_is_a_look() {
        let said = |text: &str| {
            command(&words(text))
                .unwrap()
                .map(|order| order.to_string())
        };
        assert_eq!(said(""), None);
        assert_eq!(said("force rule").as_deref(), Some("arm force rule"));
        assert_eq!(said("release").as_deref(), Some("arm release"));
    }

    #[test]
    fn arms_stand_in_columns_in_characters_that_the_terminal_has() {
        let arms = [
            ArmState {
                name: "rule".to_owned(),
                pulls: 34,
                mean: Some(Number(0.712)),
                sd: Some(Number(0.031)),
                chance: Some(Number(0.881)),
                is_forced: true,
                ..ArmState::default()
            },
            ArmState {
                name: "judge".to_owned(),
                pulls: 1,
                timed_out: 2,
                ..ArmState::default()
            },
        ];
        let mut terminal = Terminal {
            to_screen: false,
            errors_to_screen: false,
            unicode: true,
            color: false,
            color_stderr: false,
            plain: true,
        };
        assert_eq!(
            lines(&arms, terminal),
            [
                "rule   forced  0.712 ± 0.0310  34 pulls  chance 0.881",
                "judge  free    unknown         1 pull                  2 timed out",
            ]
        );
        terminal.unicode = false;
        assert!(lines(&arms, terminal)[0].contains("0.712 +- 0.0310"));
    }
}
