//! The event: one line of `events.jsonl`. Everything that shows a run folds these and nothing else.
//!
//! Forward compatible: an event of a newer version reads as [`EventKind::Unknown`], a newer lane, phase, level or ending
//! as `Other`, a newer field is ignored. Floats may be non-finite; they are written as [`Number`] writes them.

use serde::{Deserialize, Serialize};

use crate::number::{self, Number, Values};

/// One thing that happened. Order is `seq`; time is data and never read from a clock downstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts from 0 in each run, without gaps.
    pub seq: u64,
    /// Milliseconds since the run started (monotonic clock of the trainer).
    #[serde(with = "number::float")]
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
    /// A phase of a newer version.
    #[serde(other)]
    Other,
}

impl Phase {
    /// The name as it stands in `events.jsonl`: `train`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Sft => "sft",
            Self::Train => "train",
            Self::Finish => "finish",
            Self::Other => "other",
        }
    }
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
    /// The learner was told to pause.
    Paused,
    /// A lane of a newer version.
    #[serde(other)]
    Other,
}

impl Lane {
    /// Every lane this version knows, in the order a timeline shows them.
    pub const ALL: [Self; 14] = [
        Self::Generate,
        Self::Tool,
        Self::Reward,
        Self::OldLogProb,
        Self::Ref,
        Self::Value,
        Self::ActorUpdate,
        Self::CriticUpdate,
        Self::WeightSync,
        Self::Eval,
        Self::Checkpoint,
        Self::WaitRollouts,
        Self::WaitLearner,
        Self::Paused,
    ];

    /// The name as it stands in `events.jsonl`: `actor_update`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Generate => "generate",
            Self::Tool => "tool",
            Self::Reward => "reward",
            Self::OldLogProb => "old_log_prob",
            Self::Ref => "ref",
            Self::Value => "value",
            Self::ActorUpdate => "actor_update",
            Self::CriticUpdate => "critic_update",
            Self::WeightSync => "weight_sync",
            Self::Eval => "eval",
            Self::Checkpoint => "checkpoint",
            Self::WaitRollouts => "wait_rollouts",
            Self::WaitLearner => "wait_learner",
            Self::Paused => "paused",
            Self::Other => "other",
        }
    }

    /// True: the learner works in this lane (forward or backward passes over a batch).
    pub fn is_learner_work(self) -> bool {
        matches!(
            self,
            Self::OldLogProb | Self::Ref | Self::Value | Self::ActorUpdate | Self::CriticUpdate
        )
    }
}

/// How the run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Every step was trained.
    #[serde(rename = "finished", alias = "completed")]
    Completed,
    /// Stopped on request, with a checkpoint.
    Stopped,
    /// Ended by an error; `reason` says which.
    Failed,
    /// An ending of a newer version.
    #[serde(other)]
    Other,
}

impl RunStatus {
    /// The one word for it, on screens, in JSON and in the log: `finished`, `stopped`, `failed`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Completed => "finished",
            Self::Stopped => "stopped",
            Self::Failed | Self::Other => "failed",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Debug,
    Info,
    Warning,
    Error,
    /// A level of a newer version.
    #[serde(other)]
    Other,
}

/// One GPU, one moment (NVML).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuSample {
    pub index: u32,
    pub name: String,
    #[serde(with = "number::float")]
    pub utilization_percent: f64,
    pub memory_used_bytes: u64,
    pub memory_total_bytes: u64,
    #[serde(with = "number::float")]
    pub power_watts: f64,
}

/// One guard of `trainer.guards`, in the experiment's words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GuardArmed {
    pub name: String,
    /// The metric (or patterns of such) or `alarm NAME`.
    pub watches: String,
    /// `above 0.02`; with `for 3 values in a row` where one value is not enough.
    pub condition: String,
    /// Rung by rung.
    pub ladder: Vec<String>,
    /// A resumed run: the last step in which it does not trip again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cools_until: Option<u64>,
    /// A resumed run: it is muted, until this step or until it is unmuted.
    #[serde(default)]
    pub is_muted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub muted_until: Option<u64>,
}

/// One action of a guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardDone {
    /// As the experiment says it: `sync 3`.
    pub action: String,
    pub before: String,
    /// What stands now, or why it was not done.
    pub after: String,
    pub is_done: bool,
}

/// One arm of the bandit, after an update. What is None is written, too: the sealed state keeps arms in a format without names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BanditArm {
    pub name: String,
    /// Outcomes in its statistics, time-outs among them.
    pub counted: u64,
    pub timed_out: u64,
    /// Outcomes that never came; they count for nothing.
    pub missing: u64,
    /// What is believed of its value; None while nothing is known.
    #[serde(default)]
    pub mean: Option<Number>,
    /// How unsure that is: standard deviation of the posterior, or standard error of the mean.
    #[serde(default)]
    pub sd: Option<Number>,
    /// Probability that it is chosen next, 0..1; None for a policy that does not draw.
    #[serde(default)]
    pub chance: Option<Number>,
    pub is_frozen: bool,
    pub is_forced: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    RunStarted {
        experiment_name: String,
        /// `sync`, `one_step_off`, `async`; `sft` for a supervised run.
        mode: String,
        total_steps: u64,
        /// Parameters of the actor.
        parameters: u64,
        pid: u32,
        host: String,
        seed: u64,
    },
    /// The run goes on in its own directory, after `RunStarted` and before any step. Whatever the log says of later steps than
    /// `from_step` is superseded: those steps are trained again.
    RunResumed {
        /// Steps trained in the weights that it goes on from.
        from_step: u64,
        /// Relative to the run directory; None: there was no checkpoint yet, so it begins anew.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint: Option<String>,
        /// Steps that had ended after that, and are trained again.
        lost_steps: u64,
        /// Newer checkpoints that are broken, each with what is wrong.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        passed_over: Vec<String>,
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
        /// Of the weights that drew its first and its last token; both 0 where none was drawn.
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
        #[serde(with = "number::float")]
        start_ms: f64,
        #[serde(with = "number::float")]
        end_ms: f64,
    },
    WeightsSynced {
        version: u64,
        bytes: u64,
        /// Time during which no token could be generated.
        #[serde(with = "number::float")]
        blocked_ms: f64,
        #[serde(with = "number::float")]
        transfer_ms: f64,
        /// From the end of the optimizer step to the first moment the new weights generate.
        #[serde(with = "number::float")]
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
        /// From the decision to the renamed directory.
        #[serde(with = "number::float")]
        save_ms: f64,
        /// Of that, how long the learner stood still. 0 in logs of older versions.
        #[serde(default, with = "number::float")]
        blocked_ms: f64,
    },
    /// Once a second.
    HostSampled {
        /// Of the whole machine, 0..100.
        #[serde(with = "number::float")]
        cpu_percent: f64,
        memory_used_bytes: u64,
        memory_total_bytes: u64,
        /// Resident set of the trainer.
        process_memory_bytes: u64,
        /// CPU of the trainer, 100 = one core.
        #[serde(with = "number::float")]
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
    /// Somebody changed the running run; see [`crate::control`].
    ControlApplied {
        /// The client's own number of the request.
        request: u64,
        /// `ana@laptop via lathe ctl`
        who: String,
        /// `pause`, `resume`, `step`, `checkpoint`, `stop`, `set`, `mode`, `trip`, `clear`, `mute`, `unmute`, `roll_back`,
        /// `arm_force`, `arm_release`, `arm_freeze`, `arm_unfreeze`
        command: String,
        /// Steps trained at that moment.
        step: u64,
        /// The guard, the arm, the checkpoint or the mode that it is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
        /// `mode`, `roll_back` and what is done with a guard or an arm: what stood before, and what stands now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// `mute` for a number of steps: the last of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_step: Option<u64>,
        /// `set`: the experiment's key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        knob: Option<String>,
        /// `set`: the value before, and now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Number>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<Number>,
        /// `set`, `mode`, what is done with an arm: the first step that is trained with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_step: Option<u64>,
    },
    /// A command that the run could not follow, and why.
    ControlRefused {
        request: u64,
        who: String,
        command: String,
        step: u64,
        /// The guard, the arm, the checkpoint or the mode that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        knob: Option<String>,
        /// `set`: the value that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<Number>,
        reason: String,
    },
    /// What watches the run from here on; once a start.
    GuardsArmed {
        guards: Vec<GuardArmed>,
    },
    /// A guard of `trainer.guards` saw something wrong and did something about it.
    GuardTripped {
        guard: String,
        /// The metric (or pattern of such) or the alarm that it watches.
        watched: String,
        /// Steps trained at that moment.
        step: u64,
        /// The first bad value.
        since_step: u64,
        value: Number,
        limit: Number,
        reason: String,
        /// Trips of this guard before, without a calm between.
        relapse: u64,
        /// In the order in which it was done.
        done: Vec<GuardDone>,
        /// The last step in which it does not trip again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cools_until: Option<u64>,
        /// Who tripped it by hand.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The bandit of `reward.bandit` chose what scores a rollout.
    BanditChose {
        /// Counts from 0 in the bandit's life.
        pull: u64,
        /// The training batch it is for, and which sample, as in `RolloutEnded`.
        step: u64,
        uid: String,
        sample: u32,
        /// None: all arms, blended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arm: Option<String>,
        /// `first_round`, `bound`, `sampled`, `best`, `explored`, `fixed`, `forced`, `only_one`
        why: String,
        /// Probability of this choice, 0..1, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        propensity: Option<Number>,
        /// What the arms were compared by, in their order: upper bounds, draws or means.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scores: Vec<Number>,
    },
    /// The bandit learned from its latest outcomes.
    BanditUpdated {
        /// Counts from 1.
        update: u64,
        /// Steps trained at that moment.
        step: u64,
        /// As the experiment names it.
        policy: String,
        arms: Vec<BanditArm>,
        /// Of `epsilon_greedy`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epsilon: Option<Number>,
        /// Estimated regret so far, in the unit of the values.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        regret: Option<Number>,
        /// How differently arms order the same rollouts: 0 the same, ½ by chance, 1 the opposite.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        disagreement: Option<Number>,
    },
    RunEnded {
        status: RunStatus,
        exit_code: i32,
        reason: String,
        steps: u64,
    },
    /// An event of a newer version; keeps its place in `seq` order, shown by none.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::any_events;

    /// Debug text tells NaN from NaN-less and -0 from 0; equality of plain floats does not hold for NaN.
    fn text(event: &Event) -> String {
        format!("{event:?}")
    }

    proptest! {
        #[test]
        fn every_event_survives_json(events in any_events(8)) {
            for event in &events {
                let json = serde_json::to_string(event).unwrap();
                prop_assert!(!json.contains('\n'));
                let back: Event = serde_json::from_str(&json).unwrap();
                prop_assert_eq!(text(&back), text(event), "{}", json);
            }
        }
    }

    #[test]
    fn what_a_newer_version_writes_reads_as_unknown_or_other() {
        let event: Event = serde_json::from_str(
            r#"{"seq":7,"elapsed_ms":1,"event":"feedback_received","labels":[{"name":"a","mean":0.5}]}"#,
        )
        .unwrap();
        assert_eq!((event.seq, event.kind), (7, EventKind::Unknown));
        let event: Event = serde_json::from_str(
            r#"{"seq":8,"elapsed_ms":1.5,"event":"span","lane":"all_reduce","name":"x","start_ms":1,"end_ms":2,"rank":3}"#,
        )
        .unwrap();
        assert!(matches!(
            event.kind,
            EventKind::Span {
                lane: Lane::Other,
                step: None,
                ..
            }
        ));
    }

    #[test]
    fn an_end_is_called_by_its_word_and_by_the_one_of_older_logs() {
        for status in [RunStatus::Completed, RunStatus::Stopped, RunStatus::Failed] {
            assert_eq!(serde_json::to_value(status).unwrap(), status.word());
        }
        let older: RunStatus = serde_json::from_str(r#""completed""#).unwrap();
        assert_eq!(older, RunStatus::Completed);
    }

    #[test]
    fn names_of_lanes_and_phases_are_those_in_the_log() {
        for lane in Lane::ALL {
            assert_eq!(serde_json::to_value(lane).unwrap(), lane.name());
        }
        for phase in [
            Phase::Setup,
            Phase::Sft,
            Phase::Train,
            Phase::Finish,
            Phase::Other,
        ] {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.name());
        }
    }
}
