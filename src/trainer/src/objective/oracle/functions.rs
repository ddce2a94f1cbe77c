//! How each stored case is put to our functions.

use std::collections::BTreeMap;

use experiment::settings::{KlEstimator, KlTargetPer, LossAggMode};
use serde_json::{Map, Value};
use tch::{Kind, Tensor};

use super::{Case, Outcome, advantages, bypass, losses, trl};
use crate::objective::aggregate::{Denominators, GlobalCounts, aggregate};
use crate::objective::controller::KlController;
use crate::objective::kl::{MeanKl, apply_kl_penalty, full_kl, kl_per_token};
use crate::objective::logprob::{rounded_entropy, rounded_logprobs, token_logprobs};
use crate::objective::masked;
use crate::objective::value_loss::{ValueBatch, clipped};

pub(super) type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// One function of a reference.
#[derive(Debug)]
pub struct Function {
    /// Of its files.
    pub name: &'static str,
    /// Parameters that it understands.
    pub parameters: &'static [&'static str],
    /// Inputs that its loss has gradients to.
    pub gradients: &'static [&'static str],
    /// An error is a refusal of the case.
    pub compute: fn(&Case) -> Result<Outcome, Refusal>,
}

const fn function(
    name: &'static str,
    parameters: &'static [&'static str],
    gradients: &'static [&'static str],
    compute: fn(&Case) -> Result<Outcome, Refusal>,
) -> Function {
    Function {
        name,
        parameters,
        gradients,
        compute,
    }
}

const GROUPED: &[&str] = &["uid", "epsilon", "norm_adv_by_std_in_grpo"];
const TOKEN_BASELINE: &[&str] = &["uid", "epsilon", "handle_zero_tail"];
const CONTROLLER: &[&str] = &[
    "init_kl_coef",
    "target_kl",
    "horizon",
    "n_steps",
    "current_kl",
    "adaptive",
    "fixed",
];
const AGGREGATED: &[&str] = &[
    "loss_agg_mode",
    "dp_size",
    "batch_num_tokens",
    "global_batch_size",
    "loss_scale_factor",
    "cliprange_value",
    "dtype",
    "quantity",
];
const POLICY: &[&str] = &[
    "loss_agg_mode",
    "global_batch_info",
    "clip_ratio",
    "clip_ratio_low",
    "clip_ratio_high",
    "clip_ratio_c",
    "tau_pos",
    "tau_neg",
    "clip_cov_ratio",
    "clip_cov_lb",
    "clip_cov_ub",
    "perm",
    "kl_cov_ratio",
    "ppo_kl_coef",
    "dro_beta",
    "rollout_correction",
];
const TRL_LOSS: &[&str] = &[
    "loss_type",
    "num_items_in_batch",
    "uses_importance_sampling_ratio",
    "uses_old_log_prob",
    "beta",
    "epsilon_low",
    "epsilon_high",
    "delta",
    "importance_sampling_level",
    "use_bias_correction_kl",
    "off_policy_mask_threshold",
    "top_entropy_quantile",
    "max_completion_length",
    "sapo_temperature_pos",
    "sapo_temperature_neg",
    "vespo_k_pos",
    "vespo_lambda_pos",
    "vespo_k_neg",
    "vespo_lambda_neg",
];
const TRL_ADVANTAGES: &[&str] = &[
    "scale_rewards",
    "multi_objective_aggregation",
    "normalize_advantages",
    "num_generations",
    "reward_weights",
];
const LOG_PROB: &[&str] = &["log_prob"];

pub const FUNCTIONS: &[Function] = &[
    function("gae", &["gamma", "lam"], &[], advantages::run_gae),
    function("adv_grpo", GROUPED, &[], advantages::run_grpo),
    function("adv_grpo_vectorized", GROUPED, &[], advantages::run_grpo),
    function("adv_grpo_passk", GROUPED, &[], advantages::run_grpo_passk),
    function(
        "adv_gdpo",
        &["uid", "epsilon", "norm_adv_by_std_in_grpo", "weights"],
        &[],
        advantages::run_gdpo,
    ),
    function("adv_rloo", GROUPED, &[], advantages::run_rloo),
    function(
        "adv_rloo_vectorized",
        GROUPED,
        &[],
        advantages::run_rloo_vectorized,
    ),
    function("adv_opo", GROUPED, &[], advantages::run_opo),
    function("adv_gpg", GROUPED, &[], advantages::run_gpg),
    function(
        "adv_reinforce_plus_plus",
        &["gamma"],
        &[],
        advantages::run_reinforce_plus_plus,
    ),
    function(
        "adv_reinforce_plus_plus_baseline",
        GROUPED,
        &[],
        advantages::run_reinforce_plus_plus_baseline,
    ),
    function("adv_remax", &[], &[], advantages::run_remax),
    function(
        "adv_optimal_token_baseline",
        TOKEN_BASELINE,
        &[],
        advantages::run_optimal_token_baseline,
    ),
    function(
        "adv_tir_optimal_token_baseline",
        TOKEN_BASELINE,
        &[],
        advantages::run_tir_optimal_token_baseline,
    ),
    function(
        "kl_penalty",
        &["kl_penalty"],
        &["logprob", "ref_logprob"],
        run_kl_penalty,
    ),
    function(
        "apply_kl_penalty",
        &[
            "kl_penalty",
            "controller",
            "init_kl_coef",
            "target_kl",
            "horizon",
        ],
        &[],
        run_apply_kl_penalty,
    ),
    function("kl_full", &[], &["logits"], run_full_kl),
    function("kl_controller", CONTROLLER, &[], run_kl_controller),
    function("agg_loss", AGGREGATED, &["loss_mat"], run_aggregate),
    function("loss_vanilla", POLICY, LOG_PROB, losses::run_vanilla),
    function("loss_gspo", POLICY, LOG_PROB, losses::run_gspo),
    function("loss_cispo", POLICY, LOG_PROB, losses::run_cispo),
    function("loss_sapo", POLICY, LOG_PROB, losses::run_sapo),
    function("loss_dppo_tv", POLICY, LOG_PROB, losses::run_dppo_tv),
    function("loss_dppo_kl", POLICY, LOG_PROB, losses::run_dppo_kl),
    function("loss_clip_cov", POLICY, LOG_PROB, losses::run_clip_cov),
    function("loss_kl_cov", POLICY, LOG_PROB, losses::run_kl_cov),
    function("loss_geo_mean", POLICY, LOG_PROB, losses::run_geo_mean),
    function("loss_gpg", POLICY, LOG_PROB, losses::run_gpg),
    function("loss_dro", POLICY, LOG_PROB, losses::run_dro),
    function("loss_bypass", POLICY, LOG_PROB, bypass::run_bypass),
    function("value_loss", AGGREGATED, &["vpreds"], run_value_loss),
    function(
        "entropy_logprob",
        AGGREGATED,
        &["logits"],
        run_entropy_logprob,
    ),
    function("response_mask", &["eos"], &[], run_response_mask),
    function("masked_stats", &["op"], &[], run_masked_stats),
    function(
        "rollout_correction",
        &[
            "rollout_is",
            "rollout_is_threshold",
            "rollout_is_batch_normalize",
            "rollout_rs",
            "rollout_rs_threshold",
        ],
        &[],
        bypass::run_rollout_correction,
    ),
    function("trl_grpo_loss", TRL_LOSS, LOG_PROB, trl::run_grpo_loss),
    function(
        "trl_grpo_advantages",
        TRL_ADVANTAGES,
        &[],
        trl::run_grpo_advantages,
    ),
    function(
        "trl_rloo_advantages",
        TRL_ADVANTAGES,
        &[],
        trl::run_rloo_advantages,
    ),
];

pub(super) fn input<'a>(case: &'a Case, name: &'static str) -> Result<&'a Tensor, Refusal> {
    case.input(name)
        .ok_or_else(|| format!("the case lacks {name}").into())
}

pub(super) fn required<T: serde::de::DeserializeOwned>(
    case: &Case,
    name: &str,
) -> Result<T, Refusal> {
    case.param(name)?
        .ok_or_else(|| format!("the case lacks {name}").into())
}

pub(super) fn outputs<const N: usize>(outputs: [(&str, Tensor); N]) -> Outcome {
    Outcome {
        outputs: outputs
            .map(|(name, tensor)| (name.to_owned(), tensor))
            .into(),
        ..Outcome::default()
    }
}

pub(super) fn named<'a>(
    numbers: impl IntoIterator<Item = (&'a str, f64)>,
) -> BTreeMap<String, f64> {
    numbers
        .into_iter()
        .map(|(name, number)| (name.to_owned(), number))
        .collect()
}

fn run_kl_penalty(case: &Case) -> Result<Outcome, Refusal> {
    let estimator: KlEstimator = required(case, "kl_penalty")?;
    let kl = kl_per_token(
        input(case, "logprob")?,
        input(case, "ref_logprob")?,
        estimator,
    )?;
    let loss = masked::sum(&kl, input(case, "response_mask")?);
    Ok(outputs([("kl", kl), ("loss", loss)]))
}

fn run_full_kl(case: &Case) -> Result<Outcome, Refusal> {
    let logits = input(case, "logits")?; // [B, T, V]
    let size = logits.size();
    let rows = [-1, *size.last().unwrap_or(&1)];
    let kl = full_kl(
        &logits.reshape(rows),
        &input(case, "ref_logits")?.reshape(rows),
        1.0,
    )?
    .reshape(&size[..size.len().saturating_sub(1)]);
    let loss = match case.input("response_mask") {
        Some(mask) => masked::sum(&kl, mask),
        None => kl.sum(kl.kind()),
    };
    Ok(outputs([("kl", kl), ("loss", loss)]))
}

/// The controller as the case's parameters describe it.
fn controller(case: &Case, kind: &str) -> Result<KlController, Refusal> {
    let coefficient = required(case, "init_kl_coef")?;
    Ok(match kind {
        "fixed" => KlController::Fixed { coefficient },
        "adaptive" => KlController::Adaptive {
            coefficient,
            target_kl: required(case, "target_kl")?,
            horizon: required(case, "horizon")?,
            per: KlTargetPer::Token,
            bounds: None,
            pinned: 0,
        },
        other => return Err(format!("no controller is called {other}").into()),
    })
}

fn run_apply_kl_penalty(case: &Case) -> Result<Outcome, Refusal> {
    let mut controller = controller(case, &required::<String>(case, "controller")?)?;
    let before = controller.coefficient();
    let scores = input(case, "token_level_scores")?;
    let penalty = apply_kl_penalty(
        scores,
        input(case, "old_log_probs")?,
        input(case, "ref_log_prob")?,
        input(case, "response_mask")?,
        required(case, "kl_penalty")?,
        before,
    )?;
    controller.update(penalty.mean_kl, scores.size()[0] as u64);
    Ok(Outcome {
        numbers: named([
            ("coef_after", controller.coefficient()),
            ("actor/reward_kl_penalty", penalty.mean_kl.per_token),
            ("actor/reward_kl_penalty_coeff", before),
        ]),
        ..outputs([("token_level_rewards", penalty.token_rewards)])
    })
}

fn run_kl_controller(case: &Case) -> Result<Outcome, Refusal> {
    let seen: Vec<f64> = required(case, "current_kl")?;
    let sequences: u64 = required(case, "n_steps")?;
    let mut outcome = Outcome::default();
    for kind in ["adaptive", "fixed"] {
        let mut controller = controller(case, kind)?;
        let coefficients = seen.iter().map(|kl| {
            let seen = MeanKl {
                per_token: *kl,
                per_sequence: *kl,
            };
            controller.update(seen, sequences);
            controller.coefficient()
        });
        outcome
            .series
            .insert(kind.to_owned(), coefficients.collect());
    }
    Ok(outcome)
}

/// Global counts from the parameters themselves or from one of them.
pub(super) fn denominators(
    params: &Map<String, Value>,
    mask: &Tensor,
    mode: LossAggMode,
) -> Result<Denominators, Refusal> {
    let number = |name: &str| params.get(name).and_then(Value::as_f64);
    let counts = GlobalCounts {
        ranks: number("dp_size").unwrap_or(1.0) as u32,
        tokens: number("batch_num_tokens"),
        sequences: number("global_batch_size"),
        loss_scale_factor: number("loss_scale_factor"),
    };
    Ok(Denominators::new(mask, mode, &counts)?)
}

fn run_aggregate(case: &Case) -> Result<Outcome, Refusal> {
    let mode = required(case, "loss_agg_mode")?;
    let mask = input(case, "response_mask")?;
    let denominators = denominators(&case.params, mask, mode)?;
    let loss = aggregate(input(case, "loss_mat")?, mask, mode, &denominators);
    Ok(outputs([("loss", loss)]))
}

fn run_value_loss(case: &Case) -> Result<Outcome, Refusal> {
    let mode = required(case, "loss_agg_mode")?;
    let mask = input(case, "response_mask")?;
    let result = clipped(
        &ValueBatch {
            predictions: input(case, "vpreds")?,
            old_values: input(case, "values")?,
            returns: input(case, "returns")?,
            mask,
        },
        required(case, "cliprange_value")?,
        mode,
        &denominators(&case.params, mask, mode)?,
    )?;
    let clip_fraction = Tensor::from(result.sums.metrics().clip_fraction);
    Ok(outputs([
        ("loss", result.loss),
        ("clipfrac", clip_fraction),
    ]))
}

fn run_entropy_logprob(case: &Case) -> Result<Outcome, Refusal> {
    let logits = input(case, "logits")?; // [B, T, V]
    let mask = input(case, "response_mask")?;
    let vocabulary = *logits.size().last().unwrap_or(&1);
    let rows = logits.reshape([-1, vocabulary]);
    if required::<String>(case, "quantity")? == "logprob" {
        let labels = input(case, "labels")?.to_kind(Kind::Int64).reshape([-1]);
        let logprobs = if rows.kind() == Kind::BFloat16 {
            rounded_logprobs(&rows, &labels)
        } else {
            token_logprobs(&rows, &labels, 1.0, false)?.logprobs
        };
        let logprobs = logprobs.view_as(mask);
        let loss = masked::sum(&logprobs, mask);
        return Ok(outputs([("logprob", logprobs), ("loss", loss)]));
    }
    let mode = required(case, "loss_agg_mode")?;
    let entropy = if rows.kind() == Kind::BFloat16 {
        rounded_entropy(&rows)
    } else {
        let labels = Tensor::zeros([rows.size()[0]], (Kind::Int64, rows.device()));
        let result = token_logprobs(&rows, &labels, 1.0, true)?;
        result.entropy.ok_or("no entropy came back")?
    };
    let entropy = entropy.view_as(mask);
    let loss = aggregate(
        &entropy,
        mask,
        mode,
        &denominators(&case.params, mask, mode)?,
    );
    Ok(outputs([("entropy", entropy), ("loss", loss)]))
}

fn run_response_mask(case: &Case) -> Result<Outcome, Refusal> {
    let stops = match case.params.get("eos") {
        Some(Value::Array(_)) => required(case, "eos")?,
        _ => vec![required(case, "eos")?],
    };
    let mask = masked::until_stop(input(case, "response_ids")?, &stops);
    Ok(outputs([("response_mask", mask)]))
}

fn run_masked_stats(case: &Case) -> Result<Outcome, Refusal> {
    let (values, mask) = (input(case, "values")?, input(case, "response_mask")?);
    let statistic = match required::<String>(case, "op")?.as_str() {
        "sum" => masked::sum(values, mask),
        "mean" => masked::mean(values, mask),
        "mean_axis1" => masked::mean_per_sequence(values, mask),
        "var" => masked::variance(values, mask)?,
        "var_biased" => masked::biased_variance(values, mask),
        "whiten" => masked::whiten(values, mask, true)?,
        "whiten_noshift" => masked::whiten(values, mask, false)?,
        other => return Err(format!("no statistic is called {other}").into()),
    };
    Ok(outputs([("y", statistic)]))
}
