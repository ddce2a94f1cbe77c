//! The rollouts of one step: everything the loss saw, a row a sample.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, BooleanBuilder, Float32Array, Float32Builder, Float64Array,
    ListArray, ListBuilder, StringArray, UInt32Array, UInt32Builder, UInt64Array, UInt64Builder,
};
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;

use super::{StoreError, column, compressed, read_batches, read_columns, write_batch};
use crate::run_dir::{RunDir, step_name};

/// One sample as the learner used it. T: tokens after the prompt. `Option` lists are None where the algorithm has no such
/// thing (no reference, no critic); all given lists over T are as long as `response_ids`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RolloutRow {
    /// Group: the same for every sample of one prompt.
    pub uid: String,
    pub sample: u32,
    pub step: u64,
    pub data_source: String,
    pub row_index: u64,
    /// The dialogue as JSON text: a list of messages.
    pub messages: String,
    pub prompt_ids: Vec<u32>,
    /// T
    pub response_ids: Vec<u32>,
    /// T; true: drawn by the model.
    pub response_mask: Vec<bool>,
    /// T, nats; under the weights that drew each token.
    pub behavior_logprobs: Vec<f32>,
    /// T, nats; under the weights before the update.
    pub old_logprobs: Option<Vec<f32>>,
    /// T, nats; under the reference.
    pub ref_logprobs: Option<Vec<f32>>,
    /// T; the critic's.
    pub values: Option<Vec<f32>>,
    /// T
    pub advantages: Option<Vec<f32>>,
    /// T; version of the weights that drew each token.
    pub policy_versions: Vec<u64>,
    /// None: the scorer failed.
    pub score: Option<f64>,
    /// Further numbers of the scorer, a JSON object.
    pub score_parts: String,
    /// Tool calls, a JSON list.
    pub tools: String,
    pub finish: String,
}

/// `rollouts/step-000120.parquet`.
pub fn rollouts_path(run_dir: &RunDir, step: u64) -> PathBuf {
    run_dir
        .rollouts_dir()
        .join(format!("{}.parquet", step_name(step)))
}

/// Writes a step's rollouts, whole or not at all. Rows whose lists over T differ in length are refused.
pub fn write_rollouts(path: &Path, rows: &[RolloutRow]) -> Result<(), StoreError> {
    for (index, row) in rows.iter().enumerate() {
        let tokens = row.response_ids.len();
        let optional = |list: &Option<Vec<f32>>| list.as_ref().map_or(tokens, Vec::len);
        for (name, length) in [
            ("response_mask", row.response_mask.len()),
            ("behavior_logprobs", row.behavior_logprobs.len()),
            ("policy_versions", row.policy_versions.len()),
            ("old_logprobs", optional(&row.old_logprobs)),
            ("ref_logprobs", optional(&row.ref_logprobs)),
            ("values", optional(&row.values)),
            ("advantages", optional(&row.advantages)),
        ] {
            if length != tokens {
                return Err(StoreError::shape(
                    path,
                    format!("row {index}: {name} has {length} entries and response_ids {tokens}"),
                ));
            }
        }
    }
    write_batch(path, &to_batch(rows), compressed())
}

pub fn read_rollouts(path: &Path) -> Result<Vec<RolloutRow>, StoreError> {
    let mut rows = Vec::new();
    for batch in read_batches(path)? {
        from_batch(&batch, path, &mut rows)?;
    }
    Ok(rows)
}

/// Whether the dialogue of any group is what is looked for; `is_wanted` gets the messages of each group's first sample as
/// JSON text. Reads two columns only.
pub fn any_rollout_group(
    path: &Path,
    mut is_wanted: impl FnMut(&str) -> bool,
) -> Result<bool, StoreError> {
    let mut seen = std::collections::HashSet::new();
    for batch in read_columns(path, &["uid", "messages"])? {
        let uids: &StringArray = column(&batch, "uid", path)?;
        let messages: &StringArray = column(&batch, "messages", path)?;
        for row in 0..batch.num_rows() {
            if seen.insert(uids.value(row).to_owned()) && is_wanted(messages.value(row)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn texts<'a>(values: impl Iterator<Item = &'a String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn u64s(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn u32_lists<'a>(lists: impl Iterator<Item = &'a Vec<u32>>) -> ArrayRef {
    let mut builder = ListBuilder::new(UInt32Builder::new());
    for list in lists {
        builder.values().append_slice(list);
        builder.append(true);
    }
    Arc::new(builder.finish())
}

fn f32_lists<'a>(lists: impl Iterator<Item = Option<&'a Vec<f32>>>) -> ArrayRef {
    let mut builder = ListBuilder::new(Float32Builder::new());
    for list in lists {
        builder
            .values()
            .append_slice(list.map_or(&[], Vec::as_slice));
        builder.append(list.is_some());
    }
    Arc::new(builder.finish())
}

fn to_batch(rows: &[RolloutRow]) -> RecordBatch {
    let mut masks = ListBuilder::new(BooleanBuilder::new());
    let mut versions = ListBuilder::new(UInt64Builder::new());
    for row in rows {
        masks.values().append_slice(&row.response_mask);
        masks.append(true);
        versions.values().append_slice(&row.policy_versions);
        versions.append(true);
    }
    let samples = UInt32Array::from_iter_values(rows.iter().map(|row| row.sample));
    let scores: Float64Array = rows.iter().map(|row| row.score).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("uid", texts(rows.iter().map(|row| &row.uid))),
        ("sample", Arc::new(samples)),
        ("step", u64s(rows.iter().map(|row| row.step))),
        (
            "data_source",
            texts(rows.iter().map(|row| &row.data_source)),
        ),
        ("row_index", u64s(rows.iter().map(|row| row.row_index))),
        ("messages", texts(rows.iter().map(|row| &row.messages))),
        (
            "prompt_ids",
            u32_lists(rows.iter().map(|row| &row.prompt_ids)),
        ),
        (
            "response_ids",
            u32_lists(rows.iter().map(|row| &row.response_ids)),
        ),
        ("response_mask", Arc::new(masks.finish())),
        (
            "behavior_logprobs",
            f32_lists(rows.iter().map(|row| Some(&row.behavior_logprobs))),
        ),
        (
            "old_logprobs",
            f32_lists(rows.iter().map(|row| row.old_logprobs.as_ref())),
        ),
        (
            "ref_logprobs",
            f32_lists(rows.iter().map(|row| row.ref_logprobs.as_ref())),
        ),
        (
            "values",
            f32_lists(rows.iter().map(|row| row.values.as_ref())),
        ),
        (
            "advantages",
            f32_lists(rows.iter().map(|row| row.advantages.as_ref())),
        ),
        ("policy_versions", Arc::new(versions.finish())),
        ("score", Arc::new(scores)),
        (
            "score_parts",
            texts(rows.iter().map(|row| &row.score_parts)),
        ),
        ("tools", texts(rows.iter().map(|row| &row.tools))),
        ("finish", texts(rows.iter().map(|row| &row.finish))),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .expect("every column has one entry a row")
}

/// The entries of a list column in one row; None where it is null.
fn list<T: 'static>(
    lists: &ListArray,
    row: usize,
    path: &Path,
) -> Result<Option<ArrayRef>, StoreError> {
    if lists.is_null(row) {
        return Ok(None);
    }
    let entries = lists.value(row);
    if entries.as_any().is::<T>() {
        return Ok(Some(entries));
    }
    Err(StoreError::shape(
        path,
        format!(
            "a list column holds {} where another type belongs",
            entries.data_type()
        ),
    ))
}

macro_rules! entries {
    ($array:ty, $batch:expr, $name:literal, $row:expr, $path:expr) => {
        list::<$array>(column($batch, $name, $path)?, $row, $path)?.map(|entries| {
            let entries: &$array = entries
                .as_any()
                .downcast_ref()
                .expect("list() has checked the type");
            entries.iter().flatten().collect()
        })
    };
}

fn from_batch(
    batch: &RecordBatch,
    path: &Path,
    rows: &mut Vec<RolloutRow>,
) -> Result<(), StoreError> {
    let text = |name: &str, row: usize| -> Result<String, StoreError> {
        Ok(column::<StringArray>(batch, name, path)?
            .value(row)
            .to_owned())
    };
    let number = |name: &str, row: usize| -> Result<u64, StoreError> {
        Ok(column::<UInt64Array>(batch, name, path)?.value(row))
    };
    for row in 0..batch.num_rows() {
        let scores: &Float64Array = column(batch, "score", path)?;
        rows.push(RolloutRow {
            uid: text("uid", row)?,
            sample: column::<UInt32Array>(batch, "sample", path)?.value(row),
            step: number("step", row)?,
            data_source: text("data_source", row)?,
            row_index: number("row_index", row)?,
            messages: text("messages", row)?,
            prompt_ids: entries!(UInt32Array, batch, "prompt_ids", row, path).unwrap_or_default(),
            response_ids: entries!(UInt32Array, batch, "response_ids", row, path)
                .unwrap_or_default(),
            response_mask: entries!(BooleanArray, batch, "response_mask", row, path)
                .unwrap_or_default(),
            behavior_logprobs: entries!(Float32Array, batch, "behavior_logprobs", row, path)
                .unwrap_or_default(),
            old_logprobs: entries!(Float32Array, batch, "old_logprobs", row, path),
            ref_logprobs: entries!(Float32Array, batch, "ref_logprobs", row, path),
            values: entries!(Float32Array, batch, "values", row, path),
            advantages: entries!(Float32Array, batch, "advantages", row, path),
            policy_versions: entries!(UInt64Array, batch, "policy_versions", row, path)
                .unwrap_or_default(),
            score: (!scores.is_null(row)).then(|| scores.value(row)),
            score_parts: text("score_parts", row)?,
            tools: text("tools", row)?,
            finish: text("finish", row)?,
        });
    }
    Ok(())
}
