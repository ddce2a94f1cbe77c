//! Nothing ends any more.

use super::detectors::{Seen, fresh};
use super::latch::{At, Window};
use super::thresholds::{STALL, STALL_FLOOR_MS};
use super::{Detector, Raised, Severity, Threshold, short};
use crate::event::Phase;
use crate::series::XAxis;
use crate::state::RunState;

/// Open waits are not in the log, since a span is written when it ends: what can be seen is that none does. The trainer's
/// host samples, one a second, say how late it is.
#[derive(Debug)]
pub(super) struct StalledLane {
    seen: Seen,
    last_ms: f64,
    step_ms: Window,
}

impl Default for StalledLane {
    fn default() -> Self {
        Self {
            seen: Seen::default(),
            last_ms: f64::NAN,
            step_ms: Window::new(64),
        }
    }
}

impl Detector for StalledLane {
    fn threshold(&self) -> &'static Threshold {
        &STALL
    }

    fn check(&mut self, state: &RunState) -> Vec<Raised> {
        let series = STALL.metrics.iter().find_map(|name| state.series.get(name));
        let Some(series) = series else {
            return Vec::new();
        };
        for i in fresh(&mut self.seen, series) {
            let now = series.x(i, XAxis::Time);
            self.step_ms.push(now - self.last_ms);
            self.last_ms = now;
        }
        let is_training =
            state.phase == Some(Phase::Train) && state.ended.is_none() && !state.is_paused;
        let Some(longest_ms) = self.step_ms.max().filter(|_| is_training) else {
            return Vec::new();
        };
        let span = state.recent_spans.back();
        let ends = [
            Some(self.last_ms),
            span.map(|span| span.end_ms),
            state.syncs.last().map(|sync| sync.elapsed_ms),
            state.evals.last().map(|eval| eval.elapsed_ms),
            state
                .checkpoints
                .last()
                .map(|checkpoint| checkpoint.elapsed_ms),
            state.resumes.last().map(|resume| resume.elapsed_ms),
        ];
        let progress_ms = ends.into_iter().flatten().fold(f64::NEG_INFINITY, f64::max);
        let silent_ms = state.elapsed_ms - progress_ms;
        if silent_ms.is_nan() || silent_ms < (STALL.raise * longest_ms).max(STALL_FLOOR_MS) {
            return Vec::new();
        }
        let last = span.map_or(String::new(), |span| {
            let name = if span.name.is_empty() {
                span.lane.name()
            } else {
                &span.name
            };
            let step = span
                .step
                .map_or(String::new(), |step| format!(" of step {step}"));
            format!("; the last thing to end was {name}{step}")
        });
        vec![Raised {
            subject: span.map_or("step", |span| span.lane.name()).to_owned(),
            severity: Severity::Critical,
            since: At {
                step: state.step,
                elapsed_ms: progress_ms,
            },
            message: format!(
                "nothing has ended for {} s, and the longest of the last steps took {} s{last}",
                short(silent_ms / 1e3),
                short(longest_ms / 1e3)
            ),
        }]
    }
}
