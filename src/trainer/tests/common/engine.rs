//! Engines over the test models, requests, and what the learner says of their tokens.

use dialogue::generate::{Generator, Sampling, SessionId, Turn, TurnRequest};
use tch::{Device, Kind, Tensor};
use trainer::engine::{Engine, EngineHandle, EngineOptions, EngineStats, WeightBuffer};
use trainer::model::parameters::Parameters;
use trainer::model::transformer::Transformer;

use super::{load, pack};

pub fn weights(model: &str, kind: Kind) -> WeightBuffer {
    WeightBuffer::from_parameters(&load(model, kind), kind, Device::Cpu)
}

pub fn engine_with(model: &str, change: impl FnOnce(&mut EngineOptions)) -> Engine {
    let weights = weights(model, Kind::Float);
    let mut options = EngineOptions::new(weights.config());
    change(&mut options);
    Engine::start(weights, 1, options).expect("a thread starts")
}

pub fn engine(model: &str) -> Engine {
    engine_with(model, |_| {})
}

pub fn greedy() -> Sampling {
    Sampling {
        temperature: 0.0,
        ignore_eos: true,
        ..Sampling::default()
    }
}

pub fn sampled() -> Sampling {
    Sampling {
        ignore_eos: true,
        ..Sampling::default()
    }
}

pub fn request(
    session: u64,
    context_ids: &[u32],
    max_new_tokens: u32,
    sampling: Sampling,
) -> TurnRequest {
    TurnRequest {
        session: SessionId(session),
        context_ids: context_ids.to_vec(),
        max_new_tokens,
        sampling,
        seed: session * 7919 + 13,
    }
}

/// Sends all requests at once and waits for all turns.
pub async fn all(engine: &EngineHandle, requests: Vec<TurnRequest>) -> Vec<Turn> {
    let tasks: Vec<_> = requests
        .into_iter()
        .map(|request| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.generate(request).await })
        })
        .collect();
    let mut turns = Vec::new();
    for task in tasks {
        turns.push(task.await.unwrap().unwrap());
    }
    turns
}

/// Waits for a condition on the engine's numbers, which follow its answers by less than a step.
pub async fn until(engine: &EngineHandle, holds: impl Fn(&EngineStats) -> bool) {
    while !holds(&engine.stats()) {
        tokio::task::yield_now().await;
    }
}

/// The learner's log-probs of `turn` after `context`, at `temperature`.
pub fn learner_logprobs(
    parameters: &Parameters,
    context: &[u32],
    turn: &[u32],
    temperature: f64,
) -> Vec<f32> {
    let model = Transformer::new(parameters.shallow_clone(), Kind::Float, false);
    let whole = [context, turn].concat();
    let targets: Vec<i64> = turn.iter().map(|id| i64::from(*id)).collect();
    tch::no_grad(|| {
        let rows = model.hidden(&pack(&[whole])).rows;
        let rows = rows.narrow(0, context.len() as i64 - 1, turn.len() as i64);
        let logprobs = (model.logits(&rows) / temperature)
            .log_softmax(-1, Kind::Float)
            .gather(1, &Tensor::from_slice(&targets).unsqueeze(1), false)
            .squeeze_dim(1);
        Vec::try_from(&logprobs).unwrap()
    })
}

pub fn assert_close(ours: &[f32], theirs: &[f32], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (at, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!((a - b).abs() < 5e-5, "{what}: token {at}: {a} and {b}");
    }
}

pub fn ids(start: u32, count: u32) -> Vec<u32> {
    (0..count)
        .map(|i| (start * 101 + i * 37 + 5) % 470)
        .collect()
}
