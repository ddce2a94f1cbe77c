//! Checkpoints of a living learner: taken without stopping it, written by a thread of their own, checked when they are loaded.
//!
//! ```text
//!  learner ─ capture (shares storage) ─► Saver's thread: copy in memory ─► gate opens
//!     └ waits at the gate before it changes a weight          └─► files, fsync, log on disk, rename, prune
//! ```
//! The files themselves, and which of them may go, are [`runlog::checkpoints`]' business.

mod capture;
mod logprobs;
mod saver;

pub use capture::{Capture, Gate, Model, Models};
pub use logprobs::{check_model, check_tokenizer};
pub use runlog::checkpoints::{CheckpointError, Found, Written, adopt, list, tidy, verify};
pub use saver::{Request, Saver, SaverParts};
