//! Panels: which metrics stand together, in which order. The layout that is remembered per project.

use runlog::RunState;
use serde::{Deserialize, Serialize};

/// One panel of the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Panel {
    pub title: String,
    /// Metric names, or patterns with `*` for any text; the first found is the panel's main one.
    pub metrics: Vec<String>,
    pub is_log: bool,
    /// Kept before the panels that are not.
    pub is_pinned: bool,
    /// Of a metric that was in no panel, and taken in to be changed: it has no more room than those that still are in none.
    pub is_adopted: bool,
}

impl Default for Panel {
    fn default() -> Self {
        Self::new("", &[])
    }
}

impl Panel {
    pub fn new(title: &str, metrics: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            metrics: metrics.iter().map(|&name| name.to_owned()).collect(),
            is_log: false,
            is_pinned: false,
            is_adopted: false,
        }
    }

    /// The metrics of a run that this panel shows, in the panel's order.
    pub fn names<'s>(&'s self, state: &'s RunState) -> Vec<&'s str> {
        let mut found: Vec<&str> = Vec::new();
        for pattern in &self.metrics {
            if pattern.contains('*') {
                let fitting = state.series.names().filter(|name| fits(pattern, name));
                for name in fitting {
                    if !found.contains(&name) {
                        found.push(name);
                    }
                }
            } else if state.series.contains(pattern) && !found.contains(&pattern.as_str()) {
                found.push(pattern);
            }
        }
        found
    }
}

/// A panel for each metric that no other panel shows, so that every metric is somewhere.
pub fn others(panels: &[Panel], state: &RunState) -> Vec<Panel> {
    state
        .series
        .names()
        .filter(|name| {
            !panels
                .iter()
                .flat_map(|panel| &panel.metrics)
                .any(|pattern| fits(pattern, name))
        })
        .map(|name| Panel::new(name, &[name]))
        .collect()
}

/// Whether a name is `pattern`, where each `*` stands for any text.
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// What a run of reinforcement learning shows at first. Panels whose metrics the run does not have are left out of the screen.
pub fn defaults() -> Vec<Panel> {
    vec![
        Panel::new("Reward", &["val-core/*/reward/mean@*", "critic/score/mean"]),
        // Of a supervised warm-up.
        Panel::new("Supervised loss", &["train/loss", "val/loss"]),
        Panel::new(
            "KL",
            &[
                "actor/ppo_kl",
                "actor/kl_loss",
                "actor/reward_kl_penalty",
                "rollout_corr/kl",
            ],
        ),
        Panel::new(
            "Utilisation",
            &[
                "gpu/*/utilization_percent",
                "host/cpu_percent",
                "host/process_cpu_percent",
            ],
        ),
        Panel::new(
            "Weight sync",
            &["weight_sync/blocked_ms", "weight_sync/transfer_ms"],
        ),
        Panel::new("Policy loss", &["actor/pg_loss", "critic/vf_loss"]),
        Panel::new("Entropy", &["actor/entropy"]),
        Panel::new(
            "Clip fraction",
            &["actor/pg_clipfrac", "critic/vf_clipfrac"],
        ),
        Panel::new("Length", &["response_length/mean", "response_length/max"]),
        Panel::new(
            "Staleness",
            &["staleness/mean", "staleness/max", "staleness/*"],
        ),
        Panel::new("Throughput", &["perf/throughput"]),
        Panel::new(
            "Memory",
            &[
                "gpu/*/memory_used_bytes",
                "host/process_memory_bytes",
                "host/memory_used_bytes",
            ],
        ),
        Panel::new("Gradient norm", &["actor/grad_norm", "critic/grad_norm"]),
        Panel::new(
            "Step time",
            &["timing_s/step", "timing_s/gen", "timing_s/update_actor"],
        ),
        Panel::new("Learning rate", &["actor/lr", "critic/lr", "train/lr"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::testing::sample_events;

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(fits(
            "val-core/*/reward/mean@*",
            "val-core/openai/gsm8k/reward/mean@8"
        ));
        assert!(fits("gpu/*", "gpu/0/power_watts"));
        assert!(fits("*", "anything"));
        assert!(!fits("gpu/*/utilization_percent", "gpu/0/power_watts"));
        assert!(!fits("actor/lr", "actor/lr2"));
        assert!(!fits("a*a", "a"));
    }

    #[test]
    fn every_metric_of_a_run_is_in_some_panel() {
        let state = RunState::fold(&sample_events(20));
        let mut panels = defaults();
        panels.extend(others(&panels, &state));
        for name in state.series.names() {
            assert!(
                panels
                    .iter()
                    .any(|panel| panel.names(&state).contains(&name)),
                "{name}"
            );
        }
    }

    #[test]
    fn the_main_metric_of_the_reward_panel_is_the_test_reward() {
        let state = RunState::fold(&sample_events(20));
        let panels = defaults();
        let names = panels[0].names(&state);
        assert_eq!(names, ["val-core/calc/reward/mean@1", "critic/score/mean"]);
    }
}
