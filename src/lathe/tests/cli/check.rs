//! `lathe check` and `lathe data` on real rows, a real tokenizer and the headers of real weights.

use std::fs;
use std::path::Path;

use dialogue::recipe::{TinyModel, write_tiny};
use serde_json::Value;

use super::harness::{Bench, Ran};

const TOOLS: &str = "tools:\n  - class_name: calculator\n";

/// The smallest weights with a whole header.
fn weights(path: &Path) {
    let data = [0_u8; 16];
    let view =
        safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![4], &data).unwrap();
    fs::write(path, safetensors::serialize([("w", view)], None).unwrap()).unwrap();
}

/// An experiment whose every input exists.
fn whole() -> Bench {
    let bench = Bench::new();
    let made = bench.run(["data", "make", "calc", "--out", ".", "--rows", "40"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    write_tiny(TinyModel::Calc, &bench.path("model")).unwrap();
    weights(&bench.path("model/model.safetensors"));
    fs::write(bench.path("tools.yaml"), TOOLS).unwrap();
    let yaml = super::harness::EXPERIMENT
        .replace("[train.parquet]", "[calc-train.parquet]")
        .replace("[test.parquet]", "[calc-test.parquet]")
        .replace(
            "    n: 2\n",
            "    n: 2\n    multi_turn:\n      enable: true\n      tool_config_path: tools.yaml\n",
        );
    fs::write(bench.path("toy.yaml"), yaml).unwrap();
    bench
}

fn check(bench: &Bench, more: &[&str]) -> (Ran, Value) {
    let mut arguments = vec!["check", "toy.yaml", "--json"];
    arguments.extend(more);
    let ran = bench.run(arguments);
    let json = ran.last_json();
    (ran, json)
}

/// Messages of the findings of one area.
fn findings<'a>(json: &'a Value, area: &str) -> Vec<&'a str> {
    json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["area"] == area)
        .map(|finding| finding["message"].as_str().unwrap())
        .collect()
}

#[test]
fn a_whole_experiment_is_tried_on_real_rows_and_is_ok() {
    let bench = whole();
    let (ran, json) = check(&bench, &[]);
    assert_eq!(
        (ran.code, &json["is_ok"]),
        (Some(0), &Value::Bool(true)),
        "{json:#}"
    );
    assert_eq!(json["findings"], Value::Array(vec![]), "{json:#}");
    assert_eq!(json["dry_run"]["tools"][0], "calculator");
    let file = &json["dry_run"]["files"][0];
    assert_eq!(
        (file["rows"].as_u64(), file["rows_tried"].as_u64()),
        (Some(40), Some(40))
    );
    assert!(file["prompt_tokens_max"].as_u64().unwrap() > 3);
    let scorer = &json["dry_run"]["scorers"][0];
    assert_eq!(
        (&scorer["truth_score"], &scorer["garbage_score"]),
        (&Value::from(1.0), &Value::from(0.0))
    );
    assert_eq!(json["effective"]["algorithm"]["adv_estimator"], "grpo");
    let text = bench.run(["check", "toy.yaml"]);
    assert!(
        text.stdout
            .contains("scorer  numeric for lathe/calc: the truth scores 1.00, nonsense 0"),
        "{}",
        text.stdout
    );
    assert!(
        text.stdout.contains("<|im_start|>assistant"),
        "{}",
        text.stdout
    );
    assert!(
        text.stdout.trim_end().ends_with("toy.yaml: ok") || text.stdout.contains("toy.yaml: ok, "),
        "{}",
        text.stdout
    );
}

#[test]
fn the_dialogues_of_the_guards_probe_are_looked_for_and_tried() {
    let bench = whole();
    let with_probe = |files: &str| {
        let set = format!("trainer.guard_probe_files={files}");
        check(&bench, &["trainer.guards=online", &set])
    };
    let dialogue =
        r#"{"messages":[{"role":"user","content":"1+1="},{"role":"assistant","content":"2"}]}"#;
    fs::write(bench.path("probe.jsonl"), format!("{dialogue}\n").repeat(3)).unwrap();
    let (ran, json) = with_probe("probe.jsonl");
    assert_eq!(ran.code, Some(0), "{json:#}");
    let files = json["dry_run"]["files"].as_array().unwrap();
    let probe = files.last().unwrap();
    assert!(
        probe["path"].as_str().unwrap().ends_with("probe.jsonl"),
        "{json:#}"
    );
    assert_eq!(probe["rows_tried"], 3);

    fs::write(bench.path("empty.jsonl"), "").unwrap();
    fs::write(bench.path("broken.parquet"), "no parquet").unwrap();
    for (files, part) in [
        (
            "nowhere.parquet",
            "trainer.guard_probe_files names nowhere.parquet, which does not exist",
        ),
        ("empty.jsonl", "has no rows"),
        ("broken.parquet", "broken.parquet"),
        // Prompts have no turn of the assistant to be judged by.
        ("calc-train.parquet", "calc-train.parquet"),
    ] {
        let (_, json) = with_probe(files);
        let found = findings(&json, "data");
        assert_eq!(found.len(), 1, "{files}: {json:#}");
        assert!(
            found[0].contains(part) && found[0].contains("trainer.guard_probe_files"),
            "{files}: {found:?}"
        );
    }
    bench.program("trainer", "exit 0");
    let ran = bench.run([
        "run",
        "toy.yaml",
        "trainer.guards=online",
        "trainer.guard_probe_files=nowhere.parquet",
    ]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr.contains("names nowhere.parquet"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_reward_model_and_labels_that_are_not_there_are_told_and_a_run_needs_the_model() {
    let bench = whole();
    let overrides = [
        "+reward.arms=[{name: rm, scorer: model, options: {path: models/rm}}, {name: rule, scorer: numeric}, {name: people, scorer: human, options: {labels: later.jsonl}}]",
        "reward.bandit.policy=thompson",
        "reward.bandit.rewarded_by=human_agreement",
        "reward.bandit.label_files=[labels.jsonl]",
    ];
    let (ran, json) = check(&bench, &overrides);
    assert_eq!(ran.code, Some(0), "{json:#}");
    let found = findings(&json, "scorer");
    assert!(
        found.iter().any(|found| found
            .contains("reward.arms: rm: its path is models/rm, which holds no config.json")),
        "{found:?}"
    );
    assert!(
        found.iter().any(|found| found
            .contains("reward.arms: people: its labels are later.jsonl, which does not exist yet")),
        "{found:?}"
    );
    let found = findings(&json, "data");
    assert!(
        found.iter().any(|found| found
            .contains("reward.bandit.label_files names labels.jsonl, which does not exist yet")),
        "{found:?}"
    );
    bench.program("trainer", "exit 0");
    let ran = bench.run(["run", "toy.yaml"].into_iter().chain(overrides));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr.contains("reward.arms: rm: its path is"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_part_of_the_score_that_no_answer_has_is_told_with_those_there_are() {
    let bench = whole();
    let told = |overrides: &[&str]| -> Vec<String> {
        let (_, json) = check(&bench, overrides);
        let found = findings(&json, "scorer").into_iter();
        found
            .filter(|found| found.contains("which no row's score has"))
            .map(str::to_owned)
            .collect()
    };
    let arms = "+reward.arms=[{name: rule, scorer: numeric}, {name: shape, scorer: length, options: {unit: characters, max: 100}}]";
    let filter = |metric: &str| format!("algorithm.filter_groups.metric={metric}");
    let enable = "algorithm.filter_groups.enable=true";
    assert_eq!(told(&[arms, enable, &filter("reward")]), [""; 0]);
    assert_eq!(told(&[arms, enable, &filter("arm/shape")]), [""; 0]);
    assert_eq!(
        told(&[arms, enable, &filter("shap")]),
        [
            "algorithm.filter_groups.metric names shap, which no row's score has; there are reward, arm/rule, arm/shape"
        ]
    );
    assert_eq!(
        told(&[
            arms,
            "algorithm.adv_estimator=gdpo",
            "algorithm.gdpo_reward_keys=[score,arm/rul]"
        ]),
        [
            "algorithm.gdpo_reward_keys names arm/rul, which no row's score has; there are score, arm/rule, arm/shape"
        ]
    );
}

#[test]
fn a_misspelt_key_is_named_with_its_line_and_nothing_is_tried() {
    let bench = whole();
    let yaml = fs::read_to_string(bench.path("toy.yaml")).unwrap();
    fs::write(
        bench.path("toy.yaml"),
        yaml.replace("actor_rollout_ref:", "actor_rolout_ref:"),
    )
    .unwrap();
    let ran = bench.run(["check", "toy.yaml"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stdout.contains("error: toy.yaml:6: "), "{}", ran.stdout);
    assert!(ran.stdout.contains("actor_rollout_ref"), "{}", ran.stdout);
    let (_, json) = check(&bench, &[]);
    assert_eq!(json["complaints"][0]["line"], 6);
    assert_eq!(json["dry_run"], Value::Null);
}

#[test]
fn what_is_not_on_this_machine_is_a_warning_and_with_strict_an_error() {
    let bench = whole();
    let absent = [
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct",
        "data.val_files=[elsewhere.parquet]",
    ];
    let (ran, json) = check(&bench, &absent);
    assert_eq!(ran.code, Some(0), "{json:#}");
    assert!(
        findings(&json, "model")[0].contains("`hf download Qwen/Qwen2.5-3B-Instruct"),
        "{json:#}"
    );
    assert!(
        findings(&json, "data")[0].contains("elsewhere.parquet, which does not exist"),
        "{json:#}"
    );
    let (ran, _) = check(&bench, &[absent[0], absent[1], "--strict"]);
    assert_eq!(ran.code, Some(3));
}

#[test]
fn a_run_refuses_what_is_not_there_before_it_starts_anything() {
    let bench = whole();
    bench.program("trainer", "exit 0");
    let ran = bench.run([
        "run",
        "toy.yaml",
        "actor_rollout_ref.model.path=no/model",
        "data.train_files=[no.parquet]",
    ]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr.contains("`hf download no/model"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("no.parquet, which does not exist"),
        "{}",
        ran.stderr
    );
    assert!(!bench.path("runs").exists());
}

#[test]
fn several_files_are_checked_one_by_one_and_the_worst_decides() {
    let bench = whole();
    let yaml = fs::read_to_string(bench.path("toy.yaml")).unwrap();
    fs::write(bench.path("bad.yaml"), yaml.replace("data:", "date:")).unwrap();
    let ran = bench.run(["check", "toy.yaml", "bad.yaml", "trainer.seed=7"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stdout.contains("toy.yaml: ok"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("error: bad.yaml:2: unknown key date"),
        "{}",
        ran.stdout
    );
    let lines = bench
        .run(["check", "toy.yaml", "bad.yaml", "--json"])
        .json_lines();
    assert_eq!(
        (&lines[0]["is_ok"], &lines[1]["is_ok"]),
        (&Value::Bool(true), &Value::Bool(false))
    );
    assert_eq!(lines[1]["findings"], Value::Array(vec![]));
}

#[test]
fn a_warm_up_is_tried_on_its_demonstrations_and_needs_no_prompts_or_weights() {
    let bench = whole();
    let row =
        r#"{"messages":[{"role":"user","content":"2+2"},{"role":"assistant","content":"4"}]}"#;
    fs::write(bench.path("good.jsonl"), row).unwrap();
    let made = bench.run(["data", "convert", "good.jsonl", "good.parquet"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    fs::remove_file(bench.path("model/model.safetensors")).unwrap();
    let yaml = "actor_rollout_ref:\n  model:\n    tokenizer_path: model\n\
                sft:\n  init_config: model/config.json\n  train_files: [good.parquet]\n  output_dir: warm\n";
    fs::write(bench.path("toy.yaml"), yaml).unwrap();
    let (ran, json) = check(&bench, &[]);
    assert_eq!(ran.code, Some(0), "{json:#}");
    assert_eq!(json["dry_run"]["files"][0]["rows"], 1);
    let (ran, json) = check(&bench, &["sft.train_files=[calc-train.parquet]"]);
    assert_eq!(ran.code, Some(3), "{json:#}");
    assert!(
        findings(&json, "data")[0].contains("calc-train.parquet: row 0"),
        "{json:#}"
    );
}

#[test]
fn a_model_without_weights_is_missing_and_a_run_on_it_is_refused() {
    let bench = whole();
    bench.program("trainer", "exit 0");
    fs::remove_file(bench.path("model/model.safetensors")).unwrap();
    let (ran, json) = check(&bench, &[]);
    assert_eq!(ran.code, Some(0), "{json:#}");
    assert!(
        findings(&json, "model")[0].contains("has no weights yet"),
        "{json:#}"
    );
    let ran = bench.run(["run", "toy.yaml"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("has no weights yet"), "{}", ran.stderr);
    assert!(!bench.path("runs").exists());
}

#[test]
fn a_prompt_over_the_limit_is_an_error_unless_the_filter_is_on() {
    let bench = whole();
    let (ran, json) = check(&bench, &["data.max_prompt_length=3"]);
    assert_eq!(ran.code, Some(3));
    assert!(
        findings(&json, "data")[0].contains("calc-train.parquet: row 0: the prompt has"),
        "{json:#}"
    );
    let (ran, json) = check(
        &bench,
        &[
            "data.max_prompt_length=3",
            "data.filter_overlong_prompts=true",
        ],
    );
    assert_eq!(ran.code, Some(0), "{json:#}");
    assert!(
        findings(&json, "data")[0].ends_with("39 more will be left out"),
        "{json:#}"
    );
}

#[test]
fn a_scorer_that_does_not_suit_the_data_is_found_before_the_first_step() {
    let bench = whole();
    let row = |source: &str, truth: &str| {
        format!(
            r#"{{"prompt":[{{"role":"user","content":"2+2"}}],"data_source":"{source}","reward_model":{{"style":"rule","ground_truth":"{truth}"}}}}"#
        )
    };
    fs::write(
        bench.path("rows.jsonl"),
        [row("my/own", "4"), row("lathe/calc", "four")].join("\n"),
    )
    .unwrap();
    let made = bench.run(["data", "convert", "rows.jsonl", "rows.parquet"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let (ran, json) = check(&bench, &["data.train_files=[rows.parquet]"]);
    assert_eq!(ran.code, Some(3), "{json:#}");
    let found = findings(&json, "scorer").join("\n");
    assert!(
        found.contains("no scorer for data_source `my/own`"),
        "{found}"
    );
    assert!(
        found.contains("rows.parquet: row 1: reward_model.ground_truth"),
        "{found}"
    );
}

#[test]
fn corrupt_inputs_are_named_one_by_one() {
    let bench = whole();
    fs::write(bench.path("calc-train.parquet"), "PAR1 not really").unwrap();
    fs::write(
        bench.path("tools.yaml"),
        "tools:\n  - class_name: calculater\n",
    )
    .unwrap();
    fs::write(bench.path("model/tokenizer.json"), "{").unwrap();
    fs::write(bench.path("model/model.safetensors"), "cut").unwrap();
    let (ran, json) = check(&bench, &[]);
    assert_eq!(ran.code, Some(3), "{json:#}");
    for (area, text) in [
        ("data", "calc-train.parquet: is not a Parquet file"),
        ("tools", "calculater"),
        ("tokenizer", "tokenizer.json"),
        (
            "model",
            "model.safetensors: has 3 bytes, which is no safetensors file",
        ),
    ] {
        assert!(
            findings(&json, area)
                .iter()
                .any(|message| message.contains(text)),
            "{area}: {json:#}"
        );
    }
}

#[test]
fn a_data_set_is_shown_with_counts_lengths_and_rows() {
    let bench = whole();
    let json = bench
        .run([
            "data",
            "show",
            "calc-train.parquet",
            "--json",
            "--rows",
            "1",
            "--tokenizer",
            "model",
        ])
        .last_json();
    assert_eq!(json["rows"], 40);
    assert_eq!(json["data_sources"]["lathe/calc"], 40);
    assert_eq!(json["tokens"]["count"], 40);
    assert_eq!(json["samples"].as_array().unwrap().len(), 1);
    let text = bench.run(["data", "show", "calc-train.parquet"]).stdout;
    assert!(text.starts_with("calc-train.parquet: 40 rows\n"), "{text}");
    assert!(
        text.contains("reward_model") && text.contains("ground truth: "),
        "{text}"
    );
    let ran = bench.run(["data", "show", "none.parquet"]);
    assert_eq!(ran.code, Some(3));
    assert!(
        ran.stderr
            .starts_with("error: none.parquet: cannot be opened"),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_same_seed_makes_the_same_bytes_and_an_unknown_recipe_names_the_known() {
    let bench = Bench::new();
    for (out, seed) in [("a", "5"), ("b", "5"), ("c", "6")] {
        let ran = bench.run([
            "data", "make", "calc", "--out", out, "--seed", seed, "--rows", "20",
        ]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let read = |folder: &str| fs::read(bench.path(folder).join("calc-train.parquet")).unwrap();
    assert_eq!(read("a"), read("b"));
    assert_ne!(read("a"), read("c"));
    let ran = bench.run(["data", "make", "calk", "--out", "d"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr
            .contains("there is no recipe calk; expected one of calc,"),
        "{}",
        ran.stderr
    );
    assert!(!bench.path("d").exists());
}

#[test]
fn files_beside_the_experiment_are_found_from_any_folder_and_reach_the_run_by_full_path() {
    let bench = whole();
    bench.program("trainer", "exit 3");
    fs::create_dir(bench.path("elsewhere")).unwrap();
    let mut command = bench.lathe(["run", "../toy.yaml", "--runs", "../runs"]);
    let ran = super::harness::finished(
        command
            .current_dir(bench.path("elsewhere"))
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let yaml = fs::read_to_string(bench.run_dir().join("experiment.yaml")).unwrap();
    let loaded: Value = bench
        .run([
            "check",
            bench.run_dir().join("experiment.yaml").to_str().unwrap(),
            "--json",
        ])
        .last_json();
    let effective = &loaded["effective"];
    for path in [
        &effective["actor_rollout_ref"]["model"]["path"],
        &effective["data"]["train_files"][0],
    ] {
        let path = Path::new(path.as_str().unwrap());
        assert!(path.is_absolute() && path.exists(), "{path:?} in {yaml}");
    }
}
