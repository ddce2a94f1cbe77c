use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use experiment::arms::Arm;
use experiment::scorers::ScorerName;
use serde_json::json;

use super::super::arms::Arms;
use super::super::scorers::sample;
use super::*;

/// A reward function in a file of its own; None, said on stderr, where there is no python3 to run it.
fn reward(code: &str) -> Option<(tempfile::TempDir, Settings)> {
    let is_there = Command::new("python3")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("reward.py");
    std::fs::write(&path, code).expect("written");
    let settings = Settings {
        path: path.display().to_string(),
        ..Settings::default()
    };
    Some((directory, settings))
}

fn scorer(settings: Settings) -> Python {
    Python::new(settings, Sees::ModelText)
}

async fn score(scorer: &Python, answer: &str) -> Result<Score, String> {
    let mut transcript = sample(answer, json!("42"));
    transcript.data_source = "my/data".to_owned();
    transcript.extra_info = json!({"index": 7});
    scorer
        .score(&transcript)
        .await
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_function_written_for_verl_runs_as_it_is() {
    let code = r#"
import re

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    print("noise on stdout")
    assert data_source == "my/data" and extra_info["index"] == 7 and extra_info["num_turns"] == 2
    found = re.findall(r"\d+", solution_str)
    return 1.0 if found and found[-1] == ground_truth else 0.0
"#;
    let Some((_directory, settings)) = reward(code) else {
        return;
    };
    let scorer = scorer(settings);
    for (answer, expected) in [
        ("it is 42", 1.0),
        ("it is 41", 0.0),
        ("日本 \"42\"\n42", 1.0),
    ] {
        let score = score(&scorer, answer).await.expect("a score");
        assert_eq!(
            (score.value, score.parts["acc"]),
            (expected, expected),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_function_may_be_async_and_give_a_dict() {
    let code = r#"
import asyncio

async def judge(data_source, solution_str, ground_truth, extra_info, bonus=0.0):
    await asyncio.sleep(0)
    return {"score": len(solution_str) + bonus, "acc": True, "pred": "text", "depth": 3, "bad": float("nan")}
"#;
    let Some((_directory, mut settings)) = reward(code) else {
        return;
    };
    settings.name = "judge".to_owned();
    settings.kwargs.insert("bonus".to_owned(), json!(0.5));
    let score = score(&scorer(settings), "abc").await.expect("a score");
    assert_eq!(score.value, 3.5);
    let parts = BTreeMap::from([("acc".to_owned(), 1.0), ("depth".to_owned(), 3.0)]);
    assert_eq!(score.parts, parts);
}

#[tokio::test]
async fn whatever_a_function_does_costs_one_sample() {
    let code = r#"
import os, sys

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    what = solution_str
    if what == "raise":
        raise ValueError("no such case")
    if what == "exit":
        sys.exit(3)
    if what == "die":
        print("about to die", flush=True)
        os._exit(9)
    if what == "kill":
        os.kill(os.getpid(), 9)
    if what == "leak":
        return len([bytearray(1 << 20) for _ in range(1 << 20)])
    if what == "print":
        for _ in range(300):
            print("x" * 10000)
            print("y" * 10000, file=sys.stderr)
        return 0.25
    if what == "close":
        os.close(1)
        os.close(2)
        return 0.5
    if what == "read":
        return 0.75 if sys.stdin.read() == "" else 0.0
    if what == "nan":
        return float("nan")
    if what == "text":
        return "not a number"
    if what == "dict":
        return {"accuracy": 1}
    return float(os.getpid())
"#;
    let Some((_directory, mut settings)) = reward(code) else {
        return;
    };
    settings.memory_mb = Some(512);
    let scorer = scorer(settings);
    let first = score(&scorer, "").await.expect("a process id").value;
    for (what, expected) in [
        (
            "raise",
            Err("the reward function failed: ValueError: no such case (reward.py:7)"),
        ),
        (
            "exit",
            Err("the reward function failed: SystemExit: 3 (reward.py:9)"),
        ),
        ("print", Ok(0.25)),
        ("read", Ok(0.75)),
        ("nan", Err("the score is NaN")),
        (
            "text",
            Err(
                "the reward function failed: ValueError: could not convert string to float: 'not a number'",
            ),
        ),
        ("dict", Err("the reward function failed: KeyError: 'score'")),
    ] {
        let given = score(&scorer, what).await.map(|score| score.value);
        match expected {
            Ok(expected) => assert_eq!(given, Ok(expected), "{what}"),
            Err(expected) => {
                let error = given.expect_err("no score");
                // Where in the worker's own code is of no interest.
                assert!(error.starts_with(expected), "{what}: {error}");
            }
        }
    }
    // None of these cost the process.
    assert_eq!(score(&scorer, "").await.expect("a process id").value, first);
    for (what, expected) in [
        ("die", "about to die"),
        ("kill", "signal: 9"),
        ("leak", "MemoryError"),
    ] {
        let error = score(&scorer, what).await.expect_err("no score");
        assert!(error.contains(expected), "{what}: {error}");
        let next = score(&scorer, "").await.expect("a process id").value;
        assert_ne!(next, first, "{what}");
    }
    assert_eq!(
        score(&scorer, "close").await.map(|score| score.value),
        Ok(0.5)
    );
}

#[tokio::test]
async fn a_hang_is_killed_with_what_it_started_and_the_next_call_has_a_new_process() {
    let code = r#"
import os, re, subprocess

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if solution_str == "hang":
        child = subprocess.Popen(["sleep", "1000"])
        with open(ground_truth, "w") as file:
            file.write(f"{os.getpid()} {child.pid}")
        # Holds the interpreter's lock, so that nothing in Python could stop it.
        re.match(r"(a+)+$", "a" * 60 + "b")
    return 1.0
"#;
    let Some((directory, settings)) = reward(code) else {
        return;
    };
    let ids = directory.path().join("ids");
    let mut arm = Arm::new("py", ScorerName::Python);
    arm.timeout = 0.3;
    arm.concurrency = 1;
    arm.default = -1.0;
    let arms = Arms::new(&[(arm, Some(Arc::new(scorer(settings)) as Arc<dyn Scorer>))]);
    let judge = async |answer: &str| {
        let transcript = sample(answer, json!(ids.display().to_string()));
        arms.score(&transcript).await.expect("a score")
    };
    // Starting Python is not part of an answer's time.
    assert_eq!(judge("").await.value, 1.0);
    let hung = judge("hang").await;
    assert_eq!((hung.value, hung.parts["arm/py/timed_out"]), (-1.0, 1.0));
    // Waits for its turn, which the hang has until it is killed.
    assert_eq!(judge("").await.value, 1.0);
    let ids = std::fs::read_to_string(ids).expect("written before the hang");
    for id in ids.split(' ') {
        let place = format!("/proc/{id}/stat");
        // A zombie of another's is dead enough.
        let is_running = || {
            std::fs::read_to_string(&place)
                .is_ok_and(|stat| !matches!(stat.rsplit(") ").next(), Some(rest) if rest.starts_with(['Z', 'X'])))
        };
        while Path::new("/proc").exists() && is_running() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn what_cannot_be_loaded_says_why() {
    let Some((directory, settings)) = reward("import no_such_module_at_all\n") else {
        return;
    };
    let path = settings.path.clone();
    let error = score(&scorer(settings.clone()), "")
        .await
        .expect_err("no module");
    assert!(
        error.starts_with(&format!("cannot load compute_score of {path}: ModuleNotFoundError: No module named 'no_such_module_at_all' (")),
        "{error}"
    );
    std::fs::write(&path, "x = 1\n").expect("written");
    let error = score(&scorer(settings.clone()), "")
        .await
        .expect_err("no function");
    assert!(
        error.contains("has no attribute 'compute_score'"),
        "{error}"
    );
    let missing = Settings {
        path: directory.path().join("none.py").display().to_string(),
        ..settings.clone()
    };
    let error = score(&scorer(missing), "").await.expect_err("no file");
    assert!(error.contains("FileNotFoundError"), "{error}");
    let no_python = Settings {
        python: "/no/such/python".to_owned(),
        ..settings
    };
    let error = score(&scorer(no_python), "").await.expect_err("no python");
    assert!(
        error.starts_with("cannot start /no/such/python: "),
        "{error}"
    );
}

#[tokio::test]
async fn a_process_is_replaced_after_the_calls_it_is_good_for() {
    let code = "import os\n\ndef compute_score(data_source, solution_str, ground_truth, extra_info):\n    return os.getpid()\n";
    let Some((_directory, mut settings)) = reward(code) else {
        return;
    };
    settings.calls = Some(2);
    let scorer = scorer(settings);
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(score(&scorer, "").await.expect("a process id").value);
    }
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[1], ids[2]);
    assert_eq!(ids[2], ids[3]);
}
