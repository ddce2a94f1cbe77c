//! Checkpoints of a living learner: taken without stopping it, written by a thread of their own, checked when they are loaded.
//!
//! ```text
//!  learner ─ capture (shares storage) ─► Saver's thread: copy in memory ─► gate opens
//!     └ before it changes a weight: copies what is left          └─► files, fsync, log on disk, rename, prune
//! ```
//! Memory: from the first such checkpoint on, one copy of all that is trained (weights and optimizer state, in f32 with `AdamW`
//! three times the weights; of a critic too), which is kept for the next. On a GPU it lies in the host's memory.
//! The files themselves, and which of them may go, are [`runlog::checkpoints`]' business.

mod capture;
mod gate;
mod logprobs;
mod saver;

pub use capture::{Capture, Gates, Model, Models};
pub use gate::Gate;
pub use logprobs::{check_model, check_tokenizer};
pub use runlog::checkpoints::{CheckpointError, Found, Written, adopt, list, tidy, verify};
pub use saver::{NotSaved, Request, Saver, SaverParts};
