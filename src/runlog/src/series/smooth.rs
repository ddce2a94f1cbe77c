//! The smoothed curve: `TensorBoard`'s debiased moving average, over every point and before any decimation.

use std::collections::{BTreeMap, BTreeSet};

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
        let values = self.unseen(series);
        self.take(values);
    }

    /// The points that are new; all of them, after starting again, when the series became shorter or is another one.
    fn unseen<'s>(&mut self, series: Series<'s>) -> &'s [f64] {
        let known = self.column.len();
        let is_same = known == 0
            || (known <= series.len()
                && series.value(known - 1).to_bits() == self.newest.to_bits());
        if !is_same {
            self.start_again(self.weight);
        }
        let values = &series.values()[self.column.len()..];
        self.column.reserve(values.len());
        values
    }

    /// As new, in the memory that it has.
    fn start_again(&mut self, weight: f64) {
        let mut column = std::mem::take(&mut self.column);
        column.clear();
        *self = Self {
            column,
            ..Self::new(weight)
        };
    }

    fn take(&mut self, values: &[f64]) {
        let mut smooth = [0.0; PART];
        for part in values.chunks(PART) {
            for (value, smooth) in part.iter().zip(&mut smooth) {
                *smooth = self.next(*value);
            }
            self.column.extend(&smooth[..part.len()]);
        }
    }

    /// What [`Smoothed::take`] does, for several curves at once: each average waits for the one before it, so that one curve
    /// alone leaves most of a core idle. Takes whole parts of what all have and leaves the rest in `values`.
    fn take_beside(curves: &mut [&mut Self; LANES], values: &mut [&[f64]; LANES]) {
        let whole = values.iter().map(|values| values.len() / PART).min();
        let mut smooth = [[0.0; PART]; LANES];
        for _ in 0..whole.unwrap_or(0) {
            let parts = values.map(|values| &values[..PART]);
            let is_started = curves
                .iter()
                .all(|curve| curve.power == 0.0 && curve.weight > 0.0);
            let averages: [f64; LANES] = std::array::from_fn(|lane| curves[lane].average);
            let shares: [f64; LANES] = std::array::from_fn(|lane| 1.0 - curves[lane].weight);
            let ends = is_started
                .then(|| smooth_beside(averages, shares, parts, &mut smooth))
                .filter(|ends| ends.iter().all(|average| average.is_finite()));
            for lane in 0..LANES {
                let (curve, part) = (&mut *curves[lane], parts[lane]);
                match ends {
                    Some(ends) => {
                        curve.average = ends[lane];
                        curve.newest = part[PART - 1];
                        curve.column.extend(&smooth[lane]);
                    }
                    // At its start, or with numbers so huge that their difference is none.
                    None => curve.take(part),
                }
                values[lane] = &values[lane][PART..];
            }
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

/// Points that are smoothed in one go.
const PART: usize = 256;
/// Curves that are smoothed beside each other: as many chains of dependent operations as keep a core's adders busy.
const LANES: usize = 4;

/// The averages after one part of each curve, with what is shown in `smooth`; those of [`Smoothed::next`] where wᵏ is 0.
fn smooth_beside(
    mut averages: [f64; LANES],
    shares: [f64; LANES],
    parts: [&[f64]; LANES],
    smooth: &mut [[f64; PART]; LANES],
) -> [f64; LANES] {
    for at in 0..PART {
        for lane in 0..LANES {
            let value = parts[lane][at];
            let next = averages[lane] + shares[lane] * (value - averages[lane]);
            let is_finite = value.is_finite();
            averages[lane] = if is_finite { next } else { averages[lane] };
            smooth[lane][at] = if is_finite { next } else { value };
        }
    }
    averages
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

    /// Takes another weight; the memory of the curves is used again.
    pub fn set_weight(&mut self, weight: f64) {
        if self.weight.to_bits() != weight.to_bits() {
            self.weight = weight;
            for curve in self.curves.values_mut() {
                curve.start_again(weight);
            }
        }
    }

    /// Brings the named curves up to date, at the cost of their new points. Others stay as they are. Names that the run does
    /// not have are passed over.
    pub fn follow<'n>(&mut self, set: &SeriesSet, names: impl IntoIterator<Item = &'n str>) {
        let names: BTreeSet<&str> = names.into_iter().collect();
        for name in &names {
            if set.get(name).is_some() && !self.curves.contains_key(*name) {
                let curve = Smoothed::new(self.weight);
                self.curves.insert((*name).to_owned(), curve);
            }
        }
        let mut work: Vec<(&mut Smoothed, &[f64])> = self
            .curves
            .iter_mut()
            .filter(|(name, _)| names.contains(name.as_str()))
            .filter_map(|(name, curve)| {
                let values = curve.unseen(set.get(name)?);
                Some((curve, values))
            })
            .collect();
        for group in work.chunks_mut(LANES) {
            if let [a, b, c, d] = group {
                let mut values = [a.1, b.1, c.1, d.1];
                Smoothed::take_beside(
                    &mut [&mut *a.0, &mut *b.0, &mut *c.0, &mut *d.0],
                    &mut values,
                );
                [a.1, b.1, c.1, d.1] = values;
            }
            for (curve, values) in group {
                curve.take(values);
            }
        }
    }

    /// A smoothed curve, up to the last [`Smoothing::follow`] that named it; None when there was none.
    pub fn get<'a>(&'a self, set: &'a SeriesSet, name: &str) -> Option<Series<'a>> {
        let (curve, series) = (self.curves.get(name)?, set.get(name)?);
        (curve.column.len() <= series.len()).then(|| curve.over(series))
    }
}
