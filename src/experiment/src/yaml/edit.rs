//! Changes to the text of an experiment that leave every other byte alone: comments, order, quoting, blank lines.
//!
//! Each edit reads its result back and is refused when anything but the one value changed, so a text it cannot edit
//! safely stays as it was.

use serde_json::Value as Json;
use thiserror::Error;

use super::{
    Entry, Node, Style, Value,
    build::parse,
    render::{flow, key, scalar},
};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EditError {
    #[error("line {line}: {message}; mend the file before changing a value in it")]
    NotYaml { line: u32, message: String },
    #[error("{block} on line {line} is not a block, so it cannot hold {key}")]
    NotABlock {
        block: String,
        line: u32,
        key: String,
    },
    #[error("{key} is not in the file")]
    Absent { key: String },
    #[error("cannot change {key} without changing something else in the file; edit it by hand")]
    WouldChangeMore { key: String },
}

/// `text` with the value at `path` replaced, or added at the end of its block when it is absent.
pub fn set_value(text: &str, path: &[&str], value: &Json) -> Result<String, EditError> {
    let root = read(text)?;
    let edited = match place(root.as_ref(), path)? {
        Place::Found(entry) => replace(text, entry, value),
        Place::Missing { parent, rest } => add(text, root.as_ref(), parent, rest, value),
    };
    let mut expected = root.map_or(Json::Null, |root| root.to_json());
    insert(&mut expected, path, value);
    proved(edited, &expected, path)
}

/// `text` without the key at `path`, with its lines or its part of a `{..}`.
pub fn remove_value(text: &str, path: &[&str]) -> Result<String, EditError> {
    let root = read(text)?;
    let absent = || EditError::Absent {
        key: path.join("."),
    };
    let (last, parents) = path.split_last().ok_or_else(absent)?;
    let parent = root
        .as_ref()
        .and_then(|root| root.at(parents))
        .ok_or_else(absent)?;
    let entry = parent.entry(last).ok_or_else(absent)?;
    let edited = if parent.style == Style::Flow {
        remove_from_flow(text, parent, entry)
    } else {
        let start = line_start(text, entry.key_span.start);
        let end = next_line(text, entry.value.span.end.max(entry.key_span.end));
        // A block that starts behind something else on its line (`- a: 1`) cannot lose its first line.
        if text[start..entry.key_span.start].trim().is_empty() {
            format!("{}{}", &text[..start], &text[end..])
        } else {
            text.to_owned()
        }
    };
    let mut expected = root.as_ref().map_or(Json::Null, Node::to_json);
    delete(&mut expected, path);
    proved(edited, &expected, path)
}

fn read(text: &str) -> Result<Option<Node>, EditError> {
    let parsed = parse(text);
    match parsed.faults.into_iter().next() {
        Some(fault) => Err(EditError::NotYaml {
            line: fault.line,
            message: fault.message,
        }),
        None => Ok(parsed.root),
    }
}

enum Place<'t> {
    Found(&'t Entry),
    /// `parent`: the deepest entry that exists on the way, `None` for the root; `rest`: the keys still to be made.
    Missing {
        parent: Option<&'t Entry>,
        rest: &'t [&'t str],
    },
}

fn place<'t>(root: Option<&'t Node>, path: &'t [&'t str]) -> Result<Place<'t>, EditError> {
    let mut parent: Option<&Entry> = None;
    let Some(mut node) = root else {
        return Ok(Place::Missing { parent, rest: path });
    };
    for (depth, name) in path.iter().enumerate() {
        let rest = &path[depth..];
        match (&node.value, parent) {
            (Value::Map(_), _) => match node.entry(name) {
                Some(entry) => {
                    parent = Some(entry);
                    node = &entry.value;
                }
                None => return Ok(Place::Missing { parent, rest }),
            },
            (Value::Null, _) => return Ok(Place::Missing { parent, rest }),
            (_, found) => {
                return Err(EditError::NotABlock {
                    block: found
                        .map_or_else(|| "the document".to_owned(), |entry| entry.key.clone()),
                    line: node.span.line,
                    key: path.join("."),
                });
            }
        }
    }
    parent.map_or_else(
        || Err(EditError::Absent { key: String::new() }),
        |entry| Ok(Place::Found(entry)),
    )
}

/// The byte behind the `:` of a key, if it has one (`{a}` has none).
fn after_colon(text: &str, entry: &Entry) -> Option<usize> {
    let from = entry.key_span.end;
    let until = entry.value.span.start.max(from);
    let gap = text
        .get(from..(until + 1).min(text.len()))
        .unwrap_or_else(|| &text[from..until]);
    gap.find(':').map(|offset| from + offset + 1)
}

fn replace(text: &str, entry: &Entry, value: &Json) -> String {
    let node = &entry.value;
    let written = scalar(value, node.style);
    match node.style {
        Style::Plain if node.span.start == node.span.end => {
            if let Some(at) = after_colon(text, entry) {
                format!("{} {written}{}", &text[..at], &text[at..])
            } else {
                let at = entry.key_span.end;
                format!("{}: {written}{}", &text[..at], &text[at..])
            }
        }
        Style::Plain | Style::SingleQuoted | Style::DoubleQuoted | Style::Flow => {
            splice(text, node, &written)
        }
        // The header `|` stands between the colon and the first line of text.
        Style::BlockText => after_colon(text, entry).map_or_else(
            || splice(text, node, &written),
            |at| format!("{} {written}{}", &text[..at], &text[node.span.end..]),
        ),
        // Lines become one value behind the key; what follows the key on its own line (a comment) stays.
        Style::Block => match after_colon(text, entry) {
            Some(at) if line_start(text, node.span.start) >= at => {
                let start = line_start(text, node.span.start);
                let end = next_line(text, node.span.end);
                let tail = &text[end..];
                let kept = &text[at..start];
                let kept = if tail.is_empty() && !text.ends_with('\n') {
                    kept.trim_end_matches('\n')
                } else {
                    kept
                };
                format!("{} {written}{kept}{tail}", &text[..at])
            }
            _ => splice(text, node, &written),
        },
    }
}

fn splice(text: &str, node: &Node, written: &str) -> String {
    format!(
        "{}{written}{}",
        &text[..node.span.start],
        &text[node.span.end..]
    )
}

fn add(
    text: &str,
    root: Option<&Node>,
    parent: Option<&Entry>,
    rest: &[&str],
    value: &Json,
) -> String {
    let block = parent.map_or(root, |entry| Some(&entry.value));
    match (block.map(|node| (&node.value, node)), parent) {
        (Some((Value::Map(entries), node)), _) if node.style == Style::Flow => {
            let close = node.span.end - 1;
            let inner = text[node.span.start + 1..close].trim_end();
            let at = node.span.start + 1 + inner.len();
            let comma = if entries.is_empty() || inner.ends_with(',') {
                ""
            } else {
                ","
            };
            let space = if inner.is_empty() { "" } else { " " };
            format!(
                "{}{comma}{space}{}{}",
                &text[..at],
                flow_entry(rest, value),
                &text[at..]
            )
        }
        (Some((Value::Map(entries), node)), _) => {
            let indent = entries
                .first()
                .map_or(node.span.column, |entry| entry.key_span.column)
                as usize
                - 1;
            let end = node.span.end;
            insert_lines(text, next_line(text, end), indent, rest, value)
        }
        (Some((_, node)), Some(entry)) => {
            let own_line = text[line_start(text, entry.key_span.start)..entry.key_span.start]
                .trim()
                .is_empty();
            if node.span.start == node.span.end && own_line {
                // `model:` with nothing under it yet.
                let indent = entry.key_span.column as usize + 1;
                insert_lines(
                    text,
                    next_line(text, entry.key_span.end),
                    indent,
                    rest,
                    value,
                )
            } else {
                replace(text, entry, &nested(rest, value))
            }
        }
        _ => insert_lines(text, text.len(), 0, rest, value),
    }
}

fn insert_lines(text: &str, at: usize, indent: usize, rest: &[&str], value: &Json) -> String {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut lines = String::new();
    if at > 0 && !text[..at].ends_with('\n') {
        lines.push_str(newline);
    }
    for (depth, name) in rest.iter().enumerate() {
        let pad = " ".repeat(indent + 2 * depth);
        lines.push_str(&pad);
        lines.push_str(&key(name));
        lines.push(':');
        if depth + 1 == rest.len() {
            lines.push(' ');
            lines.push_str(&flow(value));
        }
        lines.push_str(newline);
    }
    format!("{}{lines}{}", &text[..at], &text[at..])
}

fn flow_entry(rest: &[&str], value: &Json) -> String {
    match rest.split_first() {
        Some((name, [])) => format!("{}: {}", key(name), flow(value)),
        Some((name, deeper)) => format!("{}: {{{}}}", key(name), flow_entry(deeper, value)),
        None => String::new(),
    }
}

fn nested(rest: &[&str], value: &Json) -> Json {
    rest.iter().rev().fold(value.clone(), |inner, name| {
        Json::Object([((*name).to_owned(), inner)].into_iter().collect())
    })
}

fn remove_from_flow(text: &str, parent: &Node, entry: &Entry) -> String {
    let mut start = entry.key_span.start;
    let mut end = entry.value.span.end.max(entry.key_span.end);
    if let Some(colon) = after_colon(text, entry) {
        end = end.max(colon);
    }
    let behind = &text[end..parent.span.end];
    let trimmed = behind.trim_start();
    if let Some(after) = trimmed.strip_prefix(',') {
        end = parent.span.end - after.trim_start().len();
    } else {
        let before = text[parent.span.start..start].trim_end();
        if let Some(before) = before.strip_suffix(',') {
            start = parent.span.start + before.len();
        }
    }
    format!("{}{}", &text[..start], &text[end..])
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// The start of the line after the one that holds `at`; the text's end on the last line.
fn next_line(text: &str, at: usize) -> usize {
    text[at..]
        .find('\n')
        .map_or(text.len(), |newline| at + newline + 1)
}

fn insert(tree: &mut Json, path: &[&str], value: &Json) {
    let Some((name, rest)) = path.split_first() else {
        *tree = value.clone();
        return;
    };
    if !tree.is_object() {
        *tree = Json::Object(serde_json::Map::new());
    }
    if let Json::Object(entries) = tree {
        insert(
            entries.entry((*name).to_owned()).or_insert(Json::Null),
            rest,
            value,
        );
    }
}

fn delete(tree: &mut Json, path: &[&str]) {
    match (tree, path) {
        (Json::Object(entries), [name]) => {
            entries.shift_remove(*name);
        }
        (Json::Object(entries), [name, rest @ ..]) => {
            if let Some(inner) = entries.get_mut(*name) {
                delete(inner, rest);
            }
        }
        _ => {}
    }
}

/// The edit, when reading it back gives exactly what was meant.
fn proved(edited: String, expected: &Json, path: &[&str]) -> Result<String, EditError> {
    let parsed = parse(&edited);
    let tree = parsed.root.map_or(Json::Null, |root| root.to_json());
    if parsed.faults.is_empty() && same(&tree, expected) {
        Ok(edited)
    } else {
        Err(EditError::WouldChangeMore {
            key: path.join("."),
        })
    }
}

/// Equality that takes an empty block for a missing one: `model:` and `model: {}` say the same.
fn same(left: &Json, right: &Json) -> bool {
    match (left, right) {
        (Json::Null, Json::Object(entries)) | (Json::Object(entries), Json::Null) => {
            entries.is_empty()
        }
        (Json::Object(left), Json::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|((left_key, left), (right_key, right))| {
                        left_key == right_key && same(left, right)
                    })
        }
        (Json::Array(left), Json::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same(left, right))
        }
        _ => left == right,
    }
}
