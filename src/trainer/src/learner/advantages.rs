//! Which estimator is asked, and what it is given.

use dialogue::rollout::Rollout;
use experiment::estimators::Need;
use experiment::settings::{AdvEstimator, Algorithm};
use tch::Tensor;

use super::batch::TrainBatch;
use crate::objective::ObjectiveError;
use crate::objective::advantage::{
    Advantages, Alone, Scale, TokenBaselineInputs, gae, gdpo, gpg, grpo, grpo_passk, opo,
    optimal_token_baseline, reinforce_plus_plus, reinforce_plus_plus_baseline, remax, rloo,
    tir_optimal_token_baseline,
};

/// Under this name a rollout's `score_parts` hold the score of the greedy answer to its prompt.
pub const GREEDY_BASELINE: &str = "greedy_baseline";

/// The name by which `gdpo_reward_keys` means the reward itself.
const WHOLE_SCORE: &str = "score";

/// Keeps Σ G·W / Σ W finite (verl's).
const TOKEN_BASELINE_EPSILON: f64 = 1e-8;

#[derive(Debug)]
pub(super) enum Refusal {
    Objective(ObjectiveError),
    Missing(String),
}

impl From<ObjectiveError> for Refusal {
    fn from(error: ObjectiveError) -> Self {
        Self::Objective(error)
    }
}

/// All `[B, T]`.
pub(super) struct Inputs<'a> {
    pub token_rewards: &'a Tensor,
    pub old_logprobs: &'a Tensor,
    pub values: Option<&'a Tensor>,
    pub weights: Option<&'a Tensor>,
    pub sum_pi_squared: Option<&'a Tensor>,
}

/// The rollouts that have what the estimator needs of each, and an alarm about the others, which are never taken for 0.
pub(super) fn usable(
    algorithm: &Algorithm,
    rollouts: Vec<Rollout>,
) -> (Vec<Rollout>, Option<(&'static str, String)>) {
    let estimator = algorithm.adv_estimator;
    let mut wanted: Vec<&str> = Vec::new();
    if estimator.needs(Need::GreedyBaseline) {
        wanted.push(GREEDY_BASELINE);
    }
    if estimator.needs(Need::Components) {
        wanted.extend(algorithm.gdpo_reward_keys.iter().map(String::as_str));
    }
    if wanted.is_empty() {
        return (rollouts, None);
    }
    let sampled = rollouts.len();
    let mut missing: Option<String> = None;
    let usable: Vec<Rollout> = rollouts
        .into_iter()
        .filter(|rollout| {
            // Without a score it is left out anyway, and counted there.
            let lacks = wanted
                .iter()
                .find(|name| rollout.score.is_some() && part(rollout, name).is_none());
            if let Some(name) = lacks {
                missing.get_or_insert_with(|| (*name).to_owned());
            }
            lacks.is_none()
        })
        .collect();
    let alarm = missing.map(|name| {
        (
            "rollouts left out",
            format!(
                "{} of {sampled} rollouts did not train: adv_estimator {} needs `{name}` of each, which they lack",
                sampled - usable.len(),
                estimator.row().name
            ),
        )
    });
    (usable, alarm)
}

fn part(rollout: &Rollout, name: &str) -> Option<f64> {
    rollout
        .score_parts
        .get(name)
        .copied()
        .or_else(|| (name == WHOLE_SCORE).then_some(rollout.score).flatten())
}

/// A component of the reward where the score lies: on the last drawn token of each row.
fn component(batch: &TrainBatch, name: &str) -> Tensor {
    let numbers: Vec<f32> = batch
        .rollouts
        .iter()
        .map(|rollout| part(rollout, name).unwrap_or(f64::NAN) as f32)
        .collect();
    let last = batch.last_tokens(); // [B, T], one 1 a row
    let numbers = Tensor::from_slice(&numbers)
        .to_device(batch.mask.device())
        .unsqueeze(-1);
    numbers.zeros_like().where_self(&last.eq(0.0), &numbers)
}

pub(super) fn estimate(
    algorithm: &Algorithm,
    batch: &TrainBatch,
    inputs: &Inputs<'_>,
) -> Result<Advantages, Refusal> {
    let (rewards, mask) = (inputs.token_rewards, &batch.mask);
    let groups = batch.group_of_rows();
    let scale = Scale::by_std(algorithm.norm_adv_by_std_in_grpo);
    let token_baseline = || -> Result<TokenBaselineInputs<'_>, Refusal> {
        Ok(TokenBaselineInputs {
            token_rewards: rewards,
            old_logprobs: inputs.old_logprobs,
            sum_pi_squared: inputs.sum_pi_squared.ok_or_else(|| {
                Refusal::Missing("the sums of squared probabilities were not computed".to_owned())
            })?,
            rollout_weights: inputs.weights,
            mask,
            zero_tail: true,
            epsilon: TOKEN_BASELINE_EPSILON,
        })
    };
    Ok(match algorithm.adv_estimator {
        AdvEstimator::Gae => {
            let values = inputs.values.ok_or_else(|| {
                Refusal::Missing("gae needs a critic; set critic.enable to true".to_owned())
            })?;
            gae(rewards, values, mask, algorithm.gamma, algorithm.lam)?
        }
        AdvEstimator::Grpo | AdvEstimator::GrpoVectorized => grpo(rewards, mask, &groups, scale)?,
        AdvEstimator::GrpoPassk => grpo_passk(rewards, mask, &groups, scale)?,
        AdvEstimator::Gdpo => {
            let weight = |index: usize| {
                let weights = algorithm.gdpo_reward_weights.as_ref();
                weights.map_or(1.0, |weights| weights[index])
            };
            let components: Vec<(f64, Tensor)> = algorithm
                .gdpo_reward_keys
                .iter()
                .enumerate()
                .map(|(index, name)| (weight(index), component(batch, name)))
                .collect();
            gdpo(&components, mask, &groups, scale)?
        }
        AdvEstimator::ReinforcePlusPlus => reinforce_plus_plus(rewards, mask, algorithm.gamma)?,
        AdvEstimator::ReinforcePlusPlusBaseline => {
            reinforce_plus_plus_baseline(rewards, mask, &groups)?
        }
        AdvEstimator::Remax => {
            let baselines: Vec<f32> = batch
                .rollouts
                .iter()
                .map(|rollout| part(rollout, GREEDY_BASELINE).unwrap_or(f64::NAN) as f32)
                .collect();
            remax(rewards, &Tensor::from_slice(&baselines), mask)?
        }
        AdvEstimator::Rloo => rloo(rewards, mask, &groups, Alone::Score)?,
        AdvEstimator::RlooVectorized => rloo(rewards, mask, &groups, Alone::Zero)?,
        AdvEstimator::Opo => opo(rewards, mask, &groups)?,
        AdvEstimator::Gpg => gpg(rewards, mask, &groups)?,
        AdvEstimator::OptimalTokenBaseline => optimal_token_baseline(&token_baseline()?, &groups)?,
        AdvEstimator::TirOptimalTokenBaseline => {
            tir_optimal_token_baseline(&token_baseline()?, &groups)?
        }
    })
}
