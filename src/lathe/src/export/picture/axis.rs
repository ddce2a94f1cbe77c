//! A scale from values to the share of an axis, and round numbers on it.

use crate::tui::widgets::text;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    pub low: f64,
    pub high: f64,
    is_log: bool,
    /// Ticks are in units of so many of the values: 60,000 for minutes of milliseconds.
    divisor: f64,
}

impl Axis {
    /// Over `(low, high)`, with a share of air on both sides; a single value lies in the middle.
    pub fn new((low, high): (f64, f64), is_log: bool, air: f64) -> Self {
        let is_log = is_log && low > 0.0;
        let (mut low, mut high) = if is_log {
            (low.log10(), high.log10())
        } else {
            (low, high)
        };
        if high <= low {
            let half = if low == 0.0 { 1.0 } else { low.abs() * 0.05 };
            low -= half;
            high += half;
        }
        let margin = (high - low) * air;
        (low, high) = (low - margin, high + margin);
        if is_log {
            (low, high) = (10_f64.powf(low), 10_f64.powf(high));
        }
        Self {
            low,
            high,
            is_log,
            divisor: 1.0,
        }
    }

    /// The same with its numbers in another unit.
    pub fn shown_in(self, divisor: f64) -> Self {
        Self { divisor, ..self }
    }

    /// 0 at the low end, 1 at the high one; None outside, or where a logarithm has no place.
    pub fn share(self, value: f64) -> Option<f64> {
        let share = if self.is_log {
            (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        // A hair outside is rounding.
        (-1e-9..=1.0 + 1e-9)
            .contains(&share)
            .then(|| share.clamp(0.0, 1.0))
    }

    /// Round numbers on the axis with their text, about `wanted`.
    pub fn ticks(self, wanted: usize) -> Vec<(f64, String)> {
        let wanted = wanted.max(2);
        if self.is_log && self.high / self.low >= 10.0 {
            let (first, last) = (
                self.low.log10().ceil() as i32,
                self.high.log10().floor() as i32,
            );
            let every = ((last - first) / wanted as i32 + 1).max(1) as usize;
            return (first..=last)
                .step_by(every)
                .map(|exponent| 10_f64.powi(exponent))
                .map(|value| (value, text::number(value / self.divisor)))
                .collect();
        }
        let (low, high) = (self.low / self.divisor, self.high / self.divisor);
        let mut rough = (high - low) / wanted as f64;
        loop {
            let step = round_step(rough);
            let ticks = self.multiples(low, high, step);
            if !ticks.is_empty() {
                return ticks;
            }
            // No multiple of so wide a step lies on this axis.
            rough /= 2.0;
        }
    }

    /// The multiples of `step` in `low..=high`.
    fn multiples(self, low: f64, high: f64, step: f64) -> Vec<(f64, String)> {
        let first = (low / step - 1e-9).ceil();
        let last = (high / step + 1e-9).floor();
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let count = (last - first + 1.0).max(0.0) as usize;
        (0..count)
            .map(|i| {
                let multiple = first + i as f64;
                // Not -0.
                let value = if multiple == 0.0 {
                    0.0
                } else {
                    multiple * step
                };
                (value * self.divisor, label(value, decimals))
            })
            .collect()
    }
}

/// All ticks of an axis with the decimals that its step needs; very large and small ones with an exponent.
fn label(value: f64, decimals: usize) -> String {
    if value != 0.0 && (decimals > 4 || value.abs() >= 1e5) {
        text::number(value)
    } else {
        format!("{value:.decimals$}")
    }
}

/// 1, 2 or 5 times a power of ten, at least `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let mantissa = rough / power;
    let round = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|round| mantissa <= *round + 1e-9)
        .unwrap_or(10.0);
    round * power
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_are_round_and_say_what_the_step_needs() {
        let labels = |low: f64, high: f64| -> Vec<String> {
            let ticks = Axis::new((low, high), false, 0.0).ticks(5);
            ticks.into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(0.0, 1.0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(0.0, 80.0), ["0", "20", "40", "60", "80"]);
        assert_eq!(
            labels(-0.03, 0.02),
            ["-0.03", "-0.02", "-0.01", "0.00", "0.01", "0.02"]
        );
        let log = Axis::new((1e-5, 1e-1), true, 0.0).ticks(5);
        let labels: Vec<String> = log.into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["1e-5", "1e-4", "0.001", "0.01", "0.1"]);
    }

    proptest! {
        #[test]
        fn every_tick_lies_on_the_axis_and_there_are_some(
            low in -1e6_f64..1e6, length in 1e-6_f64..1e6, wanted in 1_usize..12
        ) {
            let axis = Axis::new((low, low + length), false, 0.0);
            let ticks = axis.ticks(wanted);
            prop_assert!(!ticks.is_empty() && ticks.len() <= 2 * wanted.max(2) + 2);
            for (value, _) in ticks {
                prop_assert!(axis.share(value).is_some(), "{value} in {axis:?}");
            }
        }
    }
}
