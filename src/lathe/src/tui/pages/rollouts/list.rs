//! The samples of a step as rows: grouped by prompt or flat, in an order, and how a row is written.

use std::cmp::Ordering;

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::data::Batch;
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::text;

/// What rows are ordered by. Groups go by their mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As recorded.
    #[default]
    Prompt,
    Reward,
    Length,
    Advantage,
    /// Spread of the rewards in the group.
    Spread,
}

impl Order {
    pub const ALL: [Self; 5] = [
        Self::Prompt,
        Self::Reward,
        Self::Length,
        Self::Advantage,
        Self::Spread,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Reward => "reward",
            Self::Length => "length",
            Self::Advantage => "advantage",
            Self::Spread => "group spread",
        }
    }

    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|order| *order == self);
        Self::ALL[(at.unwrap_or(0) + 1) % Self::ALL.len()]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    Group(usize),
    Sample(usize),
}

/// How the rows are to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrangement {
    pub order: Order,
    /// The largest last.
    pub is_reversed: bool,
    /// Samples of all prompts in one list.
    pub is_flat: bool,
}

impl Arrangement {
    /// Every sample once, and every group once unless flat. Missing values come last in either direction.
    pub fn rows(self, batch: &Batch) -> Vec<Row> {
        let value = |sample: usize| self.value(batch, sample);
        let mut all: Vec<usize> = (0..batch.samples.len()).collect();
        if self.is_flat {
            all.sort_by(|a, b| self.compare(value(*a), value(*b)));
            return all.into_iter().map(Row::Sample).collect();
        }
        let group_value = |group: usize| {
            let group = &batch.groups[group];
            match self.order {
                Order::Prompt => None,
                Order::Spread => group.spread,
                Order::Reward => group.mean,
                Order::Length | Order::Advantage => {
                    let known: Vec<f64> = group
                        .samples
                        .iter()
                        .filter_map(|&sample| value(sample))
                        .collect();
                    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
                }
            }
        };
        let mut groups: Vec<usize> = (0..batch.groups.len()).collect();
        groups.sort_by(|a, b| self.compare(group_value(*a), group_value(*b)));
        let mut rows = Vec::with_capacity(batch.samples.len() + groups.len());
        for group in groups {
            rows.push(Row::Group(group));
            let mut samples = batch.groups[group].samples.clone();
            if self.order != Order::Spread {
                samples.sort_by(|a, b| self.compare(value(*a), value(*b)));
            }
            rows.extend(samples.into_iter().map(Row::Sample));
        }
        rows
    }

    fn value(self, batch: &Batch, sample: usize) -> Option<f64> {
        let found = &batch.samples[sample];
        match self.order {
            Order::Prompt => None,
            Order::Reward => found.row.score,
            Order::Length => Some(found.row.response_ids.len() as f64),
            Order::Advantage => found.advantage,
            Order::Spread => batch.group_of(sample).spread,
        }
    }

    fn compare(self, a: Option<f64>, b: Option<f64>) -> Ordering {
        let known = |value: Option<f64>| value.filter(|value| !value.is_nan());
        match (known(a), known(b)) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) if self.is_reversed => a.total_cmp(&b),
            (Some(a), Some(b)) => b.total_cmp(&a),
        }
    }

    /// `by reward, largest first`
    pub fn words(self) -> String {
        let flat = if self.is_flat { ", flat" } else { "" };
        match (self.order, self.is_reversed) {
            (Order::Prompt, _) => format!("as recorded{flat}"),
            (order, false) => format!("by {}, largest first{flat}", order.word()),
            (order, true) => format!("by {}, smallest first{flat}", order.word()),
        }
    }
}

/// `+0.52`; `-` where there is none.
pub fn signed(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value > 0.0 => format!("+{}", text::number(value)),
        Some(value) => text::number(value),
    }
}

pub fn reward(value: Option<f64>) -> String {
    // Missing is never the same as 0.
    value.map_or_else(|| "none".to_owned(), text::number)
}

/// The columns that fit into a width: reward and tokens always, then advantage, finish, turns and calls, parts of the reward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    width: usize,
    has_advantage: bool,
    has_finish: bool,
    has_turns: bool,
    parts: usize,
    /// What is left for the prompt.
    rest: usize,
}

const SAMPLE: usize = 5;
const REWARD: usize = 7;
const ADVANTAGE: usize = 9;
const TURNS: usize = 5;
const CALLS: usize = 6;
const TOKENS: usize = 7;
const FINISH: usize = 11;
const PART: usize = 9;

impl Columns {
    pub fn fitting(width: usize, parts: usize) -> Self {
        let mut left = width.saturating_sub(SAMPLE + REWARD + TOKENS);
        let mut take = |columns: usize| {
            let fits = left >= columns;
            if fits {
                left -= columns;
            }
            fits
        };
        let has_advantage = take(ADVANTAGE);
        let has_finish = take(FINISH);
        let has_turns = take(TURNS + CALLS);
        let parts = (0..parts).take_while(|_| take(PART)).count();
        Self {
            width,
            has_advantage,
            has_finish,
            has_turns,
            parts,
            rest: left,
        }
    }

    pub fn head(self, batch: Option<&Batch>, shared: &Shared) -> Line<'static> {
        let unicode = shared.glyphs.unicode;
        let mut head = text::pad_left("#", SAMPLE, unicode);
        head += &text::pad_left("reward", REWARD, unicode);
        if self.has_advantage {
            head += &text::pad_left("advant", ADVANTAGE, unicode);
        }
        for part in batch.iter().flat_map(|batch| &batch.parts).take(self.parts) {
            head += " ";
            head += &text::pad_left(&text::printable(part), PART - 1, unicode);
        }
        if self.has_turns {
            head += &text::pad_left("turns", TURNS + 1, unicode);
            head += &text::pad_left("calls", CALLS - 1 + 1, unicode);
        }
        head += &text::pad_left("tokens", TOKENS, unicode);
        if self.has_finish {
            head += " finish";
        }
        Line::styled(head, shared.style(Role::Title))
    }

    pub fn row(self, batch: &Batch, row: Row, look: Look, shared: &Shared) -> Line<'static> {
        let unicode = shared.glyphs.unicode;
        let mut line = match row {
            Row::Group(index) => {
                let group = &batch.groups[index];
                let numbers = match (group.mean, group.spread) {
                    (Some(mean), Some(spread)) => format!(
                        " {} {}{}",
                        text::number(mean),
                        shared.glyphs.pick("±", "+-"),
                        text::number(spread)
                    ),
                    _ => " no reward".to_owned(),
                };
                let room = self.width.saturating_sub(text::width(&numbers) + 2);
                let style = if group.spread == Some(0.0) {
                    shared.style(Role::Muted)
                } else {
                    shared.style(Role::Text)
                };
                Line::from(vec![
                    Span::styled(shared.glyphs.pick("▾ ", "v "), shared.style(Role::Accent)),
                    Span::styled(
                        text::pad(&text::printable(&group.title), room, unicode),
                        shared.style(Role::Title).add_modifier(Modifier::BOLD),
                    ),
                    Span::styled(numbers, style),
                ])
            }
            Row::Sample(index) => {
                let sample = &batch.samples[index];
                let mark = if look.is_match {
                    "*"
                } else if look.is_selected {
                    ">"
                } else {
                    " "
                };
                let plain = shared.style(Role::Text);
                let mut spans = vec![
                    Span::styled(mark, shared.style(Role::Accent)),
                    Span::styled(
                        text::pad_left(&sample.row.sample.to_string(), SAMPLE - 1, unicode),
                        shared.style(Role::Muted),
                    ),
                    Span::styled(
                        text::pad_left(&reward(sample.row.score), REWARD, unicode),
                        reward_style(sample.row.score, shared),
                    ),
                ];
                if self.has_advantage {
                    spans.push(Span::styled(
                        text::pad_left(&signed(sample.advantage), ADVANTAGE, unicode),
                        sign_style(sample.advantage, shared),
                    ));
                }
                for name in batch.parts.iter().take(self.parts) {
                    let value = sample.parts.iter().find(|(part, _)| part == name);
                    let value =
                        value.map_or_else(|| "-".to_owned(), |(_, value)| text::number(*value));
                    spans.push(Span::styled(text::pad_left(&value, PART, unicode), plain));
                }
                if self.has_turns {
                    let turns = sample.turns.to_string();
                    let calls = match sample.tools.iter().filter(|tool| tool.failed).count() {
                        0 => sample.tools.len().to_string(),
                        // How many failed stands with the calls themselves.
                        _ => format!("{}!", sample.tools.len()),
                    };
                    spans.push(Span::styled(text::pad_left(&turns, TURNS, unicode), plain));
                    spans.push(Span::styled(text::pad_left(&calls, CALLS, unicode), plain));
                }
                let tokens = sample.row.response_ids.len().to_string();
                spans.push(Span::styled(
                    text::pad_left(&tokens, TOKENS, unicode),
                    plain,
                ));
                if self.has_finish {
                    let finish = text::printable(&sample.row.finish);
                    let style = match finish.as_str() {
                        "stop" => shared.style(Role::Muted),
                        "error" | "aborted" => shared.style(Role::Bad),
                        _ => shared.style(Role::Caution),
                    };
                    spans.push(Span::styled(
                        format!(" {}", text::pad(&finish, FINISH - 1, unicode)),
                        style,
                    ));
                }
                if look.has_prompt && self.rest > 12 {
                    let title = text::printable(&batch.group_of(index).title);
                    spans.push(Span::styled(
                        format!("  {}", text::fit(&title, self.rest - 2, unicode)),
                        shared.style(Role::Muted),
                    ));
                }
                Line::from(spans)
            }
        };
        if look.is_selected {
            line = line.style(shared.style(if look.is_focused {
                Role::Selection
            } else {
                Role::Marked
            }));
        }
        line
    }
}

/// How a row stands out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    pub is_selected: bool,
    pub is_focused: bool,
    pub is_match: bool,
    /// Its prompt stands beside it, since no heading does.
    pub has_prompt: bool,
}

pub fn reward_style(reward: Option<f64>, shared: &Shared) -> Style {
    match reward {
        None => shared.style(Role::Caution),
        Some(reward) if !reward.is_finite() => shared.style(Role::Bad),
        Some(reward) if reward > 0.0 => shared.style(Role::Good),
        Some(reward) if reward < 0.0 => shared.style(Role::Bad),
        Some(_) => shared.style(Role::Text),
    }
}

pub fn sign_style(value: Option<f64>, shared: &Shared) -> Style {
    match value {
        Some(value) if value > 0.0 => shared.style(Role::Good),
        Some(value) if value < 0.0 => shared.style(Role::Bad),
        _ => shared.style(Role::Muted),
    }
}
