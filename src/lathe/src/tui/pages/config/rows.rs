//! The rows of the tree: what the file says in its own order, and every live key that it does not say in its place. Pure.

use std::collections::HashMap;

use experiment::keys::{self, Live, Status};
use experiment::yaml::{self, Node, Value};
use experiment::{Complaint, Severity};
use serde_json::Value as Json;

/// A block or a key.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Names as the file writes them: `actor.optim.lr` where it says `actor:` at its top.
    pub path: String,
    /// The key in full: `actor_rollout_ref.actor.optim.lr`.
    pub key: String,
    pub depth: usize,
    pub is_block: bool,
    /// As written, or the default of a key that the file does not give. Empty for blocks.
    pub value: String,
    /// 1-based line in the file; None: the file does not say it.
    pub line: Option<u32>,
    /// Differs from what is saved.
    pub is_modified: bool,
    /// The value used is not the default.
    pub is_special: bool,
    /// The worst that is said of it, or of anything in the block.
    pub severity: Option<Severity>,
    /// The comment behind the value.
    pub comment: String,
    /// The first row that is not in this block.
    pub end: usize,
}

impl Row {
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// None: a block, or a key that does nothing here.
    pub fn live(&self) -> Option<&'static Live> {
        match keys::status(&self.key) {
            Status::Live(live) if !self.is_block => Some(live),
            _ => None,
        }
    }

    pub fn is_in_file(&self) -> bool {
        self.line.is_some()
    }
}

/// The default of a key as YAML.
pub fn default_text(live: &Live) -> String {
    yaml::flow(&default_value(live))
}

pub fn default_value(live: &Live) -> Json {
    serde_json::from_str(live.default).unwrap_or(Json::Null)
}

/// What each key of a text holds, as written, by its full name.
pub fn written(text: &str, root: Option<&Node>) -> HashMap<String, String> {
    let mut found = HashMap::new();
    if let Some(root) = root {
        collect(text, root, "", &mut found);
    }
    found
}

fn collect(text: &str, node: &Node, prefix: &str, found: &mut HashMap<String, String>) {
    let Value::Map(entries) = &node.value else {
        return;
    };
    for entry in entries {
        let path = joined(prefix, &entry.key);
        let key = keys::canonical(&path).path;
        if is_block(&key, &entry.value) {
            collect(text, &entry.value, &path, found);
        } else {
            found.insert(key, slice(text, &entry.value).to_owned());
        }
    }
}

fn joined(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}.{name}")
    }
}

/// A mapping of keys of ours, not a value that happens to be a mapping.
fn is_block(key: &str, node: &Node) -> bool {
    let is_live = matches!(keys::status(key), Status::Live(_));
    match node.value {
        Value::Map(_) => !is_live,
        Value::Null => !is_live && keys::is_block(key),
        _ => false,
    }
}

fn slice<'t>(text: &'t str, node: &Node) -> &'t str {
    text.get(node.span.start..node.span.end).unwrap_or("")
}

/// A value on one line: as written where that is one line.
pub fn one_line(text: &str, node: &Node) -> String {
    let written = slice(text, node);
    if written.contains('\n') {
        yaml::flow(&node.to_json())
    } else if written.is_empty() {
        "null".to_owned()
    } else {
        written.to_owned()
    }
}

#[derive(Debug)]
struct Branch {
    path: String,
    key: String,
    is_block: bool,
    value: String,
    line: Option<u32>,
    comment: String,
    children: Vec<usize>,
}

/// A tree in one vector; 0 is the root.
#[derive(Debug)]
struct Forest {
    branches: Vec<Branch>,
    blocks: HashMap<String, usize>,
    given: HashMap<String, usize>,
}

impl Forest {
    fn new() -> Self {
        let root = Branch {
            path: String::new(),
            key: String::new(),
            is_block: true,
            value: String::new(),
            line: None,
            comment: String::new(),
            children: Vec::new(),
        };
        Self {
            branches: vec![root],
            blocks: HashMap::from([(String::new(), 0)]),
            given: HashMap::new(),
        }
    }

    fn push(&mut self, parent: usize, branch: Branch) -> usize {
        let at = self.branches.len();
        self.branches.push(branch);
        self.branches[parent].children.push(at);
        at
    }

    fn read(&mut self, text: &str, node: &Node, parent: usize) {
        let Value::Map(entries) = &node.value else {
            return;
        };
        for entry in entries {
            let path = joined(&self.branches[parent].path, &entry.key);
            let key = keys::canonical(&path).path;
            let is_block = is_block(&key, &entry.value);
            let value = if is_block {
                String::new()
            } else {
                one_line(text, &entry.value)
            };
            let at = self.push(
                parent,
                Branch {
                    path,
                    key: key.clone(),
                    is_block,
                    value,
                    line: Some(entry.key_span.line),
                    comment: comment_behind(text, entry, is_block),
                    children: Vec::new(),
                },
            );
            if is_block {
                self.blocks.entry(key).or_insert(at);
                self.read(text, &entry.value, at);
            } else {
                self.given.entry(key).or_insert(at);
            }
        }
    }

    /// The block of this full name; made where the file has none.
    fn block(&mut self, key: &str) -> usize {
        if let Some(&at) = self.blocks.get(key) {
            return at;
        }
        let (outer, name) = key.rsplit_once('.').unwrap_or(("", key));
        let parent = self.block(outer);
        let branch = Branch {
            path: joined(&self.branches[parent].path, name),
            key: key.to_owned(),
            is_block: true,
            value: String::new(),
            line: None,
            comment: String::new(),
            children: Vec::new(),
        };
        let at = self.push(parent, branch);
        self.blocks.insert(key.to_owned(), at);
        at
    }

    fn add_missing(&mut self, live: &Live) {
        let (block, name) = live.path.rsplit_once('.').unwrap_or(("", &live.path));
        let parent = self.block(block);
        let branch = Branch {
            path: joined(&self.branches[parent].path, name),
            key: live.path.clone(),
            is_block: false,
            value: default_text(live),
            line: None,
            comment: String::new(),
            children: Vec::new(),
        };
        self.push(parent, branch);
    }
}

fn comment_behind(text: &str, entry: &yaml::Entry, is_block: bool) -> String {
    let end = if is_block {
        entry.key_span.end
    } else {
        entry.value.span.end.max(entry.key_span.end)
    };
    let behind = text.get(end..).and_then(|rest| rest.lines().next());
    let behind = behind.unwrap_or("").trim_start_matches(':').trim();
    if behind.starts_with('#') {
        behind.to_owned()
    } else {
        String::new()
    }
}

/// Every row: the file's in its order, in each block followed by the live keys that it does not give.
pub fn build(
    text: &str,
    root: Option<&Node>,
    saved: &HashMap<String, String>,
    effective: &Json,
    complaints: &[Complaint],
) -> Vec<Row> {
    let mut forest = Forest::new();
    if let Some(root) = root {
        forest.read(text, root, 0);
    }
    for live in keys::live() {
        if !forest.given.contains_key(&live.path) {
            forest.add_missing(live);
        }
    }
    let now = written(text, root);
    let mut severities: HashMap<&str, Severity> = HashMap::new();
    for complaint in complaints {
        let worst = severities
            .entry(&complaint.key)
            .or_insert(complaint.severity);
        *worst = (*worst).min(complaint.severity);
    }
    let mut rows = Vec::with_capacity(forest.branches.len());
    for &child in &forest.branches[0].children {
        flatten(&forest, child, 0, &mut rows, &mut |branch| Marks {
            is_modified: !branch.is_block && now.get(&branch.key) != saved.get(&branch.key),
            is_special: branch.line.is_some() && differs(&branch.key, effective),
            severity: severities.get(branch.key.as_str()).copied(),
        });
    }
    rows
}

struct Marks {
    is_modified: bool,
    is_special: bool,
    severity: Option<Severity>,
}

fn flatten(
    forest: &Forest,
    at: usize,
    depth: usize,
    rows: &mut Vec<Row>,
    marks: &mut dyn FnMut(&Branch) -> Marks,
) {
    let branch = &forest.branches[at];
    let own = marks(branch);
    let index = rows.len();
    rows.push(Row {
        path: branch.path.clone(),
        key: branch.key.clone(),
        depth,
        is_block: branch.is_block,
        value: branch.value.clone(),
        line: branch.line,
        is_modified: own.is_modified,
        is_special: own.is_special,
        severity: own.severity,
        comment: branch.comment.clone(),
        end: 0,
    });
    for &child in &branch.children {
        flatten(forest, child, depth + 1, rows, marks);
    }
    let end = rows.len();
    let (severity, is_modified) = rows[index + 1..end].iter().fold(
        (own.severity, own.is_modified),
        |(severity, modified), row| {
            let worst = match (severity, row.severity) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            (worst, modified || row.is_modified)
        },
    );
    let row = &mut rows[index];
    row.end = end;
    if row.is_block {
        row.severity = severity;
        row.is_modified = is_modified;
    }
}

/// Whether the value used differs from the key's default. Keys without effect have none.
fn differs(key: &str, effective: &Json) -> bool {
    let Some(live) = keys::find(key) else {
        return false;
    };
    let used = key
        .split('.')
        .try_fold(effective, |tree, name| tree.get(name));
    used.is_some_and(|used| !alike(used, &default_value(live)))
}

/// Equal, numbers by their value.
pub fn alike(left: &Json, right: &Json) -> bool {
    match (left, right) {
        (Json::Number(a), Json::Number(b)) => a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        _ => left == right,
    }
}
