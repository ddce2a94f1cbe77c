//! One sampled completion: a whole dialogue as tokens, with who made each of them and under which weights.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::Message;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended its last turn without a tool call.
    Stop,
    /// `max_response_length` was reached.
    Length,
    /// `max_assistant_turns` was reached with a tool call pending.
    TurnLimit,
    /// The session's deadline passed.
    Deadline,
    Aborted,
    /// Generation failed; `error` says how.
    Error,
}

/// One call of a tool, as it went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRecord {
    pub name: String,
    pub arguments: Value,
    pub result: String,
    /// The call failed (unknown tool, bad JSON, tool error): `result` is the error text the model saw.
    pub failed: bool,
    /// Why it failed; None exactly when `failed` is false.
    pub failure: Option<CallFailure>,
    /// What the tool itself thought of this call; never part of the training reward.
    pub reward: Option<f64>,
    /// What the tool measured of this call.
    pub metrics: BTreeMap<String, f64>,
    /// From the call to its answer, `wait_ms` included.
    pub elapsed_ms: f64,
    /// It waited so long for its turn at the tool.
    #[serde(default)]
    pub wait_ms: f64,
    /// The answer of an earlier call with the same arguments.
    #[serde(default)]
    pub cached: bool,
}

/// Why a tool call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFailure {
    /// The text between the tags is no call, or the closing tag is missing.
    Malformed,
    /// No tool of this name is visible to the dialogue.
    UnknownTool,
    /// The arguments do not fit the tool's schema.
    BadArguments,
    /// The tool answered with an error.
    Tool,
    TimedOut,
    Panicked,
    /// Beyond `max_parallel_calls`.
    NotRun,
}

/// A finished dialogue. `response_*` lists have one entry a token after the prompt, in order; the last is the model's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollout {
    /// Group id: the same for every sample of one prompt in one batch.
    pub uid: String,
    pub sample: u32,
    pub data_source: String,
    /// Index of the row in its data set (the cursor is the set of these).
    pub row_index: u64,
    pub prompt_ids: Vec<u32>,
    pub response_ids: Vec<u32>,
    /// True: drawn by the model. False: tool result or template, outside loss, KL, entropy and whitening.
    pub response_mask: Vec<bool>,
    /// Log-prob under the weights that drew it, nats; 0 where the mask is false.
    pub behavior_logprobs: Vec<f32>,
    /// Version of the weights that drew each token; masked tokens carry the version of the turn after which they came.
    pub policy_versions: Vec<u64>,
    /// Prompt and dialogue as messages, for people and scorers; they end where `response_ids` end.
    pub messages: Vec<Message>,
    pub assistant_turns: u32,
    pub tools: Vec<ToolRecord>,
    pub finish: Finish,
    pub error: Option<String>,
    /// None: missing (the scorer failed), which is never the same as 0.
    pub score: Option<f64>,
    /// Why `score` is missing although the dialogue reached its end.
    pub score_error: Option<String>,
    /// Further numbers: the scorer's (`format`, …), and `tool_reward/<tool>` where a tool gave one.
    pub score_parts: BTreeMap<String, f64>,
    /// What the scorer found the answer to be, for a vote; None: nothing, or it looks for none.
    pub says: Option<String>,
    pub generate_ms: f64,
    pub tool_ms: f64,
    pub reward_ms: f64,
}

impl Rollout {
    /// Tokens the model drew.
    pub fn model_tokens(&self) -> usize {
        self.response_mask.iter().filter(|drawn| **drawn).count()
    }

    /// Oldest and newest weights in this dialogue; None when the model drew nothing.
    pub fn version_range(&self) -> Option<(u64, u64)> {
        let drawn = || {
            self.policy_versions
                .iter()
                .zip(&self.response_mask)
                .filter(|(_, drawn)| **drawn)
                .map(|(version, _)| *version)
        };
        Some((drawn().min()?, drawn().max()?))
    }
}
