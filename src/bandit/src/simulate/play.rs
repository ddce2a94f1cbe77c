//! One run of one policy.

use std::collections::VecDeque;

use super::environment::{Arm, Environment};
use crate::draws::{Draws, Uniforms};
use crate::linear::Context;
use crate::machine::Bandit;
use crate::outcome::{Choice, Outcome};
use crate::settings::Settings;

/// Streams of randomness that must not meet.
const CONTEXTS: u64 = 1;
const VALUES: u64 = 2;
const BANDIT: u64 = 3;

/// Share of a run, at its end, that shows which arm a policy settled on.
const END_FRAC: f64 = 0.1;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Run {
    /// Σ (best mean − mean of the arm played) up to each checkpoint.
    pub regret: Vec<f64>,
    /// Share of pulls of the arm that was best at that step.
    pub best_frac: f64,
    /// Most chosen at the end of the run is not the arm that is best then. Meaningless with contexts.
    pub is_wrong: bool,
    pub timed_out: u64,
    pub missing: u64,
    pub clamped: u64,
}

/// Plays `run` of the environment; every policy meets the same contexts and values in it.
pub(super) fn play(
    environment: &Environment,
    settings: &Settings,
    run: u64,
    checkpoints: &[u64],
) -> Run {
    let seed = environment.seed;
    let names = environment.names();
    let mut bandit = Bandit::new(
        settings.clone(),
        &names,
        crate::draws::seed(&[BANDIT, seed, run]),
    )
    .expect("the environment was checked");
    let arms = &environment.arms;
    let mut due: VecDeque<(u64, u64, Outcome)> = VecDeque::new();
    let mut regret = 0.0;
    let mut curve = Vec::with_capacity(checkpoints.len());
    let mut best_pulls = 0.0;
    let end = environment.horizon - (environment.horizon as f64 * END_FRAC).ceil() as u64;
    let mut at_end = vec![0.0; arms.len()];
    let mut best = 0;
    for step in 0..environment.horizon {
        let context = (environment.context_dimensions)
            .map(|dimensions| context(dimensions, Draws::new(&[CONTEXTS, seed, run, step])));
        let pull =
            (bandit.choose(context.as_ref())).expect("contexts are alike and there is a free arm");
        let means: Vec<f64> = arms
            .iter()
            .map(|arm| arm.mean(step, context.as_ref()))
            .collect();
        best = (0..arms.len()).fold(
            0,
            |best, arm| if means[arm] > means[best] { arm } else { best },
        );
        let draw = |arm: usize| {
            outcome(
                &arms[arm],
                step,
                context.as_ref(),
                Draws::new(&[VALUES, seed, run, step, arm as u64]),
            )
        };
        let outcome = match &pull.choice {
            Choice::One(arm) => {
                regret += means[best] - means[*arm];
                best_pulls += f64::from(u8::from(means[*arm] == means[best]));
                at_end[*arm] += if step >= end { 1.0 } else { 0.0 };
                draw(*arm)
            }
            Choice::Blend(weights) => {
                let mean: f64 = weights
                    .iter()
                    .zip(&means)
                    .map(|(weight, mean)| weight * mean)
                    .sum();
                regret += means[best] - mean;
                best_pulls += weights[best];
                for (sum, weight) in at_end.iter_mut().zip(weights) {
                    *sum += if step >= end { *weight } else { 0.0 };
                }
                Outcome::Value(mean)
            }
        };
        due.push_back((step + environment.outcome_delay, pull.number, outcome));
        while let Some((when, number, outcome)) = due.pop_front() {
            if when > step {
                due.push_front((when, number, outcome));
                break;
            }
            bandit
                .learn(number, outcome)
                .expect("the pull was made above");
        }
        if checkpoints.get(curve.len()) == Some(&(step + 1)) {
            curve.push(regret);
        }
    }
    let most = at_end.iter().copied().fold(0.0, f64::max);
    let sum = |count: fn(&crate::ArmState) -> u64| bandit.arms().iter().map(count).sum();
    Run {
        regret: curve,
        best_frac: best_pulls / environment.horizon as f64,
        is_wrong: at_end[best] < most,
        timed_out: sum(|arm| arm.timed_out),
        missing: sum(|arm| arm.missing),
        clamped: sum(|arm| arm.clamped),
    }
}

fn context(dimensions: usize, mut draws: Draws) -> Context {
    Context::unit((0..dimensions).map(|_| draws.normal()).collect())
        .expect("normal draws are finite")
}

fn outcome(arm: &Arm, step: u64, context: Option<&Context>, mut draws: Draws) -> Outcome {
    let fate = draws.next();
    if fate < arm.missing_frac {
        Outcome::Missing
    } else if fate < arm.missing_frac + arm.timed_out_frac {
        Outcome::TimedOut {
            default: arm.default,
        }
    } else {
        Outcome::Value(arm.gives_at(step).draw(context, &mut draws))
    }
}
