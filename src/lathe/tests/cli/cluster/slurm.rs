//! Slurm, played: what is asked of it, what it says, and what comes of that.

use std::fs;
use std::process::Stdio;

use runlog::event::RunStatus;
use rustix::process::{Pid, Signal, kill_process};

use super::queue::{Cluster, PLAYED, PROGRAM, assert_no_file_has};
use crate::fake_trainer::{Act, checkpoint, ended, learning, started, step, wait_until};
use crate::remote::far::{Far, program_there};

/// A trainer that is stopped after its step.
fn stopped() -> Vec<Act> {
    vec![
        started(4),
        step(1, 0.5),
        step(2, 0.6),
        Act::WaitForInterrupt,
        checkpoint(2),
        ended(RunStatus::Stopped, 130, "stopped on request", 2),
        Act::Exit(130),
    ]
}

fn interrupt(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

#[test]
fn a_run_is_a_job_and_its_copy_is_the_same_byte_by_byte() {
    let cluster = Cluster::played();
    cluster.write_targets(
        "lab",
        "  kind: slurm\n  partition: gpu\n  gpus: 2\n  gpu_type: a100\n  time: 12:00:00\n  cpus: 8\n  memory: 64G\n  sbatch: [--nice=9]\n  before: [export FROM_BEFORE=yes]\n",
    );
    cluster.bench.trainer(&learning());
    let ran = cluster.run(&["run", "toy.yaml", "--on", "lab", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    cluster.assert_same();
    assert_eq!(cluster.exit()["code"], 0);
    let asked = cluster.asked();
    assert!(asked.starts_with("--parsable --job-name="), "{asked}");
    let script = fs::read_to_string(cluster.run_there().join("job.sh")).unwrap();
    let script = script.replace(env!("CARGO_BIN_EXE_lathe"), "[LATHE]");
    insta::assert_snapshot!(cluster.bench.masked(&script));
}

#[test]
fn a_run_that_waits_says_why_and_where_it_stands_and_is_taken_out_of_the_queue() {
    let cluster = Cluster::played();
    cluster.bench.trainer(&learning());
    cluster.hold();
    cluster.detached("lab", "first");
    let second = cluster.detached("lab", "second");
    assert_eq!(
        second["standing"],
        "it waits in Slurm's queue as job 2: Resources, place 2 of 2"
    );
    let ran = cluster.run(&["runs", "--json"]);
    let rows = ran.json_lines();
    assert_eq!(rows[0]["status"], "running");
    assert_eq!(
        rows[0]["waits"],
        "in Slurm's queue as job 2: Resources, place 2 of 2"
    );
    let ran = cluster.run(&["runs"]);
    assert!(
        ran.stdout
            .contains("it waits in Slurm's queue as job 2: Resources, place 2 of 2"),
        "{ran:?}"
    );
    let ran = cluster.run(&["ctl", "second", "status"]);
    assert!(
        ran.stderr
            .contains("it has not started yet: it waits in Slurm's queue"),
        "{ran:?}"
    );
    let ran = cluster.run(&["target", "runs", "lab"]);
    assert_eq!(ran.stdout.matches("queued  ").count(), 2, "{ran:?}");
    let ran = cluster.run(&["stop", "second"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(cluster.state("2"), "CANCELLED");
    let ran = cluster.run(&["follow", "second", "--json"]);
    let reason = ran.last_json()["reason"].to_string();
    assert!(
        reason.contains("taken out of Slurm's queue before it began"),
        "{reason}"
    );
    cluster.release("1");
    let ran = cluster.run(&["follow", "first", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_sweep_is_one_array_and_each_task_its_own_run() {
    let cluster = Cluster::played();
    cluster.write_targets("lab", "  kind: slurm\n  gpus: none\n  at_once: 2\n");
    cluster.bench.trainer(&learning());
    let ran = cluster.run(&[
        "run",
        "toy.yaml",
        "actor_rollout_ref.actor.optim.lr={1e-5,3e-5,1e-4}",
        "--on",
        "lab",
        "--sweep",
        "--json",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let runs = ran.json_lines();
    assert_eq!(runs.len(), 3);
    assert_eq!(
        cluster.asked().lines().count(),
        1,
        "one sbatch: {}",
        cluster.asked()
    );
    for run in &runs {
        let name = run["run"].as_str().unwrap();
        let ran = cluster.run(&["follow", name, "--json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let there = cluster.bench.path("far/runs").join(name);
        let script = fs::read_to_string(there.join("job.sh")).unwrap();
        assert!(script.contains("#SBATCH --array=0-2%2"), "{script}");
    }
    let rates: Vec<bool> = ["1e-5", "3e-5", "1e-4"]
        .iter()
        .zip(&runs)
        .map(|(rate, run)| {
            let folder = cluster
                .bench
                .path("far/runs")
                .join(run["run"].as_str().unwrap());
            fs::read_to_string(folder.join("experiment.yaml"))
                .unwrap()
                .contains(&format!("lr: {rate}"))
        })
        .collect();
    assert_eq!(rates, [true; 3]);
    let ran = cluster.run(&["run", "toy.yaml", "--sweep"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[test]
fn what_sbatch_refuses_is_told_in_its_words_and_leaves_nothing_behind() {
    let cluster = Cluster::played();
    cluster.bench.trainer(&learning());
    fs::write(
        cluster.bench.path("queue/refuse"),
        "sbatch: error: invalid partition specified: gpu\nsbatch: error: Batch job submission failed: Invalid partition name specified\n",
    )
    .unwrap();
    let ran = cluster.run(&["run", "toy.yaml", "--on", "lab", "--detach"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr.contains(
            "sbatch: error: Batch job submission failed: Invalid partition name specified"
        ),
        "{ran:?}"
    );
    assert!(
        ran.stderr.contains("`partition` in targets.yaml"),
        "{ran:?}"
    );
    assert_eq!(
        fs::read_dir(cluster.bench.path("far/runs"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(
        fs::read_dir(cluster.bench.path("runs"))
            .into_iter()
            .flatten()
            .flatten()
            .filter(|run| run.file_name() != ".starting")
            .count(),
        0
    );
}

#[test]
fn without_slurm_s_commands_it_is_said_where_they_are_wanted() {
    let cluster = Cluster::bare();
    cluster.bench.trainer(&learning());
    cluster.write_targets("lab", "  kind: slurm\n");
    let ran = cluster
        .lathe(&["run", "toy.yaml", "--on", "lab", "--detach"])
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        said.contains("there is no sbatch here") && said.contains("login node"),
        "{said}"
    );
}

#[test]
fn a_preempted_run_saves_goes_into_the_queue_again_and_goes_on_and_who_follows_it_sees_one_run() {
    let cluster = Cluster::played();
    cluster.bench.trainer(&stopped());
    let child = cluster
        .lathe(&["run", "toy.yaml", "--on", "lab", "--json"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("its second step", || {
        fs::read_dir(cluster.bench.path("far/runs"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|run| has_step(&run.path().join("events.jsonl"), 2))
    });
    cluster.set("1", "preempted", "2026-12-01T01:02:52");
    interrupt(cluster.pid("1"), Signal::USR1);
    cluster.wait_for_state("1", "PENDING");
    assert!(
        !cluster.run_there().join("exit.json").exists(),
        "it is not over"
    );
    let ran = cluster.run(&["runs", "--json"]);
    assert_eq!(ran.last_json()["status"], "running", "{ran:?}");
    // What it does when it goes on.
    cluster.bench.trainer(&learning());
    cluster.release("1");
    let ran = crate::harness::finished(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    cluster.assert_same();
    let log = fs::read_to_string(cluster.run_there().join("log.txt")).unwrap();
    assert!(
        log.contains("another job takes its place (PREEMPTED): job 1 goes into the queue again"),
        "{log}"
    );
    assert!(
        log.contains("Slurm has started job 1 again (restart 1)"),
        "{log}"
    );
}

#[test]
fn at_the_end_of_its_time_a_run_stops_with_a_checkpoint_and_says_what_to_do() {
    let cluster = Cluster::played();
    cluster.bench.trainer(&stopped());
    assert_eq!(cluster.detached("lab", "one")["standing"], "it runs");
    let events = cluster.run_there().join("events.jsonl");
    wait_until("its second step", || has_step(&events, 2));
    interrupt(cluster.pid("1"), Signal::USR1);
    let ran = cluster.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(130), "{ran:?}");
    let reason = cluster.exit()["reason"].to_string();
    assert!(
        reason.contains("time limit of 00:10:00 is reached (TIMEOUT)"),
        "{reason}"
    );
    assert!(reason.contains("`requeue: always`"), "{reason}");
}

#[test]
fn a_run_is_stopped_through_its_job_and_stays_stopped() {
    let cluster = Cluster::played();
    cluster.bench.trainer(&stopped());
    cluster.detached("lab", "one");
    let ran = cluster.run(&["stop", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(130), "{ran:?}");
    cluster.assert_same();
    cluster.wait_for_state("1", "COMPLETED");
}

#[test]
fn a_job_that_slurm_kills_is_named_by_slurm_s_word() {
    let cluster = Cluster::played();
    cluster.bench.trainer(&[
        started(8),
        step(1, 0.5),
        Act::Print("allocating too much".to_owned()),
        Act::WaitForInterrupt,
    ]);
    assert_eq!(cluster.detached("lab", "one")["standing"], "it runs");
    cluster.set("1", "end", "OUT_OF_MEMORY");
    let known: serde_json::Value =
        serde_json::from_slice(&fs::read(cluster.run_there().join("supervisor.json")).unwrap())
            .unwrap();
    let trainer = known["trainer"]["pid"].as_u64().unwrap() as u32;
    interrupt(cluster.pid("1"), Signal::KILL);
    interrupt(trainer, Signal::KILL);
    let ran = cluster.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let reason = ran.last_json()["reason"].to_string();
    assert!(
        reason.contains("more memory than it had (OUT_OF_MEMORY)"),
        "{reason}"
    );
    assert!(reason.contains("`memory` in targets.yaml"), "{reason}");
    assert!(ran.stderr.contains("allocating too much"), "{ran:?}");
    assert_eq!(cluster.exit()["is_out_of_memory"], true);
}

#[test]
fn a_job_that_never_began_says_where_to_look() {
    let cluster = Cluster::played();
    cluster.write_targets(
        "lab",
        "  kind: slurm\n  before: [echo no module of that name, exit 3]\n",
    );
    cluster.bench.trainer(&learning());
    let ran = cluster.run(&["run", "toy.yaml", "--on", "lab", "--detach"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.stderr.contains("Slurm says FAILED, exit code 3"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("no module of that name"), "{ran:?}");
}

#[test]
fn the_socket_of_a_run_on_another_node_is_reached_through_a_process_of_its_job() {
    let cluster = Cluster::played();
    cluster.bench.trainer(&stopped());
    assert_eq!(cluster.detached("lab", "one")["standing"], "it runs");
    // As if its supervisor were another machine's.
    let path = cluster.run_there().join("supervisor.json");
    let mut known: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    known["host"] = "node9".into();
    known["process"]["boot_id"] = "another".into();
    fs::write(&path, known.to_string()).unwrap();
    let ran = cluster.run(&["ctl", "latest", "status"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    // It has been there: the fake trainer has no socket.
    assert!(ran.stderr.contains("it has no control socket"), "{ran:?}");
    assert!(
        cluster
            .asked()
            .contains("--overlap --quiet --nodes=1 --ntasks=1 --unbuffered --jobid=1"),
        "{}",
        cluster.asked()
    );
    let ran = cluster.run(&["stop", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(cluster.run(&["follow", "latest", "--json"]).code, Some(130));
}

#[test]
fn secrets_reach_the_trainer_through_the_queue_and_stand_in_no_file_of_ours() {
    let cluster = Cluster::played();
    let secret = "hunter2-0451";
    cluster.write_targets("lab", "  kind: slurm\n  pass: [TOKEN_OF_OURS]\n");
    let play = cluster.bench.trainer(&learning());
    fs::rename(&play, cluster.bench.path("player")).unwrap();
    let got = cluster.bench.path("got");
    cluster.bench.program(
        "trainer",
        &format!(
            "printf %s \"$TOKEN_OF_OURS\" >'{}'; exec '{}' \"$@\"",
            got.display(),
            cluster.bench.path("player").display()
        ),
    );
    let ran = cluster
        .lathe(&["run", "toy.yaml", "--on", "lab", "--json"])
        .env("TOKEN_OF_OURS", secret)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(fs::read_to_string(&got).unwrap(), secret);
    for folder in ["runs", "far", "queue"] {
        assert_no_file_has(&cluster.bench.path(folder), secret);
    }
}

#[test]
fn the_doctor_tells_the_partitions_and_the_list_of_targets_what_is_asked_for() {
    let cluster = Cluster::played();
    cluster.bench.program("trainer", "echo lathe-trainer 0.1.0");
    let ran = cluster.run(&["doctor", "lab"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for words in [
        "slurm-wlm 22.05.8 answers",
        "partition gpu (for these runs): 0 of 1 nodes idle, 3 of 4 GPUs free, 14 of 16 processors free, at most 1-00:00:00",
        "partition cpu: 1 of 1 nodes idle, no GPUs",
        "no accounting here (sacct)",
    ] {
        assert!(ran.stdout.contains(words), "{words}: {ran:?}");
    }
    cluster.write_targets("lab", "  kind: slurm\n  partition: gqu\n  time: 30\n");
    let ran = cluster.run(&["doctor", "lab"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stdout.contains("there is no partition gqu"), "{ran:?}");
    let ran = cluster.run(&["targets"]);
    assert!(ran.stdout.contains("partition gqu, time 30"), "{ran:?}");
    let ran = cluster.run(&["target", "setup", "lab"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("its nodes must see"), "{ran:?}");
}

#[test]
fn a_queue_behind_a_login_node_is_spoken_to_over_ssh() {
    let Some(far) = Far::new() else { return };
    fs::create_dir(far.bench.path("queue")).unwrap();
    for name in PLAYED {
        program_there(&far, name, PROGRAM.trim_start_matches("#!/bin/sh\n"));
    }
    let path = |name: &str| far.bench.path(name).display().to_string();
    let text = format!(
        "lab:\n  kind: slurm\n  host: loop\n  folder: {}\n  program: {}\n",
        path("far"),
        path("far-lathe")
    );
    fs::write(far.bench.path("targets.yaml"), text).unwrap();
    far.bench.trainer(&learning());
    let ran = far.run(&["run", "toy.yaml", "--on", "lab", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    far.assert_same();
    let ran = far.run(&["doctor", "lab"]);
    assert!(ran.stdout.contains("slurm-wlm 22.05.8 answers"), "{ran:?}");
}

pub fn has_step(events: &std::path::Path, step: u64) -> bool {
    fs::read_to_string(events)
        .is_ok_and(|text| text.contains(&format!("\"event\":\"step_ended\",\"step\":{step},")))
}
