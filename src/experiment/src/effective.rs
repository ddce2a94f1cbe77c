//! The experiment used, printed: every live key in the table's order, with the comments of the source.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value as Json;

use crate::keys::{self, canonical};
use crate::resolve::Loaded;
use crate::yaml::{self, Node, Value, flow};

pub fn yaml(loaded: &Loaded) -> String {
    let comments = yaml::parse(&loaded.resolved)
        .root
        .map(|root| {
            let mut comments = HashMap::new();
            collect(&loaded.resolved, &root, "", &mut comments);
            comments
        })
        .unwrap_or_default();
    let tree = loaded.effective();
    let mut text = String::new();
    let mut open: Vec<&str> = Vec::new();
    for key in keys::live() {
        let Some(value) = at(&tree, &key.path) else {
            continue;
        };
        let names: Vec<&str> = key.path.split('.').collect();
        let (name, blocks) = names.split_last().expect("a path has at least one name");
        let shared = open
            .iter()
            .zip(blocks)
            .take_while(|(left, right)| left == right)
            .count();
        for (depth, block) in blocks.iter().enumerate().skip(shared) {
            let _ = writeln!(text, "{}{block}:", "  ".repeat(depth));
        }
        open = blocks.to_vec();
        let comment = comments.get(&key.path).map_or("", String::as_str);
        let _ = writeln!(
            text,
            "{}{name}: {}{comment}",
            "  ".repeat(blocks.len()),
            flow(value)
        );
    }
    text
}

fn at<'t>(tree: &'t Json, path: &str) -> Option<&'t Json> {
    path.split('.').try_fold(tree, |tree, name| tree.get(name))
}

/// The comment behind each value, with the spaces before it.
fn collect(text: &str, node: &Node, prefix: &str, comments: &mut HashMap<String, String>) {
    let Value::Map(entries) = &node.value else {
        return;
    };
    for entry in entries {
        let written = if prefix.is_empty() {
            entry.key.clone()
        } else {
            format!("{prefix}.{}", entry.key)
        };
        collect(text, &entry.value, &written, comments);
        let behind = text[entry.value.span.end..].lines().next().unwrap_or("");
        let spaces = behind.len() - behind.trim_start().len();
        if spaces > 0 && behind.trim_start().starts_with('#') {
            comments.insert(canonical(&written).path, behind.trim_end().to_owned());
        }
    }
}
