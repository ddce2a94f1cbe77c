//! The built programs together, as a user runs them: `lathe` starts the real `lathe-trainer` on the shipped experiments.
//!
//! Where the trainer was not built (a laptop without libtorch, `cargo test -p lathe`), each test says so and does nothing.

#[path = "e2e/eval.rs"]
mod eval;
#[path = "e2e/slow_tool.rs"]
mod slow_tool;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The repository: experiments name their data and models from there.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn trainer() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_lathe")).with_file_name("lathe-trainer");
    if !path.is_file() {
        eprintln!(
            "skipped: {} is not built (cargo build --release --workspace)",
            path.display()
        );
        return None;
    }
    Some(path)
}

fn lathe(runs: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lathe"));
    command
        .current_dir(ROOT)
        .args(arguments)
        .env("LATHE_RUNS", runs)
        .env_remove("LATHE_TRAINER")
        .stdin(Stdio::null());
    command
}

/// The quickstart cut short: a few steps of a few dialogues.
const SHORT: [&str; 6] = [
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "data.val_max_samples=16",
    "trainer.test_freq=2",
    "trainer.logger=[file,tensorboard,wandb]",
    "trainer.device=cpu",
];

fn run(runs: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["run", "experiments/quickstart.yaml"];
    arguments.extend(SHORT);
    arguments.extend(more);
    lathe(runs, &arguments).output().expect("lathe starts")
}

/// The quickstart cut short, started and left alone.
fn start(runs: &Path) -> Child {
    let mut arguments = vec!["run", "experiments/quickstart.yaml"];
    arguments.extend(SHORT);
    lathe(runs, &arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("lathe starts")
}

fn last_object(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_else(|| {
        panic!(
            "a last line; stderr: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    });
    serde_json::from_str(line).expect("one JSON object")
}

/// Waits until the one run below `runs` has trained a step, and gives its directory.
fn wait_for_a_step(runs: &Path, child: &mut Child) -> PathBuf {
    let started = Instant::now();
    loop {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "a step is trained in two minutes"
        );
        assert!(
            child.try_wait().expect("a child of ours").is_none(),
            "lathe runs until it is stopped"
        );
        let trained = fs::read_dir(runs)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| {
                fs::read_to_string(path.join("events.jsonl"))
                    .is_ok_and(|log| log.contains("\"step_ended\""))
            });
        if let Some(path) = trained {
            return path;
        }
        std::thread::yield_now();
    }
}

fn pid_of(run: &Path) -> Pid {
    let info: Value = serde_json::from_str(
        &fs::read_to_string(run.join("run.json")).expect("a run has run.json"),
    )
    .expect("JSON");
    let pid = info["pid"].as_i64().expect("a pid");
    Pid::from_raw(i32::try_from(pid).expect("a pid fits")).expect("not 0")
}

#[test]
fn a_run_leaves_a_summary_a_checkpoint_rollouts_and_the_other_trackers_logs() {
    if trainer().is_none() {
        return;
    }
    let runs = tempfile::tempdir().expect("a temporary directory");
    let output = run(runs.path(), &["trainer.total_training_steps=3", "--json"]);
    let last = last_object(&output);
    assert_eq!(output.status.code(), Some(0), "{last}");
    let summary = &last["summary"];
    for key in [
        "val_reward_first",
        "val_reward_last",
        "wall_s",
        "overlap_frac",
        "sync_blocked_ms_p95",
    ] {
        assert!(summary[key].is_f64(), "{key} of {summary}");
    }
    assert_eq!(summary["steps"], 3);
    assert_eq!(summary["syncs"], 3);
    assert_eq!(summary["syncs_unverified"], 0);
    let run_dir = PathBuf::from(last["run_dir"].as_str().expect("a path"));
    for part in [
        "events.jsonl",
        "experiment.yaml",
        "run.json",
        "log.txt",
        "rollouts/step-000003.parquet",
        "checkpoints/step-000003/config.json",
        "checkpoints/step-000003/model.safetensors",
        "checkpoints/step-000003/tokenizer.json",
        "checkpoints/step-000003/actor_optimizer.safetensors",
        "checkpoints/step-000003/manifest.json",
        "wandb",
    ] {
        assert!(
            run_dir.join(part).exists(),
            "{part} in {}",
            run_dir.display()
        );
    }

    // The checkpoint is a model to start from.
    let model = format!(
        "actor_rollout_ref.model.path={}",
        run_dir.join("checkpoints/step-000003").display()
    );
    let again = run(runs.path(), &["trainer.val_only=true", &model, "--json"]);
    let again = last_object(&again);
    assert_eq!(again["exit_code"], 0, "{again}");
    assert!(again["summary"]["val_reward_first"].is_f64(), "{again}");
}

#[test]
fn ctrl_c_once_saves_a_checkpoint_and_ends_with_code_130() {
    if trainer().is_none() {
        return;
    }
    let runs = tempfile::tempdir().expect("a temporary directory");
    let mut child = start(runs.path());
    let run = wait_for_a_step(runs.path(), &mut child);
    kill_process(
        Pid::from_raw(child.id() as i32).expect("not 0"),
        Signal::INT,
    )
    .expect("a child of ours");
    let status = child.wait().expect("a child of ours");
    assert_eq!(status.code(), Some(130));
    let saved = fs::read_dir(run.join("checkpoints"))
        .expect("checkpoints were written")
        .count();
    assert_eq!(saved, 1, "one whole checkpoint and nothing half-written");
    let log = fs::read_to_string(run.join("events.jsonl")).expect("a log");
    assert!(log.contains("\"status\":\"stopped\""));
}

#[test]
fn ctrl_c_twice_ends_at_once_and_every_later_reader_finds_a_stopped_run() {
    if trainer().is_none() {
        return;
    }
    let runs = tempfile::tempdir().expect("a temporary directory");
    let mut child = start(runs.path());
    let run = wait_for_a_step(runs.path(), &mut child);
    // Both before the step in progress can end.
    let trainer = pid_of(&run);
    kill_process(trainer, Signal::STOP).expect("our trainer");
    let lathe_pid = Pid::from_raw(child.id() as i32).expect("not 0");
    kill_process(lathe_pid, Signal::INT).expect("a child of ours");
    kill_process(trainer, Signal::INT).expect("our trainer");
    kill_process(trainer, Signal::TERM).expect("our trainer");
    kill_process(trainer, Signal::CONT).expect("our trainer");
    assert_eq!(child.wait().expect("a child of ours").code(), Some(130));
    let shown = lathe(runs.path(), &["runs", "show", "latest", "--json"])
        .output()
        .expect("lathe starts");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(shown["summary"]["status"], "stopped", "{shown}");
    assert_eq!(shown["summary"]["exit_code"], 130, "{shown}");
}

#[test]
fn a_directory_whose_run_trained_every_step_is_left_as_it_is() {
    let Some(trainer) = trainer() else { return };
    let runs = tempfile::tempdir().expect("a temporary directory");
    let output = run(
        runs.path(),
        &[
            "trainer.total_training_steps=1",
            "trainer.val_before_train=false",
            "--json",
        ],
    );
    let run_dir = PathBuf::from(last_object(&output)["run_dir"].as_str().expect("a path"));
    let before = fs::read(run_dir.join("events.jsonl")).expect("a log");
    let second = Command::new(trainer)
        .current_dir(ROOT)
        .args(["run", "--run-dir"])
        .arg(&run_dir)
        .output()
        .expect("the trainer starts");
    assert_eq!(second.status.code(), Some(8));
    let message = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(message.contains("nothing is left to train"), "{message}");
    let after = fs::read(run_dir.join("events.jsonl")).expect("a log");
    assert_eq!(after, before, "nothing was written to it");
}

#[test]
fn a_run_that_ended_is_resumed_and_left_to_itself() {
    if trainer().is_none() {
        return;
    }
    let runs = tempfile::tempdir().expect("a temporary directory");
    let quick = ["trainer.val_before_train=false", "trainer.test_freq=-1"];
    let one = [&quick[..], &["trainer.total_training_steps=1", "--json"]].concat();
    let output = run(runs.path(), &one);
    assert_eq!(output.status.code(), Some(0));
    let again = |more: &[&str]| {
        let arguments = [&["run", "--resume", "latest", "--detach"], more].concat();
        lathe(runs.path(), &arguments)
            .output()
            .expect("lathe starts")
    };
    let nothing = again(&[]);
    let message = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert_eq!(nothing.status.code(), Some(8), "{message}");
    assert!(message.contains("nothing is left to train"), "{message}");
    let output = again(&["trainer.total_training_steps=2"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(said.contains("watch it: lathe follow"), "{said}");
    let followed = lathe(runs.path(), &["follow", "latest", "--json"])
        .output()
        .expect("lathe starts");
    assert_eq!(followed.status.code(), Some(0), "{followed:?}");
    assert_eq!(last_object(&followed)["summary"]["steps"], 2);
}

#[test]
fn a_supervised_experiment_is_not_run_as_reinforcement_learning() {
    if trainer().is_none() {
        return;
    }
    let runs = tempfile::tempdir().expect("a temporary directory");
    let output = lathe(runs.path(), &["run", "experiments/warmup-calc.yaml"])
        .output()
        .expect("lathe starts");
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains("lathe sft experiments/warmup-calc.yaml"),
        "{message}"
    );
    assert_eq!(fs::read_dir(runs.path()).expect("it is there").count(), 0);
}

#[test]
fn a_killed_trainer_leaves_a_log_that_still_reads_and_a_run_presumed_dead() {
    if trainer().is_none() {
        return;
    }
    let runs = tempfile::tempdir().expect("a temporary directory");
    let mut child = start(runs.path());
    let run = wait_for_a_step(runs.path(), &mut child);
    kill_process(pid_of(&run), Signal::KILL).expect("our trainer");
    assert_eq!(child.wait().expect("a child of ours").code(), Some(4));
    let shown = lathe(runs.path(), &["runs", "show", "latest", "--json"])
        .output()
        .expect("lathe starts");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(shown["status"], "dead", "{shown}");
    assert!(
        shown["summary"]["steps"]
            .as_u64()
            .is_some_and(|steps| steps >= 1),
        "what was trained is there: {shown}"
    );
    let ctl = lathe(runs.path(), &["ctl", "latest", "pause"])
        .output()
        .expect("lathe starts");
    assert_eq!(ctl.status.code(), Some(7));
    let message = String::from_utf8_lossy(&ctl.stderr).into_owned();
    assert!(message.contains("is gone"), "{message}");
}

#[test]
fn a_second_trainer_on_a_run_in_progress_is_refused_with_code_5() {
    let Some(trainer) = trainer() else { return };
    let runs = tempfile::tempdir().expect("a temporary directory");
    let mut child = start(runs.path());
    let run = wait_for_a_step(runs.path(), &mut child);
    let second = Command::new(trainer)
        .current_dir(ROOT)
        .args(["run", "--run-dir"])
        .arg(&run)
        .output()
        .expect("the trainer starts");
    assert_eq!(second.status.code(), Some(5));
    let first = pid_of(&run);
    let message = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        message.contains(&first.as_raw_nonzero().to_string()),
        "it names the first one's pid: {message}"
    );
    kill_process(first, Signal::KILL).expect("our trainer");
    child.wait().expect("a child of ours");
}

#[test]
fn a_run_is_controlled_from_another_terminal() {
    if trainer().is_none() {
        return;
    }
    let runs = tempfile::tempdir().expect("a temporary directory");
    let mut child = start(runs.path());
    let run = wait_for_a_step(runs.path(), &mut child);
    let ctl = |arguments: &[&str]| {
        let mut all = vec!["ctl", "latest"];
        all.extend(arguments);
        let output = lathe(runs.path(), &all).output().expect("lathe starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, paused, _) = ctl(&["pause", "--wait"]);
    assert_eq!(code, Some(0));
    let step: u64 = paused
        .strip_prefix("paused after step ")
        .and_then(|step| step.parse().ok())
        .unwrap_or_else(|| panic!("it says where: {paused}"));
    let (_, status, _) = ctl(&["status", "--json"]);
    let status: Value = serde_json::from_str(&status).expect("one JSON object");
    assert_eq!(status["step"], step);
    assert_eq!(status["is_paused"], true);
    let (code, set, _) = ctl(&["set", "actor.optim.lr=1e-5", "clip_ratio_low=0.1", "--wait"]);
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = set.lines().collect();
    assert_eq!(lines.len(), 2, "{set}");
    assert!(
        lines[0].ends_with(&format!("-> 1.00e-5, from step {}", step + 1)),
        "{set}"
    );
    let (code, _, refused) = ctl(&["set", "critic.optim.lr=1e-5", "--wait"]);
    assert_eq!(code, Some(6));
    assert!(refused.contains("trains no critic"), "{refused}");
    let (code, _, unknown) = ctl(&["set", "actor.optim.lrr=1e-5"]);
    assert_eq!(code, Some(2));
    assert!(
        unknown.contains("did you mean actor.optim.lr?"),
        "{unknown}"
    );
    let (_, answers, _) = ctl(&["step", "--wait", "--json"]);
    let answers: Vec<Value> = answers
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(answers[0]["answer"], "accepted");
    assert_eq!(answers[1]["step"], step + 1);
    let (_, knobs, _) = ctl(&["knobs"]);
    assert!(knobs.contains("actor.optim.lr "), "{knobs}");
    assert!(
        ctl(&["checkpoint", "--wait"])
            .1
            .starts_with("saved checkpoints/step-")
    );
    let (_, resumed, _) = ctl(&["resume", "--wait"]);
    assert_eq!(resumed, format!("goes on after step {}", step + 1));
    let (code, stopped, _) = ctl(&["stop", "--wait"]);
    assert!(stopped.starts_with("stopped after step "), "{stopped}");
    assert_eq!(code, Some(0));
    assert_eq!(child.wait().expect("a child of ours").code(), Some(130));
    let (code, _, over) = ctl(&["status"]);
    assert_eq!(code, Some(7));
    assert!(over.contains("is not running: it was stopped"), "{over}");
    let log = fs::read_to_string(run.join("events.jsonl")).expect("a log");
    let changes = log.matches("\"control_applied\"").count();
    assert_eq!(
        changes, 7,
        "pause, two sets, step, checkpoint, resume, stop"
    );
}

/// Two guards on the quickstart: one that trips on a real step, one that is left alone.
const GUARDED: &str = "  save_freq: 2
  guards:
    - {name: third, metric: training/global_step, above: 2, cooldown: 100, action: [lower_lr 0.5 + roll_back last]}
    - {name: kl, metric: [rollout_corr/k3_kl, actor/ppo_kl], above: 1000, action: stop}
";

#[test]
fn a_guard_acts_on_a_real_run_is_recorded_and_is_muted_from_another_terminal() {
    if trainer().is_none() {
        return;
    }
    let runs = tempfile::tempdir().expect("a temporary directory");
    let quickstart = fs::read_to_string(Path::new(ROOT).join("experiments/quickstart.yaml"))
        .expect("it is shipped");
    let file = runs.path().join("guarded.yaml");
    fs::write(&file, quickstart + GUARDED).expect("a writable folder");
    let place = runs.path().join("runs");
    fs::create_dir(&place).expect("a writable folder");
    let mut arguments = vec!["run", file.to_str().expect("a plain path")];
    arguments.extend(SHORT);
    arguments.push("actor_rollout_ref.actor.optim.lr_warmup_steps=0");
    let mut child = lathe(&place, &arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("lathe starts");
    let run = wait_for_a_step(&place, &mut child);
    let ctl = |arguments: &[&str]| {
        let mut all = vec!["ctl", "latest"];
        all.extend(arguments);
        let output = lathe(&place, &all).output().expect("lathe starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, muted, _) = ctl(&["mute", "kl", "--wait"]);
    assert_eq!(code, Some(0), "{muted}");
    assert!(muted.starts_with("mute kl: armed"), "{muted}");
    assert!(muted.ends_with("-> muted"), "{muted}");

    let events = || -> Vec<Value> {
        let log = fs::read_to_string(run.join("events.jsonl")).expect("a log");
        let whole = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        whole.collect()
    };
    let tripped = |events: &[Value]| {
        let mut trips = events
            .iter()
            .filter(|event| event["event"] == "guard_tripped");
        trips.next().cloned()
    };
    let started = Instant::now();
    let trip = loop {
        assert!(started.elapsed() < Duration::from_secs(120), "it trips");
        match tripped(&events()) {
            Some(trip) => break trip,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(
        (&trip["guard"], &trip["step"]),
        (&"third".into(), &3.into())
    );
    assert_eq!(trip["done"][0]["action"], "lower_lr 0.5", "{trip}");
    assert_eq!(trip["done"][1]["before"], "weights of step 3", "{trip}");
    let after = trip["done"][1]["after"].as_str().expect("words");
    assert!(
        after.starts_with("weights, optimizer, controllers and data of step 2"),
        "{trip}"
    );

    // A status is of the step boundary after the trip.
    let asked = Instant::now();
    let guards = loop {
        let (_, guards, _) = ctl(&["guards"]);
        if guards.contains("cooling down until step 103") {
            break guards;
        }
        assert!(asked.elapsed() < Duration::from_secs(120), "{guards}");
        std::thread::yield_now();
    };
    assert!(guards.contains("tripped 1 time"), "{guards}");
    // The checkpoint of step 3, of the weights after it went back, may be written by now or not.
    let checkpoints = guards.lines().find(|line| line.starts_with("checkpoints"));
    assert!(
        checkpoints.is_some_and(|line| line.contains("  2") && line.contains("good)")),
        "{guards}"
    );
    let (code, _, refused) = ctl(&["roll_back", "77", "--wait"]);
    assert_eq!(code, Some(6));
    assert!(
        refused.contains("no checkpoint of step 77; there are those of steps 0"),
        "{refused}"
    );
    let (code, _, refused) = ctl(&["trip", "klx", "--wait"]);
    assert_eq!(code, Some(6));
    assert!(refused.contains("there are third, kl"), "{refused}");
    let (code, mode, _) = ctl(&["mode", "sync", "--wait"]);
    assert_eq!(code, Some(0));
    assert!(
        mode.contains("one_step_off, staleness 1 -> sync, staleness 0"),
        "{mode}"
    );
    // At least one step under the lowered rate.
    let (code, _, _) = ctl(&["step", "--wait"]);
    assert_eq!(code, Some(0));
    let (_, stopped, _) = ctl(&["stop", "--wait"]);
    assert!(stopped.starts_with("stopped after step"), "{stopped}");
    assert_eq!(child.wait().expect("a child of ours").code(), Some(130));

    // The learning rate is what the guard made it, and steps went on counting.
    let events = events();
    let lr = |of: u64| {
        let mut steps = events.iter().filter(|event| event["event"] == "step_ended");
        let step = steps.find(|event| event["step"] == of)?;
        step["values"]["actor/lr"].as_f64()
    };
    let (third, fourth) = (lr(3).expect("step 3"), lr(4).expect("step 4"));
    assert!((fourth / third - 0.5).abs() < 1e-9, "{third} then {fourth}");
    let followed = lathe(&place, &["follow", "latest", "--plain"])
        .output()
        .expect("lathe starts");
    let followed = String::from_utf8_lossy(&followed.stdout).into_owned();
    assert!(
        followed.contains("alarm guard third at step 3"),
        "{followed}"
    );
    assert!(followed.contains("mute kl"), "{followed}");
}
