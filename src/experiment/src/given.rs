//! What the file and the overrides say, key by key, each with where it was said.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::complaint::{Complaint, Severity};
use crate::convert::{convert, shown};
use crate::keys::{self, Kind, Status, canonical, nearest};
use crate::overrides::{self, Action};
use crate::yaml::{self, Node, Span, Value};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    File {
        line: u32,
        column: u32,
    },
    Override(Arc<str>),
    /// Neither: the program's choice, or a key that nobody gave.
    Nowhere,
}

/// A leaf that somebody wrote.
#[derive(Debug, Clone)]
pub struct Given {
    /// In full.
    pub key: String,
    /// As written, shorthand and all.
    pub written: String,
    pub node: Node,
    pub origin: Origin,
    /// Set when the name is an old one.
    pub note: Option<&'static str>,
}

/// Everything given, in the order of the file, then of the overrides.
#[derive(Debug)]
pub struct Givens {
    file: String,
    pub all: Vec<Given>,
    pub complaints: Vec<Complaint>,
}

impl Givens {
    pub fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            all: Vec::new(),
            complaints: Vec::new(),
        }
    }

    /// `quickstart` of `experiments/quickstart.yaml`.
    pub fn file_stem(&self) -> String {
        std::path::Path::new(&self.file)
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    pub fn get(&self, key: &str) -> Option<&Given> {
        self.all.iter().find(|given| given.key == key)
    }

    pub fn origin(&self, key: &str) -> Origin {
        self.get(key)
            .map_or(Origin::Nowhere, |given| given.origin.clone())
    }

    pub fn complain(&mut self, severity: Severity, origin: &Origin, key: &str, message: String) {
        let (line, column, override_text) = match origin {
            Origin::File { line, column } => (Some(*line), Some(*column), None),
            Origin::Override(text) => (None, None, Some(text.to_string())),
            Origin::Nowhere => (None, None, None),
        };
        self.complaints.push(Complaint {
            severity,
            file: self.file.clone(),
            line,
            column,
            override_text,
            key: key.to_owned(),
            message,
        });
    }

    /// Takes every leaf of the file.
    pub fn read_file(&mut self, root: &Node) {
        if let Value::Map(entries) = &root.value {
            for entry in entries {
                let origin = place(entry.key_span);
                self.entry(&entry.key, &entry.key, &entry.value, &origin);
            }
        } else {
            let origin = place(root.span);
            let message = format!("expected `key: value` lines, got {}", shown(root));
            self.complain(Severity::Error, &origin, "", message);
        }
    }

    fn entry(&mut self, name: &str, written: &str, node: &Node, origin: &Origin) {
        if name.contains('.') {
            let message = format!("{name:?} is one key with a dot in it; write nested blocks");
            return self.complain(Severity::Error, origin, written, message);
        }
        let full = canonical(written);
        let status = keys::status(&full.path);
        let is_block = keys::is_block(&full.path);
        match (&node.value, &status) {
            (Value::Map(entries), Status::Unknown | Status::Inert(_)) if is_block => {
                for entry in entries {
                    let inner = format!("{written}.{}", entry.key);
                    let origin = match origin {
                        Origin::File { .. } => place(entry.key_span),
                        other => other.clone(),
                    };
                    self.entry(&entry.key, &inner, &entry.value, &origin);
                }
            }
            (Value::Null, Status::Unknown | Status::Inert(_)) if is_block => {}
            (_, Status::Unknown | Status::Inert(_)) if is_block => {
                let message = format!("{written}: expected a block of keys, got {}", shown(node));
                self.complain(Severity::Error, origin, &full.path, message);
            }
            (_, Status::Unknown) => {
                let message = match nearest(&full.path) {
                    Some(meant) => format!("unknown key {written}; did you mean {meant}?"),
                    None => format!("unknown key {written}; neither Lathe nor verl has it"),
                };
                self.complain(Severity::Error, origin, &full.path, message);
            }
            (_, Status::Planned(what)) => {
                let message = format!("{written} is not available yet: {what}");
                self.complain(Severity::Error, origin, &full.path, message);
            }
            (_, Status::Live(_) | Status::Inert(_)) => self.put(Given {
                key: full.path,
                written: written.to_owned(),
                node: node.clone(),
                origin: origin.clone(),
                note: full.note,
            }),
        }
    }

    fn put(&mut self, new: Given) {
        let Some(at) = self.all.iter().position(|given| given.key == new.key) else {
            self.all.push(new);
            return;
        };
        let old = &self.all[at];
        if let (Origin::File { line, .. }, Origin::File { .. }) = (&old.origin, &new.origin) {
            // Two names of one key in one file: agreeing is harmless.
            if old.node.to_json() != new.node.to_json() {
                let message = format!(
                    "{} is {}, but {} on line {line} is {}; they are one setting",
                    new.written,
                    shown(&new.node),
                    old.written,
                    shown(&old.node),
                );
                let (origin, key) = (new.origin, new.key);
                self.complain(Severity::Error, &origin, &key, message);
            }
        } else {
            let written = old.written.clone();
            self.all[at] = Given { written, ..new };
        }
    }

    /// Applies one override to the leaves and to `text`, the file that the run will keep.
    pub fn apply(&mut self, override_text: &str, root: Option<&Node>, text: &mut String) {
        let origin = Origin::Override(override_text.into());
        let parsed = match overrides::parse(override_text) {
            Ok(parsed) => parsed,
            Err(error) => return self.complain(Severity::Error, &origin, "", error.to_string()),
        };
        let written = parsed.path.join(".");
        let full = canonical(&written).path;
        let under = |given: &Given| {
            given.key == full
                || given
                    .key
                    .strip_prefix(full.as_str())
                    .is_some_and(|rest| rest.starts_with('.'))
        };
        let node = match parsed.action {
            Action::Remove(expected) => {
                let removed: Vec<Given> = self
                    .all
                    .iter()
                    .filter(|given| under(given))
                    .cloned()
                    .collect();
                let message = match (removed.as_slice(), expected) {
                    ([], _) => Some(format!("nothing to remove: {written} is not set")),
                    ([given], Some(expected)) if given.node.to_json() != expected.to_json() => {
                        Some(format!(
                            "not removed: {written} is {}, not {}",
                            shown(&given.node),
                            shown(&expected)
                        ))
                    }
                    _ => None,
                };
                if let Some(message) = message {
                    return self.complain(Severity::Error, &origin, &full, message);
                }
                self.all
                    .retain(|given| !removed.iter().any(|gone| gone.key == given.key));
                for gone in removed {
                    self.edit(text, &origin, &gone.key, &gone.written, None);
                }
                return;
            }
            Action::Add(node) => {
                if let Some(given) = self.all.iter().find(|given| under(given)) {
                    let message = format!(
                        "+ adds a key, but {} is set already; write {written}=..., or ++",
                        given.written
                    );
                    return self.complain(Severity::Error, &origin, &full, message);
                }
                node
            }
            Action::Set(node) => node,
        };
        if let Some(block) = open_mapping_above(&full) {
            return self.set_in_mapping(&block, &full, &node, &origin, root, text);
        }
        let before = self.complaints.len();
        let mut added = Self::new(&self.file);
        let name = parsed.path.first().map_or("", String::as_str);
        added.entry(name, &written, &node, &origin);
        self.complaints.append(&mut added.complaints);
        if self.complaints.len() > before {
            return;
        }
        for new in added.all {
            let key = new.key.clone();
            let in_text = self
                .get(&key)
                .map_or_else(|| place_in_file(&key, root), |old| old.written.clone());
            let value = text_value(&new);
            self.edit(text, &origin, &key, &in_text, Some(&value));
            let new = Given {
                written: new.written,
                ..new
            };
            match self.all.iter_mut().find(|given| given.key == key) {
                // The name in the file stays, for a later override of the same key.
                Some(old) => {
                    *old = Given {
                        written: in_text,
                        ..new
                    }
                }
                None => self.all.push(Given {
                    written: in_text,
                    ..new
                }),
            }
        }
    }

    /// `data.apply_chat_template_kwargs.enable_thinking=false`: one entry of a mapping whose keys are not ours.
    fn set_in_mapping(
        &mut self,
        block: &str,
        full: &str,
        node: &Node,
        origin: &Origin,
        root: Option<&Node>,
        text: &mut String,
    ) {
        let inner = &full[block.len() + 1..];
        let mut tree = self.get(block).map_or(Json::Null, |old| old.node.to_json());
        let written = self
            .get(block)
            .map_or_else(|| place_in_file(block, root), |old| old.written.clone());
        let mut slot = &mut tree;
        for name in inner.split('.') {
            if !slot.is_object() {
                *slot = Json::Object(serde_json::Map::new());
            }
            let Json::Object(entries) = slot else {
                return;
            };
            slot = entries.entry(name.to_owned()).or_insert(Json::Null);
        }
        *slot = node.to_json();
        self.edit(
            text,
            origin,
            block,
            &format!("{written}.{inner}"),
            Some(&node.to_json()),
        );
        let new = Given {
            key: block.to_owned(),
            written,
            node: Node::from_json(&tree),
            origin: origin.clone(),
            note: None,
        };
        match self.all.iter_mut().find(|given| given.key == block) {
            Some(old) => *old = new,
            None => self.all.push(new),
        }
    }

    fn edit(
        &mut self,
        text: &mut String,
        origin: &Origin,
        key: &str,
        written: &str,
        value: Option<&Json>,
    ) {
        let path: Vec<&str> = written.split('.').collect();
        let edited = match value {
            Some(value) => yaml::set_value(text, &path, value),
            None => yaml::remove_value(text, &path),
        };
        match edited {
            Ok(edited) => *text = edited,
            Err(error) => {
                let message = format!("cannot write it into the run's experiment.yaml: {error}");
                self.complain(Severity::Error, origin, key, message);
            }
        }
    }
}

fn place(span: Span) -> Origin {
    Origin::File {
        line: span.line,
        column: span.column,
    }
}

/// The live mapping that a path points into.
fn open_mapping_above(full: &str) -> Option<String> {
    let mut path = full;
    while let Some((parent, _)) = path.rsplit_once('.') {
        if keys::find(parent).is_some_and(|key| key.kind == Kind::Mapping) {
            return Some(parent.to_owned());
        }
        path = parent;
    }
    None
}

/// The path under which a new key goes into a file: in the shorthand block that the file uses, if it does.
fn place_in_file(key: &str, root: Option<&Node>) -> String {
    let Some(root) = root else {
        return key.to_owned();
    };
    let Some(rest) = key.strip_prefix("actor_rollout_ref.") else {
        return key.to_owned();
    };
    let block = rest.split('.').next().unwrap_or(rest);
    let long = root.at(&["actor_rollout_ref", block]).is_some();
    if !long && rest.contains('.') && root.at(&[block]).is_some() {
        rest.to_owned()
    } else {
        key.to_owned()
    }
}

/// What goes into the file: `experiment_name=1e3` is text, and must read back as text.
fn text_value(given: &Given) -> Json {
    let json = given.node.to_json();
    match keys::find(&given.key) {
        Some(key)
            if wants_text(&key.kind)
                && !matches!(given.node.value, Value::Text(_) | Value::Null) =>
        {
            convert(key, &given.node)
                .ok()
                .filter(|converted| converted.dropped.is_empty())
                .map_or(json, |converted| converted.value)
        }
        _ => json,
    }
}

fn wants_text(kind: &Kind) -> bool {
    match kind {
        Kind::Text | Kind::Path | Kind::Choice(_) => true,
        Kind::List(item) => wants_text(item),
        _ => false,
    }
}
