//! `trainer` and `sft`: how long, how, where to, and what is kept.

use serde::{Deserialize, Serialize};

use super::Optim;
use crate::guards::Guard;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trainer {
    pub mode: Mode,
    /// Policy versions a batch may lag; 0 is exactly `sync`. None: 0 in `sync`, else 1.
    pub max_staleness: Option<u32>,
    pub total_epochs: u32,
    /// Wins over epochs.
    pub total_training_steps: Option<u64>,
    pub project_name: String,
    pub experiment_name: String,
    pub logger: Vec<LoggerName>,
    pub nnodes: u32,
    pub n_gpus_per_node: u32,
    pub device: Device,
    pub seed: u64,
    /// Intra-op threads of libtorch for learner and engine each.
    pub threads: u32,
    /// Steps between checkpoints; -1: only at the end.
    pub save_freq: i64,
    /// Steps between evaluations; -1: never.
    pub test_freq: i64,
    pub val_before_train: bool,
    pub val_only: bool,
    pub critic_warmup: u64,
    pub max_actor_ckpt_to_keep: Option<u32>,
    /// Of those beyond `max_actor_ckpt_to_keep`: each of a step that is a multiple of this is kept.
    pub ckpt_keep_every: Option<u32>,
    /// And so many with the best `ckpt_best_metric`.
    pub ckpt_keep_best: u32,
    /// Names, `*` for any text; the mean of all that fit.
    pub ckpt_best_metric: String,
    pub resume_mode: ResumeMode,
    /// The checkpoint that `resume_path` starts from.
    pub resume_from_path: Option<String>,
    /// What is watched while the run runs, and what is done when it goes wrong.
    pub guards: Vec<Guard>,
    /// Parquet with a `messages` column whose perplexity under the policy is `probe/perplexity`.
    pub guard_probe_files: Vec<String>,
    /// Dialogues taken of them.
    pub guard_probe_rows: u32,
    /// Steps between two looks at the probe.
    pub guard_probe_freq: u32,
    /// A part of the run that waits longer gives an alarm; None: none does.
    pub wait_alarm_s: Option<f64>,
    /// Keep every sample of every step in `rollouts/`.
    pub record_rollouts: bool,
}

impl Default for Trainer {
    fn default() -> Self {
        Self {
            mode: Mode::OneStepOff,
            max_staleness: None,
            total_epochs: 30,
            total_training_steps: None,
            project_name: "lathe".to_owned(),
            experiment_name: "experiment".to_owned(),
            logger: vec![LoggerName::Console],
            nnodes: 1,
            n_gpus_per_node: 8,
            device: Device::Auto,
            seed: 42,
            threads: 1,
            save_freq: -1,
            test_freq: -1,
            val_before_train: true,
            val_only: false,
            critic_warmup: 0,
            max_actor_ckpt_to_keep: None,
            ckpt_keep_every: None,
            ckpt_keep_best: 0,
            ckpt_best_metric: crate::guards::GOAL.to_owned(),
            resume_mode: ResumeMode::Auto,
            resume_from_path: None,
            guards: Vec::new(),
            guard_probe_files: Vec::new(),
            guard_probe_rows: 64,
            guard_probe_freq: 1,
            wait_alarm_s: Some(3600.0),
            record_rollouts: true,
        }
    }
}

/// Deepest bound of staleness that the async advisor may take, or gives advice about, where nothing is said.
pub const AUTO_STALENESS: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Sync,
    OneStepOff,
    Async,
    /// Begins as `sync`; the async advisor measures, and turns the bound of staleness up to `max_staleness`.
    Auto,
}

/// What a run starts from. Going on in its own directory (`lathe run --resume`) is asked for on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeMode {
    /// The model's weights; a run directory that holds checkpoints of its own goes on from the newest.
    Auto,
    /// The same: a new run has a new directory, so there is nothing to find.
    Disable,
    /// The checkpoint at `resume_from_path`, with its optimizer state and its place in the data.
    ResumePath,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoggerName {
    Console,
    File,
    Tensorboard,
    Wandb,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// CUDA when there is one.
    Auto,
    Cpu,
    Cuda,
}

/// Supervised warm-up on demonstrations (`lathe sft`), not in verl's RL tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sft {
    /// Parquet with a `messages` column; loss on assistant tokens only.
    pub train_files: Vec<String>,
    pub val_files: Vec<String>,
    /// A `config.json` to start from random weights instead of `model.path`'s.
    pub init_config: Option<String>,
    /// Rules whose scores are added to what `lathe reward train` learns, by weights that it learns first.
    pub scorers: Vec<crate::arms::Arm>,
    pub batch_size: u32,
    pub total_training_steps: u64,
    pub optim: Optim,
    /// Where the result goes, in the Hugging Face layout.
    pub output_dir: Option<String>,
}

impl Default for Sft {
    fn default() -> Self {
        Self {
            train_files: Vec::new(),
            val_files: Vec::new(),
            init_config: None,
            scorers: Vec::new(),
            batch_size: 32,
            total_training_steps: 200,
            optim: Optim {
                lr: 1e-3,
                ..Optim::default()
            },
            output_dir: None,
        }
    }
}
