//! From an experiment to a run on another machine, and back to the copy of it here.
//!
//! ```text
//!  Order ─► prepare_elsewhere (read, check, gather files) ─► start (connect, send what is missing, begin) ─► copy (run directory here)
//! ```
//! What the experiment names goes along under the name it has: a file below this folder keeps its path, one from elsewhere goes
//! to `sent/`, and the experiment says so. A model that is not here is looked for there.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use experiment::Loaded;
use experiment::yaml::{self, Node, Value};
use remote::near::launch::{ShipError, Shipment, Shipped, begin, submit};
use remote::near::mirror;
use remote::near::pull::{self, PullError, Pulled};
use remote::targets::TargetError;
use remote::{Keeper, Link, LinkError, Target, Targets, hash, wire};
use runlog::run_dir::{NewRun, Origin, RunDir, RunDirError, RunInfo, git_state};

use super::start::{Order, StartError, inspected, name_override, only_supervised};
use crate::check::{self, Place};

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
    let is_here = |written: &str| Place::of(written, &order.experiment).path.exists();
    let mut findings = check::missing_inputs(&loaded.experiment, &order.experiment, order.job);
    // It may be there.
    let model = &loaded.experiment.actor_rollout_ref.model.path;
    findings.retain(|finding| finding.area != "model" || model.is_empty() || is_here(model));
    if !findings.is_empty() {
        return Err(StartError::MissingInputs { findings }.into());
    }
    let mut gathered = Gathered {
        experiment_file: order.experiment.clone(),
        shipment: Shipment::default(),
        models: Vec::new(),
        seen: BTreeSet::new(),
    };
    for (key, files) in check::named_files(&loaded.experiment) {
        let names = files
            .iter()
            .map(|written| gathered.take(key, written))
            .collect::<Result<Vec<_>, _>>()?;
        if names != files {
            overrides.push(check::files_override(key, &names));
        }
    }
    let loaded = inspected(&order.experiment, &overrides)?;
    gathered.take_mentioned(&yaml::parse(&loaded.resolved), Path::new(""))?;
    Ok(Elsewhere {
        loaded,
        target,
        order,
        shipment: gathered.shipment,
        models: gathered.models,
    })
}

struct Gathered {
    experiment_file: PathBuf,
    shipment: Shipment,
    models: Vec<String>,
    seen: BTreeSet<String>,
}

impl Gathered {
    /// Takes what a key names along and gives the name it has there.
    fn take(&mut self, key: &str, written: &str) -> Result<String, ElsewhereError> {
        let place = Place::of(written, &self.experiment_file);
        if !place.path.exists() {
            if check::names_a_model(key) && !written.is_empty() {
                self.models.push(written.to_owned());
            }
            // What is no model and not here was complained of, or is to be made by the run.
            return Ok(written.to_owned());
        }
        let name = name_there(written, &place.path);
        if self.seen.insert(name.clone()) {
            self.shipment.add(&name, &place.path)?;
            if is_yaml(&place.path)
                && let Ok(text) = std::fs::read_to_string(&place.path)
            {
                let beside = Path::new(&name).parent().unwrap_or(Path::new(""));
                self.take_mentioned(&yaml::parse(&text), beside)?;
            }
        }
        Ok(name)
    }

    /// Takes along every file that a text somewhere in an experiment or a tool's configuration names: a script, a corpus, a
    /// reward function. Absolute paths stay as they are: they mean something that is there.
    fn take_mentioned(
        &mut self,
        parsed: &yaml::Parsed,
        beside: &Path,
    ) -> Result<(), ElsewhereError> {
        let mut texts = Vec::new();
        if let Some(root) = &parsed.root {
            collect(root, &mut texts);
        }
        for text in texts {
            for path in [PathBuf::from(text), beside.join(text)] {
                let Some(name) = inner(&path) else { continue };
                if path.is_file() && self.seen.insert(name.clone()) {
                    self.shipment.add(&name, &path)?;
                    break;
                }
            }
        }
        Ok(())
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "yaml" || ending == "yml")
}

fn collect<'a>(node: &'a Node, texts: &mut Vec<&'a str>) {
    match &node.value {
        Value::Text(text) => texts.push(text),
        Value::List(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Map(entries) => entries
            .iter()
            .for_each(|entry| collect(&entry.value, texts)),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {}
    }
}

/// A relative path without `.` and `..`, as text.
fn inner(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// What a file is called there: as here when it lies below this folder, else by where it came from, so that no two collide.
fn name_there(written: &str, path: &Path) -> String {
    if let Some(name) = inner(Path::new(written)).filter(|_| Path::new(written).exists()) {
        return name;
    }
    if let Some(name) = inner(path) {
        return name;
    }
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = full.parent().unwrap_or(Path::new("/"));
    let mark = hash::of_bytes(folder.as_os_str().as_encoded_bytes());
    let name = full.file_name().unwrap_or_default().to_string_lossy();
    format!("sent/{}/{name}", &mark[..8])
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
            verb: self.order.job.verb().to_owned(),
            info: serde_json::to_value(&info).expect("it has only string keys"),
            experiment_yaml: self.loaded.resolved.clone(),
            files: self.shipment.files(),
            models: self.models.clone(),
            models_folder: target.models.clone(),
            gpus: target.gpus.clone(),
            at_once: target.at_once,
            environment: target.environment(),
            trainer: target.trainer.clone(),
            libraries: target.libtorch.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_below_this_folder_keeps_its_name_and_others_cannot_collide() {
        assert_eq!(
            name_there("./Cargo.toml", Path::new("./Cargo.toml")),
            "Cargo.toml"
        );
        let one = name_there("/data/a/train.parquet", Path::new("/data/a/train.parquet"));
        let other = name_there("/data/b/train.parquet", Path::new("/data/b/train.parquet"));
        assert!(
            one.starts_with("sent/") && one.ends_with("/train.parquet"),
            "{one}"
        );
        assert_ne!(one, other);
        assert_eq!(inner(Path::new("a/../../b")), None);
        assert_eq!(inner(Path::new("./a/b")).as_deref(), Some("a/b"));
    }
}
