//! `lathe ctl RUN arm`: what the bandit believes of its arms, and what is done with one of them.

use runlog::control::{Command, Status};
use serde_json::json;

use super::too_much;
use crate::cli::{Failure, Output};
use crate::headless::arms;
use crate::terminal::Terminal;

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
    for line in arms::lines(&status.arms, terminal) {
        out.line(&line)?;
    }
    Ok(())
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
}
