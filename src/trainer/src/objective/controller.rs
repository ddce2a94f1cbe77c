//! The coefficient of a KL penalty, in the reward or in the loss, fixed or steered to a target (verl `FixedKLController`,
//! `AdaptiveKLController`).

use experiment::settings::{Actor, KlCtrl, KlCtrlType, KlTargetPer};
use serde::{Deserialize, Serialize};

use super::kl::MeanKl;

/// How far off the target the KL may seem to be.
const ERROR_LIMIT: f64 = 0.2;
/// The coefficient's factor in one update stays within these. verl's reaches 0 and below, for good, when a batch has 5·horizon
/// sequences or more; up to 4.5·horizon the two agree.
const FACTOR_LIMITS: (f64, f64) = (0.1, 1.9);
/// The coefficient stays within its start divided and multiplied by this. Further away it is no penalty at all, or the only
/// thing that is learned.
const REACH: f64 = 1e3;
/// Updates at a bound with the KL still on the wrong side, after which the target counts as out of reach.
const OUT_OF_REACH_UPDATES: u32 = 20;

/// Part of every checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlController {
    Fixed {
        coefficient: f64,
    },
    /// Ziegler et al. 2019 (<https://arxiv.org/abs/1909.08593>): e = clip(KL / target − 1, ±0.2); β ← β·(1 + e·n / horizon).
    ///
    /// Theirs is a KL per sequence. verl's is per token, which is mostly far below a `target_kl` of 0.1: β then shrinks at every
    /// step. `per` says which is meant.
    Adaptive {
        coefficient: f64,
        target_kl: f64,
        horizon: f64,
        #[serde(default)]
        per: KlTargetPer,
        /// Of the coefficient; None: no bounds, as in verl.
        #[serde(default)]
        bounds: Option<(f64, f64)>,
        /// Updates in a row at a bound.
        #[serde(default)]
        pinned: u32,
    },
}

impl KlController {
    /// Of the KL in the reward.
    pub fn new(settings: &KlCtrl) -> Self {
        Self::steered(settings, settings.kl_coef)
    }

    /// Of the KL in the loss.
    pub fn of_loss(actor: &Actor) -> Self {
        let settings = &actor.kl_loss_ctrl;
        let steering = KlCtrl {
            kind: settings.kind,
            kl_coef: actor.kl_loss_coef,
            horizon: settings.horizon,
            target_kl: settings.target_kl,
            target_kl_per: settings.target_kl_per,
        };
        Self::steered(&steering, actor.kl_loss_coef)
    }

    fn steered(settings: &KlCtrl, coefficient: f64) -> Self {
        match settings.kind {
            KlCtrlType::Fixed => Self::Fixed { coefficient },
            KlCtrlType::Adaptive => Self::Adaptive {
                coefficient,
                target_kl: settings.target_kl,
                horizon: settings.horizon,
                per: settings.target_kl_per,
                bounds: Some((coefficient / REACH, coefficient * REACH)),
                pinned: 0,
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

    /// Goes on from where `saved` had steered to, under this controller's own target, horizon and bounds. A fixed coefficient stays.
    pub fn go_on_from(&mut self, saved: &Self) {
        if let (
            Self::Adaptive { coefficient, .. },
            Self::Adaptive {
                coefficient: saved, ..
            },
        ) = (&mut *self, saved)
        {
            *coefficient = *saved;
        }
    }

    /// `observed`: the KL of the batch just penalised, of `sequences` sequences. A KL that is not a number changes nothing.
    pub fn update(&mut self, observed: MeanKl, sequences: u64) {
        let Self::Adaptive {
            coefficient,
            target_kl,
            horizon,
            per,
            bounds,
            pinned,
        } = self
        else {
            return;
        };
        let kl = match per {
            KlTargetPer::Token => observed.per_token,
            KlTargetPer::Sequence => observed.per_sequence,
        };
        if kl.is_nan() {
            return;
        }
        let error = (kl / *target_kl - 1.0).clamp(-ERROR_LIMIT, ERROR_LIMIT);
        let factor = 1.0 + error * sequences as f64 / *horizon;
        let wanted = *coefficient * factor.clamp(FACTOR_LIMITS.0, FACTOR_LIMITS.1);
        *coefficient = match *bounds {
            // Set by hand beyond a bound it may stay there, and come back.
            Some((low, high)) => wanted.clamp(low.min(*coefficient), high.max(*coefficient)),
            None => wanted,
        };
        let is_pinned = bounds.is_some() && error != 0.0 && *coefficient != wanted;
        *pinned = if is_pinned {
            pinned.saturating_add(1)
        } else {
            0
        };
    }

    /// What to tell the researcher when the target has been out of reach for long; once, and again every hundred updates.
    pub fn out_of_reach(&self) -> Option<String> {
        let Self::Adaptive {
            coefficient,
            target_kl,
            per,
            bounds: Some((low, _)),
            pinned,
            ..
        } = self
        else {
            return None;
        };
        let is_due = *pinned == OUT_OF_REACH_UPDATES
            || (*pinned > OUT_OF_REACH_UPDATES && pinned.is_multiple_of(100));
        if !is_due {
            return None;
        }
        let per = match per {
            KlTargetPer::Token => "token",
            KlTargetPer::Sequence => "sequence",
        };
        let (side, why) = if coefficient <= low {
            (
                "below",
                "even almost without a penalty; lower the target, or fix the coefficient",
            )
        } else {
            (
                "above",
                "whatever the penalty; raise the target, or lower the learning rate",
            )
        };
        Some(format!(
            "the KL per {per} has stayed {side} its target of {target_kl} for {pinned} updates with the coefficient at its bound, {coefficient:.3e}: {why}"
        ))
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
            per: KlTargetPer::Token,
            bounds: None,
            pinned: 0,
        }
    }

    fn per_token(kl: f64) -> MeanKl {
        MeanKl {
            per_token: kl,
            per_sequence: f64::NAN,
        }
    }

    #[test]
    fn a_batch_much_larger_than_the_horizon_cannot_kill_or_flip_beta() {
        let mut controller = adaptive();
        for _ in 0..10 {
            controller.update(per_token(0.0), 5_000);
        }
        assert!(controller.coefficient() > 0.0);
        controller.update(per_token(0.3), 5_000);
        assert!(controller.coefficient() > 0.0);
    }

    #[test]
    fn a_kl_that_is_not_a_number_changes_nothing() {
        let mut controller = adaptive();
        controller.update(per_token(f64::NAN), 64);
        assert_eq!(controller, adaptive());
    }

    #[test]
    fn it_comes_back_from_a_checkpoint_as_it_was() {
        let mut controller = adaptive();
        controller.update(per_token(0.13), 7);
        let text = serde_json::to_string(&controller).unwrap();
        assert_eq!(
            serde_json::from_str::<KlController>(&text).unwrap(),
            controller
        );
    }

    #[test]
    fn a_checkpoint_of_before_there_were_bounds_and_units_is_read() {
        let text = r#"{"adaptive":{"coefficient":0.2,"target_kl":0.1,"horizon":100.0}}"#;
        assert_eq!(
            serde_json::from_str::<KlController>(text).unwrap(),
            adaptive()
        );
    }

    #[test]
    fn a_target_per_sequence_looks_at_the_sum_over_the_sequence() {
        let controller = |per| {
            let mut controller = KlController::new(&KlCtrl {
                kind: KlCtrlType::Adaptive,
                kl_coef: 0.2,
                horizon: 100.0,
                target_kl: 0.1,
                target_kl_per: per,
            });
            // 200 tokens of 0.001 nats.
            let observed = MeanKl {
                per_token: 0.001,
                per_sequence: 0.2,
            };
            controller.update(observed, 10);
            controller.coefficient()
        };
        assert!(controller(KlTargetPer::Token) < 0.2);
        assert!(controller(KlTargetPer::Sequence) > 0.2);
    }

    #[test]
    fn a_target_that_cannot_be_reached_is_said_once_the_coefficient_has_stood_at_its_bound_for_long()
     {
        let mut controller = KlController::new(&KlCtrl {
            kind: KlCtrlType::Adaptive,
            kl_coef: 0.2,
            horizon: 100.0,
            target_kl: 0.1,
            target_kl_per: KlTargetPer::Token,
        });
        let mut said = Vec::new();
        for update in 0..150 {
            controller.update(per_token(1e-4), 100);
            if let Some(message) = controller.out_of_reach() {
                said.push((update, message));
            }
        }
        assert!(
            (controller.coefficient() - 0.2 / REACH).abs() < 1e-12,
            "it stays above 0"
        );
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0]
                .1
                .contains("per token has stayed below its target of 0.1"),
            "{}",
            said[0].1
        );
        controller.update(per_token(0.5), 100);
        assert!(controller.coefficient() > 0.2 / REACH, "and comes back");
        assert_eq!(controller.out_of_reach(), None);
    }
}
