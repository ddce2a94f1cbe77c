//! This experiment beside another text: the keys whose used values differ, or the lines that differ. Pure.

use experiment::keys;
use experiment::yaml;
use serde_json::Value as Json;
use similar::{ChangeTag, TextDiff};

use super::document::Document;
use super::rows::{alike, default_value};
use crate::tui::widgets::list::ListState;

/// Lines around a difference.
const CONTEXT: usize = 3;

/// What the experiment is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Against {
    Defaults,
    /// The text of a file: its name for people.
    Text {
        name: String,
        text: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Keys,
    Lines,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffRow {
    Key {
        key: String,
        other: String,
        here: String,
    },
    /// Only there, only here, or both.
    Line { sign: char, text: String },
    /// Equal lines that are left out.
    Gap,
}

#[derive(Debug)]
pub struct DiffView {
    pub against: Against,
    pub form: Form,
    pub list: ListState,
    pub rows: Vec<DiffRow>,
    revision: u64,
}

impl DiffView {
    pub fn new(against: Against, document: &Document) -> Self {
        let form = match &against {
            Against::Text { name, .. } if name == super::ON_DISK => Form::Lines,
            _ => Form::Keys,
        };
        let rows = rows(&against, form, document);
        Self {
            against,
            form,
            list: ListState::default(),
            rows,
            revision: document.revision(),
        }
    }

    pub fn name(&self) -> &str {
        match &self.against {
            Against::Defaults => "the defaults",
            Against::Text { name, .. } => name,
        }
    }

    /// Follows the document.
    pub fn refresh(&mut self, document: &Document) {
        if self.revision != document.revision() {
            self.revision = document.revision();
            self.rows = rows(&self.against, self.form, document);
        }
    }

    pub fn switch_form(&mut self, document: &Document) {
        self.form = match (self.form, &self.against) {
            (Form::Keys, Against::Text { .. }) => Form::Lines,
            _ => Form::Keys,
        };
        self.list = ListState::default();
        self.rows = rows(&self.against, self.form, document);
    }
}

fn rows(against: &Against, form: Form, document: &Document) -> Vec<DiffRow> {
    match (against, form) {
        (Against::Defaults, _) => keys(None, document.effective()),
        (Against::Text { name, text }, Form::Keys) => {
            let other = experiment::from_text(name, text, &[]).effective();
            keys(Some(&other), document.effective())
        }
        (Against::Text { text, .. }, Form::Lines) => lines(text, document.text()),
    }
}

/// The live keys whose used values differ, in the table's order. `other`: None for the defaults.
fn keys(other: Option<&Json>, here: &Json) -> Vec<DiffRow> {
    let at = |tree: &Json, path: &str| {
        path.split('.')
            .try_fold(tree, |tree, name| tree.get(name))
            .cloned()
            .unwrap_or(Json::Null)
    };
    keys::live()
        .iter()
        .filter_map(|live| {
            let here = at(here, &live.path);
            let other = other.map_or_else(|| default_value(live), |other| at(other, &live.path));
            (!alike(&other, &here)).then(|| DiffRow::Key {
                key: live.path.clone(),
                other: yaml::flow(&other),
                here: yaml::flow(&here),
            })
        })
        .collect()
}

/// Lines that differ, with some around them.
fn lines(other: &str, here: &str) -> Vec<DiffRow> {
    let diff = TextDiff::from_lines(other, here);
    let mut rows = Vec::new();
    for (index, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if index > 0 {
            rows.push(DiffRow::Gap);
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            rows.push(DiffRow::Line {
                sign: match change.tag() {
                    ChangeTag::Delete => '-',
                    ChangeTag::Insert => '+',
                    ChangeTag::Equal => ' ',
                },
                text: change.value().trim_end_matches(['\n', '\r']).to_owned(),
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn document(text: &str) -> Document {
        Document::new(Path::new("a.yaml"), "a.yaml", text.to_owned(), false)
    }

    #[test]
    fn only_keys_whose_used_values_differ_are_told_whatever_they_are_called() {
        let here = document("actor:\n  optim:\n    lr: 0.001\ndata:\n  seed: 1\n");
        let other = "actor_rollout_ref: {actor: {optim: {lr: 1e-3}}}\ndata: {seed: 2}\n";
        let against = Against::Text {
            name: "b".to_owned(),
            text: other.to_owned(),
        };
        let view = DiffView::new(against, &here);
        let changed = |row: &DiffRow| matches!(row, DiffRow::Key { key, .. } if key == "data.seed");
        assert!(view.rows.iter().any(changed));
        assert!(
            !view
                .rows
                .iter()
                .any(|row| matches!(row, DiffRow::Key { key, .. } if key.ends_with("optim.lr")))
        );
    }

    #[test]
    fn equal_texts_have_no_different_lines() {
        let text = "a: 1\nb: 2\n";
        assert_eq!(lines(text, text), []);
        assert_eq!(
            lines("a: 1\nb: 2\n", "a: 1\nb: 3\n"),
            [(' ', "a: 1"), ('-', "b: 2"), ('+', "b: 3"),].map(|(sign, text)| DiffRow::Line {
                sign,
                text: text.to_owned()
            })
        );
    }
}
