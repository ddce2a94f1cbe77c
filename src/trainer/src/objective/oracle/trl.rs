//! TRL's losses and advantages on stored cases.

use tch::{Kind, Tensor};

use super::compare::numbers;
use super::functions::{Refusal, input, named, outputs, required};
use super::{Case, Outcome};
use crate::objective::trl::{self, Batch, Rewards, Settings};

type Answer = Result<Outcome, Refusal>;

pub(super) fn run_grpo_loss(case: &Case) -> Answer {
    let number = |name: &str, default: f64| -> Result<f64, Refusal> {
        Ok(case.param(name)?.unwrap_or(default))
    };
    let settings = Settings {
        loss_type: required(case, "loss_type")?,
        level: required(case, "importance_sampling_level")?,
        epsilon_low: required(case, "epsilon_low")?,
        epsilon_high: required(case, "epsilon_high")?,
        delta: case.param("delta")?,
        beta: number("beta", 0.0)?,
        use_bias_correction_kl: case.param("use_bias_correction_kl")?.unwrap_or(false),
        off_policy_mask_threshold: case.param("off_policy_mask_threshold")?,
        top_entropy_quantile: number("top_entropy_quantile", 1.0)?,
        sapo_temperature: [
            number("sapo_temperature_pos", 1.0)?,
            number("sapo_temperature_neg", 1.05)?,
        ],
        vespo: [
            (
                number("vespo_k_pos", 2.0)?,
                number("vespo_lambda_pos", 3.0)?,
            ),
            (
                number("vespo_k_neg", 3.0)?,
                number("vespo_lambda_neg", 2.0)?,
            ),
        ],
        num_items_in_batch: required(case, "num_items_in_batch")?,
        max_completion_length: number("max_completion_length", 1.0)?,
    };
    let uses = |name: &str| -> Result<bool, Refusal> { Ok(case.param(name)?.unwrap_or(true)) };
    let completion = input(case, "completion_mask")?;
    let mask = match case.input("tool_mask") {
        Some(tool) => completion.to_kind(Kind::Bool).logical_and(tool),
        None => completion.to_kind(Kind::Bool),
    };
    let answer = trl::grpo_loss(
        &settings,
        &Batch {
            logprobs: input(case, "log_prob")?,
            old_logprobs: case
                .input("old_log_prob")
                .filter(|_| uses("uses_old_log_prob").unwrap_or(true)),
            ref_logprobs: input(case, "ref_log_prob")?,
            advantages: input(case, "advantages")?,
            mask: &mask,
            entropies: input(case, "entropies")?,
            importance_ratio: case
                .input("importance_sampling_ratio")
                .filter(|_| uses("uses_importance_sampling_ratio").unwrap_or(true)),
        },
    );
    Ok(Outcome {
        numbers: named(answer.numbers),
        ..outputs([("loss", answer.loss)])
    })
}

/// Rows, weights, samples a group.
type Given = (Vec<Vec<f64>>, Vec<f64>, usize);

fn rewards(case: &Case) -> Result<Given, Refusal> {
    let table = input(case, "rewards_per_func")?;
    let columns = (*table.size().last().unwrap_or(&1) as usize).max(1);
    let rows: Vec<Vec<f64>> = numbers(table)
        .chunks(columns)
        .map(<[f64]>::to_vec)
        .collect();
    let weights = case
        .param("reward_weights")?
        .unwrap_or_else(|| vec![1.0; columns]);
    Ok((rows, weights, required(case, "num_generations")?))
}

fn advantages(result: &trl::Advantages) -> Outcome {
    let values: Vec<f32> = result
        .advantages
        .iter()
        .map(|value| *value as f32)
        .collect();
    Outcome {
        numbers: named([
            ("reward", result.reward),
            ("reward_std", result.reward_std),
            ("frac_reward_zero_std", result.frac_reward_zero_std),
        ]),
        ..outputs([("advantages", Tensor::from_slice(&values))])
    }
}

pub(super) fn run_grpo_advantages(case: &Case) -> Answer {
    let (per_function, weights, group) = rewards(case)?;
    let given = Rewards {
        per_function: &per_function,
        weights: &weights,
        group,
    };
    Ok(advantages(&trl::grpo_advantages(
        &given,
        required(case, "scale_rewards")?,
        required(case, "multi_objective_aggregation")?,
    )?))
}

pub(super) fn run_rloo_advantages(case: &Case) -> Answer {
    let (per_function, weights, group) = rewards(case)?;
    let given = Rewards {
        per_function: &per_function,
        weights: &weights,
        group,
    };
    Ok(advantages(&trl::rloo_advantages(
        &given,
        case.param("normalize_advantages")?.unwrap_or(false),
    )?))
}
