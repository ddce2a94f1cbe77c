//! What answers on the other machine: `lathe __far`, started by ssh, one conversation on its input and output.
//!
//! Everything it keeps lies below one private folder:
//! ```text
//! .lathe/
//!   programs/VERSION/{lathe, lathe-trainer, lib/…}   current ─► programs/VERSION
//!   store/ab/abcd…      files by what they hold, read only        store/partly/…   those still on their way
//!   runs/NAME/          run directories, with job.json, supervisor.json, exit.json, project/
//!   turns/  gpus/       who waits, who holds what: locks that the kernel frees when their holder dies
//! ```
//! Knows nothing of the machine that asks.

mod again;
mod begin;
mod census;
mod cluster;
mod control;
mod facts;
mod gpus;
mod kernel;
mod project;
mod session;
mod store;
mod stream;
mod supervise;
mod turn;

use std::io::{self, BufRead, BufReader};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

use runlog::run_dir::{Exit, ProcessIdentity, RunDir, Standing};
use serde::{Deserialize, Serialize};

use crate::hash;
use crate::ssh::private_dir;
use crate::wire::{self, Ask, PROTOCOL, RunThere, Say};

pub(crate) use cluster::ray::own_token;
pub use control::join_here;
pub(crate) use stream::GROWING;
pub use supervise::supervise;

/// From a trainer's exit code or signal and its log: why it ended, in words, and its last lines.
pub type Explain = fn(Option<i32>, Option<i32>, &Path) -> (String, Vec<String>);

/// What this machine's `lathe` knows of itself.
#[derive(Debug, Clone, Copy)]
pub struct Here {
    pub version: &'static str,
    /// The trainer's program, or why there is none.
    pub find_trainer: fn() -> Result<PathBuf, String>,
    /// The hidden command that becomes the trainer, without its arguments.
    pub exec_command: &'static str,
    pub explain: Explain,
}

/// The private folder.
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// To look into, if it is there.
    fn not_opened(written: &str) -> Self {
        let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
        Self(home.join(written.strip_prefix("~/").unwrap_or(written)))
    }

    fn open(written: &str) -> Result<Self, String> {
        let Self(path) = Self::not_opened(written);
        let told = |error: io::Error| format!("cannot use {}: {error}", path.display());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(told)?;
        }
        private_dir(&path).map_err(told)?;
        for part in ["programs", "store", "runs", "turns", "gpus"] {
            private_dir(&path.join(part)).map_err(told)?;
        }
        let path = path.canonicalize().map_err(told)?;
        Ok(Self(path))
    }

    /// That of a run's directory.
    fn of_run(run_dir: &Path) -> Option<Self> {
        let runs = run_dir.parent()?;
        runs.ends_with("runs").then_some(())?;
        Some(Self(runs.parent()?.to_owned()))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn runs(&self) -> PathBuf {
        self.0.join("runs")
    }

    /// A run by its name, which cannot lead elsewhere.
    fn run(&self, name: &str) -> Result<PathBuf, String> {
        if !is_inner(name) || name.contains('/') {
            return Err(format!("`{name}` is no name of a run"));
        }
        let path = self.runs().join(name);
        if !path.join("run.json").is_file() {
            return Err(format!("there is no run {name} here (any more)"));
        }
        Ok(path)
    }
}

/// Whether a path stays below what it is joined to.
pub(crate) fn is_inner(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

/// `supervisor.json`: who watches over a run, and how it stands by its word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Supervisor {
    pub process: ProcessIdentity,
    /// None: it waits.
    #[serde(default)]
    pub trainer: Option<ProcessIdentity>,
    /// Why the run has not started yet.
    #[serde(default)]
    pub waits: Option<String>,
    /// The GPUs it took.
    #[serde(default)]
    pub gpus: Vec<u32>,
    /// The machine it is on.
    #[serde(default)]
    pub host: String,
    /// In a job of Slurm's: its number.
    #[serde(default)]
    pub job: Option<String>,
}

impl Supervisor {
    pub(crate) const FILE: &str = "supervisor.json";

    pub fn read(run: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(run.join(Self::FILE)).ok()?).ok()
    }

    pub fn write(&self, run: &Path) -> Result<(), String> {
        let text = serde_json::to_vec(self).expect("only string keys");
        runlog::run_dir::write_renamed(&run.join(Self::FILE), &text)
            .map_err(|error| error.to_string())
    }
}

/// How a run stands, wherever it runs.
pub(crate) fn standing(run: &Path) -> Standing {
    cluster::Look::once(run)
}

/// How a run of this machine stands.
fn standing_here(run: &Path) -> Standing {
    if Exit::read(run).is_some() {
        return Standing::Ended;
    }
    let supervisor = Supervisor::read(run);
    if let Some(supervisor) = &supervisor
        && supervisor.process.lives()
    {
        return match &supervisor.waits {
            Some(why) => Standing::Queued { why: why.clone() },
            None => Standing::Running,
        };
    }
    // It may have written its last word while we looked.
    if Exit::read(run).is_some() {
        return Standing::Ended;
    }
    let trainer = supervisor.as_ref().and_then(|known| known.trainer.clone());
    if trainer.as_ref().is_some_and(ProcessIdentity::lives) {
        return Standing::Running;
    }
    let is_restarted = supervisor
        .as_ref()
        .is_some_and(|known| known.process.is_of_another_boot());
    let reason = if is_restarted {
        "the machine has restarted since"
    } else if supervisor.is_some() {
        "what watched over it was killed, and its process is gone"
    } else {
        "nothing watches over it, and it left no word"
    };
    Standing::Lost {
        reason: reason.to_owned(),
    }
}

/// Answers until the other side closes the line. What goes wrong with one request is said, and the next is heard.
pub fn serve(here: Here) -> io::Result<()> {
    let mut input = BufReader::new(io::stdin());
    // Shared with the thread that answers pings while files are streamed.
    let output = Arc::new(Mutex::new(io::stdout()));
    wire::greet(&mut *lock(&output), here.version)?;
    let Some((
        Ask::Open {
            protocol,
            folder,
            token,
        },
        _,
    )) = wire::receive::<Ask>(&mut input)?
    else {
        return Ok(());
    };
    if let Some(token) = token {
        cluster::ray::use_token(token);
    }
    if protocol != PROTOCOL {
        let reason = format!("it speaks protocol {PROTOCOL}, and not {protocol}");
        return say(&output, &Say::No { reason }, b"");
    }
    let folder = match Folder::open(&folder) {
        Ok(folder) => folder,
        Err(reason) => return say(&output, &Say::No { reason }, b""),
    };
    let host = runlog::run_dir::host_name();
    let opened = Say::Opened {
        version: here.version.to_owned(),
        host,
        packs: true,
    };
    say(&output, &opened, b"")?;
    let mut census = census::Census::default();
    while let Some((ask, _)) = wire::receive::<Ask>(&mut input)? {
        match ask {
            Ask::Stream { run, have, window } => {
                let run = match folder.run(&run) {
                    Ok(run) => run,
                    Err(reason) => {
                        say(&output, &Say::No { reason }, b"")?;
                        continue;
                    }
                };
                return stream::stream(&run, &have, window, input, output);
            }
            Ask::Control { run } => match folder.run(&run).and_then(|run| control::connect(&run)) {
                Ok(channel) => {
                    say(&output, &Say::Joined, b"")?;
                    return channel.join(input);
                }
                Err(reason) => say(&output, &Say::No { reason }, b"")?,
            },
            Ask::Put { blob, offset } => {
                let said = store::put(&folder, &blob, offset, &mut input);
                // Bytes of a refused file would be taken for requests.
                let is_broken = said.is_err();
                say(
                    &output,
                    &said.unwrap_or_else(|reason| Say::No { reason }),
                    b"",
                )?;
                if is_broken {
                    return Ok(());
                }
            }
            Ask::Get {
                run,
                path,
                offset,
                packs,
            } => {
                let sent = folder
                    .run(&run)
                    .and_then(|run| store::get(&run, &path, offset, packs, &output));
                if let Err(reason) = sent {
                    say(&output, &Say::No { reason }, b"")?;
                }
            }
            Ask::Census { most, known } => {
                say(&output, &census.answer(&folder, most, known), b"")?;
            }
            other => {
                let said = answer(&folder, here, other);
                say(
                    &output,
                    &said.unwrap_or_else(|reason| Say::No { reason }),
                    b"",
                )?;
            }
        }
    }
    Ok(())
}

fn answer(folder: &Folder, here: Here, ask: Ask) -> Result<Say, String> {
    match ask {
        Ask::Facts {
            tries_trainer,
            trainer,
            libraries,
        } => {
            let facts = facts::facts(
                folder,
                here,
                tries_trainer,
                trainer.as_deref(),
                libraries.as_deref(),
            );
            Ok(Say::Facts(Box::new(facts)))
        }
        Ask::Missing { blobs } => Ok(Say::Missing {
            partly: store::missing(folder, &blobs)?,
        }),
        Ask::Install { version, files } => store::install(folder, &version, &files),
        Ask::InstallBuilt { programs } => store::install_built(folder, &programs),
        Ask::Begin(begin) => begin::begin(folder, here, &begin),
        Ask::Submit { begins, scheduler } => cluster::submit(folder, here, &begins, &scheduler),
        Ask::Resume(asked) => again::resume(folder, here, &asked),
        Ask::Cluster { scheduler } => Ok(Say::Cluster(Box::new(cluster::facts(&scheduler)))),
        Ask::List { run, under } => Ok(Say::Listing {
            files: store::list(&folder.run(&run)?, &under)?,
        }),
        Ask::End { run, is_forced } => begin::end(&folder.run(&run)?, is_forced),
        Ask::Runs => Ok(Say::Runs { runs: runs(folder) }),
        Ask::Ping { sent_ms } => Ok(Say::Pong {
            sent_ms,
            at_ms: now_ms(),
        }),
        Ask::Ack { .. }
        | Ask::Open { .. }
        | Ask::Census { .. }
        | Ask::Stream { .. }
        | Ask::Control { .. }
        | Ask::Put { .. }
        | Ask::Get { .. }
        | Ask::Unknown => {
            Err("it does not know this request; put the same lathe on both sides".to_owned())
        }
    }
}

/// What `lathe doctor` wants to know of the machine that it is started on, whose runs lie in `runs_root`.
pub fn own_facts(here: Here, runs_root: &Path) -> wire::Facts {
    facts::of_this_machine(here, runs_root)
}

/// The runs here, newest first.
fn runs(folder: &Folder) -> Vec<RunThere> {
    let (runs, _) = runlog::run_dir::list(&folder.runs()).unwrap_or_default();
    runs.iter()
        .map(|run: &RunDir| RunThere {
            name: run.name().to_owned(),
            standing: standing(run.path()),
            exit: Exit::read(run.path()),
        })
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A thread that panicked while it wrote leaves a cut frame, which the other side takes for the end of the line.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn say(output: &Mutex<io::Stdout>, say: &Say, body: &[u8]) -> io::Result<()> {
    wire::send(&mut *lock(output), say, body)
}

pub(crate) fn now_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as u64
}

/// What a program file holds, of the program that asks.
fn own_program() -> (String, String) {
    let path = std::env::current_exe().unwrap_or_default();
    let hash = hash::blob_of(Path::new("/proc/self/exe"))
        .or_else(|_| hash::blob_of(&path))
        .map(|blob| blob.hash)
        .unwrap_or_default();
    (path.display().to_string(), hash)
}

/// Reads what is there as one line of text.
fn first_line(path: &Path) -> Option<String> {
    let mut line = String::new();
    BufReader::new(std::fs::File::open(path).ok()?)
        .read_line(&mut line)
        .ok()?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_out_is_not_inner() {
        for path in ["", "/etc/passwd", "..", "a/../../b", "../a", "./a"] {
            assert!(!is_inner(path), "{path}");
        }
        for path in ["a", "a/b.txt", "..a", "a b"] {
            assert!(is_inner(path), "{path}");
        }
    }

    #[test]
    fn a_run_whose_watcher_is_gone_is_lost_unless_it_left_a_word_or_its_process_lives() {
        let run = tempfile::tempdir().unwrap();
        let gone = ProcessIdentity {
            pid: std::process::id(),
            start_ticks: Some(1),
            boot_id: None,
        };
        let mut supervisor = Supervisor {
            process: gone.clone(),
            trainer: Some(gone.clone()),
            waits: None,
            gpus: Vec::new(),
            host: String::new(),
            job: None,
        };
        supervisor.write(run.path()).unwrap();
        assert!(matches!(standing(run.path()), Standing::Lost { .. }));
        supervisor.process.boot_id = Some("before".to_owned());
        supervisor.write(run.path()).unwrap();
        let Standing::Lost { reason } = standing(run.path()) else {
            panic!("it is lost");
        };
        assert_eq!(reason, "the machine has restarted since");
        supervisor.trainer = Some(ProcessIdentity::of(std::process::id()));
        supervisor.write(run.path()).unwrap();
        assert_eq!(standing(run.path()), Standing::Running);
        supervisor.process = ProcessIdentity::of(std::process::id());
        supervisor.waits = Some("for a GPU".to_owned());
        supervisor.write(run.path()).unwrap();
        assert!(matches!(standing(run.path()), Standing::Queued { .. }));
        std::fs::write(run.path().join("exit.json"), "{}").unwrap();
        assert!(
            matches!(standing(run.path()), Standing::Queued { .. }),
            "half a word is none"
        );
    }
}
