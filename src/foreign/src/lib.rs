//! Runs of other trackers, read where they lie and never touched, as run directories of our own.
//!
//! ```text
//!  path ─► find ─► Found ─► open ─► Reader ─► Item … ─► Projection ─► runs/<time>-<name>-<id>/   (events.jsonl, log.txt, …)
//!                             ▲                             │
//!                             └────── saved position ◄──────┘  foreign.json
//! ```
//! Screens, filters, comparisons and exports then see a run like any other, and know nothing of where it came from.
//! Knows no screen and no experiment's meaning.

mod error;
mod find;
mod format;
mod item;
mod lines;
mod names;
mod number;
mod project;
mod read;
mod yaml;

pub use error::ForeignError;
pub use find::{Found, find, recognise};
pub use format::Format;
pub use item::{Batch, HostSample, Item, Moment, Row};
pub use names::ours as metric_name;
pub use project::{Progress, Projection, Report};
pub use read::verl_console::{StepLine, step_line};
pub use read::{Reader, open};

/// What a person knows of a source that it does not say itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// None: as [`recognise`] finds.
    pub format: Option<Format>,
    /// Of CSV and JSON lines: the column that counts steps. None: the first that is called so, else the row's number.
    pub step_column: Option<String>,
    /// Of CSV and JSON lines: the column that holds times. None: the first that is called so.
    pub time_column: Option<String>,
}
