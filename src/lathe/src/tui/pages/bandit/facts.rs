//! What a run's events, metrics and experiment say of its arms, made ready for every part of the page: of a bandit's, and of
//! arms that are summed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use runlog::RunState;
use runlog::control::arm_words;
use runlog::state::BanditState;

use crate::headless::arms::alike;
use crate::headless::judges::{self, Judges, percent};
use crate::tui::theme::Theme;
use crate::tui::widgets::chart::Look;
use crate::tui::widgets::text;

/// What became of an arm's answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lost {
    /// Outcomes that a bandit counted.
    Count(u64),
    /// Of the answers of the newest batch, 0..1; None: not known.
    Share(Option<f64>),
}

impl Lost {
    pub fn words(self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Share(Some(share)) => percent(share),
            Self::Share(None) => "-".to_owned(),
        }
    }
}

/// An arm, or a judge that is held out.
#[derive(Debug, Clone)]
pub struct Row {
    pub name: String,
    /// Nothing chooses among the arms: they are summed.
    pub is_summed: bool,
    pub is_held_out: bool,
    pub is_forced: bool,
    pub is_frozen: bool,
    /// Of its score, as the experiment has it. None: not known.
    pub weight: Option<f64>,
    /// Times that it was chosen, and of all choices, 0..1.
    pub pulls: u64,
    pub share: f64,
    /// Values in its mean.
    pub counted: u64,
    /// None while nothing is known.
    pub mean: Option<f64>,
    pub sd: Option<f64>,
    pub chance: Option<f64>,
    pub timed_out: Lost,
    pub missing: Lost,
    /// Mean score of the newest batch.
    pub score: Option<f64>,
    /// Milliseconds of the newest batch, at the median and at the 99th of a hundred.
    pub latency_ms: Option<(f64, f64)>,
}

impl Row {
    /// What the metrics say of an arm.
    pub fn of(judged: judges::Judged) -> Self {
        Self {
            name: judged.name,
            is_summed: false,
            is_held_out: false,
            is_forced: false,
            is_frozen: false,
            weight: judged.weight,
            pulls: 0,
            share: 0.0,
            counted: 0,
            mean: None,
            sd: None,
            chance: None,
            timed_out: Lost::Share(judged.timed_out_frac),
            missing: Lost::Share(judged.missing_frac),
            score: judged.score,
            latency_ms: judged.latency_ms,
        }
    }

    pub fn state(&self) -> &'static str {
        if self.is_held_out {
            "held out"
        } else if self.is_summed {
            if self.weight.is_some() { "counts" } else { "-" }
        } else {
            arm_words(self.is_forced, self.is_frozen)
        }
    }

    /// `0.712 ± 0.031`; of values that are all the same `1 (4 alike)`.
    pub fn value(&self, sign: &str) -> String {
        match (self.mean, self.sd) {
            (Some(mean), Some(0.0)) => {
                format!("{} ({})", text::number(mean), alike(self.counted))
            }
            (Some(mean), Some(sd)) => {
                format!("{} {sign} {}", text::number(mean), text::number(sd))
            }
            (Some(mean), None) => text::number(mean),
            (None, _) => "-".to_owned(),
        }
    }
}

/// Of a run where nothing is chosen.
static NO_BANDIT: BanditState = BanditState {
    policy: String::new(),
    arms: Vec::new(),
    epsilon: None,
    regret: None,
    disagreement: None,
    chosen: BTreeMap::new(),
    reasons: BTreeMap::new(),
    choices: 0,
    recent: VecDeque::new(),
    updates: 0,
    history: VecDeque::new(),
};

#[derive(Debug)]
pub struct Facts<'a> {
    pub bandit: &'a BanditState,
    pub state: &'a RunState,
    /// Arms in the bandit's order, then the judges that are held out; where nothing is chosen in the experiment's.
    pub rows: Vec<Row>,
    /// A policy chooses among the arms.
    pub is_choosing: bool,
    /// As the events have it, or the experiment.
    pub policy: String,
}

impl<'a> Facts<'a> {
    /// None: the run has no arms, as far as is known.
    pub fn of(state: &'a RunState, judges: Option<&Judges>) -> Option<Self> {
        let is_choosing = state.bandit.is_some() || judges.is_some_and(Judges::is_choosing);
        let bandit = state.bandit.as_ref().unwrap_or(&NO_BANDIT);
        let rows = if is_choosing {
            choosing(state, bandit, judges)
        } else {
            let summed = judges::judged(state, judges).into_iter().map(|judged| Row {
                is_summed: true,
                is_held_out: judged.weight == Some(0.0),
                ..Row::of(judged)
            });
            summed.collect()
        };
        let policy = match judges {
            _ if !bandit.policy.is_empty() => bandit.policy.clone(),
            Some(judges) => judges.policy_word().to_owned(),
            None => String::new(),
        };
        (!rows.is_empty() || state.bandit.is_some()).then_some(Self {
            bandit,
            state,
            rows,
            is_choosing,
            policy,
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
        if !self.is_choosing {
            let count = self.rows.len();
            let arms = if count == 1 { "arm" } else { "arms" };
            let how = if self.policy.is_empty() {
                "how they count is not known".to_owned()
            } else {
                self.policy.clone()
            };
            return vec![
                how,
                format!("{count} {arms}"),
                "nothing is chosen".to_owned(),
            ];
        }
        let last = |metric: &str| Some(self.state.series.get(metric)?.last()?.value.0);
        let plural = |count: u64, one: &str| {
            let s = if count == 1 { "" } else { "s" };
            format!("{count} {one}{s}")
        };
        let mut words = Vec::new();
        if !self.policy.is_empty() {
            words.push(self.policy.clone());
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
        let mut table = "arm\tstate\tweight\tpulls\tshare\tmean\tsd\tchance\ttimed_out\tmissing\tscore\tp50_ms\tp99_ms\n".to_owned();
        let cell = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        for row in &self.rows {
            let _ = writeln!(
                table,
                "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
                row.name,
                row.state(),
                cell(row.weight),
                row.pulls,
                row.share,
                cell(row.mean),
                cell(row.sd),
                cell(row.chance),
                row.timed_out.words(),
                row.missing.words(),
                cell(row.score),
                cell(row.latency_ms.map(|(p50, _)| p50)),
                cell(row.latency_ms.map(|(_, p99)| p99)),
            );
        }
        table
    }
}

/// A bandit's arms in its order (before the first update in the experiment's), then the judges that it does not choose among.
fn choosing(state: &RunState, bandit: &BanditState, judges: Option<&Judges>) -> Vec<Row> {
    let mut arms = bandit.arm_states();
    if let Some(judges) = judges.filter(|_| bandit.arms.is_empty()) {
        arms = judges.in_order(arms);
    }
    let weight = |name: &str| judges?.weight(name);
    let mut rows: Vec<Row> = arms
        .into_iter()
        .map(|arm| Row {
            is_forced: arm.is_forced,
            is_frozen: arm.is_frozen,
            weight: weight(&arm.name),
            pulls: arm.pulls,
            share: arm.pulls as f64 / bandit.choices.max(1) as f64,
            counted: arm.counted,
            mean: arm.mean.map(|mean| mean.0),
            sd: arm.sd.map(|sd| sd.0),
            chance: arm.chance.map(|chance| chance.0),
            timed_out: Lost::Count(arm.timed_out),
            missing: Lost::Count(arm.missing),
            ..Row::of(judges::of_arm(state, &arm.name))
        })
        .collect();
    let mut held_out: Vec<&str> = state.held_out_judges().map(|(name, _)| name).collect();
    if let Some(judges) = judges.filter(|_| bandit.arms.is_empty()) {
        let arms = judges.arms.iter().filter(|(_, weight)| *weight == 0.0);
        held_out = arms.map(|(name, _)| name.as_str()).collect();
    }
    rows.extend(held_out.into_iter().map(|name| Row {
        is_held_out: true,
        weight: weight(name),
        ..Row::of(judges::of_arm(state, name))
    }));
    rows
}
