//! A judge's preferences between a model's answers and a reference's: the win rate as `AlpacaEval` 2 publishes it, and the win rate
//! that would be left if both were of one length.

use crate::Estimate;
use crate::logistic;

/// One prompt, answered by both and judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preference {
    /// 1: the model's answer is better; 0: the reference's; ½: neither. A judge's probability lies between.
    pub model_wins: f64,
    /// Of any unit, the same for both; `AlpacaEval` counts characters.
    pub model_length: f64,
    pub reference_length: f64,
    /// How hard the prompt is, on any scale; for all prompts or for none.
    pub difficulty: Option<f64>,
}

/// As the rows of `AlpacaEval` 2's leaderboard, as shares instead of percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WinRate {
    /// Mean preference.
    pub win_rate: f64,
    /// s/√n; None of fewer than two prompts.
    pub standard_error: Option<f64>,
    pub wins: u64,
    pub losses: u64,
    pub draws: u64,
    /// Wins and half the draws: what the win rate would be were every preference 0, ½ or 1.
    pub discrete_win_rate: f64,
    pub model_length: f64,
    pub reference_length: f64,
}

impl WinRate {
    /// None of no preference.
    pub fn of(preferences: &[Preference]) -> Option<Self> {
        let values: Vec<f64> = preferences.iter().map(|one| one.model_wins).collect();
        let estimate = Estimate::of(&values)?;
        let count = |is_it: fn(f64) -> bool| values.iter().filter(|value| is_it(**value)).count();
        let (wins, losses) = (count(|value| value > 0.5), count(|value| value < 0.5));
        let draws = values.len() - wins - losses;
        let mean = |pick: fn(&Preference) -> f64| {
            preferences.iter().map(pick).sum::<f64>() / preferences.len() as f64
        };
        Some(Self {
            win_rate: estimate.mean,
            standard_error: estimate.standard_error,
            wins: wins as u64,
            losses: losses as u64,
            draws: draws as u64,
            discrete_win_rate: (wins as f64 + 0.5 * draws as f64) / values.len() as f64,
            model_length: mean(|one| one.model_length),
            reference_length: mean(|one| one.reference_length),
        })
    }
}

/// A win rate less what length alone explains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LengthControlled {
    pub win_rate: f64,
    /// Of the fit (robust) and of the prompts drawn.
    pub standard_error: f64,
    /// What the judge gives for length: log-odds of a win where the model's answer is far longer. Above 0: it likes long ones.
    pub length_effect: f64,
}

/// The length-controlled win rate (Dubois et al. 2024, <https://arxiv.org/abs/2404.04475>): preferences are fitted by
///
/// ```text
/// P(win) = σ(θ + φ·tanh(Δ/s) + ψ·d)      Δ: the model's length less the reference's, s its standard deviation, d: difficulty
/// ```
/// and the mean of σ(θ + ψ·d) is what is left at Δ = 0. This is `length_controlled_minimal` of the package `alpaca_eval` (without
/// difficulties; with them `length_controlled_noreg`), but for its L1 penalty, which hardly moves a fit of some hundred rows; the
/// published figures also draw the fit towards two gamed baselines whose annotations are not public in the package.
///
/// None of fewer than two preferences, or where difficulties are there for some only.
pub fn length_controlled(preferences: &[Preference]) -> Option<LengthControlled> {
    let with_difficulty = preferences
        .iter()
        .filter(|one| one.difficulty.is_some())
        .count();
    if preferences.len() < 2 || (with_difficulty != 0 && with_difficulty != preferences.len()) {
        return None;
    }
    let differences: Vec<f64> = preferences
        .iter()
        .map(|one| one.model_length - one.reference_length)
        .collect();
    let spread = deviation(&differences);
    // Answers that are all as much longer say nothing of what length does.
    let has_length = spread > 0.0;
    // What stays where lengths are equal, then the length.
    let rows: Vec<Vec<f64>> = preferences
        .iter()
        .zip(&differences)
        .map(|(one, difference)| {
            let length = has_length.then(|| (difference / spread).tanh());
            [1.0]
                .into_iter()
                .chain(one.difficulty)
                .chain(length)
                .collect()
        })
        .collect();
    let targets: Vec<f64> = preferences.iter().map(|one| one.model_wins).collect();
    let fit = logistic::fit(&rows, &targets)?;
    let kept = fit.coefficients.len() - usize::from(has_length);
    let expected: Vec<f64> = rows
        .iter()
        .map(|row| {
            let x: f64 = row[..kept]
                .iter()
                .zip(&fit.coefficients)
                .map(|(feature, coefficient)| feature * coefficient)
                .sum();
            1.0 / (1.0 + (-x).exp())
        })
        .collect();
    let over_prompts = Estimate::of(&expected)?;
    // d mean / d coefficient, for the delta method.
    let mut slope = vec![0.0; fit.coefficients.len()];
    for (row, p) in rows.iter().zip(&expected) {
        for (slope, feature) in slope[..kept].iter_mut().zip(row) {
            *slope += p * (1.0 - p) * feature / rows.len() as f64;
        }
    }
    let of_fit: f64 = fit
        .covariance
        .iter()
        .zip(&slope)
        .map(|(line, left)| {
            let line: f64 = line
                .iter()
                .zip(&slope)
                .map(|(cell, right)| cell * right)
                .sum();
            left * line
        })
        .sum();
    let of_prompts = over_prompts.standard_error.unwrap_or(0.0).powi(2);
    Some(LengthControlled {
        win_rate: over_prompts.mean,
        standard_error: (of_fit + of_prompts).max(0.0).sqrt(),
        length_effect: if has_length {
            fit.coefficients.last().copied().unwrap_or(0.0)
        } else {
            0.0
        },
    })
}

/// The unbiased one, of two values or more.
fn deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0)).sqrt()
}
