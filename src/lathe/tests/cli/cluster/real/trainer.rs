//! The real trainer with its model, a few steps of the quickstart: on a real Slurm, preempted, on another node, on one that dies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::super::queue::Cluster;
use super::super::slurm::has_step;
use super::daemons::Slurm;
use crate::fake_trainer::wait_until;
use crate::harness::{Ran, finished};

const QUICKSTART: [&str; 5] = [
    "experiments/quickstart.yaml",
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "data.val_max_samples=8",
    "trainer.test_freq=-1",
];

/// Puts it in the place of the fake one. False: it is not built, which is said.
pub fn is_in_place(cluster: &Cluster) -> bool {
    let trainer = Path::new(env!("CARGO_BIN_EXE_lathe")).with_file_name("lathe-trainer");
    if !trainer.is_file() {
        eprintln!("skipped: {} is not built", trainer.display());
        return false;
    }
    // Not a link, through which the next fake one would be written.
    let text = format!("exec '{}' \"$@\"", trainer.display());
    cluster.bench.program("trainer", &text);
    true
}

/// lathe in this repository's folder, where the quickstart's files are, with the cluster's runs and targets.
pub fn command(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = cluster.lathe(arguments);
    command
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .env("LATHE_RUNS", cluster.bench.path("runs"))
        .env("LATHE_TARGETS", cluster.bench.path("targets.yaml"));
    command
}

fn lathe(cluster: &Cluster, arguments: &[&str]) -> Ran {
    finished(command(cluster, arguments).output().unwrap())
}

/// A run of the quickstart, by `more` in its own words.
pub fn run(cluster: &Cluster, more: &[&str]) -> Ran {
    let arguments = [&["run"], &QUICKSTART[..], more].concat();
    lathe(cluster, &arguments)
}

/// The events of one kind.
fn events(path: &Path, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["event"] == kind)
        .collect()
}

/// Every step that counts was trained, each behind the one before it.
fn assert_whole(path: &Path, total: u64) {
    let mut done = 0;
    for event in fs::read_to_string(path).unwrap().lines() {
        let event: Value = serde_json::from_str(event).unwrap();
        match event["event"].as_str() {
            Some("run_resumed") => done = event["from_step"].as_u64().unwrap(),
            Some("step_ended") => {
                assert_eq!(event["step"], done + 1);
                done += 1;
            }
            _ => {}
        }
    }
    assert_eq!(done, total);
}

/// What it went on from is a whole checkpoint of that step, and nothing after it was lost.
fn assert_resumed(run: &Path, resumed: &Value) {
    let checkpoint: PathBuf = run.join(resumed["checkpoint"].as_str().unwrap());
    runlog::checkpoints::verify(&checkpoint).unwrap();
    let state: Value =
        serde_json::from_slice(&fs::read(checkpoint.join("state.json")).unwrap()).unwrap();
    assert_eq!(state["step"], resumed["from_step"], "{state}");
    assert_eq!(resumed["lost_steps"], 0, "{resumed}");
}

fn host(cluster: &Cluster) -> String {
    let text = fs::read(cluster.run_there().join("supervisor.json")).unwrap_or_default();
    let known: Value = serde_json::from_slice(&text).unwrap_or_default();
    known["host"].as_str().unwrap_or("").to_owned()
}

#[test]
fn the_real_trainer_is_preempted_on_a_real_slurm_and_goes_on_as_of_its_checkpoint_to_its_end() {
    let Some(slurm) = Slurm::start() else { return };
    let cluster = &slurm.cluster;
    if !is_in_place(cluster) {
        return;
    }
    cluster.write_targets(
        "lab",
        "  kind: slurm\n  partition: low\n  time: 10:00\n  cpus: 2\n  gpus: none\n",
    );
    let ran = run(
        cluster,
        &["trainer.total_training_steps=60", "--on", "lab", "--detach"],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let events_there = cluster.run_there().join("events.jsonl");
    wait_until("its second step", || has_step(&events_there, 2));
    let follower = command(cluster, &["follow", "latest", "--json"])
        .spawn()
        .unwrap();
    let job = slurm.job();
    let other = slurm.slurm(
        "sbatch",
        &["--parsable", "-p", "high", "-c2", "--wrap", "sleep 1"],
    );
    wait_until("the other has its place", || {
        slurm.job_state(other.trim()) == "COMPLETED"
    });
    wait_until("it waits again", || slurm.job_state(&job) == "PENDING");
    slurm.start_now(&job);
    let ran = finished(follower.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    let resumed = events(&events_there, "run_resumed");
    assert_eq!(resumed.len(), 1);
    assert_resumed(&cluster.run_there(), &resumed[0]);
    assert_whole(&events_there, 60);
    cluster.assert_same();
}

#[test]
fn on_another_node_it_is_followed_set_and_stopped_and_goes_on_in_place_on_the_first() {
    let Some(slurm) = Slurm::with_two_nodes() else {
        return;
    };
    let cluster = &slurm.cluster;
    if !is_in_place(cluster) {
        return;
    }
    let on = |node: &str| {
        let keys = format!(
            "  kind: slurm\n  time: 10:00\n  cpus: 2\n  gpus: none\n  sbatch: [--nodelist={node}]\n"
        );
        cluster.write_targets("lab", &keys);
    };
    on("node2");
    let ran = run(
        cluster,
        &[
            "trainer.total_training_steps=400",
            "--on",
            "lab",
            "--detach",
        ],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(host(cluster), "node2");
    // Its socket is reached from there alone: `srun --overlap` joins it.
    let ran = lathe(cluster, &["ctl", "latest", "pause", "--wait"]);
    assert!(ran.stdout.starts_with("paused after step"), "{ran:?}");
    let set = ["ctl", "latest", "set", "actor.optim.lr=1e-5", "--wait"];
    let ran = lathe(cluster, &set);
    assert!(ran.stdout.contains("-> 1.00e-5"), "{ran:?}");
    assert_eq!(lathe(cluster, &["ctl", "latest", "resume"]).code, Some(0));
    let ran = lathe(cluster, &["stop", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = lathe(cluster, &["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(130), "{ran:?}");
    cluster.assert_same();

    let there = cluster.run_there();
    let ended = events(&there.join("events.jsonl"), "run_ended");
    let total = ended[0]["steps"].as_u64().unwrap() + 3;
    on("node1");
    let steps = format!("trainer.total_training_steps={total}");
    let ran = lathe(cluster, &["run", "--resume", "latest", &steps, "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    assert_eq!(host(cluster), "node1");
    let resumed = events(&there.join("events.jsonl"), "run_resumed");
    assert_eq!(resumed.len(), 1);
    assert_resumed(&there, &resumed[0]);
    assert_whole(&there.join("events.jsonl"), total);
    cluster.assert_same();
}

#[test]
fn a_run_whose_node_dies_goes_on_from_its_newest_checkpoint_on_the_other() {
    let Some(mut slurm) = Slurm::with_two_nodes() else {
        return;
    };
    if !is_in_place(&slurm.cluster) {
        return;
    }
    slurm.cluster.write_targets(
        "lab",
        "  kind: slurm\n  time: 10:00\n  cpus: 2\n  gpus: none\n",
    );
    let ran = run(
        &slurm.cluster,
        &[
            "trainer.total_training_steps=60",
            "trainer.save_freq=2",
            "--on",
            "lab",
            "--detach",
        ],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let there = slurm.cluster.run_there();
    let events_there = there.join("events.jsonl");
    let follower = command(&slurm.cluster, &["follow", "latest", "--json"])
        .spawn()
        .unwrap();
    wait_until("its second checkpoint", || {
        !events(&events_there, "checkpoint_saved").is_empty() && has_step(&events_there, 4)
    });
    let node = host(&slurm.cluster);
    slurm.kill_node(&node);
    assert!(!has_step(&events_there, 60), "it died too late");
    let job = slurm.job();
    wait_until("Slurm has noticed", || {
        slurm.job_state(&job) == "PENDING" && slurm.shown(&job, "Restarts") == "1"
    });
    assert!(!there.join("exit.json").exists(), "it is not over");
    slurm.start_now(&job);
    let ran = finished(follower.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    let other = host(&slurm.cluster);
    assert!(other.starts_with("node") && other != node, "{other}");
    let resumed = events(&events_there, "run_resumed");
    assert_eq!(resumed.len(), 1);
    assert!(
        resumed[0]["from_step"].as_u64().unwrap() >= 2,
        "{resumed:?}"
    );
    assert_whole(&events_there, 60);
    slurm.cluster.assert_same();
    let log = fs::read_to_string(there.join("log.txt")).unwrap();
    assert!(
        log.contains(&format!("again (restart 1) on {other}")),
        "{log}"
    );
}
