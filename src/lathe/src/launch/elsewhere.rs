//! From an experiment to a run on another machine, and back to the copy of it here.
//!
//! ```text
//!  Order ─► prepare_elsewhere (read, check, gather files) ─► start (connect, send what is missing, begin) ─► copy (run directory here)
//! ```
//! What the experiment names goes along under the name it has: a file below this folder keeps its path, one from elsewhere goes
//! to `sent/`, and the experiment says so. A model that is not here is looked for there.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use experiment::Loaded;
use remote::near::launch::{ShipError, Shipment, Shipped, begin, submit};
use remote::near::mirror;
use remote::near::pull::{self, PullError, Pulled};
use remote::targets::TargetError;
use remote::{Keeper, Link, LinkError, Target, Targets, wire};
use runlog::run_dir::{NewRun, Origin, RunDir, RunDirError, RunInfo, git_state};

use super::gather::Gathered;
use super::start::{
    Order, StartError, inspected, name_override, only_runs, only_supervised, text_override,
};
use super::verl;
use crate::check::{self, Finding, Place};

/// Where a run's directory here lies until the run has begun there; not listed.
const STAGING: &str = ".starting";
/// In a run's directory: where its dialogues are.
const ROLLOUTS: &str = "rollouts";

#[derive(Debug, thiserror::Error)]
pub enum ElsewhereError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Ship(#[from] ShipError),
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    #[error("cannot make the copy {}: {source}", path.display())]
    Copy { path: PathBuf, source: io::Error },
}

impl ElsewhereError {
    /// As [`StartError::in_full`].
    pub fn in_full(&self) -> String {
        match self {
            Self::Start(error) => error.in_full(),
            other => other.to_string(),
        }
    }
}

/// An experiment that can be sent.
#[derive(Debug)]
pub struct Elsewhere {
    /// With the paths that its files have there.
    pub loaded: Loaded,
    pub target: Target,
    order: Order,
    shipment: Shipment,
    /// Models that are to be there already.
    models: Vec<String>,
}

/// A run that has begun there.
#[derive(Debug)]
pub struct Begun {
    /// Its copy here.
    pub run_dir: RunDir,
    pub shipped: Shipped,
}

/// Reads and checks all that can be checked here, and gathers what goes along.
pub fn prepare_elsewhere(order: Order, target: Target) -> Result<Elsewhere, ElsewhereError> {
    let mut overrides = order.overrides.clone();
    if let Some(name) = &order.name {
        overrides.push(name_override(name));
    }
    let loaded = inspected(&order.experiment, &overrides)?;
    if only_supervised(&loaded.experiment, order.job) {
        let file = order.experiment.clone();
        return Err(StartError::OnlySupervised { file }.into());
    }
    overrides.push(name_override(&loaded.experiment.trainer.experiment_name));
    let is_verl = experiment::verl::is_asked_for(&loaded.experiment);
    let findings = if is_verl {
        only_runs(order.job)?;
        if let Some(python) = &target.python {
            overrides.push(text_override("launch.verl.python", python));
        }
        overrides.extend(gpus_override(&loaded, &target)?);
        missing_for_verl(&loaded, &order.experiment)
    } else {
        let is_here = |written: &str| Place::of(written, &order.experiment).path.exists();
        let mut findings = check::missing_inputs(&loaded.experiment, &order.experiment, order.job);
        // It may be there.
        let model = &loaded.experiment.actor_rollout_ref.model.path;
        findings.retain(|finding| finding.area != "model" || model.is_empty() || is_here(model));
        findings
    };
    if !findings.is_empty() {
        return Err(StartError::MissingInputs { findings }.into());
    }
    let mut gathered = Gathered::new(&order.experiment);
    if !lies_there(&loaded) {
        for (key, files) in check::named_files(&loaded.experiment) {
            let names = files
                .iter()
                .map(|written| gathered.take(key, written))
                .collect::<Result<Vec<_>, _>>()?;
            if names != files {
                overrides.push(check::files_override(key, &names));
            }
        }
    }
    let loaded = inspected(&order.experiment, &overrides)?;
    if !lies_there(&loaded) {
        gathered.take_mentioned(&loaded.resolved)?;
    }
    let (shipment, models) = gathered.into_parts();
    Ok(Elsewhere {
        loaded,
        target,
        order,
        shipment,
        models,
    })
}

/// verl is started in a folder that is there already, and names are meant in it: nothing is sent.
fn lies_there(loaded: &Loaded) -> bool {
    experiment::verl::is_asked_for(&loaded.experiment)
        && loaded.experiment.launch.verl.working_dir.is_some()
}

/// verl is told how many GPUs the target gives it, where that is known and the experiment does not say; else both must agree, or Ray
/// would wait in vain for more.
fn gpus_override(loaded: &Loaded, target: &Target) -> Result<Option<String>, StartError> {
    let key = "trainer.n_gpus_per_node";
    let gives = match &target.gpus {
        wire::Gpus::Free(count) if *count > 0 => *count,
        wire::Gpus::These(these) if !these.is_empty() => these.len() as u32,
        _ => return Ok(None),
    };
    if !loaded.given.iter().any(|given| given == key) {
        return Ok(Some(format!("{key}={gives}")));
    }
    let asked = loaded.experiment.trainer.n_gpus_per_node;
    if asked > gives {
        return Err(StartError::NoVerl {
            reason: format!(
                "{key} is {asked}, and a run on {} gets {gives}: write `gpus: {asked}` there in targets.yaml, or leave the key out",
                target.name
            ),
        });
    }
    Ok(None)
}

/// Files that verl could not find there: named as on this machine, and not on it. Names in full, of a hub or of another file system
/// are verl's to find.
fn missing_for_verl(loaded: &Loaded, experiment_file: &Path) -> Vec<Finding> {
    if lies_there(loaded) {
        return Vec::new();
    }
    let is_here = |written: &str| Place::of(written, experiment_file).path.exists();
    let is_found_there = |written: &str| written.starts_with(['/', '~']) || written.contains("://");
    check::named_files(&loaded.experiment)
        .into_iter()
        .filter(|(key, _)| key.starts_with("data.") || *key == check::REWARD_FUNCTION)
        .flat_map(|(key, files)| files.into_iter().map(move |file| (key, file)))
        .filter(|(_, file)| !is_here(file) && !is_found_there(file))
        .map(|(key, file)| {
            let message = format!(
                "{key} names {file}, which is not on this machine; for one that is there give its path in full, or launch.verl.working_dir"
            );
            Finding::error("data", message)
        })
        .collect()
}

/// A run that is about to begin: its directory here, and what is asked for there.
struct Staged {
    run_dir: RunDir,
    info: RunInfo,
    begin: wire::Begin,
}

impl Staged {
    /// Of a run that never was.
    fn discard(&self) {
        let _ = std::fs::remove_dir_all(self.run_dir.path());
    }

    /// The run has begun at `path` there.
    fn settle(
        mut self,
        target: &Target,
        runs_root: &Path,
        path: String,
    ) -> Result<RunDir, ElsewhereError> {
        self.info.origin = Some(Origin::Target {
            target: target.name.clone(),
            path,
        });
        self.run_dir.replace_info(self.info)?;
        let path = runs_root.join(self.run_dir.name());
        std::fs::rename(self.run_dir.path(), &path).map_err(|source| ElsewhereError::Copy {
            path: path.clone(),
            source,
        })?;
        Ok(RunDir::open(&path)?)
    }
}

impl Elsewhere {
    /// Sends what is missing there and begins. `tell` hears the name of each file that goes, and its bytes.
    pub fn start(&self, tell: &mut dyn FnMut(&str, u64)) -> Result<Begun, ElsewhereError> {
        let target = &self.target;
        let mut link = Link::open(target)?;
        let shipped = self.shipment.send(&mut link, tell)?;
        let staged = self.stage(&link)?;
        let wanted = staged.begin.clone();
        let begun = match target.scheduler() {
            None => begin(&mut link, wanted),
            Some(scheduler) => submit(&mut link, vec![wanted], scheduler)
                .map(|paths| paths.into_iter().next().unwrap_or_default()),
        };
        if begun.is_err() {
            staged.discard();
        }
        let run_dir = staged.settle(target, &self.order.runs_root, begun?)?;
        self.sweep_up();
        Ok(Begun { run_dir, shipped })
    }

    fn verb(&self) -> &'static str {
        if experiment::verl::is_asked_for(&self.loaded.experiment) {
            super::VERL_COMMAND
        } else {
            self.order.job.verb()
        }
    }

    /// What would be started there and what would go along, as lines for people.
    pub fn words(&self) -> Vec<String> {
        let run_dir = Path::new(&self.target.folder).join("runs/RUN");
        let command = if experiment::verl::is_asked_for(&self.loaded.experiment) {
            verl::command(&self.loaded, &run_dir).words()
        } else {
            let program = self.target.trainer.as_deref().unwrap_or("lathe-trainer");
            format!("{program} {} --run-dir {}", self.verb(), run_dir.display())
        };
        let files = self.shipment.files();
        let files = files
            .iter()
            .map(|sent| format!("goes along: {}", sent.path));
        let models = self.models.iter();
        let models = models.map(|model| format!("looked for there: {model}"));
        std::iter::once(command)
            .chain(files)
            .chain(models)
            .collect()
    }

    /// Empty unless somebody starts another run just now.
    fn sweep_up(&self) {
        let _ = std::fs::remove_dir(self.order.runs_root.join(STAGING));
    }

    fn new_run(&self) -> NewRun {
        let trainer = &self.loaded.experiment.trainer;
        NewRun {
            project_name: trainer.project_name.clone(),
            experiment_name: trainer.experiment_name.clone(),
            seed: trainer.seed,
            parent: self.order.parent.clone(),
            git: git_state(Path::new(".")),
            versions: [("lathe".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
            command: self.order.command.clone(),
            experiment_yaml: self.loaded.resolved.clone(),
            origin: Some(Origin::Target {
                target: self.target.name.clone(),
                path: String::new(),
            }),
            ..NewRun::default()
        }
    }

    fn stage(&self, link: &Link) -> Result<Staged, ElsewhereError> {
        let target = &self.target;
        let run_dir = RunDir::create(&self.order.runs_root.join(STAGING), &self.new_run())?;
        let mut info = run_dir.info().clone();
        info.host.clone_from(&link.far_host);
        // Nobody's yet: the trainer writes its own.
        (info.pid, info.process_start_ticks, info.boot_id) = (0, None, None);
        info.origin = None;
        let begin = wire::Begin {
            name: run_dir.name().to_owned(),
            verb: self.verb().to_owned(),
            info: serde_json::to_value(&info).expect("it has only string keys"),
            experiment_yaml: self.loaded.resolved.clone(),
            files: self.shipment.files(),
            models: self.models.clone(),
            models_folder: target.models.clone(),
            means: target.means(),
        };
        Ok(Staged {
            run_dir,
            info,
            begin,
        })
    }
}

/// Starts a run on the machine of that name, which goes on there by itself.
pub fn start_elsewhere(order: Order, target: &str) -> Result<RunDir, ElsewhereError> {
    let target = targets().find(target)?;
    let begun = prepare_elsewhere(order, target)?.start(&mut |_, _| {})?;
    Ok(begun.run_dir)
}

/// Has the scheduler of a target start several runs together: of Slurm one array, in one place of its queue. All or none.
pub fn start_together(orders: Vec<Order>, target: &str) -> Result<Vec<RunDir>, ElsewhereError> {
    let target = targets().find(target)?;
    let prepared = orders
        .into_iter()
        .map(|order| prepare_elsewhere(order, target.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut link = Link::open(&target)?;
    for one in &prepared {
        one.shipment.send(&mut link, &mut |_, _| {})?;
    }
    let mut staged = Vec::new();
    for one in &prepared {
        match one.stage(&link) {
            Ok(run) => staged.push(run),
            Err(error) => {
                staged.iter().for_each(Staged::discard);
                return Err(error);
            }
        }
    }
    let begins: Vec<wire::Begin> = staged.iter().map(|run| run.begin.clone()).collect();
    let begun = match target.scheduler() {
        Some(scheduler) => submit(&mut link, begins, scheduler),
        None => begins
            .into_iter()
            .map(|wanted| begin(&mut link, wanted))
            .collect(),
    };
    if begun.is_err() {
        staged.iter().for_each(Staged::discard);
    }
    let started = staged
        .into_iter()
        .zip(&prepared)
        .zip(begun?)
        .map(|((run, one), path)| run.settle(&target, &one.order.runs_root, path))
        .collect();
    prepared.iter().for_each(Elsewhere::sweep_up);
    started
}

/// Makes a directory here for a run that lies there; its log is copied when somebody keeps it.
pub fn adopt(
    link: &mut Link,
    target: &Target,
    name: &str,
    runs_root: &Path,
) -> Result<RunDir, ElsewhereError> {
    let path = runs_root.join(name);
    let copy = |source| ElsewhereError::Copy {
        path: path.clone(),
        source,
    };
    if path.exists() {
        return Err(copy(io::ErrorKind::AlreadyExists.into()));
    }
    let staging = runs_root.join(STAGING).join(name);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&staging)
        .map_err(copy)?;
    for file in ["experiment.yaml", "run.json"] {
        pull::pull(link, name, file, &staging, &mut |_, _| {})?;
    }
    let mut run_dir = RunDir::open(&staging)?;
    let mut info = run_dir.info().clone();
    info.origin = Some(Origin::Target {
        target: target.name.clone(),
        path: format!("{}/runs/{name}", target.folder),
    });
    run_dir.replace_info(info)?;
    std::fs::rename(&staging, &path).map_err(copy)?;
    let _ = std::fs::remove_dir(runs_root.join(STAGING));
    Ok(RunDir::open(&path)?)
}

/// Fetches the recorded rollouts of a run of another machine: those that are not here. `Err`: why they cannot be had.
pub fn pull_rollouts(run_dir: &RunDir) -> Result<Pulled, String> {
    let Some(Origin::Target { target, path }) = run_dir.origin() else {
        return Err(format!("{} is no run of another machine", run_dir.name()));
    };
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let target = targets().find(target).map_err(|error| told(&error))?;
    let run = Path::new(path)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let mut link = Link::open(&target).map_err(|error| told(&error))?;
    pull::pull(&mut link, &run, ROLLOUTS, run_dir.path(), &mut |_, _| {})
        .map_err(|error| told(&error))
}

/// Keeps the copy of a run of another machine, if that is what it is and it is not complete. `Err`: why it cannot be kept.
pub fn keep_copy(run_dir: &RunDir) -> Result<Option<Keeper>, String> {
    let Some(Origin::Target { target, .. }) = run_dir.origin() else {
        return Ok(None);
    };
    if mirror::is_complete(run_dir) {
        return Ok(None);
    }
    let target = targets().find(target).map_err(|error| error.to_string())?;
    Keeper::start(run_dir, target)
        .map(Some)
        .map_err(|error| error.to_string())
}

/// Those of the user and of the project in this folder.
pub fn targets() -> Targets {
    Targets::load(Path::new("."))
}
