//! A cluster of two nodes, neither of which is the machine that is spoken to.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::daemons::Slurm;
use crate::fake_trainer::{Act, ended, started, step, wait_until};
use runlog::event::RunStatus;

#[test]
fn an_array_runs_on_both_nodes_at_once_and_each_run_is_followed_to_its_end() {
    let Some(slurm) = Slurm::with_two_nodes() else {
        return;
    };
    let cluster = &slurm.cluster;
    cluster.write_targets(
        "lab",
        "  kind: slurm\n  time: 10:00\n  cpus: 2\n  gpus: none\n",
    );
    let gate = cluster.bench.path("gate");
    cluster.bench.trainer(&[
        started(2),
        step(1, 0.5),
        Act::WaitFor(gate.clone()),
        step(2, 0.6),
        ended(RunStatus::Completed, 0, "", 2),
    ]);
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
    let runs: Vec<String> = ran
        .json_lines()
        .iter()
        .map(|run| run["run"].as_str().unwrap().to_owned())
        .collect();
    let hosts = || -> BTreeSet<String> {
        runs.iter()
            .filter_map(|run| {
                let path = cluster.bench.path("far/runs").join(run);
                let text = fs::read(path.join("supervisor.json")).ok()?;
                let known: Value = serde_json::from_slice(&text).ok()?;
                Some(known["host"].as_str()?.to_owned())
            })
            .collect()
    };
    wait_until("both nodes have a run", || {
        hosts() == ["node1".to_owned(), "node2".to_owned()].into()
    });
    let standing = |name: &str| {
        cluster
            .run(&["target", "runs", "lab"])
            .stdout
            .matches(name)
            .count()
    };
    wait_until("two run and one waits", || {
        standing("running  ") == 2 && standing("queued  ") == 1
    });
    fs::write(&gate, "").unwrap();
    for run in &runs {
        let ran = cluster.run(&["follow", run, "--json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.last_json()["status"], "finished");
    }
}
