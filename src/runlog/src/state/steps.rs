//! The course of a run, step by step: when each ended, who waited, and for what.
//!
//! A wait is named when it ends, from the latest spans: those it waited for have ended just before. Memory is a few
//! numbers a step, and a name for each wait that is long enough to matter.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Span;
use crate::event::{Event, EventKind, Lane, Phase};

/// Shorter waits are no stalls: nobody can do anything about them.
pub const SHORTEST_STALL_MS: f64 = 100.0;
/// Stalls kept; of more, the shortest is dropped.
pub const MOST_STALLS: usize = 4096;
/// How many of the latest spans are looked at to name one wait: a batch ends with at most so many tool calls.
const LOOKED_AT: usize = 2048;
/// A wait ends when it hears of the end of its cause: a moment later.
const HEARD_WITHIN_MS: f64 = 50.0;
/// What took less of a wait than this was its last link, not its cause.
const LEAST_SHARE: f64 = 0.1;

/// From the end of the step before (or the start of training) to the end of this one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    pub step: u64,
    pub start_ms: f64,
    pub end_ms: f64,
}

/// A wait that matters, and what it was for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// A span of [`Lane::WaitRollouts`] or [`Lane::WaitLearner`].
    pub wait: Span,
    /// The span it waited for; None when no span explains it.
    pub cause: Option<Span>,
}

/// The part of the fold that the timeline shows beside the lanes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Steps {
    /// In the order they ended.
    pub times: Vec<StepTimes>,
    /// In the order they ended.
    pub stalls: VecDeque<Stall>,
    train_start_ms: Option<f64>,
}

impl Steps {
    /// `recent` ends with this event's span when it is one.
    pub(super) fn apply(&mut self, event: &Event, recent: &VecDeque<Span>) {
        match &event.kind {
            EventKind::PhaseChanged { phase } => {
                if matches!(phase, Phase::Train | Phase::Sft) {
                    self.train_start_ms = Some(event.elapsed_ms);
                }
            }
            EventKind::StepEnded { step, .. } => {
                let before = self.times.last().map(|before| before.end_ms);
                let start_ms = later(before, self.train_start_ms).unwrap_or(0.0);
                self.times.push(StepTimes {
                    step: *step,
                    start_ms,
                    end_ms: event.elapsed_ms,
                });
            }
            EventKind::Span { lane, .. } if is_wait(*lane) => {
                let mut latest = recent.iter().rev().take(LOOKED_AT);
                let Some(wait) = latest.next() else {
                    return;
                };
                let length = wait.end_ms - wait.start_ms;
                if length.is_nan() || length < SHORTEST_STALL_MS {
                    return;
                }
                if self.stalls.len() == MOST_STALLS {
                    self.drop_shortest();
                }
                self.stalls.push_back(Stall {
                    wait: wait.clone(),
                    cause: cause(wait, latest).cloned(),
                });
            }
            _ => {}
        }
    }

    fn drop_shortest(&mut self) {
        let shortest = self
            .stalls
            .iter()
            .enumerate()
            .min_by(|a, b| a.1.length_ms().total_cmp(&b.1.length_ms()));
        if let Some((index, _)) = shortest {
            self.stalls.remove(index);
        }
    }

    /// The step during which a moment lies; None before training and after the last step.
    pub fn at(&self, ms: f64) -> Option<&StepTimes> {
        let index = self.times.partition_point(|times| times.end_ms <= ms);
        self.times.get(index).filter(|times| times.start_ms <= ms)
    }

    pub fn find(&self, step: u64) -> Option<&StepTimes> {
        // Steps count up; a run that went back to a checkpoint has some twice, and the last time counts.
        self.times.iter().rev().find(|times| times.step == step)
    }

    /// The longest stall that ended between two moments.
    pub fn worst_stall(&self, start_ms: f64, end_ms: f64) -> Option<&Stall> {
        self.stalls
            .iter()
            .filter(|stall| stall.wait.end_ms > start_ms && stall.wait.end_ms <= end_ms)
            .max_by(|a, b| a.length_ms().total_cmp(&b.length_ms()))
    }
}

impl Stall {
    pub fn length_ms(&self) -> f64 {
        self.wait.end_ms - self.wait.start_ms
    }

    /// ``waits 37 s for tool `search`, instance 9f3`` is said of it in these parts: who waits, and for what.
    pub fn words(&self) -> (&'static str, String) {
        let who = match self.wait.lane {
            Lane::WaitLearner => "the generator",
            _ => "the learner",
        };
        let what = match &self.cause {
            None => "something no span names".to_owned(),
            Some(cause) => cause_words(cause),
        };
        (who, what)
    }
}

fn cause_words(cause: &Span) -> String {
    match (cause.lane, cause.name.split_once(' ')) {
        // The trainer names a call's span by its tool and its dialogue.
        (Lane::Tool, Some((tool, instance))) => format!("tool `{tool}`, instance {instance}"),
        (Lane::Tool, None) => format!("tool `{}`", cause.name),
        (Lane::Paused, _) => "the end of a pause".to_owned(),
        (lane, _) => {
            let lane = lane.name().replace('_', " ");
            if cause.name.is_empty() || cause.name == lane {
                lane
            } else {
                format!("{lane} `{}`", cause.name)
            }
        }
    }
}

pub fn is_wait(lane: Lane) -> bool {
    matches!(lane, Lane::WaitRollouts | Lane::WaitLearner)
}

/// What a wait was for, among the other spans in any order.
///
/// A tool call or a score that takes up half of the wait or more is named before the batch that contains it. Else the longest
/// span that was going on when the wait ended, or ended just before, and took up a tenth of it; else the one that shares the
/// most time with the wait.
/// Waits explain nothing: two sides never wait for each other at once. Ties go to the one that started first.
pub fn cause<'a>(wait: &Span, spans: impl IntoIterator<Item = &'a Span>) -> Option<&'a Span> {
    let length = wait.end_ms - wait.start_ms;
    let mut best: Option<((u8, f64), &Span)> = None;
    for span in spans {
        let shared = span.end_ms.min(wait.end_ms) - span.start_ms.max(wait.start_ms);
        // Also false where a time is no number.
        let is_during = span.start_ms < span.end_ms && shared > 0.0;
        if !is_during || is_wait(span.lane) || !is_on_the_way(wait.lane, span.lane) {
            continue;
        }
        let is_detail = matches!(span.lane, Lane::Tool | Lane::Reward);
        let covers_end =
            span.end_ms >= wait.end_ms - HEARD_WITHIN_MS && shared >= length * LEAST_SHARE;
        let rank = match (is_detail, covers_end) {
            (true, _) if shared >= length / 2.0 => (3, shared),
            (_, true) => (2, span.end_ms.min(wait.end_ms) - span.start_ms),
            _ => (1, shared),
        };
        let is_better = best.as_ref().is_none_or(|(known, other)| {
            (rank.0.cmp(&known.0))
                .then(rank.1.total_cmp(&known.1))
                .then(other.start_ms.total_cmp(&span.start_ms))
                .then(other.end_ms.total_cmp(&span.end_ms))
                .is_gt()
        });
        if is_better {
            best = Some((rank, span));
        }
    }
    best.map(|(_, span)| span)
}

/// Whether work in `lane` can be what a wait in `wait` is for: the learner waits for rollouts, the generator for weights.
fn is_on_the_way(wait: Lane, lane: Lane) -> bool {
    let makes_rollouts = matches!(lane, Lane::Generate | Lane::Tool | Lane::Reward);
    match wait {
        // An evaluation uses the same engine, and delays the batch.
        Lane::WaitRollouts => makes_rollouts || lane == Lane::Eval,
        _ => !makes_rollouts && lane != Lane::Eval,
    }
}

/// The later of two moments of which either may not have come.
fn later(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::number::Values;
    use crate::state::RunState;

    fn span(lane: Lane, name: &str, start_ms: f64, end_ms: f64) -> Span {
        Span {
            lane,
            name: name.to_owned(),
            step: Some(41),
            start_ms,
            end_ms,
        }
    }

    fn events(kinds: Vec<(f64, EventKind)>) -> RunState {
        let events: Vec<Event> = kinds
            .into_iter()
            .enumerate()
            .map(|(seq, (elapsed_ms, kind))| Event {
                seq: seq as u64,
                elapsed_ms,
                kind,
            })
            .collect();
        RunState::fold(&events)
    }

    fn ended(span: &Span) -> (f64, EventKind) {
        let Span {
            lane,
            name,
            step,
            start_ms,
            end_ms,
        } = span.clone();
        let kind = EventKind::Span {
            lane,
            name,
            step,
            start_ms,
            end_ms,
        };
        (end_ms, kind)
    }

    #[test]
    fn a_wait_for_a_slow_tool_is_named_by_tool_and_instance() {
        let state = events(vec![
            ended(&span(Lane::Tool, "calculator 41-7/0", 100.0, 160.0)),
            ended(&span(Lane::Tool, "search 9f3", 1_000.0, 39_000.0)),
            ended(&span(Lane::Generate, "batch 41", 0.0, 40_000.0)),
            ended(&span(
                Lane::WaitRollouts,
                "waiting for rollouts",
                3_000.0,
                40_000.0,
            )),
        ]);
        let stall = &state.steps.stalls[0];
        assert_eq!(stall.length_ms(), 37_000.0);
        assert_eq!(
            stall.words(),
            ("the learner", "tool `search`, instance 9f3".to_owned())
        );
    }

    #[test]
    fn without_a_slow_detail_the_work_that_ended_with_the_wait_is_named() {
        let wait = span(Lane::WaitLearner, "waiting for weights", 1_000.0, 5_000.0);
        let spans = [
            span(Lane::Value, "values", 0.0, 1_500.0),
            span(Lane::CriticUpdate, "critic update", 1_500.0, 4_000.0),
            span(Lane::ActorUpdate, "actor update", 4_000.0, 4_980.0),
            span(Lane::WeightSync, "publish", 4_985.0, 4_999.0),
            span(Lane::Generate, "batch 40", 0.0, 5_000.0),
        ];
        let found = cause(&wait, &spans).unwrap();
        assert_eq!(found.lane, Lane::ActorUpdate);
        assert_eq!(cause_words(found), "actor update");
    }

    #[test]
    fn the_last_link_of_a_chain_is_not_its_cause() {
        let wait = span(Lane::WaitLearner, "", 1_000.0, 5_000.0);
        let spans = [
            span(Lane::CriticUpdate, "critic update", 900.0, 2_400.0),
            span(Lane::ActorUpdate, "actor update", 2_400.0, 4_900.0),
            span(Lane::WeightSync, "publish", 4_985.0, 4_999.0),
        ];
        assert_eq!(cause(&wait, &spans).unwrap().lane, Lane::ActorUpdate);
    }

    #[test]
    fn short_waits_are_no_stalls_and_a_wait_without_work_has_no_cause() {
        let state = events(vec![
            ended(&span(Lane::WaitRollouts, "", 0.0, 99.0)),
            ended(&span(Lane::WaitRollouts, "", 0.0, 200.0)),
            ended(&span(Lane::WaitRollouts, "", f64::NAN, 200.0)),
        ]);
        assert_eq!(state.steps.stalls.len(), 1);
        assert_eq!(state.steps.stalls[0].cause, None);
    }

    #[test]
    fn of_too_many_stalls_the_longest_are_kept() {
        let kinds = (0..MOST_STALLS + 10)
            .map(|index| {
                ended(&span(
                    Lane::WaitRollouts,
                    "",
                    0.0,
                    200.0 + ((index * 7919) % 5000) as f64,
                ))
            })
            .collect();
        let state = events(kinds);
        assert_eq!(state.steps.stalls.len(), MOST_STALLS);
        let longest = state.steps.worst_stall(0.0, f64::MAX).unwrap();
        assert_eq!(longest.length_ms(), 5199.0);
    }

    #[test]
    fn steps_touch_and_begin_with_training() {
        let step = |at: f64, step: u64| {
            let kind = EventKind::StepEnded {
                step,
                policy_version: step,
                values: Values::default(),
            };
            (at, kind)
        };
        let train = EventKind::PhaseChanged {
            phase: Phase::Train,
        };
        let state = events(vec![(300.0, train), step(900.0, 1), step(2_000.0, 2)]);
        let steps = &state.steps;
        let bounds: Vec<_> = steps.times.iter().map(|t| (t.start_ms, t.end_ms)).collect();
        assert_eq!(bounds, [(300.0, 900.0), (900.0, 2_000.0)]);
        assert_eq!(steps.at(299.0), None);
        assert_eq!(steps.at(900.0).unwrap().step, 2);
        assert_eq!(steps.at(2_000.0), None);
        assert_eq!(steps.find(1).unwrap().end_ms, 900.0);
        assert_eq!(steps.find(3), None);
    }

    fn any_span() -> impl Strategy<Value = Span> {
        let lane = prop::sample::select(&Lane::ALL[..]);
        (lane, 0_u16..1000, 0_u16..400).prop_map(|(lane, start, length)| {
            span(lane, "x", f64::from(start), f64::from(start + length))
        })
    }

    proptest! {
        #[test]
        fn a_cause_worked_during_the_wait_on_what_was_waited_for(
            wait_lane in prop::sample::select(&[Lane::WaitRollouts, Lane::WaitLearner][..]),
            start in 0_u16..800,
            length in 1_u16..400,
            spans in prop::collection::vec(any_span(), 0..30),
        ) {
            let wait = span(wait_lane, "", f64::from(start), f64::from(start + length));
            let could = |span: &&Span| {
                !is_wait(span.lane)
                    && is_on_the_way(wait_lane, span.lane)
                    && span.start_ms < wait.end_ms
                    && span.end_ms > wait.start_ms
                    && span.end_ms > span.start_ms
            };
            match cause(&wait, &spans) {
                Some(found) => prop_assert!(could(&found)),
                None => prop_assert!(!spans.iter().any(|span| could(&span))),
            }
        }

        #[test]
        fn the_cause_does_not_depend_on_the_order_of_the_spans(
            mut spans in prop::collection::vec(any_span(), 0..30),
        ) {
            let wait = span(Lane::WaitRollouts, "", 200.0, 700.0);
            // Two spans of the same lane and times are the same to a reader.
            let of = |span: Option<&Span>| span.map(|span| (span.start_ms, span.end_ms));
            let forward = of(cause(&wait, &spans));
            spans.reverse();
            prop_assert_eq!(of(cause(&wait, &spans)), forward);
        }

        #[test]
        fn a_tool_that_runs_through_the_whole_wait_is_always_named(
            spans in prop::collection::vec(any_span(), 0..30),
        ) {
            let wait = span(Lane::WaitRollouts, "", 200.0, 700.0);
            let slow = span(Lane::Tool, "slow 1", 150.0, 700.0);
            let found = cause(&wait, spans.iter().chain([&slow])).unwrap();
            prop_assert!(matches!(found.lane, Lane::Tool | Lane::Reward));
            prop_assert!(found.start_ms <= 200.0 && found.end_ms >= 700.0, "{:?}", found);
        }
    }
}
