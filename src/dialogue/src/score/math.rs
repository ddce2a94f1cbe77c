//! MATH as verl's `math_reward` scores it: the last `\boxed{…}` and the truth, both normalised as text, are the same text.
//!
//! Hendrycks et al., Measuring Mathematical Problem Solving With the MATH Dataset, <https://arxiv.org/abs/2103.03874>; the rules
//! are those of `EleutherAI`'s lm-evaluation-harness (`hendrycks_math`). They know a handful of forms: `10/5` is not `2`, `1,000`
//! not `1000`, and both stay so here, so that scores compare. [`MathEqual`](super::MathEqual) is the scorer that calculates.

use serde_json::Value;

use super::boxed::{inside, last_boxed};
use super::{Score, ScoreError, Scorer, Sees, Transcript, alternatives};
use crate::generate::BoxFuture;

/// Digits beyond which Python's `int` refuses a text.
const MAX_INT_DIGITS: usize = 4300;

/// The MATH scorer. 1 or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Math {
    pub sees: Sees,
}

impl Math {
    /// The box a solution ends with, command included.
    pub fn last_boxed(solution: &str) -> Option<String> {
        last_boxed(solution)
    }

    fn answer(solution: &str) -> Option<String> {
        inside(&last_boxed(solution)?).map(str::to_owned)
    }

    /// Whether two answers are one after normalisation. Where a form cannot be read, they are compared as they stand.
    pub fn is_equivalent(left: &str, right: &str) -> bool {
        match (normal(left), normal(right)) {
            (Some(left), Some(right)) => left == right,
            _ => left == right,
        }
    }
}

impl Scorer for Math {
    fn name(&self) -> &'static str {
        "math"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            self.check(&transcript.ground_truth)?;
            let truths = alternatives(&transcript.ground_truth).unwrap_or_default();
            let Some(answer) = Self::answer(&transcript.text(self.sees)) else {
                return Ok(Score::of_answer(false, false));
            };
            let is_right = truths
                .iter()
                .any(|truth| Self::is_equivalent(&answer, truth));
            let says = normal(&answer).unwrap_or(answer);
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

/// The normal form; None where the reference's own rules fail.
fn normal(text: &str) -> Option<String> {
    let mut text = text
        .replace('\n', "")
        .replace("\\!", "")
        .replace("\\\\", "\\")
        .replace("tfrac", "frac")
        .replace("dfrac", "frac")
        .replace("\\left", "")
        .replace("\\right", "")
        .replace("^{\\circ}", "")
        .replace("^\\circ", "")
        .replace("\\$", "");
    text = without_units(&text)?
        .replace("\\\\%", "")
        .replace("\\%", "")
        .replace(" .", " 0.")
        .replace("{.", "{0.");
    if text.is_empty() {
        return Some(text);
    }
    if text.starts_with('.') {
        text.insert(0, '0');
    }
    // `x = 5` is 5.
    let mut sides = text.split('=');
    if let (Some(name), Some(value), None) = (sides.next(), sides.next(), sides.next())
        && name.chars().count() <= 2
    {
        let value = value.to_owned();
        text = value;
    }
    text = with_root_braces(&text)?.replace(' ', "");
    text = with_fraction_braces(&text)?;
    if text == "0.5" {
        "\\frac{1}{2}".clone_into(&mut text);
    }
    Some(slash_to_fraction(text))
}

/// Text after a `\text{ ` is a unit; two of them are more than the reference reads.
fn without_units(text: &str) -> Option<&str> {
    let mut parts = text.split("\\text{ ");
    let first = parts.next()?;
    match (parts.next(), parts.next()) {
        (None, _) => Some(text),
        (Some(_), None) => Some(first),
        (Some(_), Some(_)) => None,
    }
}

/// `\sqrt3` → `\sqrt{3}`.
fn with_root_braces(text: &str) -> Option<String> {
    let mut parts = text.split("\\sqrt");
    let mut normal = parts.next()?.to_owned();
    for part in parts {
        normal.push_str("\\sqrt");
        match part.chars().next()? {
            '{' => normal.push_str(part),
            first => {
                normal.extend(['{', first, '}']);
                normal.push_str(&part[first.len_utf8()..]);
            }
        }
    }
    Some(normal)
}

/// `\frac12` and `\frac1{2}` → `\frac{1}{2}`. A fraction of one character leaves the whole text as it is.
fn with_fraction_braces(text: &str) -> Option<String> {
    let mut parts = text.split("\\frac");
    let mut normal = parts.next()?.to_owned();
    for part in parts {
        normal.push_str("\\frac");
        let mut characters = part.chars();
        let above = characters.next()?;
        if above == '{' {
            normal.push_str(part);
            continue;
        }
        let Some(below) = characters.next() else {
            return Some(text.to_owned());
        };
        normal.extend(['{', above, '}']);
        match below {
            '{' => normal.push('{'),
            below => normal.extend(['{', below, '}']),
        }
        normal.push_str(characters.as_str());
    }
    Some(normal)
}

/// `3/4` → `\frac{3}{4}`, of whole numbers as Python prints them.
fn slash_to_fraction(text: String) -> String {
    match text.split_once('/') {
        Some((above, below)) if is_plain_int(above) && is_plain_int(below) => {
            format!("\\frac{{{above}}}{{{below}}}")
        }
        _ => text,
    }
}

fn is_plain_int(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number && digits.len() <= MAX_INT_DIGITS && (!digits.starts_with('0') || text == "0")
}

#[cfg(test)]
mod tests {
    use super::super::reference::cases;
    use super::super::scorers::sample;
    use super::*;

    #[tokio::test]
    async fn every_score_is_the_references() {
        let cases = cases("math");
        assert!(cases.len() > 300, "{}", cases.len());
        for case in cases {
            let solution = case["solution"].as_str().expect("text");
            let score = Math::default()
                .score(&sample(solution, case["ground_truth"].clone()))
                .await
                .expect("a score");
            assert_eq!(Some(score.value), case["math_reward"].as_f64(), "{case}");
            assert_eq!(
                Math::last_boxed(solution).as_deref(),
                case["last_boxed"].as_str(),
                "{case}"
            );
        }
    }

    #[test]
    fn a_long_answer_takes_time_in_proportion() {
        // Quadratic work would take hours.
        let long = "\\frac1{\\sqrt2}".repeat(200_000);
        assert!(Math::is_equivalent(&long, &long));
        assert_eq!(last_boxed(&"\\boxed{".repeat(200_000)), None);
    }
}
