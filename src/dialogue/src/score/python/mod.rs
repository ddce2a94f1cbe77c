//! verl's custom reward function as it is: `compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs)`, plain or
//! async, giving a number or a dict with `score`.
//!
//! ```text
//!  score ─► pool ─► worker: python3, JSON lines over pipes ─► the function
//! ```
//! Each worker is a process of its own that lives from call to call. Whatever the function does costs one sample: a hang is
//! killed, an exit or a crash is an error with the end of what was printed, a leak ends at the memory limit, and prints do not
//! reach the answers. The next call has a new process.

mod worker;

use std::collections::BTreeMap;

use experiment::arms::Python as Settings;
use serde_json::{Value, json};

use super::{Score, ScoreError, Scorer, Sees, Started, Transcript};
use crate::generate::BoxFuture;
use crate::process::Pool;

/// The scorer.
#[derive(Debug)]
pub struct Python {
    pub sees: Sees,
    pool: Pool,
}

impl Python {
    pub fn new(settings: Settings, sees: Sees) -> Self {
        let most_calls = settings.calls;
        let start = Box::new(move || -> BoxFuture<'static, _> {
            Box::pin(worker::start(settings.clone()))
        });
        Self {
            sees,
            pool: Pool::new(start, most_calls),
        }
    }

    async fn ask(&self, transcript: &Transcript, started: &Started) -> Result<Score, ScoreError> {
        let mut worker = self.pool.take().await.map_err(ScoreError::Failed)?;
        started.now();
        let answer = worker.ask(&self.request(transcript)).await;
        // A worker that failed to answer is dropped here, which kills it; so is one whose call is cancelled.
        match answer {
            Ok(answer) => {
                // It says so when it is about to end.
                if answer.get("last").is_none() {
                    self.pool.give_back(worker);
                }
                read(&answer)
            }
            Err(error) => Err(ScoreError::Failed(error)),
        }
    }

    fn request(&self, transcript: &Transcript) -> Value {
        let mut extra_info = match &transcript.extra_info {
            Value::Object(entries) => entries.clone(),
            _ => serde_json::Map::new(),
        };
        extra_info.insert(
            "num_turns".to_owned(),
            (transcript.messages.len() - transcript.prompt_messages + 1).into(),
        );
        json!({
            "data_source": transcript.data_source,
            "solution_str": transcript.text(self.sees),
            "ground_truth": transcript.ground_truth,
            "extra_info": extra_info,
        })
    }
}

impl Scorer for Python {
    fn name(&self) -> &'static str {
        "python"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move { self.ask(transcript, &Started::unheard()).await })
    }

    fn score_from<'a>(
        &'a self,
        transcript: &'a Transcript,
        started: &'a Started,
    ) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(self.ask(transcript, started))
    }

    fn check(&self, _: &Value) -> Result<(), ScoreError> {
        Ok(())
    }

    fn perfect_answers(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }
}

fn read(answer: &Value) -> Result<Score, ScoreError> {
    if let Some(error) = answer["error"].as_str() {
        return Err(ScoreError::Failed(format!(
            "the reward function failed: {error}"
        )));
    }
    let number = |value: &Value| match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_f64(),
    };
    let value = number(&answer["score"]).ok_or_else(|| {
        ScoreError::Failed(format!("the reward worker's answer has no score: {answer}"))
    })?;
    if !value.is_finite() {
        return Err(ScoreError::NotFinite(value));
    }
    let parts: BTreeMap<String, f64> = answer["parts"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), number(value)?)))
        .filter(|(_, value)| value.is_finite())
        .collect();
    Ok(Score {
        value,
        parts,
        says: answer["says"].as_str().map(str::to_owned),
    })
}

#[cfg(test)]
mod tests;
