//! The metric events as columns: `name`, `step`, `elapsed_ms`, `value`. A huge run opens at once from these.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, Float64Array, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use serde::{Deserialize, Serialize};

use super::{StoreError, column, read_batches, write_batch};
use crate::event::{Event, EventKind};
use crate::number::Number;
use crate::run_dir::{self, RunDir};
use crate::state::{Point, derived_values};
use crate::tail::{Limits, Tail};

/// Points of one segment: a few megabytes, and few files even for a million-step run.
const SEGMENT_POINTS: usize = 500_000;
const INDEX: &str = "index.json";

/// One value of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricPoint {
    pub name: String,
    pub point: Point,
}

/// How far the projection has got. Renamed into place after its segments, so it never promises what is not there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Index {
    segments: u64,
    /// Bytes of `events.jsonl` that the segments hold; always the start of a line.
    events_offset: u64,
    /// Last step that ended there: the step of syncs and host samples.
    step: u64,
}

impl Index {
    fn read(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(INDEX);
        match fs::read(&path) {
            // An unreadable index is no index: the projection is rebuilt.
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(StoreError::io("read", &path)(error)),
        }
    }

    fn write(&self, directory: &Path) -> Result<(), StoreError> {
        let path = directory.join(INDEX);
        let text = serde_json::to_vec(self).expect("three numbers are JSON");
        run_dir::write_renamed(&path, &text)
            .map_err(|error| StoreError::shape(&path, error.to_string()))
    }
}

fn segment_path(directory: &Path, segment: u64) -> PathBuf {
    directory.join(format!("segment-{segment:06}.parquet"))
}

/// The values of one event, with their steps; `step` is the last step that ended. The same rule as the fold's.
fn points(event: &Event, step: &mut u64) -> Vec<MetricPoint> {
    let of = |name: &str, step: u64, value: f64| MetricPoint {
        name: name.to_owned(),
        point: Point {
            step,
            elapsed_ms: event.elapsed_ms,
            value: Number(value),
        },
    };
    match &event.kind {
        EventKind::StepEnded {
            step: ended,
            values,
            ..
        } => {
            *step = *ended;
            values
                .iter()
                .map(|(name, value)| of(name, *ended, value.0))
                .collect()
        }
        EventKind::EvalEnded { step, values, .. } => values
            .iter()
            .map(|(name, value)| of(name, *step, value.0))
            .collect(),
        kind => derived_values(kind)
            .into_iter()
            .map(|(name, value)| of(&name, *step, value))
            .collect(),
    }
}

/// Brings `metrics/` up to the events that are in the log now; gives the number of points it added.
///
/// Only whole segments are sealed unless `is_final`. A projection that does not fit the log (the log became shorter, a
/// segment is missing) is rebuilt from nothing.
pub fn project(run_dir: &RunDir, is_final: bool) -> Result<u64, StoreError> {
    let directory = run_dir.metrics_dir();
    fs::create_dir_all(&directory).map_err(StoreError::io("create", &directory))?;
    let events_path = run_dir.events_path();
    let size = match fs::metadata(&events_path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(StoreError::io("read", &events_path)(error)),
    };
    let mut index = Index::read(&directory)?;
    let is_whole = (0..index.segments).all(|segment| segment_path(&directory, segment).exists());
    if index.events_offset > size || !is_whole {
        index = Index::default();
        index.write(&directory)?;
    }
    let mut tail = Tail::from_offset(&events_path, index.events_offset);
    let mut pending = Vec::new();
    let mut step = index.step;
    let mut added = 0;
    loop {
        let batch = tail
            .read(Limits::OPENING)
            .map_err(StoreError::io("read", &events_path))?;
        for event in &batch.events {
            pending.extend(points(event, &mut step));
        }
        let is_due = pending.len() >= SEGMENT_POINTS || (is_final && !batch.has_more);
        if is_due && !pending.is_empty() {
            write_batch(
                &segment_path(&directory, index.segments),
                &to_batch(&pending),
            )?;
            index = Index {
                segments: index.segments + 1,
                events_offset: tail.offset(),
                step,
            };
            index.write(&directory)?;
            added += pending.len() as u64;
            pending.clear();
        }
        if !batch.has_more {
            return Ok(added);
        }
    }
}

/// Every series of a run: from the sealed segments, and from the events after them. Equals the fold's `series`.
pub fn read_metrics(run_dir: &RunDir) -> Result<BTreeMap<String, Vec<Point>>, StoreError> {
    let directory = run_dir.metrics_dir();
    let index = Index::read(&directory)?;
    let mut series: BTreeMap<String, Vec<Point>> = BTreeMap::new();
    let mut push = |found: MetricPoint| match series.get_mut(&found.name) {
        Some(series) => series.push(found.point),
        None => series.entry(found.name).or_default().push(found.point),
    };
    for segment in 0..index.segments {
        let path = segment_path(&directory, segment);
        for batch in read_batches(&path)? {
            from_batch(&batch, &path)?.into_iter().for_each(&mut push);
        }
    }
    let events_path = run_dir.events_path();
    let mut tail = Tail::from_offset(&events_path, index.events_offset);
    let mut step = index.step;
    loop {
        let batch = tail
            .read(Limits::OPENING)
            .map_err(StoreError::io("read", &events_path))?;
        for event in &batch.events {
            points(event, &mut step).into_iter().for_each(&mut push);
        }
        if !batch.has_more {
            return Ok(series);
        }
    }
}

fn to_batch(points: &[MetricPoint]) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("step", DataType::UInt64, false),
        Field::new("elapsed_ms", DataType::Float64, false),
        Field::new("value", DataType::Float64, false),
    ]);
    RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(StringArray::from_iter_values(
                points.iter().map(|found| &found.name),
            )),
            Arc::new(UInt64Array::from_iter_values(
                points.iter().map(|found| found.point.step),
            )),
            Arc::new(Float64Array::from_iter_values(
                points.iter().map(|found| found.point.elapsed_ms),
            )),
            Arc::new(Float64Array::from_iter_values(
                points.iter().map(|found| found.point.value.0),
            )),
        ],
    )
    .expect("four columns of one length, as the schema says")
}

fn from_batch(batch: &RecordBatch, path: &Path) -> Result<Vec<MetricPoint>, StoreError> {
    let names: &StringArray = column(batch, "name", path)?;
    let steps: &UInt64Array = column(batch, "step", path)?;
    let times: &Float64Array = column(batch, "elapsed_ms", path)?;
    let values: &Float64Array = column(batch, "value", path)?;
    Ok((0..names.len())
        .map(|row| MetricPoint {
            name: names.value(row).to_owned(),
            point: Point {
                step: steps.value(row),
                elapsed_ms: times.value(row),
                value: Number(values.value(row)),
            },
        })
        .collect())
}
