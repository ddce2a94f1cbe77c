//! Process 1: starts the program, takes in orphans, and ends all when memory or processes grow beyond their limits.

use std::fs;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Resource, Rlimit, pidfd_open, prlimit};

use super::Doing;
use crate::Spec;

/// What grows between two looks is bounded by the limits of each process.
const EVERY: Duration = Duration::from_millis(50);

/// Runs the program and gives its exit code; the error says what it used too much of.
pub fn run(spec: &Spec) -> Result<u8, String> {
    let child = Command::new(&spec.command[0])
        .args(&spec.command[1..])
        .env_clear()
        .envs(&spec.env)
        .spawn()
        .doing(&spec.command[0])?;
    let id = rustix::process::Pid::from_child(&child);
    // Not of process 1, which lives as long as the sandbox.
    let cpu = Rlimit {
        current: Some(spec.limits.cpu_s),
        maximum: Some(spec.limits.cpu_s + 1),
    };
    prlimit(Some(id), Resource::Cpu, cpu).doing("limit CPU")?;
    let ends = pidfd_open(id, PidfdFlags::empty()).doing("watch the program")?;
    let every = Timespec {
        tv_sec: 0,
        tv_nsec: EVERY.subsec_nanos().into(),
    };
    loop {
        // Interrupted or not, what there is to see is seen below.
        let _ = poll(&mut [PollFd::new(&ends, PollFlags::IN)], Some(&every));
        if let Some(code) = reap(Pid::from_raw(child.id() as i32))? {
            return Ok(code);
        }
        let (processes, resident) = used();
        if processes > spec.limits.processes {
            return Err(format!(
                "stopped: more than {} processes",
                spec.limits.processes
            ));
        }
        if resident > spec.limits.memory_bytes {
            return Err(format!(
                "stopped: more than {} MiB of memory",
                spec.limits.memory_bytes >> 20
            ));
        }
    }
}

/// Takes in every process that has ended, and gives the code of the program if it is among them.
fn reap(program: Pid) -> Result<Option<u8>, String> {
    let mut code = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(id, status)) if id == program => code = Some(status as u8),
            Ok(WaitStatus::Signaled(id, Signal::SIGXCPU, _)) if id == program => {
                return Err("stopped: too much CPU time".to_owned());
            }
            Ok(WaitStatus::Signaled(id, signal, _)) if id == program => {
                code = Some(128 + signal as u8);
            }
            Ok(WaitStatus::StillAlive) | Err(_) => return Ok(code),
            Ok(_) => {}
        }
    }
}

/// Processes beside this one, and bytes of memory that they all have.
fn used() -> (u64, u64) {
    let mut all = (0, 0);
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().filter(|name| name.parse::<u32>().is_ok()) else {
            continue;
        };
        if id == "1" {
            continue;
        }
        // It may have ended meanwhile.
        let facts = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let resident_kib: u64 = facts
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))
            .and_then(|number| number.parse().ok())
            .unwrap_or(0);
        all = (all.0 + 1, all.1 + resident_kib * 1024);
    }
    all
}
