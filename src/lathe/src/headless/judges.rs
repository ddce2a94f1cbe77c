//! The arms that judge a run's dialogues, whether a bandit chooses among them or they are summed: how its experiment has them
//! (their order, their weights, the policy), and what its metrics say of each.

use std::path::Path;

use bandit::PolicyName;
use experiment::arms::judging;
use experiment::settings::Reward;
use runlog::RunState;
use runlog::control::ArmState;

use super::format;
use crate::terminal::{Role, Terminal};

/// As an experiment has them.
#[derive(Debug, Clone, PartialEq)]
pub struct Judges {
    /// None: there is no `reward.bandit`, and the arms are summed by weight.
    pub policy: Option<PolicyName>,
    /// Names and weights, in order. A weight of 0: held out, it judges and counts for nothing.
    pub arms: Vec<(String, f64)>,
}

impl Judges {
    /// None: its experiment cannot be read, or has no arms.
    pub fn of_run(run: &Path) -> Option<Self> {
        let loaded = experiment::load(&run.join("experiment.yaml"), &[]).ok()?;
        Self::of(&loaded.experiment.reward)
    }

    pub fn of(reward: &Reward) -> Option<Self> {
        let arms = judging(reward).into_iter();
        let arms: Vec<(String, f64)> = arms.map(|arm| (arm.name, arm.weight)).collect();
        (!arms.is_empty()).then_some(Self {
            policy: reward.bandit.policy,
            arms,
        })
    }

    /// A policy chooses one of them at a time, and learns.
    pub fn is_choosing(&self) -> bool {
        !matches!(
            self.policy,
            None | Some(PolicyName::Fixed | PolicyName::Ensemble)
        )
    }

    /// `thompson`, `ensemble`, `fixed`, `sum by weight`
    pub fn policy_word(&self) -> &'static str {
        self.policy
            .map_or("sum by weight", |policy| policy.row().name)
    }

    /// The arms that a policy may choose, in its order.
    pub fn candidates(&self) -> impl Iterator<Item = &str> {
        let counts = self.arms.iter().filter(|(_, weight)| *weight != 0.0);
        counts.map(|(name, _)| name.as_str())
    }

    /// The candidates in their order, each as it stands among `known`, or as one that nothing is known of.
    pub fn in_order(&self, known: Vec<ArmState>) -> Vec<ArmState> {
        let mut arms: Vec<ArmState> = self
            .candidates()
            .map(|name| {
                let found = known.iter().find(|arm| arm.name == name).cloned();
                found.unwrap_or_else(|| ArmState {
                    name: name.to_owned(),
                    ..ArmState::default()
                })
            })
            .collect();
        let is_other = |arm: &ArmState| arms.iter().all(|listed| listed.name != arm.name);
        let others: Vec<ArmState> = known.into_iter().filter(is_other).collect();
        arms.extend(others);
        arms
    }

    pub fn weight(&self, name: &str) -> Option<f64> {
        let found = self.arms.iter().find(|(known, _)| known == name);
        found.map(|(_, weight)| *weight)
    }
}

/// What the metrics of the newest step say of an arm; None where they say nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Judged {
    pub name: String,
    pub weight: Option<f64>,
    /// Mean score of its batch.
    pub score: Option<f64>,
    /// Milliseconds at the median, and at the 99th of a hundred.
    pub latency_ms: Option<(f64, f64)>,
    /// Shares of the answers that were late, or did not come, 0..1.
    pub timed_out_frac: Option<f64>,
    pub missing_frac: Option<f64>,
}

const METRICS: &str = "reward/arm/";

/// The run recorded what arms gave.
pub fn has_any(state: &RunState) -> bool {
    state.series.names().any(|name| name.starts_with(METRICS))
}

/// Every arm, in the experiment's order; of an experiment that is not known those that the run recorded.
pub fn judged(state: &RunState, judges: Option<&Judges>) -> Vec<Judged> {
    let names: Vec<String> = if let Some(judges) = judges {
        judges.arms.iter().map(|(name, _)| name.clone()).collect()
    } else {
        let scores = state.series.names().filter_map(|metric| {
            let rest = metric.strip_prefix(METRICS)?;
            rest.strip_suffix("/score/mean")
        });
        scores.map(str::to_owned).collect()
    };
    names
        .into_iter()
        .map(|name| {
            let mut judged = of_arm(state, &name);
            judged.weight = judges.and_then(|judges| judges.weight(&name));
            judged
        })
        .collect()
}

/// An arm of this name, whose weight is not looked for.
pub fn of_arm(state: &RunState, name: &str) -> Judged {
    let last = |what: &str| {
        let series = state.series.get(&format!("{METRICS}{name}/{what}"))?;
        Some(series.last()?.value.0)
    };
    Judged {
        name: name.to_owned(),
        weight: None,
        score: last("score/mean"),
        latency_ms: last("latency_ms/p50").zip(last("latency_ms/p99")),
        timed_out_frac: last("timed_out_frac"),
        missing_frac: last("missing_frac"),
    }
}

/// Where the arms are summed and nothing is chosen: a line that says how, and a line for each. Empty: there are none.
pub fn lines(state: &RunState, judges: Option<&Judges>, terminal: Terminal) -> Vec<String> {
    let arms = judged(state, judges);
    if arms.is_empty() {
        return Vec::new();
    }
    let policy = judges.map_or("how they count is not known", Judges::policy_word);
    let count = format::plural(arms.len() as u64, "arm");
    let mut lines = vec![format!("{policy}, {count}")];
    let share = |name: &str, share: Option<f64>| {
        share.map_or_else(String::new, |share| format!("{name} {}", percent(share)))
    };
    let rows: Vec<[String; 6]> = arms
        .iter()
        .map(|arm| {
            [
                arm.name.clone(),
                match arm.weight {
                    Some(0.0) => "held out".to_owned(),
                    Some(weight) => format!("weight {}", format::number(weight)),
                    None => String::new(),
                },
                arm.score.map_or_else(
                    || "no score yet".to_owned(),
                    |score| format!("scores {}", format::number(score)),
                ),
                arm.latency_ms.map_or_else(String::new, |(p50, p99)| {
                    let (p50, p99) = (format::number(p50), format::number(p99));
                    format!("p50 {p50} p99 {p99} ms")
                }),
                share("late", arm.timed_out_frac),
                share("missing", arm.missing_frac),
            ]
        })
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    for (row, arm) in rows.iter().zip(&arms) {
        let cells = row.iter().zip(widths).filter(|(_, width)| *width > 0);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let line = cells.join("  ");
        let is_lossy = [arm.timed_out_frac, arm.missing_frac]
            .into_iter()
            .flatten()
            .any(|share| share > 0.0);
        lines.push(if is_lossy {
            terminal.paint(Role::Caution, line.trim_end())
        } else {
            line.trim_end().to_owned()
        });
    }
    lines
}

/// `12 %`, `0 %`, `< 1 %`
pub fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.01 {
        "< 1 %".to_owned()
    } else {
        format!("{:.0} %", share * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use runlog::number::{Number, Values};
    use runlog::{Event, EventKind};

    use super::*;

    fn of_yaml(yaml: &str) -> Option<Judges> {
        let loaded = experiment::from_text("a.yaml", yaml, &[]);
        Judges::of(&loaded.experiment.reward)
    }

    const ARMS: &str = "arms: [{name: rule, scorer: numeric, weight: 0.5}, {name: brief, scorer: length, weight: 2}, {name: truth, scorer: exact, weight: 0}]";

    fn judges(more: &str) -> Judges {
        of_yaml(&format!("reward: {{{ARMS}{more}}}")).unwrap()
    }

    fn scored() -> RunState {
        let values: Values = [
            ("rule/score/mean", 0.75),
            ("rule/latency_ms/p50", 1.5),
            ("rule/latency_ms/p99", 12.0),
            ("rule/timed_out_frac", 0.125),
            ("rule/missing_frac", 0.0),
            ("truth/score/mean", 0.5),
        ]
        .into_iter()
        .map(|(name, value)| (format!("{METRICS}{name}"), Number(value)))
        .collect();
        RunState::fold(&[Event {
            seq: 0,
            elapsed_ms: 1.0,
            kind: EventKind::StepEnded {
                step: 1,
                policy_version: 1,
                values,
            },
        }])
    }

    #[test]
    fn a_policy_that_does_not_learn_has_weights_of_its_own() {
        assert_eq!(of_yaml("reward: {scorer: numeric}"), None);
        let sum = judges("");
        assert_eq!(sum.policy_word(), "sum by weight");
        assert!(!sum.is_choosing());
        assert_eq!(sum.candidates().collect::<Vec<_>>(), ["rule", "brief"]);
        let fixed = judges(", bandit: {policy: fixed, fixed_arm: brief}");
        assert_eq!(fixed.policy_word(), "fixed");
        assert_eq!(
            (fixed.weight("rule"), fixed.weight("brief")),
            (Some(0.0), Some(1.0))
        );
        let ensemble = judges(", bandit: {policy: ensemble, weights: [0.2, 0.3, 0.5]}");
        assert_eq!(
            (ensemble.policy_word(), ensemble.weight("truth")),
            ("ensemble", Some(0.5))
        );
        assert!(judges(", bandit: {policy: thompson}").is_choosing());
    }

    #[test]
    fn arms_that_are_summed_are_told_with_their_weights_scores_and_losses() {
        let terminal = Terminal {
            to_screen: false,
            errors_to_screen: false,
            unicode: false,
            color: false,
            color_stderr: false,
            plain: true,
        };
        let told = lines(&scored(), Some(&judges("")), terminal);
        assert_eq!(
            told,
            [
                "sum by weight, 3 arms",
                "rule   weight 0.500  scores 0.750  p50 1.50 p99 12.0 ms  late 12 %  missing 0 %",
                "brief  weight 2.00   no score yet",
                "truth  held out      scores 0.500",
            ]
        );
        // Of an experiment that is gone what was recorded.
        let told = lines(&scored(), None, terminal);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(lines(&RunState::default(), None, terminal).is_empty());
        assert!(has_any(&scored()) && !has_any(&RunState::default()));
    }
}
