//! GSM8K as verl scores it: in the last 300 characters, `#### <number>` (strict) or the last number (flexible), compared
//! as text. Odd cases (`#### 72.` is wrong, `#### 3/4` is `3`) are the reference's and kept, so that scores compare.

use serde_json::Value;

use super::{Gsm8kMethod, Score, ScoreError, Scorer, Sees, Transcript, alternatives};
use crate::generate::BoxFuture;

/// Characters at the end that are read.
const CLIP_CHARACTERS: usize = 300;

/// The GSM8K scorer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gsm8k {
    pub method: Gsm8kMethod,
    pub sees: Sees,
    /// The score of a wrong answer in the right form; 0 in verl.
    pub format_score: f64,
}

impl Gsm8k {
    /// The answer in a solution, if there is one.
    pub fn extract(&self, solution: &str) -> Option<String> {
        let characters = solution.chars().count();
        let clipped = match characters.checked_sub(CLIP_CHARACTERS) {
            Some(surplus) => solution
                .char_indices()
                .nth(surplus)
                .map_or("", |(at, _)| &solution[at..]),
            None => solution,
        };
        match self.method {
            Gsm8kMethod::Strict => {
                let mut answer = None;
                let mut rest = clipped;
                while let Some(at) = rest.find("#### ") {
                    rest = &rest[at + "#### ".len()..];
                    if let Some(number) = number_at(rest) {
                        answer = Some(number);
                        rest = &rest[number.len()..];
                    }
                }
                answer.map(|number| number.replace(',', ""))
            }
            Gsm8kMethod::Flexible => {
                let mut numbers = Vec::new();
                let mut rest = clipped;
                while let Some(character) = rest.chars().next() {
                    if let Some(number) = number_at(rest) {
                        numbers.push(number);
                        rest = &rest[number.len()..];
                    } else {
                        rest = &rest[character.len_utf8()..];
                    }
                }
                // A lone point is the end of a sentence, unless there is nothing else.
                let number = numbers.iter().rev().find(|number| **number != ".");
                number
                    .or(numbers.first())
                    .map(|number| (*number).to_owned())
            }
        }
    }
}

/// `-?[0-9.,]+` at the very start of `text`.
fn number_at(text: &str) -> Option<&str> {
    let sign = usize::from(text.starts_with('-'));
    let digits = text[sign..]
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','))
        .count();
    (digits > 0).then(|| &text[..sign + digits])
}

impl Scorer for Gsm8k {
    fn name(&self) -> &'static str {
        "gsm8k"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            self.check(&transcript.ground_truth)?;
            let truths = alternatives(&transcript.ground_truth).unwrap_or_default();
            let Some(answer) = self.extract(&transcript.text(self.sees)) else {
                return Ok(Score::of_answer(false, false));
            };
            let mut score = Score::saying(truths.contains(&answer), answer.trim_end_matches('.'));
            if score.value == 0.0 {
                score.value = self.format_score;
            }
            Ok(score)
        })
    }

    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError> {
        super::needs_text(self.name(), ground_truth)
    }

    fn perfect_answers(&self, ground_truth: &Value) -> Vec<String> {
        super::written(alternatives(ground_truth), "#### ", "")
    }
}

#[cfg(test)]
mod tests {
    use super::super::scorers::sample;
    use super::*;

    /// Answer strings and the scores verl 0.9.1 gives them.
    const REFERENCE: &str = include_str!("../../tests/data/scores/gsm8k.json");

    #[tokio::test]
    async fn every_score_is_the_references() {
        let cases: Vec<Value> = serde_json::from_str(REFERENCE).expect("valid test data");
        assert_eq!(cases.len(), 45);
        for case in cases {
            let solution = case["solution"].as_str().expect("text");
            for (key, method, format_score) in [
                ("strict", Gsm8kMethod::Strict, 0.0),
                ("flexible", Gsm8kMethod::Flexible, 0.0),
                ("strict_format_0_1", Gsm8kMethod::Strict, 0.1),
                ("default_openai_gsm8k", Gsm8kMethod::Strict, 0.0),
            ] {
                let scorer = Gsm8k {
                    method,
                    format_score,
                    ..Gsm8k::default()
                };
                let score = scorer
                    .score(&sample(solution, case["ground_truth"].clone()))
                    .await
                    .expect("a score");
                assert_eq!(Some(score.value), case[key].as_f64(), "{key} of {case}");
            }
            for (key, method) in [
                ("extracted_strict", Gsm8kMethod::Strict),
                ("extracted_flexible", Gsm8kMethod::Flexible),
            ] {
                let scorer = Gsm8k {
                    method,
                    ..Gsm8k::default()
                };
                assert_eq!(
                    scorer.extract(solution).as_deref(),
                    case[key].as_str(),
                    "{key} of {case}"
                );
            }
        }
    }
}
