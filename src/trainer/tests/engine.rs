//! The generation engine against transformers' greedy tokens, against the learner's forward pass, and against itself in other
//! batches; what it refuses and how it fails.

mod common;

use common::engine::{
    all, assert_close, engine, engine_with, greedy, ids, learner_logprobs, request, sampled, until,
    weights,
};
use common::{MODELS, Oracle, load};
use dialogue::generate::{GenerateError, Generator, Sampling, SessionId, TurnFinish, TurnRequest};
use tch::{Device, Kind};
use trainer::engine::{Engine, EngineOptions, TokenDecoder, WeightBuffer, score};

#[tokio::test]
async fn greedy_turns_and_their_logprobs_equal_those_of_transformers() {
    for model in MODELS {
        let oracle = Oracle::of(model);
        let engine = engine(model);
        let requests = oracle
            .prompts()
            .iter()
            .enumerate()
            .map(|(row, (_, prompt))| request(row as u64, prompt, 32, greedy()))
            .collect();
        let turns = all(&engine.handle(), requests).await;
        let logprobs = oracle.rows::<f32>("greedy_logprobs", Kind::Float);
        for (row, expected) in oracle.ids("greedy_ids").iter().enumerate() {
            assert_eq!(&turns[row].token_ids, expected, "{model} row {row}");
            assert_close(&turns[row].logprobs, &logprobs[row], model);
            assert_eq!(turns[row].finish, TurnFinish::Length);
            assert_eq!(turns[row].policy_versions, [1; 32]);
        }
    }
}

#[tokio::test]
async fn a_sample_is_the_same_alone_and_in_any_batch() {
    for model in MODELS {
        let requests = |count: u64| -> Vec<TurnRequest> {
            (0..count)
                .map(|s| {
                    request(
                        s,
                        &ids(s as u32 % 3, 5 + 20 * (s as u32 % 3)),
                        10 + 3 * s as u32,
                        sampled(),
                    )
                })
                .collect()
        };
        let together = all(&engine(model).handle(), requests(12)).await;
        let few_rows = engine_with(model, |options| {
            options.max_rows = 3;
            options.max_prefill_tokens = 8;
        });
        let crowded = all(&few_rows.handle(), requests(12)).await;
        for (at, request) in requests(12).into_iter().enumerate() {
            let alone = engine(model).handle().generate(request).await.unwrap();
            assert_eq!(alone.token_ids, together[at].token_ids, "{model} {at}");
            assert_eq!(
                alone.token_ids, crowded[at].token_ids,
                "{model} {at} crowded"
            );
            assert_close(&alone.logprobs, &together[at].logprobs, model);
        }
        assert!(
            together[0].token_ids != together[3].token_ids[..10],
            "seeds differ"
        );
    }
}

#[tokio::test]
async fn sampled_logprobs_equal_the_learners_under_the_sampling_temperature() {
    for model in MODELS {
        let parameters = load(model, Kind::Float);
        let engine = engine(model);
        let context = ids(4, 9);
        let mut sampling = sampled();
        sampling.temperature = 0.7;
        sampling.top_k = Some(20);
        sampling.top_p = 0.9;
        let turn = engine
            .handle()
            .generate(request(1, &context, 24, sampling))
            .await
            .unwrap();
        let expected = learner_logprobs(&parameters, &context, &turn.token_ids, 0.7);
        assert_close(&turn.logprobs, &expected, model);
        let whole = [context.clone(), turn.token_ids.clone()].concat();
        let scored = score(&weights(model, Kind::Float), &whole).unwrap();
        let at_one = learner_logprobs(&parameters, &whole[..1], &whole[1..], 1.0);
        assert_close(&scored, &at_one, "score");
    }
}

#[tokio::test]
async fn later_turns_reuse_the_cache_and_say_what_a_fresh_engine_says() {
    for model in MODELS {
        // In lockstep the six turns of a round surely join together; they are equally long since nobody asks again before all end.
        let engine = engine_with(model, |options| options.lockstep = true);
        let handle = engine.handle();
        (0..6).for_each(|s| handle.open(SessionId(s)));
        let mut contexts: Vec<Vec<u32>> = (0..6).map(|s| ids(s / 3, 17)).collect();
        for round in 0..3_u32 {
            let requests: Vec<TurnRequest> = contexts
                .iter()
                .enumerate()
                .map(|(s, context)| request(s as u64, context, 6, sampled()))
                .collect();
            let turns = all(&handle, requests.clone()).await;
            for (s, turn) in turns.iter().enumerate() {
                let fresh = self::engine(model);
                let alone = fresh.handle().generate(requests[s].clone()).await.unwrap();
                assert_eq!(
                    turn.token_ids, alone.token_ids,
                    "{model} round {round} session {s}"
                );
                assert_close(&turn.logprobs, &alone.logprobs, model);
                contexts[s].extend(&turn.token_ids);
                // A tool's answer, of another length for each.
                contexts[s].extend(ids(50 + s as u32 + round, 2 + s as u32));
            }
        }
        let stats = handle.stats();
        // Turn 1: two prompts of 17 computed once for three sessions each. Then each turn recomputes the last drawn token
        // (it was never fed) and the tool's answer.
        let tool_tokens: u64 = (0..6).map(|s| 2 * (1 + 2 + s)).sum();
        assert_eq!(stats.prefill_tokens, 2 * 17 + tool_tokens, "{model}");
        until(&handle, |stats| stats.parked_sessions == 6).await;
        for s in 0..6 {
            handle.release(SessionId(s));
        }
        let _ = handle
            .generate(request(99, &[1], 1, greedy()))
            .await
            .unwrap();
        until(&handle, |stats| stats.parked_sessions == 1).await;
    }
}

#[tokio::test]
async fn a_context_that_was_edited_before_its_end_is_recomputed_from_there() {
    let engine = engine(MODELS[0]);
    let handle = engine.handle();
    let mut context = ids(1, 40);
    let first = handle
        .generate(request(1, &context, 4, greedy()))
        .await
        .unwrap();
    assert_eq!(first.token_ids.len(), 4);
    context[30] += 1;
    let again = handle
        .generate(request(1, &context, 8, greedy()))
        .await
        .unwrap();
    let fresh = self::engine(MODELS[0])
        .handle()
        .generate(request(1, &context, 8, greedy()))
        .await
        .unwrap();
    assert_eq!(again.token_ids, fresh.token_ids);
    assert_eq!(handle.stats().reused_tokens, 30);
}

#[tokio::test]
async fn turns_stop_at_stop_tokens_stop_strings_limits_and_the_context_length() {
    let oracle = Oracle::of(MODELS[0]);
    let (prompt, said) = (
        oracle.prompts()[0].1.clone(),
        oracle.ids("greedy_ids")[0].clone(),
    );
    let engine = engine_with(MODELS[0], |options| {
        options.max_length_tokens = prompt.len() + 20;
        options.eos_token_ids = vec![said[6]];
        options.decoder = Some(TokenDecoder::new(|ids| format!("{ids:?}")));
    });
    let handle = engine.handle();
    let mut session = 0;
    let mut turn = async |sampling: Sampling, limit: u32| {
        session += 1;
        handle
            .generate(request(session, &prompt, limit, sampling))
            .await
            .unwrap()
    };
    let first = |id: u32| said.iter().position(|said| *said == id).unwrap() + 1;
    let eos = turn(
        Sampling {
            ignore_eos: false,
            ..greedy()
        },
        32,
    )
    .await;
    assert_eq!(
        (eos.token_ids.len(), eos.finish),
        (first(said[6]), TurnFinish::Stop)
    );
    let token = turn(
        Sampling {
            stop_token_ids: vec![said[3]],
            ..greedy()
        },
        32,
    )
    .await;
    assert_eq!(
        (token.token_ids.len(), token.finish),
        (first(said[3]), TurnFinish::Stop)
    );
    let text = format!("{}, {}", said[1], said[2]);
    let string = turn(
        Sampling {
            stop_strings: vec!["never".into(), text],
            ..greedy()
        },
        32,
    )
    .await;
    assert_eq!(
        (string.token_ids.len(), string.finish),
        (3, TurnFinish::Stop)
    );
    let limit = turn(greedy(), 5).await;
    assert_eq!(
        (limit.token_ids.len(), limit.finish),
        (5, TurnFinish::Length)
    );
    let nothing = turn(greedy(), 0).await;
    assert_eq!(
        (nothing.token_ids.len(), nothing.finish),
        (0, TurnFinish::Length)
    );
    let context = turn(greedy(), 1000).await;
    assert_eq!(
        (context.token_ids.len(), context.finish),
        (20, TurnFinish::Length)
    );
    assert_eq!(context.token_ids, said[..20]);
}

#[tokio::test]
async fn requests_that_cannot_be_served_say_why() {
    let engine = engine_with(MODELS[0], |options| options.max_length_tokens = 16);
    let handle = engine.handle();
    let error =
        async |request: TurnRequest| handle.generate(request).await.unwrap_err().to_string();
    assert_eq!(
        error(request(1, &[512], 4, greedy())).await,
        "token id 512 is outside the model's vocabulary of 512"
    );
    assert_eq!(
        error(request(1, &ids(1, 16), 4, greedy())).await,
        "the context of 16 tokens leaves no room in the engine's 16; raise rollout.max_model_len or shorten the prompt"
    );
    assert_eq!(
        error(request(1, &[], 4, greedy())).await,
        "generation failed: the context is empty; a turn needs at least one token before it"
    );
    let stop = Sampling {
        stop_strings: vec!["x".into()],
        ..greedy()
    };
    assert_eq!(
        error(request(1, &[1], 4, stop)).await,
        "generation failed: stop strings need an engine that was given a token decoder"
    );
    engine.shutdown();
    assert_eq!(
        handle.generate(request(1, &[1], 4, greedy())).await,
        Err(GenerateError::Stopped {
            reason: "it was shut down".into()
        })
    );
}

#[tokio::test]
async fn scores_that_are_not_finite_fail_their_turn_and_leave_no_trace() {
    let broken = load(MODELS[0], Kind::Float);
    let _ = tch::no_grad(|| {
        broken
            .get("model.norm.weight")
            .unwrap()
            .get(0)
            .fill_(f64::NAN)
    });
    let good = weights(MODELS[0], Kind::Float);
    let options = EngineOptions::new(good.config());
    let bad = WeightBuffer::from_parameters(&broken, Kind::Float, Device::Cpu);
    let engine = Engine::start(bad, 3, options).unwrap();
    let handle = engine.handle();
    let asked = request(1, &ids(2, 12), 6, greedy());
    assert_eq!(
        handle
            .generate(asked.clone())
            .await
            .unwrap_err()
            .to_string(),
        "generation failed: the model's scores are not finite under weights of version 3; look at the learner's last steps"
    );
    handle.swap(good, 4).await.unwrap();
    let healed = handle.generate(asked.clone()).await.unwrap();
    let expected = self::engine(MODELS[0])
        .handle()
        .generate(asked)
        .await
        .unwrap();
    assert_eq!(healed.token_ids, expected.token_ids);
}

#[tokio::test]
async fn a_panic_in_the_engine_stops_every_turn_with_its_reason() {
    let engine = engine_with(MODELS[0], |options| {
        options.decoder = Some(TokenDecoder::new(|_| panic!("the tokenizer broke")));
    });
    let handle = engine.handle();
    let stop = Sampling {
        stop_strings: vec!["x".into()],
        ..greedy()
    };
    let other = handle.generate(request(1, &[1, 2], 200, greedy()));
    let broken = handle.generate(request(2, &[1, 2, 3], 4, stop));
    let (other, broken) = tokio::join!(other, broken);
    let stopped = Err(GenerateError::Stopped {
        reason: "it panicked: the tokenizer broke".into(),
    });
    assert_eq!(other, stopped);
    assert_eq!(broken, stopped);
    assert_eq!(
        handle.generate(request(3, &[1], 4, greedy())).await,
        stopped
    );
}

#[tokio::test]
async fn dropping_a_request_frees_its_row_for_the_next() {
    let engine = engine_with(MODELS[0], |options| options.max_rows = 1);
    let handle = engine.handle();
    let long = tokio::spawn({
        let handle = handle.clone();
        async move { handle.generate(request(1, &[1], 250, greedy())).await }
    });
    until(&handle, |stats| stats.decode_steps > 0).await;
    long.abort();
    let next = handle
        .generate(request(2, &[1, 2], 2, greedy()))
        .await
        .unwrap();
    assert_eq!(next.token_ids.len(), 2);
    // And the session itself is free for another turn.
    let again = handle
        .generate(request(1, &[1], 2, greedy()))
        .await
        .unwrap();
    assert_eq!(again.finish, TurnFinish::Length);
}

#[tokio::test]
async fn bf16_weights_speak_nearly_as_f32_ones() {
    for model in MODELS {
        let buffer = weights(model, Kind::BFloat16);
        let options = EngineOptions::new(buffer.config());
        let engine = Engine::start(buffer, 1, options).unwrap();
        let context = ids(6, 30);
        let turn = engine
            .handle()
            .generate(request(1, &context, 30, sampled()))
            .await
            .unwrap();
        let exact = learner_logprobs(&load(model, Kind::Float), &context, &turn.token_ids, 1.0);
        let rounded = score(
            &weights(model, Kind::BFloat16),
            &[context.clone(), turn.token_ids.clone()].concat(),
        )
        .unwrap();
        for (at, ours) in turn.logprobs.iter().enumerate() {
            // Logits of up to 3 rounded to 8 bits in each layer.
            assert!((ours - exact[at]).abs() < 0.2, "{model} token {at}");
            assert!(
                (ours - rounded[context.len() - 1 + at]).abs() < 0.1,
                "{model} token {at}"
            );
        }
    }
}

#[test]
fn a_buffer_lists_the_models_tensors_in_order_and_writes_through_its_views() {
    for model in MODELS {
        let parameters = load(model, Kind::Float);
        let mut buffer = WeightBuffer::new(parameters.config(), Kind::Float, Device::Cpu);
        let bytes = buffer.copy_from(&parameters);
        assert_eq!(bytes, parameters.bytes());
        assert_eq!(bytes, buffer.bytes());
        for ((name, view), (expected, tensor)) in buffer.views().iter().zip(parameters.iter()) {
            assert_eq!(name, expected);
            assert!(view.equal(tensor), "{name}");
            assert!(view.is_contiguous(), "{name}");
        }
        let before = score(&buffer, &[1, 2, 3, 4]).unwrap();
        for (_, mut view) in buffer.views() {
            let _ = tch::no_grad(|| view.g_mul_scalar_(1.5));
        }
        assert_ne!(before, score(&buffer, &[1, 2, 3, 4]).unwrap());
    }
}
