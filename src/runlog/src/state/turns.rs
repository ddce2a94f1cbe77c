//! Turns in the course of a run: where it was resumed. Marks for curves, lines for logs.

use serde::{Deserialize, Serialize};

use super::RunState;

/// The run went on in its own directory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Resume {
    pub elapsed_ms: f64,
    /// Steps trained in the weights that it went on from.
    pub from_step: u64,
    /// Steps that had ended after that, and are trained again.
    pub lost_steps: u64,
}

impl Resume {
    /// Until the log says more: it goes on where it stood.
    pub(super) fn at(elapsed_ms: f64, step: u64) -> Self {
        Self {
            elapsed_ms,
            from_step: step,
            lost_steps: 0,
        }
    }
}

impl RunState {
    /// `RunResumed` comes right after the `RunStarted` that counted the resume, unless that line is lost.
    pub(super) fn note_resume(&mut self, elapsed_ms: f64, from_step: u64, lost_steps: u64) {
        if self.resumes.is_empty() {
            self.resumes.push(Resume::at(elapsed_ms, from_step));
        }
        if let Some(resume) = self.resumes.last_mut() {
            resume.from_step = from_step;
            resume.lost_steps = lost_steps;
        }
    }
}
