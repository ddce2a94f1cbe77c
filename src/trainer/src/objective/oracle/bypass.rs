//! The rollout correction and the bypass loss on stored cases.

use experiment::settings::ImportanceLevel;
use serde_json::{Map, Value};

use super::functions::{Refusal, denominators, input, outputs, required};
use super::losses::{answer, clip};
use super::{Case, Outcome};
use crate::objective::policy_loss::{PolicyBatch, Surrogate};
use crate::objective::rejection::Rejection;
use crate::objective::rollout_correction::{
    ImportanceSampling, RolloutCorrected, rollout_correction,
};

type Answer = Result<Outcome, Refusal>;

/// Weights, and metrics with those of the rejection.
type Corrected = (RolloutCorrected, tch::Tensor, Vec<(String, f64)>);

/// verl's settings of the rollout correction.
struct Correction {
    sampling: Option<ImportanceSampling>,
    rejection: Option<Rejection>,
}

impl Correction {
    fn new(settings: &Map<String, Value>) -> Result<Self, Refusal> {
        let given = |name: &str| settings.get(name).filter(|value| !value.is_null());
        let level: Option<ImportanceLevel> = given("rollout_is")
            .map(|level| serde_json::from_value(level.clone()))
            .transpose()?;
        // A number is the upper bound, "lower_upper" a band.
        let (lower, upper) = match given("rollout_is_threshold") {
            Some(Value::String(band)) => match band.split_once('_') {
                Some((lower, upper)) => (Some(lower.trim().parse()?), upper.trim().parse()?),
                None => (None, band.trim().parse()?),
            },
            number => (None, number.and_then(Value::as_f64).unwrap_or(2.0)),
        };
        let normalize = given("rollout_is_batch_normalize").and_then(Value::as_bool);
        let threshold = given("rollout_rs_threshold").map(|threshold| match threshold {
            Value::String(text) => text.clone(),
            number => number.to_string(),
        });
        let rejection = match (given("rollout_rs"), threshold) {
            (None, _) => None,
            (Some(options), Some(threshold)) => {
                let options = options.as_str().ok_or("rollout_rs is not a text")?;
                Some(Rejection::parse(options, &threshold)?)
            }
            (Some(_), None) => return Err("rollout_rs needs rollout_rs_threshold".into()),
        };
        Ok(Self {
            sampling: level.map(|level| ImportanceSampling {
                level,
                upper,
                lower,
                batch_normalize: normalize.unwrap_or(false),
            }),
            rejection,
        })
    }

    /// Weights and metrics over the whole mask, and the mask without what is rejected.
    fn apply(
        &self,
        logprobs: &tch::Tensor,
        rollout_logprobs: &tch::Tensor,
        mask: &tch::Tensor,
    ) -> Result<Corrected, Refusal> {
        let corrected =
            rollout_correction(logprobs, rollout_logprobs, mask, self.sampling.as_ref())?;
        let mut metrics: Vec<(String, f64)> = corrected
            .metrics
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect();
        let Some(rejection) = &self.rejection else {
            return Ok((corrected, mask.shallow_clone(), metrics));
        };
        let rejected = rejection.apply(logprobs, rollout_logprobs, mask)?;
        metrics.extend(rejected.metrics);
        Ok((corrected, rejected.mask, metrics))
    }
}

pub(super) fn run_rollout_correction(case: &Case) -> Answer {
    let mask = input(case, "response_mask")?;
    let (corrected, mask_after, metrics) = Correction::new(&case.params)?.apply(
        input(case, "old_log_prob")?,
        input(case, "rollout_log_prob")?,
        mask,
    )?;
    let mut outcome = Outcome {
        numbers: metrics.into_iter().collect(),
        ..outputs([("response_mask_after", mask_after)])
    };
    if let Some(weights) = corrected.weights {
        outcome
            .outputs
            .insert("rollout_is_weights".to_owned(), weights);
    }
    Ok(outcome)
}

/// `ppo_clip`: the clipped loss with the rollout's log-probs as the old ones, and no weights, which would count the ratio twice.
/// `reinforce`: −A·log π with the weights. Both without what is rejected.
pub(super) fn run_bypass(case: &Case) -> Answer {
    let mask = input(case, "response_mask")?;
    let settings: Map<String, Value> = required(case, "rollout_correction")?;
    let (logprobs, rollout) = (input(case, "log_prob")?, input(case, "old_log_prob")?);
    let (corrected, mask_after, metrics) =
        Correction::new(&settings)?.apply(logprobs, rollout, mask)?;
    let (surrogate, weights) = match settings.get("loss_type").and_then(Value::as_str) {
        None | Some("ppo_clip") => (Surrogate::Vanilla(clip(case)?), None),
        Some("reinforce") => (Surrogate::Reinforce, corrected.weights),
        Some(other) => {
            return Err(format!("loss_type is {other}; expected ppo_clip or reinforce").into());
        }
    };
    let mode = required(case, "loss_agg_mode")?;
    let global: Map<String, Value> = case.param("global_batch_info")?.unwrap_or_default();
    let result = surrogate.loss(
        &PolicyBatch {
            logprobs,
            old_logprobs: rollout,
            advantages: input(case, "advantages")?,
            mask: &mask_after,
            rollout_weights: weights.as_ref(),
        },
        mode,
        &denominators(&global, &mask_after, mode)?,
        &mut |_| Vec::new(),
    )?;
    let mut outcome = answer(result);
    outcome.numbers.extend(metrics);
    Ok(outcome)
}
