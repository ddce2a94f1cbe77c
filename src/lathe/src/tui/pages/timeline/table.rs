//! The steps one below the other: how long each took, the share of each lane, the overlap, the longest wait.

use std::cmp::Reverse;
use std::fmt::Write as _;

use runlog::RunState;
use runlog::state::{Stall, StepTimes};

use super::Timeline;
use super::lanes::{LaneRow, ROWS, overlap_frac};
use crate::tui::pages::PageId;
use crate::tui::shared::Shared;
use crate::tui::widgets::text;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    #[default]
    Step,
    /// The longest first.
    Length,
    /// The longest wait first.
    Wait,
}

impl Order {
    pub fn words(self) -> &'static str {
        match self {
            Self::Step => "in order",
            Self::Length => "by length, longest first",
            Self::Wait => "by longest wait",
        }
    }
}

/// The longest wait that ended in a step.
pub fn stall_of<'a>(state: &'a RunState, step: &StepTimes) -> Option<&'a Stall> {
    let stalls = &state.steps.stalls;
    // They stand in the order of their ends, except where a clock went back.
    let first = stalls.partition_point(|stall| stall.wait.end_ms <= step.start_ms);
    stalls
        .range(first..)
        .take_while(|stall| stall.wait.end_ms <= step.end_ms)
        .max_by(|a, b| a.length_ms().total_cmp(&b.length_ms()))
}

/// ``step 41: the learner waits 37 s for tool `search`, instance 9f3``
pub fn stall_words(stall: &Stall) -> String {
    let (who, what) = stall.words();
    let step = stall
        .wait
        .step
        .map_or_else(String::new, |step| format!("step {step}: "));
    format!(
        "{step}{who} waits {} for {}",
        super::draw::length(stall.length_ms()),
        text::printable(&what)
    )
}

impl Timeline {
    /// Sorts the table anew when it is not in order and steps were added.
    pub(super) fn sort(&mut self, shared: &Shared) {
        let Some(open) = shared.current_run() else {
            self.sorted.clear();
            return;
        };
        let state = &open.state;
        let times = &state.steps.times;
        if self.order == Order::Step {
            self.sorted.clear();
            return;
        }
        if self.sorted_of == times.len() || shared.front != PageId::Timeline {
            return;
        }
        self.sorted_of = times.len();
        let key = |step: &StepTimes| match self.order {
            Order::Wait => stall_of(state, step).map_or(0.0, Stall::length_ms),
            _ => step.end_ms - step.start_ms,
        };
        // Microseconds: whole numbers have an order.
        let mut keyed: Vec<(Reverse<u64>, usize)> = times
            .iter()
            .enumerate()
            .map(|(index, step)| (Reverse((key(step).max(0.0) * 1e3) as u64), index))
            .collect();
        keyed.sort_unstable();
        self.sorted = keyed.into_iter().map(|(_, index)| index).collect();
    }

    /// The step of a row of the table, as an index.
    pub(super) fn table_index(&self, row: usize) -> usize {
        self.sorted.get(row).copied().unwrap_or(row)
    }

    /// The row of the step under the cursor.
    pub(super) fn table_row(&self, state: &RunState) -> Option<usize> {
        let step = self.step(state)?;
        let index = state
            .steps
            .times
            .partition_point(|other| other.end_ms < step.end_ms);
        if self.sorted.is_empty() {
            return Some(index);
        }
        self.sorted.iter().position(|other| *other == index)
    }
}

/// A percentage in four columns.
pub fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.005 {
        "<1%".to_owned()
    } else {
        format!("{:.0}%", share * 100.0)
    }
}

/// The numbers of one step: length, share of each of `rows`, overlap.
pub fn cells(state: &RunState, step: &StepTimes, rows: &[&LaneRow]) -> Vec<String> {
    let length = step.end_ms - step.start_ms;
    let mut cells = vec![step.step.to_string(), super::draw::length(length)];
    for row in rows {
        let share = if length > 0.0 {
            row.busy_ms(state, step.start_ms, step.end_ms) / length
        } else {
            0.0
        };
        cells.push(if share > 0.0 {
            percent(share)
        } else {
            "-".to_owned()
        });
    }
    let overlap = overlap_frac(state, step.start_ms, step.end_ms);
    cells.push(overlap.map_or_else(|| "-".to_owned(), percent));
    cells
}

/// The whole table with tabs between its columns, numbers in milliseconds and fractions.
pub fn as_text(state: &RunState) -> Option<String> {
    if state.steps.times.is_empty() {
        return None;
    }
    let rows: Vec<&LaneRow> = ROWS.iter().filter(|row| row.is_used(state)).collect();
    let mut text = "step\tstart_ms\tlength_ms".to_owned();
    for row in &rows {
        let _ = write!(text, "\t{}", row.label.replace(' ', "_"));
    }
    text += "\toverlap\tlongest_wait\n";
    for step in &state.steps.times {
        let length = step.end_ms - step.start_ms;
        let _ = write!(text, "{}\t{:.1}\t{length:.1}", step.step, step.start_ms);
        for row in &rows {
            let share = row.busy_ms(state, step.start_ms, step.end_ms) / length.max(1e-9);
            let _ = write!(text, "\t{share:.4}");
        }
        match overlap_frac(state, step.start_ms, step.end_ms) {
            Some(overlap) => {
                let _ = write!(text, "\t{overlap:.4}");
            }
            None => text += "\t",
        }
        let stall = stall_of(state, step).map(stall_words).unwrap_or_default();
        let _ = writeln!(text, "\t{stall}");
    }
    Some(text)
}
