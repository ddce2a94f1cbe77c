//! The final answer equals the ground truth.

use serde_json::Value;

use super::{Score, ScoreError, Scorer, Sees, Transcript, alternatives};
use crate::generate::BoxFuture;

/// Compares text. By default runs of white space count as one space and those at the ends as none; case counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exact {
    pub sees: Sees,
    pub normalise_whitespace: bool,
    pub ignore_case: bool,
}

impl Default for Exact {
    fn default() -> Self {
        Self {
            sees: Sees::FinalAnswer,
            normalise_whitespace: true,
            ignore_case: false,
        }
    }
}

impl Exact {
    fn normal(self, text: &str) -> String {
        let mut text = text.to_owned();
        if self.normalise_whitespace {
            text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        if self.ignore_case {
            text = text.to_lowercase();
        }
        text
    }

    fn truths(self, ground_truth: &Value) -> Result<Vec<String>, ScoreError> {
        alternatives(ground_truth).ok_or_else(|| ScoreError::GroundTruth {
            scorer: self.name(),
            given: ground_truth.to_string(),
            expected: "a string, a number or a list of these",
        })
    }
}

impl Scorer for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            let answer = self.normal(&transcript.text(self.sees));
            let is_right = self
                .truths(&transcript.ground_truth)?
                .iter()
                .any(|truth| self.normal(truth) == answer);
            Ok(if answer.is_empty() {
                Score::of_answer(is_right, false)
            } else {
                Score::saying(is_right, answer)
            })
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

    async fn score(scorer: Exact, answer: &str, truth: Value) -> f64 {
        scorer
            .score(&sample(answer, truth))
            .await
            .expect("a score")
            .value
    }

    #[tokio::test]
    async fn white_space_is_normalised_and_case_counts_unless_told_otherwise() {
        let scorer = Exact::default();
        assert_eq!(score(scorer, " 0  3\n4 ", json!("0 3 4")).await, 1.0);
        assert_eq!(score(scorer, "034", json!("0 3 4")).await, 0.0);
        assert_eq!(score(scorer, "Ulm", json!("ulm")).await, 0.0);
        let loose = Exact {
            ignore_case: true,
            ..scorer
        };
        assert_eq!(score(loose, "Ulm", json!("ulm")).await, 1.0);
        let strict = Exact {
            normalise_whitespace: false,
            ..scorer
        };
        assert_eq!(score(strict, "a ", json!("a")).await, 0.0);
    }

    #[tokio::test]
    async fn a_number_or_any_of_a_list_may_be_the_truth() {
        let scorer = Exact::default();
        assert_eq!(score(scorer, "17", json!(17)).await, 1.0);
        assert_eq!(score(scorer, "b", json!(["a", "b"])).await, 1.0);
        assert_eq!(score(scorer, "c", json!(["a", "b"])).await, 0.0);
        assert!(scorer.check(&json!({"a": 1})).is_err());
        assert!(scorer.check(&json!([])).is_err());
        assert!(scorer.check(&Value::Null).is_err());
    }
}
