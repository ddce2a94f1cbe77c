//! Makes a run's directory and has it watched by a process that outlives the connection.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::cluster::{self, Scheduled};
use super::{Folder, Here, Supervisor, facts, is_inner, project};
use crate::scheduler::Requeue;
use crate::wire::{Begin, Gpus, SUPERVISE_COMMAND, Say};
use runlog::run_dir::write_renamed;

/// How long the supervisor may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(20);

/// `job.json`: what the supervisor is to do. No environment: that may hold secrets, and is handed on in memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    pub verb: String,
    pub trainer: String,
    pub libraries: Option<String>,
    pub project: String,
    pub gpus: Gpus,
    pub at_once: u32,
    /// A scheduler starts the supervisor, and has given it a machine by then.
    #[serde(default)]
    pub under: Option<Under>,
}

/// Who has started the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Under {
    Slurm { requeue: Requeue },
    Ray,
}

impl Job {
    const FILE: &str = "job.json";

    pub fn read(run: &Path) -> Result<Self, String> {
        let path = run.join(Self::FILE);
        let text = std::fs::read(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

pub(super) fn begin(folder: &Folder, here: Here, begin: &Begin) -> Result<Say, String> {
    let run = make_run(folder, here, begin, None)?;
    let started = start(here, &run, begin);
    if started.is_err() {
        // Nothing runs in it, and its name is needed for the next try.
        let _ = std::fs::remove_dir_all(&run);
    }
    let supervisor = started?;
    Ok(Say::Begun {
        path: run.display().to_string(),
        supervisor,
    })
}

/// A run's directory with all that its supervisor needs, or none.
pub(super) fn make_run(
    folder: &Folder,
    here: Here,
    begin: &Begin,
    under: Option<Under>,
) -> Result<PathBuf, String> {
    if !is_inner(&begin.name) || begin.name.contains('/') || begin.name.starts_with('.') {
        return Err(format!("`{}` is no name of a run", begin.name));
    }
    let (trainer, libraries) = if begin.is_verl() {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        (program, None)
    } else {
        let trainer = facts::find_trainer(here, begin.trainer.as_deref())?;
        let libraries = facts::find_libraries(&trainer, begin.libraries.as_deref());
        (trainer, libraries)
    };
    let run = folder.runs().join(&begin.name);
    let told = |error: std::io::Error| format!("cannot make {}: {error}", run.display());
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&run)
        .map_err(told)?;
    let made = make(folder, &run, begin, &trainer, libraries.as_deref(), under);
    if let Err(reason) = made {
        let _ = std::fs::remove_dir_all(&run);
        return Err(reason);
    }
    Ok(run)
}

fn make(
    folder: &Folder,
    run: &Path,
    begin: &Begin,
    trainer: &Path,
    libraries: Option<&Path>,
    under: Option<Under>,
) -> Result<(), String> {
    let project = project::make(folder, run, begin)?;
    let job = Job {
        verb: begin.verb.clone(),
        trainer: trainer.display().to_string(),
        libraries: libraries.map(|path| path.display().to_string()),
        project: project.display().to_string(),
        gpus: begin.gpus.clone(),
        at_once: begin.at_once,
        under,
    };
    let job = serde_json::to_vec_pretty(&job).expect("only string keys");
    let info = serde_json::to_vec_pretty(&begin.info).expect("it was JSON");
    for (name, bytes) in [
        ("experiment.yaml", begin.experiment_yaml.as_bytes()),
        (Job::FILE, &job),
        // Last: with it the directory is a run.
        ("run.json", &info),
    ] {
        write_renamed(&run.join(name), bytes).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Starts the supervisor and waits for its word.
fn start(here: Here, run: &Path, begin: &Begin) -> Result<u32, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let log_path = run.join("supervisor.log");
    let log = File::options()
        .append(true)
        .create(true)
        .open(&log_path)
        .map_err(|error| format!("cannot write {}: {error}", log_path.display()))?;
    let mut command = if facts::has_user_systemd() {
        let mut command = Command::new("systemd-run");
        command.args(["--user", "--quiet", "--collect", "--same-dir"]);
        command.args(["-p", "KillMode=mixed", "-p", "OOMPolicy=continue"]);
        command.arg(format!("--unit=lathe-{}", begin.name));
        // Names only: a value would stand in a command line.
        let inherited = ["PATH", "LD_LIBRARY_PATH", "LATHE_TRAINER"].map(str::to_owned);
        for name in inherited.iter().chain(begin.environment.keys()) {
            command.arg(format!("--setenv={name}"));
        }
        command.arg("--").arg(&program);
        command
    } else {
        Command::new(&program)
    };
    command
        .arg(SUPERVISE_COMMAND)
        .arg(run)
        .envs(&begin.environment)
        .stdin(Stdio::null());
    let output = log.try_clone().map_err(|error| error.to_string())?;
    let mut child = command
        .stdout(output)
        .stderr(log)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let start = Instant::now();
    loop {
        if let Some(supervisor) = Supervisor::read(run) {
            return Ok(supervisor.process.pid);
        }
        if let Ok(Some(status)) = child.try_wait()
            && !status.success()
        {
            let said = std::fs::read_to_string(&log_path).unwrap_or_default();
            return Err(format!(
                "what is to watch over the run ended ({status}): {}",
                said.lines().last().unwrap_or("it said nothing")
            ));
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            let version = here.version;
            return Err(format!(
                "what is to watch over the run (lathe {version}) has said nothing for {} s",
                PATIENCE.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Tells the supervisor, which tells the trainer: to stop after this step, or at once.
pub(super) fn end(run: &Path, is_forced: bool) -> Result<Say, String> {
    if let Some(scheduled) = Scheduled::read(run) {
        return cluster::end(run, &scheduled, is_forced);
    }
    let supervisor = Supervisor::read(run).ok_or("nothing watches over it")?;
    if !supervisor.process.lives() {
        return Err("what watched over it is gone".to_owned());
    }
    let pid = supervisor.process.pid;
    let signal = if is_forced { Signal::TERM } else { Signal::INT };
    let target = Pid::from_raw(pid.cast_signed()).ok_or("it has no process")?;
    kill_process(target, signal)
        .map_err(|error| format!("cannot signal process {pid}: {error}"))?;
    Ok(Say::Ending { pid })
}
