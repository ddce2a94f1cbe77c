//! A head node of Ray's: `LATHE_RAY` names the program `ray` of a Python that has `ray[default]`.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::super::queue::{Cluster, assert_no_file_has};
use super::super::slurm::has_step;
use super::daemons::free_port;
use super::trainer;
use crate::fake_trainer::{Act, checkpoint, ended, learning, started, step, wait_until};
use crate::harness::finished;
use runlog::event::RunStatus;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

struct Head {
    cluster: Cluster,
    program: String,
    /// Where it is spoken to.
    address: String,
    /// Its own: other heads of this machine, this test's among them, have others.
    folder: String,
}

impl Head {
    fn start() -> Option<Self> {
        if std::env::var_os("LATHE_CLUSTER_TEST").is_none() {
            eprintln!("skipped: a real head node of Ray's is started by `just cluster-test` alone");
            return None;
        }
        let Ok(program) = std::env::var("LATHE_RAY") else {
            eprintln!(
                "skipped: LATHE_RAY names no program (python3 -m venv V; V/bin/pip install 'ray[default]'; LATHE_RAY=V/bin/ray)"
            );
            return None;
        };
        let mut cluster = Cluster::bare();
        cluster
            .variables
            .push(("RAY_AUTH_TOKEN".to_owned(), TOKEN.to_owned()));
        let [gcs, dashboard, agent, client] = [(); 4].map(|()| free_port());
        let head = Self {
            cluster,
            program,
            address: format!("http://127.0.0.1:{dashboard}"),
            // Sockets lie in it, whose paths must be short.
            folder: format!("/tmp/lathe-ray-{}", std::process::id()),
        };
        let status = head
            .ray(&[
                "start",
                "--head",
                "--node-ip-address=127.0.0.1",
                "--dashboard-host=127.0.0.1",
                "--num-cpus=2",
                "--object-store-memory=100000000",
                "--disable-usage-stats",
            ])
            .args([
                format!("--port={gcs}"),
                format!("--dashboard-port={dashboard}"),
                format!("--dashboard-agent-listen-port={agent}"),
                format!("--ray-client-server-port={client}"),
                format!("--temp-dir={}", head.folder),
            ])
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
        head.writes_targets("");
        Some(head)
    }

    /// `more`: further keys, each on a line of its own with two spaces before it.
    fn writes_targets(&self, more: &str) {
        let text = format!("  kind: ray\n  address: {}\n{more}", self.address);
        self.cluster.write_targets("head", &text);
    }

    fn ray(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("RAY_AUTH_MODE", "token")
            .env("RAY_AUTH_TOKEN", TOKEN)
            .env("LATHE_TRAINER", self.cluster.bench.path("trainer"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        // Not `ray stop`, which ends every Ray of this machine. Its workers go with the raylet.
        let _ = Command::new("pkill")
            .args(["-KILL", "-f", &self.folder])
            .status();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_real_head_node_runs_queues_and_stops_and_the_real_trainer_goes_on_there_in_place() {
    let Some(head) = Head::start() else { return };
    let cluster = &head.cluster;
    cluster.bench.trainer(&learning());
    let ran = cluster.run(&["run", "toy.yaml", "--on", "head", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    cluster.assert_same();
    let ran = cluster.run(&["doctor", "head"]);
    assert!(
        ran.stdout.contains("Ray 2.")
            && ran
                .stdout
                .contains("1 nodes, no GPUs, 2 of 2 processors free"),
        "{ran:?}"
    );
    assert_no_file_has(&cluster.bench.path("far"), TOKEN);
    assert_no_file_has(&cluster.bench.path("runs"), TOKEN);

    cluster.bench.trainer(&[
        started(4),
        step(1, 0.5),
        Act::WaitForTerminate,
        checkpoint(1),
        ended(RunStatus::Stopped, 130, "stopped on request", 1),
        Act::Exit(130),
    ]);
    cluster.detached("head", "stops");
    wait_until("it runs", || {
        std::fs::read_dir(cluster.bench.path("far/runs"))
            .unwrap()
            .flatten()
            .filter(|run| run.file_name().to_string_lossy().contains("-stops-"))
            .any(|run| has_step(&run.path().join("events.jsonl"), 1))
    });
    assert_eq!(cluster.run(&["stop", "stops"]).code, Some(0));
    let ran = cluster.run(&["follow", "stops", "--json"]);
    assert_eq!(ran.code, Some(130), "{ran:?}");

    // More than there is.
    head.writes_targets("  gpus: 1\n");
    let standing = cluster.detached("head", "waits")["standing"].to_string();
    assert!(standing.contains("it waits in Ray's queue"), "{standing}");
    assert_eq!(cluster.run(&["stop", "waits"]).code, Some(0));
    let ran = cluster.run(&["follow", "waits", "--json"]);
    assert!(
        ran.last_json()["reason"]
            .to_string()
            .contains("taken out of Ray's queue"),
        "{ran:?}"
    );

    // A trainer that dies.
    head.writes_targets("");
    cluster.bench.trainer(&[started(4), step(1, 0.5), Act::Die]);
    let ran = cluster.run(&["run", "toy.yaml", "--on", "head", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let last: Value = ran.last_json();
    assert!(last["reason"].to_string().contains("SIGKILL"), "{last}");
    with_the_real_trainer(cluster);
}

/// To its end, and again in place. By the same head node: another one at the same ports would hear of this one's last connections.
fn with_the_real_trainer(cluster: &Cluster) {
    if !trainer::is_in_place(cluster) {
        return;
    }
    std::fs::remove_dir_all(cluster.bench.path("runs")).unwrap();
    let ran = trainer::run(
        cluster,
        &["trainer.total_training_steps=3", "--on", "head", "--json"],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    cluster.assert_same();
    let more = "trainer.total_training_steps=5";
    let resume = ["run", "--resume", "latest", more, "--json"];
    let ran = finished(trainer::command(cluster, &resume).output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = ran.json_lines();
    let resumed = told.iter().find(|event| event["event"] == "run_resumed");
    assert_eq!(resumed.unwrap()["from_step"], 3);
    assert_eq!(ran.last_json()["status"], "finished");
    cluster.assert_same();
    let text = std::fs::read_to_string(cluster.run_there().join("scheduled.json")).unwrap();
    assert!(text.contains("-again-2"), "{text}");
}
