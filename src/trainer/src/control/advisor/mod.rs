//! Does asynchrony pay, and at what depth? Measures how long batches take to generate and to train, replays those times at every
//! depth, and, where it may decide, runs the best one against the current one, back and forth, and keeps it only if the clock
//! agrees.
//!
//! ```text
//!  measure at A ─► predict every depth ─► B is best ─► A │ B B │ A A │ B B │ A ─ faster in its pairs ─► B, settled
//!                                                                              └─ no: A, and what came is told
//! ```
//! A prediction takes generation and training as if they did not share a processor; only the measurement knows that they do. Each
//! B has an A beside it in time, now before and now after it, so that load which comes, goes or grows falls on both of a pair, or
//! on one pair of four. Knows no threads, no clocks and no knobs.

mod trial;

use trial::{SEGMENT, Trial};

/// Steps that are measured at a depth before anything is said.
const MEASURED: usize = 6;
/// Steps that advice alone is about: the last ones.
const WATCHED: usize = 50;
/// Steps that a depth which was settled on is kept before it is looked at again.
const KEPT: usize = 50;
/// A depth must be better by this share to be tried, and as measured to be kept: the noise of a step's time.
const LEAST_GAIN: f64 = 0.03;
/// Depths whose times differ by less than this are equal, and the smaller one is better: younger samples.
const EQUAL: f64 = 0.02;
/// A prediction runs over at least this many steps, so that its beginning does not count.
const PREDICTED_STEPS: usize = 64;

/// What one step took, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTimes {
    /// What its batch added to the time of generating: from its first session's start, or the end of the batch before where
    /// that was later, to its last one's end.
    pub generate_s: f64,
    /// Learner and publication, without waiting.
    pub train_s: f64,
    /// From the end of the step before to its own, without what belongs to neither side: checkpoints, guards, probes, pauses.
    pub whole_s: f64,
}

/// What the advisor says.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Share of the measured time that the learner waited for rollouts.
    pub bubble: f64,
    /// Policy versions that batches lagged while it was measured.
    pub depth: u64,
    /// Seconds a step at that depth, as measured.
    pub measured_s: f64,
    /// Seconds a step at each depth from 0, as predicted.
    pub predicted_s: Vec<f64>,
    /// The smallest depth that is predicted to be as fast as any.
    pub best: u64,
}

/// What an advisor that may decide wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Let batches lag so many versions, to measure it against the depth there is.
    Try(u64, Advice),
    /// The other one of the two again.
    Turn(u64),
    /// The depth tried is faster (or as fast, and its samples younger): it stays.
    Keep(u64, Measured),
    /// It is not: back.
    Back(u64, Measured),
}

/// Seconds a step at the depth there was, and at the one tried, over all their steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    pub before_s: f64,
    pub tried_s: f64,
}

#[derive(Debug)]
pub struct Advisor {
    most: u64,
    depth: u64,
    measured: Vec<StepTimes>,
    stage: Stage,
    trial: Option<Trial>,
    decides: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// Batches that were begun at another depth come first, at most so many; and the first of this one, which is half of each,
    /// is left out too.
    Changing {
        most: u64,
        then: Then,
    },
    Measuring,
    Comparing,
    Settled {
        steps: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Measure,
    Compare,
    Settle,
}

impl Then {
    fn begin(self) -> Stage {
        match self {
            Self::Measure => Stage::Measuring,
            Self::Compare => Stage::Comparing,
            Self::Settle => Stage::Settled { steps: KEPT },
        }
    }
}

impl Advisor {
    /// For depths up to `most`, of a run that begins at `depth`.
    pub fn new(depth: u64, most: u64) -> Self {
        Self {
            most: most.max(depth),
            depth,
            measured: Vec::new(),
            // The first step holds the first use of everything.
            stage: Stage::Changing {
                most: 1,
                then: Then::Measure,
            },
            trial: None,
            decides: true,
        }
    }

    /// One that only measures, and is asked for [`Advisor::advice`].
    pub fn watching(depth: u64, most: u64) -> Self {
        Self {
            decides: false,
            ..Self::new(depth, most)
        }
    }

    /// Whether it decides from now on, over depths up to `most`. One that begins or ends to decide measures anew.
    pub fn may_decide(&mut self, decides: bool, most: u64) {
        if self.decides == decides {
            return;
        }
        self.decides = decides;
        self.most = most.max(self.depth);
        self.follow(self.depth);
    }

    /// Takes a step that was trained on a batch of at most `depth` versions of lag; gives what is now to be done. Someone else's
    /// change of the depth is followed, and measured anew.
    pub fn trained(&mut self, depth: u64, times: StepTimes) -> Option<Decision> {
        if let Stage::Changing { most, then } = self.stage {
            if depth == self.depth {
                self.stage = then.begin();
            } else if most > 1 {
                let most = most - 1;
                self.stage = Stage::Changing { most, then };
            } else {
                self.follow(depth);
            }
            return None;
        }
        if depth != self.depth {
            self.follow(depth);
            return None;
        }
        self.measured.push(times);
        if !self.decides {
            if self.measured.len() > WATCHED {
                self.measured.remove(0);
            }
            return None;
        }
        match self.stage {
            Stage::Measuring if self.measured.len() >= MEASURED => self.decide(),
            Stage::Comparing => self.compare(times.whole_s),
            Stage::Settled { steps: 0 } => self.decide(),
            Stage::Settled { steps } => {
                if self.measured.len() > MEASURED {
                    self.measured.remove(0);
                }
                self.stage = Stage::Settled { steps: steps - 1 };
                None
            }
            Stage::Measuring | Stage::Changing { .. } => None,
        }
    }

    /// What can be said of the steps measured last; None: too few.
    pub fn advice(&self) -> Option<Advice> {
        if self.measured.len() < MEASURED / 2 {
            return None;
        }
        let measured_s = mean(self.measured.iter().map(|times| times.whole_s));
        let train_s = mean(self.measured.iter().map(|times| times.train_s));
        let predicted_s: Vec<f64> = (0..=self.most)
            .map(|depth| seconds_a_step(&self.measured, depth))
            .collect();
        let least = predicted_s.iter().copied().fold(f64::INFINITY, f64::min);
        let best = predicted_s
            .iter()
            .position(|seconds| *seconds <= least * (1.0 + EQUAL))
            .unwrap_or(0);
        Some(Advice {
            bubble: (1.0 - train_s / measured_s.max(1e-9)).clamp(0.0, 1.0),
            depth: self.depth,
            measured_s,
            best: best as u64,
            predicted_s,
        })
    }

    fn decide(&mut self) -> Option<Decision> {
        let advice = self.advice()?;
        let gain = 1.0 - advice.predicted_s[advice.best as usize] / advice.measured_s.max(1e-9);
        let is_younger = advice.best < self.depth;
        if advice.best == self.depth || (gain < LEAST_GAIN && !is_younger) {
            self.stage = Then::Settle.begin();
            return None;
        }
        let newest = self.measured.len() - SEGMENT;
        let beside = mean(self.measured[newest..].iter().map(|times| times.whole_s));
        self.trial = Some(Trial::new(self.depth, advice.best, beside));
        self.turn(advice.best, Then::Compare);
        Some(Decision::Try(self.depth, advice))
    }

    fn compare(&mut self, whole_s: f64) -> Option<Decision> {
        let trial = self.trial.as_mut()?;
        trial.takes(whole_s);
        if let Some(ratio) = trial.ratio() {
            let (base, tried, measured) = (trial.base(), trial.tried(), trial.measured());
            self.trial = None;
            let most = if tried < base {
                1.0 + EQUAL
            } else {
                1.0 - LEAST_GAIN
            };
            return Some(if ratio <= most {
                self.turn(tried, Then::Settle);
                Decision::Keep(tried, measured)
            } else {
                self.turn(base, Then::Settle);
                Decision::Back(base, measured)
            });
        }
        let next = trial.depth();
        if next == self.depth {
            return None;
        }
        self.turn(next, Then::Compare);
        Some(Decision::Turn(next))
    }

    fn turn(&mut self, to: u64, then: Then) {
        let left_behind = std::mem::replace(&mut self.depth, to);
        self.measured.clear();
        self.stage = if left_behind == to {
            then.begin()
        } else {
            // One more than its bound may be begun, and another while it is being changed.
            let most = left_behind + 3;
            Stage::Changing { most, then }
        };
    }

    fn follow(&mut self, depth: u64) {
        self.depth = depth;
        self.trial = None;
        self.measured.clear();
        let (most, then) = (1, Then::Measure);
        self.stage = Stage::Changing { most, then };
    }
}

/// Seconds a step when batches may lag `depth` versions: one lane generates batch after batch, one trains; batch k begins when
/// the one before is generated and step k − 1 − depth is trained.
fn seconds_a_step(times: &[StepTimes], depth: u64) -> f64 {
    let depth = depth as usize;
    let rounds = PREDICTED_STEPS.div_ceil(times.len().max(1));
    let mut trained: Vec<f64> = Vec::with_capacity(rounds * times.len());
    let mut generated = 0.0_f64;
    for step in times.iter().cycle().take(rounds * times.len()) {
        let k = trained.len();
        let weights = match k.checked_sub(depth + 1) {
            Some(needed) => trained[needed],
            None => 0.0,
        };
        generated = generated.max(weights) + step.generate_s;
        let free = trained.last().copied().unwrap_or(0.0);
        trained.push(generated.max(free) + step.train_s);
    }
    // The first batch of the replay is generated beside nothing.
    let filling = times.first().map_or(0.0, |first| {
        if depth == 0 {
            0.0
        } else {
            first.generate_s.min(first.train_s)
        }
    });
    trained
        .last()
        .map_or(0.0, |end| (end - filling) / trained.len() as f64)
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests;
