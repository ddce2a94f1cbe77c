//! Upper confidence bounds of means in 0..1.

use crate::settings::{PolicyName, Settings};

/// `mean`: of `weight` values; `total`: the weight of all arms' values.
pub(crate) fn upper(settings: &Settings, mean: f64, weight: f64, total: f64) -> f64 {
    // A discounted total may be below 1; ln 1 = 0 says: nothing to explore by.
    let log = total.max(1.0).ln();
    if settings.policy == PolicyName::KlUcb {
        kl_upper(mean, settings.kl_ucb_width * log / weight)
    } else {
        mean + (settings.ucb_width * log / weight).sqrt()
    }
}

/// KL of a coin of `p` from a coin of `q`, nats; both kept 1e-15 away from 0 and 1.
pub fn bernoulli_kl(p: f64, q: f64) -> f64 {
    let inside = |x: f64| x.clamp(1e-15, 1.0 - 1e-15);
    let (p, q) = (inside(p), inside(q));
    p * (p / q).ln() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).ln()
}

/// Within this of the bound, by halving. As `SMPyBandits` has it: where two bounds are closer than this either is as good, and
/// with it ours are its bounds, so that both play the same arm at every step.
const TOLERANCE: f64 = 1e-4;

/// The largest q <= 1 with `kl(mean, q) <= level` nats, to [`TOLERANCE`].
pub fn kl_upper(mean: f64, level: f64) -> f64 {
    // Pinsker: kl >= 2 (q − mean)², so q lies no farther than this.
    let mut low = mean;
    let mut high = (mean + (level.max(0.0) / 2.0).sqrt()).min(1.0);
    while high - low > TOLERANCE {
        let middle = f64::midpoint(low, high);
        if bernoulli_kl(mean, middle) > level {
            high = middle;
        } else {
            low = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_bound_by_kl_is_where_the_kl_is_the_level(mean in 0.0..=1.0_f64, level in 0.0..3.0_f64) {
            let bound = kl_upper(mean, level);
            prop_assert!((mean..=1.0).contains(&bound));
            let (below, above) = (bound - TOLERANCE, bound + TOLERANCE);
            prop_assert!(below <= mean || bernoulli_kl(mean, below) <= level);
            prop_assert!(above >= 1.0 || bernoulli_kl(mean, above) >= level);
        }

        #[test]
        fn the_bound_by_kl_is_never_above_hoeffdings(mean in 0.0..=1.0_f64, level in 0.0..3.0_f64) {
            prop_assert!(kl_upper(mean, level) <= mean + (level / 2.0).sqrt() + 1e-9);
        }
    }

    #[test]
    fn the_kl_of_a_coin_is_known_at_a_half() {
        // kl(½, ¼) = ½ ln 2 + ½ ln ⅔
        let known = 0.5 * 2.0_f64.ln() + 0.5 * (2.0_f64 / 3.0).ln();
        assert!((bernoulli_kl(0.5, 0.25) - known).abs() < 1e-15);
        assert_eq!(bernoulli_kl(0.3, 0.3), 0.0);
    }
}
