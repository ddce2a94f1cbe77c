//! A chat model as the judge (Zheng et al., <https://arxiv.org/abs/2306.05685>): a prompt with the answer in it, and a pattern that
//! finds the rating in what it says.

use std::collections::BTreeMap;
use std::time::Duration;

use experiment::arms::Judged as Settings;
use regex::{Regex, RegexBuilder};
use serde_json::{Value, json};

use super::super::{REFERENCE, Score, ScoreError, Scorer, Sees, Transcript, alternatives};
use crate::generate::BoxFuture;
use crate::http::{Client, Target};

/// The scorer: 0 to 1, and `rating` as the judge said it.
#[derive(Debug)]
pub struct Judge {
    pub sees: Sees,
    client: Client,
    pattern: Regex,
    settings: Settings,
}

impl Judge {
    /// `timeout` is of one attempt. The error says what is wrong or missing.
    pub fn new(settings: Settings, sees: Sees, timeout: Duration) -> Result<Self, String> {
        let pattern = RegexBuilder::new(&settings.pattern)
            .size_limit(1 << 20)
            .build()
            .map_err(|error| format!("options: pattern: {error}"))?;
        if pattern.captures_len() < 2 {
            return Err("options: pattern has no group; put the rating in parentheses".to_owned());
        }
        let client = Client::new(Target {
            key_env: settings.key_env.clone(),
            headers: settings.headers.clone(),
            retries: settings.retries,
            max_response_bytes: settings.max_response_bytes,
            timeout,
            ..Target::new(&settings.url)
        })
        .map_err(|problem| format!("options: {problem}"))?;
        Ok(Self {
            sees,
            client,
            pattern,
            settings,
        })
    }

    pub(super) fn request(&self, transcript: &Transcript) -> Result<Value, ScoreError> {
        if self.settings.compares() && reference(transcript).is_none() {
            return Err(ScoreError::Failed(format!(
                "the judge compares answers with extra_info.{REFERENCE}, which this row lacks"
            )));
        }
        let mut messages = Vec::new();
        if let Some(system) = &self.settings.system {
            messages.push(json!({"role": "system", "content": system}));
        }
        messages.push(json!({"role": "user", "content": self.prompt(transcript)}));
        Ok(json!({
            "model": self.settings.model,
            "messages": messages,
            "temperature": self.settings.temperature,
            "max_tokens": self.settings.max_tokens,
        }))
    }

    /// In one pass, so that an answer cannot ask for the truth to be put in.
    fn prompt(&self, transcript: &Transcript) -> String {
        let mut prompt = String::new();
        let mut rest = self.settings.template.as_str();
        while let Some((before, after)) = rest.split_once("{{") {
            prompt.push_str(before);
            let Some((name, after)) = after.split_once("}}") else {
                prompt.push_str("{{");
                rest = after;
                break;
            };
            match name.trim() {
                "question" => prompt.push_str(&question(transcript)),
                "answer" => prompt.push_str(&transcript.text(self.sees)),
                "reference" => prompt.push_str(reference(transcript).unwrap_or_default()),
                "truth" => {
                    let truths = alternatives(&transcript.ground_truth).unwrap_or_default();
                    prompt.push_str(&truths.join(", or "));
                }
                "data_source" => prompt.push_str(&transcript.data_source),
                _ => {
                    prompt.push_str("{{");
                    prompt.push_str(name);
                    prompt.push_str("}}");
                }
            }
            rest = after;
        }
        prompt + rest
    }

    fn read(&self, answer: &Value) -> Result<Score, ScoreError> {
        let failed = |problem: String| Err(ScoreError::Failed(problem));
        let Some(text) = answer["choices"][0]["message"]["content"].as_str() else {
            return failed("the judge's answer has no choices[0].message.content".to_owned());
        };
        let rating = self
            .pattern
            .captures_iter(text)
            .last()
            .and_then(|found| found.get(1)?.as_str().trim().parse::<f64>().ok());
        let Some(rating) = rating else {
            let end: String = text
                .chars()
                .rev()
                .take(100)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect();
            return failed(format!(
                "the judge gave no rating that the pattern finds; it ended: {end}"
            ));
        };
        let [low, high] = self.settings.range;
        if !(low..=high).contains(&rating) {
            return failed(format!(
                "the judge's rating is {rating}; expected {low} to {high}"
            ));
        }
        Ok(Score {
            value: (rating - low) / (high - low),
            parts: BTreeMap::from([("rating".to_owned(), rating)]),
            says: None,
        })
    }
}

fn reference(transcript: &Transcript) -> Option<&str> {
    transcript.extra_info.get(REFERENCE)?.as_str()
}

/// The last thing the user asked before the dialogue began.
fn question(transcript: &Transcript) -> String {
    let prompt = transcript
        .messages
        .get(..transcript.prompt_messages)
        .unwrap_or_default();
    prompt
        .iter()
        .rev()
        .find(|message| message.role == "user")
        .map(crate::message::Message::text)
        .unwrap_or_default()
}

impl Scorer for Judge {
    fn name(&self) -> &'static str {
        "judge"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            let answer = self
                .client
                .post(self.request(transcript)?)
                .await
                .map_err(ScoreError::Failed)?;
            self.read(&answer)
        })
    }

    fn check(&self, _: &Value) -> Result<(), ScoreError> {
        Ok(())
    }

    fn compares(&self) -> bool {
        self.settings.compares()
    }

    fn perfect_answers(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }
}
