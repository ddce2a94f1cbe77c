//! WHAT HAPPENED: a run's events, the table of metrics, the run directory, and every way to read them back.
//!
//! ```text
//!  trainer ─► Recorder ─► events.jsonl ─► Tail ─► Event ─► RunState   (one fold for TUI, headless, replay and tests)
//!                              └─► store: metrics/*.parquet ─┘ open    (a long run at once)   └─► alarms, series, filter
//!  trainer ◄─ control.sock ◄─ control::Client     (pause, resume, step, checkpoint, stop, set; each change is an event)
//! ```
//! Knows nothing of experiments' meaning, models or screens.

pub mod alarms;
pub mod checkpoints;
pub mod control;
pub mod disk;
pub mod event;
pub mod exit_code;
pub mod filter;
pub mod loggers;
pub mod metrics;
pub mod notes;
pub mod number;
pub mod open;
pub mod recorder;
pub mod run_dir;
pub mod run_list;
pub mod series;
pub mod state;
pub mod store;
pub mod tail;
pub mod wire;

pub use event::{Event, EventKind};
pub use recorder::Recorder;
pub use run_dir::RunDir;
pub use state::RunState;
pub use tail::Tail;

#[cfg(test)]
mod testing;
