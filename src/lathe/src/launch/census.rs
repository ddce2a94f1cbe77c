//! The runs of all targets in one list: which targets are asked, and where what they say is kept.
//!
//! What is kept lies in the user's cache, a folder a target, so that no project's folder fills with runs that were begun elsewhere.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use etcetera::BaseStrategy;
use remote::{Census, Target};
use runlog::run_list::Entry;
use xxhash_rust::xxh3::xxh3_64;

use super::targets;

/// Every target whose runs are listed.
#[derive(Debug, Default)]
pub struct Censuses {
    all: BTreeMap<String, Asked>,
}

#[derive(Debug)]
struct Asked {
    target: Target,
    root: PathBuf,
    /// Or why it cannot be asked.
    census: Result<Census, String>,
}

impl Censuses {
    /// Reads the targets again, and asks each now.
    pub fn ask(&mut self) {
        let wanted: Vec<Target> = listed().collect();
        self.all.retain(|_, asked| wanted.contains(&asked.target));
        for target in wanted {
            if let Some(asked) = self.all.get(&target.name) {
                if let Ok(census) = &asked.census {
                    census.poke();
                }
                continue;
            }
            let Some(root) = root(&target) else {
                continue;
            };
            let census = Census::start(target.clone(), root.clone())
                .map_err(|error| format!("cannot start a thread: {error}"));
            let asked = Asked {
                target,
                root,
                census,
            };
            self.all.insert(asked.target.name.clone(), asked);
        }
    }

    /// Where their runs are kept.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.all.values().map(|asked| asked.root.clone()).collect()
    }

    /// Each target whose runs are not known now, and why.
    pub fn problems(&self) -> Vec<String> {
        self.all
            .iter()
            .filter_map(|(name, asked)| {
                let reason = match &asked.census {
                    Ok(census) => census.problem()?,
                    Err(reason) => reason.clone(),
                };
                // Most reasons begin with the target's name.
                let is_named = reason
                    .strip_prefix(name.as_str())
                    .is_some_and(|rest| rest.starts_with([' ', ':']));
                Some(if is_named {
                    reason
                } else {
                    format!("{name}: {reason}")
                })
            })
            .collect()
    }

    /// Waits until each has answered or cannot be asked; gives the names of those of which neither is known by then.
    pub fn wait_for_news(&self, patience: Duration) -> Vec<&str> {
        let deadline = Instant::now() + patience;
        let mut silent = Vec::new();
        for (name, asked) in &self.all {
            let Ok(census) = &asked.census else {
                continue;
            };
            census.wait_for_news(deadline.saturating_duration_since(Instant::now()));
            if !census.has_answered() && census.problem().is_none() {
                silent.push(name.as_str());
            }
        }
        silent
    }
}

fn listed() -> impl Iterator<Item = Target> {
    let targets = targets();
    let wanted: Vec<Target> = targets
        .all()
        .filter(|target| target.kind.is_elsewhere() && target.is_listed)
        .cloned()
        .collect();
    wanted.into_iter()
}

/// Where the runs of every listed target are kept, as they were last heard of; nobody is asked.
pub fn census_roots() -> Vec<PathBuf> {
    listed().filter_map(|target| root(&target)).collect()
}

/// None without a home directory. Another host or folder under the same name has other runs.
fn root(target: &Target) -> Option<PathBuf> {
    let strategy = etcetera::base_strategy::Xdg::new().ok()?;
    let place = format!("{}\n{}\n{}", target.kind.word(), target.host, target.folder);
    let name = format!("{}-{:016x}", target.name, xxh3_64(place.as_bytes()));
    Some(strategy.cache_dir().join("lathe/targets").join(name))
}

/// The runs of a list, without those of censuses that lie elsewhere in it too, as the copies that they were begun with.
pub fn without_doubles<'a>(entries: &'a [Entry], census_roots: &[PathBuf]) -> Vec<&'a Entry> {
    let is_of_census = |entry: &Entry| {
        let root = entry.run_dir.path().parent();
        root.is_some_and(|root| census_roots.iter().any(|census| census.as_path() == root))
    };
    let others: HashSet<&str> = entries
        .iter()
        .filter(|entry| !is_of_census(entry))
        .map(|entry| entry.run_dir.name())
        .collect();
    entries
        .iter()
        .filter(|entry| !is_of_census(entry) || !others.contains(entry.run_dir.name()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_host_or_folder_of_the_same_name_has_a_place_of_its_own() {
        let one = Target::host("gpu1");
        let other_host = Target {
            host: "gpu2".to_owned(),
            ..one.clone()
        };
        let other_folder = Target {
            folder: "/scratch/lathe".to_owned(),
            ..one.clone()
        };
        let roots: HashSet<_> = [&one, &other_host, &other_folder].map(root).into();
        assert_eq!(roots.len(), 3);
        assert_eq!(root(&one), root(&one.clone()));
    }
}
