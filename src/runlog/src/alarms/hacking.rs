//! Reward hacking: what is trained for rises while a judge that nothing is trained for falls.
//!
//! What is trained for is the arm that a bandit chose in most steps, or the reward itself where no bandit chooses. A judge apart
//! is an arm that does not count in the reward, the bandit's probe, or the validation reward. Both by a trend that is no noise: Mann-Kendall over the latest values, with the variance of a series whose neighbours are
//! alike (Yue and Wang 2004, <https://doi.org/10.1023/B:WARM.0000043140.61082.60>), their likeness seen in what a monotone fit leaves and freed of its bias in short
//! series (Kendall 1954). Knows arms by their metrics alone.

use std::collections::BTreeMap;

use super::detectors::{Seen as Looked, at, fresh};
use super::latch::{Latch, Look};
use super::reward::mean;
use super::thresholds::HACKING;
use super::{Detector, Raised, Severity, Threshold, quality, short};
use crate::series::{Series, XAxis};
use crate::state::RunState;

/// Values of a judge that a trend is looked for in: a hack shows within some tens of steps, and an older rise is history.
const MOST: usize = 32;
/// Fewer tell no trend: eight that fall one after another have z = 3.3.
const LEAST: usize = 8;

/// The arm of `bandit/arm/NAME/chosen`.
fn choosable(metric: &str) -> Option<&str> {
    metric.strip_prefix("bandit/arm/")?.strip_suffix("/chosen")
}

/// The arm of `reward/arm/NAME/score/mean`.
fn scored(metric: &str) -> Option<&str> {
    metric
        .strip_prefix("reward/arm/")?
        .strip_suffix("/score/mean")
}

/// The arm of `reward/arm/NAME/weight`.
fn weighed(metric: &str) -> Option<&str> {
    metric.strip_prefix("reward/arm/")?.strip_suffix("/weight")
}

/// Whether it judges without being trained for: verifiable prompts, unseen ones.
fn is_apart(metric: &str) -> bool {
    metric == "bandit/probe/accuracy" || quality::reads(metric)
}

/// Whether this detector is made of this metric.
pub(super) fn reads(metric: &str) -> bool {
    choosable(metric).is_some()
        || scored(metric).is_some()
        || weighed(metric).is_some()
        || is_apart(metric)
}

/// Who is trained for, and who only looks on.
#[derive(Debug, Default)]
pub(super) struct RewardHacking {
    /// Metrics of the run when they were last sorted.
    known: usize,
    /// Those that a bandit may choose.
    arms: Vec<String>,
    judges: BTreeMap<String, Judge>,
}

#[derive(Debug, Default)]
struct Judge {
    looked: Looked,
    latch: Latch,
    /// What was seen first of what is raised, or may be soon.
    began: Option<Seen>,
    message: String,
}

/// What is seen over the latest values of a judge.
#[derive(Debug, Clone)]
struct Seen {
    /// The smaller of the two trends' z: how sure it is that one rises and the other falls.
    measure: f64,
    /// `the score of arm a`.
    trained: String,
    /// The first and the last step of the values.
    steps: (u64, u64),
    /// What is trained for, in the first quarter of its values and in the last.
    scores: (f64, f64),
    /// What the judge says, likewise.
    held: (f64, f64),
}

impl RewardHacking {
    /// Sorts the metrics, when there are new ones.
    fn sort(&mut self, state: &RunState) {
        if state.series.len() == self.known {
            return;
        }
        self.known = state.series.len();
        let choosable = state.series.names().filter_map(choosable);
        self.arms = choosable.map(str::to_owned).collect();
        let arms = &self.arms;
        let is_held_out = |metric: &str| {
            scored(metric).is_some_and(|arm| {
                let weight = state.series.get(&format!("reward/arm/{arm}/weight"));
                let is_counted = match weight.filter(|weight| !weight.is_empty()) {
                    Some(weight) => weight.value(weight.len() - 1) != 0.0,
                    // The log of a version that wrote no weights.
                    None => arms.is_empty(),
                };
                !is_counted && !arms.iter().any(|known| known == arm)
            })
        };
        for metric in state.series.names() {
            if is_held_out(metric) || is_apart(metric) {
                self.judges.entry(metric.to_owned()).or_default();
            }
        }
        // What had no choices yet may have been taken for a judge.
        self.judges
            .retain(|metric, _| is_held_out(metric) || is_apart(metric));
    }

    /// What was trained for in the steps `from..=to`: the arm that was chosen in more than half of them, or the reward where
    /// nobody chooses.
    fn trained<'a>(&self, state: &'a RunState, from: u64, to: u64) -> Option<(String, Series<'a>)> {
        if self.arms.is_empty() {
            let rewards = ["critic/score/mean", "critic/rewards/mean"];
            let reward = rewards.iter().find_map(|name| state.series.get(name))?;
            return Some(("the reward".to_owned(), reward));
        }
        let is_most = |arm: &&String| {
            let chosen = state.series.get(&format!("bandit/arm/{arm}/chosen"));
            let share = chosen.and_then(|chosen| mean(between(chosen, from, to)));
            share.is_some_and(|share| share > 0.5)
        };
        let arm = self.arms.iter().find(is_most)?;
        let scores = state.series.get(&format!("reward/arm/{arm}/score/mean"))?;
        Some((format!("the score of arm {arm}"), scores))
    }

    /// The judge's values up to its `i`-th, against what was trained for meanwhile.
    fn look(&self, state: &RunState, series: Series<'_>, i: usize) -> Option<Seen> {
        let first = (i + 1).saturating_sub(MOST);
        let held: Vec<f64> = finite(&series.values()[first..=i]);
        if held.len() < LEAST {
            return None;
        }
        let (from, to) = (series.step(first), series.step(i));
        let (trained, scores) = self.trained(state, from, to)?;
        let scores = thinned(&finite(between(scores, from, to)));
        if scores.len() < LEAST {
            return None;
        }
        let ends = |values: &[f64]| {
            let part = values.len().div_ceil(4);
            let mean = |values: &[f64]| mean(values).unwrap_or(f64::NAN);
            (mean(&values[..part]), mean(&values[values.len() - part..]))
        };
        Some(Seen {
            measure: trend(&scores).min(-trend(&held)),
            trained,
            steps: (from, to),
            scores: ends(&scores),
            held: ends(&held),
        })
    }
}

impl Judge {
    /// Takes one more look at `metric`.
    fn take(&mut self, metric: &str, seen: &Seen, place: super::latch::At) {
        self.latch
            .take(Look::of(seen.measure, &HACKING), place, &HACKING);
        if !self.latch.is_suspicious() {
            self.began = None;
            return;
        }
        // The whole of it, from before it began: each look by itself sees the end of a long fall only.
        if (self.began.as_ref()).is_none_or(|began| began.trained != seen.trained) {
            self.began = Some(seen.clone());
        }
        let began = self.began.as_ref().unwrap_or(seen);
        let name = scored(metric).map_or_else(|| metric.to_owned(), |arm| format!("judge {arm}"));
        self.message = format!(
            "{}, which is trained for, rose from {} to {} in steps {} to {} while the held-out {name} fell from {} to {}",
            seen.trained,
            short(began.scores.0),
            short(seen.scores.1),
            began.steps.0,
            seen.steps.1,
            short(began.held.0),
            short(seen.held.1),
        );
    }
}

impl Detector for RewardHacking {
    fn threshold(&self) -> &'static Threshold {
        &HACKING
    }

    fn check(&mut self, state: &RunState) -> Vec<Raised> {
        self.sort(state);
        let mut judges = std::mem::take(&mut self.judges);
        let mut found = Vec::new();
        for (metric, judge) in &mut judges {
            let Some(series) = state.series.get(metric) else {
                continue;
            };
            for i in fresh(&mut judge.looked, series) {
                if let Some(seen) = self.look(state, series, i) {
                    judge.take(metric, &seen, at(series, i));
                }
            }
            found.extend(judge.latch.raised().map(|since| Raised {
                subject: metric.clone(),
                severity: Severity::Critical,
                since,
                message: judge.message.clone(),
            }));
        }
        self.judges = judges;
        found
    }
}

/// Values of the steps `from..=to`, in the order of the log.
fn between(series: Series<'_>, from: u64, to: u64) -> &[f64] {
    let range = series.range(from as f64, to as f64, XAxis::Step);
    &series.values()[range]
}

fn finite(values: &[f64]) -> Vec<f64> {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    finite.collect()
}

/// At most [`MOST`] means of neighbours, of as many each; the oldest that are too few are left out.
fn thinned(values: &[f64]) -> Vec<f64> {
    let each = values.len().div_ceil(MOST).max(1);
    let newest = &values[values.len() % each..];
    newest.chunks(each).filter_map(mean).collect()
}

/// z of Mann and Kendall's test for a trend: above 0 the values rise; about normal while there is none. 0 of fewer than three.
fn trend(values: &[f64]) -> f64 {
    let n = values.len();
    if n < 3 {
        return 0.0;
    }
    let pairs = || (0..n).flat_map(|j| (0..j).map(move |i| (i, j)));
    let sign: i64 = pairs()
        .map(|(i, j)| i64::from(values[j] > values[i]) - i64::from(values[j] < values[i]))
        .sum();
    let count = n as f64;
    // Equal values tell nothing, so they take from the variance.
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let tied: f64 = sorted
        .chunk_by(|a, b| a.partial_cmp(b).is_some_and(std::cmp::Ordering::is_eq))
        .map(|equal| {
            let t = equal.len() as f64;
            t * (t - 1.0) * (2.0 * t + 5.0)
        })
        .sum();
    let variance = (count * (count - 1.0) * (2.0 * count + 5.0) - tied) / 18.0;
    if variance <= 0.0 {
        return 0.0;
    }
    let turn = if sign < 0 { -1.0 } else { 1.0 };
    let turned: Vec<f64> = values.iter().map(|value| turn * value).collect();
    let rest: Vec<f64> = rising(&turned)
        .iter()
        .zip(&turned)
        .map(|(fit, value)| value - fit)
        .collect();
    // What rounding leaves is no wave.
    let is_left = spread(&rest) > 1e-18 * spread(values);
    let alike = if is_left {
        let found = neighbours_alike(&rest);
        (found + (1.0 + 3.0 * found) / count).clamp(0.0, 0.95)
    } else {
        0.0
    };
    let variance = variance * (1.0 + alike) / (1.0 - alike);
    // By one towards 0: the sum goes in steps of two.
    (sign - sign.signum()) as f64 / variance.sqrt()
}

/// The series that never falls and is nearest to this one: what a trend looks like whose shape is not known. A line would take the
/// bend of a curve that levels off for neighbours that are alike. (Pool adjacent violators, Barlow et al. 1972.)
fn rising(values: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for value in values {
        let mut pool = (*value, 1);
        while let Some((mean, count)) = pools.pop_if(|(mean, _)| *mean > pool.0) {
            let all = count + pool.1;
            pool = (
                (mean * count as f64 + pool.0 * pool.1 as f64) / all as f64,
                all,
            );
        }
        pools.push(pool);
    }
    let fit = pools.into_iter();
    fit.flat_map(|(mean, count)| std::iter::repeat_n(mean, count))
        .collect()
}

/// Sum of the squares of what lies between each value and their mean.
fn spread(values: &[f64]) -> f64 {
    let middle = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - middle).powi(2)).sum()
}

/// Autocorrelation of neighbours.
fn neighbours_alike(values: &[f64]) -> f64 {
    let middle = values.iter().sum::<f64>() / values.len() as f64;
    let square = spread(values);
    let product: f64 = values
        .windows(2)
        .map(|pair| (pair[0] - middle) * (pair[1] - middle))
        .sum();
    if square > 0.0 { product / square } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::alarms::{Alarms, Limits};
    use crate::event::{Event, EventKind};
    use crate::number::{Number, Values};

    /// Numbers between -1 and 1 without a pattern, the same for the same seed (splitmix64).
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        }
    }

    /// A run whose bandit chooses arm `a`, with a held-out judge `exact`; gives what the alarms say at its end and whether
    /// there ever was one.
    fn run(
        steps: u64,
        score: impl Fn(u64, &mut Noise) -> f64,
        held: impl Fn(u64, &mut Noise) -> f64,
        seed: u64,
    ) -> (Vec<(String, u64, String)>, bool) {
        let mut noise = Noise(seed);
        let mut state = RunState::default();
        let mut alarms = Alarms::new(Limits::default());
        let mut ever = false;
        for step in 1..=steps {
            let values: Values = [
                ("reward/arm/a/score/mean", score(step, &mut noise)),
                ("reward/arm/b/score/mean", 0.5),
                ("reward/arm/exact/score/mean", held(step, &mut noise)),
                ("bandit/arm/a/chosen", f64::from(step % 5 != 0)),
                ("bandit/arm/b/chosen", f64::from(step % 5 == 0)),
            ]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), Number(value)))
            .collect();
            state.apply(&Event {
                seq: step,
                elapsed_ms: step as f64 * 1000.0,
                kind: EventKind::StepEnded {
                    step,
                    policy_version: step,
                    values,
                },
            });
            alarms.follow(&state);
            ever |= !alarms.active().is_empty();
        }
        let active = alarms.active().iter();
        let found = active.map(|found| {
            assert_eq!(found.name, "reward_hacking");
            (
                found.subject.clone(),
                found.since_step,
                found.message.clone(),
            )
        });
        (found.collect(), ever)
    }

    /// A step of a run; the values are metrics by name.
    fn step(state: &mut RunState, step: u64, values: &[(&str, f64)]) {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Number(*value)));
        state.apply(&Event {
            seq: state.events,
            elapsed_ms: state.events as f64 * 1000.0,
            kind: EventKind::StepEnded {
                step,
                policy_version: step,
                values: values.collect(),
            },
        });
    }

    /// A hack of a reward that no bandit chooses: it rises as the arm that does not count falls.
    fn hacked_sum(
        state: &mut RunState,
        steps: std::ops::RangeInclusive<u64>,
        hack: impl Fn(u64) -> f64,
    ) {
        let mut noise = Noise(*steps.start());
        for now in steps {
            let by = hack(now);
            let values = [
                ("critic/score/mean", 0.2 + by + 0.02 * noise.next()),
                ("reward/arm/a/score/mean", 0.4 + by + 0.02 * noise.next()),
                ("reward/arm/a/weight", 0.5),
                (
                    "reward/arm/b/score/mean",
                    0.5 - by / 2.0 + 0.02 * noise.next(),
                ),
                ("reward/arm/b/weight", 0.5),
                (
                    "reward/arm/exact/score/mean",
                    0.9 - by + 0.02 * noise.next(),
                ),
                ("reward/arm/exact/weight", 0.0),
            ];
            step(state, now, &values);
        }
    }

    #[test]
    fn where_no_bandit_chooses_the_reward_is_held_against_arms_that_do_not_count() {
        let mut state = RunState::default();
        let mut alarms = Alarms::new(Limits::default());
        for now in 1..=100 {
            hacked_sum(&mut state, now..=now, |step| 0.008 * step as f64);
            alarms.follow(&state);
        }
        let [found] = alarms.active() else {
            panic!("{:?}", alarms.active());
        };
        assert_eq!(found.subject, "reward/arm/exact/score/mean");
        // The whole fall, though a look sees 32 values.
        let expected = "the reward, which is trained for, rose from 0.2";
        assert!(found.message.starts_with(expected), "{}", found.message);
        let expected = "in steps 1 to 100 while the held-out judge exact fell from 0.8";
        assert!(found.message.contains(expected), "{}", found.message);
        assert!(found.message.contains(" to 0.1"), "{}", found.message);
    }

    /// `experiments/bandit.yaml` with `reward.bandit.policy=ensemble`, seed 42: 120 steps, an evaluation every ten.
    #[test]
    fn the_hack_of_three_judges_that_are_averaged_is_seen_though_it_levels_off() {
        let rewards = [
            0.469, 0.469, 0.503, 0.49, 0.464, 0.417, 0.477, 0.477, 0.482, 0.488, 0.505, 0.497,
            0.51, 0.479, 0.487, 0.503, 0.516, 0.55, 0.503, 0.513, 0.521, 0.524, 0.506, 0.526,
            0.556, 0.521, 0.53, 0.534, 0.518, 0.495, 0.505, 0.51, 0.485, 0.531, 0.508, 0.508,
            0.528, 0.539, 0.573, 0.523, 0.518, 0.544, 0.534, 0.51, 0.49, 0.534, 0.542, 0.513,
            0.529, 0.51, 0.521, 0.516, 0.539, 0.51, 0.525, 0.562, 0.521, 0.534, 0.521, 0.589,
            0.563, 0.547, 0.516, 0.546, 0.513, 0.508, 0.557, 0.523, 0.508, 0.542, 0.523, 0.535,
            0.535, 0.534, 0.497, 0.536, 0.521, 0.518, 0.521, 0.518, 0.557, 0.521, 0.557, 0.51,
            0.518, 0.514, 0.544, 0.542, 0.516, 0.539, 0.531, 0.523, 0.516, 0.529, 0.521, 0.523,
            0.565, 0.549, 0.568, 0.513, 0.516, 0.56, 0.536, 0.539, 0.547, 0.531, 0.556, 0.544,
            0.51, 0.534, 0.531, 0.495, 0.521, 0.523, 0.542, 0.555, 0.518, 0.552, 0.546, 0.526,
        ];
        let accuracy = [
            (0, 0.4531),
            (10, 0.3633),
            (20, 0.2031),
            (30, 0.0938),
            (40, 0.0625),
            (50, 0.0586),
            (60, 0.0391),
            (70, 0.0156),
            (80, 0.0156),
            (90, 0.0156),
            (100, 0.0078),
            (110, 0.0039),
            (120, 0.0039),
        ];
        let mut state = RunState::default();
        let mut alarms = Alarms::new(Limits::default());
        let mut firsts = BTreeMap::new();
        step(
            &mut state,
            0,
            &[("val-core/lathe/calc/reward/mean@1", accuracy[0].1)],
        );
        for (now, reward) in (1..).zip(rewards) {
            let mut values = vec![("critic/score/mean", reward)];
            if let Some((_, accuracy)) = accuracy.iter().find(|(step, _)| *step == now) {
                values.push(("val-core/lathe/calc/reward/mean@1", *accuracy));
            }
            step(&mut state, now, &values);
            alarms.follow(&state);
            for finding in alarms.active() {
                firsts.entry(finding.name).or_insert(now);
            }
        }
        assert!(
            firsts["quality_fall"] <= 50 && firsts.contains_key("reward_hacking"),
            "{firsts:?}: that it falls is seen before it is sure that the reward rises"
        );
        let hack = alarms
            .active()
            .iter()
            .find(|found| found.name == "reward_hacking");
        let message = &hack.expect("it is seen").message;
        assert!(
            message.contains("the reward, which is trained for, rose from 0.4"),
            "{message}"
        );
    }

    #[test]
    fn a_validation_reward_is_a_judge_apart_also_without_arms() {
        let mut state = RunState::default();
        let mut detector = RewardHacking::default();
        for now in 1..=200_u64 {
            let mut values = vec![("critic/score/mean", 0.2 + 0.003 * now as f64)];
            if now.is_multiple_of(10) {
                values.push(("val-core/sums/reward/mean@1", 0.9 - 0.003 * now as f64));
            }
            step(&mut state, now, &values);
        }
        let raised = detector.check(&state);
        assert_eq!(raised.len(), 1, "{raised:?}");
        assert_eq!(raised[0].subject, "val-core/sums/reward/mean@1");
    }

    #[test]
    fn a_hack_after_a_roll_back_is_seen_however_rarely_one_looks() {
        let mut state = RunState::default();
        let mut alarms = Alarms::new(Limits::default());
        hacked_sum(&mut state, 1..=100, |_| 0.0);
        alarms.follow(&state);
        state.apply(&Event {
            seq: state.events,
            elapsed_ms: state.events as f64 * 1000.0,
            kind: EventKind::RunResumed {
                from_step: 50,
                checkpoint: None,
                lost_steps: 50,
                passed_over: Vec::new(),
            },
        });
        // As many points as were seen before it went back.
        hacked_sum(&mut state, 51..=100, |step| 0.012 * (step - 50) as f64);
        alarms.follow(&state);
        let [found] = alarms.active() else {
            panic!("{:?}", alarms.active());
        };
        assert!((55..90).contains(&found.since_step), "{}", found.since_step);
    }

    #[test]
    fn a_hacked_arm_is_named_with_the_judge_that_falls_and_since_when() {
        let hack = |step: u64| (step.saturating_sub(60) as f64 * 0.01).min(0.4);
        let (found, _) = run(
            110,
            |step, noise| 0.4 + hack(step) + 0.05 * noise.next(),
            |step, noise| 0.5 - hack(step) + 0.05 * noise.next(),
            1,
        );
        let [(subject, since, message)] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(subject, "reward/arm/exact/score/mean");
        assert!((65..90).contains(since), "since {since}");
        for part in [
            "arm a, which is trained for, rose from 0.",
            "held-out judge exact fell from 0.",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn it_ends_when_the_judge_comes_back() {
        let held = |step: u64| match step {
            0..60 => 0.5,
            60..100 => 0.5 - (step - 60) as f64 * 0.01,
            _ => 0.1 + (step - 100) as f64 * 0.01,
        };
        let score = |step: u64| 0.3 + (step as f64 * 0.005);
        let noisy = |value: f64, noise: &mut Noise| value + 0.02 * noise.next();
        let (found, ever) = run(
            140,
            |step, noise| noisy(score(step), noise),
            |step, noise| noisy(held(step), noise),
            3,
        );
        assert_eq!((found.len(), ever), (0, true));
    }

    #[test]
    fn learning_raises_both_and_no_alarm() {
        for seed in 0..20 {
            let (_, ever) = run(
                150,
                |step, noise| 0.2 + 0.004 * step as f64 + 0.05 * noise.next(),
                |step, noise| 0.3 + 0.003 * step as f64 + 0.05 * noise.next(),
                seed,
            );
            assert!(!ever, "seed {seed}");
        }
    }

    #[test]
    fn noise_raises_hardly_any_also_where_neighbours_are_alike() {
        let last = std::cell::Cell::new((0.0, 0.0));
        let mut raised = Vec::new();
        for seed in 0..60 {
            last.set((0.0, 0.0));
            let (_, ever) = run(
                200,
                |_, noise| {
                    let (a, b) = last.get();
                    last.set((0.6 * a + noise.next(), b));
                    last.get().0
                },
                |_, noise| {
                    let (a, b) = last.get();
                    last.set((a, 0.6 * b + noise.next()));
                    last.get().1
                },
                seed,
            );
            if ever {
                raised.push(seed);
            }
        }
        // 1 in 60 runs of 200 steps, each of which has two series that wander.
        assert!(raised.len() <= 1, "{raised:?}");
    }

    #[test]
    fn a_run_whose_arms_nobody_chooses_among_is_not_looked_at() {
        let mut state = RunState::default();
        let mut detector = RewardHacking::default();
        for step in 1..=60 {
            let values: Values = [
                ("reward/arm/a/score/mean".to_owned(), Number(step as f64)),
                (
                    "reward/arm/exact/score/mean".to_owned(),
                    Number(-(step as f64)),
                ),
            ]
            .into();
            state.apply(&Event {
                seq: step,
                elapsed_ms: step as f64,
                kind: EventKind::StepEnded {
                    step,
                    policy_version: step,
                    values,
                },
            });
            assert_eq!(detector.check(&state), []);
        }
        assert!(detector.judges.is_empty());
    }

    #[test]
    fn the_trend_equals_a_value_worked_out_by_hand() {
        // S = 10, variance 5 * 4 * 15 / 18 = 16.67, and what is left of a straight line is all the same.
        let z = trend(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(
            (z - 9.0 / (5.0 * 4.0 * 15.0 / 18.0_f64).sqrt()).abs() < 1e-12,
            "{z}"
        );
        assert_eq!(trend(&[2.0; 9]), 0.0);
        assert_eq!(trend(&[1.0, 2.0]), 0.0);
    }

    proptest! {
        #[test]
        fn a_trend_turns_its_sign_with_the_series_and_is_of_no_unit(
            values in prop::collection::vec(-1e3..1e3_f64, 3..40), factor in 1e-3..1e3_f64,
        ) {
            let z = trend(&values);
            prop_assert!(z.is_finite());
            let turned: Vec<f64> = values.iter().map(|value| -value * factor).collect();
            prop_assert!((z + trend(&turned)).abs() <= 1e-6 * (1.0 + z.abs()), "{} and {}", z, trend(&turned));
        }
    }
}
