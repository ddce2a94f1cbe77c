//! Every run below some directories, brought up to date at the cost of what changed: 500 idle runs cost three looks each.
//!
//! Knows files and [`Glance`]s; what a screen does with them is its own.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::filter::{Reduce, RunFacts};
use crate::notes::Notes;
use crate::run_dir::{RunDir, RunDirError};
use crate::state::{Glance, RunState, Sight, liveness};

/// Size and time of a file: when both are what they were, so is the file.
type Stamp = Option<(u64, SystemTime)>;

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// Of the log, or of what stands for it in a copy whose log has not come.
fn log_stamp(run_dir: &RunDir) -> Stamp {
    stamp(&run_dir.events_path())
        .filter(|(size, _)| *size > 0)
        .or_else(|| stamp(&run_dir.path().join(Glance::FILE)))
}

/// One run of the list.
#[derive(Debug)]
pub struct Entry {
    pub run_dir: RunDir,
    pub glance: Glance,
    pub notes: Notes,
    /// The log or the notes could not be read: why. The rest is what is known.
    pub problem: Option<String>,
    sight: Sight,
    info_stamp: Stamp,
    events_stamp: Stamp,
    notes_stamp: Stamp,
}

/// A directory that looks like a run and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub path: PathBuf,
    pub reason: String,
}

/// The runs below some roots.
#[derive(Debug)]
pub struct RunList {
    roots: Vec<PathBuf>,
    entries: Vec<Entry>,
    unreadable: Vec<Unreadable>,
}

impl RunList {
    /// Looks at nothing yet.
    pub fn new(roots: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            roots: roots.into_iter().collect(),
            entries: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Takes in another directory at the next refresh.
    pub fn add_root(&mut self, root: PathBuf) {
        if !self.roots.contains(&root) {
            self.roots.push(root);
        }
    }

    /// Newest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What could not be read, roots too, by path; a root that does not exist has no runs and is none of them.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// Looks again; true when anything is different. Never fails as a whole: see [`RunList::unreadable`].
    pub fn refresh(&mut self, now: SystemTime) -> bool {
        let mut known: HashMap<PathBuf, Entry> = self
            .entries
            .drain(..)
            .map(|entry| (entry.run_dir.path().to_owned(), entry))
            .collect();
        let before = known.len();
        let mut is_changed = false;
        let mut unreadable = Vec::new();
        for root in &self.roots {
            let paths = match directories(root) {
                Ok(paths) => paths,
                Err(error) => {
                    unreadable.push(Unreadable {
                        path: root.clone(),
                        reason: error.to_string(),
                    });
                    continue;
                }
            };
            for path in paths {
                let found = match known.remove(&path) {
                    Some(entry) => Ok((entry, false)),
                    None => Entry::open(&path, now).map(|entry| (entry, true)),
                };
                match found {
                    Ok((mut entry, is_new)) => {
                        is_changed |= is_new || entry.refresh(now);
                        self.entries.push(entry);
                    }
                    Err(RunDirError::NotARun { .. }) => {}
                    Err(error) => unreadable.push(Unreadable {
                        path,
                        reason: error.to_string(),
                    }),
                }
            }
        }
        // As a directory lists them, any order may come.
        unreadable.sort_by(|a, b| a.path.cmp(&b.path));
        // Runs that are gone, or whose run.json is.
        let is_gone = |entry: &Entry| entry.info_stamp.is_none();
        self.entries.retain(|entry| !is_gone(entry));
        is_changed |= self.entries.len() != before || unreadable != self.unreadable;
        self.unreadable = unreadable;
        self.entries.sort_by_cached_key(|entry| {
            let info = entry.run_dir.info();
            Reverse((info.started_at, info.name.clone()))
        });
        is_changed
    }
}

fn directories(root: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(entries
        .flatten()
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        // A file among the runs is no run; a link may be to one.
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_file()))
        .map(|entry| entry.path())
        .collect())
}

impl Entry {
    fn open(path: &Path, now: SystemTime) -> Result<Self, RunDirError> {
        let info_stamp = stamp(&path.join("run.json"));
        let run_dir = RunDir::open(path)?;
        let mut entry = Self {
            info_stamp,
            glance: Glance::unread(),
            notes: Notes::default(),
            problem: None,
            sight: Sight::default(),
            events_stamp: None,
            notes_stamp: None,
            run_dir,
        };
        entry.read(now);
        Ok(entry)
    }

    /// True: something is different.
    fn refresh(&mut self, now: SystemTime) -> bool {
        let info_stamp = stamp(&self.run_dir.path().join("run.json"));
        if info_stamp != self.info_stamp {
            self.info_stamp = info_stamp;
            // Another process has taken the run, or it is being deleted.
            if let Ok(run_dir) = RunDir::open(self.run_dir.path()) {
                self.run_dir = run_dir;
            }
            self.read(now);
            return true;
        }
        let is_same = log_stamp(&self.run_dir) == self.events_stamp
            && stamp(&Notes::path(&self.run_dir)) == self.notes_stamp;
        if !is_same {
            self.read(now);
            return true;
        }
        let end = self.glance.end.as_ref();
        let end = end.map(|(status, _, reason)| (*status, reason.as_str()));
        if end.is_some() && self.run_dir.origin().is_none() {
            return false;
        }
        // Nothing was written, but its process may have died meanwhile, or a run elsewhere was told to go on.
        let liveness = liveness(&self.run_dir, end, now);
        let is_changed = liveness != self.glance.liveness;
        self.glance.liveness = liveness;
        is_changed
    }

    fn read(&mut self, now: SystemTime) {
        self.problem = None;
        // Stamps first: what is written in between is seen at the next look.
        self.events_stamp = log_stamp(&self.run_dir);
        match self.sight.glance(&self.run_dir, now) {
            Ok(glance) => self.glance = glance,
            Err(error) => {
                self.problem = Some(format!("{}: {error}", self.run_dir.events_path().display()));
                // Its process can be asked all the same.
                self.glance.liveness = liveness(&self.run_dir, None, now);
            }
        }
        self.notes_stamp = stamp(&Notes::path(&self.run_dir));
        match Notes::read(&self.run_dir) {
            Ok(notes) => self.notes = notes,
            Err(error) => self.problem = Some(error.to_string()),
        }
    }
}

/// An entry as a filter sees it.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub entry: &'a Entry,
    /// The run's experiment as JSON; `Null` when it cannot be read.
    pub config: &'a serde_json::Value,
    /// The run's state, where it is open anyway: without it only the last values in sight are known.
    pub state: Option<&'a RunState>,
    pub now: SystemTime,
}

impl RunFacts for Facts<'_> {
    fn name(&self) -> &str {
        self.entry.run_dir.name()
    }

    fn state(&self) -> &str {
        self.entry.glance.word()
    }

    fn host(&self) -> &str {
        &self.entry.run_dir.info().host
    }

    fn mode(&self) -> &str {
        &self.entry.glance.mode
    }

    fn note(&self) -> &str {
        &self.entry.notes.note
    }

    fn has_tag(&self, tag: &str) -> bool {
        self.entry.notes.tags().contains(tag)
    }

    fn step(&self) -> u64 {
        self.entry.glance.step
    }

    fn age_s(&self) -> f64 {
        let now = self
            .now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        now.as_secs_f64() - self.entry.run_dir.info().started_at.as_millisecond() as f64 / 1e3
    }

    fn config(&self) -> &serde_json::Value {
        self.config
    }

    fn metric_names(&self) -> Vec<&str> {
        match self.state {
            Some(state) => state.series.names().collect(),
            None => self.entry.glance.last.keys().map(String::as_str).collect(),
        }
    }

    fn metric(&self, name: &str, reduce: Reduce) -> Option<f64> {
        match (self.state, reduce) {
            (Some(state), _) => reduce.of(name, state.series.get(name)?),
            (None, Reduce::Last) => Some(self.entry.glance.last.get(name)?.0),
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind, RunStatus};
    use crate::filter::Filter;
    use crate::number::Number;
    use crate::run_dir::NewRun;
    use crate::state::Liveness;
    use crate::testing::{line, lines};

    fn step(step: u64) -> Event {
        Event {
            seq: step,
            elapsed_ms: step as f64,
            kind: EventKind::StepEnded {
                step,
                policy_version: step,
                values: [("actor/lr".to_owned(), Number(step as f64))].into(),
            },
        }
    }

    fn run(root: &Path, steps: u64) -> RunDir {
        let run_dir = RunDir::create(root, &NewRun::default()).unwrap();
        let events: Vec<Event> = (0..=steps).map(step).collect();
        fs::write(run_dir.events_path(), lines(&events)).unwrap();
        run_dir
    }

    #[test]
    fn a_refresh_sees_new_deleted_and_changed_runs_and_else_nothing() {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (first, second) = (run(root.path(), 3), run(root.path(), 5));
        fs::create_dir(root.path().join("not a run")).unwrap();
        fs::write(root.path().join("README"), "").unwrap();
        let mut list = RunList::new([root.path().to_owned(), root.path().join("missing")]);
        let now = SystemTime::now();
        assert!(list.refresh(now));
        let steps: Vec<u64> = list
            .entries()
            .iter()
            .map(|entry| entry.glance.step)
            .collect();
        assert_eq!(steps.iter().sum::<u64>(), 8);
        assert_eq!(list.unreadable(), []);
        assert!(!list.refresh(now), "nothing changed");

        let mut log = fs::read(first.events_path()).unwrap();
        log.extend(line(&step(9)));
        fs::write(first.events_path(), &log).unwrap();
        assert!(list.refresh(now));
        let of = |list: &RunList, run: &RunDir| {
            let entry = list
                .entries()
                .iter()
                .find(|entry| entry.run_dir.path() == run.path());
            entry.map(|entry| (entry.glance.step, entry.glance.liveness.clone()))
        };
        assert_eq!(of(&list, &first), Some((9, Liveness::Running)));

        log.extend(line(&Event {
            seq: 10,
            elapsed_ms: 10.0,
            kind: EventKind::RunEnded {
                status: RunStatus::Completed,
                exit_code: 0,
                reason: String::new(),
                steps: 9,
            },
        }));
        fs::write(first.events_path(), &log).unwrap();
        assert!(list.refresh(now));
        assert_eq!(of(&list, &first), Some((9, Liveness::Finished)));

        let mut notes = Notes::default();
        notes.add_tag("good").unwrap();
        notes.write(&second).unwrap();
        assert!(list.refresh(now));
        let facts = |entry| Facts {
            entry,
            config: &serde_json::Value::Null,
            state: None,
            now,
        };
        let filter = Filter::parse("tag:good actor/lr=5 step<9 state:running age<1h").unwrap();
        let found: Vec<&str> = list
            .entries()
            .iter()
            .filter(|entry| filter.matches(&facts(*entry)))
            .map(|entry| entry.run_dir.name())
            .collect();
        assert_eq!(found, [second.name()]);
        let tagged = list
            .entries()
            .iter()
            .filter(|entry| entry.notes.tags().contains("good"));
        assert_eq!(tagged.count(), 1);

        fs::remove_dir_all(second.path()).unwrap();
        run(other.path(), 1);
        list.add_root(other.path().to_owned());
        assert!(list.refresh(now));
        assert_eq!((list.entries().len(), of(&list, &second)), (2, None));
        assert!(!list.refresh(now));
    }

    #[test]
    fn a_broken_run_is_told_and_does_not_hide_the_others() {
        let root = tempfile::tempdir().unwrap();
        let (good, bad) = (run(root.path(), 1), run(root.path(), 1));
        fs::write(bad.path().join("run.json"), "{").unwrap();
        fs::write(Notes::path(&good), "{").unwrap();
        let mut list = RunList::new([root.path().to_owned()]);
        list.refresh(SystemTime::now());
        assert_eq!(list.unreadable()[0].path, bad.path());
        let entry = &list.entries()[0];
        assert_eq!(entry.glance.step, 1);
        assert!(
            entry.problem.as_ref().unwrap().contains("not a notes file"),
            "{:?}",
            entry.problem
        );
    }
}
