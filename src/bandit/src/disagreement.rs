//! How far arms order the same rollouts differently.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The latest rollouts that several arms scored. Two arms are compared on those that both scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disagreement {
    arms: usize,
    window: usize,
    /// One score an arm; None: it did not score this one.
    rollouts: VecDeque<Vec<Option<f64>>>,
}

impl Disagreement {
    pub fn new(arms: usize, window: usize) -> Self {
        Self {
            arms,
            window: window.max(2),
            rollouts: VecDeque::new(),
        }
    }

    /// The scores of one rollout, in the order of the arms. A score that is not finite counts as none; a rollout with fewer
    /// than two scores says nothing and is left out.
    pub fn observe(&mut self, scores: &[Option<f64>]) {
        let scores: Vec<Option<f64>> = (0..self.arms)
            .map(|arm| {
                scores
                    .get(arm)
                    .copied()
                    .flatten()
                    .filter(|score| score.is_finite())
            })
            .collect();
        if scores.iter().flatten().count() < 2 {
            return;
        }
        self.rollouts.push_back(scores);
        if self.rollouts.len() > self.window {
            self.rollouts.pop_front();
        }
    }

    pub fn rollouts(&self) -> usize {
        self.rollouts.len()
    }

    /// `(1 − τ_b) / 2` of two arms, 0 (the same order) to 1 (the opposite); ½ is chance. None where there is no order to
    /// compare: fewer than two common rollouts, or an arm that scores them all alike.
    pub fn between(&self, arm: usize, other: usize) -> Option<f64> {
        let (left, right): (Vec<f64>, Vec<f64>) = self
            .rollouts
            .iter()
            .filter_map(|scores| Some(((*scores.get(arm)?)?, (*scores.get(other)?)?)))
            .unzip();
        Some((1.0 - kendall_tau_b(&left, &right)?) / 2.0)
    }

    /// Mean over all pairs of arms that can be compared.
    pub fn mean(&self) -> Option<f64> {
        let pairs: Vec<f64> = (0..self.arms)
            .flat_map(|arm| (arm + 1..self.arms).map(move |other| (arm, other)))
            .filter_map(|(arm, other)| self.between(arm, other))
            .collect();
        (!pairs.is_empty()).then(|| pairs.iter().sum::<f64>() / pairs.len() as f64)
    }
}

/// Kendall's `τ_b` (Kendall 1945): `(C − D) / √((P − T_x)(P − T_y))` over the P pairs, C of them in the same order, D in the
/// opposite one, `T_x` and `T_y` tied in x or y. None when one side is all ties, or the lengths differ.
pub fn kendall_tau_b(x: &[f64], y: &[f64]) -> Option<f64> {
    if x.len() != y.len() {
        return None;
    }
    let (mut agreement, mut ordered_x, mut ordered_y) = (0_i64, 0_i64, 0_i64);
    for i in 0..x.len() {
        for j in 0..i {
            let sign = |values: &[f64]| {
                values[i]
                    .partial_cmp(&values[j])
                    .map_or(0, |order| order as i64)
            };
            let (of_x, of_y) = (sign(x), sign(y));
            agreement += of_x * of_y;
            ordered_x += of_x.abs();
            ordered_y += of_y.abs();
        }
    }
    let pairs = (ordered_x as f64 * ordered_y as f64).sqrt();
    (pairs > 0.0).then(|| agreement as f64 / pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tau_b_is_scipys() {
        // The example in scipy.stats.kendalltau's documentation.
        let tau = kendall_tau_b(&[12.0, 2.0, 1.0, 12.0, 2.0], &[1.0, 4.0, 7.0, 1.0, 0.0]).unwrap();
        assert!((tau - -0.471_404_520_791_031_73).abs() < 1e-15, "{tau}");
        assert_eq!(kendall_tau_b(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(kendall_tau_b(&[1.0], &[1.0]), None);
        assert_eq!(kendall_tau_b(&[1.0, 2.0], &[1.0]), None);
    }

    #[test]
    fn arms_are_compared_on_what_both_scored() {
        let mut scores = Disagreement::new(3, 4);
        scores.observe(&[Some(9.0), None, None]);
        assert_eq!((scores.rollouts(), scores.mean()), (0, None));
        for (a, b) in [(1.0, 30.0), (2.0, 20.0), (3.0, 10.0)] {
            scores.observe(&[Some(a), Some(b), Some(f64::NAN)]);
        }
        scores.observe(&[None, Some(20.0), Some(1.0)]);
        assert_eq!(scores.between(0, 1), Some(1.0));
        assert_eq!(scores.between(1, 2), None);
        assert_eq!(scores.mean(), Some(1.0));
        scores.observe(&[Some(0.0), Some(0.0), None]);
        assert_eq!(scores.rollouts(), 4);
        // Left: (2, 20), (3, 10), (0, 0): two pairs agree, one does not.
        assert_eq!(scores.between(0, 1), Some((1.0 - 1.0 / 3.0) / 2.0));
    }
}
