//! Reads the values of a tool's `config`. Errors name the key, what was given and what is allowed.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Parameters;

/// Typed, from all of it; an unknown key is an error.
pub(super) fn typed<T: DeserializeOwned>(config: &Parameters) -> Result<T, String> {
    serde_json::from_value(Value::Object(config.clone()))
        .map_err(|error| format!("config: {error}"))
}

/// Of a class that takes its keys one by one: no key is passed over.
pub(super) fn only(config: &Parameters, known: &[&str]) -> Result<(), String> {
    match config.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format!(
            "there is no `config.{key}`; expected {}",
            [known, &super::ToolLimits::KEYS].concat().join(", ")
        )),
    }
}

/// A whole number from `low` to `high`, taken out; None: not given.
pub(super) fn take_count(
    config: &mut Parameters,
    key: &str,
    low: u64,
    high: u64,
) -> Result<Option<u64>, String> {
    match config.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(count) if (low..=high).contains(&count) => Ok(Some(count)),
            _ => Err(format!(
                "`config.{key}` is {value}; expected a whole number from {low} to {high}"
            )),
        },
    }
}

/// Seconds, or a time such as `50ms`, `2s`, taken out; None: not given.
pub(super) fn take_time(config: &mut Parameters, key: &str) -> Result<Option<Duration>, String> {
    let Some(value) = config.remove(key).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    value
        .as_f64()
        .or_else(|| experiment::seconds(value.as_str()?))
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .map(Some)
        .ok_or_else(|| {
            format!(
                "`config.{key}` is {value}; expected seconds above 0, or a time such as 50ms, 2s"
            )
        })
}
