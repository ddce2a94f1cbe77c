//! The file system of a sandbox: the system's programs and what else may be read, devices without power, a scratch folder.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::pivot_root;

use super::Doing;
use crate::{Arguments, Spec};

/// Programs and libraries; a link stays a link.
const SYSTEM: [&str; 8] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
];
/// What the loader and some programs read; nothing about the machine's users, names or keys.
const SETTINGS: [&str; 4] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// The scratch folder.
pub const SCRATCH: &str = "/tmp";
/// Files of the scratch folder, whatever their size.
const SCRATCH_FILES: u64 = 4096;
/// Where the old root lies while the new one is built.
const OLD: &str = "/.old";

/// Whom a program runs as in a user namespace of its own.
pub const INSIDE_ID: &str = "1000";

const NONE: Option<&str> = None;

/// Makes a new root and leaves the old one. Needs a mount namespace of its own and the right to mount in it.
pub fn build(spec: &Spec) -> Result<(), String> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
        .doing("keep mounts private")?;
    let base = "/tmp";
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("tmpfs"),
        base,
        Some("tmpfs"),
        flags,
        Some("size=1m,mode=755"),
    )
    .doing("mount a new root")?;
    let old = format!("{base}{OLD}");
    fs::create_dir(&old).doing("make a folder for the old root")?;
    pivot_root(base, old.as_str()).doing("change to the new root")?;
    std::env::set_current_dir("/").doing("change to the new root")?;

    for path in SYSTEM.iter().chain(&SETTINGS) {
        show(Path::new(path))?;
    }
    let readable = spec.readable.iter();
    for path in readable.filter(|path| !path.starts_with("/usr") && path.is_absolute()) {
        show(path)?;
    }
    fs::create_dir("/dev").doing("/dev")?;
    for device in DEVICES {
        let path = format!("/dev/{device}");
        File::create(&path).doing(&path)?;
        let from = format!("{OLD}{path}");
        mount(
            Some(from.as_str()),
            path.as_str(),
            NONE,
            MsFlags::MS_BIND,
            NONE,
        )
        .doing(&path)?;
    }
    // For programs that share memory by name.
    symlink(SCRATCH, "/dev/shm").doing("/dev/shm")?;
    fs::create_dir("/proc").doing("/proc")?;
    let proc_flags = flags | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), proc_flags, NONE).doing("mount /proc")?;
    fs::create_dir_all(SCRATCH).doing(SCRATCH)?;
    let options = format!(
        "size={},nr_inodes={SCRATCH_FILES},mode=1777",
        spec.limits.scratch_bytes
    );
    mount(
        Some("tmpfs"),
        SCRATCH,
        Some("tmpfs"),
        flags,
        Some(options.as_str()),
    )
    .doing("mount the scratch folder")?;

    umount2(OLD, MntFlags::MNT_DETACH).doing("leave the old root")?;
    fs::remove_dir(OLD).doing("leave the old root")?;
    let fixed = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | flags;
    mount(NONE, "/", NONE, fixed, NONE).doing("make the root read-only")?;
    std::env::set_current_dir(SCRATCH).doing("enter the scratch folder")
}

/// Makes a path of the old root readable under its name.
fn show(path: &Path) -> Result<(), String> {
    let from = PathBuf::from(format!("{OLD}{}", path.display()));
    let what = path.display().to_string();
    let Ok(kind) = fs::symlink_metadata(&from) else {
        return Ok(());
    };
    // Inside of what is shown already.
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).doing(&what)?;
    }
    if kind.is_symlink() {
        let to = fs::read_link(&from).doing(&what)?;
        return symlink(to, path).doing(&what);
    }
    if kind.is_dir() {
        fs::create_dir(path).doing(&what)?;
    } else {
        File::create(path).doing(&what)?;
    }
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(&from), path, NONE, bind, NONE).doing(&what)?;
    let mut flags = MsFlags::MS_REMOUNT
        | MsFlags::MS_BIND
        | MsFlags::MS_RDONLY
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV;
    // A restriction that the old mount has may not be taken away.
    if statvfs(path).is_ok_and(|facts| facts.flags().contains(FsFlags::ST_NOEXEC)) {
        flags |= MsFlags::MS_NOEXEC;
    }
    mount(NONE, path, NONE, flags, NONE).doing(&what)
}

/// The same by bubblewrap.
pub fn bubblewrap(told: &Arguments) -> Result<Command, String> {
    let helper = std::env::current_exe().doing("find lathe-sandbox")?;
    let mut command = Command::new("bwrap");
    command.args([
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
        "--cap-drop",
        "ALL",
        "--uid",
        INSIDE_ID,
        "--gid",
        INSIDE_ID,
        "--hostname",
        "sandbox",
        "--clearenv",
    ]);
    for path in SYSTEM.iter().chain(&SETTINGS) {
        match fs::symlink_metadata(path) {
            Ok(kind) if kind.is_symlink() => {
                let to = fs::read_link(path).doing(path)?;
                command.arg("--symlink").arg(to).arg(path);
            }
            Ok(_) => {
                command.args(["--ro-bind", path, path]);
            }
            Err(_) => {}
        }
    }
    let readable = told.spec.readable.iter();
    for path in readable.filter(|path| !path.starts_with("/usr") && path.exists()) {
        command.arg("--ro-bind").arg(path).arg(path);
    }
    command.args(["--dev", "/dev", "--remount-ro", "/dev", "--proc", "/proc"]);
    command.args(["--size", &told.spec.limits.scratch_bytes.to_string()]);
    command.args(["--tmpfs", SCRATCH, "--chdir", SCRATCH]);
    let inside = "/.lathe-sandbox";
    command.arg("--ro-bind").arg(helper).arg(inside);
    command.args(["--remount-ro", "/", "--", inside, "inside"]);
    command.arg(serde_json::to_string(told).expect("it was JSON"));
    Ok(command)
}
