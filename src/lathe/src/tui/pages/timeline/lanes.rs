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

    /// The share of each of `columns` equal parts of `start..end` that was busy, 0..1.
    pub fn columns(&self, state: &RunState, start: f64, end: f64, columns: usize) -> Vec<f64> {
        let mut shares = vec![0.0; columns];
        let width = (end - start) / columns as f64;
        if columns == 0 || width.is_nan() || width <= 0.0 {
            return shares;
        }
        for lane in self.lanes {
            for (from, to) in clipped(state, *lane, start, end) {
                let first = (((from - start) / width) as usize).min(columns - 1);
                let last = (((to - start) / width) as usize).min(columns - 1);
                for (column, share) in shares.iter_mut().enumerate().take(last + 1).skip(first) {
                    let left = start + column as f64 * width;
                    let covered = (to.min(left + width) - from.max(left)).max(0.0);
                    // A span of no visible length is still seen, where it begins.
                    let least = if column == first {
                        f64::MIN_POSITIVE
                    } else {
                        0.0
                    };
                    *share += (covered / width).max(least);
                }
            }
        }
        for share in &mut shares {
            *share = share.min(1.0);
        }
        shares
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
                let shares = row.columns(&state, start, end, columns);
                let busy = row.busy_ms(&state, start, end);
                let shown: f64 = shares.iter().sum::<f64>() * (end - start) / columns as f64;
                if row.lanes.len() == 1 {
                    prop_assert!((shown - busy).abs() < 1e-6, "{} {shown} {busy}", row.label);
                } else {
                    // Two lanes of a row may share a column's time.
                    prop_assert!(shown + 1e-6 >= busy * 0.999 - 1e-6);
                }
                prop_assert_eq!(busy > 0.0, shares.iter().any(|share| *share > 0.0));
                prop_assert!(busy <= end - start + 1e-6);
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
