//! The numbers of one step, by the names of the metric table.

use dialogue::rollout::{Finish, Rollout};
use runlog::number::{Number, Values};
use tch::{Kind, Tensor};

use crate::arms;
use crate::overlong::OVERLONG_PENALTY;
use crate::tools;

/// Collects values; a name is written once a step.
#[derive(Debug, Default)]
pub struct StepValues(pub Values);

impl StepValues {
    pub fn set(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), Number(value));
    }

    /// `name/mean`, `/max`, `/min` of the items; nothing when there are none.
    pub fn set_spread(&mut self, name: &str, items: impl IntoIterator<Item = f64>) {
        let (mut count, mut sum) = (0u32, 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for item in items {
            count += 1;
            sum += item;
            low = low.min(item);
            high = high.max(item);
        }
        if count > 0 {
            self.set(&format!("{name}/mean"), sum / f64::from(count));
            self.set(&format!("{name}/max"), high);
            self.set(&format!("{name}/min"), low);
        }
    }

    /// The same of a `[B, T]` tensor where `mask` is 1.
    pub fn set_masked_spread(&mut self, name: &str, values: &Tensor, mask: &Tensor) {
        let picked = values.masked_select(&mask.to_kind(Kind::Bool));
        if picked.numel() > 0 {
            self.set(&format!("{name}/mean"), scalar(&picked.mean(Kind::Float)));
            self.set(&format!("{name}/max"), scalar(&picked.max()));
            self.set(&format!("{name}/min"), scalar(&picked.min()));
        }
    }
}

/// Reads one number out of a tensor. On a GPU this waits for it.
pub fn scalar(tensor: &Tensor) -> f64 {
    tensor.double_value(&[])
}

/// Lengths, turns, tool calls, scores and ages of everything sampled for a step, trained on or not.
/// `step`: the step that trains them; `max_response_length`: the limit that clips.
pub fn rollout_values(
    values: &mut StepValues,
    rollouts: &[Rollout],
    policy_version: u64,
    max_response_length: usize,
) {
    let count = rollouts.len().max(1) as f64;
    let share = |fits: &dyn Fn(&Rollout) -> bool| {
        rollouts.iter().filter(|rollout| fits(rollout)).count() as f64 / count
    };
    values.set_spread(
        "critic/score",
        rollouts.iter().filter_map(|rollout| rollout.score),
    );
    values.set_spread(
        "response_length",
        rollouts
            .iter()
            .map(|rollout| rollout.response_ids.len() as f64),
    );
    values.set(
        "response_length/clip_ratio",
        share(&|rollout| rollout.response_ids.len() >= max_response_length),
    );
    values.set_spread(
        "prompt_length",
        rollouts
            .iter()
            .map(|rollout| rollout.prompt_ids.len() as f64),
    );
    values.set_spread(
        "num_turns",
        rollouts
            .iter()
            .map(|rollout| f64::from(rollout.assistant_turns)),
    );
    values.set_spread(
        "tool_call_counts",
        rollouts.iter().map(|rollout| rollout.tools.len() as f64),
    );
    values.set(
        "response/aborted_ratio",
        share(&|rollout| rollout.finish == Finish::Aborted),
    );
    values.set_spread(
        "reward/overlong_penalty",
        rollouts
            .iter()
            .filter_map(|rollout| rollout.score_parts.get(OVERLONG_PENALTY).copied()),
    );
    values.set(
        "reward/missing_frac",
        share(&|rollout| rollout.score.is_none()),
    );
    arms::measure(rollouts, values);
    tools::measure(rollouts, values);
    // Age of each drawn token: versions between the weights that drew it and those that are about to be updated.
    let mut ages = (0u64, 0u64, 0u64);
    for rollout in rollouts {
        for (version, drawn) in rollout.policy_versions.iter().zip(&rollout.response_mask) {
            if *drawn {
                let age = policy_version.saturating_sub(*version);
                ages = (ages.0 + 1, ages.1 + age, ages.2.max(age));
            }
        }
    }
    values.set("staleness/mean", ages.1 as f64 / ages.0.max(1) as f64);
    values.set("staleness/max", ages.2 as f64);
}

/// Share of groups (of two or more scored samples) whose scores are all equal: they teach a group estimator nothing.
pub fn all_equal_group_frac(groups: impl IntoIterator<Item = Vec<f64>>) -> f64 {
    let (mut equal, mut compared) = (0u32, 0u32);
    for scores in groups {
        if scores.len() > 1 {
            compared += 1;
            equal += u32::from(scores.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }
    f64::from(equal) / f64::from(compared.max(1))
}
