//! Directories that show a run which lies elsewhere: where that is, how the copy stands, and how the run's process ended there.

use std::io;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{RunDir, RunDirError, boot_id, process_start_ticks, write_renamed};
use crate::disk;

/// Where a run lies of which this directory is only a copy. In `run.json`; runs of this machine have none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    /// A run of ours on another machine: `events.jsonl` and `log.txt` are copied byte by byte.
    Target {
        /// As in `targets.yaml`, or a host that OpenSSH knows.
        target: String,
        /// The run's directory there.
        path: String,
    },
    /// Another program's log, of which `events.jsonl` is a projection.
    Foreign { format: String, path: String },
    /// Of a newer program.
    #[serde(other)]
    Unknown,
}

impl Origin {
    /// The other machine, where it is one.
    pub fn target(&self) -> Option<&str> {
        match self {
            Self::Target { target, .. } => Some(target),
            Self::Foreign { .. } | Self::Unknown => None,
        }
    }
}

/// A process, told apart from a later one of the same number also after a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// Clock ticks from boot to its start.
    pub start_ticks: Option<u64>,
    pub boot_id: Option<String>,
}

impl ProcessIdentity {
    pub fn of(pid: u32) -> Self {
        Self {
            pid,
            start_ticks: process_start_ticks(pid),
            boot_id: boot_id(),
        }
    }

    /// Whether the machine has restarted since.
    pub fn is_of_another_boot(&self) -> bool {
        self.boot_id.is_some() && self.boot_id != boot_id()
    }

    /// Whether exactly this process still lives here.
    pub fn lives(&self) -> bool {
        !self.is_of_another_boot()
            && process_start_ticks(self.pid)
                .is_some_and(|ticks| self.start_ticks.is_none_or(|started| started == ticks))
    }
}

/// How the trainer's process ended: `exit.json`, written by what watched over it, also when the trainer itself could write nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// None when a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The kernel killed it because memory ran out.
    #[serde(default)]
    pub is_out_of_memory: bool,
    /// What happened and what to do, a sentence or two.
    pub reason: String,
    /// The last lines that it printed.
    #[serde(default)]
    pub last_words: Vec<String>,
    pub ended_at: Timestamp,
    #[serde(default)]
    pub host: String,
}

/// How a run stands on the machine it runs on, as that machine says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Standing {
    /// Waits for its turn or for a free GPU.
    Queued {
        why: String,
    },
    Running,
    /// Its process is over; `exit.json` says how.
    Ended,
    /// Nothing of it lives, and nothing says how it ended.
    Lost {
        reason: String,
    },
}

/// A keeper writes how the copy stands every two seconds, while it can.
const KEEPER_SILENCE: SignedDuration = SignedDuration::from_secs(10);

/// Whether the copy of a run is fresh: `mirror.json`, written by the one process that keeps the copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirror {
    /// The process that keeps it.
    pub keeper: ProcessIdentity,
    pub link: MirrorLink,
    /// The run, when it was last heard of.
    pub standing: Standing,
    /// When that was, by this machine's clock.
    pub heard_at: Option<Timestamp>,
    /// Something about the other machine that people should know: its disk is full.
    #[serde(default)]
    pub warning: Option<String>,
    /// Received since the keeper began, before ssh's compression.
    #[serde(default)]
    pub received_bytes: u64,
    /// It was told to go on when its log had so many bytes: an end before that is none.
    #[serde(default)]
    pub resumed_after: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum MirrorLink {
    Connecting,
    /// Only what a list shows of it is here, as it was when it was heard of; its log comes when somebody opens it.
    Listed,
    /// What is shown happened so long ago, measured over the last events.
    Live {
        behind_ms: u64,
    },
    /// What comes cannot be written here; it goes on when it can.
    Unwritten {
        since: Timestamp,
        reason: String,
    },
    /// Retried until somebody stops it.
    Disconnected {
        since: Timestamp,
        attempts: u32,
        reason: String,
    },
    /// The whole run is here.
    Complete,
}

fn seconds(since: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(since).as_secs().max(0)
}

impl MirrorLink {
    /// Since when nothing comes, or nothing can be kept of it, and why.
    pub fn stuck(&self) -> Option<(Timestamp, &str)> {
        match self {
            Self::Unwritten { since, reason } | Self::Disconnected { since, reason, .. } => {
                Some((*since, reason))
            }
            Self::Connecting | Self::Listed | Self::Live { .. } | Self::Complete => None,
        }
    }

    /// `live, 0.4 s behind`; `disconnected 12 s, retrying`.
    pub fn words(&self, now: Timestamp) -> String {
        match self {
            Self::Connecting => "connecting".to_owned(),
            Self::Listed => "its log is not here yet".to_owned(),
            Self::Live { behind_ms } => {
                format!("live, {:.1} s behind", *behind_ms as f64 / 1e3)
            }
            Self::Unwritten { since, .. } => {
                format!("not written here for {} s, retrying", seconds(*since, now))
            }
            Self::Disconnected { since, .. } => {
                format!("disconnected {} s, retrying", seconds(*since, now))
            }
            Self::Complete => "complete".to_owned(),
        }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), RunDirError> {
    let mut text = serde_json::to_vec_pretty(value).expect("only string keys");
    text.push(b'\n');
    write_renamed(path, &text)
}

impl Mirror {
    /// What a warning begins with that is about the disk of the other machine.
    pub const DISK_THERE: &str = "the disk there is full";

    /// How the copy stood when its keeper last said so; one whose keeper is gone is `Disconnected` since it was last heard of, and
    /// one whose living keeper can say nothing, since the disk here is full, is `Unwritten`. None: this directory is no copy, or nobody
    /// has kept it yet.
    pub fn read(run_dir: &RunDir) -> Option<Self> {
        let mut mirror: Self = read(&run_dir.path().join("mirror.json"))?;
        let hangs_on_keeper = !matches!(mirror.link, MirrorLink::Complete | MirrorLink::Listed);
        if matches!(
            mirror.link,
            MirrorLink::Connecting | MirrorLink::Live { .. } | MirrorLink::Unwritten { .. }
        ) && mirror.keeper.lives()
            && let Some(free) = disk::full(run_dir.path())
            && let Ok(written) = mirror_written(run_dir)
            && Timestamp::now().duration_since(written) > KEEPER_SILENCE
        {
            mirror.link = MirrorLink::Unwritten {
                since: written,
                reason: Self::no_room(run_dir.path(), free),
            };
        }
        if hangs_on_keeper && !mirror.keeper.lives() {
            let written = mirror_written(run_dir).unwrap_or_else(|_| Timestamp::now());
            mirror.link = MirrorLink::Disconnected {
                since: mirror.heard_at.unwrap_or(written),
                attempts: 0,
                reason: "nobody follows it from here".to_owned(),
            };
        }
        Some(mirror)
    }

    /// Whether a run elsewhere was told to go on, and nothing of that is in its log yet: the end that stands there is an earlier one.
    pub fn is_before_going_on(run_dir: &RunDir) -> bool {
        run_dir.origin().and_then(Origin::target).is_some()
            && Self::read(run_dir)
                .and_then(|mirror| mirror.resumed_after)
                .is_some_and(|bytes| {
                    std::fs::metadata(run_dir.events_path()).map_or(0, |log| log.len()) <= bytes
                })
    }

    /// Why a copy is not written any further.
    pub fn no_room(folder: &Path, free_bytes: u64) -> String {
        format!(
            "the disk of {} is full ({} KB left): free some space, and the copy goes on by itself; nothing is lost there",
            folder.display(),
            free_bytes >> 10
        )
    }

    pub fn write(&self, run_dir: &RunDir) -> Result<(), RunDirError> {
        write(&run_dir.path().join("mirror.json"), self)
    }
}

fn mirror_written(run_dir: &RunDir) -> io::Result<Timestamp> {
    let modified = std::fs::metadata(run_dir.path().join("mirror.json"))?.modified()?;
    Timestamp::try_from(modified).map_err(io::Error::other)
}

impl Exit {
    /// The name of the file in a run directory.
    pub const FILE: &str = "exit.json";
    /// The same of an earlier end, of a run that went on.
    pub const EARLIER_FILE: &str = "exit.before.json";

    /// None: the process goes on, or nothing watched over it.
    pub fn read(run_dir: &Path) -> Option<Self> {
        read(&run_dir.join(Self::FILE))
    }

    pub fn write(&self, run_dir: &Path) -> Result<(), RunDirError> {
        write(&run_dir.join(Self::FILE), self)
    }

    /// The run goes on: how it ended before is kept for people, and is its end no more.
    pub fn put_aside(run_dir: &Path) -> Result<(), RunDirError> {
        let path = run_dir.join(Self::FILE);
        match std::fs::rename(&path, run_dir.join(Self::EARLIER_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(RunDirError::io("put aside", &path)(error))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NewRun;
    use super::*;

    #[test]
    fn an_origin_of_a_newer_program_is_read_as_unknown() {
        let origin: Origin =
            serde_json::from_str(r#"{"kind":"satellite","orbit":{"height_km":400}}"#).unwrap();
        assert_eq!(origin, Origin::Unknown);
        assert_eq!(origin.target(), None);
    }

    #[test]
    fn a_process_of_another_boot_or_start_does_not_live_though_its_number_does() {
        let this = ProcessIdentity::of(std::process::id());
        assert!(this.lives());
        let other_boot = ProcessIdentity {
            boot_id: Some("another".to_owned()),
            ..this.clone()
        };
        assert!(other_boot.is_of_another_boot() && !other_boot.lives());
        let reused = ProcessIdentity {
            start_ticks: this.start_ticks.map(|ticks| ticks + 1),
            ..this
        };
        assert!(!reused.lives());
    }

    #[test]
    fn a_copy_whose_keeper_is_gone_is_disconnected_since_it_was_last_heard_of() {
        let root = tempfile::tempdir().unwrap();
        let run_dir = RunDir::create(root.path(), &NewRun::default()).unwrap();
        assert_eq!(Mirror::read(&run_dir), None);
        let heard_at = Timestamp::from_second(1_764_500_000).unwrap();
        let mut mirror = Mirror {
            keeper: ProcessIdentity::of(std::process::id()),
            link: MirrorLink::Live { behind_ms: 412 },
            standing: Standing::Running,
            heard_at: Some(heard_at),
            warning: None,
            received_bytes: 7,
            resumed_after: None,
        };
        mirror.write(&run_dir).unwrap();
        let read = Mirror::read(&run_dir).unwrap();
        assert_eq!(read, mirror);
        assert_eq!(read.link.words(heard_at), "live, 0.4 s behind");
        mirror.keeper.start_ticks = Some(1);
        mirror.write(&run_dir).unwrap();
        let link = Mirror::read(&run_dir).unwrap().link;
        let later = heard_at + SignedDuration::from_secs(12);
        assert_eq!(link.words(later), "disconnected 12 s, retrying");
        mirror.link = MirrorLink::Complete;
        mirror.write(&run_dir).unwrap();
        assert_eq!(Mirror::read(&run_dir).unwrap().link, MirrorLink::Complete);
    }
}
