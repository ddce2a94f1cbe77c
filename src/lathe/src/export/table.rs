//! Every value of every metric, one a row: `name`, `step`, `elapsed_ms`, `value`. Non-finite values are kept.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use runlog::number::Number;
use runlog::state::{Point, RunState};
use serde::Serialize;

use super::ExportError;

/// Rows of a batch: a few MiB, however long the run.
const BATCH_ROWS: usize = 65_536;

#[derive(Debug, Serialize)]
struct Row<'a> {
    name: &'a str,
    step: u64,
    elapsed_ms: f64,
    value: Number,
}

impl<'a> Row<'a> {
    fn new(name: &'a str, point: Point) -> Self {
        Self {
            name,
            step: point.step,
            elapsed_ms: point.elapsed_ms,
            value: point.value,
        }
    }
}

/// Metric by metric, each in the order of the log.
fn rows<'a>(state: &'a RunState, metrics: &'a [String]) -> impl Iterator<Item = Row<'a>> {
    metrics.iter().flat_map(|name| {
        let points = state
            .series
            .get(name)
            .into_iter()
            .flat_map(runlog::series::Series::iter);
        points.map(move |point| Row::new(name, point))
    })
}

/// RFC 4180, but for line ends, which are those of other tools here.
pub fn csv(
    state: &RunState,
    metrics: &[String],
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    let mut out = BufWriter::new(out);
    out.write_all(b"name,step,elapsed_ms,value\n")?;
    for row in rows(state, metrics) {
        writeln!(
            out,
            "{},{},{},{}",
            csv_cell(row.name),
            row.step,
            row.elapsed_ms,
            row.value.0
        )?;
    }
    Ok(out.flush()?)
}

/// Quoted where a comma, a quote or a line end would be misread.
pub fn csv_cell(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}

/// A list, an object a line: whole it is JSON, and line by line it can be searched.
pub fn json(
    state: &RunState,
    metrics: &[String],
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    let mut out = BufWriter::new(out);
    let mut separator = "[\n";
    for row in rows(state, metrics) {
        out.write_all(separator.as_bytes())?;
        serde_json::to_writer(&mut out, &row).map_err(io::Error::from)?;
        separator = ",\n";
    }
    let end = if separator == "[\n" { "[]\n" } else { "\n]\n" };
    out.write_all(end.as_bytes())?;
    Ok(out.flush()?)
}

pub fn parquet(
    state: &RunState,
    metrics: &[String],
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("step", DataType::UInt64, false),
        Field::new("elapsed_ms", DataType::Float64, false),
        Field::new("value", DataType::Float64, false),
    ]));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .build();
    let told = |error: parquet::errors::ParquetError| ExportError::Write(io::Error::other(error));
    let mut writer = ArrowWriter::try_new(out, schema.clone(), Some(properties)).map_err(told)?;
    let mut rows = rows(state, metrics).peekable();
    while rows.peek().is_some() {
        let batch: Vec<Row<'_>> = rows.by_ref().take(BATCH_ROWS).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(
                batch.iter().map(|row| row.name),
            )),
            Arc::new(UInt64Array::from_iter_values(
                batch.iter().map(|row| row.step),
            )),
            Arc::new(Float64Array::from_iter_values(
                batch.iter().map(|row| row.elapsed_ms),
            )),
            Arc::new(Float64Array::from_iter_values(
                batch.iter().map(|row| row.value.0),
            )),
        ];
        let batch = RecordBatch::try_new(schema.clone(), columns)
            .expect("every column has one entry a row");
        writer.write(&batch).map_err(told)?;
    }
    writer.close().map_err(told)?;
    Ok(())
}
