//! The smoothed curve: `TensorBoard`'s debiased moving average, over every point and before any decimation.

use std::collections::BTreeMap;

use super::column::Column;
use super::{Series, SeriesSet};

/// A smoothed series, brought up to date at the cost of the new points.
///
/// `TensorBoard`'s formula: `m ← w·m + (1 − w)·x`, shown as `m / (1 − wᵏ)` after k finite points. Computed as
/// `s ← s + (1 − w)/(1 − wᵏ)·(x − s)`, which is the same and leaves a constant series exactly constant. A non-finite value
/// stays a gap in the curve and does not touch the average.
#[derive(Debug, Clone)]
pub struct Smoothed {
    weight: f64,
    average: f64,
    /// wᵏ after k finite points.
    power: f64,
    /// The newest raw value that went in: tells that this is another series now.
    newest: f64,
    column: Column,
}

impl Smoothed {
    /// `weight` 0 is the raw line, 0.99 a slow average. Outside of 0..=0.9999 it is taken as the nearer end: at 1 nothing
    /// would ever move.
    pub fn new(weight: f64) -> Self {
        let weight = if weight.is_nan() { 0.0 } else { weight };
        Self {
            weight: weight.clamp(0.0, 0.9999),
            average: 0.0,
            power: 1.0,
            newest: 0.0,
            column: Column::default(),
        }
    }

    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Takes the points that are new since the last call. Starts again when the series became shorter or is another one.
    pub fn follow(&mut self, series: Series<'_>) {
        let known = self.column.len();
        let is_same = known == 0
            || (known <= series.len()
                && series.value(known - 1).to_bits() == self.newest.to_bits());
        if !is_same {
            *self = Self::new(self.weight);
        }
        let values = &series.values()[self.column.len()..];
        self.column.reserve(values.len());
        let mut smooth = [0.0; 256];
        for part in values.chunks(smooth.len()) {
            for (value, smooth) in part.iter().zip(&mut smooth) {
                *smooth = self.next(*value);
            }
            self.column.extend(&smooth[..part.len()]);
        }
    }

    fn next(&mut self, value: f64) -> f64 {
        self.newest = value;
        if !value.is_finite() {
            return value;
        }
        self.power *= self.weight;
        if self.power < f64::EPSILON / 4.0 {
            // From here on 1 − wᵏ is 1. Left alone it would become a denormal number, and each further product slow.
            self.power = 0.0;
        }
        let share = (1.0 - self.weight) / (1.0 - self.power);
        let change = value - self.average;
        self.average = if share >= 1.0 {
            value
        } else if change.is_finite() {
            self.average + share * change
        } else {
            // Two huge numbers of opposite sign.
            self.average * (1.0 - share) + value * share
        };
        self.average
    }

    /// The smoothed curve as a series, on the rows of the raw one. Has the points that [`Smoothed::follow`] has taken.
    pub fn over<'a>(&'a self, series: Series<'a>) -> Series<'a> {
        series.with_column(&self.column)
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

    /// Brings the named curves up to date, at the cost of their new points, and forgets all others. Names that the run
    /// does not have are passed over.
    pub fn follow<'n>(&mut self, set: &SeriesSet, names: impl IntoIterator<Item = &'n str>) {
        let mut before = std::mem::take(&mut self.curves);
        for name in names {
            let Some(series) = set.get(name) else {
                continue;
            };
            let mut curve = before
                .remove(name)
                .unwrap_or_else(|| Smoothed::new(self.weight));
            curve.follow(series);
            self.curves.insert(name.to_owned(), curve);
        }
    }

    /// A smoothed curve; None unless [`Smoothing::follow`] took it.
    pub fn get<'a>(&'a self, set: &'a SeriesSet, name: &str) -> Option<Series<'a>> {
        Some(self.curves.get(name)?.over(set.get(name)?))
    }
}
