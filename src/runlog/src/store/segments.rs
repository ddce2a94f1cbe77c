//! One sealed piece of the metrics: a Parquet file for each source of rows, one row an event, one column a metric.
//!
//! `step`, `elapsed_ms`, `tokens` and `samples` come first; a value that was not logged is null, NaN stays NaN. Plain
//! encoding, no dictionary, no compression: reading one is copying it, and pandas or polars open it as it is.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, Float64Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde::{Deserialize, Serialize};

use super::{StoreError, column, write_batch};
use crate::series::{Heads, SeriesSet, Source, Table};

/// The x columns, in this order before all metrics.
const X_COLUMNS: [&str; 4] = ["step", "elapsed_ms", "tokens", "samples"];
/// Put before a metric that is named like an x column.
const ESCAPE: &str = "values/";
/// Rows decoded at once: what one column needs then stays in the cache until it is copied to its place.
const BATCH_ROWS: usize = 8192;

/// One file of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SegmentFile {
    /// `steps-000003.parquet`.
    pub(super) name: String,
    /// None: one metric that several sources write.
    pub(super) source: Option<Source>,
    pub(super) rows: usize,
    pub(super) bytes: u64,
}

/// Writes all that `series` holds as segment number `segment`.
pub(super) fn write(
    directory: &Path,
    segment: u64,
    series: &SeriesSet,
) -> Result<Vec<SegmentFile>, StoreError> {
    let mut mixed = 0;
    series
        .tables()
        .into_iter()
        .map(|table| {
            let name = if let Some(source) = table.source {
                format!("{}-{segment:06}.parquet", source.name())
            } else {
                mixed += 1;
                format!("mixed-{segment:06}-{mixed}.parquet")
            };
            let path = directory.join(&name);
            write_batch(&path, &batch(&table), properties(table.heads().step.len()))?;
            let metadata = path.metadata().map_err(StoreError::io("read", &path))?;
            Ok(SegmentFile {
                name,
                source: table.source,
                rows: table.heads().step.len(),
                bytes: metadata.len(),
            })
        })
        .collect()
}

fn properties(rows: usize) -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_max_row_group_row_count(Some(rows.max(1)))
        .set_data_page_row_count_limit(rows.max(1))
        .set_created_by(super::CREATED_BY.to_owned())
        .build()
}

fn batch(table: &Table<'_>) -> RecordBatch {
    let heads = table.heads();
    let rows = heads.step.len();
    let mut fields = vec![
        Field::new(X_COLUMNS[0], DataType::UInt64, false),
        Field::new(X_COLUMNS[1], DataType::Float64, false),
        Field::new(X_COLUMNS[2], DataType::Float64, false),
        Field::new(X_COLUMNS[3], DataType::Float64, false),
    ];
    let mut columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(UInt64Array::from(heads.step.to_vec())),
        Arc::new(Float64Array::from(heads.elapsed_ms.to_vec())),
        Arc::new(Float64Array::from(heads.tokens.to_vec())),
        Arc::new(Float64Array::from(heads.samples.to_vec())),
    ];
    for metric in &table.columns {
        let places = metric.rows(rows);
        fields.push(Field::new(
            escaped(metric.name),
            DataType::Float64,
            places.is_some(),
        ));
        columns.push(match places {
            None => Arc::new(Float64Array::from(metric.values.to_vec())),
            Some(places) => {
                let mut cells: Vec<Option<f64>> = vec![None; rows];
                for (row, value) in places.iter().zip(metric.values) {
                    cells[*row as usize] = Some(*value);
                }
                Arc::new(Float64Array::from(cells))
            }
        });
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .expect("every column has a cell of each row, as the schema says")
}

/// Adds a file's rows to `series`. `total_rows` of its source, over all segments: what is reserved.
pub(super) fn read(
    directory: &Path,
    file: &SegmentFile,
    total_rows: usize,
    series: &mut SeriesSet,
) -> Result<(), StoreError> {
    let path = directory.join(&file.name);
    let open = File::open(&path).map_err(StoreError::io("open", &path))?;
    let size = open
        .metadata()
        .map_err(StoreError::io("read", &path))?
        .len();
    if size != file.bytes {
        return Err(StoreError::shape(
            &path,
            format!("it has {size} bytes, and {} when it was sealed", file.bytes),
        ));
    }
    let reader = ParquetRecordBatchReaderBuilder::try_new(open)
        .and_then(|builder| builder.with_batch_size(BATCH_ROWS).build())
        .map_err(StoreError::parquet(&path))?;
    let mut rows = 0;
    for batch in reader {
        let batch = batch.map_err(|error| StoreError::shape(&path, error.to_string()))?;
        rows += batch.num_rows();
        add(&batch, file.source, total_rows, &path, series)?;
    }
    if rows == file.rows {
        Ok(())
    } else {
        Err(StoreError::shape(
            &path,
            format!("it has {rows} rows, and {} when it was sealed", file.rows),
        ))
    }
}

fn add(
    batch: &RecordBatch,
    source: Option<Source>,
    total_rows: usize,
    path: &Path,
    series: &mut SeriesSet,
) -> Result<(), StoreError> {
    let steps: &UInt64Array = column(batch, X_COLUMNS[0], path)?;
    let x = |name| column::<Float64Array>(batch, name, path).map(|array| &array.values()[..]);
    let heads = Heads {
        step: steps.values(),
        elapsed_ms: x(X_COLUMNS[1])?,
        tokens: x(X_COLUMNS[2])?,
        samples: x(X_COLUMNS[3])?,
    };
    let first_row = source.map(|source| series.append_rows(source, heads, total_rows));
    let schema = batch.schema_ref();
    for field in schema.fields().iter().skip(X_COLUMNS.len()) {
        let values: &Float64Array = column(batch, field.name(), path)?;
        let name = unescaped(field.name());
        match (source, first_row) {
            (Some(source), Some(first_row)) => {
                let is_there = |row: usize| values.is_valid(row);
                let is_there =
                    (values.null_count() > 0).then_some(&is_there as &dyn Fn(usize) -> bool);
                series.append_column(
                    source,
                    first_row,
                    name,
                    values.values(),
                    is_there,
                    total_rows,
                );
            }
            _ => series.append_mixed(name, heads, values.values()),
        }
    }
    Ok(())
}

fn needs_escape(name: &str) -> bool {
    X_COLUMNS.contains(&name.trim_start_matches(ESCAPE))
}

fn escaped(name: &str) -> String {
    if needs_escape(name) {
        format!("{ESCAPE}{name}")
    } else {
        name.to_owned()
    }
}

fn unescaped(column: &str) -> &str {
    match column.strip_prefix(ESCAPE) {
        Some(name) if needs_escape(name) => name,
        _ => column,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_named_like_an_x_column_keeps_its_name() {
        for name in [
            "step",
            "values/step",
            "values/values/tokens",
            "values/x",
            "step/values/",
        ] {
            assert_eq!(unescaped(&escaped(name)), name);
            assert!(!X_COLUMNS.contains(&escaped(name).as_str()));
        }
    }
}
