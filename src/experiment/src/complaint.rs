//! Something to say about an experiment: what, how bad, and exactly where.

use std::fmt;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The experiment cannot run.
    Error,
    /// It runs, but not as someone may think.
    Warning,
    /// A choice made for the user.
    Note,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Complaint {
    pub severity: Severity,
    /// The experiment's file as the user named it.
    pub file: String,
    /// 1-based; `None` when the key stands in an override or nowhere.
    pub line: Option<u32>,
    /// 1-based, in characters.
    pub column: Option<u32>,
    /// The override at fault, as typed.
    #[serde(rename = "override")]
    pub override_text: Option<String>,
    /// The full key path, whatever shorthand was written; empty when no key is at fault.
    pub key: String,
    /// Without the place.
    pub message: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.override_text, self.line) {
            (Some(text), _) => write!(f, "override `{text}`: {}", self.message),
            (None, Some(line)) => write!(f, "{}:{line}: {}", self.file, self.message),
            (None, None) => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

/// Complaints of which at least one is an error; displays the errors, one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaints(pub Vec<Complaint>);

impl std::error::Error for Complaints {}

impl fmt::Display for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut errors = self
            .0
            .iter()
            .filter(|complaint| complaint.severity == Severity::Error);
        if let Some(first) = errors.next() {
            write!(f, "{first}")?;
        }
        errors.try_for_each(|complaint| write!(f, "\n{complaint}"))
    }
}
