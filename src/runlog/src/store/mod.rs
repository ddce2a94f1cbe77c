//! Projections of a run into Parquet: `metrics/*.parquet` from the events, `rollouts/step-000120.parquet` as they are made.
//!
//! ```text
//!  events.jsonl ─► metrics/steps-000000.parquet, evals-…, syncs-…, host-…   sealed, never changed, rebuildable
//!  learner      ─► rollouts/step-000120.parquet                             one row a sample, the only copy
//! ```
//! Every file is written aside, fsynced and renamed into place. Knows Parquet and the run directory, no meaning.

mod rollouts;
mod seal;
mod segments;

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

pub use rollouts::{RolloutRow, any_rollout_group, read_rollouts, rollouts_path, write_rollouts};
pub(crate) use seal::{SealedSeries, open_sealed};
pub use seal::{Sealer, Sealing, follow, project};

/// What went wrong with a projection; each names the file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{}: {source}", path.display())]
    Parquet {
        path: PathBuf,
        source: parquet::errors::ParquetError,
    },
    #[error("{}: {reason}", path.display())]
    Shape { path: PathBuf, reason: String },
}

impl StoreError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    fn parquet(path: &Path) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = path.to_owned();
        move |source| Self::Parquet { path, source }
    }

    fn shape(path: &Path, reason: impl Into<String>) -> Self {
        Self::Shape {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }
}

const CREATED_BY: &str = concat!("lathe ", env!("CARGO_PKG_VERSION"));

/// Of tables that people keep and copy.
fn compressed() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(CREATED_BY.to_owned())
        .build()
}

/// Writes one batch to `path`, aside and renamed.
fn write_batch(
    path: &Path,
    batch: &RecordBatch,
    properties: WriterProperties,
) -> Result<(), StoreError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(StoreError::io("create", parent))?;
    }
    let aside = path.with_extension("parquet.tmp");
    let outcome = (|| {
        let file = File::create(&aside).map_err(StoreError::io("create", &aside))?;
        let mut writer =
            ArrowWriter::try_new(file, Arc::clone(batch.schema_ref()), Some(properties))
                .map_err(StoreError::parquet(path))?;
        writer.write(batch).map_err(StoreError::parquet(path))?;
        let file = writer.into_inner().map_err(StoreError::parquet(path))?;
        file.sync_all().map_err(StoreError::io("write", &aside))?;
        fs::rename(&aside, path).map_err(StoreError::io("write", path))
    })();
    if outcome.is_err() {
        // Nothing may be left behind on a full disk; the first error is the one to report.
        let _ = fs::remove_file(&aside);
    }
    outcome
}

/// Every batch of a Parquet file.
fn read_batches(path: &Path) -> Result<Vec<RecordBatch>, StoreError> {
    let file = File::open(path).map_err(StoreError::io("open", path))?;
    ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(ParquetRecordBatchReaderBuilder::build)
        .map_err(StoreError::parquet(path))?
        .map(|batch| batch.map_err(|error| StoreError::shape(path, error.to_string())))
        .collect()
}

/// Every batch of a Parquet file with only these columns, those that exist.
fn read_columns(path: &Path, names: &[&str]) -> Result<Vec<RecordBatch>, StoreError> {
    let file = File::open(path).map_err(StoreError::io("open", path))?;
    let builder =
        ParquetRecordBatchReaderBuilder::try_new(file).map_err(StoreError::parquet(path))?;
    let columns = ProjectionMask::columns(builder.parquet_schema(), names.iter().copied());
    builder
        .with_projection(columns)
        .build()
        .map_err(StoreError::parquet(path))?
        .map(|batch| batch.map_err(|error| StoreError::shape(path, error.to_string())))
        .collect()
}

/// A column by name, as the array type it must be.
fn column<'a, T: 'static>(
    batch: &'a RecordBatch,
    name: &str,
    path: &Path,
) -> Result<&'a T, StoreError> {
    batch
        .column_by_name(name)
        .ok_or_else(|| StoreError::shape(path, format!("there is no column `{name}`")))?
        .as_any()
        .downcast_ref()
        .ok_or_else(|| {
            StoreError::shape(path, format!("column `{name}` is not of the expected type"))
        })
}
