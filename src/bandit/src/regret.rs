//! What the choices so far cost, as far as the values tell.

use serde::{Deserialize, Serialize};

use crate::arm::ArmState;

/// `Σ_k n_k · (m* − m_k)`: `n_k` values of arm k with mean `m_k`, `m*` the highest mean. The truth is not known, so this is an
/// estimate: 0 as long as one arm only was tried, and low while the best arm is still undiscovered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RegretEstimate {
    /// In the unit of the values, over all counted values.
    pub total: f64,
    /// `√(Σ_k≠* n_k s_k² + (Σ_k≠* n_k)² s*² / n*)` with the arms' own variances; None where an arm has a single value.
    pub standard_error: Option<f64>,
    /// Index of the arm with the highest mean.
    pub best: usize,
}

/// None before the first value. Undiscounted: means over the whole run.
pub fn estimate(arms: &[ArmState]) -> Option<RegretEstimate> {
    let known =
        || (arms.iter().enumerate()).filter_map(|(index, arm)| Some((index, arm.all.mean()?)));
    let (best, highest) = known().reduce(|best, next| if next.1 > best.1 { next } else { best })?;
    let total = known()
        .map(|(index, mean)| arms[index].all.weight * (highest - mean))
        .sum();
    let others = || known().filter(|(index, _)| *index != best);
    let outside: f64 = others().map(|(index, _)| arms[index].all.weight).sum();
    let variance = others().try_fold(0.0, |sum, (index, _)| {
        Some(sum + arms[index].all.weight * arms[index].all.variance()?)
    });
    let of_best = arms[best].all.standard_error();
    let standard_error = match (variance, of_best) {
        _ if outside == 0.0 => Some(0.0),
        (Some(variance), Some(of_best)) => Some((variance + (outside * of_best).powi(2)).sqrt()),
        _ => None,
    };
    Some(RegretEstimate {
        total,
        standard_error,
        best,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(values: &[f64]) -> ArmState {
        let mut arm = ArmState::new("a");
        for value in values {
            arm.all.add(*value);
        }
        arm
    }

    #[test]
    fn regret_is_what_the_worse_arms_fell_short() {
        assert_eq!(estimate(&[arm(&[])]), None);
        let alone = estimate(&[arm(&[0.2, 0.4]), arm(&[])]).unwrap();
        assert_eq!((alone.total, alone.standard_error), (0.0, Some(0.0)));
        let two = estimate(&[arm(&[0.0, 1.0]), arm(&[1.0, 1.0, 1.0])]).unwrap();
        assert_eq!((two.total, two.best), (1.0, 1));
        // 2 values of variance ½, and a best arm without spread.
        assert_eq!(two.standard_error, Some(1.0));
        assert_eq!(
            estimate(&[arm(&[0.0]), arm(&[1.0, 1.0])])
                .unwrap()
                .standard_error,
            None
        );
    }
}
