//! YAML text as an order-keeping tree in which every key and value knows its line, column and bytes.
//!
//! The only module that knows a YAML crate: structure and places come from saphyr-parser's events, the meaning of a
//! plain scalar (`1e-6`, `~`, `0x10`) from `serde_yaml`; a test shows that both read the same tree.
//! Anchors, aliases, merge keys and tags are refused: an experiment says `${path}` instead, which also moves to verl.

mod build;
mod edit;
mod render;

pub use build::{Fault, Parsed, parse};
pub use edit::{EditError, remove_value, set_value};
pub use render::{flow, scalar};

/// Where something stands: bytes `start..end` of the text, 1-based line and column (in characters) of its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    pub start: usize,
    pub end: usize,
    pub line: u32,
    pub column: u32,
}

/// How a value was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    /// `|` or `>`.
    BlockText,
    /// `[..]` or `{..}`.
    Flow,
    /// Indented lines.
    Block,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub value: Value,
    pub span: Span,
    pub style: Style,
    /// A plain scalar as written, so that `experiment_name: 1e3` can stay text. Empty for everything else.
    pub raw: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: String,
    pub key_span: Span,
    pub value: Node,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// Wide enough for every `i64` and `u64`.
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

impl Node {
    /// A value that no file holds: an override's or a default.
    pub fn placeless(value: Value) -> Self {
        let style = match value {
            Value::List(_) | Value::Map(_) => Style::Flow,
            _ => Style::Plain,
        };
        Self {
            value,
            span: Span::default(),
            style,
            raw: String::new(),
        }
    }

    pub fn from_json(value: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        Self::placeless(match value {
            Json::Null => Value::Null,
            Json::Bool(flag) => Value::Bool(*flag),
            Json::Number(number) => number
                .as_i64()
                .map(i128::from)
                .or_else(|| number.as_u64().map(i128::from))
                .map_or_else(
                    || Value::Float(number.as_f64().unwrap_or(f64::NAN)),
                    Value::Int,
                ),
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(items) => Value::List(items.iter().map(Self::from_json).collect()),
            Json::Object(entries) => Value::Map(
                entries
                    .iter()
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        key_span: Span::default(),
                        value: Self::from_json(value),
                    })
                    .collect(),
            ),
        })
    }

    /// The value without places. JSON has no NaN or infinity: those become the text `.nan`, `.inf`, `-.inf`.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(flag) => Json::Bool(*flag),
            Value::Int(number) => i64::try_from(*number)
                .map(Json::from)
                .or_else(|_| u64::try_from(*number).map(Json::from))
                .unwrap_or_else(|_| Json::from(*number as f64)),
            Value::Float(number) => serde_json::Number::from_f64(*number).map_or_else(
                || {
                    let name = if number.is_nan() {
                        ".nan"
                    } else if *number > 0.0 {
                        ".inf"
                    } else {
                        "-.inf"
                    };
                    Json::String(name.to_owned())
                },
                Json::Number,
            ),
            Value::Text(text) => Json::String(text.clone()),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => Json::Object(
                entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.value.to_json()))
                    .collect(),
            ),
        }
    }

    /// The value at a path of keys, if every step is a mapping that has it.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter()
            .try_fold(self, |node, key| node.entry(key).map(|entry| &entry.value))
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }
}

/// Reads a typed value from YAML text: for small files of our own, such as themes and settings. The reason names line and
/// column.
pub fn from_text<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_yaml::from_str(text).map_err(|error| error.to_string())
}

/// Writes a typed value as YAML text.
pub fn to_text<T: serde::Serialize>(value: &T) -> Result<String, String> {
    serde_yaml::to_string(value).map_err(|error| error.to_string())
}
