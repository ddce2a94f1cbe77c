//! `lathe runs`: live, finished, dead and torn runs.

use std::fs;
use std::io::Write;

use super::fake_trainer::{Act, learning, started, step};
use super::harness::Bench;

#[test]
fn a_list_without_runs_says_how_to_start_one() {
    let bench = Bench::new();
    let ran = bench.run(["runs"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    assert_eq!(
        ran.stderr,
        "no runs in runs yet; start one: lathe run EXPERIMENT\n"
    );
    assert_eq!(bench.run(["runs", "--json"]).stdout, "");
}

#[test]
fn the_workbench_takes_a_directory_of_runs_as_the_commands_do() {
    let bench = Bench::new();
    bench.trainer(&learning());
    assert_eq!(bench.run(["run", "toy.yaml"]).code, Some(0));
    fs::rename(bench.path("runs"), bench.path("elsewhere")).unwrap();
    let ran = bench.run(["--runs", "elsewhere", "--plain"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(
        ran.stdout,
        bench.run(["runs", "--runs", "elsewhere", "--plain"]).stdout
    );
    assert!(ran.stdout.contains("finished"), "{}", ran.stdout);
    let misplaced = bench.run(["--runs", "elsewhere", "runs"]);
    assert_eq!(misplaced.code, Some(2));
    assert!(
        misplaced.stderr.contains("behind the command"),
        "{}",
        misplaced.stderr
    );
}

#[test]
fn the_list_shows_what_finished_and_what_is_dead_with_the_reason() {
    let bench = Bench::new();
    bench.trainer(&learning());
    assert_eq!(bench.run(["run", "toy.yaml"]).code, Some(0));
    bench.trainer(&[started(4), step(1, 0.1), Act::Die]);
    assert_eq!(bench.run(["run", "toy.yaml", "--json"]).code, Some(4));
    let lines = bench.run(["runs", "--json"]).json_lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let finished = lines
        .iter()
        .find(|line| line["status"] == "finished")
        .unwrap();
    assert_eq!(
        (finished["step"].as_u64(), finished["reward"].as_f64()),
        (Some(4), Some(0.93))
    );
    let dead = lines.iter().find(|line| line["status"] == "dead").unwrap();
    assert!(
        dead["reason"]
            .as_str()
            .unwrap()
            .contains("is gone and left no end event"),
        "{dead}"
    );
    let table = bench.run(["runs"]).stdout;
    assert!(table.starts_with("STATE"), "{table}");
    assert!(table.contains("finished  4/4"), "{table}");
    assert!(table.contains("left no end event"), "{table}");
    assert_eq!(bench.run(["--plain", "runs"]).stdout, table, "one table");
}

#[test]
fn a_torn_log_is_shown_up_to_where_it_is_whole() {
    let bench = Bench::new();
    bench.trainer(&[
        started(4),
        step(1, 0.1),
        step(2, 0.2),
        Act::Raw("{\"seq\":3,\"elap".to_owned()),
        Act::Die,
    ]);
    assert_eq!(bench.run(["run", "toy.yaml", "--json"]).code, Some(4));
    let json = bench.run(["runs", "show", "latest", "--json"]).last_json();
    assert_eq!(json["status"], "dead", "{json}");
    assert_eq!(json["summary"]["steps"], 2);
    assert_eq!(json["bad_lines"], 0);
}

#[test]
fn a_corrupt_line_is_counted_and_the_rest_is_shown() {
    let bench = Bench::new();
    bench.trainer(&learning());
    assert_eq!(bench.run(["run", "toy.yaml"]).code, Some(0));
    let events = bench.run_dir().join("events.jsonl");
    let text = fs::read_to_string(&events).unwrap();
    let broken: Vec<&str> = text
        .lines()
        .enumerate()
        .map(|(index, line)| if index == 3 { "\u{0}garbage" } else { line })
        .collect();
    fs::File::create(&events)
        .unwrap()
        .write_all((broken.join("\n") + "\n").as_bytes())
        .unwrap();
    let ran = bench.run(["runs", "show", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains("toy  finished  4 of 4 steps"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("1 event missing, 1 line unreadable"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_run_is_found_by_the_start_of_its_id_and_a_wrong_one_is_refused() {
    let bench = Bench::new();
    bench.trainer(&learning());
    assert_eq!(bench.run(["run", "toy.yaml"]).code, Some(0));
    let name = bench
        .run_dir()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let id = name.rsplit('-').next().unwrap();
    for argument in [&id[..6], name.as_str(), &format!("runs/{name}"), "latest"] {
        assert_eq!(
            bench.run(["runs", "show", argument]).code,
            Some(0),
            "{argument}"
        );
    }
    let ran = bench.run(["runs", "show", "zzz"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr
            .starts_with("error: no run matches `zzz` in runs"),
        "{}",
        ran.stderr
    );
    let ran = bench.run(["runs", "show", "./toy.yaml"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
}

#[test]
fn a_closed_pipe_is_silent() {
    let bench = Bench::new();
    bench.trainer(&learning());
    assert_eq!(bench.run(["run", "toy.yaml"]).code, Some(0));
    for arguments in ["runs show latest", "keys", "runs", "completions bash"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = bench
            .lathe(arguments.split(' '))
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments}");
        assert_eq!(output.status.code(), Some(0), "{arguments}");
    }
}
