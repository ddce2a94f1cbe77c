//! Multiple choice: the letter that the answer settles on, by default one of A to J (MMLU, GPQA and the like).

use std::sync::LazyLock;

use experiment::arms::Choice as Options;
use regex::Regex;
use serde_json::Value;

use super::boxed::last_boxed_inside;
use super::{Score, ScoreError, Scorer, Sees, Transcript, alternatives};
use crate::generate::BoxFuture;

/// `answer is (B)`, `Answer: **B**`, `choose option C`.
static SAID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i:\b(?:answer|choice|option|choose)\b(?:\s+(?:is|would be|option))*)[\s:=*]*(?:\\text\{)?\(?([A-Z])\b")
        .expect("a valid pattern")
});
/// A line that is nothing but the letter, perhaps with the text of its choice: `(B)`, `B.`, `**B**`, `B) Paris`.
static ALONE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^[ \t*]*(?:\(([A-Z])\)|([A-Z])(?:[.):]|[ \t*]*\r?$))")
        .expect("a valid pattern")
});

/// The scorer. 1 or 0, or `format_score` for another letter.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Choice {
    pub sees: Sees,
    pub options: Options,
}

impl Choice {
    /// The last box, else the last `answer is …`, else the last line that is a letter.
    pub fn extract(&self, text: &str) -> Option<char> {
        let last_letter = |pattern: &Regex| {
            pattern
                .captures_iter(text)
                .filter_map(|found| self.letter(found.iter().skip(1).flatten().next()?.as_str()))
                .last()
        };
        last_boxed_inside(text)
            .and_then(|inside| self.letter(inside))
            .or_else(|| last_letter(&SAID))
            .or_else(|| last_letter(&ALONE))
    }

    /// The one letter of a text such as `\text{(B)}`.
    fn letter(&self, text: &str) -> Option<char> {
        let text = text.trim();
        let text = text
            .strip_prefix("\\text{")
            .or_else(|| text.strip_prefix("\\mathrm{"))
            .or_else(|| text.strip_prefix("\\textbf{"))
            .and_then(|inside| inside.strip_suffix('}'))
            .unwrap_or(text);
        let text = text.trim_matches(|c: char| !c.is_alphanumeric());
        let mut letters = text.chars();
        let letter = letters.next()?.to_ascii_uppercase();
        let last = (b'A' + (self.options.choices.clamp(1, 26) - 1) as u8) as char;
        (letters.next().is_none() && ('A'..=last).contains(&letter)).then_some(letter)
    }

    fn truths(&self, ground_truth: &Value) -> Result<Vec<char>, ScoreError> {
        alternatives(ground_truth)
            .and_then(|truths| truths.iter().map(|truth| self.letter(truth)).collect())
            .ok_or_else(|| ScoreError::GroundTruth {
                scorer: self.name(),
                given: ground_truth.to_string(),
                expected: "the letter of a choice, or a list of these",
            })
    }
}

impl Scorer for Choice {
    fn name(&self) -> &'static str {
        "choice"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            let truths = self.truths(&transcript.ground_truth)?;
            let Some(letter) = self.extract(&transcript.text(self.sees)) else {
                return Ok(Score::of_answer(false, false));
            };
            let mut score = Score::saying(truths.contains(&letter), letter);
            if score.value == 0.0 {
                score.value = self.options.format_score;
            }
            Ok(score)
        })
    }

    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError> {
        self.truths(ground_truth).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::scorers::sample;
    use super::*;

    #[tokio::test]
    async fn the_letter_is_found_wherever_it_is_settled_on() {
        for (text, letter) in [
            ("The answer is (B).", Some('B')),
            ("Answer: C", Some('C')),
            ("**Answer:** **D**", Some('D')),
            ("\\boxed{\\text{(A)}} so not B", Some('A')),
            ("first the answer is A, no, the answer is B", Some('B')),
            ("I think\n(C)\n", Some('C')),
            ("B", Some('B')),
            ("B) Paris", Some('B')),
            ("**C**", Some('C')),
            ("A dog barks", None),
            ("The answer is Zebra", None),
            ("The answer is Z", None),
            ("", None),
        ] {
            assert_eq!(Choice::default().extract(text), letter, "{text}");
        }
        let scorer = Choice {
            options: Options {
                choices: 4,
                format_score: 0.1,
            },
            ..Choice::default()
        };
        for (text, expected) in [("Answer: B", 1.0), ("Answer: A", 0.1), ("Answer: E", 0.0)] {
            let score = scorer.score(&sample(text, json!("b"))).await;
            assert_eq!(score.expect("a score").value, expected, "{text}");
        }
        assert!(scorer.check(&json!("E")).is_err());
        assert!(scorer.check(&json!(["A", "(B)"])).is_ok());
    }
}
