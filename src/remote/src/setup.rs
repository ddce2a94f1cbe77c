//! `lathe target setup HOST`: puts this build of lathe there, with its trainer and libtorch, if the machines fit together.
//!
//! lathe itself goes by the shell, since nothing of ours is there yet; it then takes in everything else, file by file, by hash,
//! each from where an earlier try was cut.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::hash;
use crate::near::launch::{ShipError, Shipment, Shipped};
use crate::near::link::{Link, LinkError};
use crate::ssh::{SshFailure, quoted};
use crate::targets::Target;
use crate::wire::{Ask, Say};

#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Ssh(SshFailure),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Ship(#[from] ShipError),
    /// The programs built here cannot run there.
    #[error(
        "{host} is {theirs}, and these programs are built for {ours}: build lathe there (git clone, ./dev build), and name its \
         program as `program` in targets.yaml"
    )]
    OtherMachine {
        host: String,
        theirs: String,
        ours: String,
    },
    #[error(
        "{host} has glibc {theirs}, and these programs need {needed}: build lathe there (git clone, ./dev build), or here on a \
         machine as old, and name the program as `program` in targets.yaml"
    )]
    OldLibc {
        host: String,
        theirs: String,
        needed: String,
    },
    /// Nothing is sent from a machine to itself.
    #[error(
        "{target} uses the programs of this machine, which its nodes must see: put them into a shared folder, or name those there as \
         `program` and `trainer` in targets.yaml"
    )]
    Here { target: String },
    #[error("cannot send {}: {reason}", path.display())]
    Send { path: PathBuf, reason: String },
    #[error("cannot find the libraries of {}: {reason}", path.display())]
    Libraries { path: PathBuf, reason: String },
}

/// What is put there.
#[derive(Debug, Clone)]
pub struct Programs {
    pub lathe: PathBuf,
    /// None: only lathe.
    pub trainer: Option<PathBuf>,
    /// Beside lathe, where it is there.
    pub sandbox: Option<PathBuf>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The folder of the programs there.
    pub folder: String,
    pub shipped: Shipped,
}

/// Sets a target up. `tell` hears what goes, and how many bytes of it.
pub fn set_up(
    target: &Target,
    programs: &Programs,
    tell: &mut dyn FnMut(&str, u64),
) -> Result<Done, SetupError> {
    if target.is_here() {
        let target = target.name.clone();
        return Err(SetupError::Here { target });
    }
    fits(target, programs)?;
    let lathe = hash::blob_of(&programs.lathe).map_err(|error| SetupError::Send {
        path: programs.lathe.clone(),
        reason: error.to_string(),
    })?;
    let version = lathe.hash[..16].to_owned();
    // With a program of the user's own there is somebody to take the rest in already.
    let bootstrap = format!("{}/programs/{version}/lathe", target.folder);
    let mut there = target.clone();
    if target.program.is_none() {
        there.program = Some(bootstrap.clone());
        if !is_there(target, &bootstrap, lathe.size)? {
            send_lathe(target, &programs.lathe, &bootstrap, lathe.size, tell)?;
        }
    }
    let mut link = Link::open(&there)?;
    let mut shipment = Shipment::default();
    shipment.add_as("lathe", &programs.lathe, true)?;
    if let Some(trainer) = &programs.trainer {
        shipment.add_as("lathe-trainer", trainer, true)?;
        for library in libraries(trainer)? {
            let name = library.file_name().unwrap_or_default().to_string_lossy();
            shipment.add_as(&format!("lib/{name}"), &library, false)?;
        }
    }
    if let Some(sandbox) = &programs.sandbox {
        shipment.add_as("lathe-sandbox", sandbox, true)?;
    }
    let shipped = shipment.send(&mut link, tell)?;
    let install = Ask::Install {
        version,
        files: shipment.files(),
    };
    match link.ask(&install)? {
        Say::Installed { folder } => Ok(Done { folder, shipped }),
        other => Err(link.garbled(&format!("{other:?}")).into()),
    }
}

/// Runs one line of a POSIX shell there and gives what it printed.
fn shell(target: &Target, line: &str) -> Result<String, SetupError> {
    // Whatever the login shell is, `sh` reads the line; quoted once for each.
    let inner = quoted(line).expect("our lines have no line breaks");
    let mut ssh = target.ssh().command(&format!("exec sh -c {inner}"));
    let output = ssh
        .stdin(Stdio::null())
        .output()
        .map_err(|error| no_ssh(&error))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let failure = SshFailure::new(&target.name, output.status.code(), &words, false);
        return Err(SetupError::Ssh(failure));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn no_ssh(error: &io::Error) -> SetupError {
    SetupError::Link(LinkError::NoSsh {
        reason: error.to_string(),
    })
}

/// Asks what kind of machine it is, and holds it against what the programs need.
fn fits(target: &Target, programs: &Programs) -> Result<(), SetupError> {
    let said = shell(
        target,
        "echo lathe-uname $(uname -s) $(uname -m); echo lathe-libc $(getconf GNU_LIBC_VERSION 2>/dev/null)",
    )?;
    let after = |mark: &str| {
        said.lines()
            .find_map(|line| line.strip_prefix(mark))
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let theirs = after("lathe-uname");
    let ours = format!("{} {}", uname("-s"), uname("-m"));
    if theirs != ours {
        return Err(SetupError::OtherMachine {
            host: target.name.clone(),
            theirs,
            ours,
        });
    }
    let theirs = after("lathe-libc");
    let theirs = theirs.strip_prefix("glibc ").unwrap_or(&theirs);
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

fn version_of(text: &str) -> Option<(u32, u32)> {
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

/// Whether the whole program lies there. That it is the right one its own answer says.
fn is_there(target: &Target, path: &str, size: u64) -> Result<bool, SetupError> {
    let path = quoted(path).ok_or_else(|| bad_folder(target))?;
    let said = shell(
        target,
        &format!("test -x {path} && wc -c < {path} || echo 0"),
    )?;
    Ok(size_in(&said) == size)
}

fn size_in(said: &str) -> u64 {
    said.lines()
        .rev()
        .find_map(|line| line.trim().parse().ok())
        .unwrap_or(0)
}

fn bad_folder(target: &Target) -> SetupError {
    SetupError::Send {
        path: PathBuf::from(&target.folder),
        reason: "the folder's name holds a line break".to_owned(),
    }
}

/// Sends lathe through the shell, from where an earlier try was cut, and renames it into place when it is whole and starts.
fn send_lathe(
    target: &Target,
    from: &Path,
    to: &str,
    size: u64,
    tell: &mut dyn FnMut(&str, u64),
) -> Result<(), SetupError> {
    let send = |reason: String| SetupError::Send {
        path: from.to_owned(),
        reason,
    };
    let folder = to.rsplit_once('/').map_or(".", |(folder, _)| folder);
    let part = format!("{to}.part");
    let quote = |text: &str| quoted(text).ok_or_else(|| bad_folder(target));
    let (folder, part, to) = (quote(folder)?, quote(&part)?, quote(to)?);
    let root = quote(&target.folder)?;
    let said = shell(
        target,
        &format!(
            "umask 077 && mkdir -p {root} {folder} && chmod 700 {root} && touch {part} && wc -c < {part}"
        ),
    )?;
    let mut offset = size_in(&said);
    if offset > size {
        shell(target, &format!(": > {part}"))?;
        offset = 0;
    }
    tell("lathe", size - offset);
    let line = format!("cat >> {part}");
    let inner = quote(&line)?;
    let mut child = target
        .ssh()
        .command(&format!("exec sh -c {inner}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| no_ssh(&error))?;
    let mut file = File::open(from).map_err(|error| send(error.to_string()))?;
    file.seek(SeekFrom::Start(offset))
        .map_err(|error| send(error.to_string()))?;
    let mut input = child.stdin.take().expect("it is piped");
    let copied = io::copy(&mut file, &mut input).and_then(|_| input.flush());
    drop(input);
    let output = child
        .wait_with_output()
        .map_err(|error| send(error.to_string()))?;
    if copied.is_err() || !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let failure = SshFailure::new(&target.name, output.status.code(), &words, true);
        return Err(SetupError::Ssh(failure));
    }
    let said = shell(
        target,
        &format!(
            "chmod 700 {part} && {part} --version >/dev/null && mv {part} {to} && wc -c < {to}"
        ),
    )?;
    if size_in(&said) != size {
        return Err(send(format!(
            "{} of {size} bytes arrived; try again",
            size_in(&said)
        )));
    }
    Ok(())
}

/// The libraries that a trainer needs and that no system has: libtorch's and what lies beside it.
fn libraries(trainer: &Path) -> Result<Vec<PathBuf>, SetupError> {
    let told = |reason: String| SetupError::Libraries {
        path: trainer.to_owned(),
        reason,
    };
    let output = Command::new("ldd")
        .arg(trainer)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| told(format!("cannot start ldd: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        return Err(told(format!("{} (is LD_LIBRARY_PATH set?)", line.trim())));
    }
    let mut libraries: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| {
            let path = line.split("=>").nth(1)?.split_whitespace().next()?;
            let path = PathBuf::from(path);
            let is_of_the_system = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"]
                .iter()
                .any(|folder| path.starts_with(folder));
            (path.is_absolute() && !is_of_the_system).then_some(path)
        })
        .collect();
    // What says which version it is; a GPU's part, which is loaded by name and not by the linker.
    let folder = libraries
        .iter()
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name == "libtorch_cpu.so")
        })
        .and_then(|path| path.parent().map(Path::to_owned));
    if let Some(folder) = folder {
        for name in [
            "libtorch_cuda.so",
            "libc10_cuda.so",
            "libtorch_cuda_linalg.so",
        ] {
            let path = folder.join(name);
            if path.exists() {
                libraries.push(path);
            }
        }
        for name in ["build-version", "version.py"] {
            let path = folder.parent().map(|parent| parent.join(name));
            libraries.extend(path.filter(|path| path.exists()));
        }
    }
    libraries.sort();
    libraries.dedup();
    Ok(libraries)
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

    #[test]
    fn the_size_is_the_last_number_whatever_a_login_prints_before() {
        assert_eq!(size_in("Welcome 7\n  42\n"), 42);
        assert_eq!(size_in("nothing"), 0);
    }
}
