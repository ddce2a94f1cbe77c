//! How a bandit chooses and learns. Flat, so that an experiment, an environment's file and an override say it alike.

use serde::{Deserialize, Serialize};

use crate::error::BanditError;

/// Which policy; formulas are in [`table`](crate::table).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    Thompson,
    Ucb1,
    KlUcb,
    EpsilonGreedy,
    Linucb,
    Fixed,
    Ensemble,
}

/// What `thompson` believes of an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Posterior {
    /// Values between the ends of `value_range`; one between them counts as part success, part failure.
    Beta,
    /// Values of any size, mean and spread unknown.
    Gaussian,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub policy: PolicyName,
    /// Outcomes between two changes of the statistics.
    pub update_every: u32,
    /// What an older value weighs, per newer value; 1 forgets nothing.
    pub discount: f64,
    /// Ends of the scale that values are on; what lies outside counts as the end.
    pub value_range: [f64; 2],
    pub posterior: Posterior,
    /// Successes and failures that the Beta posterior starts from.
    pub prior_beta: [f64; 2],
    /// The Gaussian posterior's first guess of a mean, of a value's standard deviation, and how many values it is worth.
    pub prior_mean: f64,
    pub prior_sd: f64,
    pub prior_pulls: f64,
    pub ucb_width: f64,
    pub kl_ucb_width: f64,
    pub epsilon: f64,
    pub epsilon_decay: f64,
    pub epsilon_floor: f64,
    pub alpha: f64,
    pub ridge: f64,
    /// None: values reach the linear model as they are.
    pub quantiles: Option<[f64; 2]>,
    /// Latest values that the quantiles are of.
    pub quantile_window: u32,
    pub fixed_arm: Option<String>,
    /// In the order of the arms; empty: all alike.
    pub weights: Vec<f64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: PolicyName::Thompson,
            update_every: 10,
            discount: 1.0,
            value_range: [0.0, 1.0],
            posterior: Posterior::Beta,
            prior_beta: [1.0, 1.0],
            prior_mean: 0.5,
            prior_sd: 0.5,
            prior_pulls: 1.0,
            ucb_width: 2.0,
            kl_ucb_width: 1.0,
            epsilon: 0.2,
            epsilon_decay: 0.99,
            epsilon_floor: 0.02,
            alpha: 0.1,
            ridge: 1.0,
            quantiles: Some([0.2, 0.8]),
            quantile_window: 10_000,
            fixed_arm: None,
            weights: Vec::new(),
        }
    }
}

impl Settings {
    pub fn of(policy: PolicyName) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// The first thing that is wrong with them for these arms.
    pub fn validate(&self, arms: &[String]) -> Result<(), BanditError> {
        let positive = |key, value: f64| check(key, value, value > 0.0, "a number above 0");
        let not_negative = |key, value: f64| check(key, value, value >= 0.0, "a number from 0 on");
        let share = |key, value: f64| {
            check(
                key,
                value,
                (0.0..=1.0).contains(&value),
                "a number from 0 to 1",
            )
        };
        if self.update_every == 0 {
            return Err(BanditError::setting(
                "update_every",
                "is 0; expected a whole number from 1 on",
            ));
        }
        check(
            "discount",
            self.discount,
            self.discount > 0.0 && self.discount <= 1.0,
            "0 < discount <= 1",
        )?;
        let [low, high] = self.value_range;
        if !(low.is_finite() && high.is_finite() && low < high && (high - low).is_finite()) {
            return Err(BanditError::setting(
                "value_range",
                format!("is [{low}, {high}]; expected two numbers, the first below the second"),
            ));
        }
        for value in self.prior_beta {
            positive("prior_beta", value)?;
        }
        check("prior_mean", self.prior_mean, true, "a number")?;
        positive("prior_sd", self.prior_sd)?;
        positive("prior_pulls", self.prior_pulls)?;
        not_negative("ucb_width", self.ucb_width)?;
        not_negative("kl_ucb_width", self.kl_ucb_width)?;
        share("epsilon", self.epsilon)?;
        share("epsilon_decay", self.epsilon_decay)?;
        share("epsilon_floor", self.epsilon_floor)?;
        if self.policy == PolicyName::EpsilonGreedy && self.epsilon_floor > self.epsilon {
            return Err(BanditError::setting(
                "epsilon_floor",
                format!(
                    "is {}; expected at most epsilon, which is {}",
                    self.epsilon_floor, self.epsilon
                ),
            ));
        }
        not_negative("alpha", self.alpha)?;
        positive("ridge", self.ridge)?;
        if let Some([low, high]) = self.quantiles
            && !(0.0 <= low && low < high && high <= 1.0)
        {
            return Err(BanditError::setting(
                "quantiles",
                format!("are [{low}, {high}]; expected 0 <= lower < upper <= 1"),
            ));
        }
        if self.quantile_window < 2 {
            return Err(BanditError::setting(
                "quantile_window",
                format!(
                    "is {}; expected a whole number from 2 on",
                    self.quantile_window
                ),
            ));
        }
        self.validate_arms(arms)
    }

    fn validate_arms(&self, arms: &[String]) -> Result<(), BanditError> {
        let problem = |message: String| Err(BanditError::Arms { message });
        if arms.is_empty() {
            return problem("there are no arms to choose from".to_owned());
        }
        for (index, name) in arms.iter().enumerate() {
            if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
                return problem(format!(
                    "an arm is called {name:?}; expected a word without spaces"
                ));
            }
            if arms[..index].contains(name) {
                return problem(format!("two arms are called {name}; give one another name"));
            }
        }
        match (self.policy, &self.fixed_arm) {
            (PolicyName::Fixed, None) => {
                return Err(BanditError::setting(
                    "fixed_arm",
                    format!(
                        "is not given; policy fixed needs one of {}",
                        arms.join(", ")
                    ),
                ));
            }
            (PolicyName::Fixed, Some(name)) if !arms.contains(name) => {
                return Err(BanditError::setting(
                    "fixed_arm",
                    format!("is {name:?}; expected one of {}", arms.join(", ")),
                ));
            }
            _ => {}
        }
        if self.policy == PolicyName::Ensemble && !self.weights.is_empty() {
            if self.weights.len() != arms.len() {
                return Err(BanditError::setting(
                    "weights",
                    format!(
                        "are {}; expected one an arm, which is {}",
                        self.weights.len(),
                        arms.len()
                    ),
                ));
            }
            let sum: f64 = self.weights.iter().sum();
            if !(self.weights.iter().all(|weight| *weight >= 0.0) && sum > 0.0 && sum.is_finite()) {
                return Err(BanditError::setting(
                    "weights",
                    "are not usable; expected numbers from 0 on, not all 0",
                ));
            }
        }
        Ok(())
    }

    /// Whether values are scaled from `value_range` to 0..1, and cut at its ends.
    pub(crate) fn is_scaled(&self) -> bool {
        match self.policy {
            PolicyName::Ucb1 | PolicyName::KlUcb => true,
            PolicyName::Thompson => self.posterior == Posterior::Beta,
            _ => false,
        }
    }

    /// From what the policy reads to the unit of the values.
    pub(crate) fn unscaled(&self, value: f64) -> f64 {
        let [low, high] = self.value_range;
        if self.is_scaled() {
            low + value * (high - low)
        } else {
            value
        }
    }

    /// From a standard deviation that the policy reads to the unit of the values.
    pub(crate) fn unscaled_width(&self, width: f64) -> f64 {
        let [low, high] = self.value_range;
        if self.is_scaled() {
            width * (high - low)
        } else {
            width
        }
    }

    /// What the policy reads of a value, and whether it was cut.
    pub(crate) fn scaled(&self, value: f64) -> (f64, bool) {
        if !self.is_scaled() {
            return (value, false);
        }
        let [low, high] = self.value_range;
        let cut = value.clamp(low, high);
        ((cut - low) / (high - low), cut != value)
    }
}

fn check(key: &'static str, value: f64, fits: bool, expected: &str) -> Result<(), BanditError> {
    if fits && value.is_finite() {
        Ok(())
    } else {
        Err(BanditError::setting(
            key,
            format!("is {value}; expected {expected}"),
        ))
    }
}
