//! A folder with an experiment and a scripted trainer, and `lathe` started in it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::fake_trainer::{Act, JOB_VARIABLE, RUN_DIR_VARIABLE, SCRIPT_VARIABLE, wait_until};

pub struct Bench {
    folder: tempfile::TempDir,
}

/// What a finished `lathe` printed.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub const EXPERIMENT: &str = "\
# The smallest experiment that loads.
data:
  train_files: [train.parquet]
  val_files: [test.parquet]
  train_batch_size: 2
actor_rollout_ref:
  model:
    path: model
  actor:
    ppo_mini_batch_size: 2
    ppo_micro_batch_size_per_gpu: 4
  rollout:
    n: 2
algorithm:
  adv_estimator: grpo
trainer:
  experiment_name: toy
  total_training_steps: 4
";

impl Bench {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("toy.yaml"), EXPERIMENT).unwrap();
        // Only there: the fake trainer reads none of them.
        fs::create_dir(folder.path().join("model")).unwrap();
        for file in ["train.parquet", "test.parquet", "demos.parquet"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A trainer program that plays `acts`.
    pub fn trainer(&self, acts: &[Act]) -> PathBuf {
        let script = self.path("script.json");
        fs::write(&script, serde_json::to_vec(acts).unwrap()).unwrap();
        let this = std::env::current_exe().unwrap();
        // `exec`, so that the trainer has the process id that `lathe` was given.
        self.program(
            "trainer",
            &format!(
                "export {JOB_VARIABLE}=\"$1\" {RUN_DIR_VARIABLE}=\"$3\" {SCRIPT_VARIABLE}='{}'\n\
                 exec '{}' --ignored --exact --nocapture fake_trainer::plays_its_script >/dev/null",
                script.display(),
                this.display()
            ),
        )
    }

    /// A shell program.
    pub fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// `lathe` in this folder, with an environment of its own.
    pub fn lathe<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lathe"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm-256color")
            .env("LATHE_TRAINER", self.path("trainer"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Ran {
        finished(self.lathe(arguments).output().unwrap())
    }

    /// The one run there is.
    pub fn run_dir(&self) -> PathBuf {
        let mut runs: Vec<PathBuf> = fs::read_dir(self.path("runs"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.remove(0)
    }

    /// `text` without what differs from run to run.
    pub fn masked(&self, text: &str) -> String {
        let text = text.replace(self.folder.path().to_str().unwrap(), "[FOLDER]");
        match fs::read_dir(self.path("runs")) {
            Ok(runs) => runs.fold(text, |text, run| {
                let name = run.unwrap().file_name().into_string().unwrap();
                let id = name.rsplit('-').next().unwrap().to_owned();
                text.replace(&name, "[RUN]").replace(&id, "[ID]")
            }),
            Err(_) => text,
        }
    }
}

pub fn finished(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ran {
    pub fn json_lines(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }

    pub fn last_json(&self) -> Value {
        self.json_lines()
            .pop()
            .unwrap_or_else(|| panic!("no output: {self:?}"))
    }
}

pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

pub fn exists(path: &Path) {
    wait_until(&path.display().to_string(), || path.exists());
}

/// The process id in run.json, once the trainer has taken the run.
pub fn trainer_pid(run_dir: &Path) -> Pid {
    let info: Value = serde_json::from_slice(&fs::read(run_dir.join("run.json")).unwrap()).unwrap();
    Pid::from_raw(info["pid"].as_i64().unwrap() as i32).unwrap()
}

pub fn is_alive(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
        .is_ok_and(|stat| !stat[stat.rfind(')').unwrap()..].starts_with(") Z"))
}
