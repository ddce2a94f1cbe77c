//! The rows of the timeline, and how busy each was between two moments. From the fold's merged intervals, so exact at any zoom.

use runlog::RunState;
use runlog::event::Lane;
use runlog::state::Intervals;
pub use runlog::state::steps::is_wait;

/// One row: lanes that are one thing to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneRow {
    pub label: &'static str,
    /// Heading of its column in the table of steps.
    pub short: &'static str,
    pub lanes: &'static [Lane],
}

pub const ROWS: [LaneRow; 10] = [
    row("generate", "gen", &[Lane::Generate]),
    row("tools", "tool", &[Lane::Tool]),
    row("reward", "rew", &[Lane::Reward]),
    row(
        "log-probs",
        "logp",
        &[Lane::OldLogProb, Lane::Ref, Lane::Value],
    ),
    row("learner", "learn", &[Lane::ActorUpdate, Lane::CriticUpdate]),
    row("weight sync", "sync", &[Lane::WeightSync]),
    row("eval", "eval", &[Lane::Eval]),
    row("checkpoint", "ckpt", &[Lane::Checkpoint]),
    row("wait rollouts", "w.rol", &[Lane::WaitRollouts]),
    row("wait weights", "w.wts", &[Lane::WaitLearner]),
];

const fn row(label: &'static str, short: &'static str, lanes: &'static [Lane]) -> LaneRow {
    LaneRow {
        label,
        short,
        lanes,
    }
}

impl LaneRow {
    pub fn is_wait(&self) -> bool {
        self.lanes.iter().any(|lane| is_wait(*lane))
    }

    /// Something happened in it.
    pub fn is_used(&self, state: &RunState) -> bool {
        self.lanes
            .iter()
            .any(|lane| state.lanes.get(lane).is_some_and(|lane| lane.spans > 0))
    }

    /// Milliseconds of `start..end` during which at least one of its spans was open.
    pub fn busy_ms(&self, state: &RunState, start: f64, end: f64) -> f64 {
        match self.lanes {
            [lane] => clipped(state, *lane, start, end)
                .map(|(from, to)| to - from)
                .sum(),
            lanes => union(state, lanes.iter().copied(), start, end).length(),
        }
    }

    /// Its busy time made ready for any window.
    pub fn busy(&self, state: &RunState) -> Busy {
        let lanes = self.lanes.iter().filter_map(|lane| state.lanes.get(lane));
        let mut parts: Vec<(f64, f64)> = Vec::new();
        let mut spans = 0;
        for lane in lanes {
            spans += lane.spans;
            parts.extend_from_slice(lane.busy.parts());
        }
        // Of one lane they are in order and apart; of several they are made so.
        parts.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut joined: Vec<(f64, f64)> = Vec::with_capacity(parts.len());
        for (start, end) in parts {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        let mut total = 0.0;
        let before = joined
            .iter()
            .map(|(start, end)| {
                total += end - start;
                total - (end - start)
            })
            .collect();
        Busy {
            spans,
            parts: joined,
            before,
        }
    }

    /// Spans it had, to tell whether what was made ready is still right.
    pub fn spans(&self, state: &RunState) -> u64 {
        self.lanes
            .iter()
            .filter_map(|lane| state.lanes.get(lane))
            .map(|lane| lane.spans)
            .sum()
    }

    /// The next moment after (or before) `from` at which one of its busy intervals begins or ends.
    pub fn next_edge(&self, state: &RunState, from: f64, is_forward: bool) -> Option<f64> {
        let edges = self
            .lanes
            .iter()
            .filter_map(|lane| state.lanes.get(lane))
            .flat_map(|lane| {
                let parts = lane.busy.parts();
                let at = parts.partition_point(|part| part.1 < from);
                // One on either side is enough.
                parts[at.saturating_sub(2)..(at + 3).min(parts.len())]
                    .iter()
                    .flat_map(|(start, end)| [*start, *end])
            });
        if is_forward {
            edges
                .filter(|edge| *edge > from + 1e-6)
                .min_by(f64::total_cmp)
        } else {
            edges
                .filter(|edge| *edge < from - 1e-6)
                .max_by(f64::total_cmp)
        }
    }
}

/// When a row was busy, with the time before each of its intervals: a window of a run of any length costs a few lookups a
/// column.
#[derive(Debug, Clone, Default)]
pub struct Busy {
    spans: u64,
    parts: Vec<(f64, f64)>,
    /// Busy milliseconds before each part.
    before: Vec<f64>,
}

impl Busy {
    pub fn is_of(&self, row: &LaneRow, state: &RunState) -> bool {
        self.spans == row.spans(state)
    }

    /// Busy milliseconds before a moment.
    fn until(&self, ms: f64) -> f64 {
        match self
            .parts
            .partition_point(|part| part.0 < ms)
            .checked_sub(1)
        {
            None => 0.0,
            Some(at) => {
                let (start, end) = self.parts[at];
                self.before[at] + ms.min(end) - start
            }
        }
    }

    /// Milliseconds of `start..end` that were busy.
    pub fn between(&self, start: f64, end: f64) -> f64 {
        (self.until(end) - self.until(start)).max(0.0)
    }

    /// The share of each of `columns` equal parts of `start..end` that was busy, 0..1; more than 0 wherever a span begins.
    pub fn columns(&self, start: f64, end: f64, columns: usize) -> Vec<f64> {
        let width = (end - start) / columns as f64;
        if width.is_nan() || width <= 0.0 {
            return vec![0.0; columns];
        }
        let edge = |column: usize| start + column as f64 * width;
        (0..columns)
            .map(|column| {
                let (from, to) = (edge(column), edge(column + 1));
                let share = (self.between(from, to) / width).min(1.0);
                // A difference of large sums may lose what is very short.
                let has_start = || {
                    let first = self.parts.partition_point(|part| part.0 < from);
                    self.parts.get(first).is_some_and(|part| part.0 < to)
                };
                if share <= 0.0 && has_start() {
                    f64::MIN_POSITIVE
                } else {
                    share
                }
            })
            .collect()
    }
}

/// The busy intervals of a lane, cut to `start..end`.
fn clipped(state: &RunState, lane: Lane, start: f64, end: f64) -> impl Iterator<Item = (f64, f64)> {
    let parts = state
        .lanes
        .get(&lane)
        .map_or(&[][..], |lane| lane.busy.parts());
    let first = parts.partition_point(|part| part.1 <= start);
    parts[first..]
        .iter()
        .take_while(move |part| part.0 < end)
        .map(move |part| (part.0.max(start), part.1.min(end)))
}

fn union(
    state: &RunState,
    lanes: impl IntoIterator<Item = Lane>,
    start: f64,
    end: f64,
) -> Intervals {
    let mut all = Intervals::default();
    for lane in lanes {
        for (from, to) in clipped(state, lane, start, end) {
            all.insert(from, to);
        }
    }
    all
}

/// Share of the generation in `start..end` during which the learner worked, 0..1: [`RunState::overlap_frac`] of a part of the
/// run. None: nothing was generated then.
pub fn overlap_frac(state: &RunState, start: f64, end: f64) -> Option<f64> {
    let generation = union(state, [Lane::Generate], start, end);
    if generation.is_empty() {
        return None;
    }
    let work = Lane::ALL.into_iter().filter(|lane| lane.is_learner_work());
    let learner = union(state, work, start, end);
    Some(generation.shared_length(&learner) / generation.length())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use runlog::{Event, EventKind};

    use super::*;

    fn state(spans: &[(usize, u16, u16)]) -> RunState {
        let events: Vec<Event> = spans
            .iter()
            .enumerate()
            .map(|(seq, (lane, start, length))| Event {
                seq: seq as u64,
                elapsed_ms: f64::from(start + length),
                kind: EventKind::Span {
                    lane: Lane::ALL[lane % Lane::ALL.len()],
                    name: String::new(),
                    step: None,
                    start_ms: f64::from(*start),
                    end_ms: f64::from(start + length),
                },
            })
            .collect();
        RunState::fold(&events)
    }

    fn any_spans() -> impl Strategy<Value = Vec<(usize, u16, u16)>> {
        prop::collection::vec((0_usize..13, 0_u16..500, 1_u16..80), 0..40)
    }

    proptest! {
        #[test]
        fn columns_add_up_to_the_busy_time_and_hide_no_span(
            spans in any_spans(), start in 0_u16..400, length in 1_u16..300, columns in 1_usize..50
        ) {
            let state = state(&spans);
            let (start, end) = (f64::from(start), f64::from(start + length));
            for row in ROWS {
                let busy = row.busy(&state);
                prop_assert!(busy.is_of(&row, &state));
                let shares = busy.columns(start, end, columns);
                let expected = row.busy_ms(&state, start, end);
                prop_assert!((busy.between(start, end) - expected).abs() < 1e-6);
                let shown: f64 = shares.iter().sum::<f64>() * (end - start) / columns as f64;
                prop_assert!((shown - expected).abs() < 1e-6, "{} {shown} {expected}", row.label);
                for (column, share) in shares.iter().enumerate() {
                    let width = (end - start) / columns as f64;
                    let from = start + column as f64 * width;
                    prop_assert_eq!(*share > 1e-9, row.busy_ms(&state, from, from + width) > 1e-9 * width);
                }
            }
        }

        #[test]
        fn overlap_of_the_whole_run_is_the_folds(spans in any_spans()) {
            let state = state(&spans);
            let ours = overlap_frac(&state, 0.0, 1e6);
            match (ours, state.overlap_frac()) {
                (Some(a), Some(b)) => prop_assert!((a - b).abs() < 1e-9),
                (a, b) => prop_assert_eq!(a, b),
            }
        }

        #[test]
        fn edges_are_found_one_after_the_other(spans in any_spans()) {
            let state = state(&spans);
            for row in ROWS {
                let mut edges: Vec<f64> = row.lanes.iter()
                    .filter_map(|lane| state.lanes.get(lane))
                    .flat_map(|lane| lane.busy.parts().iter().flat_map(|part| [part.0, part.1]))
                    .collect();
                edges.sort_by(f64::total_cmp);
                edges.dedup();
                let mut found = Vec::new();
                let mut at = -1.0;
                while let Some(edge) = row.next_edge(&state, at, true) {
                    found.push(edge);
                    at = edge;
                }
                prop_assert_eq!(&found, &edges);
                let mut back = Vec::new();
                let mut at = 1e9;
                while let Some(edge) = row.next_edge(&state, at, false) {
                    back.push(edge);
                    at = edge;
                }
                back.reverse();
                prop_assert_eq!(&back, &edges);
            }
        }
    }
}
