//! Short names of metrics, and what they stand for in a run.

use std::collections::BTreeSet;

use super::Reduce;
use crate::metrics::{self, Direction};

/// Words people use, and the metrics each may mean: the first that the run has. `*` stands for any text.
pub const ALIASES: &[(&str, &[&str])] = &[
    (
        "reward",
        &[
            "val-core/*/reward/mean@*",
            "val-core/*/acc/mean@*",
            "critic/score/mean",
            "critic/rewards/mean",
        ],
    ),
    ("score", &["critic/score/mean"]),
    (
        "kl",
        &["actor/ppo_kl", "actor/kl_loss", "actor/reward_kl_penalty"],
    ),
    ("ref_kl", &["actor/kl_loss", "actor/reward_kl_penalty"]),
    ("entropy", &["actor/entropy", "actor/entropy_loss"]),
    ("loss", &["actor/pg_loss", "train/loss"]),
    ("clip", &["actor/pg_clipfrac"]),
    ("grad_norm", &["actor/grad_norm", "train/grad_norm"]),
    ("lr", &["actor/lr", "train/lr"]),
    ("length", &["response_length/mean"]),
    ("staleness", &["staleness/mean"]),
    ("overlap", &["async/overlap_frac"]),
    ("sync", &["weight_sync/total_ms"]),
    ("step_s", &["timing_s/step", "perf/time_per_step"]),
    (
        "throughput",
        &["perf/throughput", "perf/generated_tokens_per_s"],
    ),
    ("gpu", &["gpu/0/utilization_percent"]),
    ("gpu_memory", &["gpu/0/memory_used_bytes"]),
    ("memory", &["host/process_memory_bytes"]),
];

/// What a word stands for among the metrics of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved<'a> {
    None,
    One(&'a str),
    /// In name order.
    Many(Vec<&'a str>),
}

/// The metric a word means: its full name, else its alias, else the only one that ends in `/word`.
pub fn resolve<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Resolved<'a> {
    let names: Vec<&str> = names.into_iter().collect();
    if let Some(name) = names.iter().find(|name| **name == word) {
        return Resolved::One(name);
    }
    if let Some((_, patterns)) = ALIASES.iter().find(|(alias, _)| *alias == word) {
        for pattern in *patterns {
            let found: Vec<&str> = names
                .iter()
                .copied()
                .filter(|name| fits(pattern, name))
                .collect();
            if !found.is_empty() {
                return one_or_many(found);
            }
        }
    }
    one_or_many(
        names
            .into_iter()
            .filter(|name| {
                name.strip_suffix(word)
                    .is_some_and(|before| before.ends_with('/'))
            })
            .collect(),
    )
}

fn one_or_many(mut found: Vec<&str>) -> Resolved<'_> {
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [] => Resolved::None,
        [name] => Resolved::One(name),
        _ => Resolved::Many(found),
    }
}

/// `*` is any text, also none.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|tail| {
            tail.char_indices()
                .map(|(at, _)| at)
                .chain([tail.len()])
                .any(|at| fits(rest, &tail[at..]))
        }),
    }
}

/// [`Reduce::Best`] as max or min. None: the metric has no better way.
pub(super) fn directed(name: &str, reduce: Reduce) -> Option<Reduce> {
    if reduce != Reduce::Best {
        return Some(reduce);
    }
    match metrics::lookup(name)?.direction {
        Direction::Higher => Some(Reduce::Max),
        Direction::Lower => Some(Reduce::Min),
        Direction::Neither => None,
    }
}

/// What is wrong with asking for a metric among all that there are.
pub(super) fn complaint(word: &str, reduce: Reduce, names: &BTreeSet<&str>) -> Option<String> {
    match resolve(word, names.iter().copied()) {
        Resolved::One(name) => directed(name, reduce).is_none().then(|| {
            format!(
                "{name} has no better way; ask for max({word}) or min({word}) instead of the best"
            )
        }),
        Resolved::Many(found) => {
            let shown = found.iter().take(4).copied().collect::<Vec<_>>().join(", ");
            let rest = match found.len().saturating_sub(4) {
                0 => String::new(),
                more => format!(" or {more} more"),
            };
            Some(format!("`{word}` could be {shown}{rest}; give more of it"))
        }
        Resolved::None => Some(format!("no run has a metric `{word}`, and none ends in it")),
    }
}
