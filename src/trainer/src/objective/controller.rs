//! β of the KL penalty in the reward, fixed or steered to a target (verl `FixedKLController`, `AdaptiveKLController`).

use experiment::settings::{KlCtrl, KlCtrlType};
use serde::{Deserialize, Serialize};

/// How far off the target the KL may seem to be.
const ERROR_LIMIT: f64 = 0.2;
/// β's factor in one update stays within these. verl's reaches 0 and below, for good, when a batch has 5·horizon sequences or
/// more; up to 4.5·horizon the two agree.
const FACTOR_LIMITS: (f64, f64) = (0.1, 1.9);

/// Part of every checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlController {
    Fixed {
        coefficient: f64,
    },
    /// Ziegler et al. 2019 (<https://arxiv.org/abs/1909.08593>): e = clip(KL / target − 1, ±0.2); β ← β·(1 + e·n / horizon).
    ///
    /// As in verl the KL is a mean per token, which is mostly far below a `target_kl` of 0.1: β then shrinks at every step.
    Adaptive {
        coefficient: f64,
        target_kl: f64,
        horizon: f64,
    },
}

impl KlController {
    pub fn new(settings: &KlCtrl) -> Self {
        match settings.kind {
            KlCtrlType::Fixed => Self::Fixed {
                coefficient: settings.kl_coef,
            },
            KlCtrlType::Adaptive => Self::Adaptive {
                coefficient: settings.kl_coef,
                target_kl: settings.target_kl,
                horizon: settings.horizon,
            },
        }
    }

    /// β.
    pub fn coefficient(&self) -> f64 {
        match self {
            Self::Fixed { coefficient } | Self::Adaptive { coefficient, .. } => *coefficient,
        }
    }

    /// β, to be set anew; the adaptive one goes on from there.
    pub fn coefficient_mut(&mut self) -> &mut f64 {
        match self {
            Self::Fixed { coefficient } | Self::Adaptive { coefficient, .. } => coefficient,
        }
    }

    /// `mean_kl` of the batch just penalised, of `sequences` sequences. A KL that is not a number changes nothing.
    pub fn update(&mut self, mean_kl: f64, sequences: u64) {
        let Self::Adaptive {
            coefficient,
            target_kl,
            horizon,
        } = self
        else {
            return;
        };
        if mean_kl.is_nan() {
            return;
        }
        let error = (mean_kl / *target_kl - 1.0).clamp(-ERROR_LIMIT, ERROR_LIMIT);
        let factor = 1.0 + error * sequences as f64 / *horizon;
        *coefficient *= factor.clamp(FACTOR_LIMITS.0, FACTOR_LIMITS.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adaptive() -> KlController {
        KlController::Adaptive {
            coefficient: 0.2,
            target_kl: 0.1,
            horizon: 100.0,
        }
    }

    #[test]
    fn a_batch_much_larger_than_the_horizon_cannot_kill_or_flip_beta() {
        let mut controller = adaptive();
        for _ in 0..10 {
            controller.update(0.0, 5_000);
        }
        assert!(controller.coefficient() > 0.0);
        controller.update(0.3, 5_000);
        assert!(controller.coefficient() > 0.0);
    }

    #[test]
    fn a_kl_that_is_not_a_number_changes_nothing() {
        let mut controller = adaptive();
        controller.update(f64::NAN, 64);
        assert_eq!(controller, adaptive());
    }

    #[test]
    fn it_comes_back_from_a_checkpoint_as_it_was() {
        let mut controller = adaptive();
        controller.update(0.13, 7);
        let text = serde_json::to_string(&controller).unwrap();
        assert_eq!(
            serde_json::from_str::<KlController>(&text).unwrap(),
            controller
        );
    }
}
