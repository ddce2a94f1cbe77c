//! Dialogues as they run: one tokio task each, from a prompt to a [`Rollout`], whatever happens.
//!
//! ```text
//!  Runner::run(Batch) ─► open every session ─► spawn ─► model turn ─► calls? ─► tools ─► delta ids ─┐
//!                                                          ▲                                        │
//!                                                          └────────────────────────────────────────┘
//!                        rollouts in the order (prompt, sample) ◄─ scorer ◄─ release ◄─ the end
//! ```
//! Token in, token out: the ids a model drew go into the context and into the rollout as they are; text is made from them
//! for people, tools and scorers, never the other way round. Dropping the future of a batch cancels its sessions and
//! releases what engine and tools hold for them.

use std::fmt;
use std::time::Instant;

mod agent;
mod batch;
mod counts;
mod limits;
mod prompt;
mod render;
mod seed;
mod tokens;
mod waits;

#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;

pub use batch::{Batch, Opened, Runner};
pub use counts::Counts;
pub use limits::Limits;
pub use prompt::{Prompt, PromptError, agent_loop};
pub use render::Renderer;
pub use seed::{Seeds, seed};
pub use waits::{Owner, Wait, Waiting, Waits};

use crate::rollout::Rollout;

/// Which dialogue a span belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLabel {
    pub uid: String,
    pub sample: u32,
}

/// Why a session is begun again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Again {
    /// The engine's fault, in its words.
    Engine(String),
    /// Its deadline passed before a token was drawn.
    Deadline,
}

impl fmt::Display for Again {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(reason) => formatter.write_str(reason),
            Self::Deadline => formatter.write_str("its deadline passed before a token was drawn"),
        }
    }
}

/// Hears of a batch's spans and ends as they happen; called from the sessions' tasks, so it must not block.
pub trait SessionObserver: Send + Sync {
    /// `turn` counts from 0.
    fn on_generate(&self, label: &SessionLabel, turn: u32, start: Instant, end: Instant) {
        let _ = (label, turn, start, end);
    }

    fn on_tool(&self, label: &SessionLabel, tool: &str, start: Instant, end: Instant) {
        let _ = (label, tool, start, end);
    }

    fn on_reward(&self, label: &SessionLabel, start: Instant, end: Instant) {
        let _ = (label, start, end);
    }

    /// From here to its counterpart a session waits for a tool or its score, and needs no generator.
    fn on_away(&self, label: &SessionLabel) {
        let _ = label;
    }

    fn on_back(&self, label: &SessionLabel) {
        let _ = label;
    }

    /// A session came to nothing, for a reason that is not its own, and is begun again.
    fn on_again(&self, label: &SessionLabel, why: &Again) {
        let _ = (label, why);
    }

    /// Once for every rollout of the batch.
    fn on_end(&self, rollout: &Rollout) {
        let _ = rollout;
    }
}

/// Hears nothing.
impl SessionObserver for () {}
