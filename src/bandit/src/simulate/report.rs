//! Many runs of a policy as numbers with errors.

use serde::Serialize;

use super::environment::{Entry, Environment};
use super::play::{self, Run};
use crate::settings::Settings;

/// Places on a curve, spread evenly over the logarithm of the step.
const CHECKPOINTS: usize = 40;

/// What one policy did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub label: String,
    pub settings: Settings,
    /// Pseudo-regret: the means' difference, not the drawn values', to the best arm of each step.
    pub curve: Vec<Point>,
    /// Share of pulls of the arm that was best at that step: mean over the runs, and its standard error.
    pub best_frac: f64,
    pub best_frac_se: f64,
    /// Share of runs whose most chosen arm at the end (the last tenth) was not the best one; None with contexts.
    pub wrong_frac: Option<f64>,
    /// Of all pulls of all runs.
    pub timed_out_frac: f64,
    pub missing_frac: f64,
    /// Values outside `value_range`, moved to its end: a policy that needs a range does not see them as they are.
    pub clamped_frac: f64,
}

/// Regret after `step` pulls over the runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    pub step: u64,
    pub mean: f64,
    /// Standard error of the mean; 0 for a single run.
    pub se: f64,
    pub p05: f64,
    pub p95: f64,
}

impl Report {
    /// At the horizon.
    pub fn last(&self) -> Point {
        *self.curve.last().expect("a curve ends at the horizon")
    }
}

/// Plays every run of one policy on `threads` threads; `done` is called after each run, from any of them. The same
/// environment gives the same report whatever the number of threads.
pub fn simulate(
    environment: &Environment,
    entry: &Entry,
    threads: usize,
    done: &(dyn Fn() + Sync),
) -> Report {
    let checkpoints = checkpoints(environment.horizon);
    let threads = (threads as u64).clamp(1, environment.runs);
    let share = environment.runs.div_ceil(threads);
    let runs: Vec<Run> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let mine = thread * share..((thread + 1) * share).min(environment.runs);
                let checkpoints = &checkpoints;
                scope.spawn(move || {
                    mine.map(|run| {
                        let run = play::play(environment, &entry.settings, run, checkpoints);
                        done();
                        run
                    })
                    .collect::<Vec<Run>>()
                })
            })
            .collect();
        (workers.into_iter())
            .flat_map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    report(environment, entry, &checkpoints, &runs)
}

fn report(environment: &Environment, entry: &Entry, checkpoints: &[u64], runs: &[Run]) -> Report {
    let curve = (checkpoints.iter().enumerate())
        .map(|(index, step)| {
            let mut values: Vec<f64> = runs.iter().map(|run| run.regret[index]).collect();
            let (mean, se) = mean_and_error(&values);
            values.sort_by(f64::total_cmp);
            let at = |share: f64| values[(share * (values.len() - 1) as f64).round() as usize];
            Point {
                step: *step,
                mean,
                se,
                p05: at(0.05),
                p95: at(0.95),
            }
        })
        .collect();
    let shares: Vec<f64> = runs.iter().map(|run| run.best_frac).collect();
    let (best_frac, best_frac_se) = mean_and_error(&shares);
    let pulls = environment.horizon as f64 * runs.len() as f64;
    let of_pulls = |count: fn(&Run) -> u64| runs.iter().map(count).sum::<u64>() as f64 / pulls;
    let wrong = runs.iter().filter(|run| run.is_wrong).count();
    Report {
        label: entry.label.clone(),
        settings: entry.settings.clone(),
        curve,
        best_frac,
        best_frac_se,
        wrong_frac: (environment.context_dimensions.is_none())
            .then(|| wrong as f64 / runs.len() as f64),
        timed_out_frac: of_pulls(|run| run.timed_out),
        missing_frac: of_pulls(|run| run.missing),
        clamped_frac: of_pulls(|run| run.clamped),
    }
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = if n > 1.0 {
        (squares / (n - 1.0) / n).sqrt()
    } else {
        0.0
    };
    (mean, error)
}

fn checkpoints(horizon: u64) -> Vec<u64> {
    let last = CHECKPOINTS - 1;
    let mut steps: Vec<u64> = (0..last)
        .map(|index| {
            ((horizon as f64).ln() * index as f64 / last as f64)
                .exp()
                .round() as u64
        })
        .collect();
    steps.push(horizon);
    steps.dedup();
    steps.retain(|step| *step <= horizon);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_rise_from_1_to_the_horizon() {
        for horizon in [1, 2, 7, 100, 4000, 10_000_000] {
            let steps = checkpoints(horizon);
            assert_eq!((steps[0], *steps.last().unwrap()), (1, horizon));
            assert!(steps.is_sorted_by(|a, b| a < b), "{steps:?}");
        }
    }
}
