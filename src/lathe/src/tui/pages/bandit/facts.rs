//! What a run's events and metrics say of its bandit, made ready for every part of the page.

use std::fmt::Write as _;

use runlog::RunState;
use runlog::control::arm_words;
use runlog::state::BanditState;

use crate::tui::theme::Theme;
use crate::tui::widgets::chart::Look;
use crate::tui::widgets::text;

/// An arm, or a judge that is held out.
#[derive(Debug, Clone, Default)]
pub struct Row {
    pub name: String,
    pub is_held_out: bool,
    pub is_forced: bool,
    pub is_frozen: bool,
    /// Times that it was chosen, and of all choices, 0..1.
    pub pulls: u64,
    pub share: f64,
    /// None while nothing is known.
    pub mean: Option<f64>,
    pub sd: Option<f64>,
    pub chance: Option<f64>,
    pub timed_out: u64,
    pub missing: u64,
    /// Mean score of the newest batch.
    pub score: Option<f64>,
    /// Milliseconds of the newest batch, at the median and at the 99th of a hundred.
    pub latency_ms: Option<(f64, f64)>,
}

impl Row {
    pub fn state(&self) -> &'static str {
        if self.is_held_out {
            "held out"
        } else {
            arm_words(self.is_forced, self.is_frozen)
        }
    }

    /// `0.712 ± 0.031`
    pub fn value(&self, sign: &str) -> String {
        match (self.mean, self.sd) {
            (Some(mean), Some(sd)) => {
                format!("{} {sign} {}", text::number(mean), text::number(sd))
            }
            (Some(mean), None) => text::number(mean),
            (None, _) => "-".to_owned(),
        }
    }
}

#[derive(Debug)]
pub struct Facts<'a> {
    pub bandit: &'a BanditState,
    pub state: &'a RunState,
    /// Arms in the bandit's order, then the judges that are held out.
    pub rows: Vec<Row>,
}

impl<'a> Facts<'a> {
    /// None: the run has no bandit, or it has done nothing yet.
    pub fn of(state: &'a RunState) -> Option<Self> {
        let bandit = state.bandit.as_ref()?;
        let last = |metric: String| {
            let series = state.series.get(&metric)?;
            Some(series.last()?.value.0)
        };
        let mut rows: Vec<Row> = bandit
            .arm_states()
            .into_iter()
            .map(|arm| Row {
                name: arm.name,
                is_forced: arm.is_forced,
                is_frozen: arm.is_frozen,
                pulls: arm.pulls,
                share: arm.pulls as f64 / bandit.choices.max(1) as f64,
                mean: arm.mean.map(|mean| mean.0),
                sd: arm.sd.map(|sd| sd.0),
                chance: arm.chance.map(|chance| chance.0),
                timed_out: arm.timed_out,
                missing: arm.missing,
                ..Row::default()
            })
            .collect();
        rows.extend(state.held_out_judges().map(|(name, _)| Row {
            name: name.to_owned(),
            is_held_out: true,
            ..Row::default()
        }));
        for row in &mut rows {
            let metric = |what: &str| format!("reward/arm/{}/{what}", row.name);
            row.score = last(metric("score/mean"));
            row.latency_ms = last(metric("latency_ms/p50")).zip(last(metric("latency_ms/p99")));
        }
        Some(Self {
            bandit,
            state,
            rows,
        })
    }

    /// The place of an arm, which gives its mark and colour.
    pub fn place(&self, arm: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.name == arm)
    }

    /// An arm's mark and colour; a blend of all arms is a point.
    pub fn look(&self, arm: &str, theme: &Theme) -> Look {
        match self.place(arm) {
            Some(place) => Look::of_arm(place, theme),
            None => Look::raw(theme.style(crate::tui::theme::Role::Muted)),
        }
    }

    pub fn arms(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.is_held_out)
    }

    /// `thompson`, the counts, and what is estimated of the whole.
    pub fn words(&self, epsilon: &str) -> Vec<String> {
        let bandit = self.bandit;
        let last = |metric: &str| Some(self.state.series.get(metric)?.last()?.value.0);
        let plural = |count: u64, one: &str| {
            let s = if count == 1 { "" } else { "s" };
            format!("{count} {one}{s}")
        };
        let mut words = Vec::new();
        if !bandit.policy.is_empty() {
            words.push(bandit.policy.clone());
        }
        words.push(plural(bandit.choices, "choice"));
        if bandit.updates == 0 {
            words.push("no update yet".to_owned());
        } else {
            words.push(plural(bandit.updates, "update"));
        }
        let mut add = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                words.push(format!("{name} {}", text::number(value)));
            }
        };
        add("regret", bandit.regret.map(|regret| regret.0));
        add("disagreement", bandit.disagreement.map(|value| value.0));
        add(epsilon, bandit.epsilon.map(|epsilon| epsilon.0));
        add("probe", last("bandit/probe/accuracy"));
        add("last value", last("bandit/value"));
        words
    }

    /// The table with a line a row, columns parted by tabs.
    pub fn as_text(&self) -> String {
        let mut table = "arm\tstate\tpulls\tshare\tmean\tsd\tchance\ttimed_out\tmissing\tscore\tp50_ms\tp99_ms\n".to_owned();
        let cell = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        for row in &self.rows {
            let _ = writeln!(
                table,
                "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
                row.name,
                row.state(),
                row.pulls,
                row.share,
                cell(row.mean),
                cell(row.sd),
                cell(row.chance),
                row.timed_out,
                row.missing,
                cell(row.score),
                cell(row.latency_ms.map(|(p50, _)| p50)),
                cell(row.latency_ms.map(|(_, p99)| p99)),
            );
        }
        table
    }
}
