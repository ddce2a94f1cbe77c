//! Gives up rights, for good: what is dropped here no program of the sandbox gets back.

use std::collections::BTreeMap;
use std::process::id;

use caps::CapSet;
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    Scope, path_beneath_rules,
};
use nix::sys::prctl::{set_dumpable, set_no_new_privs};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

use super::Doing;
use super::mounts::SCRATCH;
use crate::{Kind, Limits};

/// Users of which no system has any; each sandbox has one of its own, so that its processes are counted apart.
const FIRST_USER: u32 = 0x7000_0000;

/// No user, group, capability or new privilege is left that the system would honour.
pub fn drop_rights(kind: Kind) -> Result<(), String> {
    if kind == Kind::Namespaces && geteuid().is_root() {
        setgroups(&[]).doing("leave all groups")?;
        let number = FIRST_USER + (id_of_sandbox() & 0x00ff_ffff);
        // Where few users exist, as in a container of a user's own, it is nobody.
        let become_user = |number: u32| {
            let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
            setresgid(group, group, group).and_then(|()| setresuid(user, user, user))
        };
        become_user(number)
            .or_else(|_| become_user(65_534))
            .doing("become nobody")?;
    }
    for set in [
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ] {
        caps::clear(None, set).doing("drop capabilities")?;
    }
    set_no_new_privs().doing("refuse new privileges")?;
    // Nobody in the sandbox may look into the process that watches it.
    set_dumpable(false).doing("close process 1")
}

/// Process ids start anew in a sandbox, so that they tell nothing apart.
fn id_of_sandbox() -> u32 {
    let mut bytes = [0; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(_) => u32::from_le_bytes(bytes),
        Err(_) => id(),
    }
}

/// The limits of each process; memory and processes are watched together, too.
pub fn limit(limits: &Limits) -> Result<(), String> {
    // Of the heap, where Python has a MemoryError of it; of addresses, which programs reserve beyond their use.
    let addresses = limits.memory_bytes.saturating_mul(4).max(1 << 32);
    for (what, resource, most) in [
        ("memory", Resource::RLIMIT_DATA, limits.memory_bytes),
        ("addresses", Resource::RLIMIT_AS, addresses),
        ("files", Resource::RLIMIT_FSIZE, limits.scratch_bytes),
        ("processes", Resource::RLIMIT_NPROC, limits.processes + 1),
        ("open files", Resource::RLIMIT_NOFILE, 256),
        ("core dumps", Resource::RLIMIT_CORE, 0),
        ("locked memory", Resource::RLIMIT_MEMLOCK, 0),
        ("message queues", Resource::RLIMIT_MSGQUEUE, 0),
        ("pending signals", Resource::RLIMIT_SIGPENDING, 256),
    ] {
        setrlimit(resource, most, most).doing(&format!("limit {what}"))?;
    }
    Ok(())
}

/// A second lock on files, signals and sockets, where the kernel has it.
pub fn landlock() -> Result<(), String> {
    let abi = ABI::V6;
    let writable = [
        SCRATCH,
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
    ];
    let set = || {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(abi))?
            .scope(Scope::Signal)?
            .scope(Scope::AbstractUnixSocket)?
            .create()?
            .add_rules(path_beneath_rules(["/"], AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules(writable, AccessFs::from_all(abi)))?
            .restrict_self()
    };
    set().map(|_| ()).doing("Landlock")
}

/// Only system calls that ordinary programs make; any other is one that this kernel "does not have".
pub fn seccomp() -> Result<(), String> {
    let filter = filter().doing("build the filter of system calls")?;
    apply_filter(&filter).doing("filter system calls")
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let condition = |index, operator, value: u64| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = super::calls::ALLOWED
        .iter()
        .chain(super::calls::OF_ARCHITECTURE)
        .map(|number| (*number, Vec::new()))
        .collect();
    // No namespaces of its own. `clone3` hides its flags, so it is not there, and libraries use `clone`.
    let spaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    let no_spaces = condition(0, SeccompCmpOp::MaskedEq(spaces as u32 as u64), 0)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![no_spaces])?]);
    // Families that a network namespace does not hold, such as VSOCK, and rarely used ones.
    let mut families = Vec::new();
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        let is_family = condition(0, SeccompCmpOp::Eq, family as u64)?;
        families.push(SeccompRule::new(vec![is_family])?);
    }
    rules.insert(libc::SYS_socket, families.clone());
    rules.insert(libc::SYS_socketpair, families);
    // Nothing is typed into a terminal.
    let not = |request: u64| condition(1, SeccompCmpOp::Ne, request);
    let quiet = vec![not(TIOCSTI)?, not(TIOCLINUX)?];
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(quiet)?]);
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        architecture,
    )?
    .try_into()
}

/// `asm-generic/ioctls.h`; libc has no name for the second, and its type of the first is the C library's.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
