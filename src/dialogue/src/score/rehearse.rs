//! Every arm asked for real before the first step: what cannot work is found now and not hours later.

use std::time::Duration;

use serde_json::Value;

use super::{Scorers, Transcript};
use crate::message::Message;

/// What an arm may take when it is tried: time-outs are for training.
const LIMIT: Duration = Duration::from_secs(120);

/// How an arm did.
#[derive(Debug, Clone, PartialEq)]
pub struct Rehearsed {
    pub arm: String,
    pub asked: u32,
    pub failed: u32,
    /// The last failure's.
    pub error: Option<String>,
    /// The quickest answer: the first also warms things up.
    pub quickest: Option<Duration>,
    pub timeout: Duration,
}

impl Rehearsed {
    /// It never gave a score.
    pub fn is_broken(&self) -> bool {
        self.failed == self.asked
    }

    /// Even its quickest answer would have come too late.
    pub fn is_too_slow(&self) -> bool {
        self.quickest
            .is_some_and(|quickest| quickest > self.timeout)
    }
}

/// A prompt, for an arm to be tried on.
#[derive(Debug, Clone)]
pub struct Tried {
    pub data_source: String,
    pub ground_truth: Value,
    pub extra_info: Value,
    pub messages: Vec<Message>,
}

impl Scorers {
    /// Asks every arm about every prompt, with an answer that should be right where that is known, else with the truth. Empty
    /// where there are no arms.
    pub async fn rehearse(&self, prompts: &[Tried]) -> Vec<Rehearsed> {
        let Some(arms) = self.arms() else {
            return Vec::new();
        };
        let mut all: Vec<Rehearsed> = arms
            .names()
            .into_iter()
            .map(|name| Rehearsed {
                arm: name.to_owned(),
                asked: 0,
                failed: 0,
                error: None,
                quickest: None,
                timeout: arms.timeout_of(name).unwrap_or_default(),
            })
            .collect();
        for prompt in prompts {
            let tried = arms.try_each(&transcript(prompt), LIMIT).await;
            for (arm, (_, outcome, took)) in all.iter_mut().zip(tried) {
                arm.asked += 1;
                match outcome {
                    Ok(_) => arm.quickest = Some(arm.quickest.map_or(took, |best| best.min(took))),
                    Err(error) => {
                        arm.failed += 1;
                        arm.error = Some(error.to_string());
                    }
                }
            }
        }
        all
    }
}

fn transcript(prompt: &Tried) -> Transcript {
    let answer = super::alternatives(&prompt.ground_truth)
        .and_then(|truths| truths.into_iter().next())
        .unwrap_or_else(|| prompt.ground_truth.to_string());
    let answer = format!("The answer is \\boxed{{{answer}}}\n#### {answer}");
    let mut messages = prompt.messages.clone();
    messages.push(Message::new("assistant", answer.clone()));
    Transcript {
        data_source: prompt.data_source.clone(),
        ground_truth: prompt.ground_truth.clone(),
        extra_info: prompt.extra_info.clone(),
        model_turns: vec![answer],
        prompt_messages: prompt.messages.len(),
        messages,
        tool_rewards: std::collections::BTreeMap::new(),
    }
}
