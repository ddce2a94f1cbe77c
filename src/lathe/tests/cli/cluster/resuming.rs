//! `lathe run --resume` of a run that a scheduler gave its machine: another job in the same directory.

use std::fs;

use runlog::event::RunStatus;
use serde_json::Value;

use super::queue::Cluster;
use super::ray;
use super::slurm::has_step;
use crate::fake_trainer::{
    Act, checkpoint, ended, going_on, save_checkpoint, started, step, wait_until,
};

/// Two steps, a checkpoint, and a death.
pub fn dying() -> Vec<Act> {
    vec![
        started(4),
        step(1, 0.5),
        step(2, 0.6),
        checkpoint(2),
        Act::Die,
    ]
}

pub fn job(cluster: &Cluster) -> String {
    let text = fs::read(cluster.run_there().join("scheduled.json")).unwrap();
    let value: Value = serde_json::from_slice(&text).unwrap();
    value["job"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_that_died_in_its_job_goes_on_in_another_job_and_in_the_same_directory() {
    let cluster = Cluster::played();
    cluster.bench.trainer(&dying());
    let ran = cluster.run(&["run", "toy.yaml", "--on", "lab", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    save_checkpoint(&cluster.run_there(), 2);
    cluster.bench.trainer(&going_on(2, 4));
    cluster.hold();
    let ran = cluster.run(&["run", "--resume", "latest", "--detach", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.last_json()["standing"],
        "it waits in Slurm's queue as job 2: Resources, place 1 of 1"
    );
    assert_eq!(job(&cluster), "2");
    let ran = cluster.run(&["runs", "--json"]);
    assert_eq!(ran.last_json()["status"], "running", "{ran:?}");
    let ran = cluster.run(&["run", "--resume", "latest"]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(
        ran.stderr
            .contains("goes on already: it waits in Slurm's queue as job 2"),
        "{ran:?}"
    );
    cluster.release("2");
    let ran = cluster.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    cluster.assert_same();
    assert_eq!(cluster.exit()["code"], 0);
    assert_eq!(cluster.asked().lines().count(), 2);
    assert_eq!(
        fs::read_dir(cluster.bench.path("far/runs"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn a_run_that_was_stopped_goes_on_and_is_not_stopped_by_the_earlier_request() {
    let cluster = Cluster::played();
    cluster.bench.trainer(&[
        started(4),
        step(1, 0.5),
        Act::WaitForInterrupt,
        checkpoint(1),
        ended(RunStatus::Stopped, 130, "stopped on request", 1),
        Act::Exit(130),
    ]);
    assert_eq!(cluster.detached("lab", "one")["standing"], "it runs");
    let events = cluster.run_there().join("events.jsonl");
    wait_until("its first step", || has_step(&events, 1));
    assert_eq!(cluster.run(&["stop", "latest"]).code, Some(0));
    let ran = cluster.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(130), "{ran:?}");
    save_checkpoint(&cluster.run_there(), 1);
    cluster.bench.trainer(&going_on(1, 4));
    let ran = cluster.run(&["run", "--resume", "latest", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    cluster.assert_same();
}

#[test]
fn a_resume_that_sbatch_refuses_leaves_the_run_as_it_was() {
    let cluster = Cluster::played();
    cluster.bench.trainer(&dying());
    let ran = cluster.run(&["run", "toy.yaml", "--on", "lab", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    save_checkpoint(&cluster.run_there(), 2);
    let read = |name: &str| fs::read(cluster.run_there().join(name)).unwrap();
    let names = ["exit.json", "job.json", "scheduled.json", "experiment.yaml"];
    let before = names.map(read);
    let refusal = "sbatch: error: Batch job submission failed: Invalid qos specification\n";
    fs::write(cluster.bench.path("queue/refuse"), refusal).unwrap();
    let ran = cluster.run(&["run", "--resume", "latest", "trainer.save_freq=3"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("`qos` in targets.yaml"), "{ran:?}");
    assert_eq!(names.map(read), before);
    let ran = cluster.run(&["runs", "--json"]);
    assert_eq!(ran.last_json()["status"], "dead", "{ran:?}");
}

#[test]
fn of_ray_it_is_a_job_of_another_name() {
    let (cluster, api) = ray::cluster();
    cluster.bench.trainer(&dying());
    let ran = cluster.run(&["run", "toy.yaml", "--on", "head", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    save_checkpoint(&cluster.run_there(), 2);
    let first = job(&cluster);
    for (from, name) in [(2, "-again-2"), (3, "-again-3")] {
        let mut acts = going_on(from, 4);
        acts.truncate(3);
        acts.extend([checkpoint(from + 1), Act::Die]);
        cluster.bench.trainer(&acts);
        let ran = cluster.run(&["run", "--resume", "latest", "--json"]);
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert_eq!(job(&cluster), format!("{first}{name}"));
        assert!(api.lock().jobs.contains_key(&job(&cluster)));
        save_checkpoint(&cluster.run_there(), from + 1);
    }
    cluster.assert_same();
    let ran = cluster.run(&["run", "--resume", "latest"]);
    assert_eq!(ran.code, Some(8), "{ran:?}");
}
