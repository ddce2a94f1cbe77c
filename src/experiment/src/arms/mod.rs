//! `reward.arms`: the judges of a dialogue, by name. Each has a scorer with its options, and how long, how often and for how much
//! it is asked. `read` takes the YAML, `options` holds what each scorer may be told, `page` documents both.

mod options;
mod page;
mod read;
#[cfg(test)]
mod tests;

use ::bandit::PolicyName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

pub use options::{
    Choice, Code, Compare, Exact, Format, Gsm8k, Gsm8kMethod, Http, Human, JsonSchema, Judge,
    Judged, Length, LengthUnit, MathDapo, Model, Numeric, Python, Regex, SearchEm,
};
pub use page::markdown;
pub use read::read;

use crate::scorers::ScorerName;
use crate::settings::Reward;

/// Seconds that an arm gets for an answer, when it does not say.
pub const TIMEOUT_S: f64 = 0.05;
/// The same of one that runs programs.
const CODE_TIMEOUT_S: f64 = 30.0;
/// Answers of an arm at once, when it does not say.
pub const CONCURRENCY: u32 = 8;

/// Which text a scorer is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sees {
    /// Every model turn, joined by newlines; no tool text.
    #[default]
    ModelText,
    /// The last model turn.
    FinalAnswer,
    /// Everything after the prompt, tool text too (verl's `solution_str`). A model can earn from what a tool wrote.
    Dialogue,
}

/// One judge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// In metrics and rollouts.
    pub name: String,
    pub scorer: ScorerName,
    /// The scorer's own, as they were written; [`Arm::judge`] types them.
    pub options: Map<String, Json>,
    /// Of its score in the sum.
    pub weight: f64,
    /// Seconds, from when the scorer is asked; waiting for its turn does not count.
    pub timeout: f64,
    /// Its score when it has not answered by then.
    pub default: f64,
    /// Dialogues it judges at once.
    pub concurrency: u32,
    /// None: as the scorer does by itself.
    pub sees: Option<Sees>,
}

impl Arm {
    /// With everything as it is by default.
    pub fn new(name: impl Into<String>, scorer: ScorerName) -> Self {
        Self {
            name: name.into(),
            scorer,
            options: Map::new(),
            weight: 1.0,
            timeout: match scorer {
                ScorerName::Code => CODE_TIMEOUT_S,
                _ => TIMEOUT_S,
            },
            default: 0.0,
            concurrency: CONCURRENCY,
            sees: None,
        }
    }

    /// Whether it may stand beside a reward model: a rule, which says the same of the same answer and needs nobody else.
    pub fn beside_a_model(&self) -> Result<(), String> {
        let name = self.scorer.row().name;
        match self.scorer {
            ScorerName::Auto | ScorerName::Human | ScorerName::Model | ScorerName::Judge => {
                Err(format!("{name} cannot stand beside a reward model"))
            }
            _ => Ok(()),
        }
    }

    /// The scorer with its options; the error says which of them is wrong.
    pub fn judge(&self) -> Result<Judge, String> {
        Judge::new(self.scorer, &self.options)
    }
}

/// Seconds that `reward.custom_reward_function` gets for an answer; as long as verl's rate-limited manager waits.
const CUSTOM_TIMEOUT_S: f64 = 300.0;

/// The arms that judge: those that are written, else the reward function in Python as one; empty: `reward.scorer` alone. Of a
/// bandit that does not learn, the weights are its own: an ensemble's sum to 1, so that its reward is the arms' weighted mean.
pub fn judging(reward: &Reward) -> Vec<Arm> {
    let mut arms = reward.arms.clone();
    let custom = &reward.custom_reward_function;
    if let (true, Some(path)) = (arms.is_empty(), &custom.path) {
        let mut arm = Arm::new("custom", ScorerName::Python);
        arm.timeout = CUSTOM_TIMEOUT_S;
        arm.options.insert("path".to_owned(), path.clone().into());
        arm.options
            .insert("name".to_owned(), custom.name.clone().into());
        arm.options
            .insert("kwargs".to_owned(), custom.reward_kwargs.clone().into());
        arms.push(arm);
    }
    match reward.bandit.policy {
        Some(PolicyName::Fixed) => {
            for arm in &mut arms {
                let is_chosen = reward.bandit.fixed_arm.as_ref() == Some(&arm.name);
                arm.weight = if is_chosen { 1.0 } else { 0.0 };
            }
        }
        Some(PolicyName::Ensemble) => {
            let given = &reward.bandit.weights;
            for (index, arm) in arms.iter_mut().enumerate() {
                arm.weight = match given.get(index) {
                    Some(weight) => *weight,
                    // A penalty stays one, a judge that is held out too.
                    None if arm.weight == 0.0 => 0.0,
                    None => arm.weight.signum(),
                };
            }
            let sum: f64 = arms.iter().map(|arm| arm.weight.abs()).sum();
            if sum > 0.0 {
                for arm in &mut arms {
                    arm.weight /= sum;
                }
            }
        }
        _ => {}
    }
    arms
}

/// The arms that a bandit may choose: those that count.
pub fn candidates(arms: &[Arm]) -> impl Iterator<Item = &Arm> {
    arms.iter().filter(|arm| arm.weight != 0.0)
}

/// The names of the arms, in their order.
pub fn names<'a>(arms: impl IntoIterator<Item = &'a Arm>) -> Vec<String> {
    arms.into_iter().map(|arm| arm.name.clone()).collect()
}
