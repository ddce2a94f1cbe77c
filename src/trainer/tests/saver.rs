//! Checkpoints written by the thread beside the learner: what they hold, what becomes of a failure, what a load checks.

mod common;
mod tiny;

use std::fs;
use std::sync::Arc;

use dialogue::tokenizer::Tokenizer;
use runlog::event::EventKind;
use runlog::recorder::{Options, Recorder};
use runlog::run_dir::RunDir;
use runlog::tail;
use tch::{Device, Kind};
use trainer::checkpoint::{
    self, Capture, Model, Models, Request, Saver, SaverParts, check_model, check_tokenizer,
};
use trainer::model::parameters::Parameters;
use trainer::model::transformer::Transformer;
use trainer::save::RunCounters;

use common::{MODELS, directory, load};

const IDS: [u32; 6] = [5, 90, 17, 301, 44, 2];

fn request(step: u64, is_awaited: bool) -> Request {
    Request {
        capture: Capture::new(Models {
            actor: Model {
                parameters: load(MODELS[0], Kind::Float),
                optimizer: Vec::new(),
            },
            critic: None,
        }),
        counters: RunCounters::at(step),
        sample_ids: vec![IDS.to_vec()],
        is_awaited,
        told: None,
    }
}

struct Bench {
    _root: tempfile::TempDir,
    run_dir: RunDir,
    recorder: Recorder,
    saver: Saver,
}

fn bench(settings: &str) -> Bench {
    let (root, data) = tiny::fixture();
    let mut run_dir = tiny::run_dir(root.path(), tiny::experiment(&data, settings));
    let recorder = Recorder::start(&mut run_dir, Options::default()).expect("a log");
    let loaded = experiment::load(&run_dir.experiment_path(), &[]).expect("an experiment");
    let saver = Saver::start(SaverParts {
        run_dir: run_dir.clone(),
        recorder: recorder.clone(),
        experiment: Arc::new(loaded.experiment),
        tokenizer: Arc::new(Tokenizer::load(&directory(MODELS[0])).expect("a tokenizer")),
        tokenizer_files: directory(MODELS[0]),
        compute: Kind::Float,
    })
    .expect("a thread");
    Bench {
        _root: root,
        run_dir,
        recorder,
        saver,
    }
}

impl Bench {
    fn events(&self) -> Vec<EventKind> {
        self.recorder.close().expect("a log");
        let (events, bad) = tail::read_all(&self.run_dir.events_path()).expect("a log");
        assert!(bad.is_empty());
        events.into_iter().map(|event| event.kind).collect()
    }
}

#[test]
fn copied_or_lent_a_checkpoint_has_the_same_bytes_verifies_and_is_told_once_it_is_there() {
    let bench = bench("");
    bench.saver.save(request(1, false));
    let first = bench.saver.wait().expect("one was written");
    bench.saver.save(request(2, true));
    let second = bench.saver.wait().expect("one was written");
    assert_eq!(first.as_deref(), Ok("checkpoints/step-000001"));
    assert_eq!(second.as_deref(), Ok("checkpoints/step-000002"));
    let paths = [1, 2].map(|step| bench.run_dir.checkpoint_path(step));
    for path in &paths {
        checkpoint::verify(path).expect("whole");
    }
    for name in ["model.safetensors", "logprobs.json", "tokenizer.json"] {
        let [copied, lent] = paths
            .each_ref()
            .map(|path| fs::read(path.join(name)).expect("a file of it"));
        assert!(copied == lent, "{name}");
    }
    let reloaded = Parameters::load(&paths[0], Kind::Float, Device::Cpu).expect("a model");
    for ((name, saved), (_, held)) in reloaded.iter().zip(load(MODELS[0], Kind::Float).iter()) {
        assert!(saved.equal(held), "{name}");
    }
    let modes: Vec<u32> = ["config.json", "model.safetensors", "state.json"]
        .into_iter()
        .map(|name| {
            use std::os::unix::fs::PermissionsExt as _;
            let metadata = fs::metadata(paths[0].join(name)).expect("a file of it");
            metadata.permissions().mode()
        })
        .collect();
    assert!(modes.iter().all(|mode| *mode == modes[0]), "{modes:?}");
    let saved: Vec<u64> = bench
        .events()
        .into_iter()
        .filter_map(|kind| match kind {
            EventKind::CheckpointSaved { step, bytes, .. } => {
                assert!(bytes > 0);
                Some(step)
            }
            _ => None,
        })
        .collect();
    assert_eq!(saved, [1, 2]);
}

#[test]
fn a_write_that_fails_is_an_alarm_and_the_next_one_is_written() {
    let bench = bench("");
    let place = bench.run_dir.checkpoints_dir();
    fs::write(&place, "a file where the folder should be").expect("writable");
    bench.saver.save(request(1, false));
    let error = bench
        .saver
        .wait()
        .expect("one was tried")
        .expect_err("no folder");
    assert!(error.message.contains("step-000001"), "{error:?}");
    assert!(!error.lacks_room);
    fs::remove_file(&place).expect("removable");
    bench.saver.save(request(2, false));
    bench.saver.wait().expect("one was tried").expect("written");
    let alarms: Vec<String> = bench
        .events()
        .into_iter()
        .filter_map(|kind| match kind {
            EventKind::Alarm { name, message, .. } if name == "checkpoint not written" => {
                Some(message)
            }
            _ => None,
        })
        .collect();
    assert_eq!(alarms, [error.message]);
}

#[test]
fn a_log_that_is_not_on_disk_keeps_a_checkpoint_from_its_name() {
    let bench = bench("");
    bench.recorder.record(EventKind::StepEnded {
        step: 1,
        policy_version: 1,
        values: [].into(),
    });
    bench.recorder.close().expect("a log");
    bench.saver.save(request(1, false));
    let error = bench
        .saver
        .wait()
        .expect("one was tried")
        .expect_err("no log");
    assert!(error.message.contains("the log is closed"), "{error:?}");
    assert!(!bench.run_dir.checkpoint_path(1).exists());
}

#[test]
fn the_gate_opens_when_the_copy_is_made_and_counts_only_who_waited() {
    let request = request(1, false);
    let gate = request.capture.gates().actor;
    let waiter = std::thread::spawn({
        let gate = Arc::clone(&gate);
        move || gate.pass()
    });
    while !gate.is_waited_at() {
        std::thread::yield_now();
    }
    drop(request);
    waiter.join().expect("it is let through");
    assert!(!gate.waited().is_zero());
    let unnoticed = self::request(1, false);
    let gate = unnoticed.capture.gates().actor;
    drop(unnoticed);
    gate.pass();
    assert!(gate.waited().is_zero());
}

#[test]
fn old_checkpoints_go_as_the_experiment_says() {
    let bench = bench("  max_actor_ckpt_to_keep: 1\n  ckpt_keep_every: 2\n");
    for step in 1..=5 {
        bench.saver.save(request(step, false));
    }
    let Bench {
        _root: root,
        run_dir,
        recorder: _recorder,
        saver,
    } = bench;
    // Its end is the end of the last pruning.
    drop(saver);
    let steps: Vec<u64> = checkpoint::list(&run_dir.checkpoints_dir())
        .expect("listed")
        .iter()
        .map(|found| found.step)
        .collect();
    assert_eq!(steps, [2, 4, 5]);
    drop(root);
}

#[test]
fn other_weights_and_another_tokenizer_are_told_by_the_stored_log_probs_and_texts() {
    let bench = bench("");
    bench.saver.save(request(1, true));
    bench
        .saver
        .wait()
        .expect("one was written")
        .expect("written");
    let path = bench.run_dir.checkpoint_path(1);
    let own = Transformer::new(load(MODELS[0], Kind::Float), Kind::Float, false);
    check_model(&path, &own, Kind::Float).expect("its own weights");
    let config = Arc::clone(load(MODELS[0], Kind::Float).config());
    let random = Parameters::random(&config, 7, Kind::Float, Device::Cpu);
    let error = check_model(
        &path,
        &Transformer::new(random, Kind::Float, false),
        Kind::Float,
    )
    .expect_err("other weights");
    assert!(error.contains("log-probs differ"), "{error}");

    let tokenizer = |model| Tokenizer::load(&directory(model)).expect("a tokenizer");
    check_tokenizer(&path, &tokenizer(MODELS[0])).expect("its own tokenizer");
    // The same tokenizer with two ids exchanged.
    let folder = tempfile::tempdir().expect("a temporary directory");
    for entry in fs::read_dir(directory(MODELS[0])).expect("readable") {
        let entry = entry.expect("readable");
        fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("copied");
    }
    let text = fs::read_to_string(folder.path().join("tokenizer.json")).expect("JSON");
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let vocabulary = json["model"]["vocab"]
        .as_object_mut()
        .expect("a vocabulary");
    let word = |id: u64, vocabulary: &serde_json::Map<String, serde_json::Value>| {
        let found = vocabulary
            .iter()
            .find(|(_, value)| value.as_u64() == Some(id));
        found.map(|(word, _)| word.clone()).expect("an id of it")
    };
    let (one, other) = (word(301, vocabulary), word(302, vocabulary));
    vocabulary.insert(one, 302.into());
    vocabulary.insert(other, 301.into());
    fs::write(
        folder.path().join("tokenizer.json"),
        serde_json::to_string(&json).expect("JSON"),
    )
    .expect("writable");
    let exchanged = Tokenizer::load(folder.path()).expect("a tokenizer");
    let error = check_tokenizer(&path, &exchanged)
        .expect_err("another tokenizer")
        .to_string();
    assert!(error.contains("another tokenizer"), "{error}");
}
