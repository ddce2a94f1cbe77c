//! All series of a run, by metric name: what the fold owns and adds to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::column::Column;
use super::rows::{RowHead, Rows};
use super::view::Series;

/// Where rows come from. The metrics of one event share its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Steps,
    Evals,
    Syncs,
    Host,
}

impl Source {
    pub const ALL: [Self; 4] = [Self::Steps, Self::Evals, Self::Syncs, Self::Host];

    /// `steps`, `evals`, `syncs`, `host`
    pub fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Evals => "evals",
            Self::Syncs => "syncs",
            Self::Host => "host",
        }
    }
}

/// Which row each point of a series stands in.
#[derive(Debug, Clone)]
pub(super) enum Places {
    /// Point i in row `first_row + i`.
    Dense { first_row: u32 },
    /// Rising row numbers: the metric is missing in some rows.
    Sparse(Vec<u32>),
}

#[derive(Debug, Clone)]
pub(super) struct Track {
    pub(super) name: Arc<str>,
    /// Index of its rows in [`SeriesSet::rows`].
    pub(super) rows: usize,
    pub(super) places: Places,
    pub(super) column: Column,
}

/// Metric name to series, in name order.
#[derive(Clone)]
pub struct SeriesSet {
    /// One of each source, in the order of [`Source::ALL`]; then one of each metric that several sources write.
    pub(super) rows: Vec<Rows>,
    pub(super) tracks: Vec<Track>,
    pub(super) by_name: BTreeMap<Arc<str>, usize>,
    /// Tracks of the newest row of each source, in its order: the next row most likely has the same names.
    layouts: [Vec<usize>; 4],
}

impl Default for SeriesSet {
    fn default() -> Self {
        Self {
            rows: vec![Rows::default(); Source::ALL.len()],
            tracks: Vec::new(),
            by_name: BTreeMap::new(),
            layouts: Default::default(),
        }
    }
}

impl SeriesSet {
    /// The series of a metric; None when the run never logged it.
    pub fn get(&self, name: &str) -> Option<Series<'_>> {
        Some(self.view(*self.by_name.get(name)?))
    }

    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Every series, in name order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, Series<'_>)> {
        self.by_name
            .iter()
            .map(|(name, track)| (&**name, self.view(*track)))
    }

    /// Names of the metrics, in name order.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.by_name.keys().map(|name| &**name)
    }

    /// How many metrics there are.
    pub fn len(&self) -> usize {
        self.tracks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }

    /// How many values all series hold.
    pub fn points(&self) -> u64 {
        self.tracks
            .iter()
            .map(|track| track.column.len() as u64)
            .sum()
    }

    fn view(&self, track: usize) -> Series<'_> {
        let track = &self.tracks[track];
        Series::new(&self.rows[track.rows], &track.places, &track.column)
    }

    /// Adds the values of one event. A name occurs once in a row; no values, no row.
    pub fn push_row<'a>(
        &mut self,
        source: Source,
        head: RowHead,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) {
        let own = source as usize;
        let row = self.rows[own].len();
        let mut layout = std::mem::take(&mut self.layouts[own]);
        for (place, (name, value)) in values.into_iter().enumerate() {
            if place == 0 {
                self.rows[own].push(head);
            }
            let track = match layout.get(place) {
                Some(track) if &*self.tracks[*track].name == name => *track,
                _ => {
                    let track = self.track(name, own, row);
                    match layout.get_mut(place) {
                        Some(known) => *known = track,
                        None => layout.push(track),
                    }
                    track
                }
            };
            self.push(track, own, row, head, value);
        }
        self.layouts[own] = layout;
    }

    /// The track of a name, new at `row` of rows `own` when there is none.
    pub(super) fn track(&mut self, name: &str, own: usize, row: usize) -> usize {
        if let Some(track) = self.by_name.get(name) {
            return *track;
        }
        let name: Arc<str> = name.into();
        self.tracks.push(Track {
            name: Arc::clone(&name),
            rows: own,
            places: Places::Dense {
                first_row: row_number(row),
            },
            column: Column::default(),
        });
        let track = self.tracks.len() - 1;
        self.by_name.insert(name, track);
        track
    }

    pub(super) fn push(&mut self, track: usize, own: usize, row: usize, head: RowHead, value: f64) {
        if self.tracks[track].rows != own {
            self.detach(track);
            let track = &self.tracks[track];
            self.rows[track.rows].push(head);
        }
        let track = &mut self.tracks[track];
        let row = if track.rows == own {
            row
        } else {
            self.rows[track.rows].len() - 1
        };
        let points = track.column.len();
        match &mut track.places {
            Places::Dense { first_row } => {
                if *first_row as usize + points != row {
                    let mut rows: Vec<u32> =
                        (*first_row..*first_row + row_number(points)).collect();
                    rows.push(row_number(row));
                    track.places = Places::Sparse(rows);
                }
            }
            Places::Sparse(rows) => rows.push(row_number(row)),
        }
        track.column.push(value);
    }

    /// Forgets every row of a later step than `step`, whatever its source: the run went back there and trains them again.
    pub fn rewind(&mut self, step: u64) {
        let is_kept = |row: &u64| *row <= step;
        if self.rows.iter().all(|rows| rows.step.iter().all(is_kept)) {
            return;
        }
        let old = std::mem::take(self);
        // The new number of each old row.
        let mut numbers: Vec<Vec<Option<u32>>> = Vec::with_capacity(old.rows.len());
        self.rows.clear();
        for rows in &old.rows {
            let mut kept = Rows::default();
            kept.rewinds = rows.rewinds + 1;
            let renumbered = (0..rows.len()).map(|row| {
                is_kept(&rows.step[row]).then(|| {
                    kept.push(rows.head(row));
                    row_number(kept.len() - 1)
                })
            });
            numbers.push(renumbered.collect());
            self.rows.push(kept);
        }
        for track in old.by_name.values().map(|track| &old.tracks[*track]) {
            let (mut places, mut values) = (Vec::new(), Vec::new());
            for (point, value) in track.column.values().iter().enumerate() {
                let row = match &track.places {
                    Places::Dense { first_row } => *first_row as usize + point,
                    Places::Sparse(rows) => rows[point] as usize,
                };
                if let Some(row) = numbers[track.rows][row] {
                    places.push(row);
                    values.push(*value);
                }
            }
            // A metric without a value has no series.
            let Some(first_row) = places.first().copied() else {
                continue;
            };
            let is_dense = places.iter().zip(first_row..).all(|(a, b)| *a == b);
            let mut column = Column::default();
            column.extend(&values);
            self.by_name
                .insert(Arc::clone(&track.name), self.tracks.len());
            self.tracks.push(Track {
                name: Arc::clone(&track.name),
                rows: track.rows,
                places: if is_dense {
                    Places::Dense { first_row }
                } else {
                    Places::Sparse(places)
                },
                column,
            });
        }
    }

    /// Gives a metric that another source writes too rows of its own, so that its points stay in the order of the log.
    pub(super) fn detach(&mut self, track: usize) {
        if self.tracks[track].rows >= Source::ALL.len() {
            return;
        }
        let mut rows = Rows::default();
        let series = self.view(track);
        for point in 0..series.len() {
            rows.push(series.head(point));
        }
        self.rows.push(rows);
        self.tracks[track].rows = self.rows.len() - 1;
        self.tracks[track].places = Places::Dense { first_row: 0 };
    }
}

pub(super) fn row_number(row: usize) -> u32 {
    u32::try_from(row).expect("a log of 4 billion rows does not fit on a disk")
}

/// Equal when they hold the same points under the same names, however they are laid out. NaN equals NaN.
impl PartialEq for SeriesSet {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for SeriesSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}
