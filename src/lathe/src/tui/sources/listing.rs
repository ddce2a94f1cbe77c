//! Keeps the list of runs: all roots, looked at again at intervals, since a process that dies tells nobody.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime};

use runlog::run_list;

use super::{Outbox, Worker};
use crate::tui::action::Message;
use crate::tui::shared::{RunEntry, RunKey, RunList};

/// Between two looks at all roots. Each costs three `stat`s a run when nothing changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Listing {
    worker: Worker<()>,
}

impl Listing {
    pub fn start(outbox: Outbox, roots: Vec<PathBuf>) -> Self {
        Self {
            worker: Worker::start("runs", move |pokes| keep(&outbox, roots, &pokes)),
        }
    }

    pub fn refresh(&self) {
        self.worker.tell(());
    }
}

fn keep(outbox: &Outbox, roots: Vec<PathBuf>, pokes: &Receiver<()>) {
    let mut list = run_list::RunList::new(roots);
    let mut is_wanted = true;
    loop {
        is_wanted |= list.refresh(SystemTime::now());
        if std::mem::take(&mut is_wanted) && !outbox.send(Message::RunsListed(shown(&list))) {
            return;
        }
        match pokes.recv_timeout(LOOK_EVERY) {
            Ok(()) => {
                while pokes.try_recv().is_ok() {}
                // Asked for: answered even when nothing changed.
                is_wanted = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The runs below `roots` as they are now.
pub fn list_now(roots: &[PathBuf]) -> RunList {
    let mut list = run_list::RunList::new(roots.to_vec());
    list.refresh(SystemTime::now());
    shown(&list)
}

fn shown(list: &run_list::RunList) -> RunList {
    let is_root = |path: &Path| list.roots().iter().any(|root| root == path);
    let told = |unreadable: &run_list::Unreadable| {
        format!("{}: {}", unreadable.path.display(), unreadable.reason)
    };
    RunList {
        entries: list.entries().iter().map(entry).collect(),
        unreadable: list
            .unreadable()
            .iter()
            .filter(|unreadable| !is_root(&unreadable.path))
            .map(told)
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
    RunEntry {
        key: RunKey::new(entry.run_dir.path()),
        info: entry.run_dir.info().clone(),
        glance: Some(entry.glance.clone()),
        notes: entry.notes.clone(),
        problem: entry.problem.clone(),
        is_replayed: false,
    }
}
