//! What a list of runs shows of each without reading its whole log.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::liveness::{Liveness, liveness, word};
use crate::event::{Event, EventKind, Phase, RunStatus};
use crate::number::Values;
use crate::run_dir::{RunDir, RunDirError, write_renamed};
use crate::tail;

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

/// How far from the end of a log its newest evaluation is sought: some steps' rollouts lie in between, or twenty steps' of them.
const EVALUATION_BYTES: u64 = 4 << 20;
/// Of these, how many are read at a time.
const BLOCK_BYTES: u64 = 512 << 10;

/// Reads the ends of a log; only the few lines that tell something are parsed. An evaluation may lie further back than it
/// looks: see [`Sight`].
pub fn glance(run_dir: &RunDir, now: SystemTime) -> io::Result<Glance> {
    let glance = match Glance::told(run_dir) {
        Some(told) => told,
        None => of_log(run_dir)?.glance,
    };
    Ok(alive(glance, run_dir, now))
}

/// Glances at one log again and again, as it grows. Each has the log's newest evaluation too, which is sought once, and then
/// only in what was written since.
#[derive(Debug, Default)]
pub struct Sight {
    evaluation: Values,
    /// Offset in the log up to which `evaluation` is the newest.
    seen: u64,
}

impl Sight {
    /// As [`glance`], with the newest evaluation of the last 4 MiB.
    pub fn glance(&mut self, run_dir: &RunDir, now: SystemTime) -> io::Result<Glance> {
        if let Some(told) = Glance::told(run_dir) {
            return Ok(alive(told, run_dir, now));
        }
        let mut found = of_log(run_dir)?;
        if found.end < self.seen {
            // Another log has taken its place.
            *self = Self::default();
        }
        if let Some(values) = found.evaluation.take() {
            self.evaluation = values;
        } else {
            let from = self.seen.max(found.end.saturating_sub(EVALUATION_BYTES));
            let newer = newest_evaluation(&run_dir.events_path(), from, found.from)?;
            if let Some(values) = newer {
                self.evaluation = values;
            }
            for (name, value) in &self.evaluation {
                found.glance.last.entry(name.clone()).or_insert(*value);
            }
        }
        self.seen = found.end;
        Ok(alive(found.glance, run_dir, now))
    }
}

fn alive(mut glance: Glance, run_dir: &RunDir, now: SystemTime) -> Glance {
    let end = glance
        .end
        .as_ref()
        .map(|(status, _, reason)| (*status, reason.as_str()));
    glance.liveness = liveness(run_dir, end, now);
    glance
}

/// What the ends of a log tell.
struct Ends {
    /// All but whether the run lives.
    glance: Glance,
    /// Values of the newest evaluation that was seen; they are in `glance` too.
    evaluation: Option<Values>,
    /// Where what was looked through begins.
    from: u64,
    /// Where its newest whole line ends.
    end: u64,
}

fn of_log(run_dir: &RunDir) -> io::Result<Ends> {
    let path = run_dir.events_path();
    let mut glance = Glance::unread();
    let mut evaluation = None;
    let (mut from, mut end) = (0, 0);
    for bytes in TAIL_BYTES {
        let lines = tail::last_lines(&path, bytes)?;
        (from, end) = (lines.from, lines.whole_end());
        (glance, evaluation) = (Glance::unread(), None);
        let is_enough = look_back(&lines.text, &mut glance, &mut evaluation);
        if is_enough || from == 0 {
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
    Ok(Ends {
        glance,
        evaluation,
        from,
        end,
    })
}

/// Values of the newest evaluation that begins between two offsets of a log.
fn newest_evaluation(path: &Path, from: u64, to: u64) -> io::Result<Option<Values>> {
    const MARK: &[u8] = b"\"event\":\"eval_ended\"";
    let mut end = to;
    while end > from {
        let start = from.max(end.saturating_sub(BLOCK_BYTES));
        // A mark may lie over the block's edge.
        let text = tail::read_range(path, start, (end - start) as usize + MARK.len() - 1)?;
        // Forwards, since that is vectorised.
        let marks: Vec<usize> = memchr::memmem::find_iter(&text, MARK).collect();
        for at in marks.into_iter().rev() {
            let line = tail::line_around(path, start + at as u64)?;
            if let Ok(Event {
                kind: EventKind::EvalEnded { values, .. },
                ..
            }) = serde_json::from_slice(&line)
            {
                return Ok(Some(values));
            }
        }
        end = start;
    }
    Ok(None)
}

/// Takes what lines tell from the newest back; true when a step was among them, and whether the run is paused.
fn look_back(text: &[u8], glance: &mut Glance, evaluation: &mut Option<Values>) -> bool {
    let (mut has_step, mut has_eval, mut has_start, mut has_time) = (false, false, false, false);
    // Decided by the newest command; or, since a paused run trains a step only when told to, by two steps without one.
    let mut has_pause = false;
    let mut goes_on = false;
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
            Some(b"run_started" | b"run_ended" | b"phase_changed") => !has_start,
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
                for (name, value) in &values {
                    glance.last.entry(name.clone()).or_insert(*value);
                }
                *evaluation = Some(values);
            }
            EventKind::RunStarted {
                mode, total_steps, ..
            } if !has_start => {
                has_start = true;
                has_pause = true;
                (glance.mode, glance.total_steps) = (mode, total_steps);
            }
            // The first word of a process that goes on with a run that had ended.
            EventKind::PhaseChanged {
                phase: Phase::Setup,
            } => goes_on = true,
            EventKind::RunEnded {
                status,
                exit_code,
                reason,
                steps,
            } if !has_start && !goes_on && glance.end.is_none() => {
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
