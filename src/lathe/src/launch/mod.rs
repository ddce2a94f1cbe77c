//! Starts `lathe-trainer` as a process of its own and says how it ended.
//!
//! ```text
//!  lathe ──spawn──► lathe (hidden command) ──setsid, exec──► lathe-trainer     same process id throughout
//!    │ follows events.jsonl                                    └─ stdout, stderr ─► log.txt
//!    └ ends, by whatever means ───────────── the trainer goes on
//! ```
//! `setsid` before the exec needs no unsafe code, and takes the trainer out of reach of the terminal's Ctrl-C and hang-up.

mod again;
mod census;
mod elsewhere;
mod ending;
mod find;
mod gather;
mod leash;
mod modules;
mod resume;
mod start;
mod supervise;
pub mod verl;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

pub use again::{ResumeElsewhereError, bring_up_to_date, edit, resume_elsewhere};
pub use census::{Censuses, census_roots, without_doubles};
pub use elsewhere::{
    ElsewhereError, adopt, keep_copy, prepare_elsewhere, pull_rollouts, start_elsewhere,
    start_together, targets,
};
pub use ending::{Ending, last_lines};
pub use find::find_trainer;
pub use leash::{become_leashed, hold};
pub use resume::{ResumeError, can_go_on, nothing_left, refuse_verl, resume};
pub use start::{
    Order, Signs, StartError, first_sign, name_override, prepare, start, text_override,
};
pub use supervise::supervise;

/// The hidden command of `lathe` that becomes the trainer.
pub const EXEC_COMMAND: &str = "__exec-trainer";

/// The hidden command of `lathe` that watches over a run of verl.
pub const VERL_COMMAND: &str = remote::wire::VERL_VERB;

/// The hidden commands of `lathe` between that and verl.
pub const LEASH_COMMAND: &str = "__leash";
pub const LEASHED_COMMAND: &str = "__leashed";

/// The shells' exit code for a program that could not be started; also the dynamic linker's when a library is missing.
pub const NOT_STARTED: i32 = 127;

/// What the trainer is to do with its run directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    Run,
    Sft,
    /// A reward model from preferences.
    Reward,
}

impl Job {
    pub fn verb(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Sft => "sft",
            Self::Reward => "reward-train",
        }
    }
}

impl Job {
    /// What a person types for it after `lathe`.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Run => &["run"],
            Self::Sft => &["sft"],
            Self::Reward => &["reward", "train"],
        }
    }
}

/// A started trainer. Dropping it leaves the process alone.
#[derive(Debug)]
pub struct Trainer {
    child: Child,
    log_path: PathBuf,
}

impl Trainer {
    /// Starts `program run|sft|reward-train --run-dir RUN_DIR` in a session of its own, its output appended to `log_path`. `given`: keys that
    /// are new in the experiment of a run that goes on.
    pub fn start(
        program: &Path,
        verb: &str,
        run_dir: &Path,
        log_path: &Path,
        given: &[String],
    ) -> io::Result<Self> {
        let log = File::options().append(true).create(true).open(log_path)?;
        let child = Command::new(this_program()?)
            .arg(EXEC_COMMAND)
            .arg(program)
            .arg(verb)
            .arg("--run-dir")
            .arg(run_dir)
            .args(given.iter().map(|key| format!("--given={key}")))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Self {
            child,
            log_path: log_path.to_owned(),
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// None while it lives.
    pub fn ending(&mut self) -> io::Result<Option<Ending>> {
        let status = self.child.try_wait()?;
        Ok(status.map(|status| self.explain(status)))
    }

    fn explain(&self, status: ExitStatus) -> Ending {
        Ending::new(status, &self.log_path)
    }

    /// Asks it to stop after this step with a checkpoint.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Asks it to end now.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.rustix_pid() {
            // The only failure is that it has ended already, which `ending` tells.
            let _ = kill_process(pid, signal);
        }
    }

    /// Leaves it to itself. While this program lives, its end is still collected, since a process that has ended and is
    /// not collected looks alive.
    pub fn leave(self) {
        let mut child = self.child;
        // Ends with the trainer, or with this program: there is nothing to join.
        let _ = std::thread::Builder::new()
            .name("reaper".to_owned())
            .spawn(move || child.wait());
    }

    /// Ends it and whatever it started.
    pub fn kill(&self) {
        if let Some(pid) = self.rustix_pid() {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn rustix_pid(&self) -> Option<Pid> {
        // Not reaped yet, or the Child would refuse: `try_wait` keeps the status, so the id cannot be another's.
        Pid::from_raw(self.child.id().cast_signed())
    }
}

/// Asks a trainer that is not our child to stop after this step with a checkpoint.
pub fn interrupt(pid: u32) -> io::Result<()> {
    let pid = Pid::from_raw(pid.cast_signed())
        .filter(|pid| !pid.is_init())
        .ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, Signal::INT)?)
}

/// This program's file, also after it was replaced on disk by a newer build.
pub fn this_program() -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        return Ok(running.to_owned());
    }
    std::env::current_exe()
}

/// Becomes the trainer: new session, quiet OpenMP, exec. Returns only when that failed.
pub fn exec_trainer(arguments: &[OsString]) -> io::Error {
    let Some((program, rest)) = arguments.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no program given");
    };
    // Fails only for a process group leader, which a just spawned child is not.
    let _ = rustix::process::setsid();
    let mut command = Command::new(program);
    command.args(rest);
    // verl, and Ray for its workers, choose their own.
    if rest.first().is_none_or(|verb| verb != VERL_COMMAND) {
        // libtorch's OpenMP threads spin while they wait, which steals the cores from generation; read when it loads.
        command
            .env("OMP_WAIT_POLICY", "PASSIVE")
            .env("GOMP_SPINCOUNT", "0");
        if std::env::var_os("OMP_NUM_THREADS").is_none_or(|value| value.is_empty()) {
            command.env("OMP_NUM_THREADS", "1");
        }
    }
    command.exec()
}
