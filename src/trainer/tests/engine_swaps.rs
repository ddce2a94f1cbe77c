//! Weight swaps and lockstep: what changes while dialogues are under way, and what must not depend on timing.

mod common;

use common::engine::{
    all, assert_close, engine, engine_with, greedy, ids, learner_logprobs, request, sampled, until,
};
use common::{MODELS, load};
use dialogue::generate::{Generator, SessionId, Turn};
use tch::{Device, Kind};
use trainer::engine::{EngineHandle, WeightBuffer};
use trainer::model::parameters::Parameters;

/// Two versions of the weights: the file's, and a changed copy.
fn two_versions(model: &str) -> [Parameters; 2] {
    let changed = load(model, Kind::Float).deep_copy(Kind::Float, Device::Cpu);
    for (_, tensor) in changed.iter() {
        let _ = tch::no_grad(|| tensor.shallow_clone().g_mul_scalar_(1.25));
    }
    [load(model, Kind::Float), changed]
}

#[tokio::test]
async fn after_a_swap_every_token_is_drawn_from_the_weights_that_its_version_names() {
    for model in MODELS {
        let [old, new] = two_versions(model);
        let engine = engine(model);
        let handle = engine.handle();
        let context = ids(3, 12);
        let turns = (0..4)
            .map(|s| request(s, &context, 150, sampled()))
            .collect();
        let turns = tokio::spawn({
            let handle = handle.clone();
            async move { all(&handle, turns).await }
        });
        until(&handle, |stats| stats.decode_steps >= 20).await;
        let fresh = WeightBuffer::from_parameters(&new, Kind::Float, Device::Cpu);
        let swapped = handle.swap(fresh, 2).await.unwrap();
        let returned: Vec<_> = swapped.previous.views();
        for ((name, view), (_, tensor)) in returned.iter().zip(old.iter()) {
            assert!(view.equal(tensor), "{name} comes back as it was");
        }
        for turn in turns.await.unwrap() {
            let first_new = turn
                .policy_versions
                .iter()
                .position(|version| *version == 2);
            let first_new = first_new.expect("150 tokens last longer than 20 steps and a swap");
            // A turn that came late has drawn fewer than the engine's 20 steps.
            assert!(first_new > 0, "{model}: it had begun before the swap");
            assert!(
                turn.policy_versions[first_new..]
                    .iter()
                    .all(|version| *version == 2)
            );
            let by_old = learner_logprobs(&old, &context, &turn.token_ids, 1.0);
            let by_new = learner_logprobs(&new, &context, &turn.token_ids, 1.0);
            assert_close(&turn.logprobs[..first_new], &by_old[..first_new], "before");
            assert_close(&turn.logprobs[first_new..], &by_new[first_new..], "after");
        }
        // A parked session's next turn too.
        let longer = [context.clone(), ids(9, 5)].concat();
        let turn = handle
            .generate(request(2, &longer, 8, sampled()))
            .await
            .unwrap();
        assert_close(
            &turn.logprobs,
            &learner_logprobs(&new, &longer, &turn.token_ids, 1.0),
            "next turn",
        );
        assert_eq!(handle.stats().swaps, 1);
    }
}

#[tokio::test]
async fn kept_keys_and_values_are_not_shared_with_sessions_of_newer_weights() {
    let model = MODELS[0];
    let [_, new] = two_versions(model);
    let engine = engine_with(model, |options| options.keep_kv_on_swap = true);
    let handle = engine.handle();
    let context = ids(3, 40);
    let first = handle
        .generate(request(1, &context, 4, greedy()))
        .await
        .unwrap();
    let fresh = WeightBuffer::from_parameters(&new, Kind::Float, Device::Cpu);
    handle.swap(fresh, 2).await.unwrap();
    let before = handle.stats();
    // Session 1 goes on from what it has; session 2 starts anew under the new weights only.
    let longer = [context.clone(), first.token_ids.clone(), vec![7, 8]].concat();
    let _ = handle
        .generate(request(1, &longer, 4, greedy()))
        .await
        .unwrap();
    assert_eq!(handle.stats().prefill_tokens - before.prefill_tokens, 3);
    let other = handle
        .generate(request(2, &context, 6, sampled()))
        .await
        .unwrap();
    assert_close(
        &other.logprobs,
        &learner_logprobs(&new, &context, &other.token_ids, 1.0),
        "session 2",
    );
}

/// A batch of two-turn dialogues whose tools take random time; gives every turn of every session.
async fn dialogues(handle: &EngineHandle, delays: &[u64]) -> Vec<Vec<Turn>> {
    let count = delays.len() as u64;
    for session in 0..count {
        handle.open(SessionId(session));
    }
    let tasks: Vec<_> = (0..count)
        .map(|session| {
            let handle = handle.clone();
            let delay = delays[session as usize];
            tokio::spawn(async move {
                let mut context = ids(session as u32 / 4, 20);
                let mut turns = Vec::new();
                for turn in 0..3_u32 {
                    for _ in 0..delay * u64::from(turn + 1) {
                        tokio::task::yield_now().await;
                    }
                    let limit = 3 + (session as u32 + turn) % 5;
                    let said = handle
                        .generate(request(session, &context, limit, sampled()))
                        .await
                        .unwrap();
                    context.extend(&said.token_ids);
                    context.extend(ids(turn + 60, 3));
                    turns.push(said);
                }
                handle.release(SessionId(session));
                turns
            })
        })
        .collect();
    let mut dialogues = Vec::new();
    for task in tasks {
        dialogues.push(task.await.unwrap());
    }
    dialogues
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_lockstep_the_same_seeds_give_the_same_bits_whatever_the_timing() {
    for model in MODELS {
        let mut runs = Vec::new();
        for delays in [
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [900, 3, 50, 0, 7, 2000, 1, 30, 0, 400],
            [0, 700, 0, 5, 1000, 0, 60, 0, 3000, 9],
        ] {
            let engine = engine_with(model, |options| {
                options.lockstep = true;
                options.max_rows = 7;
            });
            let handle = engine.handle();
            let turns = dialogues(&handle, &delays).await;
            runs.push((turns, handle.stats().decode_steps));
        }
        assert_eq!(runs[0], runs[1], "{model}");
        assert_eq!(runs[0], runs[2], "{model}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_lockstep_a_swap_waits_until_no_session_is_open() {
    let model = MODELS[0];
    let [_, new] = two_versions(model);
    let engine = engine_with(model, |options| options.lockstep = true);
    let handle = engine.handle();
    handle.open(SessionId(1));
    let swap = tokio::spawn({
        let handle = handle.clone();
        let fresh = WeightBuffer::from_parameters(&new, Kind::Float, Device::Cpu);
        async move { handle.swap(fresh, 2).await.unwrap() }
    });
    let first = handle
        .generate(request(1, &[1, 2], 20, sampled()))
        .await
        .unwrap();
    let second = handle
        .generate(request(1, &[1, 2, 3], 20, sampled()))
        .await
        .unwrap();
    assert_eq!(
        (first.policy_versions, second.policy_versions),
        (vec![1; 20], vec![1; 20])
    );
    assert!(!swap.is_finished());
    handle.release(SessionId(1));
    swap.await.unwrap();
    let third = handle
        .generate(request(2, &[1, 2], 3, sampled()))
        .await
        .unwrap();
    assert_eq!(third.policy_versions, [2; 3]);
}

#[tokio::test]
async fn a_learner_that_computes_in_bf16_proves_its_weights_to_an_engine_in_f32() {
    use std::sync::mpsc;
    use std::time::Instant;

    use trainer::model::transformer::Transformer;
    use trainer::sync::{Publisher, Receiver, SyncError};

    for model in MODELS {
        let [file, changed] = two_versions(model);
        let canary = ids(5, 24);
        let engine = engine(model);
        let (give, spare) = mpsc::channel();
        give.send(WeightBuffer::new(file.config(), Kind::Float, Device::Cpu))
            .unwrap();
        let mut publisher = Publisher::new(spare, canary.clone());
        let receiver = Receiver::new(give, canary, 1);
        let learner = Transformer::new(changed, Kind::BFloat16, false);
        let delivery = publisher.publish(&learner, 1, Instant::now()).unwrap();
        let report = receiver.accept(&engine.handle(), delivery).await.unwrap();
        assert!(report.canary_max_diff_nats < 1e-3, "{model}: {report:?}");

        // Weights that arrived and speak differently are still found out.
        let mut delivery = publisher.publish(&learner, 2, Instant::now()).unwrap();
        delivery.canary_logprobs[3] += 0.01;
        let refused = receiver.accept(&engine.handle(), delivery).await;
        assert!(matches!(refused, Err(SyncError::Canary { .. })), "{model}");
    }
}
