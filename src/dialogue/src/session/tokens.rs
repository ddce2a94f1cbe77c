//! The tokens of a dialogue after its prompt, with who made each of them.

use crate::generate::Turn;

/// Four lists, always as long as each other.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ResponseTokens {
    pub ids: Vec<u32>,
    pub mask: Vec<bool>,
    pub logprobs: Vec<f32>,
    pub versions: Vec<u64>,
}

impl ResponseTokens {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Appends what the model drew. Errors, and changes nothing, when the engine's lists do not fit each other or the request.
    pub fn push_turn(&mut self, turn: &Turn, asked: usize) -> Result<(), String> {
        let (ids, logprobs, versions) = (
            turn.token_ids.len(),
            turn.logprobs.len(),
            turn.policy_versions.len(),
        );
        if ids != logprobs || ids != versions {
            return Err(format!(
                "the generation engine returned {ids} ids, {logprobs} log-probs and {versions} policy versions"
            ));
        }
        if ids > asked {
            return Err(format!(
                "the generation engine returned {ids} tokens where at most {asked} were asked for"
            ));
        }
        self.ids.extend(&turn.token_ids);
        self.logprobs.extend(&turn.logprobs);
        self.versions.extend(&turn.policy_versions);
        self.mask.resize(self.ids.len(), true);
        Ok(())
    }

    /// Takes back masked tokens at the end.
    pub fn trim_masked(&mut self) {
        let drawn = self
            .mask
            .iter()
            .rposition(|drawn| *drawn)
            .map_or(0, |last| last + 1);
        self.ids.truncate(drawn);
        self.mask.truncate(drawn);
        self.logprobs.truncate(drawn);
        self.versions.truncate(drawn);
    }

    /// Appends tokens the model did not draw. They carry the version of the turn before them.
    pub fn push_masked(&mut self, ids: &[u32]) {
        let version = self.versions.last().copied().unwrap_or(0);
        self.ids.extend(ids);
        self.logprobs.resize(self.ids.len(), 0.0);
        self.versions.resize(self.ids.len(), version);
        self.mask.resize(self.ids.len(), false);
    }
}
