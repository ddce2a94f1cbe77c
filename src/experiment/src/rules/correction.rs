//! The rollout correction: what needs what, and what has no effect beside what.

use super::Rules;
use crate::correction::criteria;
use crate::settings::{BypassLoss, LossMode};

const LOSS_MODE: &str = "actor_rollout_ref.actor.policy_loss.loss_mode";
const LOG_PROBS: &str = "actor_rollout_ref.rollout.calculate_log_probs";
const IMPORTANCE: &str = "algorithm.rollout_correction.rollout_is";
const NORMALIZE: &str = "algorithm.rollout_correction.rollout_is_batch_normalize";
const REJECTION: &str = "algorithm.rollout_correction.rollout_rs";
const REJECTION_THRESHOLD: &str = "algorithm.rollout_correction.rollout_rs_threshold";
const BYPASS: &str = "algorithm.rollout_correction.bypass_mode";
const LOSS_TYPE: &str = "algorithm.rollout_correction.loss_type";

impl Rules<'_> {
    pub(super) fn rollout_correction(&mut self) {
        self.bypass_by_loss_mode();
        let correction = self.experiment.algorithm.rollout_correction.clone();
        let bypass = correction.bypass_mode;
        let is_reinforce = correction.loss_type == BypassLoss::Reinforce;
        let user = if bypass {
            Some("bypass_mode")
        } else if correction.rollout_is.is_some() {
            Some("rollout_is")
        } else {
            correction.rollout_rs.as_ref().map(|_| "rollout_rs")
        };
        if let Some(user) = user
            && !self
                .experiment
                .actor_rollout_ref
                .rollout
                .calculate_log_probs
        {
            let name = self.name(LOG_PROBS);
            self.error(
                &[LOG_PROBS],
                format!(
                    "{name} is false, but algorithm.rollout_correction.{user} needs the rollout's log-probs"
                ),
            );
        }
        if bypass && !is_reinforce && correction.rollout_is.is_some() {
            let name = self.name(IMPORTANCE);
            self.warn(
                &[IMPORTANCE],
                format!(
                    "{name} has no effect: with bypass_mode the loss's own ratio is the one to the rollout, and a weight would count it twice; loss_type: reinforce takes weights"
                ),
            );
        }
        for key in [
            "algorithm.rollout_correction.rollout_is_threshold",
            NORMALIZE,
        ] {
            if correction.rollout_is.is_none() && self.has(key) {
                let name = self.name(key);
                self.warn(&[key], format!("{name} has no effect: rollout_is is null"));
            }
        }
        match (&correction.rollout_rs, &correction.rollout_rs_threshold) {
            (None, Some(_)) => {
                let name = self.name(REJECTION_THRESHOLD);
                self.warn(
                    &[REJECTION_THRESHOLD],
                    format!("{name} has no effect: rollout_rs is null"),
                );
            }
            (Some(_), None) => {
                let name = self.name(REJECTION);
                self.error(
                    &[REJECTION],
                    format!("{name} needs rollout_rs_threshold, e.g. 2.0"),
                );
            }
            (Some(names), Some(thresholds)) => {
                if let Err(reason) = criteria(names, thresholds) {
                    self.error(&[REJECTION_THRESHOLD, REJECTION], reason);
                }
            }
            (None, None) => {}
        }
        if !is_reinforce {
            return;
        }
        let name = self.name(LOSS_TYPE);
        if !bypass {
            self.warn(
                &[LOSS_TYPE],
                format!("{name} has no effect: bypass_mode is false"),
            );
        } else if self
            .experiment
            .actor_rollout_ref
            .actor
            .policy_loss
            .loss_mode
            != LossMode::Vanilla
        {
            self.error(
                &[LOSS_TYPE, LOSS_MODE],
                format!(
                    "{name} and policy_loss.loss_mode are two losses; leave loss_mode at vanilla"
                ),
            );
        } else if correction.rollout_is.is_some() && correction.rollout_is_batch_normalize {
            self.error(
                &[NORMALIZE, LOSS_TYPE],
                "rollout_is_batch_normalize cannot go with loss_type reinforce: the weights are those of the policy as it moves, and their mean would be a micro-batch's".to_owned(),
            );
        }
    }

    /// verl enters its bypass loss under this name too.
    fn bypass_by_loss_mode(&mut self) {
        let is_given = self
            .givens
            .get(LOSS_MODE)
            .is_some_and(|given| given.node.to_json() == "bypass_mode");
        let bypass = &mut self.experiment.algorithm.rollout_correction.bypass_mode;
        if is_given && !*bypass {
            *bypass = true;
            let name = self.name(LOSS_MODE);
            if self.has(BYPASS) {
                self.error(
                    &[LOSS_MODE, BYPASS],
                    format!("{name} is bypass_mode, but rollout_correction.bypass_mode is false"),
                );
            } else {
                self.note(
                    &[LOSS_MODE],
                    format!("{name} bypass_mode sets rollout_correction.bypass_mode; the loss is its loss_type"),
                );
            }
        }
    }
}
