//! A checkpoint on disk: written aside, fsynced, checksummed, renamed. Half a checkpoint never has a checkpoint's name.
//!
//! ```text
//!  checkpoints/step-000120/
//!    config.json, model.safetensors, tokenizer files     the actor, as transformers and vLLM open it
//!    critic/                                             the same for the critic, with its value head
//!    actor_optimizer.safetensors, critic_optimizer.safetensors
//!    state.json                                          counters, controller, data cursor
//!    manifest.json                                       bytes and xxh3 of every file; written last
//! ```
//! Knows how to write and verify files; what is in them is its caller's business.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// Of the layout above; a checkpoint of a newer format is refused.
pub const FORMAT_VERSION: u32 = 1;

const MANIFEST: &str = "manifest.json";

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("cannot write checkpoint {path}: {source}; the last whole checkpoint stays")]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read checkpoint {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not a whole checkpoint: {problem}; choose an older one")]
    Broken { path: PathBuf, problem: String },
    #[error(
        "{path} has checkpoint format {found}, this program knows {FORMAT_VERSION}; use a newer lathe"
    )]
    Newer { path: PathBuf, found: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    format_version: u32,
    /// By path inside the checkpoint.
    files: BTreeMap<String, FileSeal>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileSeal {
    bytes: u64,
    xxh3: String,
}

/// What a finished write is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub path: PathBuf,
    pub bytes: u64,
}

/// The name of step `step`'s checkpoint inside `checkpoints/`.
pub fn directory_name(step: u64) -> String {
    format!("step-{step:06}")
}

/// Writes `checkpoints/step-…` through `fill`, which gets an empty directory to write files into.
/// A checkpoint of the same step is replaced.
pub fn write(
    checkpoints: &Path,
    step: u64,
    fill: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<Written, CheckpointError> {
    let path = checkpoints.join(directory_name(step));
    let aside = checkpoints.join(format!(".{}.partial", directory_name(step)));
    let result = (|| {
        if aside.exists() {
            fs::remove_dir_all(&aside)?;
        }
        fs::create_dir_all(&aside)?;
        fill(&aside)?;
        let bytes = seal(&aside)?;
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::rename(&aside, &path)?;
        sync_directory(checkpoints)?;
        Ok(bytes)
    })();
    match result {
        Ok(bytes) => Ok(Written { path, bytes }),
        Err(source) => {
            // Best effort: what is left aside is never read, and it may be what filled the disk.
            drop(fs::remove_dir_all(&aside));
            Err(CheckpointError::Write { path, source })
        }
    }
}

/// Reads every file again and compares it with the manifest.
pub fn verify(path: &Path) -> Result<(), CheckpointError> {
    let read = |source| CheckpointError::Read {
        path: path.to_owned(),
        source,
    };
    let broken = |problem| CheckpointError::Broken {
        path: path.to_owned(),
        problem,
    };
    let text = match fs::read_to_string(path.join(MANIFEST)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(broken(format!("it has no {MANIFEST}")));
        }
        Err(error) => return Err(read(error)),
    };
    let manifest: Manifest = serde_json::from_str(&text)
        .map_err(|error| broken(format!("its {MANIFEST} cannot be read ({error})")))?;
    if manifest.format_version > FORMAT_VERSION {
        return Err(CheckpointError::Newer {
            path: path.to_owned(),
            found: manifest.format_version,
        });
    }
    for (name, sealed) in &manifest.files {
        let found = match digest(&path.join(name)) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(broken(format!("{name} is missing")));
            }
            Err(error) => return Err(read(error)),
        };
        if found != *sealed {
            return Err(broken(format!(
                "{name} is not what was written ({} bytes, {} then; {} bytes, {} now)",
                sealed.bytes, sealed.xxh3, found.bytes, found.xxh3
            )));
        }
    }
    Ok(())
}

/// Every directory with a checkpoint's name, whole or broken, oldest step first. None where there is no such folder.
pub fn list(checkpoints: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(checkpoints) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let step = path.file_name()?.to_str()?.strip_prefix("step-")?;
            Some((step.parse().ok()?, path))
        })
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Removes the oldest checkpoints until `keep` are left; gives the paths removed.
pub fn prune(checkpoints: &Path, keep: usize) -> io::Result<Vec<PathBuf>> {
    let mut whole: Vec<PathBuf> = fs::read_dir(checkpoints)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with("step-"))
        })
        .collect();
    whole.sort();
    let surplus = whole.len().saturating_sub(keep);
    whole.truncate(surplus);
    for path in &whole {
        fs::remove_dir_all(path)?;
    }
    Ok(whole)
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

fn digest(path: &Path) -> io::Result<FileSeal> {
    let mut file = File::open(path)?;
    let mut hash = Xxh3::new();
    let mut chunk = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        hash.update(&chunk[..read]);
        bytes += read as u64;
    }
    Ok(FileSeal {
        bytes,
        xxh3: format!("{:032x}", hash.digest128()),
    })
}

/// Makes a rename or a new name survive a power cut.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_files(directory: &Path) -> io::Result<()> {
        fs::write(directory.join("config.json"), "{}")?;
        fs::create_dir(directory.join("critic"))?;
        fs::write(directory.join("critic/model.safetensors"), [7; 100])
    }

    #[test]
    fn a_written_checkpoint_verifies_and_counts_its_bytes() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let written = write(root.path(), 120, two_files).expect("written");
        assert_eq!(written.path, root.path().join("step-000120"));
        assert_eq!(written.bytes, 102);
        verify(&written.path).expect("whole");
    }

    #[test]
    fn a_write_that_fails_leaves_the_checkpoint_before_it_and_nothing_else() {
        let root = tempfile::tempdir().expect("a temporary directory");
        write(root.path(), 1, two_files).expect("written");
        let error = write(root.path(), 2, |directory| {
            two_files(directory)?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        })
        .expect_err("the disk is full");
        assert!(error.to_string().contains("step-000002"), "{error}");
        let names: Vec<_> = fs::read_dir(root.path())
            .expect("readable")
            .map(|entry| entry.expect("readable").file_name())
            .collect();
        assert_eq!(names, ["step-000001"]);
    }

    #[test]
    fn a_changed_missing_or_newer_checkpoint_is_refused_with_the_file_s_name() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let path = write(root.path(), 3, two_files).expect("written").path;
        fs::write(path.join("critic/model.safetensors"), [8; 100]).expect("writable");
        let error = verify(&path).expect_err("changed").to_string();
        assert!(error.contains("critic/model.safetensors"), "{error}");
        fs::remove_file(path.join("critic/model.safetensors")).expect("removable");
        let error = verify(&path).expect_err("missing").to_string();
        assert!(
            error.contains("critic/model.safetensors is missing"),
            "{error}"
        );
        let manifest = fs::read_to_string(path.join(MANIFEST)).expect("readable");
        fs::write(
            path.join(MANIFEST),
            manifest.replace("\"format_version\": 1", "\"format_version\": 9"),
        )
        .expect("writable");
        assert!(matches!(
            verify(&path),
            Err(CheckpointError::Newer { found: 9, .. })
        ));
    }

    #[test]
    fn pruning_keeps_the_newest() {
        let root = tempfile::tempdir().expect("a temporary directory");
        for step in [5, 1, 10] {
            write(root.path(), step, two_files).expect("written");
        }
        let removed = prune(root.path(), 2).expect("pruned");
        assert_eq!(removed, [root.path().join("step-000001")]);
        assert!(root.path().join("step-000010").exists());
    }
}
