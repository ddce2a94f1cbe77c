//! A run in `MLflow`'s file store: `mlruns/<experiment>/<run>/{meta.yaml, metrics/<name>, params/<name>, tags/<name>}`.
//!
//! A metric is a file of lines `<ms since 1970> <value> <step>`; a `/` in its name makes a directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::{Reader, mlflow, place_value};
use crate::ForeignError;
use crate::item::{Batch, Item, Moment, Row};
use crate::lines::{LineFile, LinePlace};
use crate::number;

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Place {
    /// Of each metric's file.
    files: BTreeMap<String, LinePlace>,
    /// Of the parameters that were given.
    parameters: Option<u64>,
    /// The end that was given.
    ended: Option<String>,
}

#[derive(Debug)]
pub struct MlflowFiles {
    /// The run's directory.
    path: PathBuf,
    place: Place,
}

/// `key: value` lines of a `meta.yaml`; `MLflow` writes nothing nested that is of use here.
#[derive(Debug, Default, Clone)]
pub struct Meta(BTreeMap<String, String>);

impl Meta {
    pub fn read(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string(directory.join("meta.yaml")).ok()?;
        let pairs = text.lines().filter_map(|line| {
            let (key, value) = line.split_once(": ")?;
            let value = value.trim();
            let value = value
                .strip_prefix('\'')
                .and_then(|value| value.strip_suffix('\''))
                .or_else(|| {
                    value
                        .strip_prefix('"')
                        .and_then(|value| value.strip_suffix('"'))
                })
                .unwrap_or(value);
            Some((key.to_owned(), value.to_owned()))
        });
        Some(Self(pairs.collect()))
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        let text = self.0.get(key)?.as_str();
        (text != "null").then_some(text)
    }

    pub fn number(&self, key: &str) -> Option<f64> {
        number::parse(self.text(key)?)
    }
}

impl MlflowFiles {
    pub fn new(path: PathBuf, place: Place) -> Self {
        Self { path, place }
    }

    fn metrics(&mut self, is_last: bool, items: &mut Vec<Item>) -> Result<(), ForeignError> {
        let mut points: Vec<(f64, u64, String, f64)> = Vec::new();
        for (name, path) in files_below(&self.path.join("metrics")) {
            let place = self.place.files.entry(name.clone()).or_default();
            let mut file = LineFile::new(path, place.clone());
            loop {
                let lines = file.read(is_last)?;
                for (number, line) in &lines.numbered {
                    match point(&String::from_utf8_lossy(line)) {
                        Some((ms, value, step)) => points.push((ms, step, name.clone(), value)),
                        None => items.push(Item::Note(format!(
                            "metric {name}: line {number} is left out: it is not `<ms> <value> <step>`"
                        ))),
                    }
                }
                if !lines.has_more {
                    break;
                }
            }
            *place = file.place;
        }
        // A file a metric: by time and step they are a run again.
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        items.extend(points.into_iter().map(|(ms, step, name, value)| {
            Item::Row(Row {
                step,
                at: Some(Moment::Wall(ms / 1e3)),
                values: vec![(name, value)],
            })
        }));
        Ok(())
    }
}

fn point(line: &str) -> Option<(f64, f64, u64)> {
    let mut parts = line.split_ascii_whitespace();
    let ms = number::parse(parts.next()?)?;
    let value = number::parse(parts.next()?)?;
    let step: i64 = parts.next().map_or(Some(0), |step| step.parse().ok())?;
    Some((ms, value, u64::try_from(step).ok()?))
}

/// Every file below a directory with its path from there, in name order.
fn files_below(directory: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(String::new(), directory.to_owned())];
    while let Some((prefix, directory)) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let name = format!("{prefix}{name}");
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push((format!("{name}/"), entry.path())),
                Ok(_) => {
                    found.insert(name, entry.path());
                }
                Err(_) => {}
            }
        }
    }
    found
}

fn texts_below(directory: &Path) -> Vec<(String, String)> {
    files_below(directory)
        .into_iter()
        .filter_map(|(name, path)| Some((name, fs::read_to_string(path).ok()?)))
        .collect()
}

impl Reader for MlflowFiles {
    fn read(&mut self, is_last: bool) -> Result<Batch, ForeignError> {
        let mut items = Vec::new();
        let parameters = texts_below(&self.path.join("params"));
        let hash = xxh3_64(format!("{parameters:?}").as_bytes());
        if !parameters.is_empty() && self.place.parameters != Some(hash) {
            self.place.parameters = Some(hash);
            items.push(Item::Config(mlflow::settings(parameters.into_iter())));
        }
        // Asked first: what was written before the end is read below.
        let meta = Meta::read(&self.path);
        self.metrics(is_last, &mut items)?;
        if let Some(meta) = meta {
            let status = meta.text("status").unwrap_or_default();
            if self.place.ended.as_deref() != Some(status)
                && let Some(ended) = mlflow::ended(status, meta.number("end_time"))
            {
                self.place.ended = Some(status.to_owned());
                items.push(ended);
            }
        }
        Ok(Batch {
            items,
            has_more: false,
        })
    }

    fn place(&self) -> Value {
        place_value(&self.place)
    }
}
