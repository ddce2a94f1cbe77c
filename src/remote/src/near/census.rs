//! The runs of a target, also those that were begun from other machines: asked for again and again, and each kept here as a
//! directory that holds what a list shows of it. Its log comes when somebody opens it: then it is a copy like any other, and is
//! left alone by this.
//!
//! ```text
//!  Census (thread, one a target) ── Ask::Census ──► news, gone
//!     └─► ROOT/NAME/{run.json, experiment.yaml, glance.json, mirror.json: listed, exit.json} ─► any list of runs
//! ```

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use runlog::run_dir::{
    Exit, Mirror, MirrorLink, Origin, ProcessIdentity, RunDir, RunDirError, RunInfo, write_renamed,
};

use super::link::{Link, LinkError};
use crate::far::is_inner;
use crate::targets::Target;
use crate::wire::{Ask, RunSeen, Say};

/// Runs of one target that are listed, the newest.
pub const MOST_RUNS: u32 = 200;
/// Between two questions.
const ASK_EVERY: Duration = Duration::from_secs(15);
/// After a line that failed; after a refusal, which lasts until somebody does something about it.
const RETRY_EVERY: Duration = Duration::from_secs(30);
const REFUSED_EVERY: Duration = Duration::from_secs(120);
/// Directories that are being made: no list shows hidden ones.
const STAGING: &str = ".coming-";

/// A thread that keeps the list of one target's runs. Dropping it has the thread end soon; it is not waited for, since it may be in a
/// connection that takes its time.
#[derive(Debug)]
pub struct Census {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_stopping: bool,
    is_poked: bool,
    has_answered: bool,
    problem: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, patience: Duration, is_so: impl Fn(&State) -> bool) {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if is_so(&state) || left.is_zero() {
                return;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl Census {
    /// Keeps the runs of `target` below `root`, which is made.
    pub fn start(target: Target, root: PathBuf) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("census".to_owned())
            .spawn(move || keep(&target, &root, &of_thread))?;
        Ok(Self { shared })
    }

    /// Asks now, and not only when it is time.
    pub fn poke(&self) {
        self.shared.change(|state| state.is_poked = true);
    }

    /// Waits until the target has answered once, or could not be asked.
    pub fn wait_for_news(&self, patience: Duration) {
        self.shared.wait_until(patience, |state| {
            state.has_answered || state.problem.is_some()
        });
    }

    /// Why its runs are not known now.
    pub fn problem(&self) -> Option<String> {
        self.shared.lock().problem.clone()
    }

    /// Whether it has answered since this began.
    pub fn has_answered(&self) -> bool {
        self.shared.lock().has_answered
    }
}

impl Drop for Census {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_stopping = true);
    }
}

#[derive(Debug, thiserror::Error)]
enum CensusError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

fn keep(target: &Target, root: &Path, shared: &Shared) {
    loop {
        let Err(error) = talk(target, root, shared) else {
            return;
        };
        let is_refused = matches!(&error, CensusError::Link(error) if !error.is_passing());
        let wait = if is_refused {
            REFUSED_EVERY
        } else {
            RETRY_EVERY
        };
        if matches!(error, CensusError::Link(_)) && !is_refused && !target.is_here() {
            // It may hang on the dead line, and the next conversation with it.
            target.ssh().drop_master();
        }
        shared.change(|state| state.problem = Some(error.to_string()));
        if pause(shared, wait) {
            return;
        }
    }
}

/// True: told to stop.
fn pause(shared: &Shared, time: Duration) -> bool {
    shared.wait_until(time, |state| state.is_stopping || state.is_poked);
    let mut state = shared.lock();
    state.is_poked = false;
    state.is_stopping
}

/// One conversation; it ends well only when this is told to stop.
fn talk(target: &Target, root: &Path, shared: &Shared) -> Result<(), CensusError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(root)
        .map_err(|source| CensusError::Write {
            path: root.to_owned(),
            source,
        })?;
    let place = Place { target, root };
    let mut known = place.known()?;
    let mut link = Link::open(target)?;
    loop {
        let question = Ask::Census {
            most: MOST_RUNS,
            known: std::mem::take(&mut known),
        };
        let (news, gone, is_more) = match link.ask(&question)? {
            Say::Census {
                news,
                gone,
                is_more,
            } => (news, gone, is_more),
            other => return Err(link.garbled(&format!("{other:?}")).into()),
        };
        for seen in &news {
            // What the other side says is not trusted with our disk.
            if !is_name(&seen.name) {
                return Err(link.garbled(&format!("a run named {}", seen.name)).into());
            }
            place.take(seen)?;
        }
        for name in gone.iter().filter(|name| is_name(name)) {
            place.forget(name);
        }
        if is_more {
            continue;
        }
        shared.change(|state| {
            state.has_answered = true;
            state.problem = None;
        });
        if pause(shared, ASK_EVERY) {
            return Ok(());
        }
    }
}

fn is_name(name: &str) -> bool {
    is_inner(name) && !name.contains('/') && !name.starts_with('.')
}

/// Where the runs of one target are kept here.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    target: &'a Target,
    root: &'a Path,
}

impl Place<'_> {
    fn known(&self) -> Result<Vec<String>, CensusError> {
        let (runs, _) = runlog::run_dir::list(self.root)?;
        Ok(runs.iter().map(|run| run.name().to_owned()).collect())
    }

    fn take(&self, seen: &RunSeen) -> Result<(), CensusError> {
        // One that cannot be read is of a newer program there.
        let Ok(mut info) = serde_json::from_value::<RunInfo>(seen.info.clone()) else {
            return Ok(());
        };
        info.origin = Some(Origin::Target {
            target: self.target.name.clone(),
            path: format!("{}/runs/{}", self.target.folder, seen.name),
        });
        let path = self.root.join(&seen.name);
        match RunDir::open(&path) {
            Ok(run_dir) if !is_listed(&run_dir) => Ok(()),
            Ok(mut run_dir) => {
                if info != *run_dir.info() {
                    run_dir.replace_info(info)?;
                }
                write(&run_dir, seen)
            }
            Err(_) => self.make(&path, &info, seen),
        }
    }

    /// Aside, and renamed into place when it is whole.
    fn make(&self, path: &Path, info: &RunInfo, seen: &RunSeen) -> Result<(), CensusError> {
        let aside = self
            .root
            .join(format!("{STAGING}{}-{}", seen.name, std::process::id()));
        let told = |source| CensusError::Write {
            path: path.to_owned(),
            source,
        };
        let _ = std::fs::remove_dir_all(&aside);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&aside)
            .map_err(told)?;
        let mut text = serde_json::to_vec_pretty(info).expect("it has only string keys");
        text.push(b'\n');
        write_renamed(&aside.join("run.json"), &text)?;
        let run_dir = RunDir::open(&aside)?;
        if let Some(yaml) = &seen.experiment_yaml {
            write_renamed(&run_dir.experiment_path(), yaml.as_bytes())?;
        }
        write(&run_dir, seen)?;
        match std::fs::rename(&aside, path) {
            Ok(()) => Ok(()),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&aside);
                // Another workbench was quicker.
                if path.join("run.json").is_file() {
                    return Ok(());
                }
                Err(told(error))
            }
        }
    }

    /// A run that is no more there. Whose log was fetched stays: it may be the only one.
    fn forget(&self, name: &str) {
        let path = self.root.join(name);
        let Ok(run_dir) = RunDir::open(&path) else {
            return;
        };
        if is_listed(&run_dir) {
            let hidden = self
                .root
                .join(format!("{STAGING}{name}-{}", std::process::id()));
            // It is told again in the next conversation.
            if std::fs::rename(&path, &hidden).is_ok() {
                let _ = std::fs::remove_dir_all(&hidden);
            }
        }
    }
}

/// Nobody has asked for its log yet.
pub fn is_listed(run_dir: &RunDir) -> bool {
    Mirror::read(run_dir).is_some_and(|mirror| mirror.link == MirrorLink::Listed)
}

fn write(run_dir: &RunDir, seen: &RunSeen) -> Result<(), CensusError> {
    match &seen.exit {
        Some(exit) => exit.write(run_dir.path())?,
        // It was put into a queue again, or is resumed.
        None => {
            let _ = std::fs::remove_file(run_dir.path().join(Exit::FILE));
        }
    }
    let mirror = Mirror {
        keeper: ProcessIdentity::of(std::process::id()),
        link: MirrorLink::Listed,
        standing: seen.standing.clone(),
        heard_at: Some(Timestamp::now()),
        warning: None,
        received_bytes: 0,
        resumed_after: None,
    };
    mirror.write(run_dir)?;
    if let Some(glance) = &seen.glance {
        glance.write(run_dir)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use runlog::event::RunStatus;
    use runlog::run_dir::{NewRun, Standing};
    use runlog::state::{Glance, Liveness, glance};

    use super::*;

    fn seen(run_dir: &RunDir, standing: Standing) -> RunSeen {
        let mut told = glance(run_dir, SystemTime::now()).unwrap();
        (told.step, told.total_steps) = (7, 9);
        RunSeen {
            name: run_dir.name().to_owned(),
            info: serde_json::to_value(run_dir.info()).unwrap(),
            experiment_yaml: Some("trainer: {}\n".to_owned()),
            standing,
            exit: None,
            glance: Some(told),
        }
    }

    fn there() -> (tempfile::TempDir, RunDir) {
        let root = tempfile::tempdir().unwrap();
        let run_dir = RunDir::create(root.path(), &NewRun::default()).unwrap();
        std::fs::write(run_dir.events_path(), "").unwrap();
        (root, run_dir)
    }

    #[test]
    fn a_run_there_is_a_row_here_that_follows_what_is_heard_of_it() {
        let (_root, run_dir) = there();
        let here = tempfile::tempdir().unwrap();
        let target = Target::host("gpu1");
        let place = Place {
            target: &target,
            root: here.path(),
        };
        let mut run = seen(&run_dir, Standing::Running);
        place.take(&run).unwrap();
        assert_eq!(place.known().unwrap(), [run.name.clone()]);
        let row = RunDir::open(&here.path().join(&run.name)).unwrap();
        assert!(is_listed(&row));
        assert_eq!(row.origin().and_then(Origin::target), Some("gpu1"));
        let glanced = || glance(&row, SystemTime::now()).unwrap();
        assert_eq!((glanced().step, glanced().liveness), (7, Liveness::Running));

        run.standing = Standing::Ended;
        run.glance = Some(Glance {
            step: 9,
            end: Some((RunStatus::Completed, 0, String::new())),
            ..run.glance.unwrap()
        });
        place.take(&run).unwrap();
        assert_eq!(
            (glanced().step, glanced().liveness),
            (9, Liveness::Finished)
        );

        place.forget(&run.name);
        assert!(!row.path().exists());
        assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_copy_that_somebody_keeps_is_left_alone_also_when_its_run_is_gone_there() {
        let (_root, run_dir) = there();
        let here = tempfile::tempdir().unwrap();
        let target = Target::host("gpu1");
        let place = Place {
            target: &target,
            root: here.path(),
        };
        let run = seen(&run_dir, Standing::Running);
        place.take(&run).unwrap();
        let row = RunDir::open(&here.path().join(&run.name)).unwrap();
        let kept = Mirror {
            link: MirrorLink::Complete,
            ..Mirror::read(&row).unwrap()
        };
        kept.write(&row).unwrap();
        place.take(&run).unwrap();
        place.forget(&run.name);
        assert_eq!(Mirror::read(&row), Some(kept));
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_none() {
        for name in ["", "..", "a/b", "/etc", ".hidden", "../../x"] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_name("20261201-101010-toy-1a2b3c4d"));
    }
}
