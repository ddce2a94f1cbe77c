//! The few curves that progress and summary show, and which metric each is.

use runlog::state::{RunState, Series};

/// A curve by the word people use for it.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub label: &'static str,
    /// The first that the run recorded is shown.
    metrics: &'static [&'static str],
}

pub const REWARD: Row = Row {
    label: "train reward",
    metrics: &["critic/score/mean", "critic/rewards/mean"],
};
/// To the reference where there is one, else to the policy that sampled.
pub const KL: Row = Row {
    label: "kl",
    metrics: &["actor/kl_loss", "actor/reward_kl_penalty", "actor/ppo_kl"],
};
pub const ENTROPY: Row = Row {
    label: "entropy",
    metrics: &["actor/entropy", "actor/entropy_loss"],
};
pub const LENGTH: Row = Row {
    label: "length",
    metrics: &["response_length/mean"],
};
/// Of a supervised warm-up.
pub const SFT_LOSS: Row = Row {
    label: "loss",
    metrics: &["train/loss"],
};

pub const STEP_TIME: Row = Row {
    label: "s/step",
    metrics: &["timing_s/step", "perf/time_per_step"],
};

impl Row {
    pub fn series<'a>(&self, state: &'a RunState) -> Option<(&'static str, Series<'a>)> {
        self.metrics
            .iter()
            .find_map(|name| Some((*name, state.series.get(name)?)))
    }

    /// None: this step recorded none.
    pub fn last_at(&self, step: u64, state: &RunState) -> Option<f64> {
        let last = self.series(state)?.1.last()?;
        (last.step == step).then_some(last.value.0)
    }

    pub fn last(&self, state: &RunState) -> Option<f64> {
        Some(self.series(state)?.1.last()?.value.0)
    }
}
