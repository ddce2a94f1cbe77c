//! Keeps the list of runs: all roots, looked at again at intervals, since a process that dies tells nobody.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use remote::Keeper;
use runlog::run_dir::{Mirror, MirrorLink};
use runlog::run_list;
use runlog::state::trouble;

use super::{Outbox, Worker};
use crate::launch::{self, Censuses};
use crate::projecting::{self, Projecting, Source};
use crate::tui::action::Message;
use crate::tui::shared::{RunEntry, RunKey, RunList, Unlisted};

/// Between two looks at all roots. Each costs three `stat`s a run when nothing changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Between two looks for other trackers' runs, each a walk through the roots' directories.
const LOOK_AT_FOREIGN_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Listing {
    worker: Worker<Poke>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Poke {
    Look,
    AskTargets,
}

impl Listing {
    pub fn start(outbox: Outbox, roots: Vec<PathBuf>) -> Self {
        Self {
            worker: Worker::start("runs", move |pokes| keep(&outbox, roots, &pokes)),
        }
    }

    pub fn refresh(&self) {
        self.worker.tell(Poke::Look);
    }

    pub fn ask_targets(&self) {
        self.worker.tell(Poke::AskTargets);
    }
}

/// Other trackers' runs below the roots: read into the user's cache by a thread of their own, and listed from there.
struct Foreign {
    roots: Vec<PathBuf>,
    projecting: Option<Projecting>,
    looked_at: Option<Instant>,
}

impl Foreign {
    fn look(&mut self, list: &mut run_list::RunList) {
        if self
            .looked_at
            .is_some_and(|at| at.elapsed() < LOOK_AT_FOREIGN_EVERY)
        {
            return;
        }
        self.looked_at = Some(Instant::now());
        let mut sources = Vec::new();
        for root in &self.roots {
            // No foreign runs there is the rule, and no error.
            let Ok(found) = foreign::find(root, &foreign::Options::default()) else {
                continue;
            };
            let Some(cache) = projecting::cache_root(root) else {
                continue;
            };
            list.add_root(cache.clone());
            // Newest first, and those that were imported are in the list already.
            let is_new = |found: &foreign::Found| foreign::Projection::known(found, root).is_none();
            let of_root = found.into_iter().rev().filter(is_new).map(|found| Source {
                found,
                root: cache.clone(),
            });
            sources.extend(of_root);
        }
        if self.projecting.is_none() && !sources.is_empty() {
            // Without a thread they are missing from the list, and nothing else is.
            self.projecting = Projecting::start(foreign::Options::default()).ok();
        }
        if let Some(projecting) = &self.projecting {
            projecting.set(sources);
        }
    }
}

fn keep(outbox: &Outbox, roots: Vec<PathBuf>, pokes: &Receiver<Poke>) {
    let mut foreign = Foreign {
        roots: roots.clone(),
        projecting: None,
        looked_at: None,
    };
    let mut list = run_list::RunList::new(roots);
    let mut is_wanted = true;
    let mut copies = Copies::default();
    let mut there = There::default();
    let mut troubles = Troubles::default();
    loop {
        is_wanted |= list.refresh(SystemTime::now());
        is_wanted |= copies.refresh(&list);
        is_wanted |= there.refresh();
        is_wanted |= troubles.refresh(&list);
        if std::mem::take(&mut is_wanted) && !outbox.send(Message::RunsListed(there.shown(&list))) {
            return;
        }
        match pokes.recv_timeout(LOOK_EVERY) {
            Ok(poke) => {
                let pokes: Vec<Poke> = std::iter::once(poke).chain(pokes.try_iter()).collect();
                if pokes.contains(&Poke::AskTargets) {
                    there.ask(&mut list);
                }
                // Asked for: answered even when nothing changed.
                is_wanted |= pokes.contains(&Poke::Look);
            }
            // Not before the first list was shown.
            Err(RecvTimeoutError::Timeout) => foreign.look(&mut list),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The runs of all targets, those too that were begun elsewhere; nobody is asked before somebody wants to see them.
#[derive(Debug, Default)]
struct There {
    censuses: Censuses,
    problems: Vec<String>,
}

impl There {
    fn ask(&mut self, list: &mut run_list::RunList) {
        self.censuses.ask();
        for root in self.censuses.roots() {
            list.add_root(root);
        }
    }

    /// True: another target cannot be asked, or one can again.
    fn refresh(&mut self) -> bool {
        let problems = self.censuses.problems();
        let is_news = problems != self.problems;
        self.problems = problems;
        is_news
    }

    fn shown(&self, list: &run_list::RunList) -> RunList {
        let entries = launch::without_doubles(list.entries(), &self.censuses.roots());
        let mut shown = shown(list, entries);
        let unreachable = self.problems.iter().cloned().map(Unlisted::Target);
        shown.unlisted.extend(unreachable);
        shown
    }
}

/// Runs of this machine whose disk is full, which no log tells.
#[derive(Debug, Default)]
struct Troubles {
    told: Vec<PathBuf>,
}

impl Troubles {
    /// True: they are others than before.
    fn refresh(&mut self, list: &run_list::RunList) -> bool {
        let is_in_trouble = |entry: &&run_list::Entry| {
            trouble(&entry.run_dir, &entry.glance.liveness, None).is_some()
        };
        let entries = list.entries().iter().filter(is_in_trouble);
        let now: Vec<PathBuf> = entries
            .map(|entry| entry.run_dir.path().to_owned())
            .collect();
        let is_news = now != self.told;
        self.told = now;
        is_news
    }
}

/// Copies that are kept at the same time: each costs a process and some bytes a second.
const MOST_COPIES: usize = 16;

/// Keeps the copies of runs that go on on other machines, so that the list tells how they stand.
#[derive(Debug, Default)]
struct Copies {
    keepers: BTreeMap<PathBuf, Keeper>,
    /// As they were last told.
    told: BTreeMap<PathBuf, Mirror>,
}

impl Copies {
    /// True: something about one of them is news.
    fn refresh(&mut self, list: &run_list::RunList) -> bool {
        let mut now = BTreeMap::new();
        for entry in list.entries() {
            if entry.run_dir.origin().is_none() {
                continue;
            }
            let path = entry.run_dir.path();
            let mirror = Mirror::read(&entry.run_dir);
            let link = mirror.as_ref().map(|mirror| &mirror.link);
            if link == Some(&MirrorLink::Complete) {
                self.keepers.remove(path);
            } else if link == Some(&MirrorLink::Listed) {
                // Its log comes when somebody opens it.
            } else if !self.keepers.contains_key(path)
                && self.keepers.len() < MOST_COPIES
                && let Ok(Some(keeper)) = launch::keep_copy(&entry.run_dir)
            {
                self.keepers.insert(path.to_owned(), keeper);
            }
            now.extend(mirror.map(|mirror| (path.to_owned(), mirror)));
        }
        self.keepers.retain(|path, _| {
            list.entries()
                .iter()
                .any(|entry| entry.run_dir.path() == path)
        });
        let is_news = now != self.told;
        self.told = now;
        is_news
    }
}

/// The runs below `roots` as they are now.
pub fn list_now(roots: &[PathBuf]) -> RunList {
    let mut list = run_list::RunList::new(roots.to_vec());
    list.refresh(SystemTime::now());
    shown(&list, list.entries().iter().collect())
}

fn shown(list: &run_list::RunList, entries: Vec<&run_list::Entry>) -> RunList {
    let is_root = |path: &Path| list.roots().iter().any(|root| root == path);
    let told = |unreadable: &run_list::Unreadable| {
        format!("{}: {}", unreadable.path.display(), unreadable.reason)
    };
    RunList {
        entries: entries.into_iter().map(entry).collect(),
        unlisted: list
            .unreadable()
            .iter()
            .filter(|unreadable| !is_root(&unreadable.path))
            .map(|unreadable| Unlisted::Run(told(unreadable)))
            .collect(),
        problem: list
            .unreadable()
            .iter()
            .find(|unreadable| is_root(&unreadable.path))
            .map(|unreadable| format!("cannot list {}", told(unreadable))),
        is_read: true,
        version: 0,
    }
}

fn entry(entry: &run_list::Entry) -> RunEntry {
    let mirror = (entry.run_dir.origin()).and_then(|_| Mirror::read(&entry.run_dir));
    RunEntry {
        key: RunKey::new(entry.run_dir.path()),
        info: entry.run_dir.info().clone(),
        trouble: trouble(&entry.run_dir, &entry.glance.liveness, mirror.as_ref()),
        glance: Some(entry.glance.clone()),
        notes: entry.notes.clone(),
        problem: entry.problem.clone(),
        is_replayed: false,
        mirror,
    }
}
