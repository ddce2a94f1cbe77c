//! Count, sum and spread of values, each of which may weigh less the older it is.

use serde::{Deserialize, Serialize};

/// Weight, sum and squared deviations. Sums of zeros and ones are exact, so that equal arms tie exactly.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moments {
    /// Number of values; less where older ones are discounted.
    pub weight: f64,
    pub sum: f64,
    /// Σ w (x − mean)², by Welford's update.
    pub spread: f64,
}

impl Moments {
    /// Every value so far weighs `discount` times as much; 1 changes nothing, bit for bit.
    pub fn fade(&mut self, discount: f64) {
        self.weight *= discount;
        self.sum *= discount;
        self.spread *= discount;
    }

    pub fn add(&mut self, value: f64) {
        let before = self.mean().unwrap_or(value);
        self.weight += 1.0;
        self.sum += value;
        let after = self.sum / self.weight;
        self.spread = (self.spread + (value - before) * (value - after)).max(0.0);
    }

    /// None while nothing weighs anything.
    pub fn mean(&self) -> Option<f64> {
        let mean = self.sum / self.weight;
        (self.weight > 0.0 && mean.is_finite()).then_some(mean)
    }

    /// Unbiased variance of one value; None below two values.
    pub fn variance(&self) -> Option<f64> {
        (self.weight > 1.0).then(|| self.spread / (self.weight - 1.0))
    }

    /// Standard error of the mean; None below two values.
    pub fn standard_error(&self) -> Option<f64> {
        Some((self.variance()? / self.weight).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_variance_are_those_of_the_values() {
        let mut moments = Moments::default();
        assert_eq!((moments.mean(), moments.variance()), (None, None));
        for value in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            moments.add(value);
        }
        assert_eq!(moments.mean(), Some(5.0));
        assert!((moments.variance().unwrap() - 32.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn fading_weighs_a_value_by_its_age() {
        let (mut faded, discount) = (Moments::default(), 0.5);
        for value in [1.0, 0.0, 1.0] {
            faded.fade(discount);
            faded.add(value);
        }
        assert_eq!((faded.weight, faded.sum), (1.75, 1.25));
        // Σ w (x − m)² with weights 1/4, 1/2, 1 about 5/7.
        let mean = 1.25 / 1.75;
        let spread = 0.25 * (1.0_f64 - mean).powi(2) + 0.5 * mean * mean + (1.0 - mean).powi(2);
        assert!((faded.spread - spread).abs() < 1e-12);
    }
}
