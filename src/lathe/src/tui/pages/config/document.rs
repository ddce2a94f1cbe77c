//! An experiment's text while it is edited: history, what was saved, what there is to say about it. Pure.
//!
//! Every change is a splice of the text, so undoing all of them gives the first bytes back. Values are changed by
//! [`experiment::yaml`], which leaves every other byte alone. What is derived from the text (rows, complaints) is made once
//! a change, never once a frame.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use experiment::yaml::{self, Node, Style};
use experiment::{Complaint, Severity};
use serde_json::Value as Json;

use super::rows::{self, Row};

/// One splice: at byte `at`, `removed` gave way to `inserted`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    at: usize,
    removed: String,
    inserted: String,
    /// `actor.optim.lr`, for the notice when it is undone.
    what: String,
    is_typing: bool,
}

/// Why a value could not be changed in place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditProblem {
    #[error("{0}")]
    Refused(#[from] yaml::EditError),
    #[error(
        "line {line}: the value has comments of its own that one line cannot keep; edit it as text (tab)"
    )]
    HoldsComments { line: u32 },
}

/// What became of the file on disk behind our back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    Changed(String),
    Deleted,
}

#[derive(Debug)]
pub struct Document {
    path: PathBuf,
    /// As complaints name it, short.
    name: String,
    /// A run's record: may be read and copied, not changed.
    pub is_record: bool,
    text: String,
    /// What the file held when it was read or written last.
    saved: String,
    undone: Vec<Change>,
    done: Vec<Change>,
    analysis: Analysis,
    /// Grows with every change, so that what is derived elsewhere knows when it is old.
    revision: u64,
    pub outside: Option<Outside>,
    /// What a save that has not answered yet is writing.
    pub saving: Option<String>,
}

/// What follows from the text.
#[derive(Debug, Default)]
struct Analysis {
    rows: Vec<Row>,
    complaints: Vec<Complaint>,
    effective: Json,
    /// The worst that is said of a line, 1-based.
    lines: HashMap<u32, Severity>,
}

impl Document {
    pub fn new(path: &Path, name: &str, text: String, is_record: bool) -> Self {
        let mut document = Self {
            path: path.to_owned(),
            name: name.to_owned(),
            is_record,
            saved: text.clone(),
            text,
            undone: Vec::new(),
            done: Vec::new(),
            analysis: Analysis::default(),
            revision: 0,
            outside: None,
            saving: None,
        };
        document.analyse();
        document
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// What the file held when it was read or written last.
    pub fn saved(&self) -> &str {
        &self.saved
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn is_modified(&self) -> bool {
        self.text != self.saved
    }

    /// Every live key and everything the file says, blocks before what they hold.
    pub fn rows(&self) -> &[Row] {
        &self.analysis.rows
    }

    pub fn complaints(&self) -> &[Complaint] {
        &self.analysis.complaints
    }

    /// The experiment that this text means, as a tree of every live key.
    pub fn effective(&self) -> &Json {
        &self.analysis.effective
    }

    pub fn line_severity(&self, line: u32) -> Option<Severity> {
        self.analysis.lines.get(&line).copied()
    }

    /// How many complaints are of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.complaints()
            .iter()
            .filter(|complaint| complaint.severity == severity)
            .count()
    }

    /// Gives the value at `path` (names as the file writes them); adds it to its block when it is not there.
    pub fn set(&mut self, path: &[&str], value: &Json) -> Result<(), EditProblem> {
        if let Some(line) = self.comments_inside(path) {
            return Err(EditProblem::HoldsComments { line });
        }
        let text = yaml::set_value(&self.text, path, value)?;
        self.replace(text, &path.join("."), false);
        Ok(())
    }

    /// Takes a key out of the file, so that its default holds.
    pub fn remove(&mut self, path: &[&str]) -> Result<(), EditProblem> {
        let text = yaml::remove_value(&self.text, path)?;
        self.replace(text, &path.join("."), false);
        Ok(())
    }

    /// Takes a text that was edited as a whole; `is_typing` joins letters typed one after another into one change.
    pub fn replace(&mut self, text: String, what: &str, is_typing: bool) {
        let Some(change) = Change::between(&self.text, &text, what, is_typing) else {
            return;
        };
        self.undone.clear();
        let is_joined = self.done.last_mut().is_some_and(|last| last.join(&change));
        if !is_joined {
            self.done.push(change);
        }
        self.text = text;
        self.analyse();
    }

    /// Takes what lies on disk now; an undo brings back what was here.
    pub fn reload(&mut self, disk: String) {
        self.outside = None;
        self.saved.clone_from(&disk);
        self.replace(disk, "reload", false);
        self.analyse();
    }

    /// The file holds this text now.
    pub fn mark_saved(&mut self, text: String) {
        self.outside = None;
        self.saving = None;
        self.saved = text;
        // Later typing is a change of its own, so that undo stops at what was saved.
        if let Some(last) = self.done.last_mut() {
            last.is_typing = false;
        }
        self.analyse();
    }

    /// Gives the name of what was undone; None: there is nothing.
    pub fn undo(&mut self) -> Option<String> {
        let change = self.done.pop()?;
        change.revert(&mut self.text);
        let what = change.what.clone();
        self.undone.push(change);
        self.analyse();
        Some(what)
    }

    pub fn redo(&mut self) -> Option<String> {
        let change = self.undone.pop()?;
        change.apply(&mut self.text);
        let what = change.what.clone();
        self.done.push(change);
        self.analyse();
        Some(what)
    }

    /// The byte where the newest change ends, to bring the cursor there.
    pub fn changed_at(&self) -> Option<usize> {
        self.done
            .last()
            .map(|change| change.at + change.inserted.len())
    }

    /// The line of the value at `path` when replacing it would lose comments between its lines.
    fn comments_inside(&self, path: &[&str]) -> Option<u32> {
        let root = yaml::parse(&self.text).root?;
        let node: &Node = root.at(path)?;
        let written = self.text.get(node.span.start..node.span.end)?;
        let is_collection = matches!(node.style, Style::Block | Style::Flow);
        // A `#` in a quoted item is taken for a comment too: then the text view is the place as well.
        let has_comment = written.contains('\n')
            && written.lines().any(|line| {
                line.trim_start().starts_with('#') || line.contains(" #") || line.contains("\t#")
            });
        (is_collection && has_comment).then_some(node.span.line)
    }

    fn analyse(&mut self) {
        self.revision += 1;
        let loaded = experiment::from_text(&self.name, &self.text, &[]);
        let root = yaml::parse(&self.text).root;
        let saved_root = (self.text != self.saved)
            .then(|| yaml::parse(&self.saved).root)
            .flatten();
        let saved = match (&saved_root, &root) {
            (Some(saved_root), _) => rows::written(&self.saved, Some(saved_root)),
            (None, root) if self.text == self.saved => rows::written(&self.text, root.as_ref()),
            (None, _) => HashMap::new(),
        };
        let effective = loaded.effective();
        let mut lines: HashMap<u32, Severity> = HashMap::new();
        for complaint in &loaded.complaints {
            if let Some(line) = complaint.line {
                let worst = lines.entry(line).or_insert(complaint.severity);
                *worst = (*worst).min(complaint.severity);
            }
        }
        self.analysis = Analysis {
            rows: rows::build(
                &self.text,
                root.as_ref(),
                &saved,
                &effective,
                &loaded.complaints,
            ),
            complaints: loaded.complaints,
            effective,
            lines,
        };
    }
}

impl Change {
    /// The smallest splice between two texts; None when they are equal.
    fn between(from: &str, to: &str, what: &str, is_typing: bool) -> Option<Self> {
        if from == to {
            return None;
        }
        let mut start = from
            .bytes()
            .zip(to.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        while !(from.is_char_boundary(start) && to.is_char_boundary(start)) {
            start -= 1;
        }
        let most = from.len().min(to.len()) - start;
        let mut tail = from
            .bytes()
            .rev()
            .zip(to.bytes().rev())
            .take(most)
            .take_while(|(a, b)| a == b)
            .count();
        while !(from.is_char_boundary(from.len() - tail) && to.is_char_boundary(to.len() - tail)) {
            tail -= 1;
        }
        Some(Self {
            at: start,
            removed: from[start..from.len() - tail].to_owned(),
            inserted: to[start..to.len() - tail].to_owned(),
            what: what.to_owned(),
            is_typing,
        })
    }

    /// Joins what was typed (or rubbed out) right behind; false: it stays a change of its own.
    fn join(&mut self, next: &Self) -> bool {
        let is_plain = |text: &str| !text.contains('\n');
        if !(self.is_typing
            && next.is_typing
            && is_plain(&next.inserted)
            && is_plain(&next.removed))
        {
            return false;
        }
        let end = self.at + self.inserted.len();
        if next.removed.is_empty() && next.at == end {
            self.inserted.push_str(&next.inserted);
            return true;
        }
        let is_rubbed_out = next.inserted.is_empty()
            && next.at >= self.at
            && next.at + next.removed.len() == end
            && self.inserted.ends_with(&next.removed);
        if is_rubbed_out {
            self.inserted
                .truncate(self.inserted.len() - next.removed.len());
        }
        is_rubbed_out
    }

    fn apply(&self, text: &mut String) {
        text.replace_range(self.at..self.at + self.removed.len(), &self.inserted);
    }

    fn revert(&self, text: &mut String) {
        text.replace_range(self.at..self.at + self.inserted.len(), &self.removed);
    }
}
