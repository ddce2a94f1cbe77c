//! Is a run alive? And what a list of runs shows of each without reading its whole log.

use std::io;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventKind, RunStatus};
use crate::number::Values;
use crate::run_dir::{
    Exit, Mirror, MirrorLink, Origin, RunDir, RunDirError, Standing, boot_id, host_name,
    process_start_ticks, write_renamed,
};
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

/// What the two ends of a log tell: enough for a row of a list, in a tenth of a millisecond.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Glance {
    pub mode: String,
    pub total_steps: u64,
    /// Last step in sight; 0 when there is none.
    pub step: u64,
    pub elapsed_ms: f64,
    pub end: Option<(RunStatus, i32, String)>,
    /// Told by whoever shows it: it is another one a moment later.
    #[serde(skip, default = "unknown")]
    pub liveness: Liveness,
    /// It was told to train no further step; it then is [`Liveness::Running`] all the same.
    pub is_paused: bool,
    /// Values of the newest step and the newest evaluation in sight.
    pub last: Values,
}

fn unknown() -> Liveness {
    Liveness::Running
}

impl Glance {
    /// The name of the file that a copy has in place of a log: what the other machine told of it.
    pub const FILE: &str = "glance.json";

    /// Writes what the other machine told of a run whose log is not here.
    pub fn write(&self, run_dir: &RunDir) -> Result<(), RunDirError> {
        let text = serde_json::to_vec(self).expect("only string keys");
        write_renamed(&run_dir.path().join(Self::FILE), &text)
    }

    /// As the other machine told it; None: this is no copy, or its log has come.
    fn told(run_dir: &RunDir) -> Option<Self> {
        run_dir.info().origin.as_ref()?.target()?;
        let has_log = std::fs::metadata(run_dir.events_path()).is_ok_and(|found| found.len() > 0);
        if has_log {
            return None;
        }
        let text = std::fs::read(run_dir.path().join(Self::FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Of a run of which nothing was read.
    pub(crate) fn unread() -> Self {
        Self {
            mode: String::new(),
            total_steps: 0,
            step: 0,
            elapsed_ms: 0.0,
            end: None,
            liveness: Liveness::Running,
            is_paused: false,
            last: Values::new(),
        }
    }

    /// One word for a table: [`Liveness::word`], or `paused`.
    pub fn word(&self) -> &'static str {
        word(&self.liveness, self.is_paused)
    }
}

/// Bytes at the start of the log in which `RunStarted` is looked for.
const HEAD_BYTES: usize = 16 << 10;
/// Bytes at its end that are read first, and at most: hundreds of rollouts may end between two steps, and a run that is
/// paused overnight writes a host sample each second.
const TAIL_BYTES: [u64; 4] = [32 << 10, 256 << 10, 1 << 20, 16 << 20];

/// Reads the ends of a log; only the few lines that tell something are parsed.
pub fn glance(run_dir: &RunDir, now: SystemTime) -> io::Result<Glance> {
    let mut glance = match Glance::told(run_dir) {
        Some(told) => told,
        None => of_log(run_dir)?,
    };
    let end = glance
        .end
        .as_ref()
        .map(|(status, _, reason)| (*status, reason.as_str()));
    glance.liveness = liveness(run_dir, end, now);
    Ok(glance)
}

/// All but whether it lives.
fn of_log(run_dir: &RunDir) -> io::Result<Glance> {
    let path = run_dir.events_path();
    let mut glance = Glance::unread();
    for bytes in TAIL_BYTES {
        let (text, is_whole) = tail::last_lines(&path, bytes)?;
        glance = Glance::unread();
        let is_enough = look_back(&text, &mut glance);
        if is_enough || is_whole {
            break;
        }
    }
    if glance.total_steps == 0 && glance.mode.is_empty() {
        let head = tail::read_range(&path, 0, HEAD_BYTES)?;
        let start = head
            .split(|byte| *byte == b'\n')
            .filter(|line| tail::event_name(line) == Some(b"run_started"))
            .find_map(|line| serde_json::from_slice::<Event>(line).ok());
        if let Some(Event {
            kind: EventKind::RunStarted {
                mode, total_steps, ..
            },
            ..
        }) = start
        {
            (glance.mode, glance.total_steps) = (mode, total_steps);
        }
    }
    if let Some(total_steps) = run_dir.info().total_steps {
        glance.total_steps = total_steps;
    }
    Ok(glance)
}

/// Takes what lines tell from the newest back; true when a step was among them, and whether the run is paused.
fn look_back(text: &[u8], glance: &mut Glance) -> bool {
    let (mut has_step, mut has_eval, mut has_start, mut has_time) = (false, false, false, false);
    // Decided by the newest command; or, since a paused run trains a step only when told to, by two steps without one.
    let mut has_pause = false;
    let mut end = text.len();
    let starts = memchr::memrchr_iter(b'\n', text)
        .map(|at| at + 1)
        .chain([0]);
    for start in starts {
        let line = &text[start..end];
        end = start.saturating_sub(1);
        let is_wanted = match tail::event_name(line) {
            Some(b"step_ended") if has_step => {
                has_pause = true;
                false
            }
            Some(b"step_ended" | b"run_resumed") => !has_step,
            Some(b"control_applied") => !has_pause,
            Some(b"eval_ended") => !has_eval,
            Some(b"run_started" | b"run_ended") => !has_start,
            Some(_) => !has_time,
            // Not as the recorder writes it, or no event.
            None => !line.is_empty(),
        };
        if !is_wanted {
            continue;
        }
        let Ok(event) = serde_json::from_slice::<Event>(line) else {
            continue;
        };
        if !has_time {
            has_time = true;
            glance.elapsed_ms = event.elapsed_ms;
        }
        match event.kind {
            EventKind::StepEnded { step, values, .. } if !has_step => {
                has_step = true;
                if glance.end.is_none() {
                    glance.step = step;
                }
                glance.last.extend(values);
            }
            // What came before, of later steps, is superseded.
            EventKind::RunResumed { from_step, .. } if !has_step => {
                has_step = true;
                if glance.end.is_none() {
                    glance.step = from_step;
                }
            }
            EventKind::EvalEnded { values, .. } if !has_eval => {
                has_eval = true;
                for (name, value) in values {
                    glance.last.entry(name).or_insert(value);
                }
            }
            EventKind::RunStarted {
                mode, total_steps, ..
            } if !has_start => {
                has_start = true;
                has_pause = true;
                (glance.mode, glance.total_steps) = (mode, total_steps);
            }
            EventKind::RunEnded {
                status,
                exit_code,
                reason,
                steps,
            } if !has_start && glance.end.is_none() => {
                glance.step = steps;
                glance.end = Some((status, exit_code, reason));
                has_pause = true;
            }
            EventKind::ControlApplied { command, .. } if !has_pause => match command.as_str() {
                "pause" | "step" => {
                    has_pause = true;
                    glance.is_paused = true;
                }
                "resume" => has_pause = true,
                _ => {}
            },
            _ => {}
        }
        if has_step && has_eval && has_start && has_pause {
            break;
        }
    }
    has_step && has_pause
}
