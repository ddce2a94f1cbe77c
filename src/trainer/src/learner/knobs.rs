//! What of the learner may change while it runs. From the next step on it is as if the experiment had had the new value.

use std::sync::Arc;

use super::Learner;
use crate::objective::controller::KlController;

impl Learner {
    /// A knob by its experiment key; the reason when this run has no such thing to set.
    pub fn knob(&mut self, key: &str) -> Result<&mut f64, String> {
        let no_critic = || "this run trains no critic".to_owned();
        // Its own copy from the first look on: the run's other rooms keep what the experiment said.
        let experiment = Arc::make_mut(&mut self.experiment);
        let actor = &mut experiment.actor_rollout_ref.actor;
        match key {
            "actor_rollout_ref.actor.optim.lr" => Ok(self.actor.peak_lr()),
            "critic.optim.lr" => Ok(self.critic.as_mut().ok_or_else(no_critic)?.peak_lr()),
            "critic.cliprange_value" if self.critic.is_none() => Err(no_critic()),
            "critic.cliprange_value" => Ok(&mut experiment.critic.cliprange_value),
            "actor_rollout_ref.actor.kl_loss_coef" if !actor.use_kl_loss => {
                Err("actor.use_kl_loss is false: there is no KL in this run's loss".to_owned())
            }
            "actor_rollout_ref.actor.kl_loss_coef" => Ok(self.loss_controller.coefficient_mut()),
            "algorithm.kl_ctrl.kl_coef" if !experiment.algorithm.use_kl_in_reward => Err(
                "algorithm.use_kl_in_reward is false: there is no KL in this run's reward"
                    .to_owned(),
            ),
            "algorithm.kl_ctrl.kl_coef" => Ok(self.controller.coefficient_mut()),
            "actor_rollout_ref.actor.clip_ratio_low" => Ok(&mut actor.clip_ratio_low),
            "actor_rollout_ref.actor.clip_ratio_high" => Ok(&mut actor.clip_ratio_high),
            "actor_rollout_ref.actor.entropy_coeff" => Ok(&mut actor.entropy_coeff),
            "sft.optim.lr" => Err("this is no supervised run".to_owned()),
            _ => Err("this run has no such knob".to_owned()),
        }
    }

    /// Another target, horizon or kind of control than the checkpoint's, as the experiment says it now, from the coefficient that
    /// had been reached.
    pub fn steer_kl_anew(&mut self, in_reward: bool, in_loss: bool) {
        let settings = &self.experiment;
        for (is_wanted, held, mut anew) in [
            (
                in_reward,
                &mut self.controller,
                KlController::new(&settings.algorithm.kl_ctrl),
            ),
            (
                in_loss,
                &mut self.loss_controller,
                KlController::of_loss(&settings.actor_rollout_ref.actor),
            ),
        ] {
            let is_fixed = |one: &KlController| matches!(one, KlController::Fixed { .. });
            // Two fixed ones differ in nothing but what may have been set since.
            if is_wanted && !(is_fixed(held) && is_fixed(&anew)) {
                anew.go_on_from(held);
                *held = anew;
            }
        }
    }

    /// The batch of the next step was drawn at this temperature; its log-probs are taken at the same.
    pub fn drawn_at(&mut self, temperature: f64) {
        let rollout = &self.experiment.actor_rollout_ref.rollout;
        if rollout.temperature != temperature {
            Arc::make_mut(&mut self.experiment)
                .actor_rollout_ref
                .rollout
                .temperature = temperature;
        }
    }
}
