//! The arms of the reward in a run: their rows in each step's metrics.

use std::collections::BTreeSet;

use dialogue::rollout::Rollout;
use experiment::settings::Reward;

use crate::learner::metrics::StepValues;

/// `reward/arm/NAME/...` of a batch, from what each rollout says of its arms.
pub fn measure(rollouts: &[Rollout], values: &mut StepValues) {
    let names: BTreeSet<&str> = rollouts
        .iter()
        .flat_map(|rollout| rollout.score_parts.keys())
        .filter_map(|key| key.strip_prefix("arm/")?.strip_suffix("/ms"))
        .collect();
    for name in names {
        let of = |what: &str| -> Vec<f64> {
            let key = format!("arm/{name}{what}");
            rollouts
                .iter()
                .filter_map(|rollout| rollout.score_parts.get(&key).copied())
                .collect()
        };
        let row = |what: &str| format!("reward/arm/{name}/{what}");
        let mut latencies = of("/ms");
        let asked = latencies.len() as f64;
        latencies.sort_by(f64::total_cmp);
        values.set_spread(&row("score"), of(""));
        values.set(&row("latency_ms/p50"), quantile(&latencies, 0.5));
        values.set(&row("latency_ms/p99"), quantile(&latencies, 0.99));
        values.set(
            &row("wait_ms/max"),
            of("/wait_ms").into_iter().fold(0.0, f64::max),
        );
        values.set(
            &row("timed_out_frac"),
            of("/timed_out").len() as f64 / asked,
        );
        values.set(&row("missing_frac"), of("/missing").len() as f64 / asked);
        values.set(
            &row("late"),
            of("/late").iter().fold(0.0, |sum, late| sum + late),
        );
        // What an arm that learns has learned by now: as the rollout says that was judged by most labels.
        let labels = |rollout: &&Rollout| -> Option<f64> {
            rollout
                .score_parts
                .get(&format!("arm/{name}/labels"))
                .copied()
        };
        let last = rollouts
            .iter()
            .filter(|rollout| labels(rollout).is_some())
            .max_by(|one, other| {
                labels(one)
                    .unwrap_or(0.0)
                    .total_cmp(&labels(other).unwrap_or(0.0))
            });
        for what in ["labels", "agreement"] {
            let key = format!("arm/{name}/{what}");
            if let Some(value) = last.and_then(|rollout| rollout.score_parts.get(&key)) {
                values.set(&row(what), *value);
            }
        }
    }
}

/// `reward/arm/NAME/weight`: what each arm's score is multiplied by in the reward of a batch. `chosen`: by a bandit that learns,
/// None where there is none.
pub fn weigh(reward: &Reward, chosen: Option<&str>, values: &mut StepValues) {
    for arm in experiment::arms::judging(reward) {
        let counts = chosen.is_none_or(|chosen| chosen == arm.name);
        let weight = if counts { arm.weight } else { 0.0 };
        values.set(&format!("reward/arm/{}/weight", arm.name), weight);
    }
}

/// Whether a part of a score is what an arm gave, and not something about its asking.
pub fn is_score(part: &str) -> bool {
    part.strip_prefix("arm/")
        .is_some_and(|name| !name.contains('/'))
}

/// The smallest value that at least this share of all does not exceed; the values are sorted and not empty.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (quantile(&values, 0.5), quantile(&values, 0.99)),
            (50.0, 99.0)
        );
        assert_eq!((quantile(&[3.0], 0.5), quantile(&[3.0], 0.99)), (3.0, 3.0));
    }
}
