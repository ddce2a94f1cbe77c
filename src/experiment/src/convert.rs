//! One value against its key: type, range, choice. Gives the JSON that the typed experiment reads.

use serde_json::{Value as Json, json};

use crate::keys::{Bound, Choices, Kind, Live, or_list};
use crate::yaml::{Node, Value, flow};

#[derive(Debug, Clone, PartialEq)]
pub enum Wrong {
    Type {
        expected: String,
        got: String,
    },
    Range {
        got: String,
        allowed: String,
    },
    Choice {
        got: String,
        expected: String,
        meant: Option<&'static str>,
    },
    Later {
        got: String,
        expected: String,
    },
    /// Somewhere inside a value with parts of its own.
    Part(String),
}

impl Wrong {
    /// The complaint's text; `name` is the key as written.
    pub fn message(&self, name: &str) -> String {
        match self {
            Self::Type { expected, got } => format!("{name}: expected {expected}, got {got}"),
            Self::Range { got, allowed } => format!("{name} is {got}; expected {allowed}"),
            Self::Choice {
                got,
                expected,
                meant: None,
            } => format!("{name} is {got}; expected {expected}"),
            Self::Choice {
                got,
                expected,
                meant: Some(meant),
            } => {
                format!("{name} is {got}; expected {expected} (did you mean {meant}?)")
            }
            Self::Later { got, expected } => {
                format!("{name} is {got}, which is not available yet; available now: {expected}")
            }
            Self::Part(problem) => format!("{name}: {problem}"),
        }
    }
}

/// A converted value and the choices that were dropped from it because they are not available here.
#[derive(Debug, Clone, PartialEq)]
pub struct Converted {
    pub value: Json,
    pub dropped: Vec<String>,
}

pub fn convert(key: &Live, node: &Node) -> Result<Converted, Wrong> {
    let mut dropped = Vec::new();
    let value = match (&node.value, key.kind) {
        // -1 is verl's "all rows".
        (Value::Null, _) | (Value::Int(-1), Kind::Int { off: Some(-1), .. }) if key.nullable => {
            Json::Null
        }
        (_, kind) => {
            let name = key.path.rsplit('.').next().unwrap_or(&key.path);
            kind_of(&kind, name, node, &mut dropped)?
        }
    };
    Ok(Converted { value, dropped })
}

/// One value tried against its key, for an editor: what the typed experiment reads, or the complaint's text.
pub fn check_value(key: &Live, node: &Node) -> Result<Json, String> {
    let name = key.path.rsplit('.').next().unwrap_or(&key.path);
    convert(key, node)
        .map(|converted| converted.value)
        .map_err(|wrong| wrong.message(name))
}

/// A value as it appears in a complaint: texts in quotes, the rest as YAML.
pub fn shown(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => format!("{text:?}"),
        Value::List(_) | Value::Map(_) => {
            let text = flow(&node.to_json());
            match text.char_indices().nth(60) {
                Some((cut, _)) => format!("{}...", &text[..cut]),
                None => text,
            }
        }
        _ if node.raw.is_empty() => flow(&node.to_json()),
        _ => node.raw.clone(),
    }
}

fn kind_of(kind: &Kind, name: &str, node: &Node, dropped: &mut Vec<String>) -> Result<Json, Wrong> {
    let wrong_type = || Wrong::Type {
        expected: kind.noun(),
        got: shown(node),
    };
    let out_of_range = || Wrong::Range {
        got: shown(node),
        allowed: kind.range(name),
    };
    match kind {
        Kind::Bool => boolean(node).map(Json::Bool).ok_or_else(wrong_type),
        Kind::Int { min, max, off } => {
            let number = whole(node).ok_or_else(wrong_type)?;
            if number > *max {
                return Err(Wrong::Range {
                    got: shown(node),
                    allowed: format!("<= {max}"),
                });
            }
            if Some(number) != *off && number < *min {
                return Err(out_of_range());
            }
            i64::try_from(number)
                .map(Json::from)
                .or_else(|_| u64::try_from(number).map(Json::from))
                .map_err(|_| out_of_range())
        }
        Kind::Float { low, high } | Kind::Probability { low, high } => {
            let number = number(node).ok_or_else(|| Wrong::Type {
                expected: "a number".to_owned(),
                got: shown(node),
            })?;
            if number.is_finite() && above(number, *low) && below(number, *high) {
                Ok(json!(number))
            } else {
                Err(out_of_range())
            }
        }
        Kind::Duration => {
            let seconds = number(node)
                .or_else(|| duration(node))
                .ok_or_else(wrong_type)?;
            if seconds.is_finite() && seconds > 0.0 {
                Ok(json!(seconds))
            } else {
                Err(out_of_range())
            }
        }
        Kind::Text | Kind::Path => text(node).map(Json::String).ok_or_else(wrong_type),
        Kind::Choice(choices) => choice(choices, node, dropped),
        Kind::List(item) => match &node.value {
            Value::List(items) => {
                let mut values = Vec::new();
                for node in items {
                    match kind_of(item, name, node, dropped)? {
                        Json::Null => {}
                        value => values.push(value),
                    }
                }
                Ok(Json::Array(values))
            }
            Value::Map(_) | Value::Null => Err(wrong_type()),
            _ => Ok(match kind_of(item, name, node, dropped)? {
                Json::Null => json!([]),
                value => json!([value]),
            }),
        },
        Kind::Pair(item) => match &node.value {
            Value::List(items) if items.len() == 2 => {
                let values: Result<Vec<Json>, Wrong> = items
                    .iter()
                    .map(|node| kind_of(item, name, node, dropped))
                    .collect();
                Ok(Json::Array(values?))
            }
            _ => Err(wrong_type()),
        },
        Kind::Mapping => match &node.value {
            Value::Map(_) => Ok(node.to_json()),
            Value::Null => Ok(json!({})),
            _ => Err(wrong_type()),
        },
        Kind::Band => {
            let band = text(node).ok_or_else(wrong_type)?;
            match crate::correction::Band::parse(&band) {
                Ok(band) => Ok(json!(band)),
                Err(reason) => Err(Wrong::Part(reason)),
            }
        }
        Kind::Arms => crate::arms::read(node)
            .map(|arms| serde_json::to_value(arms).expect("arms have string keys"))
            .map_err(Wrong::Part),
        Kind::Guards => crate::guards::read(node)
            .map(|guards| serde_json::to_value(guards).expect("guards have string keys"))
            .map_err(Wrong::Part),
    }
}

fn boolean(node: &Node) -> Option<bool> {
    match &node.value {
        Value::Bool(flag) => Some(*flag),
        // YAML 1.1, which verl's loader reads, has these words too; quoted they are text.
        Value::Text(_) if !node.raw.is_empty() => match node.raw.to_ascii_lowercase().as_str() {
            "yes" | "on" | "true" => Some(true),
            "no" | "off" | "false" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn whole(node: &Node) -> Option<i128> {
    match node.value {
        Value::Int(number) => Some(number),
        // 1e3 is a whole number to its writer.
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 9.0e15 => {
            Some(number as i128)
        }
        _ => None,
    }
}

fn number(node: &Node) -> Option<f64> {
    match node.value {
        Value::Int(number) => Some(number as f64),
        Value::Float(number) => Some(number),
        _ => None,
    }
}

pub(crate) fn duration(node: &Node) -> Option<f64> {
    match &node.value {
        Value::Text(text) => seconds(text),
        _ => None,
    }
}

/// `250ms`, `90s`, `5m`, `2h`, in seconds.
pub fn seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (digits, unit) = text.split_at(unit_at);
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    digits.trim().parse::<f64>().ok().map(|count| count * scale)
}

/// Numbers and words that were written plainly are text to a key that wants text.
fn text(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) => Some(text.clone()),
        Value::Int(_) | Value::Float(_) | Value::Bool(_) if !node.raw.is_empty() => {
            Some(node.raw.clone())
        }
        Value::Int(_) | Value::Float(_) | Value::Bool(_) => Some(flow(&node.to_json())),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}

fn choice(
    choices: &'static Choices,
    node: &Node,
    dropped: &mut Vec<String>,
) -> Result<Json, Wrong> {
    let expected = or_list(choices.now);
    let Some(word) = text(node) else {
        return Err(Wrong::Type {
            expected,
            got: shown(node),
        });
    };
    if choices.now.contains(&word.as_str()) || choices.also.contains(&word.as_str()) {
        return Ok(Json::String(word));
    }
    if choices.later.contains(&word.as_str()) {
        if choices.later_is_dropped {
            dropped.push(word);
            return Ok(Json::Null);
        }
        return Err(Wrong::Later {
            got: shown(node),
            expected,
        });
    }
    let meant = choices
        .now
        .iter()
        .copied()
        .map(|name| (strsim::osa_distance(name, &word), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min()
        .map(|(_, name)| name);
    Err(Wrong::Choice {
        got: shown(node),
        expected,
        meant,
    })
}

fn above(number: f64, low: Bound) -> bool {
    match low {
        Bound::None => true,
        Bound::Closed(bound) => number >= bound,
        Bound::Open(bound) => number > bound,
    }
}

fn below(number: f64, high: Bound) -> bool {
    match high {
        Bound::None => true,
        Bound::Closed(bound) => number <= bound,
        Bound::Open(bound) => number < bound,
    }
}
