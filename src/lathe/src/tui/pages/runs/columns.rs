//! The columns of the table: which there are, how wide, what stands in them, and how they sort.

use std::cmp::Ordering;

use jiff::Timestamp;
use runlog::filter::{Resolved, resolve};
use runlog::metrics::{self, Direction};
use runlog::run_dir::Origin;
use runlog::state::Liveness;
use serde::{Deserialize, Serialize};

use super::details::{Detail, Details};
use crate::tui::shared::{Glyphs, RunEntry};
use crate::tui::theme::Role;
use crate::tui::widgets::text;

/// Metrics that have columns until others are chosen: words of [`runlog::filter::ALIASES`].
pub const DEFAULT_METRICS: [&str; 3] = ["reward", "score", "kl"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    State,
    Name,
    Experiment,
    Progress,
    Age,
    Host,
    /// Newest value of a metric, given by name or by a word of the filter.
    Last(String),
    /// Its best value over the whole run, where the metric table knows a better way.
    Best(String),
    Tags,
    Note,
}

/// What a row is sorted by; what is missing comes last whichever way is sorted.
#[derive(Debug, Clone, PartialEq)]
pub enum SortKey {
    Number(f64),
    Text(String),
    Missing,
}

impl Column {
    /// Every column in the order of the screen.
    pub fn all(metrics: &[String]) -> Vec<Self> {
        let mut columns = vec![
            Self::State,
            Self::Name,
            Self::Experiment,
            Self::Progress,
            Self::Age,
            Self::Host,
        ];
        for metric in metrics {
            columns.push(Self::Last(metric.clone()));
            columns.push(Self::Best(metric.clone()));
        }
        columns.extend([Self::Tags, Self::Note]);
        columns
    }

    /// Its heading.
    pub fn title(&self) -> String {
        match self {
            Self::State => "state".to_owned(),
            Self::Name => "name".to_owned(),
            Self::Experiment => "experiment".to_owned(),
            Self::Progress => "step".to_owned(),
            Self::Age => "age".to_owned(),
            Self::Host => "host".to_owned(),
            Self::Last(metric) => short(metric),
            Self::Best(metric) => format!("best {}", short(metric)),
            Self::Tags => "tags".to_owned(),
            Self::Note => "note".to_owned(),
        }
    }

    /// Numbers stand at the right of their column.
    pub fn is_right(&self) -> bool {
        matches!(self, Self::Age | Self::Last(_) | Self::Best(_))
    }

    /// The way it sorts at first: newest and best on top, text from A.
    pub fn starts_descending(&self) -> bool {
        match self {
            Self::Progress => true,
            Self::Last(metric) | Self::Best(metric) => !is_lower_better(metric),
            _ => false,
        }
    }

    /// Columns wide; for the name and the note at least.
    fn width(&self) -> u16 {
        match self {
            Self::State | Self::Host => 10,
            Self::Name => 18,
            Self::Experiment => 14,
            Self::Progress => 9,
            Self::Age => 6,
            Self::Last(_) | Self::Best(_) => (text::width(&self.title()) as u16).clamp(8, 14),
            Self::Tags => 12,
            Self::Note => 16,
        }
    }

    /// Which columns are first to be shown when room is short.
    fn rank(&self, metrics: &[String]) -> usize {
        let place = |metric: &String| metrics.iter().position(|known| known == metric);
        match self {
            Self::State | Self::Name => 0,
            Self::Progress => 1,
            Self::Last(metric) => match place(metric) {
                Some(0) => 2,
                Some(place) => 3 + 3 * place,
                None => usize::MAX,
            },
            Self::Age => 3,
            Self::Best(metric) => match place(metric) {
                Some(0) => 4,
                Some(place) => 9 + 3 * place,
                None => usize::MAX,
            },
            Self::Tags => 7,
            Self::Note => 8,
            Self::Host => 10,
            Self::Experiment => 30,
        }
    }
}

/// The last two parts of a metric's name: `actor/ppo_kl`, `score/mean`.
pub fn short(metric: &str) -> String {
    let parts: Vec<&str> = metric.rsplit('/').take(2).collect();
    match parts.as_slice() {
        [last, before] if last.len() <= 6 => format!("{before}/{last}"),
        [last, ..] => (*last).to_owned(),
        [] => String::new(),
    }
}

/// Words of the filter that stand for metrics of which less is better are few; names are looked up.
fn is_lower_better(metric: &str) -> bool {
    direction(metric) == Direction::Lower
}

/// Which way is better, of a name or of what a word stands for first.
pub fn direction(metric: &str) -> Direction {
    if let Some(found) = metrics::lookup(metric) {
        return found.direction;
    }
    runlog::filter::ALIASES
        .iter()
        .find(|(alias, _)| *alias == metric)
        .and_then(|(_, patterns)| {
            let name = patterns.first()?.replacen('*', "x", 1).replace('*', "1");
            Some(metrics::lookup(&name)?.direction)
        })
        .unwrap_or(Direction::Neither)
}

/// The columns that fit into `width`, each with its own, in the order of the screen; a column of space after each.
///
/// `longest`: columns of the longest full name and of the longest short one; the names are full where all of them fit.
///
/// `tells_hosts`: some run is of another machine, so that where each is comes before most numbers.
pub fn lay_out(
    width: u16,
    metrics: &[String],
    longest: (usize, usize),
    tells_hosts: bool,
) -> Vec<(Column, u16)> {
    let mut by_rank = Column::all(metrics);
    by_rank.retain(|column| match column {
        Column::Best(metric) => direction(metric) != Direction::Neither,
        _ => true,
    });
    by_rank.sort_by_key(|column| match column {
        Column::Host if tells_hosts => 3,
        _ => column.rank(metrics),
    });
    let mut room = width;
    let mut chosen: Vec<(Column, u16)> = Vec::new();
    for column in by_rank {
        let wanted = match column {
            // What tells runs apart comes before more numbers.
            Column::Name => column.width().max(longest.1.min(32) as u16) + 1,
            _ => column.width() + 1,
        };
        if wanted <= room {
            room -= wanted;
            chosen.push((column.clone(), wanted - 1));
        } else if column == Column::Name {
            // The name is there however narrow the screen.
            let left = room.saturating_sub(1);
            room = 0;
            chosen.push((column, left));
        }
    }
    // What is left goes to the name up to the longest there is, then to the bar, then to the note.
    let of_name = chosen
        .iter()
        .find(|(column, _)| *column == Column::Name)
        .map_or(0, |(_, width)| width + room);
    let longest_name = if longest.0 <= usize::from(of_name) {
        longest.0
    } else {
        longest.1
    };
    for (column, most) in [
        (Column::Name, longest_name.min(90) as u16),
        (Column::Progress, 18),
        (Column::Note, u16::MAX),
    ] {
        if let Some((_, width)) = chosen.iter_mut().find(|(known, _)| *known == column) {
            let more = most.saturating_sub(*width).min(room);
            *width += more;
            room -= more;
        }
    }
    let order = Column::all(metrics);
    chosen.sort_by_key(|(column, _)| order.iter().position(|known| known == column));
    chosen
}

/// The metric of a run that a column's word stands for; the whole log is asked where it was read, else its end.
pub fn metric_name<'a>(
    word: &str,
    entry: &'a RunEntry,
    detail: Option<&'a Detail>,
) -> Option<&'a str> {
    let of_log = detail
        .into_iter()
        .flat_map(|detail| detail.metrics.keys().map(String::as_str));
    let of_end = entry
        .glance
        .iter()
        .flat_map(|glance| glance.last.keys().map(String::as_str));
    match resolve(word, of_log.chain(of_end)) {
        Resolved::One(name) => Some(name),
        // Several test sets, say: the first by name stands for them.
        Resolved::Many(names) => names.into_iter().next(),
        Resolved::None => None,
    }
}

/// Newest value of the column's metric.
pub fn last_value(word: &str, entry: &RunEntry, detail: Option<&Detail>) -> Option<f64> {
    let name = metric_name(word, entry, detail)?;
    let of_end = entry
        .glance
        .as_ref()
        .and_then(|glance| glance.last.get(name));
    of_end
        .map(|value| value.0)
        .or_else(|| Some(detail?.metrics.get(name)?.last))
}

/// Best value of the column's metric; None until the whole log was read, or when neither way is better.
pub fn best_value(word: &str, entry: &RunEntry, detail: Option<&Detail>) -> Option<f64> {
    let detail = detail?;
    let name = metric_name(word, entry, Some(detail))?;
    let of_log = detail.metrics.get(name)?;
    // What is newer than when the log was read is in sight at its end.
    let newest = entry.glance.as_ref()?.last.get(name).map(|last| last.0);
    let newest = newest.filter(|value| value.is_finite());
    match metrics::lookup(name)?.direction {
        Direction::Higher => of_log
            .extremes
            .map(|(_, most)| newest.map_or(most, |newest| newest.max(most))),
        Direction::Lower => of_log
            .extremes
            .map(|(least, _)| newest.map_or(least, |newest| newest.min(least))),
        Direction::Neither => None,
    }
}

/// A mark and a word for a run's state, and how they are coloured.
pub fn state_cell(entry: &RunEntry, glyphs: Glyphs) -> (&'static str, &'static str, Role) {
    let word = entry.state_word();
    if entry.is_replayed {
        return (glyphs.pick("◆", "@"), word, Role::Caution);
    }
    let Some(glance) = &entry.glance else {
        return (glyphs.pick("⚠", "?"), word, Role::Bad);
    };
    let (mark, role) = match glance.liveness {
        Liveness::Running if glance.is_paused => (glyphs.pick("‖", "="), Role::Caution),
        Liveness::Running => (glyphs.pick("▶", ">"), Role::Accent),
        Liveness::Finished => (glyphs.pick("✓", "+"), Role::Good),
        Liveness::Stopped => (glyphs.pick("■", "#"), Role::Caution),
        Liveness::Failed { .. } => (glyphs.pick("✗", "x"), Role::Bad),
        Liveness::PresumedDead { .. } => (glyphs.pick("†", "!"), Role::Bad),
        Liveness::Silent { .. } => (glyphs.pick("·", "."), Role::Muted),
    };
    (mark, word, role)
}

/// Where it runs, and of another tracker's run whose it is: `gpu1 wandb`.
pub fn host(entry: &RunEntry) -> String {
    // A target's name is what people know the machine by.
    if let Some(target) = entry.info.origin.as_ref().and_then(Origin::target) {
        return target.to_owned();
    }
    let format = entry.info.foreign_format().unwrap_or_default();
    format!("{} {format}", entry.info.host).trim().to_owned()
}

/// Seconds since a run started.
pub fn age_s(entry: &RunEntry, now: Timestamp) -> f64 {
    now.duration_since(entry.info.started_at).as_secs_f64()
}

/// `quickstart-db1a91bd`: what tells a run from others in few letters.
pub fn short_name(entry: &RunEntry) -> String {
    if entry.info.experiment_name.is_empty() || !entry.info.name.ends_with(&entry.info.id) {
        return entry.info.name.clone();
    }
    format!("{}-{}", entry.info.experiment_name, entry.info.id)
}

pub fn sort_key(column: &Column, entry: &RunEntry, details: &Details, now: Timestamp) -> SortKey {
    let glance = entry.glance.as_ref();
    let number = |value: Option<f64>| match value {
        Some(value) if !value.is_nan() => SortKey::Number(value),
        _ => SortKey::Missing,
    };
    let words = |text: &str| {
        if text.is_empty() {
            SortKey::Missing
        } else {
            SortKey::Text(text.to_lowercase())
        }
    };
    match column {
        Column::State => SortKey::Number(match glance.map(|glance| &glance.liveness) {
            Some(Liveness::Running) => 0.0,
            None => 1.0,
            Some(Liveness::Silent { .. }) => 1.5,
            Some(Liveness::PresumedDead { .. }) => 2.0,
            Some(Liveness::Failed { .. }) => 3.0,
            Some(Liveness::Stopped) => 4.0,
            Some(Liveness::Finished) => 5.0,
        }),
        Column::Name => words(&entry.info.name),
        Column::Experiment => words(&entry.info.experiment_name),
        Column::Progress => number(glance.map(|glance| glance.step as f64)),
        Column::Age => SortKey::Number(age_s(entry, now)),
        Column::Host => words(&host(entry)),
        Column::Last(metric) => number(last_value(metric, entry, details.get(&entry.key))),
        Column::Best(metric) => number(best_value(metric, entry, details.get(&entry.key))),
        Column::Tags => words(&tags(entry)),
        Column::Note => words(&entry.notes.note),
    }
}

/// `a b`.
pub fn tags(entry: &RunEntry) -> String {
    let tags: Vec<&str> = entry.notes.tags().iter().map(String::as_str).collect();
    tags.join(" ")
}

pub fn compare(a: &SortKey, b: &SortKey, is_descending: bool) -> Ordering {
    let order = match (a, b) {
        (SortKey::Missing, SortKey::Missing) => return Ordering::Equal,
        (SortKey::Missing, _) => return Ordering::Greater,
        (_, SortKey::Missing) => return Ordering::Less,
        (SortKey::Number(a), SortKey::Number(b)) => a.total_cmp(b),
        (SortKey::Text(a), SortKey::Text(b)) => a.cmp(b),
        (SortKey::Number(_), SortKey::Text(_)) => Ordering::Less,
        (SortKey::Text(_), SortKey::Number(_)) => Ordering::Greater,
    };
    if is_descending {
        order.reverse()
    } else {
        order
    }
}
