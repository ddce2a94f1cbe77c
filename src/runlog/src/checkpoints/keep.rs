//! Which checkpoints may go: pure, the same for the trainer that prunes and for whoever asks why one is still there.

use serde::Deserialize;

use super::Found;
use crate::metrics::{self, Direction};
use crate::state::RunState;

/// What is kept; a checkpoint goes when no rule wants it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// The newest so many, never fewer than one. None: all are kept.
    pub last: Option<usize>,
    /// Every one of a step that is a multiple of this.
    pub every: Option<u64>,
    /// So many with the best score.
    pub best: usize,
    /// Steps between evaluations where the score is one of an evaluation: one that is still to come is waited for.
    pub scored_every: Option<u64>,
    /// What guards may go back to.
    pub guards: Option<Lookback>,
    /// Where the run went back behind: one of a step with `from < step < to` holds what was left. It is no best one, and nothing
    /// to go back to.
    pub left_behind: Vec<(u64, u64)>,
}

impl Rules {
    /// Whether the run left what was trained at this step.
    pub fn is_left(&self, step: u64) -> bool {
        let mut spans = self.left_behind.iter();
        spans.any(|(from, to)| *from < step && step < *to)
    }
}

/// How far back the checkpoint lies that a guard goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookback {
    /// A trip now may be about trouble that began so many steps ago; it needs a checkpoint from before that.
    pub steps: u64,
    /// It may want the best of those.
    pub to_best: bool,
}

/// Why a checkpoint is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// No rule lets any go.
    All,
    /// Among the newest so many.
    Last(usize),
    Every(u64),
    /// With this score among the best.
    Best(f64),
    /// Its evaluation is still to come.
    Unscored,
    /// A guard may go back to it.
    RollBack,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub found: Found,
    pub score: Option<f64>,
    /// Empty: it may go.
    pub kept: Vec<Why>,
}

/// Judges whole checkpoints, lowest step first. `score`: higher is better. `goal`: what guards call best.
pub fn judge(
    found: &[Found],
    score: impl Fn(u64) -> Option<f64>,
    goal: impl Fn(u64) -> Option<f64>,
    rules: &Rules,
) -> Vec<Judged> {
    let mut judged: Vec<Judged> = found
        .iter()
        .map(|found| Judged {
            score: score(found.step).filter(|score| score.is_finite()),
            found: found.clone(),
            kept: Vec::new(),
        })
        .collect();
    let Some(last) = rules.last else {
        for one in &mut judged {
            one.kept.push(Why::All);
        }
        return judged;
    };
    let last = last.max(1);
    let newest = judged.len().saturating_sub(last);
    for one in &mut judged[newest..] {
        one.kept.push(Why::Last(last));
    }
    if let Some(every) = rules.every.filter(|every| *every > 0) {
        for one in &mut judged {
            if one.found.step > 0 && one.found.step.is_multiple_of(every) {
                one.kept.push(Why::Every(every));
            }
        }
    }
    // Places of those that the run did not leave behind.
    let on_the_way: Vec<usize> = (0..judged.len())
        .filter(|at| !rules.is_left(judged[*at].found.step))
        .collect();
    let best = best_of(&judged, &on_the_way, rules.best, |one| one.score);
    for at in best {
        let score = judged[at].score.expect("the best have one");
        judged[at].kept.push(Why::Best(score));
    }
    if let Some(every) = rules.scored_every.filter(|_| rules.best > 0) {
        let scored = judged.iter().rev().find(|one| one.score.is_some());
        let scored = scored.map_or(0, |one| one.found.step);
        for one in &mut judged {
            let step = one.found.step;
            let is_due = step > scored && step.is_multiple_of(every.max(1));
            if is_due && one.score.is_none() && !rules.is_left(step) {
                one.kept.push(Why::Unscored);
            }
        }
    }
    if let Some(lookback) = rules.guards {
        let now = judged.last().map_or(0, |one| one.found.step);
        let from = now.saturating_sub(lookback.steps);
        // Trouble may begin at `from` or at any step since: what it needs is the newest before, wherever that is.
        let before = on_the_way.partition_point(|at| judged[*at].found.step < from);
        for at in &on_the_way[before.saturating_sub(1)..] {
            judged[*at].kept.push(Why::RollBack);
        }
        if lookback.to_best {
            for at in best_of(&judged, &on_the_way[..before], 1, |one| {
                goal(one.found.step)
            }) {
                if !judged[at].kept.contains(&Why::RollBack) {
                    judged[at].kept.push(Why::RollBack);
                }
            }
        }
    }
    judged
}

/// Of the places `among`, those of the `count` best, the newer of two that are alike.
fn best_of(
    judged: &[Judged],
    among: &[usize],
    count: usize,
    score: impl Fn(&Judged) -> Option<f64>,
) -> Vec<usize> {
    let mut scored: Vec<(f64, usize)> = among
        .iter()
        .filter_map(|at| Some((score(&judged[*at]).filter(|score| score.is_finite())?, *at)))
        .collect();
    scored.sort_by(|left, right| right.0.total_cmp(&left.0).then(right.1.cmp(&left.1)));
    scored.into_iter().take(count).map(|(_, at)| at).collect()
}

/// Where the run of these checkpoints went back behind, as the newest of them that can be read says; see
/// [`Rules::left_behind`].
pub fn left_behind(found: &[Found]) -> Vec<(u64, u64)> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Counters {
        guards: Guards,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Guards {
        left_behind: Vec<(u64, u64)>,
    }
    let read = |found: &Found| -> Option<Counters> {
        let text = std::fs::read(found.path.join("state.json")).ok()?;
        serde_json::from_slice(&text).ok()
    };
    let newest = found.iter().rev().find_map(read).unwrap_or_default();
    newest.guards.left_behind
}

/// The mean of the metrics that fit, as they stand at the end of `step`. None: there are none at that step.
pub fn value(state: &RunState, fits: impl Fn(&str) -> bool, step: u64) -> Option<f64> {
    let values: Vec<f64> = state
        .series
        .iter()
        .filter(|(name, _)| fits(name))
        .filter_map(|(_, series)| series.iter().rev().find(|point| point.step == step))
        .map(|point| point.value.0)
        .collect();
    let count = values.len();
    (count > 0).then(|| values.iter().sum::<f64>() / count as f64)
}

/// That value, turned so that higher is better.
pub fn score(state: &RunState, fits: impl Fn(&str) -> bool, step: u64) -> Option<f64> {
    let is_lower_better = state
        .series
        .names()
        .find(|name| fits(name))
        .and_then(metrics::lookup)
        .is_some_and(|metric| metric.direction == Direction::Lower);
    let value = value(state, fits, step)?;
    Some(if is_lower_better { -value } else { value })
}
