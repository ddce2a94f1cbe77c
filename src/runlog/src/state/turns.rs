//! Turns in the course of a run: where it was resumed, and where a guard stepped in. Marks for curves, lines for logs.

use serde::{Deserialize, Serialize};

use super::{AlarmRecord, RunState};
use crate::event::{EventKind, GuardDone};
use crate::number::Number;

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

/// What a guard saw, and what was then done; see [`EventKind::GuardTripped`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuardTrip {
    pub elapsed_ms: f64,
    pub guard: String,
    pub watched: String,
    /// Steps trained at that moment.
    pub step: u64,
    pub since_step: u64,
    pub value: Number,
    pub limit: Number,
    pub reason: String,
    pub relapse: u64,
    pub done: Vec<GuardDone>,
}

impl GuardTrip {
    /// Whether this alarm is the one that is recorded beside the trip and says the same.
    pub fn is_told_by(&self, alarm: &AlarmRecord) -> bool {
        alarm.step == Some(self.step)
            && alarm.name.strip_prefix("guard ") == Some(self.guard.as_str())
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

    /// Takes a `GuardTripped`; anything else changes nothing.
    pub(super) fn note_trip(&mut self, elapsed_ms: f64, kind: &EventKind) {
        if let EventKind::GuardTripped {
            guard,
            watched,
            step,
            since_step,
            value,
            limit,
            reason,
            relapse,
            done,
            ..
        } = kind
        {
            self.trips.push(GuardTrip {
                elapsed_ms,
                guard: guard.clone(),
                watched: watched.clone(),
                step: *step,
                since_step: *since_step,
                value: *value,
                limit: *limit,
                reason: reason.clone(),
                relapse: *relapse,
                done: done.clone(),
            });
        }
    }
}
