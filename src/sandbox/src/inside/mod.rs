//! What the helper does, stage by stage.
//!
//! `outer` leaves the caller's namespaces and starts `inner`, which is process 1 of the new ones: when it ends, the kernel
//! ends all others in there. `inner` builds the file system, gives up every right, and then starts and watches the program.

mod calls;
mod lock;
mod mounts;
mod watch;

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use caps::{CapSet, Capability};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, getegid, geteuid, getppid, sethostname};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use self::mounts::INSIDE_ID;
use crate::{Arguments, Kind};

/// In the name of what an error came up.
trait Doing<T> {
    fn doing(self, what: &str) -> Result<T, String>;
}

impl<T, E: std::fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, what: &str) -> Result<T, String> {
        self.map_err(|error| format!("{what}: {error}"))
    }
}

/// Leaves the caller's namespaces, runs `inner` in new ones, and gives its exit code.
pub fn outer(told: &Arguments) -> Result<u8, String> {
    let caller = getppid();
    close_files();
    let mut inner = match told.kind {
        Kind::Namespaces => {
            leave()?;
            let mut inner = Command::new("/proc/self/exe");
            inner
                .arg("inside")
                .arg(serde_json::to_string(told).expect("it was JSON"));
            inner.spawn().doing("start process 1")?
        }
        Kind::Bubblewrap => mounts::bubblewrap(told)?.spawn().doing("start bwrap")?,
    };
    let id = rustix::process::Pid::from_child(&inner);
    let ends = pidfd_open(id, PidfdFlags::empty()).doing("watch process 1")?;
    let every = Timespec {
        tv_sec: 0,
        tv_nsec: 250_000_000,
    };
    loop {
        // Interrupted or not, what there is to see is seen below.
        let _ = poll(&mut [PollFd::new(&ends, PollFlags::IN)], Some(&every));
        if let Some(status) = inner.try_wait().doing("wait for process 1")? {
            return Ok(code(status));
        }
        // Nobody waits any more. The kernel's own signal for that is of the caller's thread, which may end before the caller.
        if getppid() != caller {
            inner.kill().doing("end process 1")?;
        }
    }
}

/// Builds the rest of the sandbox, runs the program in it, and gives its exit code.
pub fn inner(told: &Arguments) -> Result<u8, String> {
    set_pdeathsig(Signal::SIGKILL).doing("tie to the helper")?;
    if told.kind == Kind::Namespaces {
        mounts::build(&told.spec)?;
        sethostname("sandbox").doing("name the host")?;
    }
    lock::drop_rights(told.kind)?;
    // Giving up rights undid it.
    set_pdeathsig(Signal::SIGKILL).doing("tie to the helper")?;
    lock::limit(&told.spec.limits)?;
    lock::landlock()?;
    lock::seccomp()?;
    watch::run(&told.spec)
}

/// New namespaces, by privilege where there is some, else in a new user namespace.
fn leave() -> Result<(), String> {
    let spaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    let is_privileged = geteuid().is_root()
        && caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).unwrap_or(false);
    if is_privileged {
        return unshare(spaces).doing("make namespaces");
    }
    let (user, group): (Uid, Gid) = (geteuid(), getegid());
    unshare(spaces | CloneFlags::CLONE_NEWUSER).doing("make a user namespace")?;
    let write = |file: &str, text: String| fs::write(file, text).doing(file);
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{INSIDE_ID} {user} 1"))?;
    write("/proc/self/gid_map", format!("{INSIDE_ID} {group} 1"))?;
    // Process 1 needs the right to mount, over its start by a user who is not root.
    for set in [CapSet::Inheritable, CapSet::Ambient] {
        caps::raise(None, set, Capability::CAP_SYS_ADMIN).doing("keep the right to mount")?;
    }
    Ok(())
}

/// Closes what the caller left open, beyond the standard streams.
fn close_files() {
    let Ok(open) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers: Vec<i32> = open
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // One of them was the folder's own, and is closed already.
        let _ = nix::unistd::close(number);
    }
    // The standard streams stay.
    debug_assert_eq!(std::io::stderr().as_raw_fd(), 2);
}

/// As a shell tells it.
fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => 255,
    }
}
