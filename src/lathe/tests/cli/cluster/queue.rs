//! A target whose queue is a folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::fake_trainer::wait_until;
use crate::harness::{Bench, Ran, finished};

pub const PROGRAM: &str = include_str!("slurm/queue.sh");
pub const PLAYED: [&str; 8] = [
    "sbatch", "scontrol", "squeue", "scancel", "sinfo", "sacct", "srun", "release",
];

pub struct Cluster {
    pub bench: Bench,
    /// Further variables of lathe's.
    pub variables: Vec<(String, String)>,
}

impl Cluster {
    /// Slurm's commands are played.
    pub fn played() -> Self {
        let cluster = Self::bare();
        fs::create_dir(cluster.bench.path("queue")).unwrap();
        cluster
            .bench
            .program("bin/queue.sh", PROGRAM.trim_start_matches("#!/bin/sh\n"));
        for name in PLAYED {
            symlink("queue.sh", cluster.bench.path("bin").join(name)).unwrap();
        }
        cluster.write_targets("lab", "  kind: slurm\n  partition: gpu\n");
        cluster
    }

    pub fn bare() -> Self {
        let bench = Bench::new();
        for folder in ["bin", "far"] {
            fs::create_dir(bench.path(folder)).unwrap();
        }
        Self {
            bench,
            variables: Vec::new(),
        }
    }

    /// `keys`: each on a line of its own with two spaces before it.
    pub fn write_targets(&self, name: &str, keys: &str) {
        let folder = self.bench.path("far");
        let text = format!("{name}:\n  folder: {}\n{keys}", folder.display());
        fs::write(self.bench.path("targets.yaml"), text).unwrap();
    }

    pub fn lathe(&self, arguments: &[&str]) -> Command {
        let mut command = self.bench.lathe(arguments);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env(
                "PATH",
                format!("{}:{path}", self.bench.path("bin").display()),
            )
            .env("LATHE_TARGETS", self.bench.path("none.yaml"))
            .env("HOME", self.bench.path(""))
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        finished(self.lathe(arguments).output().unwrap())
    }

    /// Starts a run and leaves it; gives the last line of JSON.
    pub fn detached(&self, target: &str, name: &str) -> Value {
        let ran = self.run(&[
            "run", "toy.yaml", "--on", target, "--detach", "--json", "--name", name,
        ]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.last_json()
    }

    pub fn hold(&self) {
        fs::write(self.bench.path("queue/hold"), "").unwrap();
    }

    pub fn release(&self, job: &str) {
        let program = self.bench.path("bin/release");
        assert!(Command::new(program).arg(job).status().unwrap().success());
    }

    pub fn set(&self, job: &str, what: &str, value: &str) {
        fs::write(self.bench.path("queue").join(job).join(what), value).unwrap();
    }

    pub fn state(&self, job: &str) -> String {
        fs::read_to_string(self.bench.path("queue").join(job).join("state")).unwrap_or_default()
    }

    pub fn wait_for_state(&self, job: &str, state: &str) {
        wait_until(&format!("job {job} is {state}"), || {
            self.state(job) == state
        });
    }

    pub fn pid(&self, job: &str) -> u32 {
        let path = self.bench.path("queue").join(job).join("pid");
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    }

    pub fn asked(&self) -> String {
        fs::read_to_string(self.bench.path("queue/asked")).unwrap_or_default()
    }

    /// The run's directory there.
    pub fn run_there(&self) -> PathBuf {
        self.bench
            .path("far/runs")
            .join(self.bench.run_dir().file_name().unwrap())
    }

    pub fn exit(&self) -> Value {
        serde_json::from_slice(&fs::read(self.run_there().join("exit.json")).unwrap()).unwrap()
    }

    /// Both sides hold the same bytes.
    pub fn assert_same(&self) {
        for name in ["events.jsonl", "log.txt"] {
            let here = fs::read(self.bench.run_dir().join(name)).unwrap();
            let there = fs::read(self.run_there().join(name)).unwrap();
            assert!(
                here == there,
                "{name}: {} bytes here, {} there",
                here.len(),
                there.len()
            );
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // What a failed test left running.
        for run in fs::read_dir(self.bench.path("far/runs"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let text = fs::read(run.path().join("supervisor.json")).unwrap_or_default();
            let known: Value = serde_json::from_slice(&text).unwrap_or_default();
            if run.path().join("exit.json").exists() {
                continue;
            }
            for process in [&known["process"], &known["trainer"]] {
                if let Some(pid) = process["pid"].as_u64() {
                    let _ = Command::new("kill")
                        .args(["-KILL", &pid.to_string()])
                        .output();
                }
            }
        }
    }
}

pub fn assert_no_file_has(path: &Path, secret: &str) {
    for entry in fs::read_dir(path).unwrap().flatten() {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            assert_no_file_has(&path, secret);
        } else if kind.is_file() {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            assert!(!text.contains(secret), "{}", path.display());
        }
    }
}
