//! Is a run alive?

use std::time::{Duration, SystemTime};

use crate::event::RunStatus;
use crate::run_dir::{
    Exit, Mirror, MirrorLink, Origin, RunDir, Standing, boot_id, host_name, process_start_ticks,
};

/// How long a run on another host may be silent before it is presumed dead. It writes a host sample each second, but a
/// network file system may hold writes back, and a suspended job comes back; ten minutes is what W&B's LEET presumes too.
pub const SILENCE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness {
    /// Its process lives, or (on another host) it wrote lately.
    Running,
    /// Every step was trained.
    Finished,
    /// Stopped on request.
    Stopped,
    /// Ended by an error.
    Failed { reason: String },
    /// It never said that it ended, and cannot be running.
    PresumedDead { reason: String },
    /// Another tracker's run that was not written to lately and of which no end is known: most of their files tell none.
    Silent { reason: String },
}

impl Liveness {
    /// One word for a table: `running`, `finished`, `stopped`, `failed`, `dead`, `silent`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => RunStatus::Completed.word(),
            Self::Stopped => RunStatus::Stopped.word(),
            Self::Failed { .. } => RunStatus::Failed.word(),
            Self::PresumedDead { .. } => "dead",
            Self::Silent { .. } => "silent",
        }
    }

    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Failed { reason } | Self::PresumedDead { reason } | Self::Silent { reason } => {
                Some(reason)
            }
            _ => None,
        }
    }
}

/// The one word for how a run stands, on every screen: `running`, `paused`, `finished`, `stopped`, `failed`, `dead`, `silent`.
pub fn word(liveness: &Liveness, is_paused: bool) -> &'static str {
    if is_paused && *liveness == Liveness::Running {
        return "paused";
    }
    liveness.word()
}

/// Whether a run lives, from its end event if there is one, else from its process, else from its silence.
///
/// Of a copy of a run elsewhere the other machine decides, as it was last heard. On this host the process decides: same boot, same pid, same start time. On another host the age of the last write does.
/// `now` is taken as an argument so that a test can choose it.
pub fn liveness(run_dir: &RunDir, end: Option<(RunStatus, &str)>, now: SystemTime) -> Liveness {
    let end = end.filter(|_| !Mirror::is_before_going_on(run_dir));
    if let Some((status, reason)) = end {
        if status == RunStatus::Stopped && waits_to_go_on(run_dir) {
            return Liveness::Running;
        }
        return match status {
            RunStatus::Completed => Liveness::Finished,
            RunStatus::Stopped => Liveness::Stopped,
            RunStatus::Failed | RunStatus::Other => Liveness::Failed {
                reason: reason.to_owned(),
            },
        };
    }
    let info = run_dir.info();
    if let Some(Origin::Target { .. }) = info.origin {
        return liveness_there(run_dir);
    }
    if let Some(format) = info.foreign_format() {
        // The projection's log is as old as the newest thing in its source.
        let silent = silence(run_dir, now);
        return if silent > SILENCE {
            Liveness::Silent {
                reason: format!(
                    "its {format} log tells no end, and was last written {} ago",
                    age(silent)
                ),
            }
        } else {
            Liveness::Running
        };
    }
    if info.host == host_name() {
        if info.boot_id.is_some() && info.boot_id != boot_id() {
            return Liveness::PresumedDead {
                reason: format!("{} has restarted since", info.host),
            };
        }
        let lives = process_start_ticks(info.pid).is_some_and(|ticks| {
            info.process_start_ticks
                .is_none_or(|started| started == ticks)
        });
        return if lives {
            Liveness::Running
        } else {
            Liveness::PresumedDead {
                reason: format!("process {} is gone and left no end event", info.pid),
            }
        };
    }
    let silent = silence(run_dir, now);
    if silent > SILENCE {
        Liveness::PresumedDead {
            reason: format!(
                "{} has written nothing for {} min",
                info.host,
                silent.as_secs() / 60
            ),
        }
    } else {
        Liveness::Running
    }
}

/// A run elsewhere that was stopped, and is not over by the other machine's word: it stands in a queue there to go on, or its process
/// is still ending.
fn waits_to_go_on(run_dir: &RunDir) -> bool {
    matches!(run_dir.info().origin, Some(Origin::Target { .. }))
        && Exit::read(run_dir.path()).is_none()
        && Mirror::read(run_dir).is_some_and(|mirror| match mirror.standing {
            Standing::Queued { .. } => true,
            Standing::Running => matches!(mirror.link, MirrorLink::Live { .. }),
            Standing::Ended | Standing::Lost { .. } => false,
        })
}

/// Of a copy: what the other machine last said. A run is not dead because the line is.
fn liveness_there(run_dir: &RunDir) -> Liveness {
    if let Some(exit) = Exit::read(run_dir.path()) {
        return Liveness::PresumedDead {
            reason: exit.reason,
        };
    }
    match Mirror::read(run_dir).map(|mirror| mirror.standing) {
        Some(Standing::Lost { reason }) => Liveness::PresumedDead { reason },
        Some(Standing::Ended) => Liveness::PresumedDead {
            reason: "its process ended and left no word".to_owned(),
        },
        Some(Standing::Queued { .. } | Standing::Running) | None => Liveness::Running,
    }
}

/// How long ago its log was written to, or the run began.
fn silence(run_dir: &RunDir, now: SystemTime) -> Duration {
    let wrote = std::fs::metadata(run_dir.events_path())
        .and_then(|metadata| metadata.modified())
        .unwrap_or_else(|_| {
            let started_ms = run_dir.info().started_at.as_millisecond().max(0);
            SystemTime::UNIX_EPOCH + Duration::from_millis(started_ms as u64)
        });
    now.duration_since(wrote).unwrap_or_default()
}

/// `12 min`, `5 h`, `40 d`
fn age(age: Duration) -> String {
    let minutes = age.as_secs() / 60;
    match minutes {
        0..120 => format!("{minutes} min"),
        120..2880 => format!("{} h", minutes / 60),
        _ => format!("{} d", minutes / 1440),
    }
}
