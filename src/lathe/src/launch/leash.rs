//! Holds verl with all that it starts: `lathe __leash PROGRAM …`, between what watches over the run and verl.
//!
//! ```text
//!  lathe __verl ──line──► lathe __leash ──► lathe __leashed, exec ──► python -m verl.trainer.main_ppo ──► its workers
//! ```
//! verl does not outlive its watcher: when the line (standard input) closes, by whatever end of the watcher, every process that
//! descends from verl is killed, also those that left its group and those whose own parents have ended, which come to the leash. The
//! kernel kills verl itself when the leash is killed. SIGINT and SIGTERM are handed on to verl's group. The leash ends as verl did:
//! with its exit code, or by the signal that ended it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, kill_process_group, wait,
};
use signal_hook::consts::{SIGINT, SIGKILL, SIGTERM};
use signal_hook::iterator::Signals;

use super::{LEASH_COMMAND, LEASHED_COMMAND, NOT_STARTED, this_program};

/// Between two looks at verl.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What verl leaves behind at its end, such as Ray's own processes that are about to go, gets this long.
const LEFTOVER_PATIENCE: Duration = Duration::from_secs(5);
/// What is left when somebody wanted an end: whoever ends a job does not wait for long.
const STOPPED_PATIENCE: Duration = Duration::from_millis(400);
/// Processes that were told to die are gone within milliseconds, unless the kernel holds them: then they are left to it.
const DEATH_PATIENCE: Duration = Duration::from_secs(10);

/// The command that starts `command` on a leash, whose other end is the standard input: to be a pipe.
pub fn leashed(command: &Command) -> io::Result<Command> {
    let mut leash = Command::new(this_program()?);
    leash
        .arg(LEASH_COMMAND)
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::piped());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => leash.env(name, value),
            None => leash.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        leash.current_dir(directory);
    }
    Ok(leash)
}

/// `lathe __leash PROGRAM …`: starts it and stays until it has ended, or until the line is closed. Gives the exit code, if this
/// process still lives to give one.
pub fn hold(arguments: &[OsString]) -> Result<i32, String> {
    take_in_orphans();
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| format!("cannot listen to signals: {error}"))?;
    let told = |error: io::Error| format!("cannot start what is to be held: {error}");
    let child = Command::new(this_program().map_err(told)?)
        .arg(LEASHED_COMMAND)
        .arg(std::process::id().to_string())
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(told)?;
    let held = Pid::from_raw(child.id().cast_signed()).ok_or("it has no process")?;
    let mut is_asked = false;
    let status = loop {
        if let Some(status) = reaped(held) {
            break Some(status);
        }
        for signal in signals.pending() {
            let signal = if signal == SIGINT {
                Signal::INT
            } else {
                Signal::TERM
            };
            is_asked = true;
            // The only failure is that it has ended already.
            let _ = kill_process_group(held, signal);
        }
        if is_cut(LOOK_EVERY) {
            break None;
        }
    };
    let Some(status) = status else {
        kill_descendants(Duration::ZERO);
        return Ok(128 + SIGKILL);
    };
    kill_descendants(if is_asked {
        STOPPED_PATIENCE
    } else {
        LEFTOVER_PATIENCE
    });
    if let Some(signal) = status.terminating_signal() {
        if signal == SIGKILL {
            let _ = kill_process(getpid(), Signal::KILL);
        }
        // Returns for signals that end nobody.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        return Ok(128 + signal);
    }
    Ok(status.exit_status().unwrap_or(1))
}

/// `lathe __leashed PARENT PROGRAM …`: becomes the program, which the kernel kills when the parent ends. Returns the exit code
/// only when that failed.
pub fn become_leashed(parent: u32, arguments: &[OsString]) -> i32 {
    let Some((program, rest)) = arguments.split_first() else {
        return NOT_STARTED;
    };
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("lathe: verl would outlive what watches over it: {error}");
    }
    // It may have ended before that took effect.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent.cast_signed()) {
        return NOT_STARTED;
    }
    let error = Command::new(program).args(rest).exec();
    eprintln!("lathe: cannot start {}: {error}", program.display());
    NOT_STARTED
}

/// Descendants whose parent has ended become this process's children.
pub(super) fn take_in_orphans() {
    #[cfg(target_os = "linux")]
    // Fails on kernels before 3.4, where orphans go to init, and are not found.
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Collects every child that has ended, and gives how `held` did.
fn reaped(held: Pid) -> Option<WaitStatus> {
    let mut status = None;
    while let Ok(Some((pid, how))) = wait(WaitOptions::NOHANG) {
        if pid == held {
            status = Some(how);
        }
    }
    status
}

/// Waits on the line for a while; true: nobody holds its other end any more.
fn is_cut(patience: Duration) -> bool {
    let stdin = io::stdin();
    let mut asked = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: patience.subsec_nanos().into(),
    };
    // Nothing is ever written to it.
    matches!(poll(&mut asked, Some(&timeout)), Ok(ready) if ready > 0)
}

/// Ends all that descend from this process, children of children too, `patience` after which they have not ended by themselves.
pub(super) fn kill_descendants(patience: Duration) {
    let start = Instant::now();
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let left = descendants(std::process::id());
        if left.is_empty() || start.elapsed() > patience + DEATH_PATIENCE {
            return;
        }
        if start.elapsed() >= patience {
            for pid in left {
                if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The living processes below one. Parents may end while we look: whoever calls looks again until there are none.
fn descendants(of: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let parents: Vec<(u32, u32)> = entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name may hold blanks and parentheses.
            let mut rest = stat.rsplit_once(')')?.1.split_ascii_whitespace();
            let state = rest.next()?;
            let parent = rest.next()?.parse().ok()?;
            (state != "Z").then_some((pid, parent))
        })
        .collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        at += 1;
        found.extend(
            parents
                .iter()
                .filter(|(_, of)| *of == parent)
                .map(|(pid, _)| *pid),
        );
    }
    found.split_off(1)
}
