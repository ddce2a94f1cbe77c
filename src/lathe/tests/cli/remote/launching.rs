//! Starting runs there, watching them here, speaking to them, fetching from them.

use std::fs;
use std::path::Path;

use runlog::event::RunStatus;
use rustix::process::Signal;

use super::far::{Far, has_step, two_parts};
use crate::fake_trainer::{Act, ended, learning, started, step, wait_until};
use crate::harness::signal;

#[test]
fn a_run_elsewhere_is_watched_to_its_end_and_its_copy_is_the_same_byte_by_byte() {
    let Some(far) = Far::new() else { return };
    far.bench.trainer(&learning());
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let summary = ran.last_json();
    assert_eq!(summary["status"], "finished");
    far.assert_same();
    assert!(far.link_is("complete"), "{:?}", far.status());
    let run_dir = far.bench.run_dir();
    let info: serde_json::Value =
        serde_json::from_slice(&fs::read(run_dir.join("run.json")).unwrap()).unwrap();
    assert_eq!(info["origin"]["kind"], "target");
    assert_eq!(info["origin"]["target"], "loop");
    // The files that the experiment names lie there under their names, and only one copy of what is the same.
    let project = far.run_there().join("project");
    assert!(project.join("train.parquet").is_file() && project.join("test.parquet").is_file());
    // Again: nothing of them is sent.
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stderr.contains("sending"), "{ran:?}");
    let ran = far.run(&["runs", "--json"]);
    let words: Vec<_> = ran
        .json_lines()
        .iter()
        .map(|row| row["status"].clone())
        .collect();
    assert_eq!(words, ["finished", "finished"]);
}

#[test]
fn ctrl_c_leaves_the_run_alone_and_says_how_to_come_back() {
    let Some(far) = Far::new() else { return };
    let gate = far.bench.path("gate");
    far.bench.trainer(&two_parts(&gate, 8));
    let child = far
        .lathe(&["run", "toy.yaml", "--on", "loop", "--plain"])
        .spawn()
        .unwrap();
    wait_until("half of it is here", || {
        far.bench.path("runs").exists()
            && fs::read_dir(far.bench.path("runs"))
                .unwrap()
                .flatten()
                .any(|run| has_step(&run.path().join("events.jsonl"), 4))
    });
    signal(&child, Signal::INT);
    let left = crate::harness::finished(child.wait_with_output().unwrap());
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(
        left.stderr
            .contains("the run goes on; watch it: lathe follow"),
        "{left:?}"
    );
    fs::write(&gate, "").unwrap();
    let ran = far.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    far.assert_same();
}

#[test]
fn a_detached_run_is_spoken_to_over_a_channel_of_its_own_and_stopped() {
    let Some(far) = Far::new() else { return };
    far.bench.trainer(&[
        started(8),
        step(1, 0.5),
        Act::WaitForInterrupt,
        ended(RunStatus::Stopped, 130, "stopped on request", 1),
        Act::Exit(130),
    ]);
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--detach", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["standing"], "it runs");
    let ran = far.run(&["target", "runs", "loop"]);
    assert!(ran.stdout.starts_with("running "), "{ran:?}");
    // The fake trainer has no socket: what the other side says of it arrives.
    let ran = far.run(&["ctl", "latest", "status"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stderr.contains("it has no control socket"), "{ran:?}");
    let ran = far.run(&["stop", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = far.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(130), "{ran:?}");
    far.assert_same();
    let ran = far.run(&["ctl", "latest", "status"]);
    assert!(ran.stderr.contains("it was stopped"), "{ran:?}");
}

#[test]
fn a_trainer_that_is_killed_there_is_told_here_with_its_last_words() {
    let Some(far) = Far::new() else { return };
    far.bench.trainer(&[
        started(8),
        step(1, 0.5),
        Act::Print("allocating too much".to_owned()),
        Act::Die,
    ]);
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let summary = ran.last_json();
    assert_eq!(summary["status"], "dead");
    let reason = summary["reason"].as_str().unwrap();
    assert!(reason.contains("killed (SIGKILL)"), "{reason}");
    assert!(ran.stderr.contains("allocating too much"), "{ran:?}");
    let exit: serde_json::Value =
        serde_json::from_slice(&fs::read(far.run_there().join("exit.json")).unwrap()).unwrap();
    assert_eq!(exit["signal"], 9);
    far.assert_same();
}

#[test]
fn a_trainer_that_cannot_be_started_there_fails_the_launch_in_words() {
    let Some(far) = Far::new() else { return };
    far.bench.program(
        "trainer",
        "echo 'lathe-trainer: error while loading shared libraries: libtorch_cpu.so: cannot open' >&2; exit 127",
    );
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--detach"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.stderr.contains("cannot load libtorch_cpu.so"),
        "{ran:?}"
    );
}

#[test]
fn checkpoints_are_fetched_once_and_only_what_is_missing() {
    let Some(far) = Far::new() else { return };
    far.bench.trainer(&learning());
    assert_eq!(
        far.run(&["run", "toy.yaml", "--on", "loop", "--json"]).code,
        Some(0)
    );
    let there = far.run_there().join("checkpoints/step-000004");
    fs::create_dir_all(there.join("deep")).unwrap();
    fs::write(there.join("model.safetensors"), vec![7; 600_000]).unwrap();
    fs::write(there.join("deep/config.json"), "{}").unwrap();
    let ran = far.run(&["pull", "latest", "--checkpoint", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("600 kB of 600 kB fetched"), "{ran:?}");
    let here = far.bench.run_dir().join("checkpoints/step-000004");
    assert_eq!(
        fs::read(here.join("model.safetensors")).unwrap(),
        vec![7; 600_000]
    );
    fs::write(there.join("deep/config.json"), "{1}").unwrap();
    let ran = far.run(&["pull", "latest", "--checkpoint", "4"]);
    assert!(ran.stdout.contains("3 B of 600 kB fetched"), "{ran:?}");
    let ran = far.run(&["pull", "latest", "--checkpoint", "99"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
}

#[test]
fn secrets_reach_the_trainer_and_stand_in_no_file_and_no_command_line() {
    let Some(far) = Far::new() else { return };
    let secret = "hunter2-0451";
    far.write_targets("  pass: [TOKEN_OF_OURS]\n");
    let gate = far.bench.path("gate");
    let play = far.bench.trainer(&two_parts(&gate, 4));
    fs::rename(&play, far.bench.path("player")).unwrap();
    let got = far.bench.path("got");
    far.bench.program(
        "trainer",
        &format!(
            "printf %s \"$TOKEN_OF_OURS\" >'{}'; exec '{}' \"$@\"",
            got.display(),
            far.bench.path("player").display()
        ),
    );
    let ran = far
        .lathe(&["run", "toy.yaml", "--on", "loop", "--detach"])
        .env("TOKEN_OF_OURS", secret)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(fs::read_to_string(&got).unwrap(), secret);
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(!line.contains(secret), "{line}");
    }
    fs::write(&gate, "").unwrap();
    assert_eq!(far.run(&["follow", "latest", "--json"]).code, Some(0));
    for folder in ["runs", "far"] {
        assert_no_file_has(&far.bench.path(folder), secret);
    }
}

#[test]
fn a_run_that_was_started_from_another_machine_is_adopted_and_followed_from_its_beginning() {
    let Some(far) = Far::new() else { return };
    far.bench.trainer(&learning());
    assert_eq!(
        far.run(&["run", "toy.yaml", "--on", "loop", "--json"]).code,
        Some(0)
    );
    let name = far.bench.run_dir().file_name().unwrap().to_owned();
    // As on a machine that has never seen it.
    fs::remove_dir_all(far.bench.path("runs")).unwrap();
    let ran = far.run(&["target", "adopt", "loop", "none"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let ran = far.run(&["target", "adopt", "loop", name.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(far.run(&["follow", "latest", "--json"]).code, Some(0));
    far.assert_same();
    let ran = far.run(&["target", "adopt", "loop", name.to_str().unwrap()]);
    assert_eq!(ran.code, Some(3), "it is here already: {ran:?}");
}

#[test]
fn the_real_trainer_learns_there_and_is_paused_and_set_through_the_line() {
    let Some(far) = Far::new() else { return };
    let trainer = Path::new(env!("CARGO_BIN_EXE_lathe")).with_file_name("lathe-trainer");
    if !trainer.is_file() {
        eprintln!("skipped: {} is not built", trainer.display());
        return;
    }
    std::os::unix::fs::symlink(&trainer, far.bench.path("trainer")).unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let runs = far.bench.path("runs");
    let lathe = |arguments: &[&str]| {
        let mut command = far.lathe(arguments);
        command
            .current_dir(root)
            .env("LATHE_RUNS", &runs)
            .env("LATHE_TARGETS", far.bench.path("targets.yaml"));
        crate::harness::finished(command.output().unwrap())
    };
    let ran = lathe(&[
        "run",
        "experiments/quickstart.yaml",
        "--on",
        "loop",
        "--detach",
        "trainer.total_training_steps=12",
        "data.train_batch_size=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "data.val_max_samples=8",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = lathe(&["ctl", "latest", "pause", "--wait"]);
    assert!(ran.stdout.starts_with("paused after step"), "{ran:?}");
    let ran = lathe(&["ctl", "latest", "set", "actor.optim.lr=1e-5", "--wait"]);
    assert!(
        ran.stdout.contains("actor.optim.lr 2.00e-4 -> 1.00e-5"),
        "{ran:?}"
    );
    assert_eq!(lathe(&["ctl", "latest", "resume"]).code, Some(0));
    let ran = lathe(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    far.assert_same();
    let ran = lathe(&["pull", "latest", "--checkpoint", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let here = far
        .bench
        .run_dir()
        .join("checkpoints/step-000012/model.safetensors");
    assert!(here.is_file());
}

fn assert_no_file_has(path: &Path, secret: &str) {
    for entry in fs::read_dir(path).unwrap().flatten() {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            assert_no_file_has(&path, secret);
        } else if kind.is_file() {
            let bytes = fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(secret), "{}", path.display());
        }
    }
}
