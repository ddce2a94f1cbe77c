//! What gives a run its machine on a cluster, as the user's file of targets asks for it. Crosses the line.
//!
//! Knows nothing of how a scheduler is spoken to: that is `far::cluster`, beside the scheduler.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How long before the end of its time a job is told, so that it can save a checkpoint.
pub const WARNING_S: u32 = 120;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Scheduler {
    Slurm(Slurm),
    Ray(Ray),
}

impl Scheduler {
    /// As people write it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Slurm(_) => "Slurm",
            Self::Ray(_) => "Ray",
        }
    }
}

/// When a job goes into the queue again, and its run goes on from its newest checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requeue {
    /// Another job took its place, or its node failed.
    #[default]
    Preempted,
    /// Also at the end of its time.
    Always,
    Never,
}

/// What a job asks Slurm for; None: as the cluster has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slurm {
    pub partition: Option<String>,
    pub account: Option<String>,
    pub qos: Option<String>,
    /// As sbatch takes it: `2-12`, `8:00:00`, minutes.
    pub time: Option<String>,
    pub cpus: Option<u32>,
    /// As sbatch takes it: `64G`.
    pub memory: Option<String>,
    /// Of the GPUs: `a100`.
    pub gpu_type: Option<String>,
    pub constraint: Option<String>,
    pub requeue: Requeue,
    pub warning_s: u32,
    /// Further options of sbatch, each a word.
    pub options: Vec<String>,
    /// Lines of bash before the run's: `module load cuda`.
    pub before: Vec<String>,
}

impl Default for Slurm {
    fn default() -> Self {
        Self {
            partition: None,
            account: None,
            qos: None,
            time: None,
            cpus: None,
            memory: None,
            gpu_type: None,
            constraint: None,
            requeue: Requeue::default(),
            warning_s: WARNING_S,
            options: Vec::new(),
            before: Vec::new(),
        }
    }
}

/// Where Ray's Jobs API is, and what the process that watches over a run takes there. Its token is not part of it: that goes in
/// memory only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ray {
    /// `http://127.0.0.1:8265`, as seen from where lathe speaks to it.
    pub address: String,
    pub cpus: Option<u32>,
    pub memory_bytes: Option<u64>,
    /// Ray's own resources, by name.
    pub resources: BTreeMap<String, u32>,
}

/// Where a head node has its API by default.
pub const RAY_ADDRESS: &str = "http://127.0.0.1:8265";

impl Default for Ray {
    fn default() -> Self {
        Self {
            address: RAY_ADDRESS.to_owned(),
            cpus: None,
            memory_bytes: None,
            resources: BTreeMap::new(),
        }
    }
}

/// What `lathe doctor` learns of a scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClusterFacts {
    /// `slurm-wlm 22.05.8`, `Ray 2.60.0`.
    pub version: Option<String>,
    /// Why it cannot be used, and what to do.
    pub problem: Option<String>,
    pub parts: Vec<PartFacts>,
    /// Where the end of a job can be read later; None: nowhere.
    pub history: Option<String>,
}

/// A partition of Slurm, or Ray's whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PartFacts {
    pub name: String,
    pub is_default: bool,
    pub is_up: bool,
    pub time_limit: Option<String>,
    pub nodes: u32,
    pub idle_nodes: u32,
    /// Drained, down or failing.
    pub unusable_nodes: u32,
    pub gpus: u32,
    pub used_gpus: u32,
    pub cpus: u32,
    pub used_cpus: u32,
}
