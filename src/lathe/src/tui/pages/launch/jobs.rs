//! Reading experiments and targets.

use std::path::Path;

use super::super::config::{files, short_name};
use super::form::Source;
use super::{Message, answer};
use crate::launch::{self, Job};
use crate::tui::action::Effect;
use crate::tui::shared::{RunKey, Shared};

pub(super) fn list_job(shared: &Shared) -> Effect {
    let folder = shared.project.experiments.clone();
    Effect::job("list experiments", move || {
        answer(Message::Listed(files::list(&folder)))
    })
}

pub(super) fn read_job(path: &Path, shared: &Shared) -> Effect {
    let name = short_name(path, shared);
    let path = path.to_owned();
    Effect::job("read experiment", move || {
        let result = files::read(&path).map(|text| Source {
            path,
            name,
            text,
            parent: None,
            job: None,
        });
        answer(Message::Read(result))
    })
}

/// This machine is none of them.
pub(super) fn targets_job() -> Effect {
    Effect::job("list targets", move || {
        let targets = launch::targets();
        let names = targets
            .all()
            .filter(|target| target.kind.is_elsewhere())
            .map(|target| (target.name.clone(), target.kind))
            .collect();
        let problem = targets.complaints.first().map(ToString::to_string);
        answer(Message::Targets(names, problem))
    })
}

pub(super) fn again_job(key: &RunKey, shared: &Shared) -> Effect {
    let run = key.name();
    let id = shared
        .runs
        .find(key)
        .map(|entry| entry.info.id.clone())
        .or_else(|| Some(shared.open.get(key)?.info.as_ref()?.id.clone()))
        .unwrap_or_else(|| run.clone());
    let mode = shared
        .open
        .get(key)
        .and_then(|run| run.state.started.as_ref())
        .map(|started| started.mode.as_str())
        .or_else(|| Some(shared.runs.find(key)?.glance.as_ref()?.mode.as_str()));
    let job = match mode {
        Some("sft") => Job::Sft,
        Some("reward") => Job::Reward,
        _ => Job::Run,
    };
    let path = key.path().join("experiment.yaml");
    Effect::job("read experiment", move || {
        let result = files::read(&path).map(|text| Source {
            name: format!("the experiment of {run}"),
            path,
            text,
            parent: Some((id, run)),
            job: Some(job),
        });
        answer(Message::Read(result))
    })
}
