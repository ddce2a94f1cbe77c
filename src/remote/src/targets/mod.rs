//! `targets.yaml`: the machines a run may be started on. The user's file first, then the project's, which wins.
//!
//! ```yaml
//! gpu1:                    # for --on gpu1
//!   kind: ssh              # local, ssh, slurm or ray
//!   host: ana@gpu1.lab     # as `ssh` takes it; default: the name itself
//!   gpus: auto             # auto (one free one), as_is, none, a number of free ones, or a list such as [0, 1]
//!   at_once: 2             # runs of ours at the same time; more wait there
//! ```
//! A name that stands in no file is a host that `ssh` knows. Knows nothing of how a host is reached.

mod keys;
mod read;
mod time;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use experiment::Complaint;

use crate::scheduler::{Ray, Scheduler, Slurm};
use crate::ssh::Ssh;
use crate::wire::{Gpus, Means, Token};

pub use keys::KEYS;

/// The file's name, in the project's folder and in lathe's folder of the user's configuration.
pub const FILE: &str = "targets.yaml";
/// Names a file instead of the user's.
pub const FILE_VARIABLE: &str = "LATHE_TARGETS";
/// Where lathe keeps its things on another machine, below the home directory there.
pub const DEFAULT_FOLDER: &str = ".lathe";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    Local,
    Ssh,
    /// A cluster's queue: by Slurm's commands, here or on `host`.
    Slurm,
    /// Ray's Jobs API, spoken to from here or from `host`.
    Ray,
}

impl TargetKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Ssh => "ssh",
            Self::Slurm => "slurm",
            Self::Ray => "ray",
        }
    }

    /// A run there goes on by itself, and what is here is a copy.
    pub fn is_elsewhere(self) -> bool {
        self != Self::Local
    }

    pub fn has_scheduler(self) -> bool {
        matches!(self, Self::Slurm | Self::Ray)
    }
}

/// One machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub name: String,
    pub kind: TargetKind,
    /// As `ssh` takes it; empty: a scheduler is spoken to from this machine.
    pub host: String,
    /// Of lathe there: programs, files, runs.
    pub folder: String,
    /// lathe's program there; None: the one that `lathe target setup` put into `folder`.
    pub program: Option<String>,
    pub trainer: Option<String>,
    /// The Python there that has verl, for `launch.engine: verl`; None: what the experiment says.
    pub python: Option<String>,
    /// Where libtorch's libraries are there.
    pub libtorch: Option<String>,
    pub gpus: Gpus,
    /// 0: no limit.
    pub at_once: u32,
    /// Where models are looked for there.
    pub models: Option<String>,
    /// For the trainer.
    pub environment: BTreeMap<String, String>,
    /// Names of variables that the trainer gets as they are here: secrets belong there and not into a file.
    pub pass: Vec<String>,
    pub ssh_config: Option<PathBuf>,
    pub connect_timeout: Option<Duration>,
    pub is_compressed: bool,
    /// All runs there are listed, and not only those that were begun from here.
    pub is_listed: bool,
    /// With `kind: slurm`.
    pub slurm: Slurm,
    /// With `kind: ray`.
    pub ray: Ray,
    /// Which variable holds Ray's token; None: as Ray itself looks for it.
    pub token: Option<String>,
    /// Where it is written; None: it stands in no file.
    pub written: Option<(PathBuf, u32)>,
}

impl Target {
    /// A host that stands in no file.
    pub fn host(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: TargetKind::Ssh,
            host: name.to_owned(),
            folder: DEFAULT_FOLDER.to_owned(),
            program: None,
            trainer: None,
            python: None,
            libtorch: None,
            gpus: Gpus::Free(1),
            at_once: 0,
            models: None,
            environment: BTreeMap::new(),
            pass: Vec::new(),
            ssh_config: None,
            connect_timeout: None,
            is_compressed: true,
            is_listed: true,
            slurm: Slurm::default(),
            ray: Ray::default(),
            token: None,
            written: None,
        }
    }

    /// This machine.
    pub fn local() -> Self {
        Self {
            kind: TargetKind::Local,
            gpus: Gpus::AsIs,
            ..Self::host("local")
        }
    }

    pub fn ssh(&self) -> Ssh {
        let mut ssh = Ssh::new(&self.host);
        if let Some(config) = &self.ssh_config {
            ssh.config = Some(config.clone());
        }
        if let Some(timeout) = self.connect_timeout {
            ssh.connect_timeout = timeout;
        }
        ssh.is_compressed = self.is_compressed;
        ssh
    }

    /// What gives a run its machine there; None: it runs on the target itself.
    pub fn scheduler(&self) -> Option<Scheduler> {
        match self.kind {
            TargetKind::Local | TargetKind::Ssh => None,
            TargetKind::Slurm => Some(Scheduler::Slurm(self.slurm.clone())),
            TargetKind::Ray => Some(Scheduler::Ray(self.ray.clone())),
        }
    }

    /// Its folder and its scheduler are this machine's: no line leads there.
    pub fn is_here(&self) -> bool {
        self.host.is_empty()
    }

    /// What opens its scheduler's door.
    pub fn token(&self) -> Option<Token> {
        (self.kind == TargetKind::Ray)
            .then(|| crate::far::own_token(self.token.as_deref()))
            .flatten()
    }

    /// lathe's program there.
    pub fn program(&self) -> String {
        self.program
            .clone()
            .unwrap_or_else(|| format!("{}/current/lathe", self.folder))
    }

    /// What a run gets there. Its variables are `environment`, and what `pass` names of this process's own.
    pub fn means(&self) -> Means {
        let mut environment = self.environment.clone();
        for name in &self.pass {
            if let Ok(value) = std::env::var(name) {
                environment.insert(name.clone(), value);
            }
        }
        Means {
            gpus: self.gpus.clone(),
            at_once: self.at_once,
            environment,
            trainer: self.trainer.clone(),
            libraries: self.libtorch.clone(),
        }
    }
}

/// Every target that is written down, by name, and what is wrong with the files.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    all: BTreeMap<String, Target>,
    pub complaints: Vec<Complaint>,
    /// The files that were looked for, those that are there first.
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("{0}")]
    Complaint(String),
    #[error("`{name}` is no target and cannot be a host; {}", known(names))]
    NoHost { name: String, names: Vec<String> },
}

fn known(names: &[String]) -> String {
    if names.is_empty() {
        format!("there is no {FILE} yet: see `lathe targets --help`")
    } else {
        format!("the targets are {}", names.join(", "))
    }
}

impl Targets {
    /// Reads the user's file and the one in `project`.
    pub fn load(project: &Path) -> Self {
        let user = std::env::var_os(FILE_VARIABLE)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
            .or_else(user_file);
        let mut targets = Self::default();
        for path in user.into_iter().chain([project.join(FILE)]) {
            match std::fs::read_to_string(&path) {
                Ok(text) => {
                    let folder = path.parent().unwrap_or(Path::new(""));
                    let (found, complaints) = read::read(&text, &path, folder);
                    for target in found {
                        targets.all.insert(target.name.clone(), target);
                    }
                    targets.complaints.extend(complaints);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => targets.complaints.push(read::complaint(
                    &path,
                    None,
                    &format!("cannot be read: {error}"),
                )),
            }
            targets.files.push(path);
        }
        targets
    }

    /// Those that are written down, by name.
    pub fn all(&self) -> impl Iterator<Item = &Target> {
        self.all.values()
    }

    /// The target that `--on NAME` means: one of the files, `local`, or a host of that name.
    pub fn find(&self, name: &str) -> Result<Target, TargetError> {
        if let Some(target) = self.all.get(name) {
            return Ok(target.clone());
        }
        // A broken file may hold the very target that is asked for.
        let first = self
            .complaints
            .iter()
            .find(|complaint| complaint.severity == experiment::Severity::Error);
        if let Some(complaint) = first {
            return Err(TargetError::Complaint(complaint.to_string()));
        }
        if name == "local" {
            return Ok(Target::local());
        }
        let is_host = !name.is_empty()
            && !name.starts_with('-')
            && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/');
        if !is_host {
            return Err(TargetError::NoHost {
                name: name.to_owned(),
                names: self.all.keys().cloned().collect(),
            });
        }
        Ok(Target::host(name))
    }
}

/// Beside the workbench's own settings.
fn user_file() -> Option<PathBuf> {
    use etcetera::BaseStrategy as _;
    let strategy = etcetera::base_strategy::Xdg::new().ok()?;
    Some(strategy.config_dir().join("lathe").join(FILE))
}
