//! Does asynchrony pay, and at what depth? Measures how long batches take to generate and to train, replays those times at every
//! depth, and, where it may decide, tries the best one and keeps it only if the clock agrees.
//!
//! ```text
//!  measure at a depth ─► predict every depth ─► try the best ─► faster as measured? ─ yes ─► settled ─► measured again later
//!                                                                 └─ no: back, and what was promised and what came is told
//! ```
//! A prediction takes generation and training as if they did not share a processor; only the measurement knows that they do.
//! Knows no threads, no clocks and no knobs.

/// Steps that are measured at a depth before anything is said.
const MEASURED: usize = 6;
/// Steps that advice alone is about: the last ones.
const WATCHED: usize = 50;
/// Steps that a depth which was settled on is kept before it is looked at again.
const KEPT: usize = 50;
/// A depth must be better by this share to be tried, and as measured to be kept: the noise of a step's time.
const LEAST_GAIN: f64 = 0.03;
/// Depths whose predicted times differ by less than this are equal, and the smaller one is better: younger samples.
const EQUAL: f64 = 0.02;
/// A prediction runs over at least this many steps, so that its beginning does not count.
const PREDICTED_STEPS: usize = 64;

/// What one step took, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTimes {
    /// Its batch, from the first session's start to the last one's end.
    pub generate_s: f64,
    /// Learner and publication, without waiting.
    pub train_s: f64,
    /// From the end of the step before to its own.
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
    /// Let batches lag so many versions, to measure it.
    Try(u64, Advice),
    /// It is faster as measured: it stays. Seconds a step before and now.
    Keep(u64, f64, f64),
    /// It is not faster as measured: back. Seconds a step before and now.
    Back(u64, f64, f64),
}

#[derive(Debug)]
pub struct Advisor {
    most: u64,
    depth: u64,
    measured: Vec<StepTimes>,
    stage: Stage,
    decides: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// Steps still to be left out: their batches were begun at another depth.
    Changing {
        skip: u64,
        then: Then,
    },
    Measuring {
        tried: Option<Tried>,
    },
    Settled {
        steps: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Measure(Option<Tried>),
    Settle,
}

/// The depth that the current one must beat.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tried {
    before: u64,
    before_s: f64,
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
                skip: 1,
                then: Then::Measure(None),
            },
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

    /// Takes a step that was trained on a batch of at most `depth` versions of lag; gives what is now to be done. Someone else's
    /// change of the depth is followed, and measured anew.
    pub fn trained(&mut self, depth: u64, times: StepTimes) -> Option<Decision> {
        if let Stage::Changing { skip, then } = self.stage {
            self.stage = match (skip, then) {
                (2.., _) => Stage::Changing {
                    skip: skip - 1,
                    then,
                },
                (_, Then::Measure(tried)) => Stage::Measuring { tried },
                (_, Then::Settle) => Stage::Settled { steps: KEPT },
            };
            return None;
        }
        if depth != self.depth {
            self.depth = depth;
            self.change(1, Then::Measure(None));
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
            Stage::Measuring { tried } if self.measured.len() >= MEASURED => self.decide(tried),
            Stage::Settled { steps: 0 } => self.decide(None),
            Stage::Settled { steps } => {
                if self.measured.len() > MEASURED {
                    self.measured.remove(0);
                }
                self.stage = Stage::Settled { steps: steps - 1 };
                None
            }
            Stage::Measuring { .. } | Stage::Changing { .. } => None,
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

    fn decide(&mut self, tried: Option<Tried>) -> Option<Decision> {
        let advice = self.advice()?;
        if let Some(Tried { before, before_s }) = tried {
            if advice.measured_s <= before_s * (1.0 - LEAST_GAIN) {
                self.stage = Stage::Settled { steps: KEPT };
                return Some(Decision::Keep(self.depth, before_s, advice.measured_s));
            }
            let left_behind = std::mem::replace(&mut self.depth, before);
            self.change(left_behind + 2, Then::Settle);
            return Some(Decision::Back(before, before_s, advice.measured_s));
        }
        let gain = 1.0 - advice.predicted_s[advice.best as usize] / advice.measured_s.max(1e-9);
        let is_slower_side = advice.best < self.depth;
        if advice.best == self.depth || (gain < LEAST_GAIN && !is_slower_side) {
            self.stage = Stage::Settled { steps: KEPT };
            return None;
        }
        let tried = Tried {
            before: self.depth,
            before_s: advice.measured_s,
        };
        // Batches that are begun or queued under the old depth, and the one that is half of each.
        let left_behind = std::mem::replace(&mut self.depth, advice.best);
        self.change(left_behind + 2, Then::Measure(Some(tried)));
        Some(Decision::Try(self.depth, advice))
    }

    fn change(&mut self, skip: u64, then: Then) {
        self.measured.clear();
        self.stage = Stage::Changing { skip, then };
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times(generate_s: f64, train_s: f64) -> StepTimes {
        StepTimes {
            generate_s,
            train_s,
            whole_s: generate_s + train_s,
        }
    }

    /// A world in which overlapping costs a factor on both sides; runs an advisor through it, gives depth and seconds of the
    /// last step, and everything it decided.
    fn live(
        generate_s: &[f64],
        train_s: f64,
        contention: f64,
        steps: usize,
    ) -> (u64, f64, Vec<Decision>) {
        let mut advisor = Advisor::new(0, 4);
        let (mut depth, mut decisions, mut last) = (0, Vec::new(), 0.0);
        for step in 0..steps {
            let generate_s = generate_s[step % generate_s.len()];
            let slower = if depth == 0 { 1.0 } else { contention };
            let (generate_s, train_s) = (generate_s * slower, train_s * slower);
            let mean_generate_s = generate_s;
            last = if depth == 0 {
                generate_s + train_s
            } else {
                mean_generate_s.max(train_s)
            };
            let decided = advisor.trained(
                depth,
                StepTimes {
                    generate_s,
                    train_s,
                    whole_s: last,
                },
            );
            if let Some(decision) = decided {
                match &decision {
                    Decision::Try(to, _) | Decision::Back(to, ..) => depth = *to,
                    Decision::Keep(..) => {}
                }
                decisions.push(decision);
            }
        }
        (depth, last, decisions)
    }

    #[test]
    fn with_a_processor_for_each_side_it_settles_one_version_deep() {
        let (depth, _, decisions) = live(&[1.0], 1.0, 1.0, 40);
        assert_eq!(depth, 1, "{decisions:?}");
        assert!(
            matches!(decisions[..], [Decision::Try(1, _), Decision::Keep(1, before, now)] if now < before),
            "{decisions:?}"
        );
    }

    #[test]
    fn where_both_sides_share_a_processor_it_goes_back_and_says_what_came() {
        let (depth, _, decisions) = live(&[1.0], 1.0, 2.0, 40);
        assert_eq!(depth, 0, "{decisions:?}");
        assert!(
            matches!(
                decisions[..],
                [Decision::Try(1, _), Decision::Back(0, 2.0, 2.0)]
            ),
            "{decisions:?}"
        );
    }

    #[test]
    fn where_nothing_is_to_be_gained_nothing_is_tried() {
        let (depth, _, decisions) = live(&[0.001], 1.0, 1.0, 200);
        assert_eq!((depth, decisions), (0, vec![]));
    }

    #[test]
    fn someone_elses_change_is_followed_and_measured_anew() {
        let mut advisor = Advisor::new(0, 4);
        for _ in 0..4 {
            assert_eq!(advisor.trained(0, times(1.0, 1.0)), None);
        }
        for _ in 0..=MEASURED {
            assert_eq!(
                advisor.trained(
                    3,
                    StepTimes {
                        whole_s: 1.0,
                        ..times(1.0, 1.0)
                    }
                ),
                None
            );
        }
        let decided = advisor.trained(
            3,
            StepTimes {
                whole_s: 1.0,
                ..times(1.0, 1.0)
            },
        );
        assert!(
            matches!(decided, Some(Decision::Try(1, _))),
            "one version deep is as fast: {decided:?}"
        );
    }

    #[test]
    fn uneven_batches_want_more_depth_than_even_ones() {
        let of = |generate: &[f64]| {
            let mut advisor = Advisor::new(0, 4);
            advisor.measured = generate
                .iter()
                .map(|seconds| times(*seconds, 1.0))
                .collect();
            advisor.advice().unwrap().best
        };
        assert_eq!(of(&[1.0; 6]), 1);
        assert!(of(&[0.2, 0.2, 2.6, 0.2, 0.2, 2.8]) > 1);
    }

    proptest! {
        #[test]
        fn more_depth_is_never_predicted_slower_and_nothing_beats_the_busier_side(
            steps in prop::collection::vec((0.0_f64..10.0, 0.01_f64..10.0), 3..20),
        ) {
            let steps: Vec<StepTimes> = steps.into_iter().map(|(g, t)| times(g, t)).collect();
            let whole: f64 = mean(steps.iter().map(|step| step.whole_s));
            prop_assert!((seconds_a_step(&steps, 0) - whole).abs() < 1e-9, "depth 0 is one after the other");
            let busier = mean(steps.iter().map(|step| step.generate_s)).max(mean(steps.iter().map(|step| step.train_s)));
            let mut before = f64::INFINITY;
            for depth in 1..=8 {
                let seconds = seconds_a_step(&steps, depth);
                prop_assert!(seconds <= before + 1e-9);
                prop_assert!(seconds >= busier * 0.98 - 10.0 / PREDICTED_STEPS as f64);
                before = seconds;
            }
        }
    }
}
