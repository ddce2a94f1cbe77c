//! `lathe eval` on the shipped models, and `lathe winrate` between two of its runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use super::*;

/// A few prompts, two answers each, with the calculator.
fn eval(runs: &Path, name: &str, more: &[&str]) -> Output {
    let arguments = [
        "eval",
        "experiments/models/calc-tiny",
        "--experiment",
        "experiments/quickstart.yaml",
        "--name",
        name,
        "--set",
        "data.val_max_samples=6",
        "--set",
        "trainer.device=cpu",
    ];
    lathe(runs, &[&arguments, more].concat())
        .output()
        .expect("lathe starts")
}

fn only_run(runs: &Path, name: &str) -> PathBuf {
    let mut found: Vec<PathBuf> = fs::read_dir(runs)
        .expect("a folder of runs")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.to_string_lossy().contains(name))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn values_of(run: &Path) -> serde_json::Map<String, Value> {
    let log = fs::read_to_string(run.join("events.jsonl")).expect("a log");
    let mut values = serde_json::Map::new();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).expect("an event");
        if event["event"] == "eval_ended" {
            values.extend(event["values"].as_object().expect("values").clone());
        }
    }
    values
}

#[test]
fn an_evaluation_is_a_run_with_its_numbers_and_answers_and_two_of_them_have_a_win_rate() {
    if trainer().is_none() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary directory");
    let runs = root.path();
    let output = eval(
        runs,
        "warm",
        &[
            "-n",
            "2",
            "--perplexity",
            "datasets/calc-demos.parquet",
            "--json",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = last_object(&output);
    assert_eq!(summary["status"], "finished");
    let warm = only_run(runs, "warm");
    let values = values_of(&warm);
    let source = "lathe/calc";
    for name in ["mean@2", "best@2/mean", "maj@2/mean", "pass@1", "pass@2"] {
        let name = format!("val-core/{source}/reward/{name}");
        let value = values.get(&name).and_then(Value::as_f64);
        assert!(
            value.is_some_and(|value| (0.0..=1.0).contains(&value)),
            "{name} in {values:?}"
        );
    }
    for name in ["latency_s/p95", "reward/mean@2/standard_error"] {
        assert!(
            values.contains_key(&format!("val-aux/{source}/{name}")),
            "{name}"
        );
    }
    // It was trained on such dialogues.
    assert!(values["probe/perplexity"].as_f64().expect("a number") < 2.0);
    assert!(warm.join("rollouts/step-000000.parquet").is_file());
    assert!(!warm.join("checkpoints").exists(), "nothing was trained");

    let plain = eval(runs, "greedy", &["-n", "1", "--temperature", "0"]);
    assert_eq!(plain.status.code(), Some(0), "{plain:?}");
    let text = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(
        text.contains("mean@1") && text.contains("answers in"),
        "{text}"
    );

    let winrate = |more: &[&str]| {
        let (warm, greedy) = (warm.to_string_lossy(), only_run(runs, "greedy"));
        let greedy = greedy.to_string_lossy();
        let arguments = ["winrate", &warm, "--against", &greedy, "--json"];
        let output = lathe(runs, &[&arguments, more].concat())
            .output()
            .expect("lathe starts");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        last_object(&output)
    };
    let own = winrate(&[]);
    assert_eq!(own["prompts"], 6);
    let count = |name: &str| own[name].as_u64().expect("a count");
    assert_eq!(count("wins") + count("losses") + count("draws"), 6);
    // The rules of the experiment that both were scored by, asked again, say the same.
    let judged = winrate(&["--judge", "experiments/quickstart.yaml"]);
    assert_eq!(judged["win_rate"], own["win_rate"]);
    assert_eq!(judged["length"], own["length"]);
    assert_ne!(judged["judge"], own["judge"]);

    // A judge that compares, and likes the first of two equals: asked in both orders, that is nobody's win.
    let judge = runs.join("judge.yaml");
    let quickstart = fs::read_to_string(Path::new(ROOT).join("experiments/quickstart.yaml"));
    let arm = format!(
        "reward:\n  arms:\n    - {{scorer: judge, timeout: 20s, concurrency: 4, options: {{url: \"{}\", model: m, range: [0, 1], template: \"{{{{answer}}}}|{{{{reference}}}}\"}}}}\n",
        longer_wins()
    );
    fs::write(&judge, quickstart.expect("an experiment") + &arm).expect("written");
    let compared = winrate(&["--judge", &judge.to_string_lossy()]);
    assert_eq!(compared["prompts"], 6, "{compared}");
    let rate = |told: &Value| told["win_rate"].as_f64().expect("a number");
    let lengths = &compared["length"];
    assert_eq!(*lengths, own["length"]);
    let (warm, greedy) = (
        warm.to_string_lossy().into_owned(),
        only_run(runs, "greedy"),
    );
    let greedy = greedy.to_string_lossy().into_owned();
    let judge = judge.to_string_lossy().into_owned();
    let between = |one: &str, other: &str| {
        let arguments = [
            "winrate",
            one,
            "--against",
            other,
            "--json",
            "--judge",
            &judge,
        ];
        let output = lathe(runs, &arguments).output().expect("lathe starts");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        rate(&last_object(&output))
    };
    let (there, back) = (between(&warm, &greedy), between(&greedy, &warm));
    assert!((there + back - 1.0).abs() < 1e-9, "{there} {back}");
    assert!((there - rate(&compared)).abs() < 1e-9);
    assert!((between(&warm, &warm) - 0.5).abs() < 1e-9, "against itself");
}

/// A chat model that prefers the longer of two answers, and of equals the first; gives its address.
fn longer_wins() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                let header = line.to_ascii_lowercase();
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            let asked: Value = serde_json::from_slice(&body).expect("JSON");
            let text = asked["messages"][0]["content"].as_str().expect("words");
            let (answer, reference) = text.split_once('|').expect("two answers");
            let wins = u8::from(answer.len() >= reference.len());
            let said =
                serde_json::json!({"choices": [{"message": {"content": format!("[[{wins}]]")}}]});
            let said = said.to_string();
            let response = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{said}",
                said.len()
            );
            // Who has given up needs no answer.
            drop(reader.get_mut().write_all(response.as_bytes()));
        }
    });
    url
}

#[test]
fn a_model_that_is_none_is_told_with_its_exit_code_and_starts_no_run() {
    if trainer().is_none() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary directory");
    let output = lathe(
        root.path(),
        &[
            "eval",
            "datasets",
            "--data",
            "datasets/calc-test.parquet",
            "--json",
        ],
    )
    .output()
    .expect("lathe starts");
    assert_eq!(output.status.code(), Some(3));
    let said = last_object(&output);
    assert_eq!(said["status"], "refused");
    assert!(
        said["error"]
            .as_str()
            .expect("words")
            .contains("no config.json"),
        "{said}"
    );
    assert_eq!(fs::read_dir(root.path()).expect("a folder").count(), 0);
}

#[test]
fn data_that_are_not_there_or_no_prompts_are_told_as_the_option_and_leave_no_run() {
    let root = tempfile::tempdir().expect("a temporary folder");
    for (file, problem) in [
        (
            "no/such.parquet",
            "--data no/such.parquet: there is no such file",
        ),
        ("README.md", "--data README.md: expected a file of prompts"),
    ] {
        let output = eval(root.path(), "nothing", &["--data", file]);
        assert_eq!(output.status.code(), Some(3));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(problem), "{said}");
        assert_eq!(fs::read_dir(root.path()).expect("a folder").count(), 0);
    }
}
