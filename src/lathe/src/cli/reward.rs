//! `lathe reward train`: what is told of a reward model when it has learned.

use runlog::number::Values;
use runlog::state::RunState;

use super::{Failure, Output};
use crate::headless::format;
use crate::terminal::{Role, Terminal};

/// The last evaluation on held-out answers.
pub fn table(state: &RunState, out: &mut Output, terminal: Terminal) -> Result<(), Failure> {
    let Some(last) = state.evals.last() else {
        return Ok(());
    };
    out.line("")?;
    let title = format!("{} held-out rows", last.samples);
    out.line(&terminal.paint(Role::Strong, &title))?;
    for line in lines(&last.values) {
        out.line(&line)?;
    }
    out.line(&format!(
        "  {}",
        terminal.paint(
            Role::Muted,
            "the rest, with its reliability by confidence, is in the run's reward.json"
        )
    ))
}

fn lines(values: &Values) -> Vec<String> {
    let of = |name: &str| values.get(name).map(|value| value.0);
    let rows = [
        (
            "accuracy",
            "val/accuracy",
            Some("val/accuracy/standard_error"),
        ),
        ("longer wins", "val/longer_wins", None),
        ("loss", "val/loss", None),
        ("calibration", "val/calibration_error", None),
        ("rmse", "val/rmse", None),
        ("correlation", "val/correlation", None),
    ];
    rows.iter()
        .filter_map(|(label, name, error)| {
            let value = format::number(of(name)?);
            let error = error
                .and_then(of)
                .map_or_else(String::new, |error| format!(" ± {}", format::number(error)));
            Some(format!("  {label:<14} {value}{error}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use runlog::number::Number;

    use super::*;

    #[test]
    fn what_was_measured_is_told_with_its_error_and_nothing_else() {
        let values: Values = [
            ("val/accuracy", 0.75),
            ("val/accuracy/standard_error", 0.02),
            ("val/longer_wins", 0.5),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Number(value)))
        .collect();
        assert_eq!(
            lines(&values),
            ["  accuracy       0.750 ± 0.0200", "  longer wins    0.500"]
        );
    }
}
