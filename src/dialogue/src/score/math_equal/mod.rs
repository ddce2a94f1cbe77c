//! Mathematical answers that are equal, however they are written: `\frac{10}{4}`, `2.5`, `5/2` and `2\tfrac12`; `\sqrt{8}` and
//! `2\sqrt2`; `(x+1)^2` and `x^2+2x+1`; `x \ge 3` and `[3, \infty)`; sets in any order; `5\text{ cm}` and `5`, but not `5` metres.
//!
//! ```text
//!  text ─► the last \boxed{…} ─► lex: tokens ─► parse: an answer ─► compare: equal values, in the same form
//! ```
//! Our own, with no reference: stricter than verl's `math`, which drops what it cannot read, and wider, because it calculates.
//! Decimals are exact (`0.33` is not `1/3`), letters keep their case, `(1,2)` is not `[1,2]`. Time and depth are bounded.

mod compare;
mod lex;
mod number;
mod parse;

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::boxed::{inside, last_boxed};
use super::{Score, ScoreError, Scorer, Sees, Transcript, alternatives};
use crate::generate::BoxFuture;

/// Longer answers are compared as text. The longest of MATH-500 has 159 characters.
const MOST_CHARACTERS: usize = 600;
const MOST_TOKENS: usize = 400;

/// `Answer: …`, `The final answer is …`, `#### …`, to the end of the line.
static ANSWER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)(?:\banswer(?:\s+is\b\s*:?|\s*:)|####)[ \t*]*([^\n]+)")
        .expect("a valid pattern")
});

/// The scorer. 1 or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MathEqual {
    pub sees: Sees,
}

impl MathEqual {
    /// The answer a solution ends with: its last box, else its last line that says `answer`.
    pub fn extract(solution: &str) -> Option<String> {
        if let Some(boxed) = last_boxed(solution) {
            return inside(&boxed).map(str::to_owned);
        }
        let line = ANSWER.captures_iter(solution).last()?;
        let text = line.get(1)?.as_str().trim();
        let formula = text.split('$').nth(1).filter(|formula| !formula.is_empty());
        Some(formula.unwrap_or(text).to_owned())
    }

    /// Whether two answers say the same.
    pub fn is_equal(left: &str, right: &str) -> bool {
        let (plain, other) = (plain(left), plain(right));
        if plain == other {
            return true;
        }
        if plain.chars().count().max(other.chars().count()) > MOST_CHARACTERS {
            return false;
        }
        let (left, right) = (readings(left), readings(right));
        left.iter()
            .any(|left| right.iter().any(|right| compare::same(left, right)))
    }
}

impl Scorer for MathEqual {
    fn name(&self) -> &'static str {
        "math_equal"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            self.check(&transcript.ground_truth)?;
            let truths = alternatives(&transcript.ground_truth).unwrap_or_default();
            let Some(answer) = Self::extract(&transcript.text(self.sees)) else {
                return Ok(Score::of_answer(false, false));
            };
            let is_right = truths.iter().any(|truth| Self::is_equal(&answer, truth));
            // Spelled alike; ½ and 0.5 are two votes.
            let says: String = answer.split_whitespace().collect();
            Ok(Score::saying(is_right, says))
        })
    }

    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError> {
        super::needs_text(self.name(), ground_truth)
    }

    fn perfect_answers(&self, ground_truth: &Value) -> Vec<String> {
        super::written(alternatives(ground_truth), "\\boxed{", "}")
    }
}

/// Without white space and layout: what is equal needs no reading.
fn plain(text: &str) -> String {
    let mut text: String = text
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '$')
        .collect();
    for layout in ["\\left", "\\right", "\\!", "\\,", "\\;"] {
        text = text.replace(layout, "");
    }
    text.replace("dfrac", "frac").replace("tfrac", "frac")
}

/// Everything a text may mean: a comma may part items or groups of digits, and `50%` may be a half.
fn readings(text: &str) -> Vec<parse::Answer> {
    let mut readings = Vec::new();
    for groups in [true, false] {
        let tokens = lex::tokens(text, groups);
        if tokens.len() > MOST_TOKENS {
            continue;
        }
        if let Some(answer) = parse::answer(&tokens) {
            readings.extend(compare::hundredth(&answer));
            readings.push(answer);
        }
    }
    readings.dedup();
    readings
}

#[cfg(test)]
mod tests;
