//! Quantiles of the latest values, and the scale that `LASeR` makes of them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The latest values in order of arrival; sorted beside it, so that a quantile costs nothing and a value O(window) moves.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<f64>", into = "Vec<f64>")]
pub struct Quantiles {
    latest: VecDeque<f64>,
    sorted: Vec<f64>,
}

impl Quantiles {
    /// Takes a value in and lets the oldest go beyond `window`. A value that is not finite is left out.
    pub fn push(&mut self, value: f64, window: usize) {
        if !value.is_finite() {
            return;
        }
        let place = |sorted: &[f64], value: f64| sorted.partition_point(|known| *known < value);
        self.sorted.insert(place(&self.sorted, value), value);
        self.latest.push_back(value);
        while self.latest.len() > window.max(1) {
            let oldest = self
                .latest
                .pop_front()
                .expect("it is longer than the window");
            self.sorted.remove(place(&self.sorted, oldest));
        }
    }

    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The value below which `share` of the values lie, linear between neighbours (numpy's default); None without values.
    pub fn at(&self, share: f64) -> Option<f64> {
        let last = self.sorted.len().checked_sub(1)?;
        let place = share.clamp(0.0, 1.0) * last as f64;
        let below = place.floor() as usize;
        let (a, b) = (self.sorted[below], self.sorted[(below + 1).min(last)]);
        let t = place - below as f64;
        // As numpy's lerp: exact at both ends.
        Some(if t < 0.5 {
            a + (b - a) * t
        } else {
            b - (b - a) * (1.0 - t)
        })
    }

    /// `LASeR`'s scale: 0 below the lower quantile, 1 above the upper, linear between. Below two values the value itself.
    /// Where the quantiles are equal a value equal to them says nothing for or against an arm: ½ (the authors' own code
    /// divides by zero there, and never recovers).
    pub fn scale(&self, value: f64, [lower, upper]: [f64; 2]) -> f64 {
        let (Some(low), Some(high)) = (self.at(lower), self.at(upper)) else {
            return value;
        };
        if self.len() < 2 {
            value
        } else if value < low {
            0.0
        } else if value > high {
            1.0
        } else if low < high {
            (value - low) / (high - low)
        } else {
            0.5
        }
    }
}

impl From<Vec<f64>> for Quantiles {
    fn from(values: Vec<f64>) -> Self {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        Self {
            latest: values.into(),
            sorted,
        }
    }
}

impl From<Quantiles> for Vec<f64> {
    fn from(quantiles: Quantiles) -> Self {
        quantiles.latest.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> Quantiles {
        let mut quantiles = Quantiles::default();
        for value in values {
            quantiles.push(*value, 1000);
        }
        quantiles
    }

    #[test]
    fn quantiles_are_numpys() {
        let quantiles = of(&[3.0, 1.0, 4.0, 1.0, 5.0]);
        assert_eq!(quantiles.at(0.0), Some(1.0));
        assert_eq!(quantiles.at(0.5), Some(3.0));
        assert_eq!(quantiles.at(1.0), Some(5.0));
        // numpy.percentile([3, 1, 4, 1, 5], [20, 80]) is [1.0, 4.2].
        assert_eq!(quantiles.at(0.2), Some(1.0));
        assert_eq!(quantiles.at(0.8), Some(4.2));
        assert_eq!(Quantiles::default().at(0.5), None);
    }

    #[test]
    fn equal_quantiles_say_neither_yes_nor_no() {
        let quantiles = of(&[0.5, 0.5, 0.5]);
        let scale = |value| quantiles.scale(value, [0.2, 0.8]);
        assert_eq!([scale(0.4), scale(0.5), scale(0.6)], [0.0, 0.5, 1.0]);
        assert_eq!(of(&[0.7]).scale(0.7, [0.2, 0.8]), 0.7);
    }

    proptest! {
        #[test]
        fn a_window_forgets_what_is_older(values in prop::collection::vec(-1e3..1e3_f64, 1..60), window in 1_usize..20) {
            let mut quantiles = Quantiles::default();
            for value in &values {
                quantiles.push(*value, window);
            }
            let kept = &values[values.len().saturating_sub(window)..];
            prop_assert_eq!(&quantiles, &Quantiles::from(kept.to_vec()));
            prop_assert_eq!(Vec::from(quantiles), kept);
        }
    }
}
