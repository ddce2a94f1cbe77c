//! Sentence encoders: what they say equals transformers, and a head on one is learned by the real program and judges as an arm.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use dialogue::message::Message;
use runlog::event::EventKind;
use runlog::tail;
use serde::Deserialize;
use serde_json::{Value, json};
use tch::{Device, Kind};
use trainer::encoder::{Encoder, Head, is_encoder};
use trainer::reward::RewardModel;

use super::{report, write};
use crate::tiny;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny-bert");

#[derive(Deserialize)]
struct Expected {
    text: String,
    ids: Vec<u32>,
    embedding: Vec<f64>,
}

fn load(directory: &Path) -> Encoder {
    Encoder::load(directory, None, Kind::Float, Device::Cpu).expect("an encoder")
}

/// A copy to spoil.
fn copy(root: &Path) -> std::path::PathBuf {
    let to = root.join("encoder");
    fs::create_dir_all(to.join("1_Pooling")).expect("a folder");
    for name in [
        "config.json",
        "model.safetensors",
        "modules.json",
        "sentence_bert_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "1_Pooling/config.json",
    ] {
        fs::copy(Path::new(TINY).join(name), to.join(name)).expect("copied");
    }
    to
}

#[test]
fn ids_and_embeddings_equal_transformers_alone_and_among_others() {
    let encoder = load(Path::new(TINY));
    let text = fs::read(Path::new(TINY).join("expected.json")).expect("expectations");
    let expected: Vec<Expected> = serde_json::from_slice(&text).expect("JSON");
    let ids: Vec<Vec<u32>> = expected
        .iter()
        .map(|one| encoder.words().ids(&one.text).expect("ids"))
        .collect();
    for (ids, expected) in ids.iter().zip(&expected) {
        assert_eq!(ids, &expected.ids, "{}", expected.text);
    }
    let together = encoder.embed(&ids);
    for (row, expected) in (0..).zip(&expected) {
        let alone = encoder.embed(&ids[row as usize..=row as usize]);
        for (column, number) in (0..).zip(&expected.embedding) {
            let found = together.double_value(&[row, column]);
            assert!((found - number).abs() < 2e-6, "{found} {number}");
            let found = alone.double_value(&[0, column]);
            assert!((found - number).abs() < 2e-6, "{found} {number}");
        }
    }
}

#[test]
fn a_head_is_kept_as_a_dense_of_sentence_transformers() {
    let root = tempfile::tempdir().expect("a folder");
    let encoder = load(Path::new(TINY));
    let head = Head {
        weights: (0..16).map(|at| f64::from(at) / 8.0 - 1.0).collect(),
        bias: 0.25,
    };
    encoder.save_with_head(root.path(), &head).expect("written");
    assert!(is_encoder(root.path()));
    let again = load(root.path());
    assert_eq!(again.head(), Some(&head));
    let ids = [encoder.words().ids("the cat ran").expect("ids")];
    let embedding = encoder.embed(&ids);
    let by_hand: f64 = (0..)
        .zip(&head.weights)
        .map(|(at, weight)| embedding.double_value(&[0, at]) * weight)
        .sum();
    let scores = again.scores(&ids).expect("it has a head");
    assert!((scores[0] - by_hand - 0.25).abs() < 1e-9, "{scores:?}");
    // A second head takes the place of the first.
    let other = Head {
        weights: vec![1.0; 16],
        bias: 0.0,
    };
    again.save_with_head(root.path(), &other).expect("written");
    assert_eq!(load(root.path()).head(), Some(&other));
}

#[test]
fn what_is_no_such_encoder_is_refused_with_the_file_and_the_reason() {
    let spoilt = |file: &str, change: &dyn Fn(&mut Value)| {
        let root = tempfile::tempdir().expect("a folder");
        let directory = copy(root.path());
        let path = directory.join(file);
        let mut json: Value =
            serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
        change(&mut json);
        fs::write(&path, json.to_string()).expect("written");
        Encoder::load(&directory, None, Kind::Float, Device::Cpu)
            .expect_err("spoilt")
            .to_string()
    };
    for (file, change, part) in [
        (
            "config.json",
            &(|json: &mut Value| json["model_type"] = json!("mpnet")) as &dyn Fn(&mut Value),
            "config.json: model_type is mpnet; expected bert",
        ),
        (
            "config.json",
            &|json| json["num_attention_heads"] = json!(5),
            "hidden_size 16 is no multiple of num_attention_heads 5",
        ),
        (
            "config.json",
            &|json| json["num_hidden_layers"] = json!(3),
            "tensors that config.json asks for are missing",
        ),
        (
            "config.json",
            &|json| json["num_hidden_layers"] = json!(9_000_000_000_u64),
            "num_hidden_layers is 9000000000; expected",
        ),
        (
            "1_Pooling/config.json",
            &|json| json["pooling_mode_cls_token"] = json!(true),
            "it pools by pooling_mode_cls_token, pooling_mode_mean_tokens; expected",
        ),
        (
            "modules.json",
            &|json| json[2]["type"] = json!("sentence_transformers.models.LSTM"),
            "module 2 is sentence_transformers.models.LSTM in \"2_Normalize\"; expected",
        ),
        (
            "modules.json",
            &|json| *json = json!([]),
            "modules.json: it has no Pooling",
        ),
    ] {
        let message = spoilt(file, change);
        assert!(message.contains(part), "{message}");
    }
}

/// Runs `reward-train` on a sentence encoder.
fn learn(root: &Path, data: &Path) -> (runlog::run_dir::RunDir, Output) {
    let yaml = format!(
        "actor_rollout_ref:\n  model:\n    path: {TINY}\nsft:\n  train_files: {}\n  output_dir: {}\ntrainer:\n  threads: 1\n  device: cpu\n",
        data.display(),
        root.join("out").display(),
    );
    let directory = tiny::run_dir(root, yaml);
    let output = Command::new(env!("CARGO_BIN_EXE_lathe-trainer"))
        .args(["reward-train", "--run-dir"])
        .arg(directory.path())
        .output()
        .expect("the program starts");
    (directory, output)
}

#[test]
fn a_head_that_learned_from_preferences_tells_held_out_answers_apart_and_judges() {
    let root = tempfile::tempdir().expect("a folder");
    let rows: Vec<Value> = (0..150)
        .map(|at| {
            let animal = ["cat", "dog"][at % 2];
            json!({"prompt": format!("what is {at} ?"), "chosen": format!("yes please the {animal} ran"), "rejected": format!("no the {animal} sat on the mat")})
        })
        .collect();
    let data = write(root.path(), "pairs.jsonl", &rows);
    let (run, output) = learn(root.path(), &data);
    let report = report(&run, &output);
    let pairs = report.pairs.expect("pairs");
    assert_eq!(pairs.pairs + report.learned_from, 150);
    assert!(pairs.accuracy > 0.95, "{}", pairs.accuracy);
    let (events, _) = tail::read_all(&run.events_path()).expect("events");
    let losses: Vec<f64> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::StepEnded { values, .. } => Some(values["train/cross_validated_loss"].0),
            _ => None,
        })
        .collect();
    assert_eq!(
        losses.len() as u64,
        report.steps,
        "one a penalty, and the one that is kept"
    );
    let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(losses.last(), Some(&least));
    let unseen = report.cross_validated.expect("pairs");
    assert_eq!(unseen.pairs, report.learned_from);
    assert!(unseen.accuracy > 0.95, "{}", unseen.accuracy);
    let judge = RewardModel::load(&root.path().join("out"), None, Kind::Float, Device::Cpu)
        .expect("the model loads");
    let reader = judge.reader();
    let prompt = [Message::new("user", "what is 99 ?")];
    let ids = ["yes please the dog ran", "no the cat sat on the mat"]
        .map(|answer| reader.ids(&prompt, answer).expect("ids"));
    let scores = judge.scores(&ids);
    assert!(scores[0] > scores[1], "{scores:?}");
}

#[test]
fn a_head_may_learn_scores_and_an_encoder_without_one_is_no_judge() {
    let root = tempfile::tempdir().expect("a folder");
    let rows: Vec<Value> = (0..150)
        .map(|at| {
            let (answer, score) = [("yes", 2.0), ("no", -1.0)][at % 2];
            json!({"prompt": format!("what is {at} ?"), "response": answer, "score": score})
        })
        .collect();
    let data = write(root.path(), "scores.jsonl", &rows);
    let (run, output) = learn(root.path(), &data);
    let scores = report(&run, &output).scores.expect("scores");
    assert!(scores.rmse < 0.5, "{}", scores.rmse);
    let error = RewardModel::load(Path::new(TINY), None, Kind::Float, Device::Cpu)
        .expect_err("no head")
        .to_string();
    assert!(
        error.contains("is a sentence encoder: it has no score head"),
        "{error}"
    );
}
