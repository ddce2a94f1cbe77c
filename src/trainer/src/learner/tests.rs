mod correction;
mod restoring;

use std::sync::Arc;

use dialogue::rollout::{Finish, Rollout};
use experiment::Experiment;
use experiment::estimators::ESTIMATORS;
use experiment::losses::LOSSES;
use experiment::settings::{KlEstimator, LossAggMode};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use runlog::recorder::{Options, Recorder};
use runlog::run_dir::{NewRun, RunDir};
use tch::{Device, Kind, Tensor};

use super::batch::{LeftOut, MicroLimit, TrainBatch};
use super::correction::Corrected;
use super::update::{ActorInputs, Means};
use super::{GREEDY_BASELINE, Learner, TrainedBatch};
use crate::model::config::ModelConfig;
use crate::model::parameters::Parameters;

/// A rollout whose response is `spans` of tokens, drawn by the model or not.
fn rollout(
    uid: &str,
    sample: u32,
    prompt: &[u32],
    spans: &[(bool, &[u32])],
    score: Option<f64>,
) -> Rollout {
    let response_ids: Vec<u32> = spans.iter().flat_map(|(_, ids)| ids.to_vec()).collect();
    let response_mask: Vec<bool> = spans
        .iter()
        .flat_map(|(drawn, ids)| vec![*drawn; ids.len()])
        .collect();
    Rollout {
        behavior_logprobs: response_mask
            .iter()
            .map(|drawn| if *drawn { -3.9 } else { 0.0 })
            .collect(),
        policy_versions: vec![0; response_ids.len()],
        uid: uid.to_owned(),
        sample,
        prompt_ids: prompt.to_vec(),
        response_ids,
        response_mask,
        score,
        score_error: None,
        score_parts: std::collections::BTreeMap::new(),
        says: None,
        data_source: "lathe/calc".to_owned(),
        row_index: 0,
        messages: Vec::new(),
        assistant_turns: 1,
        tools: Vec::new(),
        finish: Finish::Stop,
        error: None,
        generate_ms: 0.0,
        tool_ms: 0.0,
        reward_ms: 0.0,
    }
}

/// Two groups of ragged dialogues with a tool span in some, and a group of one.
fn rollouts() -> Vec<Rollout> {
    vec![
        rollout(
            "a",
            0,
            &[1, 2, 3],
            &[(true, &[4, 5]), (false, &[6, 7, 8]), (true, &[9])],
            Some(1.0),
        ),
        rollout("a", 1, &[1, 2, 3], &[(true, &[10])], Some(0.0)),
        rollout("a", 2, &[1, 2, 3], &[(true, &[11, 12, 13, 14])], Some(0.5)),
        rollout(
            "b",
            0,
            &[20, 21, 22, 23, 24],
            &[(true, &[25, 26])],
            Some(0.0),
        ),
        rollout(
            "b",
            1,
            &[20, 21, 22, 23, 24],
            &[(true, &[27]), (false, &[28, 29]), (true, &[30])],
            Some(2.0),
        ),
    ]
}

fn learner(change: impl FnOnce(&mut Experiment)) -> Learner {
    let json = serde_json::json!({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 50, "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true,
        "initializer_range": 0.3, "eos_token_id": 0,
    });
    let serde_json::Value::Object(json) = json else {
        unreachable!("an object")
    };
    let config = Arc::new(
        ModelConfig::from_json(std::path::Path::new("config.json"), json).expect("a Qwen2 model"),
    );
    let mut experiment = Experiment::default();
    experiment.algorithm.adv_estimator = experiment::settings::AdvEstimator::Grpo;
    change(&mut experiment);
    Learner::new(
        Arc::new(experiment),
        Parameters::random(&config, 7, Kind::Float, Device::Cpu),
        None,
        10,
    )
    .expect("a learner")
}

const ANY_SIZE: MicroLimit = MicroLimit {
    sequences: None,
    tokens: None,
};

/// Gradient of every parameter, mini-batch of all groups, cut by `limit`.
fn gradients(learner: &Learner, limit: MicroLimit) -> Vec<Tensor> {
    let batch = TrainBatch::new(rollouts(), true, Device::Cpu);
    let corrected = Corrected {
        weights: None,
        mask: batch.mask.shallow_clone(),
    };
    let advantages = Tensor::from_slice(&[1.0f32, -1.0, 0.25, -0.7, 0.7]);
    gradients_in(learner, limit, &batch, &corrected, &advantages)
}

fn gradients_of(
    learner: &Learner,
    limit: MicroLimit,
    corrected: &Corrected,
    advantages: &Tensor,
) -> Vec<Tensor> {
    let batch = TrainBatch::new(rollouts(), true, Device::Cpu);
    gradients_in(learner, limit, &batch, corrected, advantages)
}

/// `advantages`: one of each row.
fn gradients_in(
    learner: &Learner,
    limit: MicroLimit,
    batch: &TrainBatch,
    corrected: &Corrected,
    advantages: &Tensor,
) -> Vec<Tensor> {
    let reference = batch.mask.full_like(-4.2);
    let advantages = advantages
        .view([5, 1])
        .expand([5, batch.width as i64], false)
        .copy();
    let inputs = ActorInputs {
        batch,
        old_logprobs: &batch.behavior_logprobs,
        ref_logprobs: Some(&reference),
        advantages: &advantages,
        corrected,
    };
    learner.actor.optimizer.clear_grads().expect("leaf tensors");
    let has_gradient = learner
        .actor_gradients(
            &inputs,
            &[0, 1],
            limit,
            &mut ChaCha8Rng::seed_from_u64(5),
            &mut Means::default(),
        )
        .expect("a gradient");
    assert!(has_gradient);
    learner
        .actor
        .model
        .parameters()
        .iter()
        .map(|(_, tensor)| tensor.grad().copy())
        .collect()
}

#[test]
fn the_gradient_does_not_depend_on_the_micro_batch_size() {
    for mode in [
        LossAggMode::TokenMean,
        LossAggMode::TokenSum,
        LossAggMode::SeqMeanTokenSum,
        LossAggMode::SeqMeanTokenMean,
        LossAggMode::SeqMeanTokenSumNorm,
    ] {
        let learner = learner(|experiment| {
            let actor = &mut experiment.actor_rollout_ref.actor;
            actor.loss_agg_mode = mode;
            actor.entropy_coeff = 0.1;
            actor.use_kl_loss = true;
            actor.kl_loss_coef = 0.5;
        });
        assert_same_gradient_however_cut(&learner, &format!("{mode:?}"));
    }
}

#[test]
fn nor_does_it_for_any_loss_of_the_table_that_says_so() {
    for loss in LOSSES {
        let learner = learner(|experiment| {
            let actor = &mut experiment.actor_rollout_ref.actor;
            actor.policy_loss.loss_mode = loss.kind;
            actor.policy_loss.dro_beta = Some(0.1);
            actor.use_kl_loss = true;
            actor.kl_loss_type = KlEstimator::Full;
            actor.kl_loss_coef = 0.5;
        });
        if loss.micro_batches_matter.is_none() {
            assert_same_gradient_however_cut(&learner, loss.name);
        }
    }
}

fn assert_same_gradient_however_cut(learner: &Learner, what: &str) {
    {
        let whole = gradients(
            learner,
            MicroLimit {
                sequences: None,
                tokens: None,
            },
        );
        let largest = whole
            .iter()
            .map(|gradient| gradient.abs().max().double_value(&[]))
            .fold(0.0, f64::max);
        assert!(largest > 1e-4, "{what}: there is a gradient to compare");
        for limit in [
            MicroLimit {
                sequences: Some(1),
                tokens: None,
            },
            MicroLimit {
                sequences: Some(2),
                tokens: None,
            },
            MicroLimit {
                sequences: None,
                tokens: Some(15),
            },
        ] {
            for (one, many) in whole.iter().zip(gradients(learner, limit)) {
                let difference = (one - many).abs().max().double_value(&[]);
                // f32 sums in another order.
                assert!(
                    difference <= 2e-6 * largest.max(1.0),
                    "{what} {limit:?}: {difference} of {largest}"
                );
            }
        }
    }
}

#[test]
fn a_micro_batch_keeps_the_samples_of_a_prompt_together_and_computes_the_prompt_once() {
    let batch = TrainBatch::new(rollouts(), true, Device::Cpu);
    let micros = batch.micro_batches(
        &[1, 0],
        MicroLimit {
            sequences: None,
            tokens: None,
        },
        Device::Cpu,
    );
    assert_eq!(micros.len(), 1);
    // Prompts of 5 and 3 once each, responses of 2 + 4 and 6 + 1 + 4.
    assert_eq!(micros[0].packed.len(), 5 + 2 + 4 + 3 + 6 + 1 + 4);
    assert_eq!(
        Vec::<i64>::try_from(&micros[0].rows).expect("a vector"),
        [3, 4, 0, 1, 2]
    );
}

#[test]
fn rollouts_without_a_score_or_without_tokens_are_left_out_and_never_count_as_0() {
    let mut all = rollouts();
    all[1].score = None;
    all[3].finish = Finish::Error;
    let batch = TrainBatch::new(all, true, Device::Cpu);
    assert_eq!(
        batch.left_out,
        LeftOut {
            missing_score: 1,
            no_tokens: 1,
            lone_survivor: 1
        },
        "b's second sample has nobody left to be compared with"
    );
    assert_eq!((batch.groups.len(), &batch.groups[0]), (1, &(0..2)));
    let scores: Vec<f32> = Vec::try_from(batch.token_scores.sum_dim_intlist(
        &[1i64][..],
        false,
        Kind::Float,
    ))
    .expect("a vector");
    assert_eq!(scores, [1.0, 0.5]);
}

#[test]
fn the_score_lies_on_the_last_token_that_the_model_drew() {
    let tool_last = rollout("a", 0, &[1], &[(true, &[2, 3]), (false, &[4])], Some(0.75));
    let batch = TrainBatch::new(vec![tool_last], false, Device::Cpu);
    let scores: Vec<f32> = Vec::try_from(batch.token_scores.view([-1])).expect("a vector");
    assert_eq!(scores, [0.0, 0.75, 0.0]);
}

/// A run's directory and the recorder of its log.
fn recorded(root: &std::path::Path) -> (RunDir, Recorder) {
    let mut directory = RunDir::create(root, &NewRun::default()).expect("a run directory");
    let recorder = Recorder::start(&mut directory, Options::default()).expect("a recorder");
    (directory, recorder)
}

fn recorder(root: &std::path::Path) -> Recorder {
    recorded(root).1
}

#[test]
fn every_estimator_of_the_table_trains_a_step() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let recorder = recorder(root.path());
    for estimator in ESTIMATORS {
        let mut learner = learner(|experiment| {
            experiment.algorithm.adv_estimator = estimator.kind;
            experiment.algorithm.gdpo_reward_keys = vec!["score".to_owned(), "format".to_owned()];
            experiment.algorithm.gdpo_reward_weights = Some(vec![1.0, 0.5]);
            experiment.actor_rollout_ref.actor.optim.lr = 0.1;
        });
        let mut all = rollouts();
        for (index, rollout) in all.iter_mut().enumerate() {
            rollout.score_parts = [
                (GREEDY_BASELINE.to_owned(), 0.75),
                ("format".to_owned(), index as f64 / 4.0),
            ]
            .into();
        }
        let before = learner
            .actor
            .model
            .parameters()
            .deep_copy(Kind::Float, Device::Cpu);
        let outcome = learner
            .step(1, 0, all, &recorder)
            .unwrap_or_else(|error| panic!("{}: {error}", estimator.name));
        assert!(
            outcome.alarms.is_empty(),
            "{}: {:?}",
            estimator.name,
            outcome.alarms
        );
        let trained = outcome.trained.expect("a batch");
        let drawn = trained
            .advantages
            .masked_select(&trained.batch.mask.to_kind(Kind::Bool));
        assert_eq!(
            drawn.isfinite().all().int64_value(&[]),
            1,
            "{}",
            estimator.name
        );
        assert!(
            drawn.abs().max().double_value(&[]) > 1e-3,
            "{}",
            estimator.name
        );
        let has_moved = learner
            .actor
            .model
            .parameters()
            .iter()
            .zip(before.iter())
            .any(|((_, after), (_, before))| !after.equal(before));
        assert!(has_moved, "{} moves the weights", estimator.name);
    }
}

#[test]
fn every_loss_of_the_table_trains_a_step_with_either_kind_of_full_kl() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let recorder = recorder(root.path());
    for (index, loss) in LOSSES.iter().enumerate() {
        let mut learner = learner(|experiment| {
            let actor = &mut experiment.actor_rollout_ref.actor;
            actor.policy_loss.loss_mode = loss.kind;
            actor.policy_loss.dro_beta = Some(0.1);
            actor.optim.lr = 0.01;
            if index % 2 == 0 {
                actor.use_kl_loss = true;
                actor.kl_loss_type = KlEstimator::Full;
            } else {
                experiment.algorithm.use_kl_in_reward = true;
                experiment.algorithm.kl_penalty = KlEstimator::Full;
            }
        });
        for step in 1..=2 {
            let outcome = learner
                .step(step, step - 1, rollouts(), &recorder)
                .unwrap_or_else(|error| panic!("{}: {error}", loss.name));
            assert!(
                outcome.alarms.is_empty(),
                "{}: {:?}",
                loss.name,
                outcome.alarms
            );
            let value = |name: &str| outcome.values.0.get(name).map(|number| number.0);
            assert!(
                value("actor/pg_loss").is_some_and(f64::is_finite),
                "{}",
                loss.name
            );
            let kl = value("actor/kl_loss")
                .or_else(|| value("actor/reward_kl_penalty"))
                .expect("a KL");
            // The reference is the policy of the first step.
            assert!(
                (kl > 1e-9) == (step == 2) && kl > -1e-9,
                "{} in step {step}: {kl}",
                loss.name
            );
        }
    }
}

#[test]
fn a_rollout_without_its_greedy_baseline_is_left_out_and_not_compared_with_0() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let recorder = recorder(root.path());
    let mut learner = learner(|experiment| {
        experiment.algorithm.adv_estimator = experiment::settings::AdvEstimator::Remax;
    });
    let mut all = rollouts();
    for rollout in &mut all[..3] {
        rollout.score_parts = [(GREEDY_BASELINE.to_owned(), 0.25)].into();
    }
    let outcome = learner.step(1, 0, all, &recorder).expect("a step");
    let (name, message) = &outcome.alarms[0];
    assert_eq!(*name, "rollouts left out");
    assert!(
        message.contains("2 of 5") && message.contains(GREEDY_BASELINE),
        "{message}"
    );
    let trained = outcome.trained.expect("the others train");
    assert_eq!(trained.batch.len(), 3);
    let first: Vec<f32> = Vec::try_from(trained.advantages.select(0, 0)).expect("a vector");
    assert_eq!(
        first,
        [0.75, 0.75, 1.0, 1.0, 1.0, 0.75],
        "score 1 against 0.25, on the drawn tokens"
    );
}

#[test]
fn a_step_of_groups_that_are_all_equal_says_so_and_moves_no_weight() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let recorder = recorder(root.path());
    let mut learner = learner(|experiment| {
        experiment.actor_rollout_ref.actor.optim.weight_decay = 0.0;
        experiment.actor_rollout_ref.actor.optim.lr = 0.1;
    });
    let before: Vec<Tensor> = learner
        .actor
        .model
        .parameters()
        .iter()
        .map(|(_, tensor)| tensor.detach().copy())
        .collect();
    let mut equal = rollouts();
    for rollout in &mut equal {
        rollout.score = Some(1.0);
    }
    let outcome = learner.step(1, 0, equal, &recorder).expect("a step");
    assert!(
        outcome
            .alarms
            .iter()
            .any(|(name, _)| *name == "all groups equal"),
        "{:?}",
        outcome.alarms
    );
    for ((name, after), before) in learner.actor.model.parameters().iter().zip(before) {
        assert!(after.equal(&before), "{name} stays as it is");
    }
    let Some(TrainedBatch { advantages, .. }) = outcome.trained else {
        panic!("the batch was looked at")
    };
    assert_eq!(advantages.abs().max().double_value(&[]), 0.0);
}
