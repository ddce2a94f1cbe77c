//! What the kernel says of this process: processor time and peak memory.

use std::fs;

/// Seconds of the calling process' main thread, to the nanosecond; everything measured here runs on it.
pub fn cpu_s() -> f64 {
    // The kernel adds up at ticks, 4 ms apart, and whenever a thread gives way.
    std::thread::yield_now();
    let schedstat = fs::read_to_string("/proc/self/schedstat").expect("Linux has /proc");
    let nanoseconds: f64 = schedstat
        .split_whitespace()
        .next()
        .and_then(|field| field.parse().ok())
        .expect("time on the processor comes first");
    nanoseconds / 1e9
}

/// Most memory this process ever held, MB (a million bytes).
pub fn peak_rss_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let kib: f64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|value| value.trim().strip_suffix(" kB"))
        .and_then(|value| value.parse().ok())
        .expect("the kernel counts peak memory in kB");
    kib * 1024.0 / 1e6
}
