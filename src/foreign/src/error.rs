//! What can be wrong with a foreign run as a whole. What is wrong with a part of it is a note, and the rest is read.

use std::io;
use std::path::{Path, PathBuf};

use runlog::run_dir::RunDirError;

#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "{} is no run that is known here; there are: {}; say which with --format",
        path.display(),
        crate::Format::list()
    )]
    Unknown { path: PathBuf },
    #[error("{} holds no {format} run", path.display())]
    NoRun { path: PathBuf, format: &'static str },
    #[error("cannot read {}: {source}", path.display())]
    Database {
        path: PathBuf,
        source: rusqlite::Error,
    },
    #[error("{}: {reason}", path.display())]
    Content { path: PathBuf, reason: String },
    #[error(
        "{} holds {count} columns and none called `{wanted}`: {}",
        path.display(),
        columns.join(", ")
    )]
    NoColumn {
        path: PathBuf,
        wanted: String,
        count: usize,
        columns: Vec<String>,
    },
    #[error("{} is no projection of a foreign run, or of a newer program; remove it to import again", path.display())]
    State { path: PathBuf },
    #[error(transparent)]
    RunDir(#[from] RunDirError),
}

impl ForeignError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    pub(crate) fn database(path: &Path) -> impl Fn(rusqlite::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Database {
            path: path.clone(),
            source,
        }
    }
}
