//! Other trackers' runs: imported, followed, watched, exported, and told apart in the list.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::fake_trainer::wait_until;
use super::harness::Bench;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../foreign/tests/data")
        .join(name)
}

fn copied(bench: &Bench, name: &str) -> PathBuf {
    let target = bench.path(Path::new(name).file_name().unwrap().to_str().unwrap());
    fs::copy(data(name), &target).unwrap();
    target
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn an_imported_run_is_a_run_like_any_other() {
    let bench = Bench::new();
    copied(&bench, "verl/metrics.jsonl");
    let ran = bench.run(["import", "metrics.jsonl", "--name", "there"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("-there-"), "{ran:?}");
    assert!(
        ran.stdout.contains("values of 9 metrics up to step 12"),
        "{ran:?}"
    );
    let again = bench.run(["import", "metrics.jsonl"]);
    assert!(again.stdout.contains("0 values new, step 12"), "{again:?}");

    let listed = json_lines(&bench.run(["runs", "--json"]).stdout);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["origin"]["format"], "verl");
    assert_eq!(
        (listed[0]["status"].as_str(), listed[0]["step"].as_u64()),
        (Some("running"), Some(12))
    );
    let table = bench.run(["runs"]).stdout;
    assert!(table.contains(" 12 "), "{table}");

    let csv = bench.run([
        "export",
        "latest",
        "--format",
        "csv",
        "--metrics",
        "critic/score/mean",
    ]);
    assert_eq!(csv.code, Some(0), "{csv:?}");
    assert!(csv.stdout.lines().count() > 12, "{csv:?}");
    let shown = bench.run(["runs", "show", "there"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(
        shown.stdout.contains("there") && shown.stdout.contains("12 steps in 30"),
        "{shown:?}"
    );
}

#[test]
fn a_directory_of_runs_is_imported_run_by_run_and_one_bad_run_hides_no_other() {
    let bench = Bench::new();
    let ran = bench.run(["import".into(), data("").into_os_string(), "--json".into()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines = json_lines(&ran.stdout);
    let mut formats: Vec<&str> = lines
        .iter()
        .map(|line| line["format"].as_str().unwrap())
        .collect();
    formats.sort_unstable();
    assert_eq!(
        formats,
        [
            "mlflow",
            "mlflow",
            "mlflow-sqlite",
            "mlflow-sqlite",
            "tensorboard",
            "tensorboard",
            "tensorboard",
            "trackio",
            "trackio",
            "verl",
            "wandb"
        ]
    );
    let wandb = lines.iter().find(|line| line["format"] == "wandb").unwrap();
    assert_eq!(
        (wandb["step"].as_u64(), wandb["is_ended"].as_bool()),
        (Some(30), Some(true))
    );
    let notes = wandb["notes"].as_array().unwrap();
    assert!(
        notes.contains(&Value::from("word is left out: it is text")),
        "{notes:?}"
    );
    let named = bench.run([
        "import".into(),
        data("trackio").into_os_string(),
        "--name".into(),
        "x".into(),
    ]);
    assert_eq!(named.code, Some(2), "{named:?}");
    assert!(
        named.stderr.contains("holds 2 runs: --name can name one"),
        "{named:?}"
    );
}

#[test]
fn what_is_no_run_is_refused_with_what_could_be_one() {
    let bench = Bench::new();
    let ran = bench.run(["import", "toy.yaml"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{ran:?}");
    assert!(
        ran.stderr.contains(
            "toy.yaml is no run that is known here; there are: verl, verl-console, tensorboard"
        ),
        "{ran:?}"
    );
    fs::write(bench.path("t.csv"), "a,b\n1,2\n").unwrap();
    let ran = bench.run(["import", "t.csv", "--step-column", "c"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("none called `c`: a, b"), "{ran:?}");
    assert_eq!(
        bench.run(["import", "t.csv", "--format", "tb"]).code,
        Some(2)
    );
}

#[test]
fn a_run_of_another_tracker_is_followed_by_its_path_as_it_is_written() {
    let bench = Bench::new();
    let path = bench.path("metrics.jsonl");
    let write = |steps: std::ops::Range<u32>| {
        let mut file = fs::File::options()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        for step in steps {
            writeln!(
                file,
                "{{\"step\": {step}, \"data\": {{\"critic/score/mean\": 0.5}}}}"
            )
            .unwrap();
        }
    };
    // Not even a whole step when it is begun.
    write(1..2);
    let mut follower = bench
        .lathe(["follow", "metrics.jsonl", "--json"])
        .stdout(fs::File::create(bench.path("told")).unwrap())
        .spawn()
        .unwrap();
    let has_told = |step: u32| {
        let told = fs::read_to_string(bench.path("told")).unwrap();
        told.contains(&format!("\"event\":\"step_ended\",\"step\":{step},"))
    };
    write(2..4);
    wait_until("its third step is told", || has_told(3));
    write(4..9);
    wait_until("its eighth", || has_told(8));
    let pid = Pid::from_raw(follower.id().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    follower.wait().unwrap();
}

#[test]
fn a_followed_run_grows_until_the_following_is_interrupted() {
    let bench = Bench::new();
    let path = bench.path("metrics.jsonl");
    let row = |step: u64| format!("{{\"step\":{step},\"data\":{{\"critic/score/mean\":0.5}}}}\n");
    fs::write(&path, row(1)).unwrap();
    let child = bench
        .lathe(["import", "metrics.jsonl", "--follow"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let events = || {
        let runs = fs::read_dir(bench.path("runs")).ok()?.flatten().next()?;
        fs::read_to_string(runs.path().join("events.jsonl")).ok()
    };
    let has_step = |step: u64| {
        events().is_some_and(|text| text.contains(&format!("\"step_ended\",\"step\":{step},")))
    };
    wait_until("the first step is projected", || has_step(1));
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    file.write_all(row(2).as_bytes()).unwrap();
    wait_until("the second step follows", || has_step(2));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("2 values of 1 metric up to step 2"));
}

#[test]
fn a_foreign_path_is_watched_and_exported_without_being_kept() {
    let bench = Bench::new();
    let cache = bench.path("cache");
    for arguments in [
        vec![
            "--plain".into(),
            "watch".into(),
            data("wandb-run").into_os_string(),
        ],
        vec![
            "export".into(),
            data("wandb-run").into_os_string(),
            "--format".into(),
            "csv".into(),
        ],
    ] {
        let output = bench
            .lathe(&arguments)
            .env("XDG_CACHE_HOME", &cache)
            .env("HOME", bench.path("home"))
            .output()
            .unwrap();
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(stdout.contains("actor/pg_loss"), "{arguments:?}: {stdout}");
    }
    assert!(!bench.path("runs").exists());
    assert_eq!(
        fs::read_dir(cache.join("lathe/foreign")).unwrap().count(),
        1
    );
}

#[test]
fn runs_that_lie_among_ours_and_were_not_imported_are_told() {
    let bench = Bench::new();
    let folder = bench.path("runs/tb");
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(data("tensorboard-tf2")).unwrap().flatten() {
        fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let ran = bench.run(["runs"]);
    assert!(
        ran.stdout.contains("tensorboard") && ran.stdout.contains("runs/tb"),
        "{ran:?}"
    );
    let listed = json_lines(&bench.run(["runs", "--json"]).stdout);
    assert_eq!(
        (
            listed[0]["status"].as_str(),
            listed[0]["origin"]["format"].as_str()
        ),
        (Some("not imported"), Some("tensorboard"))
    );
}
