//! Values to text, in the least quoting that reads back as the same value.

use serde_json::Value as Json;

use super::{Style, Value, build::plain};

/// A scalar as YAML; quotes stay what they were where the new value is text too.
pub fn scalar(value: &Json, style: Style) -> String {
    match value {
        Json::Null => "null".to_owned(),
        Json::Bool(flag) => flag.to_string(),
        Json::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            // 1e-6, as people write learning rates.
            Some(float) if float != 0.0 && (float.abs() < 1e-3 || float.abs() >= 1e16) => {
                format!("{float:e}")
            }
            _ => number.to_string(),
        },
        Json::String(text) => match style {
            Style::SingleQuoted if text.chars().all(is_printable) => {
                format!("'{}'", text.replace('\'', "''"))
            }
            Style::DoubleQuoted => double_quoted(text),
            _ if is_plain(text) => text.clone(),
            _ => double_quoted(text),
        },
        Json::Array(_) | Json::Object(_) => flow(value),
    }
}

/// Any value on one line: `[a, {b: 1}]`.
pub fn flow(value: &Json) -> String {
    match value {
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", self::key(key), flow(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        _ => scalar(value, Style::Plain),
    }
}

pub(super) fn key(name: &str) -> String {
    // A key is always text, so only its characters matter, not what it would mean as a value.
    if is_plain(name) || name.chars().all(|c| c.is_ascii_alphanumeric()) && !name.is_empty() {
        name.to_owned()
    } else {
        double_quoted(name)
    }
}

fn is_printable(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric()
}

fn is_plain(text: &str) -> bool {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric() || "_/.".contains(c));
    starts_well
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_/.+-=@~".contains(c))
        && text != "..."
        && matches!(plain(text), Value::Text(same) if same == text)
}

fn double_quoted(text: &str) -> String {
    use std::fmt::Write as _;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if is_printable(c) => quoted.push(c),
            c => write!(quoted, "\\U{:08X}", u32::from(c))
                .expect("writing to a String does not fail"),
        }
    }
    quoted.push('"');
    quoted
}
