//! Scores of finished dialogues. What a scorer sees is its own explicit choice, and by default it is what the model wrote:
//! text that came from a tool never earns a reward.
//!
//! A scorer that fails, panics or is late gives no score at all (`None`), which is counted and never the same as 0.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::generate::BoxFuture;
use crate::message::Message;

mod arms;
mod boxed;
mod build;
mod choice;
mod code;
mod exact;
mod gsm8k;
mod http;
mod human;
mod json_schema;
mod math;
mod math_dapo;
mod math_equal;
mod numeric;
mod pattern;
mod python;
#[cfg(test)]
mod reference;
mod rehearse;
mod scorers;
mod search_em;
mod shape;

pub use arms::{Arms, Started};
pub use build::{ModelScorers, NoModels, scorer as scorer_of};
pub use choice::Choice;
pub use code::Code;
pub use exact::Exact;
pub use experiment::arms::{Gsm8kMethod, Sees};
pub use gsm8k::Gsm8k;
pub use http::{Http, Judge};
pub use human::Human;
pub use json_schema::{JsonSchema, Schema};
pub use math::Math;
pub use math_dapo::{MathDapo, Verdict};
pub use math_equal::MathEqual;
pub use numeric::{Numeric, WhichNumber};
pub use pattern::Pattern;
pub use python::Python;
pub use rehearse::{Rehearsed, Tried, judge};
pub use scorers::{Complaint, Scorers, UnknownSource, by_name};
pub use search_em::SearchEm;
pub use shape::{Form, Lengthy};

/// A finished dialogue and what is known of its prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    pub data_source: String,
    /// `reward_model.ground_truth`: a string, a number, or a list of these of which any will do.
    pub ground_truth: Value,
    pub extra_info: Value,
    /// The text of each model turn as decoded, calls included, special tokens not.
    pub model_turns: Vec<String>,
    /// Prompt and dialogue.
    pub messages: Vec<Message>,
    /// How many of `messages` are the prompt.
    pub prompt_messages: usize,
    /// What the tools thought of the dialogue, by tool.
    pub tool_rewards: BTreeMap<String, f64>,
}

impl Transcript {
    pub fn text(&self, sees: Sees) -> String {
        match sees {
            Sees::ModelText => self.model_turns.join("\n"),
            Sees::FinalAnswer => self.model_turns.last().cloned().unwrap_or_default(),
            Sees::Dialogue => {
                let mut turns = self.model_turns.iter();
                let texts: Vec<String> = self.messages[self.prompt_messages..]
                    .iter()
                    .map(|message| match message.role.as_str() {
                        "assistant" => turns.next().cloned().unwrap_or_default(),
                        _ => message.text(),
                    })
                    .collect();
                texts.join("\n")
            }
        }
    }
}

/// A score and whatever else the scorer measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Score {
    pub value: f64,
    pub parts: BTreeMap<String, f64>,
    /// What the answer was found to be, for a vote among answers; None: nothing was found, or the scorer looks for none.
    pub says: Option<String>,
}

impl Score {
    pub fn new(value: f64) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }

    /// 1 when right, else 0; `format` says whether there was an answer to judge at all.
    fn of_answer(is_right: bool, is_found: bool) -> Self {
        let one = |yes: bool| if yes { 1.0 } else { 0.0 };
        Self {
            value: one(is_right),
            parts: BTreeMap::from([("format".to_owned(), one(is_found))]),
            says: None,
        }
    }

    /// Of this answer, which was found.
    fn saying(is_right: bool, answer: impl Into<String>) -> Self {
        Self {
            says: Some(answer.into()),
            ..Self::of_answer(is_right, true)
        }
    }
}

/// Why there is no score.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScoreError {
    #[error("the ground truth {given} does not suit the {scorer} scorer; expected {expected}")]
    GroundTruth {
        scorer: &'static str,
        given: String,
        expected: &'static str,
    },
    #[error("the score is {0}")]
    NotFinite(f64),
    #[error("{0}")]
    Failed(String),
    #[error("no arm gave a score: {problems}")]
    NoArm {
        problems: String,
        /// What there is to say of the arms nevertheless.
        parts: BTreeMap<String, f64>,
    },
    #[error("the scorer {0}")]
    Interrupted(#[from] crate::tool::Interrupted),
}

/// Judges finished dialogues. Must take time in proportion to the text: what may hang belongs into a process of its own.
pub trait Scorer: Send + Sync {
    fn name(&self) -> &'static str;

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>>;

    /// The same, and says when its own work begins, which is now unless it has to get ready first.
    fn score_from<'a>(
        &'a self,
        transcript: &'a Transcript,
        started: &'a Started,
    ) -> BoxFuture<'a, Result<Score, ScoreError>> {
        started.now();
        self.score(transcript)
    }

    /// Is this a ground truth the scorer can judge by? Asked of every row before the first step.
    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError>;

    /// Final turns that should earn the most there is: what a dry run tries. None where that cannot be said.
    fn perfect_answers(&self, ground_truth: &Value) -> Vec<String> {
        alternatives(ground_truth).unwrap_or_default()
    }
}

impl fmt::Debug for dyn Scorer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Scorer").field(&self.name()).finish()
    }
}

/// Runs a scorer apart from its caller, for at most `limit`.
pub async fn score_within(
    scorer: Arc<dyn Scorer>,
    transcript: Transcript,
    limit: std::time::Duration,
) -> Result<Score, ScoreError> {
    let work = async move { scorer.score(&transcript).await };
    let score = crate::tool::isolated(limit, work).await??;
    if score.value.is_finite() {
        Ok(score)
    } else {
        Err(ScoreError::NotFinite(score.value))
    }
}

/// The acceptable answers of a ground truth as text: itself, or each item of a list. None where it holds anything but
/// strings and numbers.
fn alternatives(ground_truth: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    match ground_truth {
        Value::Array(items) if !items.is_empty() => items.iter().map(text).collect(),
        value => Some(vec![text(value)?]),
    }
}

/// The check of a scorer that compares with text.
fn needs_text(scorer: &'static str, ground_truth: &Value) -> Result<(), ScoreError> {
    match alternatives(ground_truth) {
        Some(_) => Ok(()),
        None => Err(ScoreError::GroundTruth {
            scorer,
            given: ground_truth.to_string(),
            expected: "a string, a number or a list of these",
        }),
    }
}

/// Each truth within the text that its scorer looks for.
fn written(truths: Option<Vec<String>>, before: &str, after: &str) -> Vec<String> {
    let truths = truths.unwrap_or_default();
    truths
        .iter()
        .map(|truth| format!("{before}{truth}{after}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript() -> Transcript {
        let messages = vec![
            Message::new("user", "63*48?"),
            Message::new("assistant", ""),
            Message::new("tool", "3024"),
            Message::new("assistant", "It is 7."),
        ];
        Transcript {
            data_source: "lathe/calc".to_owned(),
            ground_truth: Value::from("3024"),
            extra_info: Value::Null,
            model_turns: vec!["<tool_call>…</tool_call>".to_owned(), "It is 7.".to_owned()],
            messages,
            prompt_messages: 1,
            tool_rewards: BTreeMap::new(),
        }
    }

    #[test]
    fn tool_text_is_seen_only_by_a_scorer_that_asks_for_it() {
        let transcript = transcript();
        assert_eq!(
            transcript.text(Sees::ModelText),
            "<tool_call>…</tool_call>\nIt is 7."
        );
        assert_eq!(transcript.text(Sees::FinalAnswer), "It is 7.");
        assert_eq!(
            transcript.text(Sees::Dialogue),
            "<tool_call>…</tool_call>\n3024\nIt is 7."
        );
        assert_eq!(Sees::default(), Sees::ModelText);
    }
}
