//! Files by what they hold: sent once, whole or in parts, checked by their hash before anybody uses them.

use std::fs::{self, File};
use std::io::{self, BufRead, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use runlog::disk;

use super::{Folder, is_inner, lock};
use crate::hash;
use crate::pieces;
use crate::setup::libraries::libraries;
use crate::ssh::private_dir;
use crate::wire::{self, Blob, Say, Sent};

/// Room that is left on the disk when files are taken: a run must be able to write.
const SPARE_BYTES: u64 = 64 << 20;

fn is_hash(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Where a file of this content lies, or will.
pub(super) fn place(folder: &Folder, blob: &Blob) -> Result<PathBuf, String> {
    if !is_hash(&blob.hash) {
        return Err(format!("`{}` is no hash", blob.hash));
    }
    let store = folder.path().join("store").join(&blob.hash[..2]);
    private_dir(&store).map_err(|error| format!("cannot use {}: {error}", store.display()))?;
    Ok(store.join(&blob.hash))
}

fn partly_place(folder: &Folder, blob: &Blob) -> Result<PathBuf, String> {
    if !is_hash(&blob.hash) {
        return Err(format!("`{}` is no hash", blob.hash));
    }
    let partly = folder.path().join("store/partly");
    private_dir(&partly).map_err(|error| format!("cannot use {}: {error}", partly.display()))?;
    Ok(partly.join(&blob.hash))
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

/// Which files are not whole here, and how many bytes of each are.
pub(super) fn missing(folder: &Folder, blobs: &[Blob]) -> Result<Vec<(Blob, u64)>, String> {
    let mut partly = Vec::new();
    let mut needed = 0;
    for blob in blobs {
        let path = place(folder, blob)?;
        if path.is_file() && size(&path) == blob.size {
            continue;
        }
        if take_own_program(blob, &path) {
            continue;
        }
        let here = size(&partly_place(folder, blob)?).min(blob.size);
        needed += blob.size - here;
        partly.push((blob.clone(), here));
    }
    if let Some(free) = disk::free_bytes(folder.path())
        && needed > 0
        && free < needed + SPARE_BYTES
    {
        return Err(format!(
            "{} has {} MB left; {} MB are to be sent, and {} MB should stay free beside them: free some space",
            folder.path().display(),
            free >> 20,
            needed.div_ceil(1 << 20),
            SPARE_BYTES >> 20
        ));
    }
    Ok(partly)
}

/// The program that answers came by another way, and is what is wanted: it need not come again.
fn take_own_program(blob: &Blob, place: &Path) -> bool {
    let own = Path::new("/proc/self/exe");
    let is_it = size(own) == blob.size && hash::blob_of(own).is_ok_and(|found| found == *blob);
    let aside = place.with_extension("own");
    let taken = is_it
        && fs::copy(own, &aside)
            .and_then(|_| fs::set_permissions(&aside, fs::Permissions::from_mode(0o400)))
            .and_then(|()| fs::rename(&aside, place))
            .is_ok();
    if is_it && !taken {
        let _ = fs::remove_file(&aside);
    }
    taken
}

/// Takes the bytes of one file from `offset` on, in frames, and keeps it when they are what they should be.
pub(super) fn put(
    folder: &Folder,
    blob: &Blob,
    offset: u64,
    input: &mut impl BufRead,
) -> Result<Say, String> {
    let partly = partly_place(folder, blob)?;
    let told = |error: io::Error| format!("cannot write {}: {error}", partly.display());
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&partly)
        .map_err(told)?;
    if size(&partly) < offset {
        return Err(format!("only {} bytes of it are here", size(&partly)));
    }
    file.set_len(offset).map_err(told)?;
    file.seek(SeekFrom::Start(offset)).map_err(told)?;
    let mut at = offset;
    while at < blob.size {
        let Some((Say::Chunk { packed_from, .. }, body)) =
            wire::receive::<Say>(input).map_err(|error| format!("the line was cut: {error}"))?
        else {
            return Err("the file was not sent whole".to_owned());
        };
        let body = pieces::unpacked(body, packed_from).map_err(|error| error.to_string())?;
        file.write_all(&body).map_err(told)?;
        at += body.len() as u64;
    }
    file.sync_all().map_err(told)?;
    drop(file);
    let found = hash::blob_of(&partly).map_err(told)?;
    if found != *blob {
        // Begun again from nothing: which part is wrong cannot be told.
        let _ = fs::remove_file(&partly);
        return Err(format!(
            "what arrived is not what was sent ({} instead of {}); send it again",
            found.hash, blob.hash
        ));
    }
    // Linked into projects: nobody may change it.
    fs::set_permissions(&partly, fs::Permissions::from_mode(0o400)).map_err(told)?;
    fs::rename(&partly, place(folder, blob)?).map_err(told)?;
    Ok(Say::Stored { blob: blob.clone() })
}

/// Makes a stored file appear at a path: another name of the same bytes, or a copy where that cannot be.
pub(super) fn link(folder: &Folder, sent: &Sent, to: &Path) -> Result<(), String> {
    let from = place(folder, &sent.blob)?;
    let told = |error: io::Error| format!("cannot make {}: {error}", to.display());
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(told)?;
    }
    match fs::remove_file(to) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(told(error)),
    }
    if sent.is_program {
        // Programs want other permissions than the store's.
        fs::copy(&from, to).map_err(told)?;
        return fs::set_permissions(to, fs::Permissions::from_mode(0o500)).map_err(told);
    }
    match fs::hard_link(&from, to) {
        Ok(()) => Ok(()),
        Err(_) => fs::copy(&from, to).map(drop).map_err(told),
    }
}

/// Makes programs of stored files and has `current` lead to them.
pub(super) fn install(folder: &Folder, version: &str, files: &[Sent]) -> Result<Say, String> {
    if !is_inner(version) || version.contains('/') {
        return Err(format!("`{version}` is no version"));
    }
    let programs = folder.path().join("programs").join(version);
    let told = |error: io::Error| format!("cannot make {}: {error}", programs.display());
    private_dir(&programs).map_err(told)?;
    for sent in files {
        if !is_inner(&sent.path) {
            return Err(format!("`{}` leads out of the folder", sent.path));
        }
        link(folder, sent, &programs.join(&sent.path))?;
    }
    make_current(folder, version).map_err(told)?;
    Ok(Say::Installed {
        folder: programs.display().to_string(),
    })
}

/// Aside and renamed: there is always a current one.
fn make_current(folder: &Folder, version: &str) -> io::Result<()> {
    let current = folder.path().join("current");
    let aside = folder
        .path()
        .join(format!("current.{}", std::process::id()));
    let _ = fs::remove_file(&aside);
    symlink(Path::new("programs").join(version), &aside)?;
    fs::rename(&aside, &current)
}

/// Lies beside programs that were built on their machine.
pub(super) const BUILT: &str = "built";

/// Makes programs of what was built here: copies of the programs, which the next build writes anew, and of their trainer's libraries
/// other names where that can be.
pub(super) fn install_built(folder: &Folder, built: &str) -> Result<Say, String> {
    if !is_inner(built) {
        return Err(format!("`{built}` leads out of the folder"));
    }
    let from = folder.path().join(built);
    let read = |name: &str| {
        hash::blob_of(&from.join(name))
            .map_err(|error| format!("cannot read {}: {error}", from.join(name).display()))
    };
    let version = read("lathe")?.hash[..16].to_owned();
    let trainer = from.join("lathe-trainer");
    read("lathe-trainer")?;
    let libraries = libraries(&trainer).map_err(|error| error.to_string())?;
    let programs = folder.path().join("programs").join(&version);
    let told = |error: io::Error| format!("cannot make {}: {error}", programs.display());
    private_dir(&programs).map_err(told)?;
    for name in ["lathe", "lathe-trainer", "lathe-sandbox"] {
        if name == "lathe-sandbox" && !from.join(name).exists() {
            continue;
        }
        // Aside and renamed: one that runs stays whole.
        let aside = programs.join(format!("{name}.new"));
        fs::copy(from.join(name), &aside)
            .and_then(|_| fs::set_permissions(&aside, fs::Permissions::from_mode(0o500)))
            .and_then(|()| fs::rename(&aside, programs.join(name)))
            .map_err(told)?;
    }
    for library in libraries {
        let name = library.file_name().unwrap_or_default();
        let to = programs.join("lib").join(name);
        private_dir(&programs.join("lib")).map_err(told)?;
        let aside = programs.join("lib.new");
        let _ = fs::remove_file(&aside);
        // The name that the linker knows may be a link to the file.
        library
            .canonicalize()
            .and_then(|whole| {
                fs::hard_link(&whole, &aside).or_else(|_| fs::copy(&whole, &aside).map(drop))
            })
            .and_then(|()| fs::rename(&aside, &to))
            .map_err(told)?;
        // Where both are names of one file already, renaming leaves both.
        let _ = fs::remove_file(&aside);
    }
    fs::write(programs.join(BUILT), "").map_err(told)?;
    make_current(folder, &version).map_err(told)?;
    Ok(Say::Installed {
        folder: programs.display().to_string(),
    })
}

/// The files below a path of a run, with what they hold.
pub(super) fn list(run: &Path, under: &str) -> Result<Vec<(String, Blob)>, String> {
    if !is_inner(under) {
        return Err(format!("`{under}` leads out of the run"));
    }
    let mut files = Vec::new();
    walk(run, &run.join(under), &mut files)
        .map_err(|error| format!("cannot list {under}: {error}"))?;
    if files.is_empty() {
        return Err(format!("the run has no {under}"));
    }
    files.sort();
    Ok(files)
}

fn walk(run: &Path, path: &Path, files: &mut Vec<(String, Blob)>) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if found.is_file() {
        let name = path.strip_prefix(run).unwrap_or(path);
        if let Some(name) = name.to_str() {
            files.push((name.to_owned(), hash::blob_of(path)?));
        }
    } else if found.is_dir() {
        for entry in fs::read_dir(path)? {
            walk(run, &entry?.path(), files)?;
        }
    }
    Ok(())
}

/// Sends a file of a run from `offset` on.
pub(super) fn get(
    run: &Path,
    path: &str,
    offset: u64,
    packs: bool,
    output: &Mutex<io::Stdout>,
) -> Result<(), String> {
    if !is_inner(path) {
        return Err(format!("`{path}` leads out of the run"));
    }
    let told = |error: io::Error| format!("cannot read {path}: {error}");
    let mut file = File::open(run.join(path)).map_err(told)?;
    let mut left = file.metadata().map_err(told)?.len().saturating_sub(offset);
    file.seek(SeekFrom::Start(offset)).map_err(told)?;
    let mut pieces = pieces::Sender::new(packs);
    // Also of an empty file one piece.
    loop {
        let (head, body) = pieces.next(&mut file, left).map_err(told)?;
        wire::send(&mut *lock(output), &head, &body).map_err(told)?;
        left -= left.min(pieces::PIECE_BYTES as u64);
        if left == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("lathe");
        let folder = Folder::open(path.to_str().unwrap()).unwrap();
        (root, folder)
    }

    fn frames(bytes: &[u8], chunk: usize) -> Vec<u8> {
        let mut text = Vec::new();
        for part in bytes.chunks(chunk) {
            let head = Say::Chunk {
                left: 0,
                packed_from: None,
            };
            wire::send(&mut text, &head, part).unwrap();
        }
        text
    }

    #[test]
    fn a_file_that_was_cut_goes_on_where_it_was_and_is_kept_only_when_it_is_right() {
        let (_root, folder) = folder();
        let bytes: Vec<u8> = (0..100_000_u32)
            .map(|index| (index * 7 % 251) as u8)
            .collect();
        let blob = hash::blob_of_bytes(&bytes);
        let wanted = [blob.clone()];
        assert_eq!(missing(&folder, &wanted).unwrap(), [(blob.clone(), 0)]);
        let text = frames(&bytes, 10_000);
        let cut = put(&folder, &blob, 0, &mut &text[..text.len() / 2]);
        assert!(cut.is_err());
        let here = missing(&folder, &wanted).unwrap()[0].1;
        assert!(
            here > 0 && here.is_multiple_of(10_000) && here < 100_000,
            "{here}"
        );
        let rest = frames(&bytes[here as usize..], 7_000);
        put(&folder, &blob, here, &mut &rest[..]).unwrap();
        assert_eq!(missing(&folder, &wanted).unwrap(), []);
        assert_eq!(fs::read(place(&folder, &blob).unwrap()).unwrap(), bytes);

        let other = hash::blob_of_bytes(b"other");
        let wrong = frames(b"OTHER", 10);
        let error = put(&folder, &other, 0, &mut &wrong[..]).unwrap_err();
        assert!(
            error.starts_with("what arrived is not what was sent"),
            "{error}"
        );
        assert_eq!(
            missing(&folder, std::slice::from_ref(&other)).unwrap(),
            [(other, 0)]
        );
    }

    #[test]
    fn programs_are_installed_together_and_current_leads_to_the_newest() {
        let (_root, folder) = folder();
        for version in ["1", "2"] {
            let blob = hash::blob_of_bytes(version.as_bytes());
            put(&folder, &blob, 0, &mut &frames(version.as_bytes(), 9)[..]).unwrap();
            let sent = Sent {
                path: "lib/x.so".to_owned(),
                blob,
                is_program: true,
            };
            install(&folder, version, &[sent]).unwrap();
            let current = folder.path().join("current/lib/x.so");
            assert_eq!(fs::read_to_string(current).unwrap(), version);
        }
        let sent = Sent {
            path: "../../x".to_owned(),
            blob: hash::blob_of_bytes(b"1"),
            is_program: false,
        };
        assert!(install(&folder, "3", &[sent]).is_err());
        assert!(install(&folder, "../x", &[]).is_err());
    }

    #[test]
    fn a_hash_that_is_a_path_is_refused() {
        let (_root, folder) = folder();
        let blob = Blob {
            hash: "../../../../etc/passwd0000000000".to_owned(),
            size: 1,
        };
        assert!(missing(&folder, &[blob]).is_err());
    }
}
