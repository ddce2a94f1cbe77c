//! What a reader gives: the things that any tracker knows of a run, in the order of its log.

use runlog::event::{Level, RunStatus};
use serde_json::{Map, Value};

/// When something happened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment {
    /// Seconds since 1970.
    Wall(f64),
    /// Seconds since the run began.
    SinceStart(f64),
}

/// Values of one step. A name occurs once; values may be non-finite.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    pub step: u64,
    pub at: Option<Moment>,
    pub values: Vec<(String, f64)>,
}

/// A machine, one moment. What is not known is None.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostSample {
    /// Of the whole machine, 0..100.
    pub cpu_percent: Option<f64>,
    pub memory_used_bytes: Option<f64>,
    pub memory_total_bytes: Option<f64>,
    pub process_memory_bytes: Option<f64>,
    /// 100 = one core.
    pub process_cpu_percent: Option<f64>,
    pub gpus: Vec<GpuSample>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuSample {
    pub index: u32,
    pub utilization_percent: Option<f64>,
    pub memory_used_bytes: Option<f64>,
    pub memory_total_bytes: Option<f64>,
    pub power_watts: Option<f64>,
}

impl HostSample {
    /// The GPU of that number, made where it is new.
    pub(crate) fn gpu(&mut self, index: u32) -> &mut GpuSample {
        let known = self.gpus.iter().position(|gpu| gpu.index == index);
        let place = known.unwrap_or_else(|| {
            self.gpus.push(GpuSample {
                index,
                ..GpuSample::default()
            });
            self.gpus.len() - 1
        });
        &mut self.gpus[place]
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Row(Row),
    /// What is known of the run beside its log; later ones add to earlier ones.
    About {
        host: Option<String>,
        commit: Option<String>,
        command: Vec<String>,
    },
    /// The run's settings as far as this says them; an object within an object is merged.
    Config(Map<String, Value>),
    /// What was printed: whole lines or pieces, with line ends, `\r` and terminal codes as they came.
    Output {
        text: String,
    },
    Host {
        at: Option<Moment>,
        sample: HostSample,
    },
    Alert {
        at: Option<Moment>,
        title: String,
        text: String,
        /// Info, or worse.
        level: Level,
        step: Option<u64>,
    },
    /// The run goes on from there: what was said of this step and later ones does not count.
    Restart {
        at_step: u64,
    },
    Ended {
        at: Option<Moment>,
        status: RunStatus,
        exit_code: i32,
        reason: String,
    },
    /// Something that was left out or could not be read, where, and why.
    Note(String),
}

/// What one read gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    pub items: Vec<Item>,
    /// There is more right now.
    pub has_more: bool,
}
