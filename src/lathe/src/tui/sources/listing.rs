//! Keeps the list of runs: all roots, read again when something changed there, and at intervals for runs that live.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime};

use runlog::run_dir::{RunDir, RunDirError};
use runlog::state::{Liveness, glance};

use super::{Outbox, Worker};
use crate::tui::action::Message;
use crate::tui::shared::{RunEntry, RunKey, RunList};

/// Between two looks at all roots. Each costs two `stat`s a run when nothing changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Listing {
    worker: Worker<()>,
}

impl Listing {
    pub fn start(outbox: Outbox, roots: Vec<PathBuf>) -> Self {
        Self {
            worker: Worker::start("runs", move |pokes| keep(&outbox, &roots, &pokes)),
        }
    }

    pub fn refresh(&self) {
        self.worker.tell(());
    }
}

fn keep(outbox: &Outbox, roots: &[PathBuf], pokes: &Receiver<()>) {
    let mut reader = Reader::default();
    let mut last: Option<RunList> = None;
    loop {
        let list = reader.read(roots, SystemTime::now());
        if last.as_ref() != Some(&list) {
            if !outbox.send(Message::RunsListed(list.clone())) {
                return;
            }
            last = Some(list);
        }
        match pokes.recv_timeout(LOOK_EVERY) {
            Ok(()) => {
                while pokes.try_recv().is_ok() {}
                // Asked for: answered even when nothing changed.
                last = None;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Reads the roots; keeps what did not change since.
#[derive(Debug, Default)]
pub struct Reader {
    known: HashMap<PathBuf, Known>,
}

#[derive(Debug)]
struct Known {
    info_stamp: Option<SystemTime>,
    log_stamp: Option<(SystemTime, u64)>,
    entry: RunEntry,
}

impl Reader {
    pub fn read(&mut self, roots: &[PathBuf], now: SystemTime) -> RunList {
        let mut list = RunList {
            is_read: true,
            ..RunList::default()
        };
        let mut known = HashMap::with_capacity(self.known.len());
        for root in roots {
            let directories = match directories(root) {
                Ok(directories) => directories,
                Err(error) => {
                    list.problem = Some(format!("cannot list {}: {error}", root.display()));
                    continue;
                }
            };
            for path in directories {
                match self.entry(&path, now) {
                    Ok(found) => {
                        list.entries.push(found.entry.clone());
                        known.insert(path, found);
                    }
                    Err(RunDirError::NotARun { .. }) => {}
                    Err(error) => list.unreadable.push(error.to_string()),
                }
            }
        }
        self.known = known;
        list.entries.sort_by(|a, b| {
            (b.info.started_at, &b.info.name).cmp(&(a.info.started_at, &a.info.name))
        });
        list
    }

    fn entry(&mut self, path: &Path, now: SystemTime) -> Result<Known, RunDirError> {
        let info_stamp = modified(&path.join("run.json")).map(|(time, _)| time);
        let log_stamp = modified(&path.join("events.jsonl"));
        let known = self.known.remove(path);
        if let Some(known) = known {
            let is_same = known.info_stamp == info_stamp && known.log_stamp == log_stamp;
            let lives = known
                .entry
                .glance
                .as_ref()
                .is_some_and(|glance| glance.liveness == Liveness::Running);
            // A process that is gone writes nothing that would show it.
            if is_same && !lives && info_stamp.is_some() {
                return Ok(known);
            }
        }
        let run_dir = RunDir::open(path)?;
        let (glance, problem) = match glance(&run_dir, now) {
            Ok(glance) => (Some(glance), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Ok(Known {
            info_stamp,
            log_stamp,
            entry: RunEntry {
                key: RunKey::new(path),
                info: run_dir.info().clone(),
                glance,
                problem,
            },
        })
    }
}

/// A missing root has no runs; names that begin with a dot are passed over.
fn directories(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(entries
        .filter_map(Result::ok)
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .map(|entry| entry.path())
        .collect())
}

fn modified(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::testing::sample_run_in;

    #[test]
    fn a_list_read_again_equals_one_read_afresh_whatever_changed_in_between() {
        let root = tempfile::tempdir().unwrap();
        let roots = [root.path().to_owned()];
        let now = SystemTime::now();
        let mut reader = Reader::default();
        assert_eq!(reader.read(&roots, now).entries.len(), 0);
        let first = sample_run_in(root.path(), 5);
        assert_eq!(reader.read(&roots, now).entries.len(), 1);
        sample_run_in(root.path(), 6);
        std::fs::create_dir(root.path().join("no-run")).unwrap();
        std::fs::remove_file(first.join("events.jsonl")).unwrap();
        let again = reader.read(&roots, now);
        assert_eq!(again, Reader::default().read(&roots, now));
        assert_eq!(again.entries.len(), 2);
        std::fs::remove_dir_all(&first).unwrap();
        assert_eq!(reader.read(&roots, now).entries.len(), 1);
    }
}
