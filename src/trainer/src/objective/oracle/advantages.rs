//! The advantage estimators on stored cases.

use tch::Tensor;

use super::functions::{Refusal, input, outputs, required};
use super::{Case, Outcome};
use crate::objective::advantage::{
    Advantages, Alone, Scale, TokenBaselineInputs, gae, gdpo, gpg, grpo, grpo_passk, opo,
    optimal_token_baseline, reinforce_plus_plus, reinforce_plus_plus_baseline, remax, rloo,
    tir_optimal_token_baseline,
};

type Answer = Result<Outcome, Refusal>;

fn answer(result: Advantages) -> Outcome {
    outputs([
        ("advantages", result.advantages),
        ("returns", result.returns),
    ])
}

fn rewards(case: &Case) -> Result<&Tensor, Refusal> {
    input(case, "token_level_rewards")
}

fn mask(case: &Case) -> Result<&Tensor, Refusal> {
    input(case, "response_mask")
}

fn groups(case: &Case) -> Result<Vec<String>, Refusal> {
    required(case, "uid")
}

fn scale(case: &Case) -> Result<Scale, Refusal> {
    Ok(if case.param("norm_adv_by_std_in_grpo")?.unwrap_or(true) {
        Scale::Deviation(case.param("epsilon")?.unwrap_or(1e-6))
    } else {
        Scale::None
    })
}

pub(super) fn run_gae(case: &Case) -> Answer {
    Ok(answer(gae(
        rewards(case)?,
        input(case, "values")?,
        mask(case)?,
        required(case, "gamma")?,
        required(case, "lam")?,
    )?))
}

pub(super) fn run_grpo(case: &Case) -> Answer {
    Ok(answer(grpo(
        rewards(case)?,
        mask(case)?,
        &groups(case)?,
        scale(case)?,
    )?))
}

pub(super) fn run_grpo_passk(case: &Case) -> Answer {
    Ok(answer(grpo_passk(
        rewards(case)?,
        mask(case)?,
        &groups(case)?,
        scale(case)?,
    )?))
}

/// Inputs `reward_<name>` \[B\] are the components, in the order of the case's inputs; without them the rewards are the only one.
pub(super) fn run_gdpo(case: &Case) -> Answer {
    let mask = mask(case)?;
    let names: Vec<&str> = case
        .input_names()
        .filter(|name| name.starts_with("reward_"))
        .collect();
    let weights: Option<Vec<f64>> = case.param("weights")?;
    if let Some(weights) = weights
        .as_ref()
        .filter(|weights| weights.len() != names.len())
    {
        return Err(format!("{} weights for {} components", weights.len(), names.len()).into());
    }
    let mut components = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let scores = case
            .input(name)
            .ok_or_else(|| format!("the case lacks {name}"))?;
        let mut token_rewards = vec![0.0_f64; mask.numel()];
        let width = (*mask.size().last().unwrap_or(&0) as usize).max(1);
        for (row, score) in super::compare::numbers(scores).iter().enumerate() {
            token_rewards[row * width] = *score;
        }
        let token_rewards = Tensor::from_slice(&token_rewards).view_as(mask);
        let weight = weights.as_ref().map_or(1.0, |weights| weights[index]);
        components.push((weight, token_rewards));
    }
    if components.is_empty() {
        components.push((1.0, rewards(case)?.shallow_clone()));
    }
    Ok(answer(gdpo(
        &components,
        mask,
        &groups(case)?,
        scale(case)?,
    )?))
}

pub(super) fn run_rloo(case: &Case) -> Answer {
    Ok(answer(rloo(
        rewards(case)?,
        mask(case)?,
        &groups(case)?,
        Alone::Score,
    )?))
}

pub(super) fn run_rloo_vectorized(case: &Case) -> Answer {
    Ok(answer(rloo(
        rewards(case)?,
        mask(case)?,
        &groups(case)?,
        Alone::Zero,
    )?))
}

pub(super) fn run_opo(case: &Case) -> Answer {
    Ok(answer(opo(rewards(case)?, mask(case)?, &groups(case)?)?))
}

pub(super) fn run_gpg(case: &Case) -> Answer {
    Ok(answer(gpg(rewards(case)?, mask(case)?, &groups(case)?)?))
}

pub(super) fn run_reinforce_plus_plus(case: &Case) -> Answer {
    Ok(answer(reinforce_plus_plus(
        rewards(case)?,
        mask(case)?,
        required(case, "gamma")?,
    )?))
}

pub(super) fn run_reinforce_plus_plus_baseline(case: &Case) -> Answer {
    Ok(answer(reinforce_plus_plus_baseline(
        rewards(case)?,
        mask(case)?,
        &groups(case)?,
    )?))
}

pub(super) fn run_remax(case: &Case) -> Answer {
    Ok(answer(remax(
        rewards(case)?,
        input(case, "reward_baselines")?,
        mask(case)?,
    )?))
}

fn token_baseline(case: &Case) -> Result<TokenBaselineInputs<'_>, Refusal> {
    Ok(TokenBaselineInputs {
        token_rewards: rewards(case)?,
        old_logprobs: input(case, "old_log_probs")?,
        sum_pi_squared: input(case, "sum_pi_squared")?,
        rollout_weights: case.input("rollout_is_weights"),
        mask: mask(case)?,
        zero_tail: case.param("handle_zero_tail")?.unwrap_or(true),
        epsilon: case.param("epsilon")?.unwrap_or(1e-8),
    })
}

pub(super) fn run_optimal_token_baseline(case: &Case) -> Answer {
    Ok(answer(optimal_token_baseline(
        &token_baseline(case)?,
        &groups(case)?,
    )?))
}

pub(super) fn run_tir_optimal_token_baseline(case: &Case) -> Answer {
    Ok(answer(tir_optimal_token_baseline(
        &token_baseline(case)?,
        &groups(case)?,
    )?))
}
