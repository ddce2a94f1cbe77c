//! Reward sources and the bandit among them.

use ::bandit::{BanditError, PolicyName, Posterior};

use super::Rules;
use crate::arms;
use crate::bandit::RewardedBy;

const ARMS: &str = "reward.arms";
const POLICY: &str = "reward.bandit.policy";
const PROBE: &str = "reward.bandit.probe_files";
const BLOCK: &str = "reward.bandit.";

/// Keys of the block that are not the policy's own.
const ABOUT_VALUES: [&str; 4] = ["policy", "rewarded_by", "probe_files", "probe_rows"];

impl Rules<'_> {
    pub(super) fn bandit(&mut self) {
        self.judges();
        let reward = &self.experiment.reward;
        let (arms, bandit) = (arms::names(&reward.arms), reward.bandit.clone());
        let Some(settings) = bandit.settings() else {
            if let Some(first) = self.first_under(BLOCK) {
                let name = self.name(&first);
                self.warn(
                    &[&first],
                    format!("{name} has no effect: {POLICY} is null, so there is no bandit"),
                );
            }
            return;
        };
        let policy = settings.policy.row();
        if arms.len() < 2 {
            self.error(
                &[ARMS, POLICY],
                format!(
                    "{ARMS} has {}; expected at least two names for {POLICY} {} to choose among",
                    arms.len(),
                    policy.name
                ),
            );
        } else if let Err(error) = settings.validate(&arms) {
            match error {
                BanditError::Setting { key, message } => {
                    let key = format!("{BLOCK}{key}");
                    let name = self.name(&key);
                    self.error(&[&key, POLICY], format!("{name} {message}"));
                }
                other => self.error(&[ARMS], format!("{ARMS}: {other}")),
            }
        }
        let given: Vec<String> = (self.givens.all.iter())
            .filter_map(|given| Some(given.key.strip_prefix(BLOCK)?.to_owned()))
            .collect();
        for name in given {
            let is_read = ABOUT_VALUES.contains(&name.as_str()) || policy.reads(&name);
            let of_other = match settings.posterior {
                Posterior::Gaussian => name == "prior_beta" || name == "value_range",
                Posterior::Beta => {
                    ["prior_mean", "prior_sd", "prior_pulls"].contains(&name.as_str())
                }
            };
            let key = format!("{BLOCK}{name}");
            let written = self.name(&key);
            if !is_read {
                let reads = policy.reads.join(", ");
                self.warn(
                    &[&key],
                    format!(
                        "{written} has no effect: policy {} reads {reads}",
                        policy.name
                    ),
                );
            } else if settings.policy == PolicyName::Thompson && of_other {
                self.warn(
                    &[&key],
                    format!("{written} has no effect with this posterior"),
                );
            }
        }
        let is_learning = settings.policy.is_learning();
        let by_probe = bandit.rewarded_by == RewardedBy::ProbeGain && is_learning;
        if by_probe && bandit.probe_files.is_empty() {
            self.error(
                &[PROBE, "reward.bandit.rewarded_by", POLICY],
                format!("{PROBE} is empty, and reward.bandit.rewarded_by is probe_gain: name prompts whose answers can be verified"),
            );
        } else if !by_probe && self.has(PROBE) {
            let name = self.name(PROBE);
            let why = if is_learning {
                "rewarded_by is not probe_gain".to_owned()
            } else {
                format!("{} does not learn", policy.name)
            };
            self.warn(&[PROBE], format!("{name} has no effect: {why}"));
        }
        if is_learning {
            self.warn(
                &[POLICY],
                format!(
                    "{POLICY} is {}, but training does not choose among arms yet: the reward is the weighted sum of {ARMS}; `lathe bandit simulate` plays the policies",
                    policy.name
                ),
            );
        }
    }

    /// Who decides the reward: the arms, a function in Python, or one scorer.
    fn judges(&mut self) {
        const SCORER: &str = "reward.scorer";
        const CUSTOM: &str = "reward.custom_reward_function.path";
        let reward = &self.experiment.reward;
        let (has_arms, has_custom) = (
            !reward.arms.is_empty(),
            reward.custom_reward_function.path.is_some(),
        );
        if has_arms && has_custom {
            let name = self.name(CUSTOM);
            self.error(
                &[CUSTOM, ARMS],
                format!("{name} and {ARMS} would both decide the reward; make the function an arm: {{scorer: python, options: {{path: ...}}}}"),
            );
        }
        if (has_arms || has_custom) && self.has(SCORER) {
            let name = self.name(SCORER);
            let other = if has_arms { ARMS } else { CUSTOM };
            self.warn(
                &[SCORER, other],
                format!("{name} has no effect: {other} decides the reward"),
            );
        }
        if !has_custom && let Some(first) = self.first_under("reward.custom_reward_function.") {
            let name = self.name(&first);
            self.warn(&[&first], format!("{name} has no effect: {CUSTOM} is null"));
        }
    }
}
