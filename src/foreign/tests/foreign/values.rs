//! Every value as the library that wrote it reads it.

use std::collections::BTreeMap;
use std::fs;

use foreign::{Format, Item, Moment, Options, find, recognise};
use serde_json::Value;

use crate::common::{all, data, expected, notes, of_format, only, series, text};

/// `{metric: [[step, time, value], …]}`
fn as_series(value: &Value) -> BTreeMap<String, Vec<(u64, String)>> {
    let metrics = value.as_object().unwrap().iter();
    metrics
        .map(|(name, points)| {
            let points = points.as_array().unwrap().iter();
            let points = points.map(|point| (point[0].as_u64().unwrap(), text(&point[2])));
            (name.clone(), points.collect())
        })
        .collect()
}

#[test]
fn every_format_is_recognised() {
    for (path, format) in [
        ("tensorboard-torch", Format::TensorBoard),
        ("tensorboard-tf2", Format::TensorBoard),
        ("wandb-run", Format::Wandb),
        ("verl/metrics.jsonl", Format::Verl),
        ("verl/console.log", Format::VerlConsole),
        ("verl", Format::Verl),
        ("trackio", Format::Trackio),
        ("trackio/demo.db", Format::Trackio),
        ("mlflow-files", Format::Mlflow),
        ("mlflow-files/mlruns", Format::Mlflow),
        ("mlflow-sqlite/mlflow.db", Format::MlflowSqlite),
    ] {
        assert_eq!(recognise(&data(path)), Some(format), "{path}");
    }
    for other in ["README.md", "make.py", "verl.expected.json", "nothing"] {
        assert_eq!(recognise(&data(other)), None, "{other}");
    }
}

#[test]
fn a_run_of_ours_is_not_foreign() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.json"), "{}").unwrap();
    fs::copy(
        data("verl/metrics.jsonl"),
        folder.path().join("metrics.jsonl"),
    )
    .unwrap();
    assert_eq!(recognise(folder.path()), None);
    assert!(find(folder.path(), &Options::default()).is_err());
}

#[test]
fn tensorboard_values_are_those_tensorboard_reads() {
    for name in ["tensorboard-torch", "tensorboard-tf2"] {
        let items = all(&only(&data(name)));
        assert_eq!(series(&items), as_series(&expected(name)), "{name}");
    }
    let items = all(&only(&data("tensorboard-torch")));
    assert!(items.contains(&Item::Restart { at_step: 6 }));
    let note = "note (step 1): the first session\n".to_owned();
    assert!(items.contains(&Item::Output { text: note }), "{items:?}");
    assert_eq!(
        notes(&items),
        ["tag weights is left out: it is no scalar (a histogram)"]
    );
    let times: Vec<f64> = items
        .iter()
        .filter_map(|item| match item {
            Item::Row(row) if row.values[0].0 == "actor/pg_loss" => match row.at {
                Some(Moment::Wall(wall_s)) => Some(wall_s),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(times[..3], [1001.0, 1002.0, 1003.0]);
}

#[test]
fn tensorboard_hyperparameters_are_the_settings() {
    let items = all(&only(&data("tensorboard-hparams")));
    let config = items.iter().find_map(|item| match item {
        Item::Config(config) => Some(Value::Object(config.clone())),
        _ => None,
    });
    let mut config = config.unwrap();
    config.sort_all_objects();
    // torch takes a bool for a number.
    assert_eq!(
        config,
        serde_json::json!({"fast": 1.0, "lr": 0.5, "name": "a b"})
    );
    assert_eq!(series(&items)["hparam/accuracy"], [(0, "0.75".to_owned())]);
}

#[test]
fn wandb_values_are_those_its_records_hold() {
    let found = only(&data("wandb-run"));
    assert_eq!(
        (found.name.as_str(), found.project.as_str()),
        ("blue-sky", "demo")
    );
    let items = all(&found);
    let expected = expected("wandb-run");
    let mut wanted: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    for row in expected["history"].as_array().unwrap() {
        for (name, value) in row.as_object().unwrap() {
            if !name.starts_with('_') && !["word", "flag"].contains(&name.as_str()) {
                let step = row["_step"].as_f64().unwrap() as u64;
                wanted
                    .entry(name.replace("nested/", "nested."))
                    .or_default()
                    .push((step, text(value)));
            }
        }
    }
    assert_eq!(series(&items), wanted);
    let mut config = serde_json::Map::new();
    for item in &items {
        if let Item::Config(update) = item {
            config.extend(update.clone());
        }
    }
    assert_eq!(Value::Object(config), expected["config"]);
    let output: String = items
        .iter()
        .filter_map(|item| match item {
            Item::Output { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(output, "a line of the console\n");
    assert!(
        items
            .iter()
            .any(|item| matches!(item, Item::Alert { title, .. } if title == "reward fell"))
    );
    assert!(
        matches!(items.last(), Some(Item::Ended { exit_code: 3, .. })),
        "{:?}",
        items.last()
    );
    let samples = items
        .iter()
        .filter(|item| matches!(item, Item::Host { .. }))
        .count();
    assert_eq!(samples as u64, expected["kinds"]["stats"].as_u64().unwrap());
    let notes = notes(&items);
    assert!(notes.contains(&"word is left out: it is text"), "{notes:?}");
    assert!(
        notes.contains(&"flag is left out: it is true or false"),
        "{notes:?}"
    );
}

#[test]
fn verl_rows_and_lines_give_the_values_that_were_logged() {
    let rows = expected("verl");
    let mut wanted: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    for row in rows.as_array().unwrap() {
        for (name, value) in row[1].as_object().unwrap() {
            wanted
                .entry(name.clone())
                .or_default()
                .push((row[0].as_u64().unwrap(), text(value)));
        }
    }
    assert_eq!(series(&all(&only(&data("verl/metrics.jsonl")))), wanted);
    let items = all(&only(&data("verl/console.log")));
    assert_eq!(series(&items), wanted);
    let said = Item::Output {
        text: "(TaskRunner pid=77) WARNING: something worth a line\n".to_owned(),
    };
    assert!(items.contains(&said));
}

#[test]
fn a_table_gives_a_metric_a_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.csv");
    fs::write(&path, "step,wall_time,loss,\"a, b\",word\n1,1700000001,0.5,nan,x\n2,1700000002,,-inf,y\n\"3\",1700000003,0.25\n").unwrap();
    let items = all(&only(&path));
    let found = series(&items);
    assert_eq!(found["loss"], [(1, "0.5".to_owned())]);
    assert_eq!(
        found["a, b"],
        [(1, "NaN".to_owned()), (2, "-inf".to_owned())]
    );
    assert_eq!(
        notes(&items),
        [
            "run.csv:2: word is left out: `x` is no number",
            "run.csv:4: left out: 3 cells where the header has 5"
        ]
    );
    let Some(Item::Row(row)) = items.iter().find(|item| matches!(item, Item::Row(_))) else {
        panic!("no row in {items:?}")
    };
    assert_eq!(row.at, Some(Moment::Wall(1_700_000_001.0)));

    fs::write(
        &path,
        "metric,iteration,value\nloss,10,0.5\nlr,10,1e-6\nloss,20,0.25\n",
    )
    .unwrap();
    let found = series(&all(&only(&path)));
    assert_eq!(
        found["loss"],
        [(10, "0.5".to_owned()), (20, "0.25".to_owned())]
    );
    assert_eq!(found["lr"], [(10, "1e-6".to_owned())]);
}

#[test]
fn columns_can_be_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.csv");
    fs::write(&path, "round,loss\n7,0.5\n8,0.25\n").unwrap();
    let found = only(&path);
    let counted = series(&all(&found));
    assert_eq!(counted["loss"][0].0, 0, "rows are counted");
    let options = |name: &str| Options {
        step_column: Some(name.to_owned()),
        ..Options::default()
    };
    let mut reader = foreign::open(&found, None, &options("round")).unwrap();
    let named = series(&crate::common::rest(reader.as_mut(), true));
    assert_eq!(named["loss"][0].0, 7);
    let mut reader = foreign::open(&found, None, &options("rond")).unwrap();
    let error = reader.read(true).unwrap_err().to_string();
    assert!(
        error.ends_with("run.csv holds 2 columns and none called `rond`: round, loss"),
        "{error}"
    );
}

#[test]
fn objects_a_line_are_flattened_and_python_s_nan_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.jsonl");
    let text = "{\"global_step\": 1, \"timestamp\": \"2026-11-30T12:00:00Z\", \"train\": {\"loss\": NaN, \"name\": \"x\"}}\n\
        no json\n[1]\n{\"global_step\": 2.0, \"train\": {\"loss\": -Infinity, \"empty\": null}}\n{\"global_step\": -1, \"x\": 1}\n";
    fs::write(&path, text).unwrap();
    let items = all(&only(&path));
    assert_eq!(
        series(&items)["train/loss"],
        [(1, "NaN".to_owned()), (2, "-inf".to_owned())]
    );
    let notes = notes(&items);
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert_eq!(
        notes[0],
        "log.jsonl:1: train/name is left out: it is no number"
    );
    assert_eq!(
        notes[3],
        "log.jsonl:5: left out: global_step is -1, which is no step"
    );
}

#[test]
fn a_text_that_is_none_of_these_is_refused_with_the_formats_that_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    fs::write(&path, "Dear sir\nhello\n").unwrap();
    let error = find(&path, &Options::default()).unwrap_err().to_string();
    assert!(
        error.contains("letter.txt is no run that is known here; there are: verl, "),
        "{error}"
    );
    // Said to be one, it is read as one, and nothing is in it.
    assert_eq!(
        series(&all(&of_format(&path, Format::VerlConsole))),
        BTreeMap::new()
    );
}
