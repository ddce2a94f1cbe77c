//! The embedded generation engine: one thread that owns a copy of the weights and writes the turns of many dialogues at once.
//!
//! ```text
//!  sessions ─ Generator ─► commands (bounded) ─► worker thread ─ loop { swap? · admit + prefill · decode one token each }
//!                                                 │ rows 0..A of the KV cache: who is generating
//!  learner ─ WeightBuffer ─► swap ───────────────►│ parked: who waits for a tool; its keys and values are set aside
//! ```
//! Sessions join and leave between decode steps. A context that starts like another one (the samples of a prompt, a system
//! prompt, an earlier turn) reuses its keys and values; only the rest is computed. Knows nothing of tools, rewards and learning.

mod cache;
mod forward;
mod handle;
mod prefix;
mod sampling;
mod turn;
mod weights;
mod worker;

pub use forward::score;
pub use handle::{Engine, EngineHandle, EngineOptions, EngineStats, Swapped, TokenDecoder};
pub use weights::WeightBuffer;
