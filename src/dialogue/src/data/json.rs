//! Arrow rows as JSON. Null fields are left out: Parquet pads a struct with every key that any row has.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::json::WriterBuilder;
use arrow::json::writer::LineDelimited;
use serde_json::{Map, Value};

use super::DataError;

/// The rows of a batch as JSON objects, in schema order.
pub(super) fn rows(batch: &RecordBatch, path: &Path) -> Result<Vec<Map<String, Value>>, DataError> {
    let unreadable = |reason: String| DataError::Parquet {
        path: path.to_owned(),
        reason,
    };
    let mut writer = WriterBuilder::new()
        .with_explicit_nulls(false)
        .build::<_, LineDelimited>(Vec::new());
    writer
        .write(batch)
        .and_then(|()| writer.finish())
        .map_err(|error| unreadable(error.to_string()))?;
    let text = writer.into_inner();
    let rows = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(serde_json::from_slice)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(error.to_string()))?;
    Ok(rows)
}

/// A value without nulls inside its objects, and without objects that held nothing else.
pub(crate) fn without_padding(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let kept: Map<String, Value> = fields
                .into_iter()
                .filter_map(|(key, item)| Some((key, without_padding(item)?)))
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        other => Some(other),
    }
}

/// A short text of a value, for messages.
pub(crate) fn brief(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    format!("{}…", text.chars().take(60).collect::<String>())
}
