//! W&B's system metrics, as a sample of a host.

use crate::item::HostSample;

const MIB: f64 = 1_048_576.0;

/// What the keys say of processor, memory and GPUs; and whether there are others (disk, network, …).
pub fn sample(items: &[(String, f64)]) -> (HostSample, bool) {
    let mut sample = HostSample::default();
    let mut has_others = false;
    let mut available_bytes = None;
    let mut memory_percent = None;
    let mut cores = Vec::new();
    for (key, value) in items {
        let key = key.split("/l:").next().unwrap_or(key);
        let parts: Vec<&str> = key.split('.').collect();
        match parts[..] {
            ["cpu"] => sample.process_cpu_percent = Some(*value),
            ["system", "cpu"] => sample.cpu_percent = Some(*value),
            ["cpu", core, "cpu_percent"] if core.parse::<u32>().is_ok() => cores.push(*value),
            ["memory_percent"] => memory_percent = Some(*value),
            ["proc", "memory", "availableMB"] => available_bytes = Some(value * MIB),
            ["proc", "memory", "rssMB"] => sample.process_memory_bytes = Some(value * MIB),
            ["proc", "memory", "percent"] | ["proc", "cpu", "threads"] => {}
            ["gpu", index, what] => match index.parse() {
                Ok(index) => has_others |= !gpu(&mut sample, index, what, *value),
                Err(_) => has_others = true,
            },
            _ => has_others = true,
        }
    }
    if let (Some(available), Some(percent)) = (available_bytes, memory_percent)
        && (0.0..100.0).contains(&percent)
    {
        let total = available / (1.0 - percent / 100.0);
        sample.memory_total_bytes = Some(total);
        sample.memory_used_bytes = Some(total - available);
    }
    if sample.cpu_percent.is_none() && !cores.is_empty() {
        sample.cpu_percent = Some(cores.iter().sum::<f64>() / cores.len() as f64);
    }
    for gpu in &mut sample.gpus {
        // Until here a share of the whole, in percent.
        gpu.memory_total_bytes = match (gpu.memory_used_bytes, gpu.memory_total_bytes) {
            (Some(used), Some(percent)) if percent > 0.0 => Some(used / percent * 100.0),
            _ => None,
        };
    }
    (sample, has_others)
}

/// False: a key of a GPU that has no place in a sample.
fn gpu(sample: &mut HostSample, index: u32, what: &str, value: f64) -> bool {
    let gpu = sample.gpu(index);
    match what {
        "gpu" => gpu.utilization_percent = Some(value),
        "memoryAllocatedBytes" => gpu.memory_used_bytes = Some(value),
        "memoryAllocated" => gpu.memory_total_bytes = Some(value),
        "powerWatts" => gpu.power_watts = Some(value),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_gpu_become_one_sample() {
        let items = [
            ("gpu.1.gpu", 50.0),
            ("gpu.1.memoryAllocatedBytes", 4e9),
            ("gpu.1.memoryAllocated", 25.0),
            ("gpu.1.powerWatts", 300.0),
            ("gpu.1.temp", 40.0),
            ("memory_percent", 75.0),
            ("proc.memory.availableMB", 1024.0),
            ("cpu.0.cpu_percent", 10.0),
            ("cpu.1.cpu_percent", 30.0),
        ]
        .map(|(key, value)| (key.to_owned(), value));
        let (sample, has_others) = sample(&items);
        assert!(has_others);
        assert_eq!(sample.cpu_percent, Some(20.0));
        assert_eq!(sample.memory_total_bytes, Some(4096.0 * MIB));
        let gpu = &sample.gpus[0];
        assert_eq!((gpu.index, gpu.utilization_percent), (1, Some(50.0)));
        assert_eq!(
            (gpu.memory_used_bytes, gpu.memory_total_bytes),
            (Some(4e9), Some(16e9))
        );
    }
}
