//! The experiment of a run, every key with its value.

use experiment::keys;
use runlog::run_dir::RunDir;
use serde_json::Value as Json;

use crate::tui::shared::RunKey;

/// Values as JSON text, in the order of the key table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    pub values: Vec<String>,
}

/// Reads and resolves a run's experiment; defaults count as values, so that what was left out and what was written as the
/// default are the same.
pub fn read(key: &RunKey) -> Result<Config, String> {
    let run_dir = RunDir::open(key.path()).map_err(|error| error.to_string())?;
    let path = run_dir.experiment_path();
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(resolved(&text))
}

pub fn resolved(yaml: &str) -> Config {
    let effective = experiment::from_text("experiment.yaml", yaml, &[]).effective();
    let values = keys::live()
        .iter()
        .map(|key| {
            let pointer = format!("/{}", key.path.replace('.', "/"));
            effective.pointer(&pointer).map_or_else(String::new, shown)
        })
        .collect();
    Config { values }
}

fn shown(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}
