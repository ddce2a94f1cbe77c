//! What went wrong and right in a batch, counted.

use std::collections::{BTreeMap, HashSet};

use crate::rollout::{CallFailure, Finish, Rollout};

/// Counts over finished dialogues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    pub rollouts: u64,
    pub finished: BTreeMap<Finish, u64>,
    /// Samples whose tokens equal an earlier sample's of the same group.
    pub duplicates: u64,
    /// Dialogues that reached their end and have no score all the same.
    pub missing_scores: u64,
    pub tool_calls: u64,
    pub failed_calls: BTreeMap<CallFailure, u64>,
}

impl Counts {
    pub fn of(rollouts: &[Rollout]) -> Self {
        let mut counts = Self {
            rollouts: rollouts.len() as u64,
            ..Self::default()
        };
        let mut seen = HashSet::new();
        for rollout in rollouts {
            *counts.finished.entry(rollout.finish).or_default() += 1;
            if !rollout.response_ids.is_empty()
                && !seen.insert((&rollout.uid, &rollout.response_ids))
            {
                counts.duplicates += 1;
            }
            counts.missing_scores += u64::from(rollout.score_error.is_some());
            counts.tool_calls += rollout.tools.len() as u64;
            for failure in rollout.tools.iter().filter_map(|tool| tool.failure) {
                *counts.failed_calls.entry(failure).or_default() += 1;
            }
        }
        counts
    }
}
