//! A started run of the real program, and a client of it.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use runlog::control::{Answer, Applied, Client, Command};
use runlog::event::EventKind;
use runlog::number::Values;
use runlog::run_dir::RunDir;
use runlog::tail;

use crate::tiny::{self, experiment};

/// Nothing here takes longer, unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The tiny run, with steps enough that no test reaches the last.
pub fn endless(data: &Path, more: &str) -> String {
    experiment(data, more)
        .replace("total_training_steps: 3", "total_training_steps: 100000")
        .replace("test_freq: 2", "test_freq: -1\n  record_rollouts: false")
}

/// A started run and a client of it.
pub struct Live {
    pub child: Child,
    pub run_dir: RunDir,
    pub client: Client,
}

impl Live {
    pub fn start(root: &Path, job: &str, yaml: String) -> Self {
        Self::in_dir(tiny::run_dir(root, yaml), job)
    }

    /// In a directory that may hold a run already: then it goes on.
    pub fn in_dir(run_dir: RunDir, job: &str) -> Self {
        Self::with(run_dir, job, &[])
    }

    /// As `lathe run --resume` goes on with a run, where these keys of its experiment are new.
    pub fn resumed(run_dir: RunDir, given: &[&str]) -> Self {
        let given: Vec<String> = given.iter().map(|key| format!("--given={key}")).collect();
        Self::with(run_dir, "run", &given)
    }

    /// As in a job of a scheduler's: all signals are one.
    pub fn in_a_job(root: &Path, yaml: String) -> Self {
        let variable = [(runlog::control::ONE_SIGNAL, "1")];
        Self::started(tiny::run_dir(root, yaml), "run", &[], &variable)
    }

    fn with(run_dir: RunDir, job: &str, more: &[String]) -> Self {
        Self::started(run_dir, job, more, &[])
    }

    fn started(run_dir: RunDir, job: &str, more: &[String], variables: &[(&str, &str)]) -> Self {
        let log = fs::File::create(run_dir.log_path()).expect("a log");
        let mut child = Program::new(env!("CARGO_BIN_EXE_lathe-trainer"))
            .args([job, "--run-dir"])
            .arg(run_dir.path())
            .args(more)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        let mut client = None;
        wait_until("a control socket", || {
            assert!(
                child.try_wait().expect("our child").is_none(),
                "it ended: {}",
                fs::read_to_string(run_dir.log_path()).unwrap_or_default()
            );
            client = Client::connect(&run_dir, "ana@laptop").ok();
            client.is_some()
        });
        Self {
            child,
            client: client.expect("waited for"),
            run_dir,
        }
    }

    pub fn ask(&mut self, command: Command) -> Answer {
        let (id, first) = self.client.ask(command).expect("an answer");
        if first.is_last() {
            return first;
        }
        self.client.wait(id, PATIENCE).expect("a last answer")
    }

    pub fn apply(&mut self, command: Command) -> Applied {
        match self.ask(command) {
            Answer::Applied { applied, .. } => applied,
            other => panic!("not applied: {other:?}"),
        }
    }

    pub fn set(&mut self, knob: &str, value: f64) -> Applied {
        self.apply(Command::set(knob, value).expect("a knob in range"))
    }

    pub fn refused(&mut self, command: Command) -> String {
        match self.ask(command) {
            Answer::Refused { reason, .. } => reason,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Steps a paused run until `step` is trained.
    pub fn step_to(&mut self, step: u64) {
        while self.apply(Command::Step).step < step {}
    }

    pub fn kinds(&self) -> Vec<EventKind> {
        let (events, bad) = tail::read_all(&self.run_dir.events_path()).expect("a log");
        assert!(bad.is_empty(), "{bad:?}");
        events.into_iter().map(|event| event.kind).collect()
    }

    /// Of a step that is trained; its event may still be on the way to the disk.
    pub fn values(&self, of: u64) -> Values {
        let mut found = None;
        wait_until("the step's event in the log", || {
            found = self.kinds().into_iter().find_map(|kind| match kind {
                EventKind::StepEnded { step, values, .. } if step == of => Some(values),
                _ => None,
            });
            found.is_some()
        });
        found.expect("waited for")
    }

    /// Stops it and gives its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.apply(Command::Stop);
        self.child.wait().expect("our child").code()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Ended already, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
