//! The one way a checkpoint comes into being, and the one way it goes: both leave a whole one or none, whenever they are cut off.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{CheckpointError, FORMAT_VERSION, MANIFEST, Manifest, digest, manifest};
use crate::run_dir::step_name;

/// What a finished write is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub path: PathBuf,
    pub bytes: u64,
}

/// Names that are no checkpoint: being written, waiting to be replaced, being removed.
const PARTIAL: &str = ".partial";
const REPLACED: &str = ".replaced";
const REMOVED: &str = ".removed";

fn aside(checkpoints: &Path, step: u64, what: &str) -> PathBuf {
    checkpoints.join(format!(".{}{what}", step_name(step)))
}

/// Writes `checkpoints/step-…` through `fill`, which gets an empty directory to write files into. `ready` is asked once all is
/// on disk and before the directory gets its name. A checkpoint of the same step is replaced.
pub fn write(
    checkpoints: &Path,
    step: u64,
    fill: impl FnOnce(&Path) -> io::Result<()>,
    ready: impl FnOnce() -> io::Result<()>,
) -> Result<Written, CheckpointError> {
    let path = checkpoints.join(step_name(step));
    let partial = aside(checkpoints, step, PARTIAL);
    let result = (|| {
        clear(&partial)?;
        fs::create_dir_all(&partial)?;
        fill(&partial)?;
        let bytes = seal(&partial)?;
        ready()?;
        let replaced = aside(checkpoints, step, REPLACED);
        clear(&replaced)?;
        match fs::rename(&path, &replaced) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::rename(&partial, &path)?;
        sync_directory(checkpoints)?;
        clear(&replaced)?;
        Ok(bytes)
    })();
    match result {
        Ok(bytes) => Ok(Written { path, bytes }),
        Err(source) => {
            // Best effort: what is left aside is never read, and it may be what filled the disk.
            drop(clear(&partial));
            Err(CheckpointError::Write { path, source })
        }
    }
}

/// Gives `checkpoints/` the checkpoint at `source`, of another run, as its own of `step`: by hard links where it lies on the same
/// disk, which costs nothing and outlives the source, else by copying. Gives its path.
pub fn adopt(source: &Path, checkpoints: &Path, step: u64) -> Result<PathBuf, CheckpointError> {
    let files = manifest(source)?.files;
    let path = checkpoints.join(step_name(step));
    let partial = aside(checkpoints, step, PARTIAL);
    let adopted = (|| {
        clear(&partial)?;
        let names = files.keys().map(String::as_str).chain([MANIFEST]);
        for name in names {
            let (from, to) = (source.join(name), partial.join(name));
            fs::create_dir_all(to.parent().unwrap_or(&partial))?;
            // Checkpoints are never changed in place, so nobody minds a second name for their files.
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to)?;
                File::open(&to)?.sync_all()?;
            }
        }
        sync_directory(&partial)?;
        fs::rename(&partial, &path)?;
        sync_directory(checkpoints)
    })();
    match adopted {
        Ok(()) => Ok(path),
        Err(source) => {
            drop(clear(&partial));
            Err(CheckpointError::Write { path, source })
        }
    }
}

/// Removes a checkpoint. One that is cut off in between has no checkpoint's name any more. None that is gone already is an error.
pub fn remove(path: &Path) -> io::Result<()> {
    let (Some(checkpoints), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let removed = checkpoints.join(format!(".{}{REMOVED}", name.to_string_lossy()));
    clear(&removed)?;
    match fs::rename(path, &removed) {
        Ok(()) => clear(&removed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Clears away what writers and removers that were killed left behind; a checkpoint that was to be replaced and was not comes
/// back. To be called by whoever holds the run, before it writes.
pub fn tidy(checkpoints: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(checkpoints) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let Some(name) = name.strip_prefix(".step-") else {
            continue;
        };
        if name.ends_with(PARTIAL) || name.ends_with(REMOVED) {
            clear(&path)?;
        } else if let Some(step) = name.strip_suffix(REPLACED) {
            let whole = checkpoints.join(format!("step-{step}"));
            if whole.exists() {
                clear(&path)?;
            } else {
                fs::rename(&path, whole)?;
            }
        }
    }
    Ok(())
}

fn clear(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Fsyncs every file, writes the manifest, and gives the bytes of all.
fn seal(directory: &Path) -> io::Result<u64> {
    let mut manifest = Manifest {
        format_version: FORMAT_VERSION,
        files: BTreeMap::new(),
    };
    let mut pending = vec![directory.to_owned()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                pending.push(path);
                continue;
            }
            File::open(&path)?.sync_all()?;
            let name = path
                .strip_prefix(directory)
                .expect("walked from the directory")
                .to_string_lossy()
                .into_owned();
            manifest.files.insert(name, digest(&path)?);
        }
        sync_directory(&folder)?;
    }
    let bytes = manifest.files.values().map(|file| file.bytes).sum();
    let mut file = File::create(directory.join(MANIFEST))?;
    file.write_all(&serde_json::to_vec_pretty(&manifest)?)?;
    file.sync_all()?;
    sync_directory(directory)?;
    Ok(bytes)
}

/// Makes a rename or a new name survive a power cut.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
