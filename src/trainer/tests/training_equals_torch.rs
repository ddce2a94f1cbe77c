//! Four optimizer steps of the clipped policy loss end where `PyTorch`'s do: forward, log-probs, loss, clipping and `AdamW` together.

mod common;

use common::{MODELS, Oracle, directory, load};
use experiment::settings::{LossAggMode, Optim};
use tch::{Kind, Tensor};
use trainer::model::packed::PackedBatch;
use trainer::model::transformer::Transformer;
use trainer::objective::aggregate::{Denominators, GlobalCounts};
use trainer::objective::logprob::token_logprobs;
use trainer::objective::policy_loss::{Clip, PolicyBatch, vanilla};
use trainer::optimizer::{AdamW, MasterWeights, StepOutcome};

/// log π of the oracle's greedy tokens after their prompts: \[4, 32\].
fn response_logprobs(oracle: &Oracle, model: &Transformer) -> Tensor {
    let (prompts, responses) = (oracle.prompts(), oracle.ids("greedy_ids"));
    let mut batch = PackedBatch::default();
    let mut rows: Vec<i64> = Vec::new();
    for ((_, prompt), response) in prompts.iter().zip(&responses) {
        let group = batch.push_group(prompt, &[response]);
        // The row before a token scores it.
        rows.push(group.prompt.end as i64 - 1);
        rows.extend(
            group.branches[0]
                .clone()
                .map(|row| row as i64)
                .take(response.len() - 1),
        );
    }
    let targets: Vec<i64> = responses
        .iter()
        .flatten()
        .map(|id| i64::from(*id))
        .collect();
    let logits = model.logits(
        &model
            .hidden(&batch)
            .rows
            .index_select(0, &Tensor::from_slice(&rows)),
    );
    token_logprobs(&logits, &Tensor::from_slice(&targets), 1.0, false)
        .unwrap()
        .logprobs
        .view_as(oracle.get("train_old_logprobs"))
}

fn train_step_numbers(model: &str) -> Vec<(f64, f64)> {
    let text = std::fs::read_to_string(directory(model).join("oracle.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let steps = json["train"]["steps"].as_array().unwrap();
    let number = |step: &serde_json::Value, name: &str| step[name].as_f64().unwrap();
    steps
        .iter()
        .map(|step| (number(step, "loss"), number(step, "grad_norm_before_clip")))
        .collect()
}

#[test]
fn four_steps_give_pytorchs_losses_gradient_norms_and_logprobs() {
    for name in MODELS {
        let oracle = Oracle::of(name);
        let parameters = load(name, Kind::Float).set_requires_grad(true);
        let model = Transformer::new(parameters, Kind::Float, false);
        let settings = Optim {
            lr: 2e-4,
            clip_grad: 1.0,
            ..Optim::default()
        };
        let named = model
            .parameters()
            .iter()
            .map(|(name, tensor)| (name.to_owned(), tensor.shallow_clone()));
        let mut optimizer = AdamW::new(named, &settings, MasterWeights::Float32).unwrap();
        let mask = oracle.get("train_response_mask");
        let mode = LossAggMode::TokenMean;
        let denominators = Denominators::new(mask, mode, &GlobalCounts::default()).unwrap();
        // The oracle's loss has no dual clip.
        let clip = Clip {
            low: 0.2,
            high: 0.2,
            dual: 1e9,
        };
        let expected = train_step_numbers(name);
        assert_eq!(expected.len(), 4);
        for (step, (expected_loss, expected_norm)) in expected.into_iter().enumerate() {
            optimizer.clear_grads().unwrap();
            let batch = PolicyBatch {
                logprobs: &response_logprobs(&oracle, &model),
                old_logprobs: oracle.get("train_old_logprobs"),
                advantages: oracle.get("train_advantages"),
                mask,
                rollout_weights: None,
            };
            let loss = vanilla(&batch, &clip, mode, &denominators).unwrap().loss;
            loss.backward();
            let loss = loss.double_value(&[]);
            // Float32 against float64 runs of the oracle differ by about 1e-7 here.
            assert!(
                (loss - expected_loss).abs() < 2e-6,
                "{name} step {step}: loss {loss}, not {expected_loss}"
            );
            let outcome = optimizer.step(settings.lr).unwrap();
            assert!(matches!(outcome, StepOutcome::Stepped { .. }));
            let norm = outcome.grad_norm();
            assert!(
                (norm - expected_norm).abs() < 1e-5 * expected_norm.max(1.0),
                "{name} step {step}: gradient norm {norm}, not {expected_norm}"
            );
        }
        let after = tch::no_grad(|| response_logprobs(&oracle, &model));
        let difference = (after - oracle.get("train_logprobs_after"))
            .abs()
            .max()
            .double_value(&[]);
        assert!(
            difference < 5e-5,
            "{name}: log-probs after training differ by {difference}"
        );
    }
}
