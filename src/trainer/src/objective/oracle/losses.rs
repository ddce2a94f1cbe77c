//! The policy losses on stored cases.

use serde_json::{Map, Value};

use super::functions::{Refusal, denominators, input, named, outputs, required};
use super::{Case, Outcome};
use crate::objective::policy_loss::{Clip, PolicyBatch, PolicyLoss, Surrogate};

type Answer = Result<Outcome, Refusal>;

/// An actor's clip settings: absent is verl's default, null is `clip_ratio`.
pub(super) fn clip(case: &Case) -> Result<Clip, Refusal> {
    let both = case.param("clip_ratio")?.unwrap_or(0.2);
    let side = |name: &str| -> Result<f64, Refusal> {
        Ok(match case.params.get(name) {
            None => 0.2,
            Some(Value::Null) => both,
            Some(_) => required(case, name)?,
        })
    };
    Ok(Clip {
        low: side("clip_ratio_low")?,
        high: side("clip_ratio_high")?,
        dual: case.param("clip_ratio_c")?.unwrap_or(3.0),
    })
}

fn run(case: &Case, surrogate: &Surrogate) -> Answer {
    let mask = input(case, "response_mask")?;
    let batch = PolicyBatch {
        logprobs: input(case, "log_prob")?,
        old_logprobs: input(case, "old_log_prob")?,
        advantages: input(case, "advantages")?,
        mask,
        rollout_weights: case.input("rollout_is_weights"),
    };
    let mode = surrogate.aggregation(required(case, "loss_agg_mode")?);
    let global: Map<String, Value> = case.param("global_batch_info")?.unwrap_or_default();
    // The draw that the reference made.
    let drawn: Vec<usize> = case.param("perm")?.unwrap_or_default();
    let result = surrogate.loss(
        &batch,
        mode,
        &denominators(&global, mask, mode)?,
        &mut |_| drawn.clone(),
    )?;
    Ok(answer(result))
}

pub(super) fn answer(result: PolicyLoss) -> Outcome {
    let metrics = result.sums.metrics();
    let prefixed: Vec<(String, f64)> = metrics
        .named()
        .map(|(name, value)| (format!("actor/{name}"), value))
        .collect();
    Outcome {
        numbers: named(prefixed.iter().map(|(name, value)| (name.as_str(), *value))),
        ..outputs([("loss", result.loss)])
    }
}

pub(super) fn run_vanilla(case: &Case) -> Answer {
    run(case, &Surrogate::Vanilla(clip(case)?))
}

pub(super) fn run_gspo(case: &Case) -> Answer {
    run(case, &Surrogate::Gspo(clip(case)?))
}

pub(super) fn run_cispo(case: &Case) -> Answer {
    run(case, &Surrogate::Cispo(clip(case)?))
}

pub(super) fn run_sapo(case: &Case) -> Answer {
    run(
        case,
        &Surrogate::Sapo {
            tau_positive: case.param("tau_pos")?.unwrap_or(1.0),
            tau_negative: case.param("tau_neg")?.unwrap_or(1.05),
        },
    )
}

pub(super) fn run_dppo_tv(case: &Case) -> Answer {
    run(case, &Surrogate::DppoTv(clip(case)?))
}

pub(super) fn run_dppo_kl(case: &Case) -> Answer {
    run(case, &Surrogate::DppoKl(clip(case)?))
}

pub(super) fn run_clip_cov(case: &Case) -> Answer {
    run(
        case,
        &Surrogate::ClipCov {
            clip: clip(case)?,
            share: case.param("clip_cov_ratio")?.unwrap_or(0.0002),
            band: (
                case.param("clip_cov_lb")?.unwrap_or(1.0),
                case.param("clip_cov_ub")?.unwrap_or(5.0),
            ),
        },
    )
}

pub(super) fn run_kl_cov(case: &Case) -> Answer {
    run(
        case,
        &Surrogate::KlCov {
            share: case.param("kl_cov_ratio")?.unwrap_or(0.0002),
            coefficient: case.param("ppo_kl_coef")?.unwrap_or(0.1),
        },
    )
}

pub(super) fn run_geo_mean(case: &Case) -> Answer {
    run(case, &Surrogate::GeoMean(clip(case)?))
}

pub(super) fn run_gpg(case: &Case) -> Answer {
    run(case, &Surrogate::Gpg)
}

pub(super) fn run_dro(case: &Case) -> Answer {
    run(
        case,
        &Surrogate::Dro {
            beta: case.param("dro_beta")?.unwrap_or(0.0),
        },
    )
}
