//! Makes a run's directory and has it watched by a process that outlives the connection.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::cluster::{self, Scheduled};
use super::session::{self, Keeping};
use super::{Folder, Here, Supervisor, facts, is_inner, project};
use crate::scheduler::Requeue;
use crate::wire::{Begin, Gpus, Say};
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
    /// Keys that were given anew with a resume: they win once over what was set while the run ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<String>,
}

/// Who has started the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Under {
    Slurm { requeue: Requeue },
    Ray,
}

impl Job {
    pub const FILE: &str = "job.json";

    pub fn read(run: &Path) -> Result<Self, String> {
        let path = run.join(Self::FILE);
        let text = std::fs::read(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    pub fn write(&self, run: &Path) -> Result<(), String> {
        let text = serde_json::to_vec_pretty(self).expect("only string keys");
        write_renamed(&run.join(Self::FILE), &text).map_err(|error| error.to_string())
    }
}

/// How a run of this machine outlives the connection, or what to do where it would not.
pub(super) fn keeping() -> Result<Keeping, String> {
    match session::keeping() {
        Keeping::None => Err(session::advice()),
        keeping => Ok(keeping),
    }
}

pub(super) fn begin(folder: &Folder, here: Here, begin: &Begin) -> Result<Say, String> {
    let keeping = keeping()?;
    let run = make_run(folder, here, begin, None)?;
    let started = start(here, &run, &begin.means.environment, keeping);
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
        let trainer = facts::find_trainer(here, begin.means.trainer.as_deref())?;
        let libraries = facts::find_libraries(&trainer, begin.means.libraries.as_deref());
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
        gpus: begin.means.gpus.clone(),
        at_once: begin.means.at_once,
        under,
        given: Vec::new(),
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

/// Starts the supervisor and waits for its word. `environment`: for the trainer; in memory only.
pub(super) fn start(
    here: Here,
    run: &Path,
    environment: &BTreeMap<String, String>,
    keeping: Keeping,
) -> Result<u32, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let log_path = run.join("supervisor.log");
    let log = File::options()
        .append(true)
        .create(true)
        .open(&log_path)
        .map_err(|error| format!("cannot write {}: {error}", log_path.display()))?;
    let mut command = session::supervisor(keeping, &program, run);
    let environment = session::given(keeping, environment)
        .map_err(|error| format!("cannot hand the environment on: {error}"))?;
    command.stdin(environment);
    let output = log.try_clone().map_err(|error| error.to_string())?;
    let mut child = command
        .stdout(output)
        .stderr(log)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let start = Instant::now();
    loop {
        if let Some(supervisor) = Supervisor::read(run) {
            if matches!(keeping, Keeping::Unit { .. }) {
                // It is systemd-run, which would wait for the end of its unit.
                let _ = child.kill();
            }
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
