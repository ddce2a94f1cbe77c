//! What the kernel says of this process: processor time, peak memory; and how busy the machine is.

use std::fs;

/// User plus system seconds of all threads of this process, ended ones too. In steps of 10 ms.
pub fn cpu_s() -> f64 {
    // USER_HZ, part of Linux' interface on x86-64 and Arm.
    const TICKS_PER_S: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    // The name, field 2, may hold anything but ends with the last parenthesis; utime and stime are fields 14 and 15.
    let (_, rest) = stat.rsplit_once(')').expect("the name is in parentheses");
    let ticks: f64 = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<f64>().expect("a number of ticks"))
        .sum();
    ticks / TICKS_PER_S
}

/// Most memory this process ever held, MiB.
pub fn peak_rss_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let kib: f64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|value| value.trim().strip_suffix(" kB"))
        .and_then(|value| value.parse().ok())
        .expect("the kernel counts peak memory in kB");
    kib / 1024.0
}

/// Of the last minute.
pub fn load_average() -> String {
    fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split(' ').next().map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned())
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
