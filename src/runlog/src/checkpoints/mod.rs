//! Checkpoints on disk: written aside, fsynced, checksummed, renamed. Half a checkpoint never has a checkpoint's name.
//!
//! ```text
//!  checkpoints/step-000120/
//!    config.json, model.safetensors, tokenizer files     the actor, as transformers and vLLM open it
//!    critic/                                             the same for the critic, with its value head
//!    actor_optimizer.safetensors, critic_optimizer.safetensors
//!    state.json, logprobs.json                           counters, controller, data cursor; log-probs to check a load by
//!    manifest.json                                       bytes and xxh3 of every file; written last
//! ```
//! Knows how to write, list, verify and remove them, and which may go; what is in them is the trainer's business.

mod keep;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

pub use keep::{Judged, Lookback, Rules, Why, judge, left_behind, score, value};
pub use write::{Written, adopt, remove, tidy, write};

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

/// A directory with a checkpoint's name, whole or broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Steps trained in it.
    pub step: u64,
    pub path: PathBuf,
}

/// Every directory of `checkpoints/` with a checkpoint's name, lowest step first. None where there is no such folder.
pub fn list(checkpoints: &Path) -> io::Result<Vec<Found>> {
    let entries = match fs::read_dir(checkpoints) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found: Vec<Found> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let step = path.file_name()?.to_str()?.strip_prefix("step-")?;
            Some(Found {
                step: step.parse().ok()?,
                path,
            })
        })
        .collect();
    found.sort();
    Ok(found)
}

/// Reads every file again and compares it with the manifest. Gives the bytes of all.
pub fn verify(path: &Path) -> Result<u64, CheckpointError> {
    compare(path, digest)
}

/// Compares the length of every file with the manifest, which costs no reading: a checkpoint cut short is found, a changed
/// byte is not. Gives the bytes of all.
pub fn measure(path: &Path) -> Result<u64, CheckpointError> {
    let manifest = manifest(path)?;
    compare(path, |file| {
        let name = file.strip_prefix(path).unwrap_or(file);
        let sealed = manifest.files.get(&*name.to_string_lossy());
        Ok(FileSeal {
            bytes: fs::metadata(file)?.len(),
            xxh3: sealed.map_or_else(String::new, |sealed| sealed.xxh3.clone()),
        })
    })
}

fn compare(
    path: &Path,
    look: impl Fn(&Path) -> io::Result<FileSeal>,
) -> Result<u64, CheckpointError> {
    let broken = |problem| CheckpointError::Broken {
        path: path.to_owned(),
        problem,
    };
    let mut bytes = 0;
    for (name, sealed) in &manifest(path)?.files {
        let found = match look(&path.join(name)) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(broken(format!("{name} is missing")));
            }
            Err(source) => {
                return Err(CheckpointError::Read {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        if found != *sealed {
            return Err(broken(format!(
                "{name} is not what was written ({} bytes, {} then; {} bytes, {} now)",
                sealed.bytes, sealed.xxh3, found.bytes, found.xxh3
            )));
        }
        bytes += found.bytes;
    }
    Ok(bytes)
}

fn manifest(path: &Path) -> Result<Manifest, CheckpointError> {
    /// Read first: a newer format may have other fields than ours.
    #[derive(Deserialize)]
    struct Version {
        format_version: u32,
    }
    let broken = |problem| CheckpointError::Broken {
        path: path.to_owned(),
        problem,
    };
    let text = match fs::read_to_string(path.join(MANIFEST)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(broken(format!("it has no {MANIFEST}")));
        }
        Err(source) => {
            return Err(CheckpointError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let unreadable = |error| broken(format!("its {MANIFEST} cannot be read ({error})"));
    let version: Version = serde_json::from_str(&text).map_err(unreadable)?;
    if version.format_version > FORMAT_VERSION {
        return Err(CheckpointError::Newer {
            path: path.to_owned(),
            found: version.format_version,
        });
    }
    serde_json::from_str(&text).map_err(unreadable)
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
