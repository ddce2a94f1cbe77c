//! Databases and `MLflow`'s files: values as their libraries read them, and not a byte changed beside them.

use std::collections::BTreeMap;
use std::fs;

use foreign::{Format, Found, Item, Options, find, open};
use rusqlite::Connection;
use serde_json::Value;

use crate::common::{all, copy, data, expected, notes, rest, series, snapshot, text};

fn named(found: &[Found], name: &str) -> Found {
    found
        .iter()
        .find(|found| found.name == name)
        .unwrap()
        .clone()
}

fn runs(path: &str) -> Vec<Found> {
    find(&data(path), &Options::default()).unwrap()
}

#[test]
fn trackio_values_are_those_of_its_rows() {
    let before = snapshot(&data("trackio"));
    let found = runs("trackio");
    assert_eq!(found.len(), 2);
    for (name, rows) in expected("trackio").as_object().unwrap() {
        let mut wanted: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
        for row in rows.as_array().unwrap() {
            for (metric, value) in row[1].as_object().unwrap() {
                wanted
                    .entry(metric.clone())
                    .or_default()
                    .push((row[0].as_u64().unwrap(), text(value)));
            }
        }
        let found = named(&found, name);
        assert_eq!(found.project, "demo");
        assert_eq!(series(&all(&found)), wanted, "{name}");
    }
    let items = all(&named(&found, "calm-1"));
    assert!(
        items.iter().any(
            |item| matches!(item, Item::Alert { title, step: Some(20), .. } if title == "fell")
        )
    );
    assert!(items.iter().any(|item| matches!(item, Item::Host { sample, .. } if sample.gpus[0].power_watts == Some(100.0))));
    let config = items.iter().find_map(|item| match item {
        Item::Config(config) => Some(Value::Object(config.clone())),
        _ => None,
    });
    assert_eq!(
        config,
        Some(serde_json::json!({"lr": 0.5, "model": {"name": "m"}}))
    );
    assert_eq!(notes(&items), Vec::<&str>::new());
    assert_eq!(
        snapshot(&data("trackio")),
        before,
        "nothing was written beside it"
    );
}

#[test]
fn mlflow_values_are_those_its_client_reads() {
    for (name, format) in [
        ("mlflow-files", Format::Mlflow),
        ("mlflow-sqlite", Format::MlflowSqlite),
    ] {
        let before = snapshot(&data(name));
        let found = runs(name);
        assert_eq!(found.len(), 2);
        for (run, wanted) in expected(name).as_object().unwrap() {
            let found = named(&found, run);
            assert_eq!((found.format, found.project.as_str()), (format, "demo"));
            let items = all(&found);
            let read = series(&items);
            let metrics = wanted["metrics"].as_object().unwrap();
            assert_eq!(read.len(), metrics.len());
            for (metric, points) in metrics {
                let points: Vec<(u64, String)> = (points.as_array().unwrap().iter())
                    .map(|point| {
                        // The client of the database gives the largest float for infinity.
                        let value = text(&point[2]).replace("1.7976931348623157e308", "inf");
                        (point[0].as_u64().unwrap(), value)
                    })
                    .collect();
                assert_eq!(read[metric], points, "{name} {run} {metric}");
            }
            let ended = items.iter().find_map(|item| match item {
                Item::Ended { exit_code, .. } => Some(*exit_code),
                _ => None,
            });
            assert_eq!(ended, Some(i32::from(wanted["status"] != "FINISHED")));
        }
        let items = all(&named(&found, "green-field"));
        let config = items.iter().find_map(|item| match item {
            Item::Config(config) => Some(Value::Object(config.clone())),
            _ => None,
        });
        assert_eq!(
            config,
            Some(serde_json::json!({"lr": 1e-6, "model/name": "a: b"}))
        );
        assert_eq!(
            snapshot(&data(name)),
            before,
            "nothing was written beside it"
        );
    }
}

/// A writer that lives keeps its rows in a log beside the database.
#[test]
fn rows_that_a_living_writer_has_not_merged_are_read_and_its_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    copy(&data("trackio"), folder.path());
    let path = folder.path().join("demo.db");
    let writer = Connection::open(&path).unwrap();
    let mode: String = writer
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
    let insert = |step: i64| {
        writer
            .execute(
                "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics)
                 SELECT run_id, '2026-11-30T12:00:00', run_name, ?1, '{\"late\": 0.5}' FROM metrics WHERE run_name = 'calm-1' LIMIT 1",
                [step],
            )
            .unwrap()
    };
    insert(21);
    let found = named(&find(&path, &Options::default()).unwrap(), "calm-1");
    let mut reader = open(&found, None, &Options::default()).unwrap();
    let before = snapshot(folder.path());
    assert_eq!(
        series(&rest(reader.as_mut(), false))["late"],
        [(21, "0.5".to_owned())]
    );
    let after = snapshot(folder.path());
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>()
    );
    let wal = folder.path().join("demo.db-wal");
    assert_eq!(
        (&before[&path], &before[&wal]),
        (&after[&path], &after[&wal])
    );
    insert(22);
    assert_eq!(
        series(&rest(reader.as_mut(), false))["late"],
        [(22, "0.5".to_owned())]
    );

    // Its writer was killed: the log is there, and nobody has its index.
    let left = tempfile::tempdir().unwrap();
    for name in ["demo.db", "demo.db-wal"] {
        fs::copy(folder.path().join(name), left.path().join(name)).unwrap();
    }
    let before = snapshot(left.path());
    let found = named(&find(left.path(), &Options::default()).unwrap(), "calm-1");
    assert_eq!(series(&all(&found))["late"].len(), 2);
    assert_eq!(snapshot(left.path()), before);
}
