//! A run's settings as `experiment.yaml`: block style, scalars as JSON writes them, which every YAML reader reads as they were.

use std::fmt::Write;

use serde_json::{Map, Value};

/// `key: value` lines, nested by two spaces.
pub fn text(settings: &Map<String, Value>) -> String {
    let mut out = String::new();
    mapping(&mut out, settings, 0);
    out
}

fn mapping(out: &mut String, settings: &Map<String, Value>, depth: usize) {
    for (key, value) in settings {
        let key = if is_plain(key) {
            key.clone()
        } else {
            Value::from(key.as_str()).to_string()
        };
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                writeln!(out, "{:1$}{key}:", "", depth * 2).expect("a String takes everything");
                mapping(out, inner, depth + 1);
            }
            value => writeln!(out, "{:1$}{key}: {value}", "", depth * 2)
                .expect("a String takes everything"),
        }
    }
}

/// Needs no quotes as a key, and means no bool or null in any YAML.
fn is_plain(key: &str) -> bool {
    let mut bytes = key.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && bytes
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/'))
        && !["y", "n", "yes", "no", "on", "off", "true", "false", "null"]
            .contains(&key.to_ascii_lowercase().as_str())
}

/// Adds what `update` says to `settings`; objects are merged key by key.
pub fn merge(settings: &mut Map<String, Value>, update: Map<String, Value>) {
    for (key, value) in update {
        match (settings.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                settings.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_as_blocks_with_json_scalars() {
        let Value::Object(settings) = serde_json::json!({
            "lr": 1e-6, "actor": {"clip": 0.2, "on": true, "none": {}}, "a b": "x: \"y\"\n", "list": [1, "two"],
        }) else {
            unreachable!("it is an object")
        };
        assert_eq!(
            text(&settings),
            "lr: 1e-6\nactor:\n  clip: 0.2\n  \"on\": true\n  none: {}\n\"a b\": \"x: \\\"y\\\"\\n\"\nlist: [1,\"two\"]\n"
        );
    }
}
