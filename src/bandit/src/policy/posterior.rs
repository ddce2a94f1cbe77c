//! What `thompson` believes of an arm's mean.

use crate::arm::ArmState;
use crate::draws::Uniforms;
use crate::settings::{Posterior, Settings};

/// A distribution of an arm's mean, in the unit that the policy reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Belief {
    Beta {
        alpha: f64,
        beta: f64,
    },
    /// Student's t: the mean under a Normal-inverse-gamma posterior.
    Student {
        center: f64,
        /// Of the t, not its standard deviation.
        scale: f64,
        degrees: f64,
    },
}

/// Shape of the inverse gamma that the spread starts from: with 2 the Student's t has 4 degrees, and so a variance.
const PRIOR_SHAPE: f64 = 2.0;

impl Belief {
    pub fn of(arm: &ArmState, settings: &Settings) -> Self {
        let known = &arm.recent;
        match settings.posterior {
            Posterior::Beta => {
                let [alpha, beta] = settings.prior_beta;
                Self::Beta {
                    alpha: alpha + known.sum,
                    // Rounding of a discounted sum may leave a hair less than nothing.
                    beta: beta + (known.weight - known.sum).max(0.0),
                }
            }
            Posterior::Gaussian => {
                let (n, prior) = (known.weight, settings.prior_pulls);
                let mean = known.mean().unwrap_or(settings.prior_mean);
                let away = mean - settings.prior_mean;
                let pulls = prior + n;
                let shape = PRIOR_SHAPE + n / 2.0;
                // The prior's mean of the variance, rate / (shape − 1), is prior_sd².
                let rate = (PRIOR_SHAPE - 1.0) * settings.prior_sd.powi(2)
                    + 0.5 * known.spread
                    + 0.5 * (prior * n / pulls) * away * away;
                Self::Student {
                    center: (prior * settings.prior_mean + known.sum) / pulls,
                    scale: (rate / (shape * pulls)).sqrt(),
                    degrees: 2.0 * shape,
                }
            }
        }
    }

    pub fn sample(&self, draws: &mut impl Uniforms) -> f64 {
        match *self {
            Self::Beta { alpha, beta } => draws.beta(alpha, beta),
            Self::Student {
                center,
                scale,
                degrees,
            } => {
                let chi_squared = 2.0 * draws.gamma(degrees / 2.0);
                center + scale * draws.normal() / (chi_squared / degrees).sqrt()
            }
        }
    }

    /// Mean, and standard deviation where there is one.
    pub fn moments(&self) -> (f64, Option<f64>) {
        match *self {
            Self::Beta { alpha, beta } => {
                let total = alpha + beta;
                let variance = alpha / total * (beta / total) / (total + 1.0);
                (alpha / total, Some(variance.sqrt()))
            }
            Self::Student {
                center,
                scale,
                degrees,
            } => (
                center,
                (degrees > 2.0).then(|| scale * (degrees / (degrees - 2.0)).sqrt()),
            ),
        }
    }

    /// Logarithm of the density at `x`, up to a constant.
    pub fn log_density(&self, x: f64) -> f64 {
        match *self {
            Self::Beta { alpha, beta } => (alpha - 1.0) * x.ln() + (beta - 1.0) * (1.0 - x).ln(),
            Self::Student {
                center,
                scale,
                degrees,
            } => {
                let away = (x - center) / scale;
                -0.5 * (degrees + 1.0) * (away * away / degrees).ln_1p()
            }
        }
    }

    /// Where values can lie at all.
    pub fn support(&self) -> (f64, f64) {
        match self {
            Self::Beta { .. } => (0.0, 1.0),
            Self::Student { .. } => (f64::NEG_INFINITY, f64::INFINITY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    fn arm(values: &[f64]) -> ArmState {
        let mut arm = ArmState::new("a");
        for value in values {
            arm.recent.add(*value);
        }
        arm
    }

    #[test]
    fn a_gaussian_posterior_follows_the_textbook() {
        let settings = Settings {
            posterior: Posterior::Gaussian,
            prior_mean: 0.0,
            prior_sd: 1.0,
            prior_pulls: 1.0,
            ..Settings::default()
        };
        let Belief::Student {
            center,
            scale,
            degrees,
        } = Belief::of(&arm(&[1.0, 3.0]), &settings)
        else {
            panic!("gaussian is a Student's t");
        };
        // κ = 3, a = 3, b = 1 + ½·2 + ½·(1·2/3)·2² = 10/3; scale² = b / (aκ)
        assert_eq!((center, degrees), (4.0 / 3.0, 6.0));
        assert!((scale * scale - 10.0 / 27.0).abs() < 1e-12);
    }

    #[test]
    fn draws_have_the_moments_of_the_belief() {
        for belief in [
            Belief::Beta {
                alpha: 3.0,
                beta: 5.0,
            },
            Belief::Student {
                center: 2.0,
                scale: 0.5,
                degrees: 9.0,
            },
        ] {
            let (mean, sd) = belief.moments();
            let sd = sd.unwrap();
            let mut draws = Draws::new(&[1]);
            let values: Vec<f64> = (0..40_000).map(|_| belief.sample(&mut draws)).collect();
            let got = values.iter().sum::<f64>() / values.len() as f64;
            let spread =
                values.iter().map(|x| (x - got).powi(2)).sum::<f64>() / values.len() as f64;
            // Five standard errors of a mean; of a variance, whose kurtosis here is below 5.
            assert!((got - mean).abs() < 5.0 * sd / 200.0, "{got} {mean}");
            assert!(
                (spread - sd * sd).abs() < 10.0 * sd * sd / 200.0,
                "{spread}"
            );
        }
    }
}
