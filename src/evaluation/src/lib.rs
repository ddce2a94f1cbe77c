//! What answers say of a model: the statistics of an evaluation, each with its standard error where it has one.
//!
//! ```text
//!  scores of n answers a prompt ─► mean@n ± error, best@n, pass@k, maj@n
//!  a judge's preferences between two models' answers ─► win rate ± error, and the same at equal length
//! ```
//! Pure numbers in, pure numbers out: knows no files, no models and no judges.

pub mod answers;
mod logistic;
pub mod preferences;

/// A mean and how far it may lie from what endless data would give.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// Standard error of `mean`; None of fewer than two values.
    pub standard_error: Option<f64>,
}

impl Estimate {
    /// Of independent values: s/√n with the unbiased s. None of no value.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self {
            mean,
            standard_error: (values.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_mean_is_that_of_the_unbiased_deviation() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0]).expect("four values");
        assert!((estimate.mean - 2.5).abs() < 1e-15);
        // The variance is 5/3, over four values 5/12.
        let expected = (5.0_f64 / 12.0).sqrt();
        assert!((estimate.standard_error.expect("four values") - expected).abs() < 1e-15);
        assert_eq!(
            Estimate::of(&[7.0]).map(|one| one.standard_error),
            Some(None)
        );
        assert_eq!(Estimate::of(&[]), None);
    }
}
