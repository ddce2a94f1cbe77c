//! The numbers of one evaluation, by verl's names: `val-core/<data source>/reward/mean@N` and its companions.

use std::collections::BTreeMap;

use dialogue::rollout::Rollout;
use runlog::number::{Number, Values};

/// Means over all rollouts, per data source. A missing score is left out of the mean and counted.
pub fn values(rollouts: &[Rollout], elapsed_s: f64) -> Values {
    let mut values = Values::new();
    let mut by_source: BTreeMap<&str, Vec<&Rollout>> = BTreeMap::new();
    for rollout in rollouts {
        by_source
            .entry(&rollout.data_source)
            .or_default()
            .push(rollout);
    }
    for (source, rollouts) in by_source {
        let samples = rollouts
            .iter()
            .map(|rollout| rollout.sample + 1)
            .max()
            .unwrap_or(1);
        let scores: Vec<f64> = rollouts
            .iter()
            .filter_map(|rollout| rollout.score)
            .collect();
        values.insert(
            format!("val-core/{source}/reward/mean@{samples}"),
            Number(mean(&scores)),
        );
        let missing = (rollouts.len() - scores.len()) as f64 / rollouts.len() as f64;
        values.insert(
            format!("val-aux/{source}/reward/missing_frac"),
            Number(missing),
        );
        if samples > 1 {
            let mut best: BTreeMap<&str, f64> = BTreeMap::new();
            for rollout in &rollouts {
                if let Some(score) = rollout.score {
                    best.entry(&rollout.uid)
                        .and_modify(|held| *held = held.max(score))
                        .or_insert(score);
                }
            }
            let best: Vec<f64> = best.into_values().collect();
            values.insert(
                format!("val-core/{source}/reward/best@{samples}/mean"),
                Number(mean(&best)),
            );
        }
        let of = |number: &dyn Fn(&Rollout) -> f64| {
            Number(mean(
                &rollouts
                    .iter()
                    .map(|rollout| number(rollout))
                    .collect::<Vec<_>>(),
            ))
        };
        values.insert(
            format!("val-aux/{source}/num_turns/mean"),
            of(&|rollout| f64::from(rollout.assistant_turns)),
        );
        values.insert(
            format!("val-aux/{source}/tool_call_counts/mean"),
            of(&|rollout| rollout.tools.len() as f64),
        );
        values.insert(
            format!("val-aux/{source}/response_length/mean"),
            of(&|rollout| rollout.response_ids.len() as f64),
        );
    }
    values.insert("timing_s/testing".to_owned(), Number(elapsed_s));
    values
}

/// NaN of nothing: an evaluation in which every score is missing has no mean.
fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}
