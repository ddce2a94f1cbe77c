//! Where the data lies, and a run read to its end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use foreign::{Format, Found, Item, Options, Reader, find, open};
use serde_json::Value;

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

pub fn expected(name: &str) -> Value {
    let text = fs::read(data(&format!("{name}.expected.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// The one run of a path.
pub fn only(path: &Path) -> Found {
    let found = find(path, &Options::default()).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}

pub fn of_format(path: &Path, format: Format) -> Found {
    let options = Options {
        format: Some(format),
        ..Options::default()
    };
    find(path, &options).unwrap().remove(0)
}

/// Everything a reader gives until there is no more.
pub fn rest(reader: &mut dyn Reader, is_last: bool) -> Vec<Item> {
    let mut items = Vec::new();
    loop {
        let batch = reader.read(is_last).unwrap();
        items.extend(batch.items);
        if !batch.has_more {
            return items;
        }
    }
}

pub fn all(found: &Found) -> Vec<Item> {
    let mut reader = open(found, None, &Options::default()).unwrap();
    rest(reader.as_mut(), true)
}

pub fn notes(items: &[Item]) -> Vec<&str> {
    items
        .iter()
        .filter_map(|item| match item {
            Item::Note(note) => Some(note.as_str()),
            _ => None,
        })
        .collect()
}

/// Metric to its (step, value) pairs, in order; values as text, in which NaN equals itself.
pub fn series(items: &[Item]) -> BTreeMap<String, Vec<(u64, String)>> {
    let mut series: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    for item in items {
        match item {
            Item::Row(row) => {
                for (name, value) in &row.values {
                    series
                        .entry(name.clone())
                        .or_default()
                        .push((row.step, format!("{value:?}")));
                }
            }
            Item::Restart { at_step } => {
                for points in series.values_mut() {
                    points.retain(|(step, _)| step < at_step);
                }
            }
            _ => {}
        }
    }
    series
}

/// A number as `make.py` writes it, as text like [`series`].
pub fn text(value: &Value) -> String {
    let number = match value {
        Value::String(text) => text.parse().unwrap(),
        value => value.as_f64().unwrap(),
    };
    format!("{number:?}")
}

/// Name, size and content of everything below a directory.
pub fn snapshot(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        if entry.path().is_dir() {
            found.extend(snapshot(&entry.path()));
        } else {
            found.insert(entry.path(), fs::read(entry.path()).unwrap());
        }
    }
    found
}

/// A copy of a directory.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
