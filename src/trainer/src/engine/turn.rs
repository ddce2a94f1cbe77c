//! A turn on its way: what was asked, what was drawn so far, and where the answer goes.

use dialogue::generate::{GenerateError, Sampling, SessionId, Turn, TurnFinish, TurnRequest};
use tokio::sync::oneshot;

use super::handle::TokenDecoder;
use super::sampling::Draw;

pub(super) type Reply = oneshot::Sender<Result<Turn, GenerateError>>;

#[derive(Debug)]
pub(super) struct ActiveTurn {
    pub session: SessionId,
    /// The context, then what was drawn.
    pub ids: Vec<u32>,
    /// Tokens of the context.
    context: usize,
    /// Length of `ids` at which the turn ends.
    limit: usize,
    pub sampling: Sampling,
    pub seed: u64,
    /// Leading tokens of `ids` whose keys and values are in the cache.
    pub cached: usize,
    /// Oldest weights that made any of them.
    pub oldest_version: u64,
    logprobs: Vec<f32>,
    policy_versions: Vec<u64>,
    reply: Reply,
}

impl ActiveTurn {
    /// `max_length`: the engine's limit on a whole dialogue.
    pub fn new(request: TurnRequest, max_length: usize, reply: Reply) -> Self {
        let context = request.context_ids.len();
        let limit = (context + request.max_new_tokens as usize).min(max_length);
        let mut ids = request.context_ids;
        ids.reserve_exact(limit.saturating_sub(context));
        Self {
            session: request.session,
            ids,
            context,
            limit,
            sampling: request.sampling,
            seed: request.seed,
            cached: 0,
            oldest_version: 0,
            logprobs: Vec::new(),
            policy_versions: Vec::new(),
            reply,
        }
    }

    /// Nothing may be drawn.
    pub fn is_full(&self) -> bool {
        self.ids.len() >= self.limit
    }

    /// Nobody waits for the answer any more.
    pub fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    /// Takes the next token; says whether the turn ends with it.
    pub fn push(
        &mut self,
        draw: Draw,
        version: u64,
        eos_token_ids: &[u32],
        decoder: Option<&TokenDecoder>,
    ) -> Option<TurnFinish> {
        self.ids.push(draw.id);
        self.logprobs.push(draw.logprob);
        self.policy_versions.push(version);
        let sampling = &self.sampling;
        let stops = sampling.stop_token_ids.contains(&draw.id)
            || (!sampling.ignore_eos && eos_token_ids.contains(&draw.id))
            || decoder.is_some_and(|decoder| self.says_a_stop_string(decoder));
        if stops {
            Some(TurnFinish::Stop)
        } else if self.is_full() {
            Some(TurnFinish::Length)
        } else {
            None
        }
    }

    /// Looks at the last tokens only: as many as the longest stop string has bytes, and some that decode to nothing.
    fn says_a_stop_string(&self, decoder: &TokenDecoder) -> bool {
        let Some(longest) = self.sampling.stop_strings.iter().map(String::len).max() else {
            return false;
        };
        let drawn = &self.ids[self.context..];
        let tail = &drawn[drawn.len().saturating_sub(longest + 16)..];
        let text = decoder.decode(tail);
        self.sampling
            .stop_strings
            .iter()
            .any(|stop| text.contains(stop))
    }

    pub fn finish(self, finish: TurnFinish) {
        let turn = Turn {
            token_ids: self.ids[self.context..].to_vec(),
            logprobs: self.logprobs,
            policy_versions: self.policy_versions,
            finish,
        };
        // The asker may be gone; then nobody needs the turn.
        drop(self.reply.send(Ok(turn)));
    }

    pub fn fail(self, error: GenerateError) {
        drop(self.reply.send(Err(error)));
    }
}
