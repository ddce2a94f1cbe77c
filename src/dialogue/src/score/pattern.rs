//! A regular expression over the answer. The engine has no backtracking: a pattern costs time in proportion to the text.

use experiment::arms::{Compare, Regex as Options};
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::{Score, ScoreError, Scorer, Sees, Transcript, alternatives};
use crate::generate::BoxFuture;

/// Bytes that a compiled pattern may take.
const SIZE_LIMIT: usize = 1 << 20;

/// The scorer. 1 or 0.
#[derive(Debug, Clone)]
pub struct Pattern {
    pub sees: Sees,
    regex: Regex,
    compare: Compare,
    group: usize,
}

impl Pattern {
    /// The error says what is wrong with the pattern.
    pub fn new(options: &Options, sees: Sees) -> Result<Self, String> {
        let pattern = if options.whole {
            format!("\\A(?:{})\\z", options.pattern)
        } else {
            options.pattern.clone()
        };
        let regex = RegexBuilder::new(&pattern)
            .size_limit(SIZE_LIMIT)
            .build()
            .map_err(|error| format!("pattern: {error}"))?;
        let group = options.group as usize;
        if options.compare == Compare::Truth && group >= regex.captures_len() {
            return Err(format!(
                "group is {group}, but the pattern has {} groups; put what is compared with the truth in parentheses, or set group: 0",
                regex.captures_len() - 1
            ));
        }
        Ok(Self {
            sees,
            regex,
            compare: options.compare,
            group,
        })
    }
}

impl Scorer for Pattern {
    fn name(&self) -> &'static str {
        "regex"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            let text = transcript.text(self.sees);
            let is_right = match self.compare {
                Compare::Found => self.regex.is_match(&text),
                Compare::Absent => !self.regex.is_match(&text),
                Compare::Truth => {
                    self.check(&transcript.ground_truth)?;
                    let Some(answer) = self
                        .regex
                        .captures_iter(&text)
                        .last()
                        .and_then(|found| found.get(self.group))
                    else {
                        return Ok(Score::of_answer(false, false));
                    };
                    let truths = alternatives(&transcript.ground_truth).unwrap_or_default();
                    let answer = answer.as_str().trim();
                    let is_right = truths.iter().any(|truth| truth.trim() == answer);
                    return Ok(Score::saying(is_right, answer));
                }
            };
            Ok(Score::of_answer(is_right, true))
        })
    }

    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError> {
        match self.compare {
            Compare::Truth => super::needs_text(self.name(), ground_truth),
            Compare::Found | Compare::Absent => Ok(()),
        }
    }

    fn perfect_answers(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::scorers::sample;
    use super::*;

    async fn score(options: &Options, text: &str) -> f64 {
        let scorer = Pattern::new(options, Sees::ModelText).expect("a pattern");
        let score = scorer.score(&sample(text, json!("42"))).await;
        score.expect("a score").value
    }

    #[tokio::test]
    async fn a_pattern_is_found_absent_or_captures_the_truth() {
        let mut options = Options {
            pattern: r"(\d+)\.".to_owned(),
            ..Options::default()
        };
        assert_eq!(score(&options, "it is 7.").await, 1.0);
        assert_eq!(score(&options, "it is 7").await, 0.0);
        options.whole = true;
        assert_eq!(score(&options, "it is 7.").await, 0.0);
        assert_eq!(score(&options, "7.").await, 1.0);
        options.whole = false;
        options.compare = Compare::Absent;
        assert_eq!(score(&options, "it is 7.").await, 0.0);
        options.compare = Compare::Truth;
        assert_eq!(score(&options, "7. no, 42.").await, 1.0);
        assert_eq!(score(&options, "42. no, 7.").await, 0.0);
        options.group = 2;
        let error = Pattern::new(&options, Sees::ModelText).expect_err("no group 2");
        assert!(
            error.starts_with("group is 2, but the pattern has 1 groups"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_pattern_that_would_hang_a_backtracking_engine_does_not() {
        let options = Options {
            pattern: "(a+)+$".to_owned(),
            ..Options::default()
        };
        assert_eq!(score(&options, &("a".repeat(200_000) + "b")).await, 0.0);
        for pattern in ["(", "(?=x)", "(((a{99}){99}){99}){99}"] {
            let options = Options {
                pattern: pattern.to_owned(),
                ..Options::default()
            };
            assert!(
                Pattern::new(&options, Sees::ModelText).is_err(),
                "{pattern}"
            );
        }
    }
}
