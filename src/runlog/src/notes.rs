//! What people say of a run: a note and tags, in `notes.json` of its directory. The trainer never reads or writes it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::run_dir::{self, RunDir, RunDirError};

const FILE: &str = "notes.json";

#[derive(Debug, thiserror::Error)]
pub enum NotesError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: not a notes file: {reason}; correct or remove it", path.display())]
    Corrupt { path: PathBuf, reason: String },
    /// A full or read-only disk: the message names the file.
    #[error("the note is not saved: {0}")]
    Write(#[from] RunDirError),
    #[error("a tag is one word of letters, digits, `-`, `_`, `.` or `/`; `{tag}` is not")]
    Tag { tag: String },
}

/// Note and tags of one run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Notes {
    /// Free text, lines kept.
    #[serde(default)]
    pub note: String,
    #[serde(default)]
    tags: BTreeSet<String>,
    /// What a newer version wrote: kept when this one writes.
    #[serde(flatten)]
    other: serde_json::Map<String, serde_json::Value>,
}

impl Notes {
    /// Of a run; empty when nobody wrote any.
    pub fn read(run_dir: &RunDir) -> Result<Self, NotesError> {
        let path = Self::path(run_dir);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(NotesError::Read { path, source }),
        };
        serde_json::from_slice(&text).map_err(|error| NotesError::Corrupt {
            path,
            reason: error.to_string(),
        })
    }

    /// Replaces what is there: written aside and renamed, so that no reader sees half of it.
    pub fn write(&self, run_dir: &RunDir) -> Result<(), NotesError> {
        let mut text = serde_json::to_vec_pretty(self).expect("notes have only string keys");
        text.push(b'\n');
        Ok(run_dir::write_renamed(&Self::path(run_dir), &text)?)
    }

    /// `notes.json` of a run.
    pub fn path(run_dir: &RunDir) -> PathBuf {
        run_dir.path().join(FILE)
    }

    /// In order of the alphabet.
    pub fn tags(&self) -> &BTreeSet<String> {
        &self.tags
    }

    /// True: the tag is new.
    pub fn add_tag(&mut self, tag: &str) -> Result<bool, NotesError> {
        let is_word = !tag.is_empty()
            && tag
                .chars()
                .all(|c| c.is_alphanumeric() || "-_./".contains(c))
            && !tag.starts_with('-');
        if !is_word {
            return Err(NotesError::Tag {
                tag: tag.to_owned(),
            });
        }
        Ok(self.tags.insert(tag.to_owned()))
    }

    /// True: the tag was there.
    pub fn remove_tag(&mut self, tag: &str) -> bool {
        self.tags.remove(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::NewRun;

    fn run() -> (tempfile::TempDir, RunDir) {
        let root = tempfile::tempdir().unwrap();
        let run_dir = RunDir::create(root.path(), &NewRun::default()).unwrap();
        (root, run_dir)
    }

    #[test]
    fn notes_read_back_as_they_were_written_and_keep_what_a_newer_version_added() {
        let (_root, run_dir) = run();
        assert_eq!(Notes::read(&run_dir).unwrap(), Notes::default());
        let path = run_dir.path().join(FILE);
        fs::write(&path, r#"{"note":"old","stars":5}"#).unwrap();
        let mut notes = Notes::read(&run_dir).unwrap();
        notes.note = "lr too high\nsee run 12".to_owned();
        assert!(notes.add_tag("paper/fig-3").unwrap());
        assert!(!notes.add_tag("paper/fig-3").unwrap());
        assert!(notes.add_tag("später").unwrap());
        notes.write(&run_dir).unwrap();
        assert_eq!(Notes::read(&run_dir).unwrap(), notes);
        assert!(fs::read_to_string(&path).unwrap().contains("\"stars\": 5"));
        assert!(notes.remove_tag("später") && !notes.remove_tag("später"));
    }

    #[test]
    fn a_tag_that_a_filter_could_not_name_is_refused() {
        let mut notes = Notes::default();
        for tag in ["", "two words", "a,b", "-x", "a:b"] {
            assert!(
                notes
                    .add_tag(tag)
                    .unwrap_err()
                    .to_string()
                    .contains(&format!("`{tag}`"))
            );
        }
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_an_error_that_names_the_file() {
        let (root, run_dir) = run();
        // Not by permissions: the tests may run as root, whom they do not hold back.
        fs::remove_dir_all(run_dir.path()).unwrap();
        let error = Notes::default().write(&run_dir).unwrap_err().to_string();
        assert!(
            error.starts_with("the note is not saved: cannot write "),
            "{error}"
        );
        assert!(error.contains("notes.json"), "{error}");
        drop(root);
    }

    #[test]
    fn a_broken_notes_file_is_reported_and_not_overwritten() {
        let (_root, run_dir) = run();
        fs::write(run_dir.path().join(FILE), "{").unwrap();
        assert!(matches!(
            Notes::read(&run_dir),
            Err(NotesError::Corrupt { .. })
        ));
    }
}
