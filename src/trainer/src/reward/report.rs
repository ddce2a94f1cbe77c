//! How good a reward model is on answers that it has not learned from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Of the calibration: each as wide as the next, from 1/2 to 1.
const BINS: usize = 10;

/// A held-out pair and what the model says of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// The chosen answer's number less the rejected one's.
    pub delta: f64,
    pub margin: f64,
    /// Characters of the answers, chosen first.
    pub lengths: [usize; 2],
    pub prompt_number: u64,
}

/// Where the model was about as sure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    pub pairs: u64,
    /// Mean of σ(|Δ|): how sure it was.
    pub confidence: f64,
    /// How often it was right.
    pub accuracy: f64,
}

/// On held-out pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairReport {
    pub pairs: u64,
    pub prompts: u64,
    /// Pairs whose chosen answer has the higher number; a tie counts half.
    pub accuracy: f64,
    /// Of the accuracy, robust to pairs that share a prompt.
    pub standard_error: f64,
    /// Mean of −ln σ(Δ − margin), nats.
    pub log_loss: f64,
    /// Σ over bins of pairs/all · |accuracy − confidence|.
    pub calibration_error: f64,
    /// The accuracy of "the longer answer is better"; a tie counts half.
    pub longer_wins: f64,
    pub longer_wins_standard_error: f64,
    /// Those that hold pairs.
    pub reliability: Vec<Bin>,
}

impl PairReport {
    /// None: no pair.
    pub fn of(judged: &[Judged]) -> Option<Self> {
        if judged.is_empty() {
            return None;
        }
        let count = judged.len() as f64;
        let right: Vec<f64> = judged.iter().map(|one| better(one.delta)).collect();
        let longer: Vec<f64> = judged
            .iter()
            .map(|one| better(one.lengths[0] as f64 - one.lengths[1] as f64))
            .collect();
        let prompts: Vec<u64> = judged.iter().map(|one| one.prompt_number).collect();
        let (accuracy, standard_error) = mean_by_cluster(&right, &prompts);
        let (longer_wins, longer_wins_standard_error) = mean_by_cluster(&longer, &prompts);
        let log_loss = judged
            .iter()
            .map(|one| softplus(one.margin - one.delta))
            .sum::<f64>()
            / count;
        let mut bins = vec![(0_u64, 0.0, 0.0); BINS];
        for (one, right) in judged.iter().zip(&right) {
            let sure = sigmoid(one.delta.abs());
            let at = ((sure - 0.5) * 2.0 * BINS as f64) as usize;
            let bin = &mut bins[at.min(BINS - 1)];
            *bin = (bin.0 + 1, bin.1 + sure, bin.2 + right);
        }
        let reliability: Vec<Bin> = bins
            .into_iter()
            .filter(|(pairs, ..)| *pairs > 0)
            .map(|(pairs, sure, right)| Bin {
                pairs,
                confidence: sure / pairs as f64,
                accuracy: right / pairs as f64,
            })
            .collect();
        let calibration_error = reliability
            .iter()
            .map(|bin| bin.pairs as f64 / count * (bin.accuracy - bin.confidence).abs())
            .sum();
        let distinct: std::collections::BTreeSet<u64> = prompts.into_iter().collect();
        Some(Self {
            pairs: judged.len() as u64,
            prompts: distinct.len() as u64,
            accuracy,
            standard_error,
            log_loss,
            calibration_error,
            longer_wins,
            longer_wins_standard_error,
            reliability,
        })
    }
}

/// On held-out scores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreReport {
    pub answers: u64,
    /// Root of the mean square of what it says less the score.
    pub rmse: f64,
    /// The same of the mean score, which knows nothing of the answer.
    pub rmse_of_mean: f64,
    /// Pearson's; None where one of the two does not vary.
    pub correlation: Option<f64>,
}

impl ScoreReport {
    /// None: no answer. Each: what the model says, the score.
    pub fn of(said: &[(f64, f64)]) -> Option<Self> {
        if said.is_empty() {
            return None;
        }
        let count = said.len() as f64;
        let mean =
            |number: &dyn Fn(&(f64, f64)) -> f64| said.iter().map(number).sum::<f64>() / count;
        let (of_said, of_score) = (mean(&|one| one.0), mean(&|one| one.1));
        let square = mean(&|one| (one.0 - one.1).powi(2));
        let variance = mean(&|one| (one.1 - of_score).powi(2));
        let covariance = mean(&|one| (one.0 - of_said) * (one.1 - of_score));
        let spread = mean(&|one| (one.0 - of_said).powi(2));
        let scale = (variance * spread).sqrt();
        Some(Self {
            answers: said.len() as u64,
            rmse: square.sqrt(),
            rmse_of_mean: variance.sqrt(),
            correlation: (scale > 0.0).then(|| covariance / scale),
        })
    }
}

/// 1 for the better, 0 for the worse, half for neither.
fn better(difference: f64) -> f64 {
    if difference > 0.0 {
        1.0
    } else if difference == 0.0 {
        0.5
    } else {
        0.0
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// ln(1 + eˣ), which is −ln σ(−x).
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The mean with its standard error where items of one cluster are not independent: the root of the
/// clusters' squared sums of deviations, over n.
fn mean_by_cluster(items: &[f64], clusters: &[u64]) -> (f64, f64) {
    let count = items.len() as f64;
    let mean = items.iter().sum::<f64>() / count;
    let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
    for (item, cluster) in items.iter().zip(clusters) {
        *sums.entry(*cluster).or_default() += item - mean;
    }
    let squares: f64 = sums.values().map(|sum| sum * sum).sum();
    (mean, squares.sqrt() / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(delta: f64, prompt_number: u64) -> Judged {
        Judged {
            delta,
            margin: 0.0,
            lengths: [3, 2],
            prompt_number,
        }
    }

    #[test]
    fn accuracy_loss_and_calibration_are_those_of_the_definitions() {
        // Sure by σ(1.0986) = 3/4 four times and right three times: calibrated. Once σ(0) = 1/2, a tie.
        let three_quarters = 3.0_f64.ln();
        let all = [
            judged(three_quarters, 1),
            judged(three_quarters, 2),
            judged(three_quarters, 3),
            judged(-three_quarters, 4),
            judged(0.0, 5),
        ];
        let report = PairReport::of(&all).expect("pairs");
        let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-12, "{one} {other}");
        close(report.accuracy, 3.5 / 5.0);
        close(report.calibration_error, 0.0);
        close(
            report.log_loss,
            -(3.0 * 0.75_f64.ln() + 0.25_f64.ln() + 0.5_f64.ln()) / 5.0,
        );
        close(report.longer_wins, 1.0);
        let pairs: Vec<u64> = report.reliability.iter().map(|bin| bin.pairs).collect();
        assert_eq!(pairs, [1, 4]);
        // Five prompts: √Σ(x − x̄)² / n.
        close(
            report.standard_error,
            (3.0 * 0.3_f64.powi(2) + 0.7_f64.powi(2) + 0.2_f64.powi(2)).sqrt() / 5.0,
        );
        // Twice the same pairs of the same prompts say no more.
        let twice = [all, all].concat();
        close(
            PairReport::of(&twice).expect("pairs").standard_error,
            report.standard_error,
        );
        assert_eq!(PairReport::of(&[]), None);
    }

    #[test]
    fn a_margin_is_asked_for_in_the_loss_alone() {
        let mut one = judged(2.0, 1);
        one.margin = 2.0;
        let report = PairReport::of(&[one]).expect("a pair");
        assert!((report.log_loss - 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!(report.accuracy, 1.0);
    }

    #[test]
    fn scores_are_compared_with_what_the_mean_would_say() {
        let report = ScoreReport::of(&[(0.0, 0.0), (1.0, 2.0), (2.0, 4.0)]).expect("scores");
        assert!((report.rmse - (5.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert!((report.rmse_of_mean - (8.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert!((report.correlation.expect("both vary") - 1.0).abs() < 1e-12);
        let flat = ScoreReport::of(&[(1.0, 0.0), (1.0, 2.0)]).expect("scores");
        assert_eq!(flat.correlation, None);
    }
}
