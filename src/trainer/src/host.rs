//! The machine under the run, once a second: CPU, memory and, where NVML answers, each GPU. No NVML is not an error.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use nvml_wrapper::Nvml;
use runlog::event::{EventKind, GpuSample};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

const PERIOD: Duration = Duration::from_secs(1);

/// Samples until dropped, then joins its thread.
#[derive(Debug)]
pub struct HostSampler {
    // Dropping the sender wakes the thread; nothing is ever sent.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HostSampler {
    /// Calls `record` with one [`EventKind::HostSampled`] a second.
    pub fn start(record: impl Fn(EventKind) + Send + 'static) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("host-sampler".to_owned())
            .spawn(move || {
                let mut host = Host::new();
                // The first reading of a CPU counter has nothing to compare with, so it is not recorded.
                host.sample();
                while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    record(host.sample());
                }
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for HostSampler {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A sampler that panicked has nothing to say that the run depends on.
            drop(thread.join());
        }
    }
}

struct Host {
    system: System,
    pid: Pid,
    nvml: Option<Nvml>,
}

impl Host {
    fn new() -> Self {
        Self {
            system: System::new(),
            pid: Pid::from_u32(std::process::id()),
            nvml: Nvml::init().ok(),
        }
    }

    fn sample(&mut self) -> EventKind {
        self.system.refresh_cpu_usage();
        self.system.refresh_memory();
        self.system.refresh_processes_specifics(
            ProcessesToUpdate::Some(&[self.pid]),
            false,
            ProcessRefreshKind::nothing().with_cpu().with_memory(),
        );
        let process = self.system.process(self.pid);
        EventKind::HostSampled {
            cpu_percent: f64::from(self.system.global_cpu_usage()),
            memory_used_bytes: self.system.used_memory(),
            memory_total_bytes: self.system.total_memory(),
            process_memory_bytes: process.map_or(0, sysinfo::Process::memory),
            process_cpu_percent: process.map_or(0.0, |process| f64::from(process.cpu_usage())),
            gpus: self.nvml.as_ref().map(gpu_samples).unwrap_or_default(),
        }
    }
}

/// Every GPU that answers; a GPU that falls off the bus is left out of this sample rather than ending the run.
fn gpu_samples(nvml: &Nvml) -> Vec<GpuSample> {
    (0..nvml.device_count().unwrap_or(0))
        .filter_map(|index| {
            let device = nvml.device_by_index(index).ok()?;
            let memory = device.memory_info().ok()?;
            Some(GpuSample {
                index,
                name: device.name().unwrap_or_default(),
                utilization_percent: f64::from(device.utilization_rates().ok()?.gpu),
                memory_used_bytes: memory.used,
                memory_total_bytes: memory.total,
                power_watts: device
                    .power_usage()
                    .map_or(0.0, |milliwatts| f64::from(milliwatts) / 1000.0),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_names_this_machine_s_memory_and_the_trainer_s_own() {
        let (send, samples) = mpsc::channel();
        let sampler = HostSampler::start(move |kind| drop(send.send(kind))).expect("a thread");
        let sample = samples
            .recv_timeout(Duration::from_secs(60))
            .expect("one sample a second");
        drop(sampler);
        let EventKind::HostSampled {
            memory_used_bytes,
            memory_total_bytes,
            process_memory_bytes,
            cpu_percent,
            ..
        } = sample
        else {
            panic!("not a host sample: {sample:?}")
        };
        assert!(memory_used_bytes > 0 && memory_used_bytes <= memory_total_bytes);
        assert!(process_memory_bytes > 0 && process_memory_bytes <= memory_total_bytes);
        assert!((0.0..=100.0).contains(&cpu_percent));
        assert!(
            samples.recv().is_err(),
            "dropping the sampler ends its thread"
        );
    }
}
