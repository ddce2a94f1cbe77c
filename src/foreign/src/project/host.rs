//! A sample of a host, as the event says it: what is not known is NaN, and of memory 0 of 0.

use runlog::event::{EventKind, GpuSample};

use crate::item::HostSample;

pub fn event(sample: HostSample) -> EventKind {
    let bytes = |value: Option<f64>| value.filter(|value| *value >= 0.0).unwrap_or(0.0) as u64;
    let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let mut gpus: Vec<GpuSample> = sample
        .gpus
        .into_iter()
        .map(|gpu| GpuSample {
            index: gpu.index,
            name: String::new(),
            utilization_percent: number(gpu.utilization_percent),
            memory_used_bytes: bytes(gpu.memory_used_bytes),
            memory_total_bytes: bytes(gpu.memory_total_bytes),
            power_watts: number(gpu.power_watts),
        })
        .collect();
    gpus.sort_by_key(|gpu| gpu.index);
    EventKind::HostSampled {
        cpu_percent: number(sample.cpu_percent),
        memory_used_bytes: bytes(sample.memory_used_bytes),
        memory_total_bytes: bytes(sample.memory_total_bytes),
        process_memory_bytes: bytes(sample.process_memory_bytes),
        process_cpu_percent: number(sample.process_cpu_percent),
        gpus,
    }
}
