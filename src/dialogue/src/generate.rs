//! The generation trait: what a session asks of an engine, whichever it is. Ids in, ids out.

use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

/// How to draw the next token. `temperature` 0 is greedy; filters apply in the order top-k, top-p, min-p.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    pub temperature: f64,
    /// None: off.
    pub top_k: Option<u32>,
    /// 1: off.
    pub top_p: f64,
    /// 0: off.
    pub min_p: f64,
    /// A turn ends when one of these is drawn; it is the turn's last token.
    pub stop_token_ids: Vec<u32>,
    /// A turn ends when the text of its tokens contains one of these; no token is cut.
    pub stop_strings: Vec<String>,
    pub ignore_eos: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            stop_token_ids: Vec::new(),
            stop_strings: Vec::new(),
            ignore_eos: false,
        }
    }
}

/// Names one dialogue in the engine from its first turn to `release`; its KV cache lives as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// One model turn.
#[derive(Debug, Clone)]
pub struct TurnRequest {
    pub session: SessionId,
    /// All token ids of the dialogue so far: prompt, earlier turns, tool results, generation prompt.
    pub context_ids: Vec<u32>,
    pub max_new_tokens: u32,
    pub sampling: Sampling,
    /// With `context_ids`' length it decides every draw: the same sample whatever else is in the batch.
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnFinish {
    /// A stop token or a stop string.
    Stop,
    /// `max_new_tokens` or the engine's context length.
    Length,
    /// By `abort`.
    Aborted,
}

/// What the model said. The three lists are as long as each other, one entry a sampled token.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    pub token_ids: Vec<u32>,
    /// ln p of each drawn token under the distribution it was drawn from (temperature applied, before top-k/p filters), f32.
    pub logprobs: Vec<f32>,
    /// Version of the weights that drew each token.
    pub policy_versions: Vec<u64>,
    pub finish: TurnFinish,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    #[error(
        "the context of {context} tokens leaves no room in the engine's {limit}; raise rollout.max_model_len or shorten the prompt"
    )]
    ContextTooLong { context: usize, limit: usize },
    #[error("the generation engine has stopped: {reason}")]
    Stopped { reason: String },
    #[error("token id {id} is outside the model's vocabulary of {vocabulary}")]
    UnknownToken { id: u32, vocabulary: usize },
    /// This request is one that no engine could answer.
    #[error("generation failed: {reason}")]
    Refused { reason: String },
    /// This turn failed; others go on.
    #[error("generation failed: {reason}")]
    Failed { reason: String },
}

impl GenerateError {
    /// The fault lies with the engine, and the same request may go well another time. False: it lies with the request, or the
    /// engine is gone.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Failed { .. } => true,
            Self::ContextTooLong { .. }
            | Self::Stopped { .. }
            | Self::UnknownToken { .. }
            | Self::Refused { .. } => false,
        }
    }
}

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An engine that writes model turns. Cheap to share; calls from many sessions are batched inside.
pub trait Generator: Send + Sync {
    /// Announces a session before its first turn. In lockstep mode (`full_determinism`) the engine waits for every open
    /// session to ask for its turn or to be released, so that batches do not depend on timing.
    fn open(&self, session: SessionId);
    /// Generates one turn. Dropping the future aborts it.
    fn generate(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn, GenerateError>>;
    /// Ends the turn in progress: its `generate` soon returns what was drawn, with `TurnFinish::Aborted`. False: this
    /// engine cannot, or the session has no turn in progress; dropping the future then loses the turn.
    fn abort(&self, session: SessionId) -> bool {
        let _ = session;
        false
    }
    /// Frees what the engine keeps of a session. Safe to call twice.
    fn release(&self, session: SessionId);
}
