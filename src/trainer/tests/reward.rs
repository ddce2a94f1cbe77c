//! Reward models from end to end: learned by the real program, loaded as an arm, judged as by hand.

mod common;
mod encoder;
mod tiny;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use dialogue::message::Message;
use dialogue::score::{ModelScorers, Scorers, Sees, Transcript};
use experiment::arms::{Arm, Model};
use experiment::scorers::ScorerName;
use experiment::settings::Reward;
use runlog::event::EventKind;
use runlog::tail;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};
use trainer::model::config::{Head, ModelConfig};
use trainer::model::parameters::Parameters;
use trainer::model::transformer::Transformer;
use trainer::reward::RewardModel;
use trainer::reward::arm::Models;
use trainer::reward::train::Report;

/// A tokenizer and a config of two layers.
fn model(root: &Path) -> PathBuf {
    let directory = root.join("model");
    dialogue::recipe::write_tiny(dialogue::recipe::TinyModel::Calc, &directory)
        .expect("a tokenizer and a config");
    let path = directory.join("config.json");
    let text = fs::read_to_string(&path).expect("a config");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    config["num_hidden_layers"] = json!(2);
    fs::write(&path, config.to_string()).expect("written");
    directory
}

/// Random weights under this head, where the config is.
fn weights(directory: &Path, head: Head) -> Parameters {
    let config = ModelConfig::load(directory).expect("a config");
    let parameters = Parameters::random(
        &Arc::new(config.with_head(head)),
        7,
        Kind::Float,
        Device::Cpu,
    );
    parameters
        .save_pretrained(directory, None)
        .expect("written");
    parameters
}

fn write(root: &Path, name: &str, rows: &[Value]) -> PathBuf {
    let path = root.join(name);
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    fs::write(&path, lines.join("\n")).expect("written");
    path
}

/// Runs the program on these rows.
fn learn(root: &Path, data: &Path, more: &str) -> (runlog::run_dir::RunDir, Output) {
    learn_as(root, data, "", more)
}

/// With more keys of `sft`.
fn learn_with(root: &Path, data: &Path, sft: &str) -> (runlog::run_dir::RunDir, Output) {
    learn_as(root, data, sft, "")
}

fn learn_as(root: &Path, data: &Path, sft: &str, more: &str) -> (runlog::run_dir::RunDir, Output) {
    let model = root.join("model");
    let yaml = format!(
        "actor_rollout_ref:\n  model:\n    tokenizer_path: {model}\nsft:\n  init_config: {model}/config.json\n  train_files: {data}\n  \
         batch_size: 16\n  total_training_steps: 60\n  output_dir: {out}\n  optim: {{lr: 3e-3}}\n{sft}data:\n  max_prompt_length: 64\n  \
         max_response_length: 64\ntrainer:\n  threads: 1\n  device: cpu\n{more}",
        model = model.display(),
        data = data.display(),
        out = root.join("out").display(),
    );
    let directory = tiny::run_dir(root, yaml);
    let output = Command::new(env!("CARGO_BIN_EXE_lathe-trainer"))
        .args(["reward-train", "--run-dir"])
        .arg(directory.path())
        .output()
        .expect("the program starts");
    (directory, output)
}

fn report(run: &runlog::run_dir::RunDir, output: &Output) -> Report {
    let text = fs::read_to_string(run.path().join("reward.json"))
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_str(&text).expect("a report")
}

/// Who is polite is preferred, whatever the question.
fn polite_pairs() -> Vec<Value> {
    (0..120)
        .map(|at| {
            json!({"prompt": format!("{at}?"), "chosen": format!("please {}", at % 7), "rejected": format!("no {}", at % 5)})
        })
        .collect()
}

#[test]
fn a_model_that_learned_from_preferences_tells_held_out_answers_apart_and_judges_as_an_arm() {
    let root = tempfile::tempdir().expect("a folder");
    model(root.path());
    let data = write(root.path(), "pairs.jsonl", &polite_pairs());
    let (run, output) = learn(root.path(), &data, "");
    let report = report(&run, &output);
    let pairs = report.pairs.expect("pairs");
    assert_eq!(pairs.pairs + report.learned_from, 120);
    assert!(
        (5..=20).contains(&pairs.pairs),
        "about a tenth: {}",
        pairs.pairs
    );
    assert_eq!(pairs.accuracy, 1.0);
    assert!(pairs.log_loss < 0.3, "{}", pairs.log_loss);
    assert_eq!(
        pairs.reliability.iter().map(|bin| bin.pairs).sum::<u64>(),
        pairs.pairs
    );
    let (events, bad) = tail::read_all(&run.events_path()).expect("events");
    assert!(bad.is_empty());
    let evaluations: Vec<f64> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::EvalEnded { values, .. } => Some(values["val/accuracy"].0),
            _ => None,
        })
        .collect();
    assert_eq!(evaluations.len(), 10);
    assert!(events.iter().any(
        |event| matches!(&event.kind, EventKind::RunStarted { mode, .. } if mode == "reward")
    ));
    // What was saved judges as it did at the end.
    let judge = RewardModel::load(&root.path().join("out"), None, Kind::Float, Device::Cpu)
        .expect("the model loads");
    let reader = judge.reader();
    let prompt = [Message::new("user", "99999?")];
    let ids = ["please 3", "no 3"].map(|answer| reader.ids(&prompt, answer).expect("ids"));
    let scores = judge.scores(&ids);
    assert!(scores[0] > scores[1], "{scores:?}");
}

#[test]
fn a_model_is_distilled_from_the_reward_of_the_experiment() {
    let root = tempfile::tempdir().expect("a folder");
    model(root.path());
    // No scores: the experiment's own scorer gives them.
    let rows: Vec<Value> = (0..200)
        .map(|at| {
            let answer = at % 2;
            json!({"prompt": format!("{at}?"), "response": format!("{answer}"), "ground_truth": "1", "data_source": "any"})
        })
        .collect();
    let data = write(root.path(), "answers.jsonl", &rows);
    let (run, output) = learn(root.path(), &data, "reward:\n  scorer: exact\n");
    let scores = report(&run, &output).scores.expect("scores");
    assert!(scores.rmse_of_mean > 0.4, "half are right: {scores:?}");
    assert!(
        scores.rmse < 0.2 && scores.correlation > Some(0.9),
        "{scores:?}"
    );
}

/// Sums with a right and a wrong answer, either of which may be polite; the right one is preferred.
fn right_pairs() -> Vec<Value> {
    (0..160)
        .map(|at| {
            let tone = |polite: bool| if polite { "please " } else { "no " };
            let (chosen, rejected) = (tone(at % 2 == 0), tone(at % 3 == 0));
            json!({"prompt": format!("{at}+{}=", at % 9), "ground_truth": (at + at % 9).to_string(),
                "chosen": format!("{chosen}{}", at + at % 9), "rejected": format!("{rejected}{}", at + 1 + at % 7 + at % 9)})
        })
        .collect()
}

#[tokio::test]
async fn what_no_sound_tells_a_rule_beside_the_model_does_and_its_arm_asks_it_too() {
    let root = tempfile::tempdir().expect("a folder");
    model(root.path());
    let data = write(root.path(), "pairs.jsonl", &right_pairs());
    let (run, output) = learn_with(root.path(), &data, "  scorers: [numeric]\n");
    let told = report(&run, &output);
    let weight = told.scorers["numeric"];
    assert!(weight > 1.0, "{weight}");
    assert_eq!(told.pairs.expect("pairs").accuracy, 1.0);
    let out = root.path().join("out");
    let models = Models {
        device: Device::Cpu,
    };
    let options = Model {
        path: out.display().to_string(),
        ..Model::default()
    };
    let arm = models
        .scorer(&options, Sees::default())
        .expect("it loads with its rule");
    let judge = RewardModel::load(&out, None, Kind::Float, Device::Cpu).expect("the model alone");
    let reader = judge.reader();
    for (answer, rule) in [("15", weight), ("16", 0.0)] {
        let mut asked = transcript(answer);
        asked.model_turns = vec![answer.to_owned()];
        asked.messages = vec![asked.messages[0].clone(), Message::new("assistant", answer)];
        asked.ground_truth = json!("15");
        let given = arm.score(&asked).await.expect("a score").value;
        let ids = reader.ids(&asked.messages[..1], answer).expect("ids");
        let by_hand = judge.scores(&[ids])[0] + rule;
        assert!(
            (given - by_hand).abs() < 1e-5,
            "{answer}: {given} {by_hand}"
        );
    }
    // Without what the rule compares with there is an error and no score.
    arm.score(&transcript("15")).await.expect_err("no truth");

    // Learned anew without one, nothing of it is left.
    learn(root.path(), &data, "");
    assert!(!out.join("scorers.json").exists());
    let mut rows = right_pairs();
    rows[3]["ground_truth"] = Value::Null;
    let data = write(root.path(), "pairs.jsonl", &rows);
    let (_, output) = learn_with(root.path(), &data, "  scorers: [numeric]\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("row 3: sft.scorers: numeric cannot score it"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_learned_from_is_an_input_error_that_names_the_row() {
    let root = tempfile::tempdir().expect("a folder");
    model(root.path());
    for (rows, message) in [
        (vec![], "pairs.jsonl has no rows"),
        (
            vec![json!({"prompt": "a", "chosen": "b", "rejected": "b"})],
            "row 0: chosen and rejected are the same answer",
        ),
        (
            vec![json!({"prompt": "a", "better": "b"})],
            "row 0: column chosen is missing",
        ),
        (
            vec![json!({"prompt": "a".repeat(300), "chosen": "b", "rejected": "c"})],
            "this reward model takes 128",
        ),
    ] {
        let data = write(root.path(), "pairs.jsonl", &rows);
        let (_, output) = learn(root.path(), &data, "");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(message), "{message}: {said}");
        assert_eq!(
            output.status.code(),
            Some(runlog::exit_code::INPUT),
            "{said}"
        );
    }
}

fn transcript(answer: &str) -> Transcript {
    Transcript {
        data_source: "any".to_owned(),
        ground_truth: Value::Null,
        extra_info: Value::Null,
        model_turns: vec!["<call>".to_owned(), answer.to_owned()],
        messages: vec![
            Message::new("user", "12+3="),
            Message::new("assistant", "<call>"),
            Message::new("tool", "please, please"),
            Message::new("assistant", answer),
        ],
        prompt_messages: 1,
        tool_rewards: std::collections::BTreeMap::new(),
    }
}

#[tokio::test]
async fn an_arm_says_what_the_forward_pass_by_hand_says_of_the_model_s_own_words() {
    let root = tempfile::tempdir().expect("a folder");
    let directory = model(root.path());
    let parameters = weights(&directory, Head::Reward);
    let options = json!({"path": directory.display().to_string(), "batch": 4});
    let mut arm = Arm::new("rm", ScorerName::Model);
    arm.options = options.as_object().expect("an object").clone();
    arm.timeout = 60.0;
    let reward = Reward {
        arms: vec![arm],
        ..Reward::default()
    };
    let scorers = Scorers::with_models(
        &reward,
        &Models {
            device: Device::Cpu,
        },
    )
    .expect("an arm");
    let scorer = scorers.for_source("any").expect("all");
    let given = scorer.score(&transcript("15")).await.expect("a score");

    // By hand: ChatML, no tool text, every row one pass, the last row times the head.
    let chat =
        dialogue::chat::Chat::load(&directory, None, &serde_json::Map::new()).expect("a chat");
    let said = [
        Message::new("user", "12+3="),
        Message::new("assistant", "<call>\n15"),
    ];
    let ids = chat.sft_ids(&said, &[]).expect("ids").ids;
    let by_hand = tch::no_grad(|| {
        let transformer = Transformer::new(parameters.shallow_clone(), Kind::Float, false);
        let packed = common::pack(std::slice::from_ref(&ids));
        let last = transformer.hidden(&packed).rows.get(ids.len() as i64 - 1);
        let head = parameters.get("score.weight").expect("a head").view([-1]);
        Tensor::dot(&last, &head).double_value(&[])
    });
    assert!(
        (given.value - by_hand).abs() < 1e-5,
        "{} {by_hand}",
        given.value
    );
    assert_eq!(given.parts["arm/rm/together"], 1.0);
}

#[test]
fn a_path_without_a_reward_model_is_an_error_of_the_arm() {
    let root = tempfile::tempdir().expect("a folder");
    let directory = model(root.path());
    weights(&directory, Head::Language);
    let models = Models {
        device: Device::Cpu,
    };
    for (path, message) in [
        (directory.display().to_string(), "it has no score head"),
        (
            root.path().join("none").display().to_string(),
            "cannot read",
        ),
    ] {
        let options = Model {
            path,
            ..Model::default()
        };
        let error = models
            .scorer(&options, Sees::default())
            .expect_err("no reward model");
        assert!(error.contains(message), "{error}");
    }
}
