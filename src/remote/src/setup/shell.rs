//! Words with the shell of a machine that has no lathe yet.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};

use super::SetupError;
use crate::near::link::LinkError;
use crate::ssh::{SshFailure, quoted};
use crate::targets::Target;

/// `ssh` that has `sh` there read one line, whatever the login shell is. Quoted once for each.
pub(super) fn command(target: &Target, line: &str) -> Command {
    let inner = quoted(line).expect("our lines have no line breaks");
    target.ssh().command(&format!("exec sh -c {inner}"))
}

/// Runs one line of a POSIX shell there and gives what it printed.
pub(super) fn shell(target: &Target, line: &str) -> Result<String, SetupError> {
    shell_with(target, line, Stdio::null())
}

/// The same, with something to read.
pub(super) fn shell_with(target: &Target, line: &str, input: Stdio) -> Result<String, SetupError> {
    let output = command(target, line)
        .stdin(input)
        .output()
        .map_err(|error| no_ssh(&error))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let failure = SshFailure::new(&target.name, output.status.code(), &words, false);
        return Err(SetupError::Ssh(failure));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Bytes for a program to read, from memory.
pub(super) fn memory(bytes: &[u8]) -> io::Result<Stdio> {
    let mut file = File::from(memfd_create("words", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}

/// What stands behind a mark that begins a line, whatever a login prints before; empty where there is none.
pub(super) fn after<'a>(said: &'a str, mark: &str) -> &'a str {
    said.lines()
        .find_map(|line| line.strip_prefix(mark))
        .unwrap_or_default()
        .trim()
}

/// A path as one word of a line.
pub(super) fn word(target: &Target, path: &str) -> Result<String, SetupError> {
    quoted(path).ok_or_else(|| SetupError::Send {
        path: PathBuf::from(&target.folder),
        reason: "the folder's name holds a line break".to_owned(),
    })
}

pub(super) fn no_ssh(error: &io::Error) -> SetupError {
    SetupError::Link(LinkError::NoSsh {
        reason: error.to_string(),
    })
}

pub(super) fn size_in(said: &str) -> u64 {
    said.lines()
        .rev()
        .find_map(|line| line.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_the_last_number_whatever_a_login_prints_before() {
        assert_eq!(size_in("Welcome 7\n  42\n"), 42);
        assert_eq!(size_in("nothing"), 0);
    }
}
