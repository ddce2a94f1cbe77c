//! Metrics over a run, in columns: every point kept, every curve drawn in time that depends on the screen, not the run.
//!
//! ```text
//!  events of one source ─► Rows    step, elapsed_ms, tokens, samples      shared by all metrics of that source
//!                     └──► Column  f64 values + min/max pyramid, a metric each ─► Series (a view: column + its rows)
//!  Series ─► envelope (min/max per screen column) · index_at (crosshair) · bounds (y axis) · Smoothed (debiased EMA, 1,024 parts at most)
//! ```
//! A point costs 8 bytes, its pyramid two thirds of a byte, and a row 32 bytes whatever the number of metrics in it.
//! Knows nothing of events' meaning, files or screens. No locks: the fold owns the columns, views borrow them.

mod bulk;
mod column;
mod envelope;
mod rows;
mod set;
mod smooth;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use bulk::{Heads, Table};
pub use column::Bounds;
pub use envelope::{Cell, envelope};
pub use rows::RowHead;
pub use set::{SeriesSet, Source};
pub use smooth::{MOST_PARTS, Smoothed, Smoothing};
pub use view::Series;

use crate::number::Number;

/// One value: at which step, when, how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub step: u64,
    pub elapsed_ms: f64,
    /// Kept when non-finite: shown as a gap.
    pub value: Number,
}

/// What a curve is drawn against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum XAxis {
    /// The step as logged.
    Step,
    /// Milliseconds since the run started.
    Time,
    /// Tokens of all batches up to and with this row (`perf/total_num_tokens`; `train/tokens` when supervised).
    Tokens,
    /// Rollouts that had ended by then.
    Samples,
}

impl XAxis {
    pub const ALL: [Self; 4] = [Self::Step, Self::Time, Self::Tokens, Self::Samples];

    /// One word for titles and options: `step`, `time`, `tokens`, `samples`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Time => "time",
            Self::Tokens => "tokens",
            Self::Samples => "samples",
        }
    }
}

/// How x is spread over the columns of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scale {
    Linear,
    /// Logarithmic; points at x ≤ 0 have no place on it.
    Log,
}
