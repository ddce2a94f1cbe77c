//! Exact match of a searching agent's answer, as verl's `search_r1_like_qa_em` scores it: the last `<answer>…</answer>`, in lower
//! case, without punctuation and articles, is one of the truths.
//!
//! Search-R1, <https://arxiv.org/abs/2503.09516>; the normalisation is `SQuAD`'s, Rajpurkar et al., <https://arxiv.org/abs/1606.05250>.
//! An answer in a text with more than ten tags of a kind counts a quarter, so that a model does not learn to spray them.

use serde_json::Value;

use super::boxed::is_space;
use super::{Score, ScoreError, Scorer, Sees, Transcript, alternatives};
use crate::generate::BoxFuture;

const OPEN: &str = "<answer>";
const CLOSE: &str = "</answer>";
/// Tags of a kind that a text may have.
const MOST_TAGS: usize = 10;

/// The exact-match scorer. 1 or 0, or `format_score` for a wrong answer between its tags.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SearchEm {
    pub sees: Sees,
    /// 0 in verl.
    pub format_score: f64,
    /// A truth inside the answer is enough (`compute_score_subem`).
    pub substring: bool,
}

impl SearchEm {
    /// What stands between the last pair of tags.
    pub fn extract(solution: &str) -> Option<&str> {
        let mut answer = None;
        let mut rest = solution;
        while let Some((_, after)) = rest.split_once(OPEN)
            && let Some((inside, after)) = after.split_once(CLOSE)
        {
            answer = Some(inside.trim_matches(is_space));
            rest = after;
        }
        answer
    }

    fn truths(&self, ground_truth: &Value) -> Result<Vec<String>, ScoreError> {
        let target = ground_truth.get("target").unwrap_or(ground_truth);
        alternatives(target).ok_or_else(|| ScoreError::GroundTruth {
            scorer: self.name(),
            given: ground_truth.to_string(),
            expected: "a string, a number, a list of these, or {target: one of these}",
        })
    }
}

impl Scorer for SearchEm {
    fn name(&self) -> &'static str {
        "search_em"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            let truths = self.truths(&transcript.ground_truth)?;
            let text = transcript.text(self.sees);
            let Some(answer) = Self::extract(&text) else {
                return Ok(Score::of_answer(false, false));
            };
            let answer = normal(answer);
            let is_right = truths.iter().any(|truth| {
                let truth = normal(truth);
                truth == answer || (self.substring && answer.contains(&truth))
            });
            let mut score = Score::saying(is_right, answer);
            if !is_right {
                score.value = self.format_score;
            } else if !self.substring
                && [OPEN, CLOSE]
                    .iter()
                    .any(|tag| text.matches(tag).count() > MOST_TAGS)
            {
                score.value = 0.25;
            }
            Ok(score)
        })
    }

    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError> {
        self.truths(ground_truth).map(drop)
    }

    fn perfect_answers(&self, ground_truth: &Value) -> Vec<String> {
        super::written(self.truths(ground_truth).ok(), OPEN, CLOSE)
    }
}

fn normal(text: &str) -> String {
    let text: String = text
        .to_lowercase()
        .chars()
        .filter(|character| !character.is_ascii_punctuation())
        .collect();
    let mut normal = String::with_capacity(text.len());
    let mut rest = text.as_str();
    // A word, then what parts it from the next.
    while !rest.is_empty() {
        let length = rest
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        normal.push_str(match word {
            "a" | "an" | "the" => " ",
            word => word,
        });
        let length = after.find(char::is_alphanumeric).unwrap_or(after.len());
        let (between, after) = after.split_at(length);
        normal.push_str(between);
        rest = after;
    }
    let words: Vec<&str> = normal
        .split(is_space)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::reference::cases;
    use super::super::scorers::sample;
    use super::*;

    #[tokio::test]
    async fn every_score_is_the_references() {
        let cases = cases("search_em");
        assert!(cases.len() > 40, "{}", cases.len());
        for case in cases {
            let solution = case["solution"].as_str().expect("text");
            for (key, substring) in [("em", false), ("subem", true)] {
                let scorer = SearchEm {
                    substring,
                    ..SearchEm::default()
                };
                let Some(expected) = case.get(key).and_then(Value::as_f64) else {
                    continue;
                };
                let score = scorer
                    .score(&sample(solution, case["ground_truth"].clone()))
                    .await
                    .expect("a score");
                assert_eq!(score.value, expected, "{key} of {case}");
            }
        }
    }

    #[tokio::test]
    async fn the_truth_may_be_verls_mapping() {
        let scorer = SearchEm {
            format_score: 0.1,
            ..SearchEm::default()
        };
        let truth = json!({"target": ["Paris", "Lutetia"]});
        for (answer, expected) in [
            ("<answer>lutetia.</answer>", 1.0),
            ("<answer>Rome</answer>", 0.1),
            ("Paris", 0.0),
        ] {
            let score = scorer.score(&sample(answer, truth.clone())).await;
            assert_eq!(score.expect("a score").value, expected, "{answer}");
        }
        assert!(scorer.check(&json!({"target": {}})).is_err());
    }
}
