//! Starting a run elsewhere: what it needs that is not there yet, then the run itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::link::{Link, LinkError};
use crate::hash;
use crate::pieces;
use crate::scheduler::Scheduler;
use crate::wire::{Again, Ask, Begin, Blob, NotResumed, Say, Sent};

/// A large file is hashed and synced there before it is acknowledged.
const STORE_PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// Files to be sent, each with the name it is to have there.
#[derive(Debug, Clone, Default)]
pub struct Shipment {
    files: BTreeMap<String, (Sent, PathBuf)>,
}

/// What was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shipped {
    pub files: u64,
    pub bytes: u64,
    /// Of all files, those that were there already too.
    pub all_files: u64,
    pub all_bytes: u64,
}

impl Shipment {
    /// Adds a file, or every file of a folder. `name`: below the folder there.
    pub fn add(&mut self, name: &str, from: &Path) -> Result<(), ShipError> {
        let read = |source| ShipError::Read {
            path: from.to_owned(),
            source,
        };
        let found = std::fs::metadata(from).map_err(read)?;
        if found.is_dir() {
            let mut entries: Vec<_> = std::fs::read_dir(from)
                .map_err(read)?
                .collect::<Result<_, _>>()
                .map_err(read)?;
            entries.sort_by_key(std::fs::DirEntry::file_name);
            for entry in entries {
                let Ok(inner) = entry.file_name().into_string() else {
                    continue;
                };
                // Caches and repositories of tools: no experiment names them.
                if inner.starts_with('.') {
                    continue;
                }
                self.add(&format!("{name}/{inner}"), &entry.path())?;
            }
            return Ok(());
        }
        self.add_as(name, from, false)
    }

    /// Adds one file; `is_program`: it may be started there, also where it may not be here.
    pub fn add_as(&mut self, name: &str, from: &Path, is_program: bool) -> Result<(), ShipError> {
        use std::os::unix::fs::PermissionsExt;
        let found = std::fs::metadata(from).map_err(|source| ShipError::Read {
            path: from.to_owned(),
            source,
        })?;
        let is_executable = found.permissions().mode() & 0o111 != 0;
        self.put_in(name, from, is_program || is_executable)
    }

    /// Adds a library: often marked as a program, and never started. As no program it is there only once, however many programs
    /// use it.
    pub fn add_library(&mut self, name: &str, from: &Path) -> Result<(), ShipError> {
        self.put_in(name, from, false)
    }

    fn put_in(&mut self, name: &str, from: &Path, is_program: bool) -> Result<(), ShipError> {
        let blob = hash::blob_of(from).map_err(|source| ShipError::Read {
            path: from.to_owned(),
            source,
        })?;
        let sent = Sent {
            path: name.to_owned(),
            blob,
            is_program,
        };
        self.files.insert(name.to_owned(), (sent, from.to_owned()));
        Ok(())
    }

    pub fn files(&self) -> Vec<Sent> {
        self.files.values().map(|(sent, _)| sent.clone()).collect()
    }

    /// Sends what is not there, each file from where an earlier try was cut. `tell` hears of each file before it goes: its name
    /// and the bytes that go.
    pub fn send(
        &self,
        link: &mut Link,
        tell: &mut dyn FnMut(&str, u64),
    ) -> Result<Shipped, ShipError> {
        let mut by_blob: BTreeMap<&Blob, (&str, &Path)> = BTreeMap::new();
        for (name, (sent, from)) in &self.files {
            by_blob.insert(&sent.blob, (name, from));
        }
        let mut shipped = Shipped {
            all_files: self.files.len() as u64,
            all_bytes: by_blob.keys().map(|blob| blob.size).sum(),
            ..Shipped::default()
        };
        let blobs = by_blob.keys().map(|blob| (*blob).clone()).collect();
        let partly = match link.ask(&Ask::Missing { blobs })? {
            Say::Missing { partly } => partly,
            other => return Err(link.garbled(&format!("{other:?}")).into()),
        };
        for (blob, offset) in partly {
            let Some((name, from)) = by_blob.get(&blob) else {
                return Err(link.garbled("it wants a file that was not named").into());
            };
            tell(name, blob.size - offset);
            put(link, &blob, offset, from)?;
            shipped.files += 1;
            shipped.bytes += blob.size - offset;
        }
        Ok(shipped)
    }
}

fn put(link: &mut Link, blob: &Blob, offset: u64, from: &Path) -> Result<(), ShipError> {
    let read = |source| ShipError::Read {
        path: from.to_owned(),
        source,
    };
    let mut file = File::open(from).map_err(read)?;
    file.seek(SeekFrom::Start(offset)).map_err(read)?;
    let request = Ask::Put {
        blob: blob.clone(),
        offset,
    };
    link.tell(&request)?;
    let mut left = blob.size - offset;
    let mut pieces = pieces::Sender::new(link.packs);
    while left > 0 {
        let (head, body) = pieces.next(&mut file, left).map_err(read)?;
        link.send(&head, &body)?;
        left -= left.min(pieces::PIECE_BYTES as u64);
    }
    match link.next(STORE_PATIENCE)? {
        (Say::Stored { .. }, _) => Ok(()),
        (other, _) => Err(link.garbled(&format!("{other:?}")).into()),
    }
}

/// Starts a run whose files are there. Gives its directory's path there.
pub fn begin(link: &mut Link, begin: Begin) -> Result<String, LinkError> {
    match link.ask(&Ask::Begin(Box::new(begin)))? {
        Say::Begun { path, .. } => Ok(path),
        other => Err(link.garbled(&format!("{other:?}"))),
    }
}

/// Has a scheduler start runs whose files are there. Gives the directory of each there.
pub fn submit(
    link: &mut Link,
    begins: Vec<Begin>,
    scheduler: Scheduler,
) -> Result<Vec<String>, LinkError> {
    let count = begins.len();
    let scheduler = Box::new(scheduler);
    match link.ask_within(&Ask::Submit { begins, scheduler }, STORE_PATIENCE)? {
        Say::Submitted { paths, .. } if paths.len() == count => Ok(paths),
        other => Err(link.garbled(&format!("{other:?}"))),
    }
}

/// Why a run there does not go on.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{host}: {reason}")]
    Refused {
        host: String,
        why: NotResumed,
        reason: String,
    },
}

/// Has a run there that is over go on in its directory.
pub fn resume(link: &mut Link, again: Again) -> Result<(), ResumeError> {
    match link.ask_within(&Ask::Resume(Box::new(again)), STORE_PATIENCE)? {
        Say::Resumed { .. } => Ok(()),
        Say::NotResumed { why, reason } => Err(ResumeError::Refused {
            host: link.host().to_owned(),
            why,
            reason,
        }),
        other => Err(link.garbled(&format!("{other:?}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_library_is_no_program_whatever_its_file_says() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("libtorch_cpu.so");
        std::fs::write(&path, "torch").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut shipment = Shipment::default();
        shipment.add_library("lib/a", &path).unwrap();
        shipment.add_as("b", &path, false).unwrap();
        let are: Vec<bool> = shipment
            .files()
            .iter()
            .map(|sent| sent.is_program)
            .collect();
        assert_eq!(are, [true, false], "b, then lib/a, by their names");
    }
}
