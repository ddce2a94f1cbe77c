//! Is a run alive? And what a list of runs shows of each without reading its whole log.

use std::io::{self, BufRead, BufReader, Read};
use std::time::{Duration, SystemTime};

use crate::event::{Event, EventKind, RunStatus};
use crate::run_dir::{RunDir, boot_id, host_name, process_start_ticks};
use crate::tail;

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
}

impl Liveness {
    /// One word for a table: `running`, `finished`, `stopped`, `failed`, `dead`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed { .. } => "failed",
            Self::PresumedDead { .. } => "dead",
        }
    }

    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Failed { reason } | Self::PresumedDead { reason } => Some(reason),
            _ => None,
        }
    }
}

/// Whether a run lives, from its end event if there is one, else from its process, else from its silence.
///
/// On this host the process decides: same boot, same pid, same start time. On another host the age of the last write does.
/// `now` is taken as an argument so that a test can choose it.
pub fn liveness(run_dir: &RunDir, end: Option<(RunStatus, &str)>, now: SystemTime) -> Liveness {
    if let Some((status, reason)) = end {
        return match status {
            RunStatus::Completed => Liveness::Finished,
            RunStatus::Stopped => Liveness::Stopped,
            RunStatus::Failed | RunStatus::Other => Liveness::Failed {
                reason: reason.to_owned(),
            },
        };
    }
    let info = run_dir.info();
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
    let wrote = std::fs::metadata(run_dir.events_path())
        .and_then(|metadata| metadata.modified())
        .unwrap_or_else(|_| {
            SystemTime::UNIX_EPOCH
                + Duration::from_millis(info.started_at.as_millisecond().max(0) as u64)
        });
    let silent = now.duration_since(wrote).unwrap_or_default();
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

/// What the first lines and the last 64 KiB of a log tell: enough for a row of a list, in a fraction of a millisecond.
#[derive(Debug, Clone, PartialEq)]
pub struct Glance {
    pub mode: String,
    pub total_steps: u64,
    /// Last step in sight; 0 when there is none.
    pub step: u64,
    pub elapsed_ms: f64,
    pub end: Option<(RunStatus, i32, String)>,
    pub liveness: Liveness,
    /// Newest value of each step and evaluation metric in sight.
    pub last: crate::number::Values,
}

/// Bytes at each end of the log that a glance reads.
const HEAD_BYTES: u64 = 16 << 10;
const TAIL_BYTES: u64 = 64 << 10;

pub fn glance(run_dir: &RunDir, now: SystemTime) -> io::Result<Glance> {
    let path = run_dir.events_path();
    let mut glance = Glance {
        mode: String::new(),
        total_steps: 0,
        step: 0,
        elapsed_ms: 0.0,
        end: None,
        liveness: Liveness::Running,
        last: crate::number::Values::new(),
    };
    let head: Vec<Event> = match std::fs::File::open(&path) {
        Ok(file) => BufReader::new(file.take(HEAD_BYTES))
            .split(b'\n')
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_slice(&line).ok())
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    for event in head.iter().chain(&tail::last_events(&path, TAIL_BYTES)?) {
        glance.elapsed_ms = glance.elapsed_ms.max(event.elapsed_ms);
        match &event.kind {
            EventKind::RunStarted {
                mode, total_steps, ..
            } => {
                glance.mode.clone_from(mode);
                glance.total_steps = *total_steps;
                glance.end = None;
            }
            EventKind::StepEnded { step, values, .. } => {
                glance.step = *step;
                glance.last.extend(values.clone());
            }
            EventKind::EvalEnded { values, .. } => glance.last.extend(values.clone()),
            EventKind::RunEnded {
                status,
                exit_code,
                reason,
                steps,
            } => {
                glance.step = *steps;
                glance.end = Some((*status, *exit_code, reason.clone()));
            }
            _ => {}
        }
    }
    let end = glance
        .end
        .as_ref()
        .map(|(status, _, reason)| (*status, reason.as_str()));
    glance.liveness = liveness(run_dir, end, now);
    Ok(glance)
}
