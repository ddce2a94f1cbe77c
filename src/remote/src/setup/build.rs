//! `lathe target setup HOST --build`: for a machine that the programs built here do not run on. Sends Lathe's source, has the tree's
//! own recipe build it there, and has the lathe that comes of it install itself and what belongs to it.
//!
//! ```text
//!  .lathe/build/source/     the tracked files, sent where their hash there is another; what is tracked no more is removed
//!  .lathe/build/target/     cargo's        run.sh  lock  pid  log  code        the build, which outlives the line
//! ```
//! Only tools that any Linux has are used for it: a shell, tar, sha256sum, flock.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::shell::{after, command, memory, no_ssh, shell, shell_with, word};
use super::{Done, SetupError};
use crate::near::launch::Shipped;
use crate::near::link::Link;
use crate::ssh::SshFailure;
use crate::targets::Target;
use crate::wire::{Ask, Say};

/// Libraries of half a gigabyte are hashed and copied.
const INSTALL_PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(
        "{} is not Lathe's source ({reason}): start this in the folder of the source (git clone {}), or name that with --source",
        folder.display(),
        env!("CARGO_PKG_REPOSITORY")
    )]
    NoSource { folder: PathBuf, reason: String },
    #[error("cannot read the source {}: {reason}", folder.display())]
    Read { folder: PathBuf, reason: String },
    #[error("{host} is {theirs}, and Lathe runs on Linux")]
    NoLinux { host: String, theirs: String },
    #[error(
        "{host} cannot build it: {}; install that there, then say this again",
        lacks.join(", ")
    )]
    Lacks { host: String, lacks: Vec<String> },
    #[error("{failure}; a build that has begun goes on there: say this again to come back to it")]
    Cut { failure: SshFailure },
    #[error(
        "the build on {host} failed (exit code {code}): what it said is above, and there in {log}"
    )]
    Failed {
        host: String,
        code: String,
        log: String,
    },
    #[error(
        "the build on {host} was ended before it was done: say this again, and it goes on with what is built"
    )]
    Ended { host: String },
}

/// What is told on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News<'a> {
    /// So many files of the source go, of so many bytes.
    Sends { files: usize, bytes: u64 },
    /// A build that somebody has begun is followed.
    Follows,
    /// A line of the build's.
    Says(&'a str),
}

/// Lathe's source on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    folder: PathBuf,
    /// The tracked files, below it.
    files: BTreeSet<String>,
    /// The oldest Rust that builds it.
    rust: Option<(u32, u32)>,
}

impl Source {
    /// That in a folder, which must be a checkout of it.
    pub fn open(folder: &Path) -> Result<Self, SetupError> {
        let no_source = |reason: &str| BuildError::NoSource {
            folder: folder.to_owned(),
            reason: reason.to_owned(),
        };
        let manifest = fs::read_to_string(folder.join("src/lathe/Cargo.toml")).unwrap_or_default();
        if !manifest
            .lines()
            .any(|line| line.trim() == "name = \"lathe\"")
        {
            return Err(no_source("it has no src/lathe/Cargo.toml").into());
        }
        let output = Command::new("git")
            .arg("-C")
            .arg(folder)
            .args(["ls-files", "-z", "--cached"])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| no_source(&format!("cannot start git: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().next().unwrap_or("git cannot list its files");
            return Err(no_source(line).into());
        }
        let files = String::from_utf8_lossy(&output.stdout)
            .split('\0')
            // Deleted, and not yet committed so.
            .filter(|name| folder.join(name).is_file())
            .map(str::to_owned)
            .collect::<BTreeSet<_>>();
        if !files.contains("dev") {
            return Err(no_source("it has no ./dev").into());
        }
        if let Some(odd) = files.iter().find(|name| name.contains(['\n', '\\'])) {
            return Err(no_source(&format!("a file has the name {odd:?}")).into());
        }
        let workspace = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        let rust = workspace
            .lines()
            .find_map(|line| line.trim().strip_prefix("rust-version = \""))
            .and_then(super::fits::version_of);
        Ok(Self {
            folder: folder.to_owned(),
            files,
            rust,
        })
    }

    fn fail(&self, reason: impl Into<String>) -> SetupError {
        let folder = self.folder.clone();
        let reason = reason.into();
        BuildError::Read { folder, reason }.into()
    }

    /// `HASH *PATH`, a line each, as `sha256sum -c` reads it.
    fn sums(&self) -> Result<Vec<u8>, SetupError> {
        let names =
            memory(&zero_ended(&self.files)).map_err(|error| self.fail(error.to_string()))?;
        let output = Command::new("xargs")
            .args(["-0", "sha256sum", "-b", "--"])
            .current_dir(&self.folder)
            .stdin(names)
            .output()
            .map_err(|error| self.fail(error.to_string()))?;
        if !output.status.success() {
            return Err(self.fail(String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(output.stdout)
    }

    fn bytes(&self, names: &BTreeSet<String>) -> u64 {
        names
            .iter()
            .filter_map(|name| fs::metadata(self.folder.join(name)).ok())
            .map(|found| found.len())
            .sum()
    }
}

fn zero_ended(names: &BTreeSet<String>) -> Vec<u8> {
    names
        .iter()
        .flat_map(|name| name.bytes().chain([0]))
        .collect()
}

/// Builds lathe there and has it installed. What is sent already is not sent again, and what is built already not built again.
pub fn set_up(
    target: &Target,
    source: &Source,
    hear: &mut dyn FnMut(News<'_>),
) -> Result<Done, SetupError> {
    if target.is_here() {
        let target = target.name.clone();
        return Err(SetupError::Here { target });
    }
    let place = Place::new(target)?;
    can_build(target, source)?;
    place.make()?;
    let followed = if place.is_building()? {
        hear(News::Follows);
        Some(place.follow(hear)?)
    } else {
        None
    };
    let (shipped, is_changed) = place.send(source, hear)?;
    let code = match followed {
        // It was of this very source.
        Some(code) if !is_changed && code == "0" => code,
        _ => {
            place.start()?;
            place.follow(hear)?
        }
    };
    match code.as_str() {
        "0" => {}
        "" => {
            let host = target.name.clone();
            return Err(BuildError::Ended { host }.into());
        }
        _ => {
            let host = target.name.clone();
            let log = format!("{}/build/log", target.folder);
            return Err(BuildError::Failed { host, code, log }.into());
        }
    }
    let mut there = target.clone();
    there.program = Some(format!("{}/build/target/release/lathe", target.folder));
    let mut link = Link::open(&there)?;
    let ask = Ask::InstallBuilt {
        programs: "build/target/release".to_owned(),
    };
    match link.ask_within(&ask, INSTALL_PATIENCE)? {
        Say::Installed { folder } => Ok(Done { folder, shipped }),
        other => Err(link.garbled(&format!("{other:?}")).into()),
    }
}

/// Whether what a build needs is there.
fn can_build(target: &Target, source: &Source) -> Result<(), SetupError> {
    let said = shell(
        target,
        "PATH=\"$PATH:$HOME/.cargo/bin\"; echo lathe-uname $(uname -s) $(uname -m); for p in cargo cc c++ python3 tar sha256sum \
         flock setsid; do command -v $p >/dev/null || echo \"lathe-lacks $p\"; done; echo lathe-cargo $(cargo --version 2>/dev/null)",
    )?;
    let host = target.name.clone();
    let theirs = after(&said, "lathe-uname");
    if !theirs.starts_with("Linux ") {
        let theirs = theirs.to_owned();
        return Err(BuildError::NoLinux { host, theirs }.into());
    }
    let lacks = lacks(&said, source.rust);
    if lacks.is_empty() {
        Ok(())
    } else {
        Err(BuildError::Lacks { host, lacks }.into())
    }
}

/// What is missing, and where it comes from.
fn lacks(said: &str, rust: Option<(u32, u32)>) -> Vec<String> {
    let wanted = rust.map_or_else(String::new, |(major, minor)| {
        format!(" {major}.{minor} or newer")
    });
    let mut lacks: Vec<String> = said
        .lines()
        .filter_map(|line| line.strip_prefix("lathe-lacks "))
        .map(|name| match name.trim() {
            "cargo" => format!("there is no cargo (Rust{wanted}: https://rustup.rs)"),
            "cc" => "there is no cc (apt-get install gcc, dnf install gcc)".to_owned(),
            "c++" => "there is no c++ (apt-get install g++, dnf install gcc-c++)".to_owned(),
            "python3" => {
                "there is no python3 (apt-get install python3 python3-pip, dnf install python3-pip)"
                    .to_owned()
            }
            other => format!("there is no {other}"),
        })
        .collect();
    let cargo = after(said, "lathe-cargo");
    let theirs = cargo
        .strip_prefix("cargo ")
        .and_then(super::fits::version_of);
    if let (Some(theirs), Some(rust)) = (theirs, rust)
        && theirs < rust
    {
        lacks.push(format!(
            "{cargo} is too old (Rust{wanted}: https://rustup.rs)"
        ));
    }
    lacks
}

/// Its folder there, as a word of a shell's.
struct Place<'a> {
    target: &'a Target,
    root: String,
    build: String,
    source: String,
}

/// One build at a time; how it ended stands in `code`. Read there, so plain.
const RUN: &str = "\
#!/bin/sh
# Builds lathe from the source beside this file. Written by `lathe target setup --build`.
cd \"$(dirname \"$0\")\" || exit 1
exec 9>lock
flock -n 9 || exit 0
# A unit has another environment than a login.
. ./environment
rm -f environment
echo $$ > pid
PATH=\"$PATH:$HOME/.cargo/bin\"
CARGO_TARGET_DIR=\"$PWD/target\"
export PATH CARGO_TARGET_DIR
(cd source && exec ./dev build) </dev/null >>log 2>&1 9>&-
echo $? > code.new && mv code.new code
";

impl<'a> Place<'a> {
    fn new(target: &'a Target) -> Result<Self, SetupError> {
        let folder = &target.folder;
        Ok(Self {
            target,
            root: word(target, folder)?,
            build: word(target, &format!("{folder}/build"))?,
            source: word(target, &format!("{folder}/build/source"))?,
        })
    }

    fn make(&self) -> Result<(), SetupError> {
        let (root, build, source) = (&self.root, &self.build, &self.source);
        let script = memory(RUN.as_bytes()).map_err(|error| no_ssh(&error))?;
        // Aside and renamed: one that runs is read as it was.
        let line = format!(
            "umask 077 && mkdir -p {root} {source} && chmod 700 {root} && cd {build} && cat > run.new && mv run.new run.sh"
        );
        shell_with(self.target, &line, script).map(drop)
    }

    fn is_building(&self) -> Result<bool, SetupError> {
        let build = &self.build;
        let line = format!("cd {build} && {{ flock -n lock true || echo lathe-builds yes; }}");
        Ok(after(&shell(self.target, &line)?, "lathe-builds") == "yes")
    }

    /// Makes the source there what it is here. Gives also whether it was another.
    fn send(
        &self,
        source: &Source,
        hear: &mut dyn FnMut(News<'_>),
    ) -> Result<(Shipped, bool), SetupError> {
        let tree = &self.source;
        let sums = memory(&source.sums()?).map_err(|error| source.fail(error.to_string()))?;
        let line = format!("cd {tree} && {{ LC_ALL=C sha256sum -c - 2>/dev/null || true; }}");
        let said = shell_with(self.target, &line, sums)?;
        let right: BTreeSet<&str> = said
            .lines()
            .filter_map(|line| line.strip_suffix(": OK"))
            .collect();
        let mut missing = source.files.clone();
        missing.retain(|name| !right.contains(name.as_str()));
        let removed = self.remove_others(source)?;
        let shipped = Shipped {
            files: missing.len() as u64,
            bytes: source.bytes(&missing),
            all_files: source.files.len() as u64,
            all_bytes: source.bytes(&source.files),
        };
        if missing.is_empty() {
            return Ok((shipped, removed));
        }
        hear(News::Sends {
            files: missing.len(),
            bytes: shipped.bytes,
        });
        let names =
            memory(&zero_ended(&missing)).map_err(|error| source.fail(error.to_string()))?;
        let mut tar = Command::new("tar")
            .arg("-C")
            .arg(&source.folder)
            .args(["--null", "--no-recursion", "-T", "-", "-cf", "-"])
            .stdin(names)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| source.fail(format!("cannot start tar: {error}")))?;
        let packed = tar.stdout.take().expect("it is piped");
        // Each as changed now: cargo builds anew what is younger than what it built, and that may be of another content.
        let taken = shell_with(
            self.target,
            &format!("umask 077 && cd {tree} && tar -xmf -"),
            packed.into(),
        );
        let output: Output = tar
            .wait_with_output()
            .map_err(|error| source.fail(error.to_string()))?;
        taken.map_err(|error| self.cut(error))?;
        if !output.status.success() {
            return Err(source.fail(String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok((shipped, true))
    }

    /// A module that is gone here must not be built there. False: there was none.
    fn remove_others(&self, source: &Source) -> Result<bool, SetupError> {
        let tree = &self.source;
        // What the recipe itself puts there stays.
        let line = format!(
            "cd {tree} && find . '(' -path ./.libtorch -o -path ./.tools ')' -prune -o '(' -type f -o -type l ')' -print"
        );
        let said = shell(self.target, &line)?;
        let others: BTreeSet<String> = said
            .lines()
            .filter_map(|line| line.strip_prefix("./"))
            .filter(|name| !source.files.contains(*name))
            .map(str::to_owned)
            .collect();
        if others.is_empty() {
            return Ok(false);
        }
        let names = memory(&zero_ended(&others)).map_err(|error| source.fail(error.to_string()))?;
        let line = format!("cd {tree} && xargs -0 rm -f --");
        shell_with(self.target, &line, names)?;
        Ok(true)
    }

    /// Starts the build as a unit where the user's systemd stays at logout, else in a session of its own, and waits until it holds
    /// its lock.
    fn start(&self) -> Result<(), SetupError> {
        let build = &self.build;
        let line = format!(
            "umask 077 && cd {build} && rm -f pid code && : > log && {{ export -p > environment; if test \"$(loginctl show-user \
             --property=Linger --value -- \"$USER\" 2>/dev/null)\" = yes && systemd-run --user --quiet --collect --unit=lathe-build sh \
             \"$PWD/run.sh\" </dev/null >/dev/null 2>&1; then :; else setsid sh ./run.sh </dev/null >/dev/null 2>&1 & fi; i=0; until \
             test -e pid || test $i = 200; do i=$((i+1)); sleep 0.1; done; }}"
        );
        shell(self.target, &line).map(drop)
    }

    /// Tells what the build says until it is over, and gives its exit code; empty where it left none.
    fn follow(&self, hear: &mut dyn FnMut(News<'_>)) -> Result<String, SetupError> {
        let build = &self.build;
        let line = format!(
            "cd {build} && {{ tail -n +1 -f log & t=$!; until test -e code || flock -n lock true; do sleep 0.5; done; sleep 1; kill \
             $t; echo; echo lathe-code $(cat code 2>/dev/null); }}"
        );
        let mut child = command(self.target, &line)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| no_ssh(&error))?;
        let output = child.stdout.take().expect("it is piped");
        let code = told(BufReader::new(output), hear);
        let mut words = String::new();
        if let Some(mut errors) = child.stderr.take() {
            // Only for its last words; unreadable ones are none.
            let _ = errors.read_to_string(&mut words);
        }
        let status = child.wait().map_err(|error| no_ssh(&error))?;
        if let Ok(Some(code)) = code {
            return Ok(code);
        }
        let failure = SshFailure::new(&self.target.name, status.code(), &words, true);
        Err(BuildError::Cut { failure }.into())
    }

    /// A line that was cut under what was on its way.
    fn cut(&self, error: SetupError) -> SetupError {
        match error {
            SetupError::Ssh(failure) => {
                let said = failure.said;
                SetupError::Ssh(SshFailure::new(&self.target.name, None, &said, true))
            }
            other => other,
        }
    }
}

/// Reads the build's lines; None: they ended before its code came.
fn told(mut lines: impl BufRead, hear: &mut dyn FnMut(News<'_>)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&line);
        if let Some(code) = text.strip_prefix("lathe-code") {
            return Ok(Some(code.trim().to_owned()));
        }
        // What a host prints must not move the cursor.
        let plain: String = text
            .trim_end()
            .chars()
            .map(|c| if c.is_control() && c != '\t' { ' ' } else { c })
            .collect();
        if !plain.is_empty() {
            hear(News::Says(&plain));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_lacks_is_told_with_where_it_comes_from() {
        let said = "Welcome\nlathe-uname Linux aarch64\nlathe-lacks c++\nlathe-cargo cargo 1.63.0 (fd9c4297c 2022-07-01)\n";
        assert_eq!(
            lacks(said, Some((1, 90))),
            [
                "there is no c++ (apt-get install g++, dnf install gcc-c++)",
                "cargo 1.63.0 (fd9c4297c 2022-07-01) is too old (Rust 1.90 or newer: https://rustup.rs)"
            ]
        );
        let said = "lathe-lacks cargo\nlathe-cargo\n";
        assert_eq!(
            lacks(said, Some((1, 90))),
            ["there is no cargo (Rust 1.90 or newer: https://rustup.rs)"]
        );
        assert!(lacks("lathe-cargo cargo 1.95.0\n", Some((1, 90))).is_empty());
    }

    #[test]
    fn a_build_s_lines_are_told_up_to_its_code_and_move_no_cursor() {
        let mut heard = Vec::new();
        let mut hear = |news: News<'_>| heard.push(format!("{news:?}"));
        let code = told(
            "Compiling\x1b[2J x\n\nlathe-code 101\n".as_bytes(),
            &mut hear,
        );
        assert_eq!(code.unwrap().as_deref(), Some("101"));
        assert_eq!(told("Compi".as_bytes(), &mut hear).unwrap(), None);
        assert_eq!(heard, ["Says(\"Compiling [2J x\")", "Says(\"Compi\")"]);
        assert_eq!(
            told("lathe-code\n".as_bytes(), &mut |_| {})
                .unwrap()
                .as_deref(),
            Some("")
        );
    }
}
