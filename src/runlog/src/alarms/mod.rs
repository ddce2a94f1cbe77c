//! Alarms over a run: what goes wrong, since when, and what had changed before.
//!
//! ```text
//!  RunState ─► Alarms::follow ─► a Detector each: new points only ─► Finding {since, severity, message, changes}
//! ```
//! Pure: no clock, no file; a replay raises what the live run raised. A detector costs the new points of its metric and
//! nothing while there are none. Every threshold is a row of [`THRESHOLDS`], with its reason. An alarm is raised after some
//! bad points in a row and ends after some good ones, so that none flaps.

mod changes;
mod detectors;
mod hacking;
mod latch;
mod quality;
mod recording;
mod reward;
mod stall;
#[cfg(test)]
mod tests;
mod thresholds;

use std::fmt;

pub use changes::Change;
pub use thresholds::{THRESHOLDS, Threshold};

use crate::state::RunState;
use thresholds::{HACKING, NON_FINITE, QUALITY};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Look at it.
    Warning,
    /// The run is lost or losing what it learned unless something is done.
    Critical,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The detector's name: `kl_blow_up`.
    pub name: &'static str,
    /// The metric, lane or part it is about.
    pub subject: String,
    pub severity: Severity,
    /// First bad point.
    pub since_step: u64,
    pub since_ms: f64,
    /// What is seen, with numbers: `actor/ppo_kl is 0.31, 12 times its level before (0.026)`.
    pub message: String,
    /// What had happened before it began, newest first: the last control change, guard, resume, phase, checkpoint and evaluation.
    pub what_changed: Vec<Change>,
    /// When it ended; None while it goes on.
    pub until_ms: Option<f64>,
}

/// What a detector sees now.
#[derive(Debug, Clone, PartialEq)]
struct Raised {
    subject: String,
    severity: Severity,
    since: latch::At,
    message: String,
}

/// Looks for one thing.
trait Detector: fmt::Debug + Send {
    /// Its row in the table of thresholds.
    fn threshold(&self) -> &'static Threshold;
    /// Takes what is new in the state; gives what is raised now.
    fn check(&mut self, state: &RunState) -> Vec<Raised>;
}

/// Limits that a run's experiment sets; a detector without one goes by the trend.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Of a KL guard, nats per token: reached, it is an alarm at once.
    pub kl_nats: Option<f64>,
}

/// Findings that ended and are still listed.
const MOST_PAST: usize = 200;

/// All detectors over one run, and what they have found.
#[derive(Debug)]
pub struct Alarms {
    limits: Limits,
    detectors: Vec<Box<dyn Detector>>,
    active: Vec<Finding>,
    past: Vec<Finding>,
    /// Events of the state at the last look: fewer means another state.
    events: u64,
    /// Only these detectors; None: all.
    only: Option<Vec<String>>,
}

impl Alarms {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            detectors: detectors::all(limits),
            active: Vec::new(),
            past: Vec::new(),
            events: 0,
            only: None,
        }
    }

    /// Only the detectors of these names.
    pub fn only(names: Vec<String>, limits: Limits) -> Self {
        let mut alarms = Self::new(limits);
        alarms
            .detectors
            .retain(|detector| names.iter().any(|name| name == detector.threshold().name));
        alarms.only = Some(names);
        alarms
    }

    /// Whether these detectors look at a metric of the steps: at their own, and at the reward that says what a change means.
    pub fn reads(names: &[String], metric: &str) -> bool {
        let watches = |threshold: &&Threshold| {
            // A number that is not finite is looked for everywhere.
            threshold.name == NON_FINITE.name
                || threshold.metrics.contains(&metric)
                || (threshold.name == HACKING.name && hacking::reads(metric))
                || (threshold.name == QUALITY.name && quality::reads(metric))
        };
        reward::reads(metric)
            || THRESHOLDS
                .iter()
                .filter(|threshold| names.iter().any(|name| name == threshold.name))
                .any(|threshold| watches(&threshold))
    }

    /// Brings the alarms up to the state; true when a finding came or went. Call it after some events, not after each: it
    /// takes all that are new. A state with fewer events than the last (a replay that was wound back) starts over.
    pub fn follow(&mut self, state: &RunState) -> bool {
        let before = self.active.len() + self.past.len();
        if state.events < self.events {
            *self = match self.only.take() {
                Some(names) => Self::only(names, self.limits),
                None => Self::new(self.limits),
            };
        }
        self.events = state.events;
        let mut ended = Vec::new();
        let mut active = Vec::new();
        let mut is_new = false;
        for detector in &mut self.detectors {
            let name = detector.threshold().name;
            for raised in detector.check(state) {
                let known = self
                    .active
                    .iter()
                    .position(|found| found.name == name && found.subject == raised.subject);
                // Raised again at another place between two looks: the old one has ended.
                let known = known.map(|index| self.active.swap_remove(index));
                let going_on = known.and_then(|known| {
                    if known.since_ms.to_bits() == raised.since.elapsed_ms.to_bits() {
                        return Some(known);
                    }
                    ended.push(known);
                    None
                });
                is_new |= going_on.is_none();
                active.push(match going_on {
                    Some(known) => Finding {
                        message: raised.message,
                        severity: raised.severity,
                        ..known
                    },
                    None => Finding {
                        name,
                        subject: raised.subject,
                        severity: raised.severity,
                        since_step: raised.since.step,
                        since_ms: raised.since.elapsed_ms,
                        message: raised.message,
                        what_changed: changes::before(state, raised.since.elapsed_ms),
                        until_ms: None,
                    },
                });
            }
        }
        ended.append(&mut self.active);
        for mut finding in ended {
            finding.until_ms = Some(state.elapsed_ms);
            self.past.push(finding);
        }
        let excess = self.past.len().saturating_sub(MOST_PAST);
        self.past.drain(..excess);
        // The worst first, then the oldest.
        active.sort_by(|a, b| {
            (b.severity, a.since_ms)
                .partial_cmp(&(a.severity, b.since_ms))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        self.active = active;
        is_new || self.active.len() + self.past.len() + excess != before
    }

    /// What is wrong now: the worst first, then the oldest.
    pub fn active(&self) -> &[Finding] {
        &self.active
    }

    /// What was wrong and has ended, in the order of their ends; the latest 200.
    pub fn past(&self) -> &[Finding] {
        &self.past
    }
}

/// Three significant digits, as screens show numbers.
fn short(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && size.is_finite() && !(1e-3..1e5).contains(&size) {
        return format!("{value:.2e}");
    }
    let digits = match size {
        _ if size >= 100.0 || size == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 2 - size.log10().floor() as i32,
    };
    format!("{value:.*}", digits.max(0) as usize)
}
