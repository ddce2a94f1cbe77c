//! The smoothed curve: `TensorBoard`'s debiased moving average over the points of a run, over equal parts of a long one.
//!
//! `TensorBoard` and W&B smooth the thousand points that they draw of a run. So does this, except that a part is the mean of
//! all its points and not one point drawn from them: a weight of 0.9 then looks the same on a run of a thousand steps and on
//! one of a million, and costs the same.

use std::collections::BTreeMap;

use super::column::Column;
use super::set::Places;
use super::{Series, SeriesSet};

/// Parts of a smoothed curve at most. A longer run has parts of 2, 4, 8 ... points, and so at least half as many.
pub const MOST_PARTS: usize = 1024;

/// A smoothed series, brought up to date at the cost of the new points.
///
/// `TensorBoard`'s formula: `m ← w·m + (1 − w)·x`, shown as `m / (1 − wᵏ)` after k finite points. Computed as
/// `s ← s + (1 − w)/(1 − wᵏ)·(x − s)`, which is the same and leaves a constant series exactly constant. In a run of more than
/// [`MOST_PARTS`] points x is the mean of a part's finite points, which counts by how many they are of the part. A non-finite
/// point, or a part without a finite one, stays a gap in the curve and does not touch the average.
#[derive(Debug, Clone)]
pub struct Smoothed {
    average: Average,
    /// Points of a part: a power of two.
    width: usize,
    /// Points that went in.
    points: usize,
    /// The rewinds of their run, and the row and bits of the newest: tell that this is another series now.
    newest: (u32, usize, u64),
    /// A value a part, also of one that is not whole yet.
    column: Column,
    /// The row of each part's last point.
    places: Places,
}

/// The moving average, as it stands after the parts that are whole.
#[derive(Debug, Clone, Copy)]
struct Average {
    weight: f64,
    value: f64,
    /// wᵏ after k finite points.
    power: f64,
}

impl Average {
    /// `share`: how much of a point this is, above 0 and at most 1.
    fn next(&mut self, value: f64, share: f64) -> f64 {
        if !value.is_finite() {
            return value;
        }
        let kept = if share < 1.0 {
            self.weight.powf(share)
        } else {
            self.weight
        };
        self.power *= kept;
        if self.power < f64::EPSILON / 4.0 {
            // From here on 1 − wᵏ is 1. Left alone it would become a denormal number, and each further product slow.
            self.power = 0.0;
        }
        let pull = (1.0 - kept) / (1.0 - self.power);
        let change = value - self.value;
        self.value = if pull >= 1.0 {
            value
        } else if change.is_finite() {
            self.value + pull * change
        } else {
            // Two huge numbers of opposite sign.
            self.value * (1.0 - pull) + value * pull
        };
        self.value
    }
}

impl Smoothed {
    /// `weight` 0 is the raw line, 0.99 a slow average. Outside of 0..=0.9999 it is taken as the nearer end: at 1 nothing
    /// would ever move.
    pub fn new(weight: f64) -> Self {
        let weight = if weight.is_nan() { 0.0 } else { weight };
        Self {
            average: Average {
                weight: weight.clamp(0.0, 0.9999),
                value: 0.0,
                power: 1.0,
            },
            width: 1,
            points: 0,
            newest: (0, 0, 0),
            column: Column::default(),
            places: Places::Sparse(Vec::new()),
        }
    }

    pub fn weight(&self) -> f64 {
        self.average.weight
    }

    /// Points of a part: 1 up to [`MOST_PARTS`] points, then a power of two.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Which point of the raw series each part ends with.
    pub fn ends(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.column.len()).map(|part| ((part + 1) * self.width).min(self.points) - 1)
    }

    /// Takes the points that are new since the last call. Starts again when the series became shorter or is another one, and
    /// when it has come to have so many points that parts must be longer.
    pub fn follow(&mut self, series: Series<'_>) {
        let width = series.len().div_ceil(MOST_PARTS).next_power_of_two();
        if !self.is_of(series) || width != self.width {
            *self = Self {
                width,
                ..Self::new(self.average.weight)
            };
        }
        if self.points == series.len() {
            return;
        }
        let Places::Sparse(rows) = &mut self.places else {
            unreachable!("the rows of parts are written out");
        };
        let whole = self.points / width;
        self.column.truncate(whole);
        rows.truncate(whole);
        for start in (whole * width..series.len()).step_by(width) {
            let end = (start + width).min(series.len());
            let (value, finite) = match width {
                1 => (series.value(start), 1),
                _ => series.column().mean(start, end),
            };
            let share = finite as f64 / width as f64;
            // What a part that is not whole shows is not kept: it is taken again when it is.
            let mut provisional = self.average;
            let average = if end - start == width {
                &mut self.average
            } else {
                &mut provisional
            };
            self.column.push(average.next(value, share));
            rows.push(super::set::row_number(series.row(end - 1)));
        }
        self.points = series.len();
        self.newest = self.newest_of(series);
    }

    /// Are the points that went in those of this series, as far as its newest one tells?
    fn is_of(&self, series: Series<'_>) -> bool {
        self.points == 0 || (self.points <= series.len() && self.newest_of(series) == self.newest)
    }

    fn newest_of(&self, series: Series<'_>) -> (u32, usize, u64) {
        let newest = self.points - 1;
        (
            series.rewinds(),
            series.row(newest),
            series.value(newest).to_bits(),
        )
    }

    /// The smoothed curve as a series, a point a part, on the rows of the raw one. Has the points that [`Smoothed::follow`]
    /// has taken.
    pub fn over<'a>(&'a self, series: Series<'a>) -> Series<'a> {
        series.with(&self.places, &self.column)
    }
}

/// The smoothed curves that a screen shows, of one run and with one weight.
#[derive(Debug, Clone)]
pub struct Smoothing {
    weight: f64,
    curves: BTreeMap<String, Smoothed>,
}

impl Smoothing {
    /// See [`Smoothed::new`].
    pub fn new(weight: f64) -> Self {
        Self {
            weight,
            curves: BTreeMap::new(),
        }
    }

    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Takes another weight; the curves start again.
    pub fn set_weight(&mut self, weight: f64) {
        if self.weight.to_bits() != weight.to_bits() {
            *self = Self::new(weight);
        }
    }

    /// Brings the named curves up to date, at the cost of their new points. Others stay as they are. Names that the run does
    /// not have are passed over.
    pub fn follow<'n>(&mut self, set: &SeriesSet, names: impl IntoIterator<Item = &'n str>) {
        for name in names {
            let Some(series) = set.get(name) else {
                continue;
            };
            if let Some(curve) = self.curves.get_mut(name) {
                curve.follow(series);
                continue;
            }
            let mut curve = Smoothed::new(self.weight);
            curve.follow(series);
            self.curves.insert(name.to_owned(), curve);
        }
    }

    /// A smoothed curve, up to the last [`Smoothing::follow`] that named it; None when there was none, or
    /// when the run went back since.
    pub fn get<'a>(&'a self, set: &'a SeriesSet, name: &str) -> Option<Series<'a>> {
        let (curve, series) = (self.curves.get(name)?, set.get(name)?);
        curve.is_of(series).then(|| curve.over(series))
    }
}
