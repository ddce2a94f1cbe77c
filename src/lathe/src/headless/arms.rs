//! The arms of a bandit as lines: what is believed of each, and how often it was chosen.

use runlog::control::ArmState;
use runlog::number::Number;

use super::format;
use crate::terminal::{Role, Terminal};

/// A line each, in columns.
pub fn lines(arms: &[ArmState], terminal: Terminal) -> Vec<String> {
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

/// `0.712 ± 0.031`; of values that are all the same how many they are, since that says nothing of the next.
fn value(arm: &ArmState, sign: &str) -> String {
    match (arm.mean, arm.sd) {
        (Some(mean), Some(Number(0.0))) => {
            format!("{} ({})", format::number(mean.0), alike(arm.counted))
        }
        (Some(mean), Some(sd)) => {
            format!("{} {sign} {}", format::number(mean.0), format::number(sd.0))
        }
        (Some(mean), None) => format::number(mean.0),
        (None, _) => "unknown".to_owned(),
    }
}

/// `1 value`, `4 alike`
pub fn alike(counted: u64) -> String {
    match counted {
        1 => "1 value".to_owned(),
        counted => format!("{counted} alike"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ArmState {
                name: "brief".to_owned(),
                pulls: 4,
                counted: 4,
                mean: Some(Number(1.0)),
                sd: Some(Number(0.0)),
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
                "brief  free    1.00 (4 alike)  4 pulls",
            ]
        );
        terminal.unicode = false;
        assert!(lines(&arms, terminal)[0].contains("0.712 +- 0.0310"));
    }
}
