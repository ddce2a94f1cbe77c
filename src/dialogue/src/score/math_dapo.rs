//! DAPO's and the AIME sets' answers as verl's `math_dapo` scores them: 1 when right, −1 when not, `acc` beside it.
//!
//! DAPO, <https://arxiv.org/abs/2503.14476>; the normalisation is Minerva's, Lewkowycz et al.,
//! <https://arxiv.org/abs/2206.14858>, appendix D.1. Read is the end of the solution (300 characters): the last `Answer: …` line,
//! else the last `\boxed{…}` of its last 100 characters, which must be the truth to the letter. The list of words taken out
//! (`ways`, `feet`, but also any `sue`) is the reference's and kept, so that scores compare.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::boxed::{is_space, last_boxed_inside, tail};
use super::{Score, ScoreError, Scorer, Sees, Transcript, alternatives};
use crate::generate::BoxFuture;

/// Characters at the end of a solution that are read …
const CLIP_CHARACTERS: usize = 300;
/// … and those of them in which a box counts.
const BOX_CHARACTERS: usize = 100;
/// What the reference calls an answer that is not there.
const INVALID: &str = "[INVALID]";

/// Every `answer :` up to the end of its line. `\x1c` to `\x1f` are white space to Python.
static ANSWER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)Answer[\s\x1c-\x1f]*:[\s\x1c-\x1f]*([^\n]+)").expect("a valid pattern")
});

const REPLACED: [(&str, &str); 10] = [
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    ("\\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (",\\text{and}", ","),
    ("\\text{and}", ","),
    ("\\text{m}", "\\text{}"),
];

const REMOVED: [&str; 41] = [
    "square",
    "ways",
    "integers",
    "dollars",
    "mph",
    "inches",
    "hours",
    "km",
    "units",
    "\\ldots",
    "sue",
    "points",
    "feet",
    "minutes",
    "digits",
    "cents",
    "degrees",
    "cm",
    "gm",
    "pounds",
    "meters",
    "meals",
    "edges",
    "students",
    "childrentickets",
    "multiples",
    "\\text{s}",
    "\\text{.}",
    "\\text{\ns}",
    "\\text{}^2",
    "\\text{}^3",
    "\\text{\n}",
    "\\text{}",
    "\\mathrm{th}",
    "^\\circ",
    "^{\\circ}",
    "\\;",
    ",\\!",
    "{,}",
    "\"",
    "\\dots",
];

/// The `math_dapo` scorer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MathDapo {
    pub sees: Sees,
    /// Only a box counts (`strict_box_verify`).
    pub strict_box: bool,
}

/// What was read, and whether it is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub is_right: bool,
    /// None: no box, with `strict_box`.
    pub answer: Option<String>,
}

impl MathDapo {
    pub fn judge(self, solution: &str, truth: &str) -> Verdict {
        let solution = tail(solution, CLIP_CHARACTERS);
        let of_box = || {
            last_boxed_inside(tail(solution, BOX_CHARACTERS)).map(|answer| Verdict {
                is_right: answer == truth,
                answer: Some(answer.to_owned()),
            })
        };
        if self.strict_box {
            return of_box().unwrap_or(Verdict {
                is_right: false,
                answer: None,
            });
        }
        let written = ANSWER
            .captures_iter(solution)
            .last()
            .and_then(|found| Some(found.get(1)?.as_str()))
            .unwrap_or(INVALID);
        let answer = normal(written);
        if answer == INVALID
            && let Some(boxed) = of_box()
        {
            return boxed;
        }
        Verdict {
            is_right: answer == normal(truth),
            answer: Some(answer),
        }
    }
}

impl Scorer for MathDapo {
    fn name(&self) -> &'static str {
        "math_dapo"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            self.check(&transcript.ground_truth)?;
            let text = transcript.text(self.sees);
            let truths = alternatives(&transcript.ground_truth).unwrap_or_default();
            let verdicts: Vec<Verdict> = truths
                .iter()
                .map(|truth| self.judge(&text, truth))
                .collect();
            let is_right = verdicts.iter().any(|verdict| verdict.is_right);
            let is_found = verdicts.iter().any(|verdict| {
                verdict
                    .answer
                    .as_deref()
                    .is_some_and(|text| text != INVALID)
            });
            let one = |yes: bool| if yes { 1.0 } else { 0.0 };
            let says = verdicts
                .into_iter()
                .find_map(|verdict| verdict.answer)
                .filter(|_| is_found);
            Ok(Score {
                value: if is_right { 1.0 } else { -1.0 },
                parts: BTreeMap::from([
                    ("acc".to_owned(), one(is_right)),
                    ("format".to_owned(), one(is_found)),
                ]),
                says,
            })
        })
    }

    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError> {
        super::needs_text(self.name(), ground_truth)
    }

    fn perfect_answers(&self, ground_truth: &Value) -> Vec<String> {
        super::written(alternatives(ground_truth), "\\boxed{", "}")
    }
}

fn normal(answer: &str) -> String {
    let mut text = answer.rsplit('=').next().unwrap_or_default().to_owned();
    for (before, after) in REPLACED {
        text = text.replace(before, after);
    }
    for expression in REMOVED {
        text = text.replace(expression, "");
    }
    text = first_formula(&text);
    for command in ["\\text{", "\\textbf{", "\\overline{"] {
        text = unwrapped(&text, command, false);
    }
    text = unwrapped(&text, "\\boxed{", true);
    text = with_fraction_braces(&text);
    text = with_root_braces(&text);
    text = text.replace('$', "");
    let digits = text.replace(',', "");
    if !digits.is_empty() && digits.chars().all(char::is_numeric) {
        text = digits;
    }
    text.trim_matches(is_space).to_owned()
}

/// Of each line, its first `$…$` alone, where it has one.
fn first_formula(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| {
            let mut parts = line.splitn(3, '$');
            match (parts.next(), parts.next(), parts.next()) {
                (Some(_), Some(formula), Some(_)) => format!("${formula}$"),
                _ => line.to_owned(),
            }
        })
        .collect();
    lines.join("\n")
}

/// Takes `command` away with the next closing brace of its line, or the last one.
fn unwrapped(text: &str, command: &str, is_greedy: bool) -> String {
    let brace = |text: &str| {
        if is_greedy {
            text.rfind('}')
        } else {
            text.find('}')
        }
    };
    let mut normal = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            normal.push('\n');
        }
        let mut rest = line;
        while let Some((before, after)) = rest.split_once(command)
            && let Some(end) = brace(after)
        {
            normal.push_str(before);
            normal.push_str(&after[..end]);
            rest = &after[end + 1..];
        }
        normal.push_str(rest);
    }
    normal
}

/// `frac12` → `frac{1}{2}`.
fn with_fraction_braces(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("frac") {
        normal.push_str(before);
        normal.push_str("frac");
        let mut characters = after.chars();
        match (characters.next(), characters.next()) {
            (Some(above), Some(below)) if above != '{' && below != '\n' => {
                normal.extend(['{', above, '}', '{', below, '}']);
                rest = characters.as_str();
            }
            _ => rest = after,
        }
    }
    normal + rest
}

/// `sqrt3` → `sqrt{3}`.
fn with_root_braces(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("sqrt") {
        normal.push_str(before);
        normal.push_str("sqrt");
        rest = after;
        if let Some(under) = after.chars().next().filter(|under| *under != '{') {
            normal.extend(['{', under, '}']);
            rest = &after[under.len_utf8()..];
        }
    }
    normal + rest
}

#[cfg(test)]
mod tests {
    use super::super::reference::cases;
    use super::super::scorers::sample;
    use super::*;

    #[tokio::test]
    async fn every_score_is_the_references() {
        for case in cases("math") {
            for (key, strict_box) in [("math_dapo", false), ("math_dapo_strict_box", true)] {
                let scorer = MathDapo {
                    strict_box,
                    ..MathDapo::default()
                };
                let solution = case["solution"].as_str().expect("text");
                let truth = case["ground_truth"].as_str().expect("text");
                let expected = &case[key];
                let verdict = scorer.judge(solution, truth);
                assert_eq!(
                    (Some(verdict.is_right), verdict.answer.as_deref()),
                    (expected["acc"].as_bool(), expected["pred"].as_str()),
                    "{key} of {case}"
                );
                let score = scorer
                    .score(&sample(solution, truth.into()))
                    .await
                    .expect("a score");
                assert_eq!(Some(score.value), expected["score"].as_f64());
                assert_eq!(score.parts["acc"] == 1.0, verdict.is_right);
            }
        }
    }
}
