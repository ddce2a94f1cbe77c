//! `lathe target setup HOST`: puts this build of lathe there, with its trainer and libtorch, if the machines fit together.
//!
//! lathe itself goes by the shell, since nothing of ours is there yet; it then takes in everything else, file by file, by hash,
//! each from where an earlier try was cut. Where they do not fit, [`build`] sends the source instead and has it built there.

pub mod build;
mod fits;
pub(crate) mod libraries;
mod shell;

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use fits::fits;
use libraries::libraries;
use shell::{command, no_ssh, shell, size_in, word};

use crate::hash;
use crate::near::launch::{ShipError, Shipment, Shipped};
use crate::near::link::{Link, LinkError};
use crate::ssh::SshFailure;
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
        "{host} is {theirs}, and these programs are built for {ours}: have them built there from the source (lathe target setup \
         {host} --source DIR, or in its folder), or name a program for it as `program` in targets.yaml"
    )]
    OtherMachine {
        host: String,
        theirs: String,
        ours: String,
    },
    #[error(
        "{host} has glibc {theirs}, and these programs need {needed}: have them built there from the source (lathe target setup \
         {host} --source DIR, or in its folder), or name a program for it as `program` in targets.yaml"
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
    #[error(transparent)]
    Build(#[from] build::BuildError),
    #[error("cannot find the libraries of {}: {reason}", path.display())]
    Libraries { path: PathBuf, reason: String },
}

impl SetupError {
    /// Without what to do about it.
    pub fn in_short(&self) -> String {
        let text = self.to_string();
        match text.split_once(": have them built") {
            Some((what, _)) => what.to_owned(),
            None => text,
        }
    }
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
            shipment.add_library(&format!("lib/{name}"), &library)?;
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

/// Whether the whole program lies there. That it is the right one its own answer says.
fn is_there(target: &Target, path: &str, size: u64) -> Result<bool, SetupError> {
    let path = word(target, path)?;
    let said = shell(
        target,
        &format!("test -x {path} && wc -c < {path} || echo 0"),
    )?;
    Ok(size_in(&said) == size)
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
    let quote = |text: &str| word(target, text);
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
    let mut child = command(target, &format!("cat >> {part}"))
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
