//! Whether the kernel killed a process because memory ran out: by the counters of its cgroup, else by the kernel's log.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Kills for lack of memory in this process's cgroup so far, where the kernel counts them.
pub(super) fn memory_kills() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    for path in counters(&own, Path::new("/sys/fs/cgroup")) {
        if let Some(count) = fs::read_to_string(path).ok().and_then(|text| count(&text)) {
            return Some(count);
        }
    }
    None
}

/// The files that may hold the count, for the cgroups of both versions.
fn counters(own: &str, root: &Path) -> Vec<PathBuf> {
    own.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let path = path.trim_start_matches('/');
            if controllers.is_empty() {
                return Some(root.join(path).join("memory.events"));
            }
            controllers
                .split(',')
                .any(|name| name == "memory")
                .then(|| root.join("memory").join(path).join("memory.oom_control"))
        })
        .collect()
}

/// `oom_kill 3`, a line of either file.
fn count(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Whether the kernel's log, where it may be read, says that this process was killed for lack of memory.
pub(super) fn log_says_out_of_memory(pid: u32) -> bool {
    let Ok(mut log) = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open("/dev/kmsg")
    else {
        return false;
    };
    let mut record = [0; 8192];
    // One record a read; an error is the end, or a record that was overwritten meanwhile.
    let mut overwritten = 0;
    loop {
        match log.read(&mut record) {
            Ok(0) => return false,
            Ok(count) => {
                if is_kill_of(&String::from_utf8_lossy(&record[..count]), pid) {
                    return true;
                }
            }
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {
                overwritten += 1;
                if overwritten > 1000 {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}

fn is_kill_of(record: &str, pid: u32) -> bool {
    let text = record.to_lowercase();
    let is_memory = text.contains("out of memory") || text.contains("oom-kill");
    is_memory
        && (text.contains(&format!("killed process {pid} "))
            || text.contains(&format!("pid={pid},")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found_for_both_versions_of_cgroups() {
        let both = "9:name=systemd:/\n4:memory,hugetlb:/user/x\n0::/user.slice/a b\n";
        assert_eq!(
            counters(both, Path::new("/c")),
            [
                Path::new("/c/memory/user/x/memory.oom_control"),
                Path::new("/c/user.slice/a b/memory.events"),
            ]
        );
        assert_eq!(count("low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\n"), Some(2));
        assert_eq!(
            count("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"),
            Some(7)
        );
        assert_eq!(count("oom_kill_disable 0\n"), None);
    }

    #[test]
    fn the_kernel_s_words_name_the_process() {
        let kill = "3,1,2,-;Out of memory: Killed process 4711 (lathe-trainer) total-vm:9kB";
        assert!(is_kill_of(kill, 4711));
        assert!(!is_kill_of(kill, 471));
        let group =
            "6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=x,pid=99,uid=0";
        assert!(is_kill_of(group, 99));
        assert!(!is_kill_of("6,1,2,-;eth0: killed process 99 ", 99));
    }
}
