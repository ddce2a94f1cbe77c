//! One metric over a run, as readers see it.

use std::fmt;
use std::ops::Range;

use super::column::{Bounds, Column};
use super::rows::{RowHead, Rows};
use super::set::Places;
use super::{Point, XAxis};
use crate::number::Number;

/// Every value of a metric in the order of the log. A view: copying it copies three references.
///
/// Where a run was resumed, the points of steps that are trained again are gone (`SeriesSet::rewind`). A metric of several
/// sources may still go back a little: such a
/// series has several *legs*, stretches in which x never falls; look-ups by x search every leg and prefer the newest.
#[derive(Clone, Copy)]
pub struct Series<'a> {
    rows: &'a Rows,
    places: &'a Places,
    column: &'a Column,
}

impl<'a> Series<'a> {
    pub(super) fn new(rows: &'a Rows, places: &'a Places, column: &'a Column) -> Self {
        Self {
            rows,
            places,
            column,
        }
    }

    /// Other values, in these of its rows.
    pub(super) fn with(self, places: &'a Places, column: &'a Column) -> Self {
        Self {
            places,
            column,
            ..self
        }
    }

    pub(super) fn column(self) -> &'a Column {
        self.column
    }

    pub fn len(self) -> usize {
        self.column.len()
    }

    /// False for every series of a [`SeriesSet`](super::SeriesSet): a metric without a value has no series.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// How many values are NaN or infinite.
    pub fn non_finite(self) -> u64 {
        self.column.non_finite()
    }

    /// How often the run went back: what was read of an earlier count may be gone.
    pub fn rewinds(self) -> u32 {
        self.rows.rewinds
    }

    pub(super) fn row(self, point: usize) -> usize {
        match self.places {
            Places::Dense { first_row } => *first_row as usize + point,
            Places::Sparse(rows) => rows[point] as usize,
        }
    }

    pub(super) fn head(self, point: usize) -> RowHead {
        self.rows.head(self.row(point))
    }

    /// The i-th point. Panics when there is none.
    pub fn point(self, i: usize) -> Point {
        let row = self.row(i);
        Point {
            step: self.rows.step[row],
            elapsed_ms: self.rows.elapsed_ms[row],
            value: Number(self.column.values()[i]),
        }
    }

    pub fn value(self, i: usize) -> f64 {
        self.column.values()[i]
    }

    /// Every value in the order of the log, non-finite ones too.
    pub fn values(self) -> &'a [f64] {
        self.column.values()
    }

    pub fn step(self, i: usize) -> u64 {
        self.rows.step[self.row(i)]
    }

    pub fn first(self) -> Option<Point> {
        (!self.is_empty()).then(|| self.point(0))
    }

    pub fn last(self) -> Option<Point> {
        Some(self.point(self.len().checked_sub(1)?))
    }

    pub fn iter(self) -> impl DoubleEndedIterator<Item = Point> + ExactSizeIterator + 'a {
        (0..self.len()).map(move |i| self.point(i))
    }

    /// Where point i lies: a step, milliseconds, tokens or rollouts.
    pub fn x(self, i: usize, axis: XAxis) -> f64 {
        self.rows.x(self.row(i), axis)
    }

    /// Smallest and largest finite x; None while there is no point with one.
    pub fn x_bounds(self, axis: XAxis) -> Option<(f64, f64)> {
        let mut bounds: Option<(f64, f64)> = None;
        for leg in self.legs(axis) {
            let start = self.partition(leg.clone(), |x| x == f64::NEG_INFINITY, axis);
            let end = self.partition(leg, |x| x < f64::INFINITY, axis);
            if start < end {
                let (first, last) = (self.x(start, axis), self.x(end - 1, axis));
                let (low, high) = bounds.unwrap_or((first, last));
                bounds = Some((low.min(first), high.max(last)));
            }
        }
        bounds
    }

    /// Stretches of points, in order, in each of which x never falls. One, unless a run went back.
    pub(super) fn legs(self, axis: XAxis) -> impl DoubleEndedIterator<Item = Range<usize>> + 'a {
        let breaks = self.rows.legs(axis);
        let point_at_row = move |row: u32| match self.places {
            Places::Dense { first_row } => {
                (row.saturating_sub(*first_row) as usize).min(self.len())
            }
            Places::Sparse(rows) => rows[..self.len()].partition_point(|place| *place < row),
        };
        (0..=breaks.len())
            .map(move |leg| {
                let start = match leg {
                    0 => 0,
                    _ => point_at_row(breaks[leg - 1]),
                };
                let end = breaks.get(leg).map_or(self.len(), |row| point_at_row(*row));
                start..end
            })
            .filter(|leg| !leg.is_empty())
    }

    /// The logged point nearest to `x`; of points equally near the newest, but left before right within a leg.
    ///
    /// None: there is no point, or `x` is no number.
    pub fn index_at(self, x: f64, axis: XAxis) -> Option<usize> {
        let distance = |i: usize| {
            let at = self.x(i, axis);
            // Also of two infinities.
            if at == x { 0.0 } else { (at - x).abs() }
        };
        let mut nearest: Option<(f64, usize)> = None;
        for leg in self.legs(axis) {
            let after = self.partition(leg.clone(), |at| at <= x, axis);
            let left = (after > leg.start).then(|| after - 1);
            let right = (after < leg.end).then(|| {
                let right_x = self.x(after, axis);
                let past = self.partition(after..leg.end, |at| at <= right_x, axis);
                past.max(after + 1) - 1
            });
            let best = match (left, right) {
                (Some(left), Some(right)) if distance(right) < distance(left) => right,
                (Some(left), _) => left,
                (None, Some(right)) => right,
                (None, None) => continue,
            };
            let best_distance = distance(best);
            if nearest.map_or(!best_distance.is_nan(), |(least, _)| best_distance <= least) {
                nearest = Some((best_distance, best));
            }
        }
        nearest.map(|(_, i)| i)
    }

    /// The shortest range that has every point with `x0 <= x <= x1`; where a run went back it may hold others too.
    pub fn range(self, x0: f64, x1: f64, axis: XAxis) -> Range<usize> {
        let mut found: Option<Range<usize>> = None;
        for leg in self.legs(axis) {
            let start = self.partition(leg.clone(), |at| at < x0, axis);
            let end = self.partition(leg, |at| at <= x1, axis);
            if start < end {
                let first = found.map_or(start, |range| range.start);
                found = Some(first..end);
            }
        }
        found.unwrap_or(0..0)
    }

    /// As `slice::partition_point` over the x of a leg: where `before` turns false.
    pub(super) fn partition(
        self,
        leg: Range<usize>,
        before: impl Fn(f64) -> bool,
        axis: XAxis,
    ) -> usize {
        let (mut low, mut high) = (leg.start, leg.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.x(middle, axis)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Extremes over a range of points, non-finite values left out; None when no value is finite.
    pub fn bounds(self, range: Range<usize>) -> Option<Bounds> {
        self.column.block(range.start, range.end).bounds()
    }

    /// NaN and infinite values in a range of points.
    pub fn non_finite_in(self, range: Range<usize>) -> u64 {
        self.column.block(range.start, range.end).non_finite
    }
}

impl PartialEq for Series<'_> {
    fn eq(&self, other: &Self) -> bool {
        // A time that is no number equals itself, as a value does.
        let same = |i: usize| {
            let (mine, theirs) = (self.head(i), other.head(i));
            mine.step == theirs.step
                && Number(mine.elapsed_ms) == Number(theirs.elapsed_ms)
                && (mine.tokens, mine.samples) == (theirs.tokens, theirs.samples)
                && Number(self.value(i)) == Number(other.value(i))
        };
        self.len() == other.len() && (0..self.len()).all(same)
    }
}

impl fmt::Debug for Series<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}
