//! The table as data: which runs, which rows, which of them is better. Made when the data changes, not when it is drawn.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use experiment::keys;
use runlog::RunState;
use runlog::metrics::{self, Direction};
use runlog::series::Series;

use super::Kept;
use super::config::Config;
use crate::headless::format;
use crate::tui::shared::{OpenRun, RunKey, Shared};
use crate::tui::widgets::text;

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub key: RunKey,
    /// `quickstart-ab120000`.
    pub label: String,
    /// Index of its colour.
    pub color: usize,
}

/// What a metric came to in one run; None where there is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Numbers {
    pub last: Option<f64>,
    pub best: Option<f64>,
    pub mean: Option<f64>,
}

impl Numbers {
    pub fn get(self, which: usize) -> Option<f64> {
        [self.last, self.best, self.mean][which]
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Row {
    Heading(String),
    /// State, steps, time.
    Fact {
        name: &'static str,
        values: Vec<String>,
    },
    Key {
        name: String,
        values: Vec<String>,
        differs: bool,
    },
    Metric {
        name: String,
        direction: Direction,
        numbers: Vec<Numbers>,
    },
}

impl Row {
    /// What tells it from other rows when the table is made anew.
    pub fn identity(&self) -> String {
        match self {
            Self::Heading(title) => format!("# {title}"),
            Self::Fact { name, .. } => format!("fact {name}"),
            Self::Key { name, .. } => format!("key {name}"),
            Self::Metric { name, .. } => format!("metric {name}"),
        }
    }

    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Heading(_) => None,
            Self::Fact { name, .. } => Some(name),
            Self::Key { name, .. } | Self::Metric { name, .. } => Some(name),
        }
    }
}

#[derive(Debug, Default)]
pub struct Table {
    pub runs: Vec<Run>,
    pub rows: Vec<Row>,
    /// Experiments that cannot be read: why.
    pub problems: Vec<String>,
    /// Rows that the screen has, about.
    pub visible_rows: usize,
}

/// `quickstart-ab120000`, else the directory's name.
pub fn label(run: &OpenRun) -> String {
    match &run.info {
        Some(info) if !info.experiment_name.is_empty() => {
            format!("{}-{}", info.experiment_name, info.id)
        }
        _ => run.key.name(),
    }
}

pub(super) fn build(
    shared: &Shared,
    configs: &HashMap<RunKey, Result<Config, String>>,
    kept: Kept,
) -> Table {
    let shown = shared.shown_runs();
    let mut table = Table {
        runs: shown
            .iter()
            .map(|(color, run)| Run {
                key: run.key.clone(),
                label: label(run),
                color: *color,
            })
            .collect(),
        // Half of the page is the table's; a page of it is moved by that.
        visible_rows: usize::from(shared.rows / 2).max(1),
        ..Table::default()
    };
    if shown.is_empty() {
        return table;
    }
    let runs: Vec<&OpenRun> = shown.iter().map(|(_, run)| *run).collect();
    facts(&mut table, &runs, shared);
    config_rows(&mut table, &runs, configs, kept);
    metric_rows(&mut table, &runs, kept);
    table
}

fn facts(table: &mut Table, runs: &[&OpenRun], shared: &Shared) {
    table.rows.push(Row::Heading("runs".to_owned()));
    let states = runs.iter().map(|run| {
        if run.problem.is_some() {
            return "cannot be read".to_owned();
        }
        shared.state_word(run).to_owned()
    });
    let steps = runs.iter().map(|run| match run.state.total_steps() {
        Some(total) => format::steps(run.state.step, total),
        None => run.state.step.to_string(),
    });
    let times = runs.iter().map(|run| text::clock(run.state.elapsed_ms));
    for (name, values) in [
        ("state", states.collect()),
        ("steps", steps.collect()),
        ("time", times.collect::<Vec<String>>()),
    ] {
        table.rows.push(Row::Fact { name, values });
    }
    if runs.iter().any(|run| run.state.bandit.is_some()) {
        let sign = shared.glyphs.pick("±", "+-");
        let values = runs.iter().map(|run| favourite(&run.state, sign)).collect();
        let name = "bandit";
        table.rows.push(Row::Fact { name, values });
    }
}

/// The arm that a bandit believes most of: `rule 0.712 ± 0.031`; `-` where there is none, or nothing is known.
fn favourite(state: &RunState, sign: &str) -> String {
    let arms = state
        .bandit
        .as_ref()
        .map_or(&[][..], |bandit| &bandit.arms[..]);
    let known = arms.iter().filter_map(|arm| Some((arm, arm.mean?.0)));
    let best = known.max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map_or_else(
        || "-".to_owned(),
        |(arm, mean)| {
            let spread = arm
                .sd
                .map_or_else(String::new, |sd| format!(" {sign} {}", text::number(sd.0)));
            format!("{} {}{spread}", arm.name, text::number(mean))
        },
    )
}

fn config_rows(
    table: &mut Table,
    runs: &[&OpenRun],
    configs: &HashMap<RunKey, Result<Config, String>>,
    kept: Kept,
) {
    let found: Vec<Option<&Result<Config, String>>> =
        runs.iter().map(|run| configs.get(&run.key)).collect();
    let is_awaited = found.iter().any(Option::is_none);
    for (run, config) in runs.iter().zip(&found) {
        if let Some(Err(reason)) = config {
            table.problems.push(format!("{}: {reason}", label(run)));
        }
    }
    let read: Vec<Option<&Config>> = found
        .iter()
        .map(|config| config.and_then(|config| config.as_ref().ok()))
        .collect();
    let all = keys::live();
    let mut rows = Vec::new();
    let mut differing = 0;
    for (index, key) in all.iter().enumerate() {
        let mut known = read
            .iter()
            .flatten()
            .filter_map(|config| config.values.get(index)?.as_ref());
        let first = known.next();
        let differs = known.any(|value| Some(value) != first);
        differing += usize::from(differs);
        if differs || kept.has_all_keys {
            let values = read
                .iter()
                .map(|config| {
                    config
                        .and_then(|config| config.values.get(index)?.clone())
                        .unwrap_or_default()
                })
                .collect();
            rows.push(Row::Key {
                name: key.path.clone(),
                values,
                differs,
            });
        }
    }
    let others: BTreeSet<&String> = (read.iter().flatten())
        .flat_map(|config| config.others.keys())
        .collect();
    let count = all.len() + others.len();
    for name in others {
        let said: Vec<Option<&String>> = (read.iter())
            .map(|config| config.and_then(|config| config.others.get(name)))
            .collect();
        let mut known = (read.iter().zip(&said)).filter(|(config, _)| config.is_some());
        let first = known.next().map(|(_, value)| *value);
        let differs = known.any(|(_, value)| Some(*value) != first);
        differing += usize::from(differs);
        if differs || kept.has_all_keys {
            let values = said.iter().map(|value| value.cloned().unwrap_or_default());
            rows.push(Row::Key {
                name: name.clone(),
                values: values.collect(),
                differs,
            });
        }
    }
    let what = if is_awaited {
        "reading the experiments".to_owned()
    } else if read.iter().flatten().count() < 2 {
        format!("{count} keys")
    } else {
        format!("{differing} of {count} keys differ")
    };
    table
        .rows
        .push(Row::Heading(format!("configuration: {what}")));
    table.rows.extend(rows);
}

fn metric_rows(table: &mut Table, runs: &[&OpenRun], kept: Kept) {
    let names: BTreeSet<&str> = runs
        .iter()
        .flat_map(|run| run.state.series.names())
        .collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    // In the groups of the metric table; undeclared ones last.
    names.sort_by_cached_key(|name| {
        let group = metrics::lookup(name).map(|metric| metric.group);
        // What a run is judged by comes before its by-products.
        (group.is_none(), group, name.starts_with("val-aux/"))
    });
    table.rows.push(Row::Heading(format!(
        "metrics: last, best, mean of the last {}",
        kept.last_count
    )));
    for name in names {
        let metric = metrics::lookup(name);
        let direction = metric.map_or(Direction::Neither, |metric| metric.direction);
        let numbers = runs
            .iter()
            .map(|run| {
                run.state
                    .series
                    .get(name)
                    .map_or_else(Numbers::default, |series| {
                        numbers_of(series, direction, kept.last_count)
                    })
            })
            .collect();
        table.rows.push(Row::Metric {
            name: name.to_owned(),
            direction,
            numbers,
        });
    }
}

/// The mean is that of the finite ones among the last `count` values.
pub fn numbers_of(series: Series<'_>, direction: Direction, count: usize) -> Numbers {
    let values = series.values();
    let newest = &values[values.len().saturating_sub(count)..];
    let (sum, finite) = newest
        .iter()
        .filter(|value| value.is_finite())
        .fold((0.0, 0_u32), |(sum, many), value| (sum + value, many + 1));
    let bounds = series.bounds(0..series.len());
    Numbers {
        last: values.last().copied(),
        best: match direction {
            Direction::Higher => bounds.map(|bounds| bounds.max),
            Direction::Lower => bounds.map(|bounds| bounds.min),
            Direction::Neither => None,
        },
        mean: (finite > 0).then(|| sum / f64::from(finite)),
    }
}

/// Which of the numbers are the better ones: all that equal the best, when there is one to beat.
pub fn better(numbers: &[Option<f64>], direction: Direction) -> Vec<bool> {
    let none = vec![false; numbers.len()];
    let finite = || {
        numbers
            .iter()
            .flatten()
            .copied()
            .filter(|value| value.is_finite())
    };
    let best = match direction {
        Direction::Higher => finite().reduce(f64::max),
        Direction::Lower => finite().reduce(f64::min),
        Direction::Neither => None,
    };
    let (Some(best), true) = (best, finite().count() > 1) else {
        return none;
    };
    if finite().all(|value| value == best) {
        return none;
    }
    numbers.iter().map(|number| *number == Some(best)).collect()
}

impl Table {
    /// For spreadsheets: a line a row, full precision.
    pub fn tab_separated(&self) -> String {
        let clean = |text: &str| text.replace(['\t', '\n'], " ");
        let labels: Vec<String> = self.runs.iter().map(|run| clean(&run.label)).collect();
        let mut text = format!("\t{}\n", labels.join("\t"));
        for row in &self.rows {
            match row {
                Row::Heading(_) => {}
                Row::Fact { values, .. } | Row::Key { values, .. } => {
                    // Keys of other trackers are theirs to name.
                    let name = clean(row.name().unwrap_or_default());
                    let values: Vec<String> = values.iter().map(|value| clean(value)).collect();
                    let _ = writeln!(text, "{name}\t{}", values.join("\t"));
                }
                Row::Metric { name, numbers, .. } => {
                    for (which, word) in ["last", "best", "mean"].into_iter().enumerate() {
                        let values: Vec<String> = numbers
                            .iter()
                            .map(|numbers| {
                                numbers
                                    .get(which)
                                    .map_or_else(String::new, |value| value.to_string())
                            })
                            .collect();
                        let _ = writeln!(text, "{name} {word}\t{}", values.join("\t"));
                    }
                }
            }
        }
        text
    }
}
