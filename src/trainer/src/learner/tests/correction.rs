use experiment::correction::Band;
use experiment::settings::{BypassLoss, ImportanceLevel, RolloutCorrection};

use super::*;
use crate::learner::correction::Corrected;
use crate::learner::metrics::StepValues;

fn correction(change: impl FnOnce(&mut RolloutCorrection)) -> Learner {
    learner(|experiment| change(&mut experiment.algorithm.rollout_correction))
}

/// Log-probs of the drawn tokens under the learner's weights, `[B, T]`.
fn own_logprobs(learner: &Learner, batch: &TrainBatch) -> Tensor {
    let micros = batch.micro_batches(&[0, 1], learner.forward_limit(), Device::Cpu);
    let model = &learner.actor.model;
    let (logprobs, _) = learner
        .logprobs_without_gradients(model, &micros, batch, false)
        .expect("log-probs");
    logprobs
}

fn correct(learner: &Learner, old: &Tensor, batch: &TrainBatch) -> (Corrected, StepValues, usize) {
    let (mut values, mut alarms) = (StepValues::default(), Vec::new());
    let corrected = learner
        .correct(old, 3, batch, &mut values, &mut alarms)
        .expect("a correction");
    (corrected, values, alarms.len())
}

/// Tokens far from and near to the rollout's −3.9: the log-ratio is +2 in group a's first row, −2 in its third, 0 elsewhere.
fn parted(batch: &TrainBatch) -> Tensor {
    let old = batch.behavior_logprobs.copy();
    let _ = old.get(0).g_add_scalar_(2.0);
    let _ = old.get(2).g_sub_scalar_(2.0);
    old * &batch.mask
}

#[test]
fn a_band_of_importance_weights_lets_those_outside_weigh_nothing() {
    let learner = correction(|correction| {
        correction.rollout_is = Some(ImportanceLevel::Token);
        correction.rollout_is_threshold = Band::parse("0.5_5.0").expect("a band");
    });
    let batch = TrainBatch::new(rollouts(), true, Device::Cpu);
    let (corrected, values, alarms) = correct(&learner, &parted(&batch), &batch);
    let weights = corrected.weights.expect("weights");
    let expected = batch.mask.copy();
    let _ = expected.get(0).zero_();
    let _ = expected.get(2).zero_();
    assert!(weights.allclose(&expected, 1e-5, 1e-6, false), "{weights}");
    assert_eq!(alarms, 0);
    assert!(values.0.contains_key("rollout_corr/rollout_is_oob_ratio"));
}

#[test]
fn what_is_rejected_teaches_nothing_and_the_rest_is_averaged_without_it() {
    let learner = correction(|correction| {
        correction.rollout_rs = Some("seq_mean_k1".to_owned());
        correction.rollout_rs_threshold = Some("2.0".to_owned());
    });
    let batch = TrainBatch::new(rollouts(), true, Device::Cpu);
    let (corrected, values, _) = correct(&learner, &parted(&batch), &batch);
    let rows: Vec<f32> = Vec::try_from(corrected.mask.sum_dim_intlist(
        &[1i64][..],
        false,
        Kind::Float,
    ))
    .expect("a vector");
    assert_eq!(rows, [0.0, 1.0, 0.0, 2.0, 2.0]);
    let share = values.0["rollout_corr/rollout_rs_masked_fraction"].0;
    assert!((share - 7.0 / 12.0).abs() < 1e-6, "{share}");

    let with = |advantage: f32| {
        let advantages = Tensor::from_slice(&[advantage, -1.0, advantage, -0.7, 0.7]);
        gradients_of(&learner, ANY_SIZE, &corrected, &advantages)
    };
    for (one, other) in with(1.0).iter().zip(with(-30.0)) {
        assert_eq!(one, &other);
    }
}

#[test]
fn a_batch_of_which_all_is_rejected_changes_no_weight_and_is_told() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let recorder = recorder(root.path());
    let mut learner = learner(|experiment| {
        let correction = &mut experiment.algorithm.rollout_correction;
        correction.rollout_rs = Some("token_k2".to_owned());
        correction.rollout_rs_threshold = Some("1e-9".to_owned());
        experiment.actor_rollout_ref.actor.optim.lr = 0.1;
    });
    let before = learner
        .actor
        .model
        .parameters()
        .deep_copy(Kind::Float, Device::Cpu);
    let outcome = learner.step(1, 0, rollouts(), &recorder).expect("a step");
    assert!(
        outcome
            .alarms
            .iter()
            .any(|(name, _)| *name == "every token rejected"),
        "{:?}",
        outcome.alarms
    );
    for ((name, weight), (_, was)) in learner.actor.model.parameters().iter().zip(before.iter()) {
        assert_eq!(weight, was, "{name}");
    }
}

#[test]
fn bypass_losses_agree_where_the_policy_is_the_rollouts_and_depend_on_no_micro_batch() {
    let learner_with = |loss_type| {
        learner(|experiment| {
            let correction = &mut experiment.algorithm.rollout_correction;
            correction.bypass_mode = true;
            correction.loss_type = loss_type;
            correction.rollout_is = Some(ImportanceLevel::Sequence);
            correction.rollout_rs = Some("token_k1".to_owned());
            correction.rollout_rs_threshold = Some("3".to_owned());
        })
    };
    let [clipped, plain] = [BypassLoss::PpoClip, BypassLoss::Reinforce].map(learner_with);
    for learner in [&clipped, &plain] {
        assert_same_gradient_however_cut(learner, "bypass");
    }
    let mut batch = TrainBatch::new(rollouts(), true, Device::Cpu);
    batch.behavior_logprobs = own_logprobs(&clipped, &batch);
    let advantages = Tensor::from_slice(&[1.0f32, -1.0, 0.25, -0.7, 0.7]);
    let of = |learner: &Learner| {
        let (corrected, ..) = correct(learner, &batch.behavior_logprobs, &batch);
        gradients_in(learner, ANY_SIZE, &batch, &corrected, &advantages)
    };
    for (one, other) in of(&clipped).iter().zip(of(&plain)) {
        assert!(one.allclose(&other, 1e-4, 1e-7, false));
    }
}

#[test]
fn the_sample_size_is_told_for_each_age_of_the_tokens() {
    let learner = correction(|_| {});
    let mut rollouts = rollouts();
    // Of weights of version 1 and 3, where 3 is the newest: two and no versions old.
    rollouts[0].policy_versions.fill(1);
    rollouts[1].policy_versions.fill(1);
    for rollout in &mut rollouts[2..] {
        rollout.policy_versions.fill(3);
    }
    let batch = TrainBatch::new(rollouts, true, Device::Cpu);
    let old = batch.behavior_logprobs.copy();
    let _ = old.get(1).g_add_scalar_(3.0_f64.ln());
    let (_, values, _) = correct(&learner, &(old * &batch.mask), &batch);
    // Three tokens of weight 1 and one of weight 3.
    let size = values.0["rollout_corr/ess_age_2"].0;
    assert!((size - 36.0 / (4.0 * 12.0)).abs() < 1e-5, "{size}");
    assert!((values.0["rollout_corr/ess_age_0"].0 - 1.0).abs() < 1e-6);
    assert!(!values.0.contains_key("rollout_corr/ess_age_1"));
}
