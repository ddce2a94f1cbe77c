//! Something wrong in an environment, and where.

use std::fmt;

/// A step on the way from the top of the file to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    Key(String),
    Index(usize),
}

/// Says what, in lowercase; [`Fault::path`] says where, so that a caller who has the text can name a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    pub path: Vec<Segment>,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.path.iter().enumerate() {
            match segment {
                Segment::Key(key) if index == 0 => write!(f, "{key}")?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(at) => write!(f, "[{at}]")?,
            }
        }
        let colon = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{colon}{}", self.message)
    }
}

impl Fault {
    pub(super) fn at(path: &[Segment], message: impl Into<String>) -> Self {
        Self {
            path: path.to_vec(),
            message: message.into(),
        }
    }

    /// What serde says, with the names of Rust's types in words.
    pub(super) fn of_serde(
        prefix: &[Segment],
        error: &serde_path_to_error::Error<serde_json::Error>,
    ) -> Self {
        use serde_path_to_error::Segment as Theirs;
        let mut path = prefix.to_vec();
        path.extend(error.path().iter().filter_map(|segment| match segment {
            Theirs::Seq { index } => Some(Segment::Index(*index)),
            Theirs::Map { key } => Some(Segment::Key(key.clone())),
            Theirs::Enum { variant } => Some(Segment::Key(variant.clone())),
            Theirs::Unknown => None,
        }));
        let mut message = error.inner().to_string();
        for (theirs, ours) in [
            ("f64", "a number"),
            ("u64", "a whole number from 0 on"),
            ("u32", "a whole number from 0 on"),
            ("usize", "a whole number from 0 on"),
            ("invalid type: ", "expected another kind of value, got "),
            ("invalid value: ", "got "),
            ("struct variant ", "a mapping, as for "),
            ("struct ", "a mapping, as for "),
            ("newtype variant ", ""),
            ("internally tagged enum ", ""),
            ("unknown variant", "unknown name"),
            ("enum ", ""),
        ] {
            message = message.replace(theirs, ours);
        }
        Self { path, message }
    }
}
