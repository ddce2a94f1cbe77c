//! Whether programs of this machine run on another.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::Command;

use super::shell::{after, shell};
use super::{Programs, SetupError};
use crate::targets::Target;

/// Asks what kind of machine it is, and holds it against what the programs need.
pub(super) fn fits(target: &Target, programs: &Programs) -> Result<(), SetupError> {
    let said = shell(
        target,
        "echo lathe-uname $(uname -s) $(uname -m); echo lathe-libc $(getconf GNU_LIBC_VERSION 2>/dev/null)",
    )?;
    let theirs = after(&said, "lathe-uname").to_owned();
    let ours = format!("{} {}", uname("-s"), uname("-m"));
    if theirs != ours {
        return Err(SetupError::OtherMachine {
            host: target.name.clone(),
            theirs,
            ours,
        });
    }
    let theirs = after(&said, "lathe-libc");
    let theirs = theirs.strip_prefix("glibc ").unwrap_or(theirs);
    let all = [Some(&programs.lathe), programs.trainer.as_ref()];
    for path in all.into_iter().flatten() {
        let needed = needed_glibc(path).map_err(|error| SetupError::Send {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        if let Some(needed) = needed
            && version_of(theirs).is_none_or(|theirs| theirs < needed)
        {
            return Err(SetupError::OldLibc {
                host: target.name.clone(),
                theirs: if theirs.is_empty() {
                    "none (another libc?)".to_owned()
                } else {
                    theirs.to_owned()
                },
                needed: format!("{}.{}", needed.0, needed.1),
            });
        }
    }
    Ok(())
}

fn uname(option: &str) -> String {
    Command::new("uname")
        .arg(option)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

pub(super) fn version_of(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The newest version of glibc that a program names; None: it needs none.
fn needed_glibc(path: &Path) -> io::Result<Option<(u32, u32)>> {
    const MARK: &[u8] = b"GLIBC_";
    let mut file = File::open(path)?;
    let mut newest = None;
    let mut window: Vec<u8> = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            return Ok(newest);
        }
        window.extend_from_slice(&chunk[..count]);
        for at in 0..window.len().saturating_sub(MARK.len() + 8) {
            if window[at] == b'G' && window[at..].starts_with(MARK) {
                let digits: Vec<u8> = window[at + MARK.len()..]
                    .iter()
                    .copied()
                    .take(8)
                    .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
                    .collect();
                newest = newest.max(version_of(&String::from_utf8_lossy(&digits)));
            }
        }
        // A name may lie across the end.
        let keep = window.len().saturating_sub(MARK.len() + 8);
        window.drain(..keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_that_a_program_names_is_found_also_across_chunks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut bytes = vec![0; (1 << 20) - 3];
        bytes.extend(b"GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0");
        bytes.extend([0; 64]);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(needed_glibc(&path).unwrap(), Some((2, 34)));
        std::fs::write(&path, b"static").unwrap();
        assert_eq!(needed_glibc(&path).unwrap(), None);
        assert!(version_of("2.36") > version_of("2.4"));
        assert_eq!(version_of("musl"), None);
    }
}
