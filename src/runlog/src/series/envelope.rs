//! A curve decimated to the columns of a screen: exact extremes of each, by the pyramid.

use super::{Scale, Series, XAxis};

/// The points of a series that fall into one column of a chart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Smallest finite value; NaN when there is none, as for `max`, `first` and `last`.
    pub min: f64,
    pub max: f64,
    /// First finite value in the order of the log: where the line enters the column.
    pub first: f64,
    /// Last finite value: where it leaves.
    pub last: f64,
    /// Points, finite or not.
    pub count: u64,
    /// NaN and infinite values among them: drawn as a mark, never as a value.
    pub non_finite: u64,
}

impl Cell {
    pub const EMPTY: Self = Self {
        min: f64::NAN,
        max: f64::NAN,
        first: f64::NAN,
        last: f64::NAN,
        count: 0,
        non_finite: 0,
    };

    /// True: nothing was logged here, or nothing finite.
    pub fn is_gap(&self) -> bool {
        self.count == self.non_finite
    }
}

/// `x0..=x1` cut into equal columns (equal on the scale).
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    x0: f64,
    x1: f64,
    count: usize,
    scale: Scale,
}

impl Columns {
    /// None: there is no such chart.
    pub(super) fn new(x0: f64, x1: f64, count: usize, scale: Scale) -> Option<Self> {
        let is_range = x0 <= x1 && x0.is_finite() && x1.is_finite();
        let fits = scale == Scale::Linear || x0 > 0.0;
        (is_range && fits && count > 0).then_some(Self {
            x0,
            x1,
            count,
            scale,
        })
    }

    /// The column of an x; None outside of the chart. `x1` itself is in the last.
    pub(super) fn of(&self, x: f64) -> Option<usize> {
        if !(self.x0 <= x && x <= self.x1) {
            return None;
        }
        let part = match self.scale {
            Scale::Linear => (x - self.x0) / (self.x1 - self.x0),
            Scale::Log => (x.ln() - self.x0.ln()) / (self.x1.ln() - self.x0.ln()),
        };
        // A chart of one x has a width of 0 and `part` is NaN, which becomes column 0.
        Some(((part * self.count as f64) as usize).min(self.count - 1))
    }
}

/// The series cut into `columns` equal columns over `x0..=x1`: O(columns · log points), whatever the zoom.
///
/// Always `columns` long. Every extreme survives: the minimum and maximum of a column are those of all its points. Where
/// x goes back (see [`Series`]) a column has the points of every leg. All cells are empty when there is no such chart:
/// `x0 > x1`, a bound that is not finite, or a logarithmic axis from `x0 <= 0`.
pub fn envelope(
    series: Series<'_>,
    axis: XAxis,
    x0: f64,
    x1: f64,
    columns: usize,
    scale: Scale,
) -> Vec<Cell> {
    let mut cells = vec![Cell::EMPTY; columns];
    let Some(chart) = Columns::new(x0, x1, columns, scale) else {
        return cells;
    };
    for leg in series.legs(axis) {
        // A time that is no number is not before x0 nor after: passed over like what is before.
        let mut start = series.partition(leg.clone(), |x| x < x0 || x.is_nan(), axis);
        // Points of the column before: the next one has about as many.
        let mut guess = 1;
        while start < leg.end {
            let Some(column) = chart.of(series.x(start, axis)) else {
                break;
            };
            let is_inside = |i: usize| chart.of(series.x(i, axis)) == Some(column);
            // Doubling steps away from the guess, then halving ones: few looks, and near one another.
            let guessed = (start + guess).min(leg.end) - 1;
            let mut reach = 1;
            let (low, high) = if is_inside(guessed) {
                while guessed + reach < leg.end && is_inside(guessed + reach) {
                    reach *= 2;
                }
                (guessed + reach / 2, leg.end.min(guessed + reach))
            } else {
                while guessed - start > reach && !is_inside(guessed - reach) {
                    reach *= 2;
                }
                (
                    guessed.saturating_sub(reach).max(start),
                    guessed - reach / 2,
                )
            };
            let end = series.partition(low..high, |x| chart.of(x) == Some(column), axis);
            guess = end - start;
            add(&mut cells[column], series, start, end);
            start = end;
        }
    }
    cells
}

/// Adds the points `start..end`, which come later in the log than what the cell has.
fn add(cell: &mut Cell, series: Series<'_>, start: usize, end: usize) {
    let block = series.column().block(start, end);
    cell.count += (end - start) as u64;
    cell.non_finite += block.non_finite;
    if block.min > block.max {
        return;
    }
    let values = &series.values()[start..end];
    let mut finite = values.iter().copied().filter(|value| value.is_finite());
    // `min` and `max` of a NaN and a number give the number: the first ones replace the empty cell's.
    cell.min = cell.min.min(block.min);
    cell.max = cell.max.max(block.max);
    if cell.first.is_nan() {
        cell.first = finite.clone().next().unwrap_or(f64::NAN);
    }
    cell.last = finite.next_back().unwrap_or(cell.last);
}
