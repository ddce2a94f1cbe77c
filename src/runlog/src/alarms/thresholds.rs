//! Every number that an alarm is judged by, each with its reason.

/// When a detector raises and when it clears. Between the two it stays as it is, so that no alarm flaps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// The detector's name: `kl_blow_up`.
    pub name: &'static str,
    /// The metric it watches; the first that the run has.
    pub metrics: &'static [&'static str],
    /// What `raise` and `clear` are compared with.
    pub measure: &'static str,
    pub raise: f64,
    pub clear: f64,
    /// Points in a row at or past `raise` before it is raised.
    pub raise_after: u32,
    /// Points in a row at or past `clear` before it ends.
    pub clear_after: u32,
    pub reason: &'static str,
}

pub const KL: Threshold = Threshold {
    name: "kl_blow_up",
    metrics: &["actor/kl_loss", "actor/reward_kl_penalty", "actor/ppo_kl"],
    measure: "KL / median KL of the 32 steps before the rise, until there are so many KL / 1 nat; or KL / the guard's limit, when \
              there is one; and of those two 1 raises",
    raise: 5.0,
    clear: 2.0,
    raise_after: 3,
    clear_after: 5,
    reason: "KL to a reference grows by percents a step; five times its recent level within a few steps is a policy that \
             left its data. Three steps, since one odd batch can do it",
};

/// Below this a KL alarms only by a guard's limit: PPO recipes stop an epoch at 0.01 to 0.02 nats per token, and sampling
/// noise of small batches is a tenth of that, of either sign.
pub const KL_FLOOR_NATS: f64 = 0.05;

/// This is too much whatever the level was, which is not known in a run's first steps: at one nat per token a token that the
/// policy was sure of is e times less likely.
pub const KL_SURE_NATS: f64 = 1.0;

pub const ENTROPY: Threshold = Threshold {
    name: "entropy_collapse",
    metrics: &["actor/entropy", "actor/entropy_loss"],
    measure: "entropy / median of the first 10 values, while the reward has gained less than a tenth of its range",
    raise: 0.1,
    clear: 0.2,
    raise_after: 5,
    clear_after: 5,
    reason: "entropy falls by itself where reward rises: the shipped quickstart ends at 1/30 of its start, solved. A tenth \
             of the start without any gain is a policy that repeats itself",
};

pub const LENGTH: Threshold = Threshold {
    name: "length_runaway",
    metrics: &["response_length/mean"],
    measure: "mean length of 10 steps / that of the 10 steps 50 steps before, while the reward rose or stayed",
    raise: 1.5,
    clear: 1.2,
    raise_after: 5,
    clear_after: 10,
    reason: "the quickstart's answers double once, in 20 steps at its start, while it learns the format; half as long again \
             within 50 later steps while the score goes up is what a length-hacked reward looks like",
};

/// Steps at the start of a run in which answers may take another form.
pub const LENGTH_GRACE_STEPS: u64 = 30;

pub const HACKING: Threshold = Threshold {
    name: "reward_hacking",
    metrics: &["bandit/probe/accuracy"],
    measure: "the smaller z of two Mann-Kendall trends over the latest 8 to 32 values of a held-out judge (an arm that does not count in \
              the reward, the bandit's probe, val-core): the reward, or the score of the arm that a bandit chose, up, the judge down",
    raise: 3.0,
    clear: 1.0,
    raise_after: 3,
    clear_after: 5,
    reason: "z = 3 is 1 in 740 for a series that stands still, and both must be: a score that rises while a judge that nothing \
             is trained for falls is bought, not earned. The variance is that of neighbours that are alike, or a slow wave \
             would do",
};

pub const QUALITY: Threshold = Threshold {
    name: "quality_fall",
    metrics: &[],
    measure: "median of the latest 3 evaluations (val-core reward or accuracy) below the best such median / range of the rewards",
    raise: 0.2,
    clear: 0.1,
    raise_after: 2,
    clear_after: 2,
    reason: "with 16 prompts an evaluation errs by 0.12 and a median of three by 0.08: twice a fifth of the range is no chance, \
             and a policy that lost so much on unseen prompts is worth less than its best checkpoint",
};

pub const ALL_EQUAL: Threshold = Threshold {
    name: "all_equal_groups",
    metrics: &["reward/all_equal_group_frac"],
    measure: "mean of 5 steps, while the mean score is below nine tenths of its range",
    raise: 0.9,
    clear: 0.7,
    raise_after: 5,
    clear_after: 5,
    reason: "a group of equal rewards has no advantage: at 0.9 nine tenths of the sampling is for nothing. A solved task \
             has them too, and is no alarm",
};

pub const CLIP: Threshold = Threshold {
    name: "clip_saturation",
    metrics: &["actor/pg_clipfrac"],
    measure: "clipped share of tokens",
    raise: 0.3,
    clear: 0.2,
    raise_after: 5,
    clear_after: 5,
    reason: "PPO works at 0.02 to 0.2; with a third of the tokens clipped the step is bound by the clip and not by the \
             gradient: too many epochs, too high a learning rate, or rollouts too stale",
};

pub const NON_FINITE: Threshold = Threshold {
    name: "non_finite",
    metrics: &[],
    measure: "NaN or infinite values of any metric since the last look",
    raise: 1.0,
    clear: 0.0,
    raise_after: 1,
    clear_after: 10,
    reason: "one NaN in loss or gradient is enough to end a run; ten clean steps show that it was passed over",
};

pub const SYNC: Threshold = Threshold {
    name: "sync_latency_drift",
    metrics: &["weight_sync/total_ms"],
    measure: "median of 8 syncs / median of the 16 after the first 2, and 10 ms more at least",
    raise: 3.0,
    clear: 1.5,
    raise_after: 4,
    clear_after: 8,
    reason: "a sync beside an evaluation takes a hundred times as long, one in ten: a median does not see it. On a shared \
             machine the median itself doubles; three times is a link or a disk that got slow",
};

/// A sync of some milliseconds doubles by chance.
pub const SYNC_FLOOR_MS: f64 = 10.0;

pub const STALL: Threshold = Threshold {
    name: "stalled_lane",
    metrics: &["timing_s/step", "perf/time_per_step"],
    measure: "time without the end of any step, span or evaluation / longest step of the last 64",
    raise: 5.0,
    clear: 1.0,
    raise_after: 1,
    clear_after: 1,
    reason: "the longest recent step has an evaluation or a checkpoint in it; five times as long with nothing ended at all \
             is a wait that will not end by itself",
};

/// The shortest silence that is called a stall: a tool or a judge over the network may take half a minute.
pub const STALL_FLOOR_MS: f64 = 30_000.0;

pub const CARRIED: Threshold = Threshold {
    name: "recording",
    metrics: &[],
    measure: "seconds since the trainer last reported it",
    raise: 0.0,
    clear: 300.0,
    raise_after: 1,
    clear_after: 1,
    reason: "the trainer reports a failing recorder, logger or checkpoint once; five minutes are long enough to see it",
};

/// All of them, for help and README.
pub static THRESHOLDS: [Threshold; 11] = [
    NON_FINITE, KL, ENTROPY, LENGTH, HACKING, QUALITY, ALL_EQUAL, CLIP, SYNC, STALL, CARRIED,
];

/// Points of each series that are looked at when a run is opened; older alarms are history.
pub const MOST_HISTORY: usize = 20_000;
