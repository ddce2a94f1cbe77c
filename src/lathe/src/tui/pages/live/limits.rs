//! The values at which a run's experiment says that something must happen: lines on the panels of the metrics they are about.

use std::collections::BTreeMap;

use experiment::guards::{Against, Condition, Guard, Watch};
use experiment::settings::KlCtrlType;
use runlog::RunState;

use super::judged::Judged;
use super::panels::{Panel, fits};
use super::{Message, PageMessage};
use crate::tui::action::{self, Effect};
use crate::tui::shared::{RunKey, Shared};
use crate::tui::widgets::chart::Limit;
use crate::tui::widgets::text;

/// One such value, as the experiment has it.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardLimit {
    /// Metrics, `*` for any text: the first that the run recorded is meant.
    pub watched: Vec<String>,
    at: At,
    /// `guard kl > 0.02`, `guard accuracy < best - 0.05`
    pub name: String,
    /// It also is the limit of the KL alarm.
    pub is_kl_target: bool,
}

/// Where a limit lies.
#[derive(Debug, Clone, PartialEq)]
enum At {
    Value(f64),
    /// It moves with the run's own values: this is where the next one is judged.
    Moving {
        condition: Condition,
        window: u32,
        /// See [`Judged`].
        ignored: u64,
    },
}

impl GuardLimit {
    /// None: the guard watches an alarm.
    fn of(guard: &Guard, warmup_steps: u64) -> Option<Self> {
        let Watch::Metric { metrics, condition } = &guard.watch else {
            return None;
        };
        let moving = At::Moving {
            condition: *condition,
            window: guard.window,
            ignored: guard.after + warmup_steps,
        };
        let from = |against: Against| match against {
            Against::Best => "best",
            Against::Previous => "the value before",
        };
        let number = text::number;
        let (at, rule) = match *condition {
            Condition::Above(value) => (At::Value(value), format!("> {}", number(value))),
            Condition::Below(value) => (At::Value(value), format!("< {}", number(value))),
            Condition::AboveBaseline { ratio, .. } => {
                (moving, format!("> {} x start", number(ratio)))
            }
            Condition::BelowBaseline { ratio, .. } => {
                (moving, format!("< {} x start", number(ratio)))
            }
            Condition::DropPoints { points, against } => {
                (moving, format!("< {} - {}", from(against), number(points)))
            }
            Condition::DropRelative { share, against } => (
                moving,
                format!("< {} - {} %", from(against), number(100.0 * share)),
            ),
        };
        Some(Self {
            watched: metrics.clone(),
            at,
            name: format!("guard {} {rule}", guard.name),
            is_kl_target: false,
        })
    }
}

/// A limit of the current run with the metrics that it is about.
#[derive(Debug)]
struct Line {
    names: Vec<String>,
    limit: GuardLimit,
    /// Of one that moves.
    judged: Option<Judged>,
}

impl Line {
    /// Of the first of the watched metrics that the run has. None: it has none of them.
    fn of(limit: &GuardLimit, state: &RunState) -> Option<Self> {
        let names = limit.watched.iter().find_map(|pattern| {
            let fitting = state.series.names().filter(|name| fits(pattern, name));
            let names: Vec<String> = fitting.map(str::to_owned).collect();
            (!names.is_empty()).then_some(names)
        })?;
        let judged = match limit.at {
            At::Value(_) => None,
            At::Moving {
                condition,
                window,
                ignored,
            } => Some(Judged::new(condition, window, ignored)),
        };
        Some(Self {
            names,
            limit: limit.clone(),
            judged,
        })
    }

    fn follow(&mut self, state: &RunState) {
        // Of several metrics a guard judges their mean, of which there is no curve.
        if let (Some(judged), [name]) = (&mut self.judged, self.names.as_slice())
            && let Some(series) = state.series.get(name)
        {
            judged.follow(series);
        }
    }

    /// None: where it lies is not known yet.
    fn drawn(&self) -> Option<Limit> {
        let value = match (&self.limit.at, &self.judged) {
            (At::Value(value), _) => *value,
            (_, judged) => judged.as_ref()?.limit()?,
        };
        Some(Limit {
            value,
            name: self.limit.name.clone(),
        })
    }
}

/// Those of the runs that were looked at, and which metrics of the current one they are about.
#[derive(Debug, Default)]
pub struct Limits {
    known: BTreeMap<RunKey, Vec<GuardLimit>>,
    /// Runs whose experiment was asked.
    asked: Vec<RunKey>,
    /// The lines are of this run with so many metrics.
    resolved: Option<(RunKey, usize)>,
    lines: Vec<Line>,
}

impl Limits {
    /// Asks the experiment of a run that was not asked, and finds the metrics anew when the run has others.
    pub fn follow(&mut self, key: &RunKey, state: &RunState) -> Option<Effect> {
        let of = Some((key.clone(), state.series.len()));
        if self.resolved != of {
            self.resolved = of;
            let known = self.known.get(key).into_iter().flatten();
            self.lines = known.filter_map(|limit| Line::of(limit, state)).collect();
        }
        for line in &mut self.lines {
            line.follow(state);
        }
        if self.asked.contains(key) {
            return None;
        }
        self.asked.push(key.clone());
        Some(ask(key.clone()))
    }

    /// True: the limit of the KL alarm is another.
    pub fn take(&mut self, key: &RunKey, limits: Vec<GuardLimit>) -> bool {
        let before = self.kl_nats(key);
        self.known.insert(key.clone(), limits);
        self.resolved = None;
        self.kl_nats(key) != before
    }

    pub fn kl_nats(&self, key: &RunKey) -> Option<f64> {
        let limits = self.known.get(key)?;
        match limits.iter().find(|limit| limit.is_kl_target)?.at {
            At::Value(value) => Some(value),
            At::Moving { .. } => None,
        }
    }

    /// The lines of a panel of the current run.
    pub fn of_panel(&self, panel: &Panel, shared: &Shared) -> Vec<Limit> {
        let is_of_current = self
            .resolved
            .as_ref()
            .is_some_and(|(key, _)| Some(key) == shared.current.as_ref());
        self.lines
            .iter()
            .filter(|line| {
                is_of_current
                    && line.names.iter().any(|name| {
                        let shows = |pattern: &String| fits(pattern, name);
                        panel.metrics.iter().any(shows)
                    })
            })
            .filter_map(Line::drawn)
            .collect()
    }
}

/// Reads the guards and the KL target of the run's experiment.
fn ask(key: RunKey) -> Effect {
    Effect::job("read the limits", move || {
        let limits = experiment::load(&key.path().join("experiment.yaml"), &[])
            .map(|loaded| of_experiment(&loaded.experiment))
            .unwrap_or_default();
        action::Message::Page(PageMessage::Live(Message::Limits { key, limits }))
    })
}

fn of_experiment(experiment: &experiment::Experiment) -> Vec<GuardLimit> {
    let mut limits: Vec<GuardLimit> = experiment
        .trainer
        .guards
        .iter()
        .filter_map(|guard| GuardLimit::of(guard, experiment.trainer.critic_warmup))
        .collect();
    let control = &experiment.algorithm.kl_ctrl;
    if matches!(control.kind, KlCtrlType::Adaptive) && experiment.algorithm.use_kl_in_reward {
        limits.push(GuardLimit {
            watched: vec![
                "actor/reward_kl_penalty".to_owned(),
                "actor/ppo_kl".to_owned(),
            ],
            at: At::Value(control.target_kl),
            name: format!("target_kl {}", text::number(control.target_kl)),
            is_kl_target: true,
        });
    }
    limits
}

#[cfg(test)]
mod tests {
    use runlog::series::{RowHead, SeriesSet, Source};

    use super::*;
    use crate::tui::testing::{Bench, sample_events};

    fn of_yaml(yaml: &str) -> Vec<GuardLimit> {
        let loaded = experiment::from_text("a.yaml", yaml, &[]);
        of_experiment(&loaded.experiment)
    }

    #[test]
    fn each_guard_on_a_metric_has_a_line_that_says_its_rule() {
        let names = |yaml: &str| -> Vec<String> {
            of_yaml(yaml).into_iter().map(|limit| limit.name).collect()
        };
        insta::assert_debug_snapshot!(names("trainer: {guards: [online]}"));
        assert_eq!(
            names(
                "trainer: {guards: [{metric: response_length/mean, name: short, below: 3, action: alert}]}"
            ),
            ["guard short < 3"]
        );
        assert_eq!(names("trainer: {seed: 1}"), Vec::<String>::new());
    }

    /// The limit after each of these values of a metric `m` of steps 0, 1, 2 ..., for one guard.
    fn after_each(guard: &str, values: &[f64]) -> Vec<Option<f64>> {
        let yaml = format!("trainer: {{guards: [{{metric: m, name: g, action: alert, {guard}}}]}}");
        let limits = of_yaml(&yaml);
        (1..=values.len())
            .map(|count| {
                let mut set = SeriesSet::default();
                for (step, value) in values[..count].iter().enumerate() {
                    let head = RowHead {
                        step: step as u64,
                        elapsed_ms: 0.0,
                        tokens: 0.0,
                        samples: 0.0,
                    };
                    set.push_row(Source::Steps, head, [("m", *value)]);
                }
                let mut state = RunState::default();
                state.series = set;
                let mut line = Line::of(&limits[0], &state).unwrap();
                line.follow(&state);
                line.drawn().map(|limit| limit.value)
            })
            .collect()
    }

    #[test]
    fn a_limit_that_moves_is_where_the_guard_judges_the_next_value() {
        // Expected by hand from the guard's own rules: docs/guards.md.
        let values = [4.0, 6.0, f64::NAN, 2.0, 8.0, 1.0];
        let some = |limits: &[f64]| limits.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(
            after_each("drop_points: 1, after: 0", &values),
            some(&[3.0, 5.0, 5.0, 5.0, 7.0, 7.0])
        );
        assert_eq!(
            after_each("drop_points: 1, against: previous, after: 0", &values),
            some(&[3.0, 5.0, 5.0, 1.0, 7.0, 0.0])
        );
        assert_eq!(
            after_each("drop_relative: 0.5, after: 0", &values),
            some(&[2.0, 3.0, 3.0, 3.0, 4.0, 4.0])
        );
        // Steps that are not judged do not count, but step 0 does.
        assert_eq!(
            after_each("drop_points: 1, after: 1", &values),
            some(&[3.0, 3.0, 3.0, 3.0, 7.0, 7.0])
        );
        // The median of the first three finite values.
        assert_eq!(
            after_each("above_baseline: 1.5, baseline: 3, after: 0", &values),
            [None, None, None, Some(6.0), Some(6.0), Some(6.0)]
        );
        // Means of two.
        assert_eq!(
            after_each(
                "drop_points: 1, window: 2, after: 0",
                &[4.0, 6.0, 10.0, 0.0]
            ),
            some(&[3.0, 4.0, 7.0, 7.0])
        );
    }

    #[test]
    fn a_limit_is_drawn_where_the_first_metric_that_it_watches_and_the_run_has_is_shown() {
        let bench = Bench::with_run(5);
        let shared = &bench.app.shared;
        let key = shared.current.clone().unwrap();
        let state = RunState::fold(&sample_events(5));
        let mut limits = Limits::default();
        limits.take(&key, of_yaml("trainer: {guards: [online]}"));
        limits.follow(&key, &state);
        let of = |metric: &str| limits.of_panel(&Panel::new("p", &[metric]), shared).len();
        assert_eq!(of("actor/ppo_kl"), 1);
        assert_eq!(of("actor/*"), 1);
        assert_eq!(of("actor/entropy"), 0);
        assert_eq!(of("rollout_corr/k3_kl"), 0, "this run does not record it");
    }
}
