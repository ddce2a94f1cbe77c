//! The learner goes back to older weights: what the rollout side does with batches in flight, queued, and yet to come.

mod tiny;

use std::sync::{Arc, mpsc as std_mpsc};
use std::time::{Duration, Instant};

use dialogue::session::Waits;
use runlog::recorder::{Options, Recorder};
use tch::{Device, Kind};
use trainer::control::{Draw, Held, RolloutKnobs};
use trainer::engine::{Engine, EngineOptions, WeightBuffer};
use trainer::model::transformer::Transformer;
use trainer::rollouts::{Dialogues, Sampled, Sampler, SamplerParts};
use trainer::setup;
use trainer::sync::{Publisher, Receiver};

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(120);

fn rows(sampled: &Sampled) -> Vec<u64> {
    sampled
        .rollouts
        .iter()
        .map(|rollout| rollout.row_index)
        .collect()
}

#[test]
fn after_a_rewind_the_prompts_are_drawn_again_from_the_restored_weights() {
    let (root, data) = tiny::fixture();
    let yaml = tiny::experiment(&data, "  mode: async\n  max_staleness: 2\n")
        .replace("full_determinism: true", "full_determinism: false")
        .replace("test_freq: 2", "test_freq: -1")
        .replace("total_training_steps: 3", "total_training_steps: 5");
    let path = root.path().join("e.yaml");
    std::fs::write(&path, yaml).expect("a writable temporary directory");
    let experiment = Arc::new(
        experiment::load(&path, &[])
            .expect("a sound experiment")
            .experiment,
    );
    let mut run_dir = tiny::run_dir(root.path(), String::new());
    let recorder = Recorder::start(&mut run_dir, Options::default()).expect("a recorder");

    let chat = setup::chat(&experiment).expect("a chat template");
    let tools = setup::tools(&experiment).expect("no tools");
    let prompts = setup::train_prompts(&experiment, &chat, &tools).expect("prompts");
    let actor = setup::actor(&experiment, Device::Cpu).expect("a model");
    let config = Arc::clone(actor.config());
    let engine = Engine::start(
        WeightBuffer::from_parameters(&actor, Kind::Float, Device::Cpu),
        0,
        EngineOptions {
            max_length_tokens: 76,
            eos_token_ids: chat.stop_ids().to_vec(),
            ..EngineOptions::new(&config)
        },
    )
    .expect("an engine");
    let model = Transformer::new(actor, Kind::Float, false);
    let (spare_send, spare_receive) = std_mpsc::channel();
    spare_send
        .send(WeightBuffer::new(&config, Kind::Float, Device::Cpu))
        .expect("the receiver is in scope");
    let canary_ids = setup::canary_ids(&config);
    let mut publisher = Publisher::new(spare_receive, canary_ids.clone());
    let knobs = Arc::new(RolloutKnobs::new(
        Draw {
            temperature: 1.0,
            staleness: 2,
        },
        5,
    ));
    knobs.set_takes_newest(true);
    let sampler = Sampler::new(SamplerParts {
        experiment: Arc::clone(&experiment),
        dialogues: Dialogues {
            chat,
            tools,
            scorers: setup::scorers(&experiment).expect("no scorer needs an option"),
            prompts,
            val: None,
        },
        engine: engine.handle(),
        receiver: Receiver::new(spare_send, canary_ids, 1),
        recorder: recorder.clone(),
        is_evaluated: false,
        answers: None,
        evaluated: tokio::sync::mpsc::unbounded_channel().0,
        probing: None,
        waits: Waits::default(),
        held: Held {
            version: 0,
            rewinds: 0,
        },
        knobs: Arc::clone(&knobs),
        total_steps: 5,
        batches_at_once: 3,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let (batches, mut ready) = tokio::sync::mpsc::channel(9);
    let (deliveries, arrivals) = tokio::sync::mpsc::channel(2);
    let side = runtime.spawn(sampler.run(batches, arrivals));
    let mut next = || {
        runtime.block_on(async {
            tokio::time::timeout(PATIENCE, ready.recv())
                .await
                .expect("a batch in time")
                .expect("the rollout side goes on")
        })
    };
    let mut publish = |version, rewinds| {
        let mut delivery = publisher
            .publish(&model, version, Instant::now())
            .expect("a spare buffer");
        delivery.rewinds = rewinds;
        deliveries.blocking_send(delivery).expect("it is taken in");
    };

    let first = next();
    assert_eq!((first.step, first.rewinds), (1, 0));
    let abandoned = next();
    // Step 1 is trained, and undone: version 1 will be the starting weights, and the data begins again.
    knobs.rewind(1, None);
    publish(1, 1);
    let again = loop {
        let sampled = next();
        if sampled.rewinds == 1 {
            break sampled;
        }
    };
    assert_eq!(again.step, 2, "steps go on counting");
    assert_eq!(
        rows(&again),
        rows(&first),
        "the prompts of step 1, not of step 2"
    );
    assert_ne!(rows(&again), rows(&abandoned));
    assert!(
        again
            .rollouts
            .iter()
            .all(|rollout| rollout.version_range() == Some((1, 1))),
        "none from before the rewind"
    );
    for version in 2..=5 {
        publish(version, 1);
        if version < 5 {
            assert_eq!(next().step, version + 1);
        }
    }
    drop(deliveries);
    runtime
        .block_on(side)
        .expect("no panic")
        .expect("the rollout side ends in good order");
    engine.shutdown();
    recorder.close().expect("a writable disk");
}
