//! Where an export goes: a file that appears whole or not at all, or standard output.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::ExportError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    StandardOutput,
    File(PathBuf),
}

/// Writes beside `path` and renames, so that no reader ever sees half of it, and a failure leaves what was there.
pub fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let named = |error: io::Error| {
        ExportError::Write(io::Error::new(
            error.kind(),
            format!("{}: {error}", path.display()),
        ))
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".partial-{}", std::process::id()));
    let aside = path.with_file_name(name);
    let mut file = File::create(&aside).map_err(named)?;
    let written = write(&mut file).and_then(|()| {
        file.flush().map_err(named)?;
        fs::rename(&aside, path).map_err(named)
    });
    if written.is_err() {
        // Nothing of it is of use.
        let _ = fs::remove_file(&aside);
    }
    written
}

/// Writes to a new file: `name.ext`, or `name-2.ext` and so on where that is taken; gives its path.
pub fn new_file(
    directory: &Path,
    name: &str,
    extension: &str,
    content: &[u8],
) -> io::Result<PathBuf> {
    for count in 1_u32.. {
        let file_name = if count == 1 {
            format!("{name}.{extension}")
        } else {
            format!("{name}-{count}.{extension}")
        };
        let path = directory.join(file_name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(content)?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    unreachable!("four billion exports of one second")
}
