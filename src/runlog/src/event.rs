//! The event: one line of `events.jsonl`. Everything that shows a run folds these and nothing else.

use serde::{Deserialize, Serialize};

use crate::number::{Number, Values};

/// One thing that happened. Order is `seq`; time is data and never read from a clock downstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts from 0 in each run, without gaps.
    pub seq: u64,
    /// Milliseconds since the run started (monotonic clock of the trainer).
    pub elapsed_ms: f64,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What the trainer is doing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Loading model, tokenizer and data.
    Setup,
    /// Supervised warm-up.
    Sft,
    /// Reinforcement learning steps.
    Train,
    /// Waiting for the last evaluation, writing the last checkpoint.
    Finish,
}

/// Where time goes. Each lane is a row of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    Generate,
    Tool,
    Reward,
    OldLogProb,
    Ref,
    Value,
    ActorUpdate,
    CriticUpdate,
    WeightSync,
    Eval,
    Checkpoint,
    /// The learner waits for rollouts (the bubble that overlap is meant to remove).
    WaitRollouts,
    /// The generator waits for the learner (the staleness bound is reached).
    WaitLearner,
}

/// How the run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Every step was trained.
    Completed,
    /// Stopped on request, with a checkpoint.
    Stopped,
    /// Ended by an error; `reason` says which.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Debug,
    Info,
    Warning,
    Error,
}

/// One GPU, one moment (NVML).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuSample {
    pub index: u32,
    pub name: String,
    pub utilization_percent: f64,
    pub memory_used_bytes: u64,
    pub memory_total_bytes: u64,
    pub power_watts: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    RunStarted {
        experiment_name: String,
        /// `sync`, `one_step_off`; `sft` for a supervised run.
        mode: String,
        total_steps: u64,
        /// Parameters of the actor.
        parameters: u64,
        pid: u32,
        host: String,
        seed: u64,
    },
    PhaseChanged {
        phase: Phase,
    },
    /// One sampled completion (a whole dialogue) reached its end.
    RolloutEnded {
        /// The training batch it is for; counts from 1 as steps do.
        step: u64,
        /// Group: every sample of one prompt has the same.
        uid: String,
        sample: u32,
        policy_version_min: u64,
        policy_version_max: u64,
        turns: u32,
        tool_calls: u32,
        response_tokens: u32,
        /// None: the scorer failed, so the score is missing (never 0).
        score: Option<Number>,
        /// `stop`, `length`, `turn_limit`, `deadline`, `aborted`, `error`.
        finish: String,
    },
    /// One optimizer step over one batch; `values` by metric name.
    StepEnded {
        step: u64,
        /// Version of the weights after this step.
        policy_version: u64,
        values: Values,
    },
    Span {
        lane: Lane,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<u64>,
        start_ms: f64,
        end_ms: f64,
    },
    WeightsSynced {
        version: u64,
        bytes: u64,
        /// Time during which no token could be generated.
        blocked_ms: f64,
        transfer_ms: f64,
        /// From the end of the optimizer step to the first moment the new weights generate.
        total_ms: f64,
        /// Hash over every tensor, as the learner sent it; hexadecimal.
        sent_fingerprint: String,
        /// The same as the rollout side holds it.
        received_fingerprint: String,
        /// Largest |log-prob difference| on the canary prompt between learner and rollout weights, nats.
        canary_max_diff_nats: Number,
        verified: bool,
    },
    EvalEnded {
        step: u64,
        policy_version: u64,
        samples: u64,
        values: Values,
    },
    CheckpointSaved {
        step: u64,
        /// Relative to the run directory.
        path: String,
        bytes: u64,
        save_ms: f64,
    },
    /// Once a second.
    HostSampled {
        /// Of the whole machine, 0..100.
        cpu_percent: f64,
        memory_used_bytes: u64,
        memory_total_bytes: u64,
        /// Resident set of the trainer.
        process_memory_bytes: u64,
        /// CPU of the trainer, 100 = one core.
        process_cpu_percent: f64,
        gpus: Vec<GpuSample>,
    },
    /// A thing a researcher must know: all-equal groups, skipped non-finite step, failing scorer.
    Alarm {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<u64>,
        message: String,
    },
    LogLine {
        level: Level,
        target: String,
        message: String,
    },
    RunEnded {
        status: RunStatus,
        exit_code: i32,
        reason: String,
        steps: u64,
    },
    /// An event of a newer version; kept in `seq` order, shown by none.
    #[serde(other)]
    Unknown,
}
