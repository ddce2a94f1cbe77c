//! A run in a trackio project's database (`<project>.db`): rows of metrics as JSON, system metrics, configuration, alerts.
//!
//! Its README warns that the schema may change, so columns are looked up, and what is missing is told.

use std::path::Path;

use runlog::event::Level;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row as SqlRow};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::json_lines::flatten;
use super::notes::Said;
use super::sqlite;
use crate::ForeignError;
use crate::item::{Batch, HostSample, Item, Moment, Row};
use crate::number;

/// Rows of a table that one read gives.
const MOST_ROWS: usize = 5_000;

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Place {
    /// The last row of each table.
    metrics: i64,
    system: i64,
    alerts: i64,
    /// Of the configuration that was given.
    config: Option<u64>,
    said: Said,
}

/// A run of a project.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectRun {
    /// Its id; in older databases its name.
    pub run: String,
    pub name: String,
    pub started_s: Option<f64>,
}

/// `run_id` where the database has it (since 0.24), else `run_name`.
fn key_column(columns: &[String]) -> &'static str {
    if columns.iter().any(|name| name == "run_id") {
        "run_id"
    } else {
        "run_name"
    }
}

/// True: the tables are those of a project.
pub fn is_project(database: &Connection) -> rusqlite::Result<bool> {
    let columns = sqlite::columns(database, "metrics")?;
    Ok(["id", "timestamp", "run_name", "step", "metrics"]
        .iter()
        .all(|name| columns.iter().any(|column| column == name)))
}

pub fn runs(path: &Path) -> Result<Vec<ProjectRun>, ForeignError> {
    let found = sqlite::with(path, |database| {
        let key = key_column(&sqlite::columns(database, "metrics")?);
        let mut statement = database.prepare(&format!(
            "SELECT {key}, max(run_name), min(timestamp) FROM metrics GROUP BY {key} ORDER BY min(id)"
        ))?;
        let rows = statement.query_map([], |row| {
            Ok(ProjectRun {
                run: row.get(0)?,
                name: row.get(1)?,
                started_s: number::wall_s(&text(row, 2)?),
            })
        })?;
        rows.collect()
    })?;
    Ok(found.unwrap_or_default())
}

pub fn level(text: &str) -> Level {
    match text.to_ascii_lowercase().as_str() {
        "warn" | "warning" => Level::Warning,
        "error" | "critical" => Level::Error,
        _ => Level::Info,
    }
}

/// Text, also where it is kept as bytes; empty for NULL.
fn text(row: &SqlRow, column: usize) -> rusqlite::Result<String> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Null => String::new(),
    })
}

/// Values by name; None: no object.
fn values(json: &str) -> Option<Vec<(String, Value)>> {
    let Value::Object(object) = number::lenient_json(json.as_bytes()).ok()? else {
        return None;
    };
    let mut leaves = Vec::new();
    flatten("", object, &mut leaves);
    Some(leaves)
}

/// trackio's names of a GPU's numbers; memory has no unit that is sure.
fn host_sample(leaves: &[(String, Value)]) -> (HostSample, bool) {
    let mut sample = HostSample::default();
    let mut has_others = false;
    for (name, value) in leaves {
        let Some(value) = number::of_json(value) else {
            continue;
        };
        let parts: Vec<&str> = name.split('/').collect();
        match (
            &parts[..],
            parts.get(1).and_then(|index| index.parse().ok()),
        ) {
            (["gpu", _, "utilization"], Some(index)) => {
                sample.gpu(index).utilization_percent = Some(value);
            }
            (["gpu", _, "power"], Some(index)) => sample.gpu(index).power_watts = Some(value),
            _ => has_others = true,
        }
    }
    (sample, has_others)
}

impl sqlite::Place for Place {
    fn advance(&mut self, database: &Connection, run: &str) -> rusqlite::Result<Batch> {
        read(database, run, self)
    }
}

fn read(database: &Connection, run: &str, place: &mut Place) -> rusqlite::Result<Batch> {
    let mut items = Vec::new();
    config(database, run, place, &mut items)?;
    let key = key_column(&sqlite::columns(database, "metrics")?);
    let mut statement = database.prepare(&format!(
        "SELECT id, timestamp, step, metrics FROM metrics WHERE {key} = ?1 AND id > ?2 ORDER BY id LIMIT {MOST_ROWS}"
    ))?;
    let mut rows = statement.query((run, place.metrics))?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        place.metrics = row.get(0)?;
        let step: i64 = row.get(2)?;
        let mut found = Row {
            step: step.max(0) as u64,
            at: number::wall_s(&text(row, 1)?).map(Moment::Wall),
            values: Vec::new(),
        };
        let Some(leaves) = values(&text(row, 3)?) else {
            items.push(Item::Note(format!(
                "row {} of metrics is left out: no JSON object",
                place.metrics
            )));
            continue;
        };
        for (name, value) in leaves {
            match number::of_json(&value) {
                Some(number) => found.values.push((name, number)),
                None if value.is_null() => {}
                None => place.said.once(&name, &mut items, || {
                    format!("{name} is left out: it is no number")
                }),
            }
        }
        items.push(Item::Row(found));
    }
    let has_more = count == MOST_ROWS;
    system(database, run, place, &mut items)?;
    alerts(database, run, place, &mut items)?;
    Ok(Batch { items, has_more })
}

fn config(
    database: &Connection,
    run: &str,
    place: &mut Place,
    items: &mut Vec<Item>,
) -> rusqlite::Result<()> {
    let columns = sqlite::columns(database, "configs")?;
    if columns.is_empty() {
        return Ok(());
    }
    let key = key_column(&columns);
    let mut statement =
        database.prepare(&format!("SELECT config FROM configs WHERE {key} = ?1"))?;
    let mut rows = statement.query([run])?;
    while let Some(row) = rows.next()? {
        let json = text(row, 0)?;
        let hash = xxh3_64(json.as_bytes());
        if place.config == Some(hash) {
            continue;
        }
        place.config = Some(hash);
        if let Ok(Value::Object(settings)) = number::lenient_json(json.as_bytes()) {
            // Its own book-keeping begins with an underscore.
            let settings: Map<String, Value> = settings
                .into_iter()
                .filter(|(name, _)| !name.starts_with('_'))
                .collect();
            items.push(Item::Config(settings));
        }
    }
    Ok(())
}

fn system(
    database: &Connection,
    run: &str,
    place: &mut Place,
    items: &mut Vec<Item>,
) -> rusqlite::Result<()> {
    let columns = sqlite::columns(database, "system_metrics")?;
    if columns.is_empty() {
        return Ok(());
    }
    let key = key_column(&columns);
    let mut statement = database.prepare(&format!(
        "SELECT id, timestamp, metrics FROM system_metrics WHERE {key} = ?1 AND id > ?2 ORDER BY id LIMIT {MOST_ROWS}"
    ))?;
    let mut rows = statement.query((run, place.system))?;
    while let Some(row) = rows.next()? {
        place.system = row.get(0)?;
        let at = number::wall_s(&text(row, 1)?).map(Moment::Wall);
        let leaves = values(&text(row, 2)?).unwrap_or_default();
        let (sample, has_others) = host_sample(&leaves);
        if has_others {
            place.said.once("system", items, || {
                "system metrics other than a GPU's utilization and power are left out".to_owned()
            });
        }
        if !sample.is_empty() {
            items.push(Item::Host { at, sample });
        }
    }
    Ok(())
}

fn alerts(
    database: &Connection,
    run: &str,
    place: &mut Place,
    items: &mut Vec<Item>,
) -> rusqlite::Result<()> {
    let columns = sqlite::columns(database, "alerts")?;
    if columns.is_empty() {
        return Ok(());
    }
    let key = key_column(&columns);
    let mut statement = database.prepare(&format!(
        "SELECT id, timestamp, title, text, level, step FROM alerts WHERE {key} = ?1 AND id > ?2 ORDER BY id LIMIT {MOST_ROWS}"
    ))?;
    let mut rows = statement.query((run, place.alerts))?;
    while let Some(row) = rows.next()? {
        place.alerts = row.get(0)?;
        let step: Option<i64> = row.get(5)?;
        items.push(Item::Alert {
            at: number::wall_s(&text(row, 1)?).map(Moment::Wall),
            title: text(row, 2)?,
            text: text(row, 3)?,
            level: level(&text(row, 4)?),
            step: step.and_then(|step| u64::try_from(step).ok()),
        });
    }
    Ok(())
}
