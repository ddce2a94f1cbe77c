//! Reward sources and the bandit among them.

use ::bandit::{BanditError, PolicyName, Posterior, Settings};

use super::Rules;
use crate::arms;
use crate::bandit::{Bandit, RewardedBy};
use crate::settings::AdvEstimator;

const ARMS: &str = "reward.arms";
const POLICY: &str = "reward.bandit.policy";
const REWARDED_BY: &str = "reward.bandit.rewarded_by";
const BLOCK: &str = "reward.bandit.";

/// Keys of the block that are not the policy's own.
const ABOUT_VALUES: [&str; 7] = [
    "policy",
    "rewarded_by",
    "steps_per_pull",
    "probe_files",
    "probe_rows",
    "label_files",
    "label_rows",
];

/// What a way of rewarding arms reads: its files, how many rows of them, and what they must hold.
const SOURCES: [(RewardedBy, [&str; 2], &str); 2] = [
    (
        RewardedBy::ProbeGain,
        ["reward.bandit.probe_files", "reward.bandit.probe_rows"],
        "prompts whose answers can be verified",
    ),
    (
        RewardedBy::HumanAgreement,
        ["reward.bandit.label_files", "reward.bandit.label_rows"],
        "files of pairs that people ordered",
    ),
];

impl Rules<'_> {
    pub(super) fn bandit(&mut self) {
        self.judges();
        let reward = &self.experiment.reward;
        let (all, bandit) = (reward.arms.clone(), reward.bandit.clone());
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
        // The others are held-out judges, which no policy that learns may choose.
        let (arms, that_count) = if settings.policy.is_learning() {
            (arms::names(arms::candidates(&all)), " that count")
        } else {
            (arms::names(&all), "")
        };
        if arms.len() < 2 {
            self.error(
                &[ARMS, POLICY],
                format!(
                    "{ARMS} has {}{that_count}; expected at least two for {POLICY} {} to choose among{}",
                    arms.len(),
                    policy.name,
                    if arms.len() < all.len() {
                        " (one of weight 0 is asked and never chosen)"
                    } else {
                        ""
                    }
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
        self.values_of(&bandit, &settings);
        if settings.policy.is_learning() {
            self.choice_in_training();
        }
    }

    /// Where the values of a bandit come from.
    fn values_of(&mut self, bandit: &Bandit, settings: &Settings) {
        let is_learning = settings.policy.is_learning();
        for (rewarded_by, keys, holds) in SOURCES {
            let name = rewarded_by.name();
            let is_read = is_learning && bandit.rewarded_by == rewarded_by;
            let files = match rewarded_by {
                RewardedBy::ProbeGain => &bandit.probe_files,
                _ => &bandit.label_files,
            };
            if is_read && files.is_empty() {
                let key = keys[0];
                self.error(
                    &[key, REWARDED_BY, POLICY],
                    format!("{key} is empty, and {REWARDED_BY} is {name}: name {holds}"),
                );
            } else if !is_read {
                let why = if is_learning {
                    format!("rewarded_by is not {name}")
                } else {
                    format!("{} does not learn", settings.policy.row().name)
                };
                for key in keys {
                    if self.has(key) {
                        let written = self.name(key);
                        self.warn(&[key], format!("{written} has no effect: {why}"));
                    }
                }
            }
        }
        if !is_learning {
            for key in [REWARDED_BY, "reward.bandit.steps_per_pull"] {
                if self.has(key) {
                    let (written, policy) = (self.name(key), settings.policy.row().name);
                    self.warn(
                        &[key],
                        format!("{written} has no effect: {policy} does not learn"),
                    );
                }
            }
        }
    }

    /// What does not go with an arm that is chosen when a step is trained.
    fn choice_in_training(&mut self) {
        const FILTER: &str = "algorithm.filter_groups.enable";
        const ESTIMATOR: &str = "algorithm.adv_estimator";
        let algorithm = &self.experiment.algorithm;
        let filter = &algorithm.filter_groups;
        let (filters_by_reward, is_gdpo) = (
            filter.enable && filter.metric == "reward",
            algorithm.adv_estimator == AdvEstimator::Gdpo,
        );
        if filters_by_reward {
            self.warn(
                &[FILTER, POLICY],
                format!("{FILTER}: groups are drawn anew by the weighted sum of {ARMS}, before the bandit chooses the arm that scores them"),
            );
        }
        if is_gdpo {
            self.error(
                &[ESTIMATOR, POLICY],
                format!("{ESTIMATOR} is gdpo, which compares algorithm.gdpo_reward_keys and not the score: the arm that {POLICY} chooses would have no effect"),
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
