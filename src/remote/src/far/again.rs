//! A run that is over goes on in its own directory, watched over as before: what is in the way of that, and the new start.
//!
//! Two may ask at once, from two machines: one file's lock decides, and whoever comes second finds a run that lives.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runlog::checkpoints;
use runlog::run_dir::{Exit, RunDir, RunDirError, Standing, write_renamed};
use runlog::state::glance;

use super::begin::{self, Job};
use super::cluster::{self, Scheduled};
use super::gpus::try_hold;
use super::{Folder, Here, Supervisor, facts, standing};
use crate::wire::{Again, NotResumed, Say};

/// Held while somebody has the run go on.
const LOCK_FILE: &str = "resume.lock";

/// Why a run does not go on: the kind of it, and in words.
type Refusal = (NotResumed, String);

fn unfit(reason: String) -> Refusal {
    (NotResumed::Unfit, reason)
}

fn busy(reason: String) -> Refusal {
    (NotResumed::Busy, reason)
}

pub(super) fn resume(folder: &Folder, here: Here, asked: &Again) -> Result<Say, String> {
    let run = folder.run(&asked.run)?;
    Ok(match go_on(here, &run, asked) {
        Ok(job) => Say::Resumed { job },
        Err((why, reason)) => Say::NotResumed { why, reason },
    })
}

/// The scheduler's name of the new job, if there is one.
fn go_on(here: Here, run: &Path, asked: &Again) -> Result<Option<String>, Refusal> {
    let lock = run.join(LOCK_FILE);
    let held = try_hold(&lock, &runlog::run_dir::host_name())
        .map_err(|error| unfit(format!("cannot lock {}: {error}", lock.display())))?;
    let Some(_held) = held else {
        return Err(busy(format!(
            "somebody else has {} go on just now; watch it: lathe follow {}",
            asked.run, asked.run
        )));
    };
    let mut job = Job::read(run).map_err(unfit)?;
    if job.verb != "run" {
        return Err(unfit(format!(
            "{} is a warm-up (lathe-trainer {}), which does not go on from where it was; start it anew",
            asked.run, job.verb
        )));
    }
    refuse_living(run, asked)?;
    refuse_without_checkpoint(run, asked)?;
    if !Path::new(&job.project).is_dir() {
        return Err(unfit(format!(
            "its project folder {} is gone there; start a run anew: lathe run EXPERIMENT --on TARGET",
            job.project
        )));
    }
    let trainer = facts::find_trainer(here, asked.means.trainer.as_deref()).map_err(unfit)?;
    job.libraries = facts::find_libraries(&trainer, asked.means.libraries.as_deref())
        .map(|path| path.display().to_string());
    job.trainer = trainer.display().to_string();
    job.gpus = asked.means.gpus.clone();
    job.at_once = asked.means.at_once;
    job.given.clone_from(&asked.given);
    job.under = asked
        .scheduler
        .as_deref()
        .map(|scheduler| cluster::under(scheduler, &job.verb));
    let before = Before::of(run).map_err(unfit)?;
    start(here, run, &job, asked).map_err(|reason| {
        before.restore(run);
        unfit(reason)
    })
}

fn refuse_living(run: &Path, asked: &Again) -> Result<(), Refusal> {
    let name = &asked.run;
    match standing(run) {
        Standing::Ended | Standing::Lost { .. } => {}
        Standing::Running => {
            let who = Supervisor::read(run)
                .map(|known| (known.trainer.unwrap_or(known.process).pid, known.host))
                .filter(|(_, host)| !host.is_empty())
                .map_or_else(String::new, |(pid, host)| {
                    format!(" (process {pid} on {host})")
                });
            return Err(busy(format!(
                "{name} is running{who}; watch it: lathe follow {name}"
            )));
        }
        Standing::Queued { why } => {
            return Err(busy(format!(
                "{name} goes on already: it waits {why}; watch it: lathe follow {name}"
            )));
        }
    }
    // A process that nobody watches over: somebody resumed it there by hand.
    match RunDir::open(run).and_then(|run_dir| run_dir.lock().map(drop)) {
        Ok(()) => Ok(()),
        Err(error @ RunDirError::Busy { .. }) => Err(busy(error.to_string())),
        Err(error) => Err(unfit(error.to_string())),
    }
}

/// One that never began begins now. Whether every byte of a checkpoint is right the trainer finds out.
fn refuse_without_checkpoint(run: &Path, asked: &Again) -> Result<(), Refusal> {
    let run_dir = RunDir::open(run).map_err(|error| unfit(error.to_string()))?;
    let glance = glance(&run_dir, std::time::SystemTime::now())
        .map_err(|error| unfit(format!("cannot read its log: {error}")))?;
    if glance.mode.is_empty() && glance.step == 0 {
        return Ok(());
    }
    let found = checkpoints::list(&run_dir.checkpoints_dir())
        .map_err(|error| unfit(format!("cannot list its checkpoints: {error}")))?;
    let mut broken = String::new();
    for found in found.iter().rev() {
        match checkpoints::measure(&found.path) {
            Ok(_) => {
                let total_steps = asked.total_steps.unwrap_or(glance.total_steps);
                if found.step >= total_steps {
                    return Err((
                        NotResumed::NothingLeft,
                        format!(
                            "nothing is left to train: the newest checkpoint has {} of {total_steps} steps; give a larger \
                             trainer.total_training_steps to go on",
                            found.step
                        ),
                    ));
                }
                return Ok(());
            }
            Err(error) => broken = format!(" ({error})"),
        }
    }
    Err(unfit(format!(
        "{} has no whole checkpoint there to go on from{broken}; start it anew: lathe run EXPERIMENT --on TARGET",
        asked.run
    )))
}

fn start(here: Here, run: &Path, job: &Job, asked: &Again) -> Result<Option<String>, String> {
    if let Some(text) = &asked.experiment_yaml {
        write_renamed(&run.join("experiment.yaml"), text.as_bytes())
            .map_err(|error| error.to_string())?;
    }
    job.write(run)?;
    // Each would be taken for a word of the new start.
    Exit::put_aside(run).map_err(|error| error.to_string())?;
    for name in [Supervisor::FILE, cluster::STOP_FILE] {
        remove(&run.join(name))?;
    }
    match &asked.scheduler {
        None => {
            remove(&run.join(Scheduled::FILE))?;
            begin::start(here, run, &asked.means.environment, begin::keeping()?).map(|_| None)
        }
        Some(scheduler) => cluster::submit_again(run, asked, scheduler).map(Some),
    }
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

/// What a start that fails leaves as it was.
#[derive(Debug)]
struct Before(Vec<(&'static str, Option<Vec<u8>>)>);

impl Before {
    fn of(run: &Path) -> Result<Self, String> {
        let names = [
            "experiment.yaml",
            Job::FILE,
            Scheduled::FILE,
            Supervisor::FILE,
            cluster::STOP_FILE,
            Exit::FILE,
        ];
        let read = |name: &'static str| {
            let path: PathBuf = run.join(name);
            match fs::read(&path) {
                Ok(bytes) => Ok((name, Some(bytes))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((name, None)),
                Err(error) => Err(format!("cannot read {}: {error}", path.display())),
            }
        };
        names
            .into_iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// As far as the disk lets it: why the start failed is told in any case.
    fn restore(&self, run: &Path) {
        for (name, bytes) in &self.0 {
            let path = run.join(name);
            match bytes {
                Some(bytes) => drop(write_renamed(&path, bytes)),
                None => drop(fs::remove_file(&path)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_start_changed_is_put_back() {
        let run = tempfile::tempdir().unwrap();
        let path = |name: &str| run.path().join(name);
        fs::write(path("exit.json"), "{\"code\":1}").unwrap();
        fs::write(path("job.json"), "old").unwrap();
        let before = Before::of(run.path()).unwrap();
        remove(&path("exit.json")).unwrap();
        fs::write(path("job.json"), "new").unwrap();
        fs::write(path("scheduled.json"), "{}").unwrap();
        before.restore(run.path());
        assert_eq!(fs::read(path("exit.json")).unwrap(), b"{\"code\":1}");
        assert_eq!(fs::read(path("job.json")).unwrap(), b"old");
        assert!(!path("scheduled.json").exists());
    }
}
