//! Judges on another machine: a reward server, and a chat model behind an `OpenAI`-compatible endpoint.
//!
//! Limits hold for each attempt (time, bytes) and for their number; a server that is busy or broken is asked again. What a scorer
//! sees goes out and nothing else: the messages of a dialogue, tool text in them, only with `sees: dialogue`.

mod judge;

use std::collections::BTreeMap;
use std::time::Duration;

use experiment::arms::Http as Settings;
use serde_json::{Value, json};

pub use judge::Judge;

use super::{Score, ScoreError, Scorer, Sees, Transcript};
use crate::generate::BoxFuture;
use crate::http::{Client, Target};

/// Posts the dialogue, reads a number or an object with `score`.
#[derive(Debug)]
pub struct Http {
    pub sees: Sees,
    client: Client,
}

impl Http {
    /// `timeout` is of one attempt. The error says what is missing.
    pub fn new(settings: &Settings, sees: Sees, timeout: Duration) -> Result<Self, String> {
        let client = Client::new(Target {
            key_env: settings.key_env.clone(),
            headers: settings.headers.clone(),
            retries: settings.retries,
            max_response_bytes: settings.max_response_bytes,
            timeout,
            ..Target::new(&settings.url)
        })
        .map_err(|problem| format!("options: {problem}"))?;
        Ok(Self { sees, client })
    }

    fn request(&self, transcript: &Transcript) -> Value {
        let mut request = json!({
            "data_source": transcript.data_source,
            "solution_str": transcript.text(self.sees),
            "ground_truth": transcript.ground_truth,
            "extra_info": transcript.extra_info,
        });
        if self.sees == Sees::Dialogue {
            request["messages"] =
                serde_json::to_value(&transcript.messages).expect("messages have string keys");
        }
        request
    }
}

impl Scorer for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            let answer = self
                .client
                .post(self.request(transcript))
                .await
                .map_err(ScoreError::Failed)?;
            let (score, entries) = match &answer {
                Value::Object(entries) => (entries.get("score"), Some(entries)),
                number => (Some(number), None),
            };
            let value = score.and_then(Value::as_f64).ok_or_else(|| {
                ScoreError::Failed(
                    "the server's answer is neither a number nor an object with a number `score`"
                        .to_owned(),
                )
            })?;
            let parts: BTreeMap<String, f64> = entries
                .into_iter()
                .flatten()
                .filter(|(name, _)| *name != "score")
                .filter_map(|(name, value)| {
                    let number = value.as_f64().or_else(|| value.as_bool().map(f64::from))?;
                    Some((name.clone(), number))
                })
                .collect();
            Ok(Score {
                value,
                parts,
                says: None,
            })
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
mod tests;
