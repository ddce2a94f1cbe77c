//! What keeps a run that lives from being written down: told by whoever shows the run, since its own log cannot tell it.

use std::path::Path;

use super::liveness::Liveness;
use crate::disk;
use crate::run_dir::{Mirror, Origin, RunDir, host_name};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In two or three words.
    pub mark: &'static str,
    /// What happens, and what to do.
    pub words: String,
}

/// Of a living run whose disk is full: of one of this machine by a look at the disk, of a copy as the other machine said. `mirror`: how
/// the copy stands.
pub fn trouble(run_dir: &RunDir, liveness: &Liveness, mirror: Option<&Mirror>) -> Option<Trouble> {
    if *liveness != Liveness::Running {
        return None;
    }
    match run_dir.origin() {
        Some(Origin::Target { .. }) => Some(Trouble {
            mark: "disk there full",
            words: mirror?
                .warning
                .clone()
                .filter(|words| words.starts_with(Mirror::DISK_THERE))?,
        }),
        Some(_) => None,
        None if run_dir.info().host != host_name() => None,
        None => {
            let words = disk_words(run_dir.path(), disk::free_bytes(run_dir.path()))?;
            let mark = "disk full";
            Some(Trouble { mark, words })
        }
    }
}

/// What a trainer's full disk means, which its own alarm cannot tell then; None: there is room. `free_bytes`: what is left of it.
pub fn disk_words(run: &Path, free_bytes: Option<u64>) -> Option<String> {
    let free = free_bytes.filter(|free| *free < disk::LEAST_FREE_BYTES)?;
    Some(format!(
        "the disk of {} is full ({} KB left): training goes on, but its events wait in memory and checkpoints fail; free some space",
        run.display(),
        free >> 10
    ))
}
