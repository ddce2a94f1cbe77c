//! A cluster of one node: munged, slurmctld and slurmd of the test's own, in a folder of its own.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use runlog::event::RunStatus;

use super::super::queue::Cluster;
use super::super::slurm::has_step;
use crate::fake_trainer::{Act, checkpoint, ended, learning, started, step, wait_until};
use crate::harness::finished;

/// Its daemons end with it.
struct Slurm {
    cluster: Cluster,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn skipped() -> bool {
    if std::env::var_os("LATHE_CLUSTER_TEST").is_none() {
        eprintln!("skipped: a real Slurm is started by `just cluster-test` alone");
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: slurmd wants root here");
        return true;
    }
    for program in [
        "/usr/sbin/slurmctld",
        "/usr/sbin/slurmd",
        "/usr/sbin/munged",
        "/usr/bin/sbatch",
    ] {
        if !Path::new(program).is_file() {
            eprintln!("skipped: there is no {program} here (apt-get install slurm-wlm munge)");
            return true;
        }
    }
    false
}

impl Slurm {
    fn start() -> Option<Self> {
        if skipped() {
            return None;
        }
        let mut cluster = Cluster::bare();
        let path = |name: &str| cluster.bench.path(name).display().to_string();
        for folder in ["munge", "state", "spool"] {
            fs::create_dir(path(folder)).unwrap();
        }
        let mut key = vec![0; 1024];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty()).unwrap();
        fs::write(path("munge/key"), key).unwrap();
        for (name, mode) in [("munge/key", "400"), ("munge", "711"), ("", "711")] {
            assert!(
                Command::new("chmod")
                    .arg(mode)
                    .arg(path(name))
                    .status()
                    .unwrap()
                    .success()
            );
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim().split('.').next().unwrap().to_owned();
        let folder = path("");
        let folder = folder.trim_end_matches('/');
        let conf = format!(
            "ClusterName=lathe\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmdPort={}\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={folder}/munge/socket\nCredType=cred/munge\nStateSaveLocation={folder}/state\n\
             SlurmdSpoolDir={folder}/spool\nSlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/slurmd.pid\n\
             SlurmctldLogFile={folder}/slurmctld.log\nSlurmdLogFile={folder}/slurmd.log\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n\
             SwitchType=switch/none\nMpiDefault=none\nReturnToService=2\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
             GresTypes=gpu\nPreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\nKillWait=10\n\
             SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0\n\
             NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 Gres=gpu:2 State=UNKNOWN\n\
             PartitionName=low Nodes=node1 Default=YES PriorityTier=1 MaxTime=1:00:00 DefaultTime=10:00 GraceTime=0 State=UP\n\
             PartitionName=high Nodes=node1 PriorityTier=10 PreemptMode=off MaxTime=INFINITE State=UP\n",
            free_port(),
            free_port()
        );
        fs::write(path("slurm.conf"), conf).unwrap();
        fs::write(
            path("gres.conf"),
            "NodeName=node1 Name=gpu File=/dev/null,/dev/zero\n",
        )
        .unwrap();
        cluster
            .variables
            .push(("SLURM_CONF".to_owned(), path("slurm.conf")));
        cluster.write_targets("lab", "  kind: slurm\n  time: 10:00\n  gpus: none\n");
        let slurm = Self { cluster };
        let munge = |name: &str| format!("--{name}-file={folder}/munge/{name}");
        slurm.daemon(
            "/usr/sbin/munged",
            &[
                "--force",
                &format!("--socket={folder}/munge/socket"),
                &munge("key"),
                &munge("pid"),
                &munge("log"),
                &munge("seed"),
            ],
        );
        slurm.daemon("/usr/sbin/slurmctld", &["-c"]);
        slurm.daemon("/usr/sbin/slurmd", &["-N", "node1"]);
        wait_until("the node is idle", || {
            slurm
                .slurm("sinfo", &["-h", "-o", "%t"])
                .starts_with("idle")
        });
        Some(slurm)
    }

    fn daemon(&self, program: &str, arguments: &[&str]) {
        let status = Command::new(program)
            .args(arguments)
            .env("SLURM_CONF", self.cluster.bench.path("slurm.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{program}: {status}");
    }

    /// What one of Slurm's commands prints.
    fn slurm(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program)
            .args(arguments)
            .env("SLURM_CONF", self.cluster.bench.path("slurm.conf"))
            .current_dir(self.cluster.bench.path(""))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn job(&self) -> String {
        let text = fs::read(self.cluster.run_there().join("scheduled.json")).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        value["job"].as_str().unwrap().to_owned()
    }

    fn job_state(&self, job: &str) -> String {
        let shown = self.slurm("scontrol", &["-o", "show", "job", job]);
        let state = shown
            .split_whitespace()
            .find_map(|word| word.strip_prefix("JobState="));
        state.unwrap_or("").to_owned()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        self.slurm("scancel", &["--user=root"]);
        for file in ["slurmd.pid", "slurmctld.pid", "munge/pid"] {
            if let Ok(pid) = fs::read_to_string(self.cluster.bench.path(file)) {
                let pid = pid.trim();
                let _ = Command::new("kill").arg(pid).status();
                wait_until("a daemon is gone", || {
                    !Path::new("/proc").join(pid).exists()
                });
            }
        }
    }
}

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
    // Slurm waits two minutes before it starts a job again.
    slurm.slurm(
        "scontrol",
        &["update", &format!("JobId={job}"), "StartTime=now"],
    );
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
