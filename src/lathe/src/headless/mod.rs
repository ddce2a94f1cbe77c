//! Watches a run without a workbench: reads its events, folds them, shows progress, lines or JSON, and sums up.
//!
//! ```text
//!  events.jsonl ─► Tail ─► RunState ─► View (progress on a terminal · plain lines · JSON lines)
//!  signals ──────► follow ─► trainer    └─► summary
//! ```
//! Knows nothing of how a run was started beyond a trainer that it may hold.

pub mod arms;
mod follow;
pub mod format;
mod json;
pub mod judges;
mod plain;
mod progress;
mod rows;
mod sparkline;
pub mod summary;

use std::io;

use runlog::Event;
use runlog::run_dir::RunDir;
use runlog::state::RunState;

use crate::cli::Failure;

pub use follow::{End, Follow, Followed};
pub use json::JsonView;
pub use plain::PlainView;
pub use progress::ProgressView;

/// Everything that a run's log holds, folded, and how many of its lines are no events.
pub fn read(run_dir: &RunDir) -> io::Result<(RunState, u64)> {
    let opened = runlog::open::open(run_dir)?;
    let bad_lines = opened.sealed_bad_lines + opened.bad_lines.len() as u64;
    Ok((opened.state, bad_lines))
}

/// One way to show a run as it goes. `state` holds everything up to and with `event`.
pub trait View {
    fn event(&mut self, event: &Event, state: &RunState) -> Result<(), Failure>;

    /// What happened before somebody watched is told too, event by event. Else the run is opened as it stands, which is quick
    /// however long it is.
    fn wants_history(&self) -> bool {
        true
    }

    /// Between reads, several times a second, also when nothing happened.
    fn tick(&mut self, _state: &RunState) {}

    /// Something about the watching itself, for people.
    fn notice(&mut self, text: &str) {
        eprintln!("{text}");
    }

    /// How fresh the copy of a run of another machine is, in words; twice a second.
    fn link(&mut self, _words: &str) {}

    /// Something about the line to the other machine, for people.
    fn link_notice(&mut self, text: &str) {
        self.notice(text);
    }

    /// Nothing more will come; leaves the terminal clean.
    fn close(&mut self) {}
}
