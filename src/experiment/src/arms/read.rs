//! From YAML, or from the flat form, to arms, with complaints that name the arm and the field.

use serde_json::Value as Json;

use super::{Arm, Sees};
use crate::convert::{duration, shown};
use crate::keys::{nearest_of, or_list};
use crate::scorers::{self, ScorerName};
use crate::yaml::{Node, Value};

const FIELDS: [&str; 8] = [
    "name",
    "scorer",
    "options",
    "weight",
    "timeout",
    "default",
    "concurrency",
    "sees",
];
const SEES: [&str; 3] = ["model_text", "final_answer", "dialogue"];

/// The value of `reward.arms`; the error says which arm and where it stands.
pub fn read(node: &Node) -> Result<Vec<Arm>, String> {
    let items: Vec<&Node> = match &node.value {
        Value::List(items) => items.iter().collect(),
        Value::Null => Vec::new(),
        _ => vec![node],
    };
    let mut arms: Vec<Arm> = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let place = match item.span.line {
            0 => format!("arm {}", index + 1),
            line => format!("arm {} (line {line})", index + 1),
        };
        let arm = one(item).map_err(|problem| format!("{place}: {problem}"))?;
        if arms.iter().any(|known| known.name == arm.name) {
            return Err(format!(
                "{place}: two arms are called {}; give one another name",
                arm.name
            ));
        }
        arms.push(arm);
    }
    Ok(arms)
}

fn one(node: &Node) -> Result<Arm, String> {
    let arm = match &node.value {
        // A scorer by its name is an arm of that name.
        Value::Text(name) => Arm::new(name, scorer(name)?),
        Value::Map(entries) => {
            let find = |field: &str| {
                entries
                    .iter()
                    .find(|entry| entry.key == field)
                    .map(|entry| &entry.value)
                    .filter(|node| node.value != Value::Null)
            };
            for entry in entries {
                if !FIELDS.contains(&entry.key.as_str()) {
                    let meant = nearest_of(&entry.key, &FIELDS)
                        .map_or_else(String::new, |field| format!("; did you mean {field}?"));
                    return Err(format!("there is no field {:?}{meant}", entry.key));
                }
            }
            let text = |field: &str| match find(field) {
                None => Ok(None),
                Some(node) => match &node.value {
                    Value::Text(text) => Ok(Some(text.clone())),
                    _ => Err(format!("{field}: expected text, got {}", shown(node))),
                },
            };
            let named = text("name")?;
            let judge = text("scorer")?.or_else(|| named.clone()).ok_or_else(|| {
                format!(
                    "scorer is missing; expected {}",
                    or_list(&scorers::ALL_NAMES)
                )
            })?;
            let mut arm = Arm::new(named.unwrap_or_else(|| judge.clone()), scorer(&judge)?);
            if let Some(node) = find("options") {
                match node.to_json() {
                    Json::Object(options) => arm.options = options,
                    _ => {
                        return Err(format!(
                            "options: expected a mapping {{option: value}}, got {}",
                            shown(node)
                        ));
                    }
                }
            }
            if let Some(node) = find("weight") {
                arm.weight = finite("weight", node)?;
            }
            if let Some(node) = find("default") {
                arm.default = finite("default", node)?;
            }
            if let Some(node) = find("timeout") {
                arm.timeout = match number(node).or_else(|| duration(node)) {
                    Some(seconds) if seconds > 0.0 && seconds.is_finite() => seconds,
                    _ => {
                        return Err(format!(
                            "timeout: expected seconds above 0, or a time such as 50ms, 2s, got {}",
                            shown(node)
                        ));
                    }
                };
            }
            if let Some(node) = find("concurrency") {
                arm.concurrency = match node.value {
                    Value::Int(count @ 1..=4096) => count as u32,
                    _ => {
                        return Err(format!(
                            "concurrency is {}; expected 1 <= concurrency <= 4096",
                            shown(node)
                        ));
                    }
                };
            }
            arm.sees = match text("sees")?.as_deref() {
                None => None,
                Some("model_text") => Some(Sees::ModelText),
                Some("final_answer") => Some(Sees::FinalAnswer),
                Some("dialogue") => Some(Sees::Dialogue),
                Some(other) => {
                    return Err(format!("sees is {other:?}; expected {}", or_list(&SEES)));
                }
            };
            arm
        }
        _ => {
            return Err(format!(
                "expected an arm {{name: ..., scorer: ..., weight: ...}} or the name of a scorer, got {}",
                shown(node)
            ));
        }
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if arm.name.is_empty() || !arm.name.chars().all(is_plain) {
        return Err(format!(
            "name {:?}: expected letters, digits, _, - and .; it stands in names of metrics",
            arm.name
        ));
    }
    arm.judge()?;
    Ok(arm)
}

fn scorer(name: &str) -> Result<ScorerName, String> {
    scorers::by_name(name).ok_or_else(|| {
        let meant = nearest_of(name, &scorers::ALL_NAMES)
            .map_or_else(String::new, |meant| format!(" (did you mean {meant}?)"));
        format!(
            "there is no scorer {name:?}; expected {}{meant}",
            or_list(&scorers::ALL_NAMES)
        )
    })
}

fn number(node: &Node) -> Option<f64> {
    match node.value {
        Value::Int(number) => Some(number as f64),
        Value::Float(number) => Some(number),
        _ => None,
    }
}

fn finite(field: &str, node: &Node) -> Result<f64, String> {
    number(node)
        .filter(|number| number.is_finite())
        .ok_or_else(|| format!("{field}: expected a finite number, got {}", shown(node)))
}
