//! The values at which a run's experiment says that something must happen: lines on the panels of the metrics they are about.

use std::collections::BTreeMap;

use experiment::guards::{Condition, Guard, Watch};
use experiment::settings::KlCtrlType;
use runlog::RunState;

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
    pub value: f64,
    /// `guard kl > 0.02`
    pub name: String,
    /// It also is the limit of the KL alarm.
    pub is_kl_target: bool,
}

impl GuardLimit {
    /// None: the guard watches an alarm, or its limit moves with the run's own values.
    fn of(guard: &Guard) -> Option<Self> {
        let Watch::Metric { metrics, condition } = &guard.watch else {
            return None;
        };
        let (value, sign) = match condition {
            Condition::Above(value) => (*value, '>'),
            Condition::Below(value) => (*value, '<'),
            _ => return None,
        };
        Some(Self {
            watched: metrics.clone(),
            value,
            name: format!("guard {} {sign} {}", guard.name, text::number(value)),
            is_kl_target: false,
        })
    }
}

/// Those of the runs that were looked at, and which metrics of the current one they are about.
#[derive(Debug, Default)]
pub struct Limits {
    known: BTreeMap<RunKey, Vec<GuardLimit>>,
    /// Runs whose experiment was asked.
    asked: Vec<RunKey>,
    /// Of this run with so many metrics: each limit with the names of its metrics.
    resolved: Option<(RunKey, usize)>,
    lines: Vec<(Vec<String>, Limit)>,
}

impl Limits {
    /// Asks the experiment of a run that was not asked, and finds the metrics anew when the run has others.
    pub fn follow(&mut self, key: &RunKey, state: &RunState) -> Option<Effect> {
        let of = Some((key.clone(), state.series.len()));
        if self.resolved != of {
            self.resolved = of;
            self.lines = self
                .known
                .get(key)
                .into_iter()
                .flatten()
                .filter_map(|limit| {
                    let names = limit.watched.iter().find_map(|pattern| {
                        let names: Vec<String> = state
                            .series
                            .names()
                            .filter(|name| fits(pattern, name))
                            .map(str::to_owned)
                            .collect();
                        (!names.is_empty()).then_some(names)
                    })?;
                    let line = Limit {
                        value: limit.value,
                        name: limit.name.clone(),
                    };
                    Some((names, line))
                })
                .collect();
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
        limits
            .iter()
            .find(|limit| limit.is_kl_target)
            .map(|limit| limit.value)
    }

    /// The lines of a panel of the current run.
    pub fn of_panel(&self, panel: &Panel, shared: &Shared) -> Vec<Limit> {
        let is_of_current = self
            .resolved
            .as_ref()
            .is_some_and(|(key, _)| Some(key) == shared.current.as_ref());
        self.lines
            .iter()
            .filter(|(names, _)| {
                is_of_current
                    && names.iter().any(|name| {
                        let shows = |pattern: &String| fits(pattern, name);
                        panel.metrics.iter().any(shows)
                    })
            })
            .map(|(_, line)| line.clone())
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
        .filter_map(GuardLimit::of)
        .collect();
    let control = &experiment.algorithm.kl_ctrl;
    if matches!(control.kind, KlCtrlType::Adaptive) && experiment.algorithm.use_kl_in_reward {
        limits.push(GuardLimit {
            watched: vec![
                "actor/reward_kl_penalty".to_owned(),
                "actor/ppo_kl".to_owned(),
            ],
            value: control.target_kl,
            name: format!("target_kl {}", text::number(control.target_kl)),
            is_kl_target: true,
        });
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::testing::{Bench, sample_events};

    fn of_yaml(yaml: &str) -> Vec<GuardLimit> {
        let loaded = experiment::from_text("a.yaml", yaml, &[]);
        of_experiment(&loaded.experiment)
    }

    #[test]
    fn a_threshold_is_a_line_and_what_moves_with_the_run_is_none() {
        let names = |yaml: &str| -> Vec<String> {
            of_yaml(yaml).into_iter().map(|limit| limit.name).collect()
        };
        assert_eq!(
            names("trainer: {guards: [online]}"),
            ["guard kl > 0.02", "guard non_finite > 0", "guard ess < 0.3"]
        );
        assert_eq!(
            names(
                "trainer: {guards: [{metric: response_length/mean, name: short, below: 3, action: alert}]}"
            ),
            ["guard short < 3"]
        );
        assert_eq!(names("trainer: {seed: 1}"), Vec::<String>::new());
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
