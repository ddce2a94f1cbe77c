//! `${path}`, `${.sibling}`, `${oc.select:path,default}` and `${oc.env:NAME,default}`, resolved as `OmegaConf` does.
//!
//! A path sees what is given, else our default, else verl's, so that verl's own defaults can be written out.

use crate::complaint::Severity;
use crate::given::{Given, Givens};
use crate::keys::{self, canonical};
use crate::overrides;
use crate::yaml::{Entry, Node, Span, Value, flow};

/// Replaces every interpolation in `givens`; what cannot be resolved is complained about and dropped.
pub fn resolve(givens: &mut Givens) {
    let source: Vec<Given> = givens.all.clone();
    let mut kept = Vec::new();
    for given in &source {
        let mut stack = vec![given.key.clone()];
        match value(&source, &given.node, &given.key, &mut stack) {
            Ok(node) => kept.push(Given {
                node,
                ..given.clone()
            }),
            Err(message) => {
                let message = format!("{}: {message}", given.written);
                givens.complain(Severity::Error, &given.origin, &given.key, message);
            }
        }
    }
    givens.all = kept;
}

/// Whether a value holds an interpolation at all.
fn interpolates(text: &str) -> bool {
    text.contains("${")
}

/// `at`: the key in whose value we are, for relative paths. `stack`: the keys being resolved, for cycles.
fn value(givens: &[Given], node: &Node, at: &str, stack: &mut Vec<String>) -> Result<Node, String> {
    let value = match &node.value {
        Value::Text(text) if interpolates(text) => return text_value(givens, text, at, stack),
        Value::List(items) => Value::List(
            items
                .iter()
                .map(|item| value(givens, item, at, stack))
                .collect::<Result<_, _>>()?,
        ),
        Value::Map(entries) => Value::Map(
            entries
                .iter()
                .map(|entry| {
                    Ok(Entry {
                        value: value(givens, &entry.value, at, stack)?,
                        ..entry.clone()
                    })
                })
                .collect::<Result<_, String>>()?,
        ),
        _ => return Ok(node.clone()),
    };
    Ok(Node {
        value,
        ..node.clone()
    })
}

fn text_value(
    givens: &[Given],
    text: &str,
    at: &str,
    stack: &mut Vec<String>,
) -> Result<Node, String> {
    let mut pieces = String::new();
    let mut rest = text;
    while let Some(open) = rest.find("${") {
        if rest[..open].ends_with('\\') {
            pieces.push_str(&rest[..open - 1]);
            pieces.push_str("${");
            rest = &rest[open + 2..];
            continue;
        }
        let close = closing(&rest[open..])
            .ok_or_else(|| format!("{text:?} has a ${{ without its closing }}"))?;
        let inner = &rest[open + 2..open + close];
        let node = one(givens, inner.trim(), at, stack)?;
        // The whole text: the value keeps its type.
        if open == 0 && pieces.is_empty() && open + close + 1 == text.len() {
            return Ok(node);
        }
        pieces.push_str(&rest[..open]);
        match &node.value {
            Value::Text(text) => pieces.push_str(text),
            _ if !node.raw.is_empty() => pieces.push_str(&node.raw),
            _ => pieces.push_str(&flow(&node.to_json())),
        }
        rest = &rest[open + close + 1..];
    }
    pieces.push_str(rest);
    Ok(Node::placeless(Value::Text(pieces)))
}

/// The byte of the `}` that closes the `${` at the start.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Deeper than any honest chain of references.
const MAX_CHAIN: usize = 32;

fn one(givens: &[Given], inner: &str, at: &str, stack: &mut Vec<String>) -> Result<Node, String> {
    if let Some((resolver, arguments)) = inner.split_once(':') {
        let (first, default) = match split_argument(arguments) {
            (first, Some(default)) => (first.trim(), Some(default.trim())),
            (first, None) => (first.trim(), None),
        };
        let fallback = |stack: &mut Vec<String>| -> Option<Result<Node, String>> {
            default.map(|default| {
                let node = overrides::parse_value(default)
                    .map_err(|error| format!("in ${{{inner}}}: {error}"))?;
                value(givens, &node, at, stack)
            })
        };
        return match resolver.trim() {
            "oc.select" if keys::is_block(&canonical(first).path) => {
                Ok(block(givens, &canonical(first).path))
            }
            "oc.select" => match path(givens, first, at, stack)? {
                Some(node) => Ok(node),
                None => fallback(stack).unwrap_or_else(|| Ok(Node::placeless(Value::Null))),
            },
            "oc.env" => match std::env::var(first) {
                Ok(text) => Ok(Node::placeless(Value::Text(text))),
                Err(_) => fallback(stack)
                    .unwrap_or_else(|| Err(format!("the environment variable {first} is not set"))),
            },
            other => Err(format!(
                "${{{inner}}}: the resolver {other:?} is not supported; oc.select and oc.env are"
            )),
        };
    }
    path(givens, inner, at, stack)?
        .ok_or_else(|| format!("${{{inner}}} points at a key that does not exist"))
}

/// `path,default` at the first comma outside `${..}`.
fn split_argument(arguments: &str) -> (&str, Option<&str>) {
    let mut depth = 0_usize;
    for (at, c) in arguments.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => return (&arguments[..at], Some(&arguments[at + 1..])),
            _ => {}
        }
    }
    (arguments, None)
}

/// The resolved value at a path; `None` when there is no such key.
fn path(
    givens: &[Given],
    written: &str,
    at: &str,
    stack: &mut Vec<String>,
) -> Result<Option<Node>, String> {
    let full = match written.strip_prefix('.') {
        Some(mut rest) => {
            let mut base: Vec<&str> = at.split('.').collect();
            base.pop();
            while let Some(up) = rest.strip_prefix('.') {
                base.pop();
                rest = up;
            }
            base.push(rest);
            base.join(".")
        }
        None => canonical(written).path,
    };
    if stack.contains(&full) {
        return Err(format!(
            "the interpolation goes round in a circle: {} -> {full}",
            stack.join(" -> ")
        ));
    }
    if stack.len() >= MAX_CHAIN {
        return Err(format!("more than {MAX_CHAIN} interpolations in a chain"));
    }
    stack.push(full.clone());
    let found = look_up(givens, &full, stack);
    stack.pop();
    found
}

fn look_up(givens: &[Given], full: &str, stack: &mut Vec<String>) -> Result<Option<Node>, String> {
    if let Some(given) = givens.iter().find(|given| given.key == full) {
        return value(givens, &given.node, full, stack).map(Some);
    }
    if let Some(default) = default_of(full) {
        return value(givens, &default, full, stack).map(Some);
    }
    if keys::is_block(full) {
        return Err(format!("${{{full}}} is a block; point at one of its keys"));
    }
    // Inside a mapping that is one key to us.
    let inside = givens.iter().find_map(|given| {
        let rest = full.strip_prefix(given.key.as_str())?.strip_prefix('.')?;
        let steps: Vec<&str> = rest.split('.').collect();
        given.node.at(&steps)
    });
    match inside {
        Some(node) => value(givens, &node.clone(), full, stack).map(Some),
        None => Ok(None),
    }
}

/// What is given under a block, as one mapping.
fn block(givens: &[Given], full: &str) -> Node {
    let mut tree = serde_json::Value::Object(serde_json::Map::new());
    for given in givens {
        if let Some(rest) = given
            .key
            .strip_prefix(full)
            .and_then(|rest| rest.strip_prefix('.'))
        {
            crate::resolve::set(&mut tree, rest, given.node.to_json());
        }
    }
    Node::from_json(&tree)
}

/// Our default, else verl's; verl's `???` (mandatory) is no value.
fn default_of(full: &str) -> Option<Node> {
    let text = match keys::find(full) {
        Some(key) => key.default,
        None => keys::verl_key(full)?.default,
    };
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    if json == "???" {
        return None;
    }
    Some(Node {
        span: Span::default(),
        ..Node::from_json(&json)
    })
}

/// verl's default of a key as it would stand with these givens, to tell a changed value from a written-out default.
pub fn verl_default(givens: &[Given], key: &str) -> Option<serde_json::Value> {
    let text = keys::verl_key(key)?.default;
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    let node = Node::from_json(&json);
    value(givens, &node, key, &mut vec![key.to_owned()])
        .ok()
        .map(|node| node.to_json())
}
