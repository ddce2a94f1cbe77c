//! Beliefs drawn on one axis: how likely each value of an arm is, as a strip of blocks, or of characters.

use crate::tui::widgets::chart::nice_step;

use super::facts::Row;

/// Standard deviations to each side that the axis holds: 99 % of a normal belief.
const SPREAD: f64 = 2.5;

/// The axis that all arms share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    pub low: f64,
    pub high: f64,
}

impl Axis {
    /// Round ends around every belief; None while nothing is known.
    pub fn around<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for row in rows {
            let Some(mean) = row.mean.filter(|mean| mean.is_finite()) else {
                continue;
            };
            let sd = row.sd.filter(|sd| sd.is_finite()).unwrap_or(0.0).abs();
            low = low.min(mean - SPREAD * sd);
            high = high.max(mean + SPREAD * sd);
        }
        if low > high {
            return None;
        }
        if high - low <= f64::EPSILON * high.abs().max(1.0) {
            let pad = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
            (low, high) = (low - pad, high + pad);
        }
        let step = nice_step((high - low) / 8.0);
        Some(Self {
            // What is on a step but for the last digits stays there.
            low: (low / step + 1e-9).floor() * step,
            high: (high / step - 1e-9).ceil() * step,
        })
    }

    fn share(self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
}

/// The strip of one belief, `columns` characters: blocks as high as the value is likely, the highest at the top of the row; in
/// ASCII `-` within two standard deviations, `=` within one, `|` at the mean.
pub fn strip(axis: Axis, mean: f64, sd: f64, columns: usize, unicode: bool) -> String {
    if !mean.is_finite() || columns == 0 {
        return " ".repeat(columns);
    }
    let sd = if sd.is_finite() { sd.abs() } else { 0.0 };
    let edge = |column: usize| axis.low + (axis.high - axis.low) * column as f64 / columns as f64;
    let middle = ((axis.share(mean) * columns as f64) as usize).min(columns - 1);
    if !unicode {
        let within = |column: usize, sds: f64| {
            let at = f64::midpoint(edge(column), edge(column + 1));
            (at - mean).abs() <= sds * sd
        };
        return (0..columns)
            .map(|column| match column {
                _ if column == middle => '|',
                _ if within(column, 1.0) => '=',
                _ if within(column, 2.0) => '-',
                _ => ' ',
            })
            .collect();
    }
    let masses: Vec<f64> = (0..columns)
        .map(|column| {
            if sd == 0.0 {
                return if column == middle { 1.0 } else { 0.0 };
            }
            let below = |value: f64| normal_cdf((value - mean) / sd);
            below(edge(column + 1)) - below(edge(column))
        })
        .collect();
    let most = masses.iter().copied().fold(0.0, f64::max);
    masses
        .iter()
        .map(|mass| {
            const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
            let level = if most > 0.0 { mass / most * 8.0 } else { 0.0 };
            BLOCKS[(level.round() as usize).min(8)]
        })
        .collect()
}

/// The standard normal distribution, to 1e-7 (Abramowitz and Stegun 7.1.26): a block is an eighth.
fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let erf = 1.0 - poly * (-z * z).exp();
    if x >= 0.0 {
        f64::midpoint(1.0, erf)
    } else {
        f64::midpoint(1.0, -erf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headless::judges::Judged;

    fn row(mean: f64, sd: f64) -> Row {
        Row {
            mean: Some(mean),
            sd: Some(sd),
            ..Row::of(Judged::default())
        }
    }

    #[test]
    fn the_axis_has_round_ends_and_holds_every_belief() {
        let rows = [row(0.7, 0.04), row(0.4, 0.08), Row::of(Judged::default())];
        let axis = Axis::around(rows.iter()).unwrap();
        assert_eq!((axis.low, axis.high), (0.2, 0.8));
        assert_eq!(Axis::around([Row::of(Judged::default())].iter()), None);
        let single = Axis::around([row(0.5, 0.0)].iter()).unwrap();
        assert!(single.low < 0.5 && single.high > 0.5, "{single:?}");
        let odd = [row(f64::NAN, 1.0), row(0.5, f64::INFINITY)];
        assert!(Axis::around(odd.iter()).is_some());
    }

    #[test]
    fn a_belief_is_highest_at_its_mean_and_a_wider_one_is_wider() {
        let axis = Axis {
            low: 0.0,
            high: 1.0,
        };
        assert_eq!(strip(axis, 0.5, 0.1, 9, true), "  ▁▅█▅▁  ");
        let count = |sd: f64| {
            let strip = strip(axis, 0.5, sd, 40, true);
            strip.chars().filter(|c| *c != ' ').count()
        };
        assert!(count(0.02) < count(0.05) && count(0.05) < count(0.2));
        assert_eq!(strip(axis, 1.0, 0.0, 5, true), "    █");
    }

    #[test]
    fn without_unicode_one_and_two_deviations_and_the_mean_are_told() {
        let axis = Axis {
            low: 0.0,
            high: 1.0,
        };
        assert_eq!(strip(axis, 0.52, 0.1, 20, false), "      --==|=--      ");
        assert_eq!(strip(axis, f64::NAN, 0.1, 4, false), "    ");
    }
}
