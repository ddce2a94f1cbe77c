//! Terms of form and length, which need no truth.

use experiment::arms::{Format, Length, LengthUnit};
use serde_json::Value;

use super::{Score, ScoreError, Scorer, Sees, Transcript};
use crate::generate::BoxFuture;

/// The share of terms that hold, each of which is also reported by its name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Form {
    pub sees: Sees,
    pub terms: Format,
}

impl Form {
    /// Name of each term, and whether a text fulfils it.
    fn judge(&self, text: &str) -> Vec<(&'static str, bool)> {
        let Format {
            tags,
            starts_with,
            ends_with,
            contains,
            lacks,
            all: _,
        } = &self.terms;
        let text = text.trim();
        let mut held = Vec::new();
        if !tags.is_empty() {
            held.push(("tags", has_tags_in_order(text, tags)));
        }
        if let Some(start) = starts_with {
            held.push(("starts_with", text.starts_with(start.as_str())));
        }
        if let Some(end) = ends_with {
            held.push(("ends_with", text.ends_with(end.as_str())));
        }
        held.extend(
            contains
                .iter()
                .map(|part| ("contains", text.contains(part.as_str()))),
        );
        held.extend(
            lacks
                .iter()
                .map(|part| ("lacks", !text.contains(part.as_str()))),
        );
        held
    }
}

/// `<a>…</a>` of each tag exactly once, one after the other.
fn has_tags_in_order(text: &str, tags: &[String]) -> bool {
    let mut rest = text;
    for tag in tags {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        if text.matches(&open).count() != 1 || text.matches(&close).count() != 1 {
            return false;
        }
        let after = rest
            .split_once(&open)
            .and_then(|(_, inside)| inside.split_once(&close));
        match after {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    true
}

impl Scorer for Form {
    fn name(&self) -> &'static str {
        "format"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            let held = self.judge(&transcript.text(self.sees));
            let count = held.iter().filter(|(_, is_held)| *is_held).count();
            let share = count as f64 / held.len().max(1) as f64;
            let mut score = Score::new(if self.terms.all { share.floor() } else { share });
            for (name, is_held) in held {
                // Of several of a kind, whether all hold.
                let part = score.parts.entry(name.to_owned()).or_insert(1.0);
                *part = part.min(if is_held { 1.0 } else { 0.0 });
            }
            Ok(score)
        })
    }

    fn check(&self, _: &Value) -> Result<(), ScoreError> {
        Ok(())
    }

    fn perfect_answers(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }
}

/// 1 within the bounds, falling to 0 outside. For a length in tokens near the limit there is the overlong buffer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lengthy {
    pub sees: Sees,
    pub bounds: Length,
}

impl Scorer for Lengthy {
    fn name(&self) -> &'static str {
        "length"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            let text = transcript.text(self.sees);
            let length = match self.bounds.unit {
                LengthUnit::Characters => text.chars().count(),
                LengthUnit::Words => text.split_whitespace().count(),
                LengthUnit::Turns => transcript.model_turns.len(),
            } as u64;
            let short = self.bounds.min.saturating_sub(length);
            let long = self.bounds.max.map_or(0, |max| length.saturating_sub(max));
            let outside = short.max(long) as f64;
            let value = match self.bounds.over {
                _ if outside == 0.0 => 1.0,
                0 => 0.0,
                over => (1.0 - outside / over as f64).max(0.0),
            };
            let mut score = Score::new(value);
            score.parts.insert("length".to_owned(), length as f64);
            Ok(score)
        })
    }

    fn check(&self, _: &Value) -> Result<(), ScoreError> {
        Ok(())
    }

    fn perfect_answers(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::scorers::sample;
    use super::*;

    #[tokio::test]
    async fn the_share_of_terms_that_hold_is_the_score() {
        let mut form = Form {
            terms: Format {
                tags: vec!["think".to_owned(), "answer".to_owned()],
                ends_with: Some("</answer>".to_owned()),
                lacks: vec!["sorry".to_owned(), "As an AI".to_owned()],
                ..Format::default()
            },
            ..Form::default()
        };
        let right = "<think>x</think>\n<answer>5</answer>";
        for (text, share, strict) in [
            (right, 1.0, 1.0),
            ("<answer>5</answer><think>x</think>", 0.5, 0.0),
            ("<think>x</think><answer>5</answer> sorry", 0.5, 0.0),
            (
                "<think>x</think><think>y</think><answer>5</answer>",
                0.75,
                0.0,
            ),
        ] {
            for (all, expected) in [(false, share), (true, strict)] {
                form.terms.all = all;
                let score = form.score(&sample(text, Value::Null)).await;
                assert_eq!(score.expect("a score").value, expected, "{text}");
            }
        }
        let score = form
            .score(&sample("sorry", Value::Null))
            .await
            .expect("a score");
        assert_eq!((score.parts["tags"], score.parts["lacks"]), (0.0, 0.0));
    }

    #[tokio::test]
    async fn a_length_outside_its_bounds_falls_to_nothing() {
        let lengthy = |unit, over| Lengthy {
            bounds: Length {
                unit,
                min: 2,
                max: Some(4),
                over,
            },
            ..Lengthy::default()
        };
        for (text, expected) in [
            ("a b", 1.0),
            ("a b c d", 1.0),
            ("a b c d e", 0.5),
            ("a", 0.5),
            ("", 0.0),
        ] {
            let score = lengthy(LengthUnit::Words, 2)
                .score(&sample(text, Value::Null))
                .await;
            assert_eq!(score.expect("a score").value, expected, "{text}");
        }
        let characters = lengthy(LengthUnit::Characters, 0);
        let score = characters
            .score(&sample("日本日本日", Value::Null))
            .await
            .expect("a score");
        assert_eq!((score.value, score.parts["length"]), (0.0, 5.0));
        let turns = lengthy(LengthUnit::Turns, 0)
            .score(&sample("x", Value::Null))
            .await;
        assert_eq!(turns.expect("a score").value, 0.0);
    }
}
