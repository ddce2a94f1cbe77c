//! A cluster of one node: what a real Slurm does with runs.

use std::fs;

use super::super::slurm::has_step;
use super::daemons::Slurm;
use crate::fake_trainer::{Act, checkpoint, ended, learning, started, step, wait_until};
use crate::harness::finished;
use runlog::event::RunStatus;

fn until_interrupted(steps: u64) -> Vec<Act> {
    vec![
        started(4),
        step(1, 0.5),
        step(steps, 0.6),
        Act::WaitForInterrupt,
        checkpoint(steps),
        ended(RunStatus::Stopped, 130, "stopped on request", steps),
        Act::Exit(130),
    ]
}

#[test]
fn a_real_slurm_runs_queues_stops_and_refuses() {
    let Some(slurm) = Slurm::start() else { return };
    let cluster = &slurm.cluster;
    cluster.bench.trainer(&learning());
    let ran = cluster.run(&["run", "toy.yaml", "--on", "lab", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    cluster.assert_same();
    assert_eq!(slurm.job_state(&slurm.job()), "COMPLETED");
    let ran = cluster.run(&["doctor", "lab"]);
    assert!(ran.stdout.contains("partition low (for these runs): 1 of 1 nodes idle, 2 of 2 GPUs free, 2 of 2 processors free, at most 1:00:00"), "{ran:?}");

    // Refused.
    cluster.write_targets("lab", "  kind: slurm\n  partition: none\n");
    let ran = cluster.run(&["run", "toy.yaml", "--on", "lab", "--detach"]);
    assert!(
        ran.stderr.contains("Invalid partition name specified"),
        "{ran:?}"
    );
    cluster.write_targets("lab", "  kind: slurm\n  gpus: 9\n");
    let ran = cluster.run(&["run", "toy.yaml", "--on", "lab", "--detach"]);
    assert!(
        ran.stderr
            .contains("Requested node configuration is not available"),
        "{ran:?}"
    );

    // Behind a job that takes everything.
    fs::remove_dir_all(cluster.bench.path("runs")).unwrap();
    cluster.write_targets("lab", "  kind: slurm\n  time: 10:00\n  gpus: 1\n");
    let first = slurm.slurm("sbatch", &["--parsable", "-c2", "--wrap", "sleep 600"]);
    wait_until("the first runs", || {
        slurm.job_state(first.trim()) == "RUNNING"
    });
    let standing = cluster.detached("lab", "waits")["standing"].to_string();
    assert!(
        standing.contains("it waits in Slurm's queue as job") && standing.contains("place 1 of 1"),
        "{standing}"
    );
    slurm.slurm("scancel", &[first.trim()]);
    cluster.bench.trainer(&until_interrupted(2));
    let events = cluster.run_there().join("events.jsonl");
    wait_until("it runs", || has_step(&events, 2) || has_step(&events, 4));
    cluster.run(&["stop", "latest"]);
    let ran = cluster.run(&["follow", "latest", "--json"]);
    assert!(matches!(ran.code, Some(0 | 130)), "{ran:?}");
}

#[test]
fn a_real_slurm_runs_a_sweep_as_one_array() {
    let Some(slurm) = Slurm::start() else { return };
    let cluster = &slurm.cluster;
    cluster.write_targets(
        "lab",
        "  kind: slurm\n  time: 10:00\n  gpus: 1\n  at_once: 1\n",
    );
    cluster.bench.trainer(&learning());
    let ran = cluster.run(&[
        "run",
        "toy.yaml",
        "trainer.seed={1,2,3}",
        "--on",
        "lab",
        "--sweep",
        "--json",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for run in ran.json_lines() {
        let ran = cluster.run(&["follow", run["run"].as_str().unwrap(), "--json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

#[test]
fn a_real_slurm_ends_a_run_at_its_time_limit_with_a_checkpoint() {
    let Some(slurm) = Slurm::start() else { return };
    let cluster = &slurm.cluster;
    // Slurm counts in minutes, and warns when less than a minute and a half of the two are left.
    cluster.write_targets(
        "lab",
        "  kind: slurm\n  time: 2\n  warning: 90s\n  gpus: none\n",
    );
    cluster.bench.trainer(&until_interrupted(2));
    let ran = cluster.run(&["run", "toy.yaml", "--on", "lab", "--json"]);
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(
        ran.stderr
            .contains("time limit of 00:02:00 is reached (TIMEOUT)"),
        "{ran:?}"
    );
}

#[test]
fn a_real_slurm_preempts_a_run_which_goes_on() {
    let Some(slurm) = Slurm::start() else { return };
    let cluster = &slurm.cluster;
    cluster.write_targets(
        "lab",
        "  kind: slurm\n  partition: low\n  time: 10:00\n  cpus: 2\n  gpus: none\n",
    );
    // This version of Slurm gives no warning: a job hears SIGTERM, and has KillWait to save.
    let mut acts = until_interrupted(2);
    acts[3] = Act::WaitForTerminate;
    cluster.bench.trainer(&acts);
    assert_eq!(cluster.detached("lab", "low")["standing"], "it runs");
    let child = cluster
        .lathe(&["follow", "latest", "--json"])
        .spawn()
        .unwrap();
    let job = slurm.job();
    let other = slurm.slurm(
        "sbatch",
        &["--parsable", "-p", "high", "-c2", "--wrap", "sleep 3"],
    );
    wait_until("the other has its place", || {
        slurm.job_state(other.trim()) == "COMPLETED"
    });
    assert!(
        !cluster.run_there().join("exit.json").exists(),
        "it is not over"
    );
    assert_eq!(slurm.job_state(&job), "PENDING");
    cluster.bench.trainer(&learning());
    slurm.start_now(&job);
    let ran = finished(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let log = fs::read_to_string(cluster.run_there().join("log.txt")).unwrap();
    assert!(log.contains("again (restart 1) on"), "{log}");
    cluster.assert_same();
}

#[test]
fn a_real_slurm_names_what_it_did_to_a_job() {
    let Some(slurm) = Slurm::start() else { return };
    let cluster = &slurm.cluster;
    cluster
        .bench
        .trainer(&[started(4), step(1, 0.5), Act::WaitForTerminate, Act::Die]);
    assert_eq!(cluster.detached("lab", "one")["standing"], "it runs");
    slurm.slurm("scancel", &["--signal=KILL", "--full", &slurm.job()]);
    let ran = cluster.run(&["follow", "latest", "--json"]);
    let reason = ran.last_json()["reason"].to_string();
    assert!(
        reason.contains("Slurm says") || reason.contains("cancelled"),
        "{reason}"
    );
    fs::remove_dir_all(cluster.bench.path("runs")).unwrap();
    assert_eq!(cluster.detached("lab", "two")["standing"], "it runs");
    slurm.slurm("scancel", &[&slurm.job()]);
    let ran = cluster.run(&["follow", "latest", "--json"]);
    let reason = ran.last_json()["reason"].to_string();
    assert!(reason.contains("was cancelled"), "{reason}");
}
