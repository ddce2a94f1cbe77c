//! `run.json`: what was known of a run before its first event, and which process writes it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{fs, io};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{NewRun, Origin, RunDirError};

pub(super) const FILE: &str = "run.json";

/// Raised when an older program could misread a run directory. New events and fields do not raise it.
pub const FORMAT_VERSION: u32 = 1;

/// Longest part of the experiment's name in the directory's name.
const NAME_CHARS: usize = 80;

/// State of the source tree the run was started from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Git {
    pub commit: String,
    /// Tracked files differ from the commit.
    pub dirty: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    pub format_version: u32,
    /// Eight hexadecimal digits.
    pub id: String,
    /// The directory's name.
    pub name: String,
    #[serde(default)]
    pub project_name: String,
    #[serde(default)]
    pub experiment_name: String,
    #[serde(default)]
    pub parent: Option<String>,
    #[serde(default)]
    pub git: Option<Git>,
    pub started_at: Timestamp,
    #[serde(default)]
    pub host: String,
    /// The process that writes, or wrote last.
    #[serde(default)]
    pub pid: u32,
    /// Clock ticks from boot to the start of `pid`: tells the process from a later one of the same number.
    #[serde(default)]
    pub process_start_ticks: Option<u64>,
    /// Changes at each boot of the host.
    #[serde(default)]
    pub boot_id: Option<String>,
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    #[serde(default)]
    pub seed: u64,
    #[serde(default)]
    pub command: Vec<String>,
    /// Steps to be trained in all, as of its newest resume. None: it never went on, and its log's first line tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_steps: Option<u64>,
    /// Where the run lies when this directory only shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

impl RunInfo {
    /// The other tracker's name, of a run that is a projection of one.
    pub fn foreign_format(&self) -> Option<&str> {
        if let Some(Origin::Foreign { format, .. }) = &self.origin {
            Some(format)
        } else {
            None
        }
    }

    pub(super) fn new(new: &NewRun) -> io::Result<Self> {
        let id = if let Some(id) = &new.id {
            id.clone()
        } else {
            let mut random = [0_u8; 4];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
            format!("{:08x}", u32::from_le_bytes(random))
        };
        let started_at = new.started_at.unwrap_or_else(Timestamp::now);
        let mut info = Self {
            format_version: FORMAT_VERSION,
            name: format!(
                "{}-{}-{id}",
                started_at.strftime("%Y%m%d-%H%M%S"),
                path_safe(&new.experiment_name)
            ),
            id,
            project_name: new.project_name.clone(),
            experiment_name: new.experiment_name.clone(),
            parent: new.parent.clone(),
            git: new.git.clone(),
            started_at,
            host: String::new(),
            pid: 0,
            process_start_ticks: None,
            boot_id: None,
            versions: new.versions.clone(),
            seed: new.seed,
            command: new.command.clone(),
            total_steps: None,
            origin: new.origin.clone(),
        };
        info.owned_by_this_process();
        Ok(info)
    }

    pub(super) fn owned_by_this_process(&mut self) {
        self.host = host_name();
        self.pid = std::process::id();
        self.process_start_ticks = process_start_ticks(self.pid);
        self.boot_id = boot_id();
    }

    pub(super) fn read(directory: &Path) -> Result<Self, RunDirError> {
        /// Read first: a newer format may have other fields than ours.
        #[derive(Deserialize)]
        struct Version {
            format_version: u32,
        }
        let path = directory.join(FILE);
        let text = fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => RunDirError::NotARun {
                path: directory.to_owned(),
            },
            _ => RunDirError::io("read", &path)(error),
        })?;
        let corrupt = |error: serde_json::Error| RunDirError::Corrupt {
            path: directory.to_owned(),
            reason: error.to_string(),
        };
        let version: Version = serde_json::from_slice(&text).map_err(corrupt)?;
        if version.format_version > FORMAT_VERSION {
            return Err(RunDirError::Newer {
                path: directory.to_owned(),
                found: version.format_version,
                known: FORMAT_VERSION,
            });
        }
        let mut info: Self = serde_json::from_slice(&text).map_err(corrupt)?;
        // A copied or renamed directory goes by the name it has now.
        if let Some(name) = directory.file_name().and_then(|name| name.to_str())
            && name != "."
            && name != ".."
        {
            name.clone_into(&mut info.name);
        }
        Ok(info)
    }
}

/// Letters, digits, `.`, `_` and `-` stay, all else becomes `_`; never empty.
fn path_safe(name: &str) -> String {
    let safe: String = name
        .chars()
        .take(NAME_CHARS)
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                c
            } else {
                '_'
            }
        })
        .collect();
    if safe.is_empty() {
        "run".to_owned()
    } else {
        safe
    }
}

pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

pub(crate) fn boot_id() -> Option<String> {
    // It does not change while this process lives.
    static BOOT_ID: OnceLock<Option<String>> = OnceLock::new();
    BOOT_ID
        .get_or_init(|| {
            let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
            Some(text.trim().to_owned())
        })
        .clone()
}

/// When a process started, in clock ticks since boot; None when there is no such process (or no /proc).
pub(crate) fn process_start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold spaces; field 22 counts from 1.
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Commit and dirty flag of the tree that holds `directory`; None without git or outside a repository.
pub fn git_state(directory: &Path) -> Option<Git> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let dirty = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(Git { commit, dirty })
}
