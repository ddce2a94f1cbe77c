//! Which GPUs there are, who uses them, and how a run takes free ones for as long as it lives.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use super::Folder;
use crate::wire::{Gpu, GpuProcess, Gpus};

/// A GPU that shows no process and more memory than this in use serves somebody whom we may not see (a container).
const IDLE_MIB: u64 = 600;

/// A lock that the kernel frees when its holder dies; the file says who holds it.
#[derive(Debug)]
pub(super) struct Held {
    _file: File,
}

/// Takes the lock of a file, made if need be. None: somebody holds it.
pub(super) fn try_hold(path: &Path, holder: &str) -> io::Result<Option<Held>> {
    loop {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        // Somebody may have removed it between the two.
        let is_same = std::fs::metadata(path)
            .is_ok_and(|found| file.metadata().is_ok_and(|ours| ours.ino() == found.ino()));
        if !is_same {
            continue;
        }
        // On a full disk the lock holds all the same; only its holder's name is missing.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(holder.as_bytes()));
        return Ok(Some(Held { _file: file }));
    }
}

/// Who holds a lock; None: nobody.
pub(super) fn holder(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut name = String::new();
            file.read_to_string(&mut name).ok()?;
            Some(name)
        }
        _ => None,
    }
}

fn smi(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("nvidia-smi")
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "no nvidia-smi: no NVIDIA driver is installed".to_owned(),
            _ => format!("nvidia-smi cannot be started: {error}"),
        })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let said = if text.trim().is_empty() {
        String::from_utf8_lossy(&output.stderr).into_owned()
    } else {
        text
    };
    Err(format!(
        "nvidia-smi failed: {}",
        said.lines().next().unwrap_or("").trim()
    ))
}

/// Every GPU with its processes, as nvidia-smi tells; `Err`: why it does not.
pub(super) fn all(folder: &Folder) -> Result<Vec<Gpu>, String> {
    let list = smi(&[
        "--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu",
        "--format=csv,noheader,nounits",
    ])?;
    let processes = smi(&[
        "--query-compute-apps=gpu_uuid,pid,used_memory,process_name",
        "--format=csv,noheader,nounits",
    ])
    .unwrap_or_default();
    let mut gpus = parse(&list, &processes);
    for gpu in &mut gpus {
        gpu.held_by = holder(&folder.path().join("gpus").join(&gpu.uuid));
        for process in &mut gpu.processes {
            process.user = user_of(process.pid).unwrap_or_default();
        }
    }
    Ok(gpus)
}

fn parse(list: &str, processes: &str) -> Vec<Gpu> {
    let mut by_uuid: BTreeMap<String, Vec<GpuProcess>> = BTreeMap::new();
    for line in processes.lines() {
        let mut fields = line.splitn(4, ',').map(str::trim);
        let (Some(uuid), Some(pid)) = (fields.next(), fields.next()) else {
            continue;
        };
        let Ok(pid) = pid.parse() else { continue };
        by_uuid
            .entry(uuid.to_owned())
            .or_default()
            .push(GpuProcess {
                pid,
                user: String::new(),
                used_mib: fields
                    .next()
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0),
                name: fields.next().unwrap_or("").to_owned(),
            });
    }
    list.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let [index, uuid, name, total, used, busy, ..] = fields[..] else {
                return None;
            };
            // A lock's file is named by it.
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if uuid.is_empty() || !uuid.chars().all(is_plain) {
                return None;
            }
            Some(Gpu {
                index: index.parse().ok()?,
                uuid: uuid.to_owned(),
                name: name.to_owned(),
                memory_mib: total.parse().unwrap_or(0),
                used_mib: used.parse().unwrap_or(0),
                busy_percent: busy.parse().ok(),
                processes: by_uuid.remove(uuid).unwrap_or_default(),
                held_by: None,
            })
        })
        .collect()
}

fn user_of(pid: u32) -> Option<String> {
    let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let names = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = names.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    Some(name.unwrap_or_else(|| format!("user {uid}")))
}

/// Nobody uses it, as far as can be seen.
pub(super) fn is_idle(gpu: &Gpu) -> bool {
    gpu.processes.is_empty() && gpu.used_mib <= IDLE_MIB
}

/// What a run got.
#[derive(Debug)]
pub(super) struct Taken {
    /// For `CUDA_VISIBLE_DEVICES`; None: as the environment says.
    pub visible: Option<String>,
    pub indices: Vec<u32>,
    /// Held until the run is over.
    pub locks: Vec<Held>,
}

/// Takes what is wanted. `Ok(Err(why))`: not now, because of that; `Err`: never.
pub(super) fn take(
    folder: &Folder,
    wanted: &Gpus,
    run: &str,
) -> Result<Result<Taken, String>, String> {
    let nothing = |visible: Option<&str>| Taken {
        visible: visible.map(str::to_owned),
        indices: Vec::new(),
        locks: Vec::new(),
    };
    let count = match wanted {
        Gpus::AsIs => return Ok(Ok(nothing(None))),
        Gpus::None => return Ok(Ok(nothing(Some("")))),
        Gpus::Free(count) => *count as usize,
        Gpus::These(these) => these.len(),
    };
    let gpus = match all(folder) {
        Ok(gpus) => gpus,
        // One free GPU is what is wanted where nothing was said: a machine without any trains on its processors.
        Err(_) if *wanted == Gpus::Free(1) => return Ok(Ok(nothing(None))),
        Err(reason) => return Err(reason),
    };
    if gpus.len() < count {
        return Err(format!(
            "{count} GPUs are wanted, and the machine has {}",
            gpus.len()
        ));
    }
    let mut taken = nothing(None);
    let is_wanted = |gpu: &&Gpu| match wanted {
        Gpus::These(these) => these.contains(&gpu.index),
        _ => is_idle(gpu),
    };
    for gpu in gpus.iter().filter(is_wanted) {
        if taken.indices.len() == count {
            break;
        }
        let path = folder.path().join("gpus").join(&gpu.uuid);
        let held = try_hold(&path, run)
            .map_err(|error| format!("cannot use {}: {error}", path.display()))?;
        if let Some(held) = held {
            taken.locks.push(held);
            taken.indices.push(gpu.index);
        }
    }
    if let Gpus::These(these) = wanted
        && let Some(index) = these
            .iter()
            .find(|index| !gpus.iter().any(|gpu| gpu.index == **index))
    {
        return Err(format!("there is no GPU {index} on this machine"));
    }
    if taken.indices.len() < count {
        return Ok(Err(match wanted {
            Gpus::These(these) => format!("for GPU {these:?}, which other runs of ours hold"),
            _ => format!(
                "for {count} free GPU{}: {} of {} are free",
                if count == 1 { "" } else { "s" },
                taken.indices.len(),
                gpus.len()
            ),
        }));
    }
    let visible: Vec<String> = taken.indices.iter().map(ToString::to_string).collect();
    taken.visible = Some(visible.join(","));
    Ok(Ok(taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidia_smi_s_lines_are_read_with_the_processes_of_each_gpu() {
        let gpus = parse(
            "0, GPU-aa-1, NVIDIA H100 80GB HBM3, 81559, 70211, 98\n1, GPU-bb-2, NVIDIA H100 80GB HBM3, 81559, 4, 0\n2, GPU-cc-3, NVIDIA H100, [N/A], [N/A], [N/A]\n",
            "GPU-aa-1, 4711, 70000, /usr/bin/python3, -m x\nGPU-aa-1, x, 1, y\n",
        );
        assert_eq!(gpus.len(), 3);
        assert_eq!(gpus[0].processes.len(), 1);
        assert_eq!(gpus[0].processes[0].name, "/usr/bin/python3, -m x");
        assert_eq!(
            gpus.iter().map(is_idle).collect::<Vec<_>>(),
            [false, true, true]
        );
        assert_eq!(gpus[2].busy_percent, None);
        assert!(parse("0, ../x, a, 1, 1, 1\nnonsense\n", "").is_empty());
    }

    #[test]
    fn a_lock_tells_its_holder_and_is_free_when_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("GPU-1");
        assert_eq!(holder(&path), None);
        let held = try_hold(&path, "run-a").unwrap().unwrap();
        assert!(try_hold(&path, "run-b").unwrap().is_none());
        assert_eq!(holder(&path).as_deref(), Some("run-a"));
        drop(held);
        assert_eq!(holder(&path), None);
        assert!(try_hold(&path, "b").unwrap().is_some());
    }
}
