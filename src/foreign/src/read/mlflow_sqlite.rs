//! A run in `MLflow`'s database, `mlflow.db`: a row a value; NaN is 0 with a mark, infinities are the largest floats.

use std::path::Path;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::{mlflow, sqlite};
use crate::ForeignError;
use crate::item::{Batch, Item, Moment, Row};

const MOST_ROWS: usize = 20_000;

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Place {
    /// The last row of the metrics.
    row: i64,
    parameters: Option<u64>,
    ended: Option<String>,
}

/// A run of the database.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRun {
    pub run: String,
    pub name: String,
    pub experiment: String,
    pub started_s: Option<f64>,
}

/// True: the tables are those of `MLflow`.
pub fn is_store(database: &Connection) -> rusqlite::Result<bool> {
    let metrics = sqlite::columns(database, "metrics")?;
    let runs = sqlite::columns(database, "runs")?;
    Ok(metrics.iter().any(|name| name == "is_nan") && runs.iter().any(|name| name == "run_uuid"))
}

pub fn runs(path: &Path) -> Result<Vec<StoredRun>, ForeignError> {
    let found = sqlite::with(path, |database| {
        let mut statement = database.prepare(
            "SELECT run_uuid, coalesce(runs.name, run_uuid), coalesce(experiments.name, ''), start_time
             FROM runs LEFT JOIN experiments USING (experiment_id)
             WHERE runs.lifecycle_stage = 'active' ORDER BY start_time",
        )?;
        let rows = statement.query_map([], |row| {
            let started_ms: Option<i64> = row.get(3)?;
            Ok(StoredRun {
                run: row.get(0)?,
                name: row.get(1)?,
                experiment: row.get(2)?,
                started_s: started_ms.map(|ms| ms as f64 / 1e3),
            })
        })?;
        rows.collect()
    })?;
    Ok(found.unwrap_or_default())
}

impl sqlite::Place for Place {
    fn advance(&mut self, database: &Connection, run: &str) -> rusqlite::Result<Batch> {
        read(database, run, self)
    }
}

fn read(database: &Connection, run: &str, place: &mut Place) -> rusqlite::Result<Batch> {
    let mut items = Vec::new();
    let mut statement =
        database.prepare("SELECT key, value FROM params WHERE run_uuid = ?1 ORDER BY key")?;
    let parameters = statement
        .query_map([run], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(String, String)>>>()?;
    let hash = xxh3_64(format!("{parameters:?}").as_bytes());
    if !parameters.is_empty() && place.parameters != Some(hash) {
        place.parameters = Some(hash);
        items.push(Item::Config(mlflow::settings(parameters.into_iter())));
    }
    let mut statement = database.prepare(&format!(
        "SELECT rowid, key, value, timestamp, step, is_nan FROM metrics
         WHERE run_uuid = ?1 AND rowid > ?2 ORDER BY rowid LIMIT {MOST_ROWS}"
    ))?;
    let mut rows = statement.query((run, place.row))?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        place.row = row.get(0)?;
        let value: f64 = row.get(2)?;
        let (ms, step): (i64, i64) = (row.get(3)?, row.get(4)?);
        let value = match value {
            _ if row.get::<_, bool>(5)? => f64::NAN,
            value if value >= f64::MAX => f64::INFINITY,
            value if value <= f64::MIN => f64::NEG_INFINITY,
            value => value,
        };
        let name: String = row.get(1)?;
        match u64::try_from(step) {
            Ok(step) => items.push(Item::Row(Row {
                step,
                at: Some(Moment::Wall(ms as f64 / 1e3)),
                values: vec![(name, value)],
            })),
            Err(_) => items.push(Item::Note(format!(
                "{name} at step {step} is left out: steps count from 0"
            ))),
        }
    }
    let has_more = count == MOST_ROWS;
    let (status, end_ms): (Option<String>, Option<i64>) = database.query_row(
        "SELECT status, end_time FROM runs WHERE run_uuid = ?1",
        [run],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let status = status.unwrap_or_default();
    if !has_more
        && place.ended.as_deref() != Some(&status)
        && let Some(ended) = mlflow::ended(&status, end_ms.map(|ms| ms as f64))
    {
        place.ended = Some(status);
        items.push(ended);
    }
    Ok(Batch { items, has_more })
}
