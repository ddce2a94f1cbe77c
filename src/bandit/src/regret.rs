//! What the choices so far cost, as far as the values tell.

use serde::{Deserialize, Serialize};

use crate::arm::ArmState;

/// `Σ_k u_k · (m* − m_k)`: `m_k` the mean of arm k, `m*` the highest, `u_k` its values of pulls that the policy chose itself:
/// what people force tells of an arm, and is none of the policy's regret. The truth is not known, so this is an estimate: 0 as
/// long as one arm only was tried, and low while the best arm is still undiscovered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RegretEstimate {
    /// In the unit of the values, over all counted values of the policy's own pulls.
    pub total: f64,
    /// `√(Σ_k≠* u_k² s_k²/n_k + (Σ_k≠* u_k)² s*²/n*)` with the arms' own variances of `n_k` values; None where an arm has a
    /// single value.
    pub standard_error: Option<f64>,
    /// Index of the arm with the highest mean.
    pub best: usize,
}

/// None before the first value. Undiscounted: means over the whole run.
pub fn estimate(arms: &[ArmState]) -> Option<RegretEstimate> {
    let known =
        || (arms.iter().enumerate()).filter_map(|(index, arm)| Some((index, arm.all.mean()?)));
    let own = |index: usize| (arms[index].all.weight - arms[index].forced as f64).max(0.0);
    let (best, highest) = known().reduce(|best, next| if next.1 > best.1 { next } else { best })?;
    let total = known()
        .map(|(index, mean)| own(index) * (highest - mean))
        .sum();
    let others = || known().filter(|(index, _)| *index != best && own(*index) > 0.0);
    let outside: f64 = others().map(|(index, _)| own(index)).sum();
    let variance = others().try_fold(0.0, |sum, (index, _)| {
        let arm = &arms[index];
        Some(sum + own(index).powi(2) * arm.all.variance()? / arm.all.weight)
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
    fn what_people_forced_tells_of_an_arm_and_is_no_regret() {
        let mut worse = arm(&[0.0, 1.0, 0.5, 0.5]);
        let best = arm(&[1.0, 1.0, 1.0]);
        let all = estimate(&[worse.clone(), best.clone()]).unwrap();
        assert_eq!(all.total, 2.0);
        worse.forced = 3;
        let own = estimate(&[worse.clone(), best.clone()]).unwrap();
        assert_eq!((own.total, own.best), (0.5, 1));
        assert!(own.standard_error.unwrap() < all.standard_error.unwrap());
        worse.forced = 4;
        let none = estimate(&[worse, best]).unwrap();
        assert_eq!((none.total, none.standard_error), (0.0, Some(0.0)));
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
