//! What there is on this machine, for `lathe doctor`. Nothing here changes anything.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use runlog::disk;
use runlog::run_dir::{self, Standing, host_name};
use runlog::state::{Liveness, glance};

use super::session::{self, Keeping};
use super::{Folder, Here, first_line, gpus, now_ms, own_program, runs, store};
use crate::targets::DEFAULT_FOLDER;
use crate::wire::{Facts, PROTOCOL, RunThere, TrainerFacts};

pub(super) fn facts(
    folder: &Folder,
    here: Here,
    tries_trainer: bool,
    trainer: Option<&str>,
    libraries: Option<&str>,
) -> Facts {
    let (gpus, gpus_problem) = match gpus::all(folder) {
        Ok(gpus) => (gpus, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    let (program, program_hash) = own_program();
    let keeping = session::keeping();
    let disk = rustix::fs::statvfs(folder.path()).ok();
    let mut running = runs(folder);
    running.retain(|run| matches!(run.standing, Standing::Running | Standing::Queued { .. }));
    Facts {
        version: here.version.to_owned(),
        protocol: PROTOCOL,
        is_built_there: Path::new(&program).with_file_name(store::BUILT).exists(),
        program,
        program_hash,
        host: host_name(),
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        glibc: glibc(),
        at_ms: now_ms(),
        cores: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
        memory_bytes: memory_bytes(),
        folder: folder.path().display().to_string(),
        free_bytes: disk::free_bytes(folder.path()),
        size_bytes: disk.map(|disk| disk.f_blocks.saturating_mul(disk.f_frsize)),
        gpus,
        gpus_problem,
        trainer: trainer_facts(here, tries_trainer, trainer, libraries),
        has_user_systemd: matches!(keeping, Keeping::Unit { .. }),
        session_problem: (keeping == Keeping::None).then(session::advice),
        running,
    }
}

/// Of the machine that asks: its runs lie in `runs_root`, and no folder of lathe's is made for it.
pub(super) fn of_this_machine(here: Here, runs_root: &Path) -> Facts {
    // Where runs that came over ssh say which GPU they hold.
    let folder = Folder::not_opened(DEFAULT_FOLDER);
    let mut facts = facts(&folder, here, true, None, None);
    let place = runs_root
        .ancestors()
        .find(|path| path.is_dir())
        .unwrap_or(Path::new("."));
    let disk = rustix::fs::statvfs(place).ok();
    facts.folder = runs_root.display().to_string();
    facts.free_bytes = disk::free_bytes(place);
    facts.size_bytes = disk.map(|disk| disk.f_blocks.saturating_mul(disk.f_frsize));
    facts.has_user_systemd = false;
    facts.session_problem = session::local_problem();
    let now = SystemTime::now();
    let (runs, _) = run_dir::list(runs_root).unwrap_or_default();
    facts.running = runs
        .iter()
        .filter(|run| run.origin().is_none())
        .filter(|run| glance(run, now).is_ok_and(|seen| seen.liveness == Liveness::Running))
        .map(|run| RunThere {
            name: run.name().to_owned(),
            standing: Standing::Running,
            exit: None,
        })
        .collect();
    facts
}

fn glibc() -> Option<String> {
    let output = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().strip_prefix("glibc ").map(str::to_owned)
}

fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Where the trainer is: named, or as this program finds it.
pub(super) fn find_trainer(here: Here, named: Option<&str>) -> Result<PathBuf, String> {
    match named {
        Some(named) => {
            let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
            let path = home.join(named);
            if path.is_file() {
                Ok(path)
            } else {
                Err(format!("{} is not there", path.display()))
            }
        }
        None => (here.find_trainer)(),
    }
}

/// Where the trainer's libraries are, if not where the linker looks: named, or beside it.
pub(super) fn find_libraries(trainer: &Path, named: Option<&str>) -> Option<PathBuf> {
    if let Some(named) = named {
        let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
        return Some(home.join(named));
    }
    let beside = trainer.parent()?.join("lib");
    beside.is_dir().then_some(beside)
}

pub(super) const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// The value of `LD_LIBRARY_PATH` with a folder in front of what it is.
pub(super) fn library_path(libraries: &Path, before: Option<OsString>) -> OsString {
    let mut path = libraries.as_os_str().to_owned();
    if let Some(before) = before.filter(|value| !value.is_empty()) {
        path.push(":");
        path.push(before);
    }
    path
}

fn trainer_facts(
    here: Here,
    tries_trainer: bool,
    named: Option<&str>,
    libraries: Option<&str>,
) -> TrainerFacts {
    let mut facts = TrainerFacts::default();
    let path = match find_trainer(here, named) {
        Ok(path) => path,
        Err(reason) => {
            facts.problem = Some(reason);
            return facts;
        }
    };
    let libraries = find_libraries(&path, libraries);
    facts.path = Some(path.display().to_string());
    facts.libraries = libraries.as_ref().map(|path| path.display().to_string());
    if !tries_trainer {
        return facts;
    }
    let mut command = Command::new(&path);
    command.arg("--version").stdin(Stdio::null());
    if let Some(libraries) = &libraries {
        let before = std::env::var_os(LIBRARY_PATH);
        command.env(LIBRARY_PATH, library_path(libraries, before));
    }
    match command.output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            facts.version = Some(
                text.strip_prefix("lathe-trainer ")
                    .unwrap_or(&text)
                    .to_owned(),
            );
            facts.libtorch = libtorch_version(&path, libraries.as_deref());
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().next().unwrap_or("it said nothing").to_owned();
            facts.problem = Some(format!("it does not start: {line}"));
        }
        Err(error) => facts.problem = Some(format!("it cannot be started: {error}")),
    }
    facts
}

/// From `build-version`, which libtorch's archives have beside `lib`, or `version.py` of `PyTorch`.
fn libtorch_version(trainer: &Path, libraries: Option<&Path>) -> Option<String> {
    let from_linker = || {
        let output = Command::new("ldd")
            .arg(trainer)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains("libtorch_cpu.so"))?;
        let path = line.split("=>").nth(1)?.split_whitespace().next()?;
        Some(Path::new(path).parent()?.to_owned())
    };
    let folder = libraries
        .filter(|folder| folder.join("libtorch_cpu.so").exists())
        .map(Path::to_owned)
        .or_else(from_linker)?;
    let from_python = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join("version.py")).ok()?;
        let line = text.lines().find(|line| line.starts_with("__version__"))?;
        Some(line.split('\'').nth(1)?.to_owned())
    };
    [folder.as_path(), folder.parent()?]
        .into_iter()
        .find_map(|place| first_line(&place.join("build-version")).or_else(|| from_python(place)))
}
