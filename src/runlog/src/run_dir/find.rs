//! Finding runs: the root, the list, and what a RUN argument means.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{RunDir, RunDirError};

/// Where runs lie when nothing else is said.
pub const DEFAULT_ROOT: &str = "runs";
/// Environment variable that names another place.
pub const ROOT_VARIABLE: &str = "LATHE_RUNS";

/// The runs directory: `--runs`, else `LATHE_RUNS` (unless empty), else `./runs`.
pub fn root(option: Option<&Path>, variable: Option<&OsStr>) -> PathBuf {
    match (option, variable) {
        (Some(path), _) => path.to_owned(),
        (None, Some(value)) if !value.is_empty() => PathBuf::from(value),
        _ => PathBuf::from(DEFAULT_ROOT),
    }
}

/// Every run in `root`, newest first, and each directory that could not be opened with its reason.
///
/// Directories without `run.json` are not runs and are passed over; a missing root has no runs.
pub fn list(root: &Path) -> Result<(Vec<RunDir>, Vec<RunDirError>), RunDirError> {
    let mut runs = Vec::new();
    let mut unreadable = Vec::new();
    for name in names(root)? {
        match RunDir::open(&root.join(name)) {
            Ok(run) => runs.push(run),
            Err(RunDirError::NotARun { .. }) => {}
            Err(error) => unreadable.push(error),
        }
    }
    runs.sort_by_cached_key(|run| Reverse((run.info().started_at, run.name().to_owned())));
    Ok((runs, unreadable))
}

/// Names of the directories in `root`, newest first by the time in the name.
fn names(root: &Path) -> Result<Vec<String>, RunDirError> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(RunDirError::io("list", root)(error)),
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// The run that a RUN argument names: a path, a full name, a unique prefix of an id (or name, or `EXPERIMENT-ID`), an experiment's
/// name (its newest run), or `latest`.
pub fn resolve(root: &Path, argument: &str) -> Result<RunDir, RunDirError> {
    let path = Path::new(argument);
    if argument.contains('/') || argument == "." || argument == ".." {
        return RunDir::open(path);
    }
    if argument == "latest" {
        return list(root)?
            .0
            .into_iter()
            .next()
            .ok_or_else(|| RunDirError::NoRuns {
                root: root.to_owned(),
            });
    }
    let names = names(root)?;
    if names.iter().any(|name| name == argument) {
        return RunDir::open(&root.join(argument));
    }
    let candidates: Vec<&String> = names
        .iter()
        .filter(|name| {
            // Ids are hexadecimal digits without `-`, so the last part of a name is its id.
            let id = name.rsplit('-').next().unwrap_or_default();
            // As the workbench names runs: `sort-ab12`.
            let with_experiment = experiment_name(name)
                .and_then(|experiment| argument.strip_prefix(experiment)?.strip_prefix('-'));
            let is_named =
                with_experiment.is_some_and(|part| !part.is_empty() && id.starts_with(part));
            !argument.is_empty()
                && (id.starts_with(argument) || name.starts_with(argument) || is_named)
        })
        .collect();
    match candidates.as_slice() {
        [] if path.join("run.json").exists() => RunDir::open(path),
        // Newest first, so the first of an experiment is the one that is meant.
        [] => match names
            .iter()
            .find(|name| experiment_name(name) == Some(argument))
        {
            Some(name) => RunDir::open(&root.join(name)),
            None => Err(RunDirError::NotFound {
                argument: argument.to_owned(),
                root: root.to_owned(),
                nearest: (names.iter())
                    .find(|name| root.join(name).join("run.json").exists())
                    .cloned(),
            }),
        },
        [name] => RunDir::open(&root.join(name)),
        many => Err(RunDirError::Ambiguous {
            argument: argument.to_owned(),
            candidates: many.iter().map(|name| (*name).clone()).collect(),
        }),
    }
}

/// `sort-long` of `20261129-100000-sort-long-ab120000`.
fn experiment_name(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once('-')?;
    let (_, rest) = rest.split_once('-')?;
    let (experiment, _) = rest.rsplit_once('-')?;
    Some(experiment)
}
