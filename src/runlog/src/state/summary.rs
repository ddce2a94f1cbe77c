//! A run in one object: the end of `lathe run --json`, `lathe runs show`, and what comparisons start from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{BanditSummary, Evaluation, RunState};
use crate::event::RunStatus;
use crate::number::Number;

/// Where time went in one lane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneTime {
    pub spans: u64,
    /// Sum of span lengths, seconds; parallel spans count each.
    pub total_s: f64,
    /// Time with at least one span open, seconds.
    pub busy_s: f64,
}

/// By nearest rank: the smallest value with at least q of all values at or below it. Non-finite values are left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p95: f64,
    pub max: f64,
}

impl Percentiles {
    /// None when no value is finite.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let max = *sorted.last()?;
        let rank = |q: f64| sorted[((q * sorted.len() as f64).ceil() as usize).max(1) - 1];
        Some(Self {
            p50: rank(0.5),
            p95: rank(0.95),
            max,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub experiment_name: String,
    pub mode: String,
    pub seed: u64,
    /// None while the run has not ended (or died without a word).
    pub status: Option<RunStatus>,
    pub exit_code: Option<i32>,
    pub reason: Option<String>,
    pub steps: u64,
    pub total_steps: u64,
    pub wall_s: f64,
    /// Reward on the test data at the first and last evaluation; see [`val_reward`].
    pub val_reward_first: Option<Number>,
    pub val_reward_last: Option<Number>,
    /// See [`RunState::overlap_frac`].
    pub overlap_frac: Option<f64>,
    pub syncs: u64,
    pub syncs_unverified: u64,
    pub sync_blocked_ms_p50: Option<f64>,
    pub sync_blocked_ms_p95: Option<f64>,
    pub sync_blocked_ms_max: Option<f64>,
    pub sync_transfer_ms_p95: Option<f64>,
    pub sync_total_ms_p95: Option<f64>,
    pub rollouts: u64,
    pub missing_scores: u64,
    pub alarms: u64,
    /// Sequence numbers that are not in the log.
    pub missing_events: u64,
    /// Of the last checkpoint, relative to the run directory.
    pub checkpoint: Option<String>,
    /// Of `reward.bandit`; left out of a run that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandit: Option<BanditSummary>,
    /// Lane name to its time; lanes without spans are left out.
    pub lanes: BTreeMap<String, LaneTime>,
    /// Metric name to its last value.
    pub last: BTreeMap<String, Number>,
}

/// Reward of one evaluation: the mean over data sources of `val-core/<source>/reward/mean@N`.
///
/// verl logs `acc` instead of `reward` when a scorer reports it; those count when no `reward` is there. None: neither is.
pub fn val_reward(evaluation: &Evaluation) -> Option<f64> {
    ["/reward/mean@", "/acc/mean@"]
        .into_iter()
        .find_map(|part| {
            let (mut sum, mut sources) = (0.0, 0_u32);
            for (name, value) in &evaluation.values {
                if name.starts_with("val-core/") && name.contains(part) {
                    sum += value.0;
                    sources += 1;
                }
            }
            (sources > 0).then(|| sum / f64::from(sources))
        })
}

impl RunState {
    /// [`val_reward`] of each evaluation that has one: (step, reward).
    pub fn val_rewards(&self) -> impl DoubleEndedIterator<Item = (u64, f64)> {
        self.evals
            .iter()
            .filter_map(|evaluation| Some((evaluation.step, val_reward(evaluation)?)))
    }

    pub fn summary(&self) -> Summary {
        let started = self.started.as_ref();
        let ended = self.ended.as_ref();
        let blocked = Percentiles::of(self.syncs.iter().map(|sync| sync.blocked_ms));
        let p95 = |values: Option<Percentiles>| values.map(|values| values.p95);
        Summary {
            experiment_name: started
                .map(|run| run.experiment_name.clone())
                .unwrap_or_default(),
            mode: started.map(|run| run.mode.clone()).unwrap_or_default(),
            seed: started.map_or(0, |run| run.seed),
            status: ended.map(|end| end.status),
            exit_code: ended.map(|end| end.exit_code),
            reason: ended.map(|end| end.reason.clone()),
            steps: self.step,
            total_steps: self.total_steps().unwrap_or(0),
            wall_s: self.elapsed_ms / 1e3,
            val_reward_first: self.val_rewards().next().map(|(_, reward)| Number(reward)),
            val_reward_last: self
                .val_rewards()
                .next_back()
                .map(|(_, reward)| Number(reward)),
            overlap_frac: self.overlap_frac(),
            syncs: self.syncs.len() as u64,
            syncs_unverified: self.syncs.iter().filter(|sync| !sync.is_verified).count() as u64,
            sync_blocked_ms_p50: blocked.map(|values| values.p50),
            sync_blocked_ms_p95: blocked.map(|values| values.p95),
            sync_blocked_ms_max: blocked.map(|values| values.max),
            sync_transfer_ms_p95: p95(Percentiles::of(
                self.syncs.iter().map(|sync| sync.transfer_ms),
            )),
            sync_total_ms_p95: p95(Percentiles::of(self.syncs.iter().map(|sync| sync.total_ms))),
            rollouts: self.rollouts.ended,
            missing_scores: self.rollouts.missing_scores,
            alarms: self.alarm_count,
            missing_events: self.missing_events,
            checkpoint: self
                .checkpoints
                .last()
                .map(|checkpoint| checkpoint.path.clone()),
            bandit: self.bandit_summary(),
            lanes: self
                .lanes
                .iter()
                .map(|(lane, state)| {
                    let time = LaneTime {
                        spans: state.spans,
                        total_s: state.total_ms / 1e3,
                        busy_s: state.busy.length() / 1e3,
                    };
                    (lane.name().to_owned(), time)
                })
                .collect(),
            last: self
                .series
                .iter()
                .filter_map(|(name, series)| Some((name.to_owned(), series.last()?.value)))
                .collect(),
        }
    }
}
