//! JSON rows to Parquet in verl's schema.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema};
use arrow::json::ReaderBuilder;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::{Map, Value, json};

use super::DataError;
use super::row::{Need, Place, Row};
use super::table::Table;

const BATCH_ROWS: usize = 1024;

/// What a conversion wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    pub rows: u64,
    pub columns: Vec<String>,
}

/// Reads JSON Lines and writes Parquet. Rows may be in verl's schema, or short: `prompt` as text, or `question` and
/// `answer`. `data_source` defaults to the file's name. Every row is checked before anything is written.
pub fn convert(input: &Path, output: &Path) -> Result<Converted, DataError> {
    let table = Table::open(input, "prompt")?;
    if table.rows() == 0 {
        return Err(DataError::Empty {
            files: input.display().to_string(),
        });
    }
    let stem = input
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    let source = stem.unwrap_or_default();
    let path: Arc<Path> = input.into();
    let mut kind = Kind::Nothing;
    for item in table.scan_json()? {
        let (row, fields) = item?;
        let fields = verl_row(fields, row, &source);
        let place = Place {
            path: path.clone(),
            row,
        };
        Row::read(fields.clone(), &place, "prompt", Need::Anything)?;
        kind.widen("", &Value::Object(fields))
            .map_err(|clash| clash.at(input, row))?;
    }
    let rows = table
        .scan_json()?
        .map(|item| item.map(|(row, fields)| verl_row(fields, row, &source)));
    write(rows, &kind, output)
}

/// Writes rows that are in memory, with zstd: the same rows give the same bytes.
pub fn write_parquet(rows: &[Map<String, Value>], output: &Path) -> Result<Converted, DataError> {
    let mut kind = Kind::Nothing;
    for (row, fields) in rows.iter().enumerate() {
        kind.widen("", &Value::Object(fields.clone()))
            .map_err(|clash| clash.at(output, row as u64))?;
    }
    write(rows.iter().cloned().map(Ok), &kind, output)
}

fn write(
    rows: impl Iterator<Item = Result<Map<String, Value>, DataError>>,
    kind: &Kind,
    output: &Path,
) -> Result<Converted, DataError> {
    let failed = |error: &dyn std::fmt::Display| DataError::Write {
        path: output.to_owned(),
        reason: error.to_string(),
    };
    let Some(DataType::Struct(fields)) = kind.arrow() else {
        return Err(failed(&"there is no column with a value in it"));
    };
    let schema = Arc::new(Schema::new(fields));
    let level = ZstdLevel::try_new(9).map_err(|error| failed(&error))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .build();
    // Written aside and renamed: a reader never sees half a file.
    let aside = output.with_extension("parquet.part");
    if let Some(directory) = output.parent() {
        std::fs::create_dir_all(directory).map_err(|error| failed(&error))?;
    }
    let file = File::create(&aside).map_err(|error| failed(&error))?;
    let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties))
        .map_err(|error| failed(&error))?;
    let mut count = 0;
    let mut waiting: Vec<Map<String, Value>> = Vec::new();
    let mut flush = |waiting: &mut Vec<Map<String, Value>>| -> Result<(), DataError> {
        let mut decoder = ReaderBuilder::new(schema.clone())
            .with_batch_size(waiting.len().max(1))
            .build_decoder()
            .map_err(|error| failed(&error))?;
        decoder.serialize(waiting).map_err(|error| failed(&error))?;
        if let Some(batch) = decoder.flush().map_err(|error| failed(&error))? {
            writer.write(&batch).map_err(|error| failed(&error))?;
        }
        waiting.clear();
        Ok(())
    };
    for row in rows {
        waiting.push(row?);
        count += 1;
        if waiting.len() == BATCH_ROWS {
            flush(&mut waiting)?;
        }
    }
    flush(&mut waiting)?;
    writer.close().map_err(|error| failed(&error))?;
    std::fs::rename(&aside, output).map_err(|error| failed(&error))?;
    Ok(Converted {
        rows: count,
        columns: schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect(),
    })
}

/// The short forms spelled out.
fn verl_row(mut fields: Map<String, Value>, row: u64, source: &str) -> Map<String, Value> {
    let mut out = Map::new();
    let data_source = fields
        .remove("data_source")
        .unwrap_or_else(|| source.into());
    out.insert("data_source".to_owned(), data_source);
    let prompt = fields
        .remove("prompt")
        .or_else(|| fields.remove("question"));
    match prompt {
        Some(Value::String(text)) => {
            out.insert(
                "prompt".to_owned(),
                json!([{"role": "user", "content": text}]),
            );
        }
        Some(other) => {
            out.insert("prompt".to_owned(), other);
        }
        None => {}
    }
    if !fields.contains_key("reward_model")
        && let Some(answer) = fields.remove("answer")
    {
        let ground_truth = match answer {
            Value::String(text) => text,
            other => other.to_string(),
        };
        out.insert(
            "reward_model".to_owned(),
            json!({"style": "rule", "ground_truth": ground_truth}),
        );
    }
    if out.contains_key("prompt") && !fields.contains_key("extra_info") {
        out.insert("extra_info".to_owned(), json!({ "index": row }));
    }
    out.extend(fields);
    out
}

/// The type of a column as far as its values say.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Nothing,
    Bool,
    Integer,
    Float,
    Text,
    List(Box<Kind>),
    /// Fields in the order they were first seen.
    Struct(Vec<(String, Kind)>),
}

/// Two rows that disagree about a column.
#[derive(Debug)]
struct Clash {
    column: String,
    given: String,
    expected: &'static str,
}

impl Clash {
    fn at(self, path: &Path, row: u64) -> DataError {
        DataError::Row {
            path: path.to_owned(),
            row,
            column: self.column,
            given: self.given,
            expected: self.expected,
        }
    }
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "null",
            Self::Bool => "true or false, as in earlier rows",
            Self::Integer => "a whole number, as in earlier rows",
            Self::Float => "a number, as in earlier rows",
            Self::Text => "text, as in earlier rows",
            Self::List(_) => "a list, as in earlier rows",
            Self::Struct(_) => "a struct, as in earlier rows",
        }
    }

    fn widen(&mut self, column: &str, value: &Value) -> Result<(), Clash> {
        let scalar = match value {
            Value::Null => return Ok(()),
            Value::Bool(_) => Self::Bool,
            Value::Number(number) if number.is_i64() => Self::Integer,
            Value::Number(_) => Self::Float,
            Value::String(_) => Self::Text,
            Value::Array(items) => {
                if *self == Self::Nothing {
                    *self = Self::List(Box::new(Self::Nothing));
                }
                let Self::List(inner) = self else {
                    return Err(self.clash(column, value));
                };
                for (index, item) in items.iter().enumerate() {
                    inner.widen(&format!("{column}[{index}]"), item)?;
                }
                return Ok(());
            }
            Value::Object(fields) => {
                if *self == Self::Nothing {
                    *self = Self::Struct(Vec::new());
                }
                let Self::Struct(known) = self else {
                    return Err(self.clash(column, value));
                };
                for (key, item) in fields {
                    let inner = if column.is_empty() {
                        key.clone()
                    } else {
                        format!("{column}.{key}")
                    };
                    let at = known
                        .iter()
                        .position(|(name, _)| name == key)
                        .unwrap_or_else(|| {
                            known.push((key.clone(), Self::Nothing));
                            known.len() - 1
                        });
                    known[at].1.widen(&inner, item)?;
                }
                return Ok(());
            }
        };
        *self = match (&*self, scalar) {
            (Self::Nothing, scalar) => scalar,
            (Self::Integer, Self::Float) | (Self::Float, Self::Integer) => Self::Float,
            (known, scalar) if *known == scalar => scalar,
            _ => return Err(self.clash(column, value)),
        };
        Ok(())
    }

    fn clash(&self, column: &str, value: &Value) -> Clash {
        Clash {
            column: column.to_owned(),
            given: super::json::brief(value),
            expected: self.name(),
        }
    }

    /// None when there is no value of a type Parquet can hold (only nulls, only empty structs).
    fn arrow(&self) -> Option<DataType> {
        Some(match self {
            Self::Nothing => return None,
            Self::Bool => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::List(inner) => {
                DataType::List(Arc::new(Field::new("element", inner.arrow()?, true)))
            }
            Self::Struct(fields) => {
                let fields: Fields = fields
                    .iter()
                    .filter_map(|(name, kind)| Some(Field::new(name, kind.arrow()?, true)))
                    .collect();
                if fields.is_empty() {
                    return None;
                }
                DataType::Struct(fields)
            }
        })
    }
}
