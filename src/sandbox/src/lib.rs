//! Runs a program that nobody trusts: no network, no files but the system's programs (to read) and a scratch folder in
//! memory, bounds of memory, disk, processes and CPU. Knows nothing of models and tools.
//!
//! ```text
//!  caller ─► lathe-sandbox run ── new namespaces (or bwrap) ──► lathe-sandbox inside: process 1 ──► the program
//!                                                                 mounts, drops rights, Landlock, seccomp, limits;
//!                                                                 then watches memory and processes until the end
//! ```
//! Killing `lathe-sandbox run` ends all that ran inside. What there is no way to keep apart is refused, never run openly.
//! The caller bounds time and output: it reads the program's streams.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
pub mod inside;

/// The helper's program file.
const HELPER: &str = "lathe-sandbox";
/// Names it.
const HELPER_VARIABLE: &str = "LATHE_SANDBOX";

/// What a program gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Of all its processes together; an allocation beyond it fails.
    pub memory_bytes: u64,
    /// Of its files.
    pub scratch_bytes: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// Of each process.
    pub cpu_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 512 << 20,
            scratch_bytes: 64 << 20,
            processes: 32,
            cpu_s: 60,
        }
    }
}

/// A program in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The program by its full path, and its arguments.
    pub command: Vec<String>,
    /// Folders that it may read beside the system's, by the same names; what does not exist is left out.
    pub readable: Vec<PathBuf>,
    /// All of its environment.
    pub env: BTreeMap<String, String>,
    pub limits: Limits,
}

/// What keeps a program apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Linux namespaces, made by the helper itself.
    Namespaces,
    /// The same by bubblewrap, where the system allows them to it alone.
    Bubblewrap,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Namespaces => "namespaces, seccomp and Landlock",
            Self::Bubblewrap => "bubblewrap, seccomp and Landlock",
        })
    }
}

/// Why there is no sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSandbox {
    #[error(
        "cannot find lathe-sandbox{}; build it with `cargo build --release -p sandbox`, or name it in LATHE_SANDBOX",
        beside.as_ref().map_or_else(String::new, |path| format!(": it is neither {} nor in PATH", path.display()))
    )]
    NoHelper { beside: Option<PathBuf> },
    #[error(
        "this machine allows no sandbox: {}; install bubblewrap, or allow user namespaces",
        tried.join("; ")
    )]
    NotAllowed { tried: Vec<String> },
}

/// A way to run programs apart that was tried and works here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    kind: Kind,
    helper: PathBuf,
}

impl Sandbox {
    /// The first kind that works; of `only`, that one.
    pub fn find(only: Option<Kind>) -> Result<Self, NoSandbox> {
        let helper = find_helper()?;
        let kinds = match only {
            Some(kind) => vec![kind],
            None => vec![Kind::Namespaces, Kind::Bubblewrap],
        };
        let mut tried = Vec::new();
        for kind in kinds {
            let sandbox = Self {
                kind,
                helper: helper.clone(),
            };
            match sandbox.rehearse() {
                Ok(()) => return Ok(sandbox),
                Err(problem) => tried.push(format!("{kind}: {problem}")),
            }
        }
        Err(NoSandbox::NotAllowed { tried })
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Starts the program; its standard streams are the command's.
    pub fn command(&self, spec: &Spec) -> Command {
        let mut command = Command::new(&self.helper);
        let arguments = Arguments {
            kind: self.kind,
            spec: spec.clone(),
        };
        command
            .arg("run")
            .arg(serde_json::to_string(&arguments).expect("paths and texts are JSON"));
        command
    }

    /// Runs a program that does nothing.
    fn rehearse(&self) -> Result<(), String> {
        let spec = Spec {
            command: vec!["/bin/true".to_owned()],
            readable: Vec::new(),
            env: BTreeMap::new(),
            limits: Limits::default(),
        };
        let output = self
            .command(&spec)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", self.helper.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("lathe-sandbox: ").to_owned();
        Err(if said.is_empty() {
            output.status.to_string()
        } else {
            said
        })
    }
}

/// What the helper is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arguments {
    pub kind: Kind,
    pub spec: Spec,
}

/// `LATHE_SANDBOX`, else beside this program (or, for a test, a folder above), else in `PATH`.
fn find_helper() -> Result<PathBuf, NoSandbox> {
    let named = env::var_os(HELPER_VARIABLE).filter(|value| !value.is_empty());
    let here = env::current_exe().ok();
    let here = here.as_deref().and_then(Path::parent);
    let beside = here.map(|folder| folder.join(HELPER));
    let above = here
        .and_then(Path::parent)
        .map(|folder| folder.join(HELPER));
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join(HELPER));
    let is_program = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if let Some(named) = named {
        let named = PathBuf::from(named);
        return if is_program(&named) {
            Ok(named)
        } else {
            Err(NoSandbox::NoHelper {
                beside: Some(named),
            })
        };
    }
    beside
        .clone()
        .into_iter()
        .chain(above)
        .chain(in_path)
        .find(is_program)
        .ok_or(NoSandbox::NoHelper { beside })
}
