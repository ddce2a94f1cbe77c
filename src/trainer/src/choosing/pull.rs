//! A pull between its choice and its outcome.

use ::bandit::Outcome;
use serde::{Deserialize, Serialize};

/// A choice that holds for some steps, and then until what it brought is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenPull {
    number: u64,
    /// Index of the candidate.
    arm: usize,
    first_step: u64,
    /// None: it is under way.
    last_step: Option<u64>,
    rollouts: u64,
    timed_out: u64,
    missing: u64,
    loss_sum: f64,
    losses: u64,
    /// With people; None: not measured yet.
    agreement: Option<f64>,
}

/// What a pull brought.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Brought {
    value: f64,
    /// Most of its scores were the arm's default.
    is_timed_out: bool,
    /// No rollout had a score, so the arm trained nothing.
    is_missing: bool,
}

impl Brought {
    /// None: nothing.
    pub fn value(self) -> Option<f64> {
        (self.value.is_finite() && !self.is_missing).then_some(self.value)
    }

    pub fn outcome(self) -> Outcome {
        match self.value() {
            None => Outcome::Missing,
            Some(default) if self.is_timed_out => Outcome::TimedOut { default },
            Some(value) => Outcome::Value(value),
        }
    }
}

impl OpenPull {
    pub fn new(number: u64, arm: usize, first_step: u64) -> Self {
        Self {
            number,
            arm,
            first_step,
            last_step: None,
            rollouts: 0,
            timed_out: 0,
            missing: 0,
            loss_sum: 0.0,
            losses: 0,
            agreement: None,
        }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn arm(&self) -> usize {
        self.arm
    }

    pub fn first_step(&self) -> u64 {
        self.first_step
    }

    pub fn last_step(&self) -> Option<u64> {
        self.last_step
    }

    pub fn is_under_way(&self) -> bool {
        self.last_step.is_none()
    }

    /// A rollout that its arm was asked about.
    pub fn saw(&mut self, is_timed_out: bool, is_missing: bool) {
        self.rollouts += 1;
        self.timed_out += u64::from(is_timed_out);
        self.missing += u64::from(is_missing);
    }

    /// A step of it; None: there was nothing to train on.
    pub fn trained(&mut self, loss: Option<f64>) {
        if let Some(loss) = loss {
            self.loss_sum += loss;
            self.losses += 1;
        }
    }

    pub fn end(&mut self, last_step: u64) {
        self.last_step = Some(last_step);
    }

    /// NaN without a step that trained.
    pub fn mean_loss(&self) -> f64 {
        self.loss_sum / self.losses as f64
    }

    pub fn agreement(&self) -> Option<f64> {
        self.agreement
    }

    pub fn agrees(&mut self, agreement: f64) {
        self.agreement = Some(agreement);
    }

    pub fn brought(&self, value: f64) -> Brought {
        Brought {
            value,
            is_timed_out: self.timed_out * 2 > self.rollouts,
            is_missing: self.missing == self.rollouts,
        }
    }
}
