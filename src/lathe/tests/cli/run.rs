//! `lathe run`: lines, JSON, endings, and what a broken trainer looks like.

use std::fs;

use runlog::event::RunStatus;
use serde_json::json;

use super::fake_trainer::{Act, ended, eval, learning, started, step};
use super::harness::{Bench, EXPERIMENT};

#[test]
fn piped_output_is_a_line_per_step_and_a_summary() {
    let bench = Bench::new();
    bench.trainer(&learning());
    let ran = bench.run(["run", "toy.yaml"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    insta::with_settings!({filters => vec![(r"in \d+(\.\d+)? m?s", "in [TIME]"), (r"( +\d+(\.\d+)? m?s) +\d+ %  [█#]*", "$1 [SHARE]")]}, {
        insta::assert_snapshot!(bench.masked(&ran.stdout));
    });
    assert_eq!(bench.masked(&ran.stderr), "run runs/[RUN]\n");
}

#[test]
fn a_value_that_came_once_is_not_shown_as_a_change() {
    let bench = Bench::new();
    bench.trainer(&[
        started(0),
        eval(0, 0.41),
        ended(RunStatus::Completed, 0, "", 0),
    ]);
    let ran = bench.run(["run", "toy.yaml"]);
    assert!(
        ran.stdout.contains("\n  val reward        0.410\n"),
        "{}",
        ran.stdout
    );
}

#[test]
fn an_experiment_without_a_name_is_called_after_its_file_also_in_the_trainers_copy() {
    let bench = Bench::new();
    bench.program("trainer", "exit 3");
    let yaml = EXPERIMENT.replace("  experiment_name: toy\n", "");
    fs::write(bench.path("first.yaml"), yaml).unwrap();
    bench.run(["run", "first.yaml"]);
    let copy = bench.run_dir().join("experiment.yaml");
    let checked = bench
        .run(["check", copy.to_str().unwrap(), "--json"])
        .last_json();
    assert_eq!(checked["effective"]["trainer"]["experiment_name"], "first");
}

#[test]
fn verbose_prints_every_metric_of_a_step_in_the_form_of_verl() {
    let bench = Bench::new();
    bench.trainer(&learning());
    let ran = bench.run(["run", "toy.yaml", "--verbose"]);
    assert!(
        ran.stdout.contains(
            "\nstep:2 - actor/entropy:0.75 - actor/ppo_kl:0.002 - critic/score/mean:0.4 - response_length/mean:40.0\n"
        ),
        "{}",
        ran.stdout
    );
}

#[test]
fn the_last_json_line_holds_the_summary_and_the_ones_before_it_the_steps() {
    let bench = Bench::new();
    bench.trainer(&learning());
    let ran = bench.run(["run", "toy.yaml", "--json"]);
    let lines = ran.json_lines();
    let last = lines.last().unwrap();
    assert_eq!(last["status"], "finished", "{ran:?}");
    assert_eq!(last["exit_code"], 0);
    assert_eq!(
        last["run_dir"],
        json!(fs::canonicalize(bench.run_dir()).unwrap())
    );
    let summary = &last["summary"];
    assert_eq!(summary["val_reward_first"], 0.41);
    assert_eq!(summary["val_reward_last"], 0.93);
    assert_eq!(summary["steps"], 4);
    assert_eq!(summary["sync_blocked_ms_p95"], 0.25);
    // 200 of 600 ms of generation lie within the actor update.
    assert_eq!(summary["overlap_frac"], 200.0 / 600.0);
    assert!(summary["wall_s"].as_f64().unwrap() > 0.0);
    let steps: Vec<u64> = lines
        .iter()
        .filter(|line| line["event"] == "step_ended")
        .map(|line| line["step"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, [1, 2, 3, 4]);
    assert_eq!(
        lines
            .iter()
            .filter(|line| line["event"] == "eval_ended")
            .count(),
        2
    );
    assert_eq!(ran.stderr, "");
}

#[test]
fn the_run_directory_holds_the_resolved_experiment_and_the_trainers_output() {
    let bench = Bench::new();
    bench.trainer(&[
        Act::Print("from libtorch".to_owned()),
        started(1),
        ended(RunStatus::Completed, 0, "", 1),
    ]);
    let ran = bench.run([
        "run",
        "toy.yaml",
        "trainer.seed=7",
        "--name",
        "other, name",
        "--runs",
        "elsewhere",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let run_dir = fs::read_dir(bench.path("elsewhere"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert!(
        run_dir.to_str().unwrap().contains("other__name"),
        "{run_dir:?}"
    );
    let yaml = fs::read_to_string(run_dir.join("experiment.yaml")).unwrap();
    assert!(
        yaml.starts_with("# The smallest experiment that loads."),
        "{yaml}"
    );
    assert!(yaml.contains("seed: 7"), "{yaml}");
    assert_eq!(
        fs::read_to_string(run_dir.join("log.txt")).unwrap(),
        "from libtorch\n"
    );
}

#[test]
fn a_warm_up_starts_the_trainer_with_its_own_verb() {
    let bench = Bench::new();
    bench.program(
        "trainer",
        "echo \"$@\" OMP=$OMP_WAIT_POLICY,$GOMP_SPINCOUNT,$OMP_NUM_THREADS; exit 3",
    );
    let ran = bench.run(["sft", "toy.yaml", "sft.train_files=[demos.parquet]"]);
    let log = fs::read_to_string(bench.run_dir().join("log.txt")).unwrap();
    assert_eq!(
        bench.masked(&log),
        "sft --run-dir runs/[RUN] OMP=PASSIVE,0,1\n",
        "{ran:?}"
    );
}

#[test]
fn the_users_own_thread_count_reaches_the_trainer() {
    let bench = Bench::new();
    bench.program("trainer", "echo $OMP_NUM_THREADS; exit 3");
    bench
        .lathe(["run", "toy.yaml"])
        .env("OMP_NUM_THREADS", "5")
        .output()
        .unwrap();
    assert_eq!(
        fs::read_to_string(bench.run_dir().join("log.txt")).unwrap(),
        "5\n"
    );
}

#[test]
fn a_run_that_failed_tells_its_reason_and_keeps_its_exit_code() {
    let bench = Bench::new();
    bench.trainer(&[
        started(4),
        step(1, 0.1),
        ended(RunStatus::Failed, 3, "model/config.json is missing", 1),
        Act::Exit(3),
    ]);
    let ran = bench.run(["run", "toy.yaml"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stdout.contains("toy  failed  1 of 4 steps"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("model/config.json is missing"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_trainer_killed_in_mid_run_is_reported_with_the_end_of_its_log() {
    let bench = Bench::new();
    let acts = [
        started(4),
        step(1, 0.1),
        Act::Print("allocating 300 GB".to_owned()),
        Act::Die,
    ];
    bench.trainer(&acts);
    let ran = bench.run(["run", "toy.yaml"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.stdout.contains("toy  dead  1 of 4 steps"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("ran out of memory"), "{}", ran.stdout);
    insta::assert_snapshot!(bench.masked(&ran.stderr));
    let json = bench.run(["run", "toy.yaml", "--json"]).last_json();
    assert_eq!(
        (&json["status"], &json["exit_code"]),
        (&json!("dead"), &json!(4))
    );
    assert_eq!(json["summary"]["steps"], 1);
}

#[test]
fn a_trainer_that_exits_without_a_word_has_failed_even_with_code_0() {
    let bench = Bench::new();
    bench.trainer(&[started(4), eval(0, 0.5), Act::Exit(0)]);
    let ran = bench.run(["run", "toy.yaml"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.stdout.contains("without recording the run's end"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_missing_libtorch_is_named_with_what_to_do() {
    let bench = Bench::new();
    bench.program(
        "trainer",
        "echo \"$0: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file: No such file or directory\" >&2; exit 127",
    );
    let ran = bench.run(["run", "toy.yaml"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stdout.contains(
            "lathe-trainer cannot load libtorch_cpu.so; fetch libtorch with `just libtorch`"
        ),
        "{}",
        ran.stdout
    );
}

#[test]
fn without_a_trainer_nothing_is_started_and_no_run_is_made() {
    let bench = Bench::new();
    let ran = bench.run(["run", "toy.yaml"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("LATHE_TRAINER names"), "{}", ran.stderr);
    assert!(!bench.path("runs").exists());
    let json = bench.run(["run", "toy.yaml", "--json"]).last_json();
    assert_eq!(
        (&json["status"], &json["exit_code"]),
        (&json!("refused"), &json!(3))
    );
}

#[test]
fn a_misspelt_key_refuses_the_run_with_its_line_and_the_nearest_key() {
    let bench = Bench::new();
    bench.trainer(&learning());
    fs::write(
        bench.path("bad.yaml"),
        EXPERIMENT.replace("actor_rollout_ref:", "actor_rolout_ref:"),
    )
    .unwrap();
    let ran = bench.run(["run", "bad.yaml"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("bad.yaml:6: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("actor_rollout_ref"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    assert!(!bench.path("runs").exists());
}

#[test]
fn a_run_that_is_started_aside_lives_on_and_can_be_followed_to_its_end() {
    let bench = Bench::new();
    let go = bench.path("go");
    bench.trainer(&[
        started(1),
        Act::WaitFor(go.clone()),
        step(1, 0.5),
        ended(RunStatus::Completed, 0, "", 1),
    ]);
    let ran = bench.run(["run", "toy.yaml", "--detach"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains("watch it: lathe follow"),
        "{}",
        ran.stdout
    );
    let follower = bench.lathe(["follow", "latest", "--json"]).spawn().unwrap();
    fs::write(go, "").unwrap();
    let followed = super::harness::finished(follower.wait_with_output().unwrap());
    assert_eq!(followed.code, Some(0), "{followed:?}");
    assert_eq!(followed.last_json()["summary"]["steps"], 1);
}

#[test]
fn starting_aside_waits_for_the_first_sign_of_life() {
    let bench = Bench::new();
    bench.program("trainer", "echo no such model >&2; exit 3");
    let ran = bench.run(["run", "toy.yaml", "--detach"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("no such model"), "{}", ran.stderr);
}

#[test]
fn who_wants_nothing_changed_starts_stops_and_fetches_nothing() {
    let bench = Bench::new();
    bench.trainer(&learning());
    for arguments in [
        &["run", "toy.yaml"][..],
        &["run", "toy.yaml", "--detach"],
        &["run", "toy.yaml", "--on", "nowhere"],
        &["stop", "latest"],
        &["pull", "latest"],
        &["ctl", "latest", "pause"],
        &["import", "toy.yaml"],
        &["target", "setup", "nowhere"],
    ] {
        let ran = bench.run(arguments.iter().copied().chain(["--read-only"]));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(
            ran.stderr.contains("--read-only changes nothing"),
            "{ran:?}"
        );
    }
    assert!(!bench.path("runs").exists());
    assert_eq!(bench.run(["run", "toy.yaml", "--json"]).code, Some(0));
    let ran = bench.run(["runs", "--read-only"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
