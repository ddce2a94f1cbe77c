//! ONE table of metrics: name, unit, direction, group, formula. Axes, colours, help, alarms and README read it.
//!
//! Names are verl's where verl has one; ours have prefixes of their own (`weight_sync/`, `staleness/`, `async/`, `host/`,
//! `gpu/`, and further names under `reward/`). A name may hold placeholders: `{stat}` is mean, max, min or std; `{n}` and
//! `{index}` are digits; any other, such as `{source}`, is text (which may hold `/`).

mod table;

use std::fmt::Write;

pub use table::TABLE;

/// Which way is better; decides colours and the arrows of a comparison, never what is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Higher,
    Lower,
    /// Depends, or means nothing by itself.
    Neither,
}

/// What a metric is about; a section of README and a row of panes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Validation,
    Reward,
    Policy,
    Critic,
    RolloutCorrection,
    Dialogue,
    Async,
    WeightSync,
    Timing,
    Throughput,
    Progress,
    Supervised,
    Host,
}

impl Group {
    pub const ALL: [Self; 13] = [
        Self::Validation,
        Self::Reward,
        Self::Policy,
        Self::Critic,
        Self::RolloutCorrection,
        Self::Dialogue,
        Self::Async,
        Self::WeightSync,
        Self::Timing,
        Self::Throughput,
        Self::Progress,
        Self::Supervised,
        Self::Host,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Validation => "Validation",
            Self::Reward => "Reward and advantage",
            Self::Policy => "Policy",
            Self::Critic => "Critic",
            Self::RolloutCorrection => "Rollout and learner, apart",
            Self::Dialogue => "Dialogues",
            Self::Async => "Staleness and overlap",
            Self::WeightSync => "Weight sync",
            Self::Timing => "Time",
            Self::Throughput => "Throughput and memory",
            Self::Progress => "Progress",
            Self::Supervised => "Supervised phase",
            Self::Host => "Host and GPUs",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// A name, or a pattern with `{placeholders}`.
    pub name: &'static str,
    /// `nats`, `ms`, `frac` (0..1), `tokens`, …; `1` for a plain number.
    pub unit: &'static str,
    pub direction: Direction,
    pub group: Group,
    /// What is computed, in words or symbols.
    pub formula: &'static str,
}

impl Metric {
    /// True: `name` is this metric, or one of those its pattern stands for.
    pub fn covers(&self, name: &str) -> bool {
        fits(self.name, name)
    }

    fn literal_length(&self) -> usize {
        let mut depth = 0_u32;
        self.name
            .chars()
            .filter(|c| {
                match c {
                    '{' => depth += 1,
                    '}' => depth = depth.saturating_sub(1),
                    _ => return depth == 0,
                }
                false
            })
            .count()
    }
}

/// The row for a concrete name: the exact one, else the pattern with the most literal text. None: not declared.
pub fn lookup(name: &str) -> Option<&'static Metric> {
    TABLE
        .iter()
        .filter(|metric| metric.covers(name))
        .max_by_key(|metric| (metric.name == name, metric.literal_length()))
}

fn fits(pattern: &str, name: &str) -> bool {
    let Some(open) = pattern.find('{') else {
        return pattern == name;
    };
    let Some(rest) = name.strip_prefix(&pattern[..open]) else {
        return false;
    };
    let Some(close) = pattern[open..].find('}').map(|close| open + close) else {
        return false;
    };
    let placeholder = &pattern[open + 1..close];
    let after = &pattern[close + 1..];
    (1..=rest.len())
        .filter(|end| rest.is_char_boundary(*end))
        .any(|end| placeholder_fits(placeholder, &rest[..end]) && fits(after, &rest[end..]))
}

fn placeholder_fits(placeholder: &str, text: &str) -> bool {
    match placeholder {
        "stat" => matches!(text, "mean" | "max" | "min" | "std"),
        "n" | "index" => text.bytes().all(|byte| byte.is_ascii_digit()),
        _ => true,
    }
}

/// The table as Markdown, a section a group, for the README.
pub fn markdown() -> String {
    let mut text = String::new();
    for group in Group::ALL {
        text.push_str("\n### ");
        text.push_str(group.title());
        text.push_str("\n\n| metric | unit | better | what it is |\n|---|---|---|---|\n");
        for metric in TABLE.iter().filter(|metric| metric.group == group) {
            let better = match metric.direction {
                Direction::Higher => "higher",
                Direction::Lower => "lower",
                Direction::Neither => "",
            };
            let formula = metric.formula.replace('|', "\\|");
            writeln!(
                text,
                "| `{}` | {} | {better} | {formula} |",
                metric.name, metric.unit
            )
            .expect("writing to a String cannot fail");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::event::{EventKind, GpuSample};
    use crate::number::Number;
    use crate::state::derived_values;

    #[test]
    fn every_name_is_unique_and_has_unit_and_formula() {
        let mut names = HashSet::new();
        for metric in TABLE {
            assert!(
                names.insert(metric.name),
                "{} is declared twice",
                metric.name
            );
            assert!(!metric.unit.is_empty(), "{} has no unit", metric.name);
            assert!(metric.formula.len() > 10, "{} has no formula", metric.name);
            assert!(
                !metric.formula.ends_with('.'),
                "{}: formulas are fragments",
                metric.name
            );
        }
    }

    #[test]
    fn every_group_has_metrics_and_a_section() {
        let text = markdown();
        for group in Group::ALL {
            assert!(
                TABLE.iter().any(|metric| metric.group == group),
                "{group:?}"
            );
            assert!(text.contains(&format!("### {}\n", group.title())));
        }
        let rows = text.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, TABLE.len());
    }

    #[test]
    fn a_concrete_name_finds_its_row() {
        for (name, row) in [
            ("actor/pg_loss", "actor/pg_loss"),
            ("critic/score/mean", "critic/score/{stat}"),
            (
                "val-core/openai/gsm8k/reward/mean@8",
                "val-core/{source}/reward/mean@{n}",
            ),
            (
                "val-core/a/acc/best@4/std",
                "val-core/{source}/acc/best@{n}/{stat}",
            ),
            ("val-aux/a/format/worst@4/mean", "val-aux/{source}/{name}"),
            ("gpu/12/power_watts", "gpu/{index}/power_watts"),
            ("timing_s/step", "timing_s/step"),
            ("timing_s/my_own_stage", "timing_s/{stage}"),
        ] {
            assert_eq!(lookup(name).map(|metric| metric.name), Some(row), "{name}");
        }
        for name in [
            "actor/pg_los",
            "critic/score/median",
            "gpu/x/power_watts",
            "gpu//power_watts",
            "",
        ] {
            assert_eq!(lookup(name), None, "{name}");
        }
    }

    #[test]
    fn metrics_that_events_carry_as_fields_are_declared() {
        let sync = EventKind::WeightsSynced {
            version: 1,
            bytes: 1,
            blocked_ms: 1.0,
            transfer_ms: 1.0,
            total_ms: 1.0,
            sent_fingerprint: String::new(),
            received_fingerprint: String::new(),
            canary_max_diff_nats: Number(0.0),
            verified: true,
        };
        let host = EventKind::HostSampled {
            cpu_percent: 1.0,
            memory_used_bytes: 1,
            memory_total_bytes: 1,
            process_memory_bytes: 1,
            process_cpu_percent: 1.0,
            gpus: vec![GpuSample {
                index: 3,
                name: String::new(),
                utilization_percent: 1.0,
                memory_used_bytes: 1,
                memory_total_bytes: 1,
                power_watts: 1.0,
            }],
        };
        let names: Vec<String> = [sync, host]
            .iter()
            .flat_map(derived_values)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names.len(), 12);
        for name in names {
            assert!(lookup(&name).is_some(), "{name}");
        }
    }
}
