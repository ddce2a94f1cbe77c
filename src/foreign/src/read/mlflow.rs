//! What both of `MLflow`'s stores say alike: how a run stands, and its parameters.

use runlog::event::RunStatus;
use serde_json::{Map, Value};

use crate::item::{Item, Moment};
use crate::number;

/// How the run ended; None: it has not. The status is a word, or a number in older stores.
pub fn ended(status: &str, end_ms: Option<f64>) -> Option<Item> {
    let (status, exit_code, word) = match status {
        "FINISHED" | "3" => (RunStatus::Completed, 0, "finished"),
        "FAILED" | "4" => (RunStatus::Failed, 1, "failed"),
        "KILLED" | "5" => (RunStatus::Stopped, 1, "was killed"),
        _ => return None,
    };
    Some(Item::Ended {
        at: end_ms.map(|end_ms| Moment::Wall(end_ms / 1e3)),
        status,
        exit_code,
        reason: format!("MLflow says that it {word}"),
    })
}

/// Parameters are text; what is a number there is one here.
pub fn settings(parameters: impl Iterator<Item = (String, String)>) -> Map<String, Value> {
    parameters
        .map(|(name, text)| {
            let number = number::parse(&text).and_then(serde_json::Number::from_f64);
            let value = match serde_json::from_str::<Value>(&text) {
                Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
                _ => number.map_or(Value::String(text), Value::Number),
            };
            (name, value)
        })
        .collect()
}
