//! What touches the disk, for jobs: the list of experiments, reading, and saving so that no crash and no other writer loses
//! anything.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::document::Outside;

/// An experiment that can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub path: PathBuf,
    /// Its first comment.
    pub about: String,
}

/// The project's experiments, by name.
pub fn list(folder: &Path) -> Result<Vec<Found>, String> {
    let problem = |error: io::Error| format!("cannot list {}: {error}", folder.display());
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(problem(error)),
    };
    let mut found: Vec<Found> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| {
            let is_hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            let is_yaml = path
                .extension()
                .is_some_and(|extension| extension == "yaml" || extension == "yml");
            is_yaml && !is_hidden && path.is_file()
        })
        .map(|path| Found {
            about: about(&path),
            path,
        })
        .collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn about(path: &Path) -> String {
    fs::read_to_string(path)
        .ok()
        .and_then(|text| {
            let first = text.lines().find(|line| !line.trim().is_empty())?;
            Some(first.trim().strip_prefix('#')?.trim().to_owned())
        })
        .unwrap_or_default()
}

/// A file's text, or why there is none to edit.
pub fn read(path: &Path) -> Result<String, String> {
    let bytes =
        fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    String::from_utf8(bytes).map_err(|error| {
        format!(
            "{} is not UTF-8 text: byte {} cannot be read; save it as UTF-8",
            path.display(),
            error.utf8_error().valid_up_to() + 1
        )
    })
}

/// How a save ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Saved {
    Done,
    /// Somebody else wrote the file since it was read; nothing was written.
    Conflict(Outside),
    /// Nothing was written; the old file is as it was.
    Failed(String),
}

/// Replaces a file in one step: written aside, fsynced, renamed over it, with its mode. `expected`: what it must hold now,
/// else it is left alone; `None` writes whatever is there.
pub fn save(path: &Path, expected: Option<&str>, text: &str) -> Saved {
    // A link stays a link: the file it leads to is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(expected) = expected {
        match fs::read(&target) {
            Ok(bytes) if bytes == expected.as_bytes() => {}
            Ok(bytes) => {
                let disk = String::from_utf8_lossy(&bytes).into_owned();
                return Saved::Conflict(Outside::Changed(disk));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Saved::Conflict(Outside::Deleted);
            }
            Err(error) => return Saved::Failed(format!("cannot read {}: {error}", path.display())),
        }
    }
    match replace(&target, text) {
        Ok(()) => Saved::Done,
        Err(error) => Saved::Failed(format!("cannot write {}: {error}", path.display())),
    }
}

/// Writes a file that must not exist yet.
pub fn save_new(path: &Path, text: &str) -> Result<(), String> {
    let problem = |error: io::Error| format!("cannot write {}: {error}", path.display());
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("{} exists already; choose another name", path.display())
            }
            _ => problem(error),
        })?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(problem)
}

fn replace(target: &Path, text: &str) -> io::Result<()> {
    let folder = target
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let name = target
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?
        .to_string_lossy();
    let aside = folder.join(format!(".{name}.{}.tmp", std::process::id()));
    let written = (|| {
        let mut file = File::create(&aside)?;
        if let Ok(metadata) = fs::metadata(target) {
            file.set_permissions(metadata.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, target)
    })();
    if written.is_err() {
        // It may not have been made at all.
        let _ = fs::remove_file(&aside);
        return written;
    }
    // The rename itself; some file systems cannot sync a folder, and the file is whole either way.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_save_keeps_the_mode_and_the_link_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link.yaml");
        std::os::unix::fs::symlink("a.yaml", &link).unwrap();
        assert_eq!(save(&link, Some("old"), "new"), Saved::Done);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(names(folder.path()), ["a.yaml", "link.yaml"]);
    }

    #[test]
    fn a_file_that_somebody_else_wrote_or_deleted_is_not_overwritten_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "theirs").unwrap();
        let conflict = Saved::Conflict(Outside::Changed("theirs".to_owned()));
        assert_eq!(save(&path, Some("old"), "mine"), conflict);
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        fs::remove_file(&path).unwrap();
        assert_eq!(
            save(&path, Some("old"), "mine"),
            Saved::Conflict(Outside::Deleted)
        );
        assert!(!path.exists());
        assert_eq!(save(&path, None, "mine"), Saved::Done);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_said_and_the_old_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        // A name that leaves no room for the file aside fails for every user, also for root.
        let path = folder.path().join(format!("{}.yaml", "x".repeat(250)));
        fs::write(&path, "old").unwrap();
        let Saved::Failed(reason) = save(&path, Some("old"), "new") else {
            panic!("it was written")
        };
        assert!(reason.starts_with("cannot write "), "{reason}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    }

    #[test]
    fn experiments_are_listed_by_name_with_their_first_comment() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b.yaml"), "\n# About b.\ndata: {}\n").unwrap();
        fs::write(folder.path().join("a.yml"), "data: {}\n").unwrap();
        fs::write(folder.path().join(".hidden.yaml"), "").unwrap();
        fs::write(folder.path().join("README.md"), "").unwrap();
        let found = list(folder.path()).unwrap();
        let told: Vec<(&str, &str)> = found
            .iter()
            .map(|found| {
                let name = found.path.file_name().unwrap().to_str().unwrap();
                (name, found.about.as_str())
            })
            .collect();
        assert_eq!(told, [("a.yml", ""), ("b.yaml", "About b.")]);
        assert_eq!(list(&folder.path().join("none")), Ok(Vec::new()));
    }
}
