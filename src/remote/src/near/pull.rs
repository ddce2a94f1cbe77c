//! Files of a run elsewhere, fetched on demand: only what is not here or is another, each from where it was cut, each checked.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::link::{Link, LinkError, PATIENCE};
use crate::far::is_inner;
use crate::hash;
use crate::pieces;
use crate::wire::{Ask, Blob, Say};

/// The other side hashes every file of the folder first.
const LIST_PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "{path} is not what it should be after it was fetched; it may be written there just now: try again"
    )]
    Broken { path: String },
}

/// What was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pulled {
    pub files: u64,
    pub bytes: u64,
    pub all_files: u64,
    pub all_bytes: u64,
}

/// Fetches everything below `under` of a run there into `to`, the run's directory here.
pub fn pull(
    link: &mut Link,
    run: &str,
    under: &str,
    to: &Path,
    tell: &mut dyn FnMut(&str, u64),
) -> Result<Pulled, PullError> {
    let list = Ask::List {
        run: run.to_owned(),
        under: under.to_owned(),
    };
    let files = match link.ask_within(&list, LIST_PATIENCE)? {
        Say::Listing { files } => files,
        other => return Err(link.garbled(&format!("{other:?}")).into()),
    };
    let mut pulled = Pulled::default();
    for (path, blob) in files {
        // What the other side says is not trusted with our disk.
        if !is_inner(&path) {
            return Err(link.garbled(&format!("a file named {path}")).into());
        }
        pulled.all_files += 1;
        pulled.all_bytes += blob.size;
        let place = to.join(&path);
        if fs::metadata(&place).is_ok_and(|found| found.len() == blob.size)
            && hash::blob_of(&place).is_ok_and(|here| here == blob)
        {
            continue;
        }
        let bytes = get(link, run, &path, &blob, &place, tell)?;
        pulled.files += 1;
        pulled.bytes += bytes;
    }
    Ok(pulled)
}

/// Aside, checked, and renamed into place. Gives the bytes that came.
fn get(
    link: &mut Link,
    run: &str,
    path: &str,
    blob: &Blob,
    place: &Path,
    tell: &mut dyn FnMut(&str, u64),
) -> Result<u64, PullError> {
    let mut aside = place.as_os_str().to_owned();
    aside.push(format!(".{}.part", &blob.hash));
    let aside = PathBuf::from(aside);
    let write = |source| PullError::Write {
        path: aside.clone(),
        source,
    };
    if let Some(parent) = place.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(write)?;
    }
    let mut file: File = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&aside)
        .map_err(write)?;
    let mut offset = file.metadata().map_err(write)?.len();
    if offset > blob.size {
        file.set_len(0).map_err(write)?;
        offset = 0;
    }
    tell(path, blob.size - offset);
    link.tell(&Ask::Get {
        run: run.to_owned(),
        path: path.to_owned(),
        offset,
        packs: link.packs,
    })?;
    let mut came = 0;
    loop {
        match link.next(PATIENCE)? {
            (Say::Chunk { left, packed_from }, body) => {
                let body = pieces::unpacked(body, packed_from)
                    .map_err(|error| link.garbled(&format!("{path}: {error}")))?;
                file.write_all(&body).map_err(write)?;
                came += body.len() as u64;
                if left == 0 {
                    break;
                }
            }
            (other, _) => return Err(link.garbled(&format!("{other:?}")).into()),
        }
    }
    file.sync_all().map_err(write)?;
    if !hash::blob_of(&aside).is_ok_and(|here| here == *blob) {
        let _ = fs::remove_file(&aside);
        return Err(PullError::Broken {
            path: path.to_owned(),
        });
    }
    fs::rename(&aside, place).map_err(write)?;
    Ok(came)
}
