//! Rows of prompts, demonstrations and preferences from Parquet (or JSON Lines) in verl's schema.
//!
//! ```text
//!  file ─► Table (row groups, read where asked) ─► DataSet (several files, one numbering) ─► PromptSource (seeded batches)
//! ```
//! Nothing is held whole: a table keeps its footer (or line offsets), a source keeps which rows were consumed.
//! Every complaint names file, row and column. Rows count from 0.

mod convert;
mod json;
mod row;
mod screen;
mod set;
mod show;
mod source;
mod table;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use convert::{Converted, convert, write_parquet};
pub(crate) use json::{brief, without_padding};
pub(crate) use row::Reader;
pub use row::{Need, Place, RewardModel, Row};
pub use screen::{Overlong, Screened, screen_prompts};
pub use set::{DataSet, Options};
pub use show::{Histogram, Sample, Shown, show};
pub use source::{Batch, Cursor, PromptSource, RowRanges, SourceOptions, Ticket};
pub use table::{JsonScan, Table};

use crate::chat::ChatError;

#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("{path}: cannot be opened: {source}")]
    Open {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path}: is not a Parquet file this program can read: {reason}")]
    Parquet { path: PathBuf, reason: String },
    #[error(
        "{path}: has extension {extension:?}; expected .parquet, .jsonl or .json with one object a line"
    )]
    Kind { path: PathBuf, extension: String },
    #[error("{path}: row {row} is not a JSON object: {reason}")]
    Line {
        path: PathBuf,
        row: u64,
        reason: String,
    },
    #[error("{path}: row {row}: column {column} is {given}; expected {expected}")]
    Row {
        path: PathBuf,
        row: u64,
        column: String,
        given: String,
        expected: &'static str,
    },
    #[error("{path}: has no row {row}; it has {rows}")]
    NoRow { path: PathBuf, row: u64, rows: u64 },
    #[error("no data files were given; set data.train_files to one or more Parquet files")]
    NoFiles,
    #[error("the data set is empty: no rows in {files}")]
    Empty { files: String },
    #[error(
        "no prompt is left: all {rows} rows of {files} are longer than data.max_prompt_length ({limit} tokens); the shortest has {shortest}"
    )]
    AllTooLong {
        files: String,
        rows: u64,
        limit: usize,
        shortest: usize,
    },
    #[error(
        "{path}: row {row}: the prompt has {tokens} tokens with its tools; data.max_prompt_length is {limit}. Raise it, or set data.filter_overlong_prompts=true to leave such rows out"
    )]
    PromptTooLong {
        path: PathBuf,
        row: u64,
        tokens: usize,
        limit: usize,
    },
    #[error(
        "the data set has {rows} usable rows, fewer than one batch of {batch}; lower data.train_batch_size or add rows"
    )]
    FewerThanABatch { rows: u64, batch: u64 },
    #[error(
        "the saved data cursor is of a data set with {saved} rows and seed {saved_seed}; this one has {rows} rows and seed {seed}. Resume with the same data files, data.seed and sample limits"
    )]
    OtherCursor {
        saved: u64,
        saved_seed: u64,
        rows: u64,
        seed: u64,
    },
    #[error("{path}: row {row}: {source}")]
    Chat {
        path: PathBuf,
        row: u64,
        source: ChatError,
    },
    #[error("{path}: cannot be written: {reason}")]
    Write { path: PathBuf, reason: String },
}
