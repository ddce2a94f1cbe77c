//! One data file, read where asked: Parquet by row group, JSON Lines by line offset.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use serde_json::{Map, Value};

use super::DataError;
use super::json::{brief, rows as json_rows};
use super::row::{Need, Place, Row};

/// Rows decoded at a time when a file is read through.
const SCAN_ROWS: usize = 256;

/// The columns that rows are made of; others (images, notes) are not even decompressed.
const COLUMNS: [&str; 11] = [
    "data_source",
    "ability",
    "agent_name",
    "messages",
    "reward_model",
    "extra_info",
    "tools",
    "chosen",
    "rejected",
    "response",
    "label",
];

#[derive(Debug)]
pub struct Table {
    path: Arc<Path>,
    prompt_key: String,
    /// Or only those that rows are made of.
    has_every_column: bool,
    rows: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Parquet {
        metadata: ArrowReaderMetadata,
        /// First row of each row group, and the number of rows at the end.
        starts: Vec<u64>,
    },
    /// Byte offset of each row's line.
    Lines { offsets: Vec<u64> },
}

/// Rows as JSON with their numbers, one after another.
pub type JsonScan<'a> = Box<dyn Iterator<Item = Result<(u64, Map<String, Value>), DataError>> + 'a>;

/// JSON objects with their row numbers.
type JsonRows = Vec<(u64, Map<String, Value>)>;

impl Table {
    pub fn open(path: &Path, prompt_key: &str) -> Result<Self, DataError> {
        let extension = path
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default();
        let file = open(path)?;
        let (rows, kind) = match extension {
            "parquet" => {
                let options = ArrowReaderOptions::new();
                let metadata = ArrowReaderMetadata::load(&file, options).map_err(|error| {
                    DataError::Parquet {
                        path: path.to_owned(),
                        reason: error.to_string(),
                    }
                })?;
                let mut starts = vec![0];
                for group in metadata.metadata().row_groups() {
                    starts.push(starts[starts.len() - 1] + group.num_rows() as u64);
                }
                (starts[starts.len() - 1], Kind::Parquet { metadata, starts })
            }
            "jsonl" | "json" => {
                let offsets = line_offsets(file).map_err(|source| DataError::Open {
                    path: path.to_owned(),
                    source,
                })?;
                (offsets.len() as u64, Kind::Lines { offsets })
            }
            other => {
                return Err(DataError::Kind {
                    path: path.to_owned(),
                    extension: other.to_owned(),
                });
            }
        };
        Ok(Self {
            path: path.into(),
            prompt_key: prompt_key.to_owned(),
            has_every_column: false,
            rows,
            kind,
        })
    }

    /// A table that is not of dialogues: [`Table::scan_json`] gives every column.
    pub fn open_whole(path: &Path) -> Result<Self, DataError> {
        Ok(Self {
            has_every_column: true,
            ..Self::open(path, "prompt")?
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Column names with Arrow types; empty for JSON Lines.
    pub fn schema(&self) -> Vec<(String, String)> {
        match &self.kind {
            Kind::Parquet { metadata, .. } => metadata
                .schema()
                .fields()
                .iter()
                .map(|field| (field.name().clone(), type_name(field.data_type())))
                .collect(),
            Kind::Lines { .. } => Vec::new(),
        }
    }

    /// The rows asked for, in the order asked.
    pub fn read(&self, wanted: &[u64], need: Need) -> Result<Vec<Row>, DataError> {
        if let Some(row) = wanted.iter().find(|row| **row >= self.rows) {
            return Err(DataError::NoRow {
                path: self.path.to_path_buf(),
                row: *row,
                rows: self.rows,
            });
        }
        let mut sorted = wanted.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let found = match &self.kind {
            Kind::Parquet { metadata, starts } => self.read_parquet(&sorted, metadata, starts)?,
            Kind::Lines { offsets } => self.read_lines(&sorted, offsets)?,
        };
        let rows = found
            .into_iter()
            .map(|(row, fields)| self.row(row, fields, need))
            .collect::<Result<Vec<_>, _>>()?;
        wanted
            .iter()
            .map(|row| {
                let found = sorted.binary_search(row).ok().and_then(|at| rows.get(at));
                found.cloned().ok_or_else(|| DataError::Parquet {
                    path: self.path.to_path_buf(),
                    reason: format!("row {row} could not be read although the footer counts it"),
                })
            })
            .collect()
    }

    /// Every row in file order, a few hundred in memory at a time.
    pub fn scan(
        &self,
        need: Need,
    ) -> Result<impl Iterator<Item = Result<Row, DataError>> + '_, DataError> {
        Ok(self
            .scan_json()?
            .map(move |item| item.and_then(|(row, fields)| self.row(row, fields, need))))
    }

    /// Every row as JSON, with its number; of Parquet the columns that rows are made of, unless it was opened whole.
    pub fn scan_json(&self) -> Result<JsonScan<'_>, DataError> {
        match &self.kind {
            Kind::Parquet { metadata, .. } => {
                let reader = self.reader(metadata, None, None)?;
                let mut next = 0;
                Ok(Box::new(reader.flat_map(move |batch| {
                    let rows = self.decoded(batch).unwrap_or_else(|error| vec![Err(error)]);
                    rows.into_iter()
                        .map(|fields| {
                            next += 1;
                            fields.map(|fields| (next - 1, fields))
                        })
                        .collect::<Vec<_>>()
                })))
            }
            Kind::Lines { .. } => {
                let lines = BufReader::new(open(&self.path)?)
                    .lines()
                    .filter(|line| line.as_ref().map_or(true, |line| !line.trim().is_empty()));
                Ok(Box::new((0..).zip(lines).map(|(row, line)| {
                    let line = line.map_err(|source| DataError::Open {
                        path: self.path.to_path_buf(),
                        source,
                    })?;
                    Ok((row, self.object(row, line.as_bytes())?))
                })))
            }
        }
    }

    /// Every row as it is stored, without padding: for comparing files.
    #[cfg(test)]
    pub(crate) fn stored_rows(
        &self,
    ) -> impl Iterator<Item = Result<Map<String, Value>, DataError>> + '_ {
        let rows = self.scan_json().expect("the file was opened before");
        rows.map(|item| {
            item.map(
                |(_, fields)| match super::json::without_padding(Value::Object(fields)) {
                    Some(Value::Object(fields)) => fields,
                    _ => Map::new(),
                },
            )
        })
    }

    fn row(&self, row: u64, fields: Map<String, Value>, need: Need) -> Result<Row, DataError> {
        let place = Place {
            path: self.path.clone(),
            row,
        };
        Row::read(fields, &place, &self.prompt_key, need)
    }

    #[expect(
        clippy::type_complexity,
        reason = "a list of rows that may each fail, or one failure"
    )]
    fn decoded(
        &self,
        batch: Result<arrow::array::RecordBatch, arrow::error::ArrowError>,
    ) -> Result<Vec<Result<Map<String, Value>, DataError>>, DataError> {
        let batch = batch.map_err(|error| self.corrupt(&error))?;
        Ok(json_rows(&batch, &self.path)?.into_iter().map(Ok).collect())
    }

    fn corrupt(&self, error: &dyn std::fmt::Display) -> DataError {
        DataError::Parquet {
            path: self.path.to_path_buf(),
            reason: error.to_string(),
        }
    }

    fn reader(
        &self,
        metadata: &ArrowReaderMetadata,
        group: Option<usize>,
        selection: Option<RowSelection>,
    ) -> Result<ParquetRecordBatchReader, DataError> {
        let wanted = metadata
            .schema()
            .fields()
            .iter()
            .enumerate()
            .filter(|(_, field)| {
                self.has_every_column
                    || COLUMNS.contains(&field.name().as_str())
                    || *field.name() == self.prompt_key
            })
            .map(|(index, _)| index);
        let mask = ProjectionMask::roots(metadata.parquet_schema(), wanted);
        let mut builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(open(&self.path)?, metadata.clone())
                .with_batch_size(SCAN_ROWS)
                .with_projection(mask);
        if let Some(group) = group {
            builder = builder.with_row_groups(vec![group]);
        }
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        builder.build().map_err(|error| self.corrupt(&error))
    }

    /// `sorted` rows without repeats.
    fn read_parquet(
        &self,
        sorted: &[u64],
        metadata: &ArrowReaderMetadata,
        starts: &[u64],
    ) -> Result<JsonRows, DataError> {
        let mut found = Vec::with_capacity(sorted.len());
        let mut rest = sorted;
        while let Some(first) = rest.first() {
            let group = starts.partition_point(|start| start <= first) - 1;
            let (start, end) = (starts[group], starts[group + 1]);
            let (here, later) = rest.split_at(rest.partition_point(|row| *row < end));
            rest = later;
            let mut selectors = Vec::new();
            let mut at = start;
            for row in here {
                if *row > at {
                    selectors.push(RowSelector::skip((row - at) as usize));
                }
                selectors.push(RowSelector::select(1));
                at = row + 1;
            }
            let mut numbers = here.iter().copied();
            for batch in self.reader(metadata, Some(group), Some(RowSelection::from(selectors)))? {
                for fields in self.decoded(batch)? {
                    found.extend(numbers.next().zip(Some(fields?)));
                }
            }
        }
        Ok(found)
    }

    fn read_lines(&self, sorted: &[u64], offsets: &[u64]) -> Result<JsonRows, DataError> {
        let failed = |source| DataError::Open {
            path: self.path.to_path_buf(),
            source,
        };
        let mut file = BufReader::new(open(&self.path)?);
        sorted
            .iter()
            .map(|row| {
                let mut line = Vec::new();
                file.seek(SeekFrom::Start(offsets[*row as usize]))
                    .and_then(|_| file.read_until(b'\n', &mut line))
                    .map_err(failed)?;
                Ok((*row, self.object(*row, &line)?))
            })
            .collect()
    }

    fn object(&self, row: u64, line: &[u8]) -> Result<Map<String, Value>, DataError> {
        let failed = |reason| DataError::Line {
            path: self.path.to_path_buf(),
            row,
            reason,
        };
        match serde_json::from_slice(line) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(other) => Err(failed(format!("it is {}", brief(&other)))),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

fn open(path: &Path) -> Result<File, DataError> {
    File::open(path).map_err(|source| DataError::Open {
        path: PathBuf::from(path),
        source,
    })
}

/// Where each line that is not blank begins.
fn line_offsets(file: impl Read) -> std::io::Result<Vec<u64>> {
    let mut reader = BufReader::new(file);
    let mut offsets = Vec::new();
    let mut line = Vec::new();
    let mut at = 0;
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(offsets);
        }
        if !line.trim_ascii().is_empty() {
            offsets.push(at);
        }
        at += length as u64;
    }
}

/// `list<struct<role: text, content: text>>` rather than Arrow's own spelling.
fn type_name(kind: &arrow::datatypes::DataType) -> String {
    use arrow::datatypes::DataType;
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::List(item) | DataType::LargeList(item) => {
            format!("list<{}>", type_name(item.data_type()))
        }
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| format!("{}: {}", field.name(), type_name(field.data_type())))
                .collect();
            format!("struct<{}>", fields.join(", "))
        }
        other => other.to_string().to_lowercase(),
    }
}
