//! The experiment of a run, every key with its value; of another tracker's run its own settings.

use std::collections::BTreeMap;

use experiment::{keys, yaml};
use runlog::run_dir::RunDir;
use serde_json::Value as Json;

use crate::tui::shared::RunKey;

/// Values as JSON text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// In the order of the key table; None: another tracker's run does not say.
    pub values: Vec<Option<String>>,
    /// Of keys that are in no table, or without effect in Lathe, by their path.
    pub others: BTreeMap<String, String>,
}

/// Reads and resolves a run's experiment; defaults count as values, so that what was left out and what was written as the
/// default are the same.
pub fn read(key: &RunKey) -> Result<Config, String> {
    let run_dir = RunDir::open(key.path()).map_err(|error| error.to_string())?;
    let path = run_dir.experiment_path();
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(if run_dir.info().foreign_format().is_some() {
        foreign(&text)
    } else {
        resolved(&text)
    })
}

pub fn resolved(yaml: &str) -> Config {
    let effective = experiment::from_text("experiment.yaml", yaml, &[]).effective();
    let values = keys::live()
        .iter()
        .map(|key| {
            let pointer = format!("/{}", key.path.replace('.', "/"));
            Some(effective.pointer(&pointer).map_or_else(String::new, shown))
        })
        .collect();
    Config {
        values,
        others: others(leaves(yaml)),
    }
}

/// Lathe's defaults say nothing of it.
pub fn foreign(yaml: &str) -> Config {
    let leaves = leaves(yaml);
    let values = keys::live().iter();
    Config {
        values: values.map(|key| leaves.get(&key.path).cloned()).collect(),
        others: others(leaves),
    }
}

fn others(mut leaves: BTreeMap<String, String>) -> BTreeMap<String, String> {
    // A mapping that is one value of Lathe's has leaves too.
    let is_known = |path: &str| {
        path.match_indices('.')
            .map(|(at, _)| &path[..at])
            .chain([path])
            .any(|path| keys::find(path).is_some())
    };
    // Nor is a block that was left empty a setting.
    leaves.retain(|path, _| !is_known(path) && !keys::is_block(path));
    leaves
}

/// Every value of a file, by the path of its key.
fn leaves(text: &str) -> BTreeMap<String, String> {
    fn walk(at: &str, value: &Json, found: &mut BTreeMap<String, String>) {
        match value {
            Json::Object(entries) => {
                for (key, value) in entries {
                    let path = if at.is_empty() {
                        key.clone()
                    } else {
                        format!("{at}.{key}")
                    };
                    walk(&path, value, found);
                }
            }
            value => {
                found.insert(at.to_owned(), shown(value));
            }
        }
    }
    let mut found = BTreeMap::new();
    if let Some(root) = yaml::parse(text).root {
        let root = root.to_json();
        if root.is_object() {
            walk("", &root, &mut found);
            found.remove("");
        }
    }
    found
}

fn shown(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}
