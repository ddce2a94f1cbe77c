//! The number in the answer equals the ground truth's, whatever way it is written.
//!
//! Read as numbers: `-5`, `−5`, `1,234.5` (commas between groups of three), `.5`, `1e3`, `3/4`, `$72`, `12%`. A minus counts
//! as a sign unless a letter, digit or closing parenthesis stands before it, so `9-4` ends in 4. The point that ends a sentence is no part of
//! a number. A percent sign is taken as a unit: `12%` equals both 12 and 0.12, because data sets write either.
//! Comparison is exact unless there is a tolerance.

use num_bigint::BigInt;
use num_rational::Ratio;
use num_traits::Signed;
use serde_json::Value;

use super::{Score, ScoreError, Scorer, Sees, Transcript, alternatives};
use crate::generate::BoxFuture;

type Rational = Ratio<BigInt>;

/// Digits beyond which text is no sensible number.
const MAX_DIGITS: usize = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhichNumber {
    /// The last one in the text.
    #[default]
    Last,
    /// The only one: an answer with two numbers is wrong.
    Only,
}

/// Compares numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numeric {
    pub sees: Sees,
    pub which: WhichNumber,
    /// |answer − truth| may be this large; 0: equal.
    pub absolute_tolerance: f64,
    /// … or this large as a part of |truth|.
    pub relative_tolerance: f64,
}

impl Default for Numeric {
    fn default() -> Self {
        Self {
            sees: Sees::FinalAnswer,
            which: WhichNumber::Last,
            absolute_tolerance: 0.0,
            relative_tolerance: 0.0,
        }
    }
}

/// A number in a text.
#[derive(Debug, Clone, PartialEq)]
struct Written {
    value: Rational,
    is_percent: bool,
}

impl Written {
    fn readings(&self) -> Vec<Rational> {
        let mut readings = vec![self.value.clone()];
        if self.is_percent {
            readings.push(&self.value / Rational::from_integer(100.into()));
        }
        readings
    }

    /// `7/2`, `50%`.
    fn says(&self) -> String {
        format!("{}{}", self.value, if self.is_percent { "%" } else { "" })
    }
}

impl Numeric {
    fn answer(&self, text: &str) -> Option<Written> {
        let mut numbers = numbers(text);
        match self.which {
            WhichNumber::Last => numbers.pop(),
            WhichNumber::Only if numbers.len() == 1 => numbers.pop(),
            WhichNumber::Only => None,
        }
    }

    fn is_close(&self, answer: &Rational, truth: &Rational) -> bool {
        let gap = (answer - truth).abs();
        // A tolerance means the decimal it is written as.
        let tolerance = |given: f64| numbers(&given.to_string()).pop().map(|read| read.value);
        let absolute = tolerance(self.absolute_tolerance).unwrap_or_default();
        let relative = tolerance(self.relative_tolerance).unwrap_or_default() * truth.abs();
        gap <= absolute || gap <= relative
    }

    fn truths(&self, ground_truth: &Value) -> Result<Vec<Written>, ScoreError> {
        alternatives(ground_truth)
            .and_then(|texts| {
                texts
                    .iter()
                    .map(|text| {
                        let mut numbers = numbers(text);
                        numbers.pop().filter(|_| numbers.is_empty())
                    })
                    .collect()
            })
            .ok_or_else(|| ScoreError::GroundTruth {
                scorer: self.name(),
                given: ground_truth.to_string(),
                expected: "one number, as number or text, or a list of these",
            })
    }
}

impl Scorer for Numeric {
    fn name(&self) -> &'static str {
        "numeric"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            let truths = self.truths(&transcript.ground_truth)?;
            let answer = self.answer(&transcript.text(self.sees));
            let is_right = answer.as_ref().is_some_and(|answer| {
                truths.iter().any(|truth| {
                    answer.readings().iter().any(|answer| {
                        truth
                            .readings()
                            .iter()
                            .any(|truth| self.is_close(answer, truth))
                    })
                })
            });
            Ok(match answer {
                Some(answer) => Score::saying(is_right, answer.says()),
                None => Score::of_answer(false, false),
            })
        })
    }

    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError> {
        self.truths(ground_truth).map(drop)
    }
}

/// Every number in a text, in order.
fn numbers(text: &str) -> Vec<Written> {
    let characters: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        let Some((magnitude, end)) = unsigned(&characters, at) else {
            at += 1;
            continue;
        };
        let mut value = magnitude;
        let mut end = end;
        if characters.get(end) == Some(&'/')
            && let Some((below, after)) = unsigned(&characters, end + 1)
            && below != Rational::default()
        {
            value /= below;
            end = after;
        }
        // `$-5` and `-$5` are both written.
        let mut before = at;
        if before > 0 && characters[before - 1] == '$' {
            before -= 1;
        }
        if before > 0
            && matches!(characters[before - 1], '-' | '−')
            && !before.checked_sub(2).is_some_and(|index| {
                characters[index].is_alphanumeric() || characters[index] == ')'
            })
        {
            value = -value;
        }
        let mut after = end;
        while characters.get(after) == Some(&' ') {
            after += 1;
        }
        found.push(Written {
            value,
            is_percent: characters.get(after) == Some(&'%'),
        });
        at = end;
    }
    found
}

/// The number that starts at `at`, without a sign, and where it ends.
fn unsigned(characters: &[char], at: usize) -> Option<(Rational, usize)> {
    let digits = |from: usize| {
        characters[from.min(characters.len())..]
            .iter()
            .take_while(|character| character.is_ascii_digit())
            .count()
    };
    let mut text = String::new();
    let mut end = at + digits(at);
    text.extend(&characters[at..end]);
    if (1..=3).contains(&text.len()) {
        while characters.get(end) == Some(&',') && digits(end + 1) == 3 {
            text.extend(&characters[end + 1..end + 4]);
            end += 4;
        }
    }
    let mut places = 0;
    if characters.get(end) == Some(&'.') && digits(end + 1) > 0 {
        places = digits(end + 1);
        text.extend(&characters[end + 1..=end + places]);
        end += 1 + places;
    }
    if text.is_empty() || text.len() > MAX_DIGITS {
        return None;
    }
    let mut power = -(places as i64);
    if matches!(characters.get(end), Some('e' | 'E')) {
        let sign = usize::from(matches!(characters.get(end + 1), Some('+' | '-')));
        let count = digits(end + 1 + sign);
        let exponent: String = characters[end + 1..end + 1 + sign + count].iter().collect();
        if count > 0 {
            // An absurd exponent is not a number at all.
            power += exponent
                .parse::<i64>()
                .ok()
                .filter(|exponent| exponent.unsigned_abs() as usize <= MAX_DIGITS)?;
            end += 1 + sign + count;
        }
    }
    let digits: BigInt = text.parse().ok()?;
    let scale = BigInt::from(10).pow(power.unsigned_abs() as u32);
    let value = if power < 0 {
        Rational::new(digits, scale)
    } else {
        Rational::from_integer(digits * scale)
    };
    Some((value, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::scorers::sample;
    use super::*;

    async fn judge(scorer: Numeric, answer: &str, truth: Value) -> (f64, f64) {
        let score = scorer.score(&sample(answer, truth)).await.expect("a score");
        (score.value, score.parts["format"])
    }

    #[tokio::test]
    async fn a_number_is_read_however_it_is_written() {
        for (answer, truth) in [
            ("2990.", json!("2990")),
            ("The answer is 1,234.50 dollars.", json!("1234.5")),
            ("$1,234", json!(1234)),
            ("-$5", json!(-5)),
            ("$-5", json!(-5)),
            ("x=-5", json!("-5")),
            ("−5", json!(-5)),
            ("9-4", json!(4)),
            ("(2)-4", json!(4)),
            ("3/4", json!(0.75)),
            ("-3/4", json!("-0.75")),
            ("1/0", json!(0)),
            (".5", json!("1/2")),
            ("1e3", json!(1000)),
            ("1.5E-2", json!("0.015")),
            ("12%", json!(12)),
            ("12 %", json!("0.12")),
            ("12", json!("12%")),
            ("007", json!(7)),
            ("first 1, then 2", json!(2)),
            ("1,23", json!(23)),
            ("12,345,678", json!(12_345_678)),
            ("7", json!(["6", "7"])),
            ("7 or so (1e99999999999)", json!(99_999_999_999i64)),
            ("2e", json!(2)),
        ] {
            let (score, format) = judge(Numeric::default(), answer, truth.clone()).await;
            assert_eq!((score, format), (1.0, 1.0), "{answer} against {truth}");
        }
    }

    #[tokio::test]
    async fn a_wrong_number_scores_0_and_no_number_has_no_format() {
        assert_eq!(
            judge(Numeric::default(), "2991", json!("2990")).await,
            (0.0, 1.0)
        );
        assert_eq!(
            judge(Numeric::default(), "2990.0001", json!("2990")).await,
            (0.0, 1.0)
        );
        assert_eq!(
            judge(Numeric::default(), "none", json!("2990")).await,
            (0.0, 0.0)
        );
        assert_eq!(judge(Numeric::default(), "", json!("0")).await, (0.0, 0.0));
    }

    #[tokio::test]
    async fn tolerances_are_absolute_or_relative() {
        let scorer = Numeric {
            absolute_tolerance: 0.01,
            ..Numeric::default()
        };
        assert_eq!(judge(scorer, "0.33", json!("1/3")).await.0, 1.0);
        assert_eq!(judge(scorer, "0.3", json!("1/3")).await.0, 0.0);
        let scorer = Numeric {
            relative_tolerance: 0.01,
            ..Numeric::default()
        };
        assert_eq!(judge(scorer, "1009", json!(1000)).await.0, 1.0);
        assert_eq!(judge(scorer, "1011", json!(1000)).await.0, 0.0);
    }

    #[tokio::test]
    async fn the_only_number_refuses_a_list_of_guesses() {
        let scorer = Numeric {
            which: WhichNumber::Only,
            ..Numeric::default()
        };
        assert_eq!(judge(scorer, "6 7 8", json!(8)).await, (0.0, 0.0));
        assert_eq!(judge(scorer, "it is 8", json!(8)).await, (1.0, 1.0));
    }

    #[test]
    fn a_truth_that_is_no_number_is_refused() {
        for truth in [
            json!("many"),
            json!("1 2"),
            json!(null),
            json!([1, "x"]),
            json!({"a": 1}),
        ] {
            assert!(Numeric::default().check(&truth).is_err(), "{truth}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_searched_without_a_crash(text in "[0-9,./eE%$ −-]{0,40}") {
            let _ = numbers(&text);
        }

        #[test]
        fn every_float_is_read_as_its_own_decimal(number in -1e15f64..1e15) {
            let read = numbers(&number.to_string());
            prop_assert_eq!(read.len(), 1);
            let written = crate::tool::calculator::print(&read[0].value, None);
            prop_assert_eq!(written.parse::<f64>(), Ok(number));
        }
    }
}
