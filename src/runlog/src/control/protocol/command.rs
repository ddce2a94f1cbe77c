//! What a running run can be asked, and the words for it.

use std::fmt;

use crate::control::arms::ArmOrder;
use crate::control::knobs::{self, Knob};
use crate::control::orders::{CheckpointName, GuardOrder, RunMode, one_word};

/// Most policy versions that rollouts may lag; that of the knob `trainer.max_staleness`.
pub const MAX_STALENESS: u64 = 8;
/// What a running run can be asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Train no further step until `resume` or `step`.
    Pause,
    Resume,
    /// Train one step, then be paused.
    Step,
    /// Write a checkpoint of the steps trained so far.
    Checkpoint,
    /// End after the step in progress, with a checkpoint: what SIGINT does.
    Stop,
    /// Give a knob a value, already known to be in range.
    Set {
        knob: &'static Knob,
        value: f64,
    },
    /// Another `trainer.mode`; `staleness` is for async, None: as the experiment says.
    Mode {
        mode: RunMode,
        staleness: Option<u64>,
    },
    /// Something with one guard of `trainer.guards`.
    Guard {
        guard: String,
        order: GuardOrder,
    },
    /// Something with the arms of `reward.bandit`.
    Arm(ArmOrder),
    /// Weights, optimizers, controllers and data from a checkpoint; steps go on counting.
    RollBack {
        to: CheckpointName,
    },
    /// How it stands; answered at once, also in the middle of a step.
    Status,
}

impl Command {
    pub(super) const NAMES: [&str; 17] = [
        "pause",
        "resume",
        "step",
        "checkpoint",
        "stop",
        "set",
        "mode",
        "trip",
        "clear",
        "mute",
        "unmute",
        "arm_force",
        "arm_release",
        "arm_freeze",
        "arm_unfreeze",
        "roll_back",
        "status",
    ];

    /// The word for it in requests and events.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Step => "step",
            Self::Checkpoint => "checkpoint",
            Self::Stop => "stop",
            Self::Set { .. } => "set",
            Self::Mode { .. } => "mode",
            Self::Guard { order, .. } => order.name(),
            Self::Arm(order) => order.name(),
            Self::RollBack { .. } => "roll_back",
            Self::Status => "status",
        }
    }

    /// What it is about, for the log: a guard's name, an arm's, a checkpoint's, a mode's.
    pub fn target(&self) -> Option<String> {
        match self {
            Self::Mode { mode, .. } => Some(mode.name().to_owned()),
            Self::Guard { guard, .. } => Some(guard.clone()),
            Self::Arm(order) => order.arm().map(str::to_owned),
            Self::RollBack { to } => Some(to.to_string()),
            _ => None,
        }
    }

    /// Of a guard's name as written.
    pub fn guard(name: &str, order: GuardOrder) -> Result<Self, String> {
        if order == (GuardOrder::Mute { steps: Some(0) }) {
            return Err("a guard is muted for 1 step or more".to_owned());
        }
        Ok(Self::Guard {
            guard: one_word(name, "guard")?,
            order,
        })
    }

    /// Of what is done with an arm (`force`, `release`, `freeze`, `unfreeze`) and its name as written.
    pub fn arm(word: &str, arm: Option<&str>) -> Result<Self, String> {
        ArmOrder::new(word, arm).map(Self::Arm)
    }

    /// Of a mode as written; a bound of staleness belongs to async.
    pub fn mode(name: &str, staleness: Option<u64>) -> Result<Self, String> {
        let mode: RunMode = name.parse()?;
        match (staleness, mode.most_staleness(MAX_STALENESS)) {
            (Some(_), None) => Err(format!(
                "mode {name} takes no bound of staleness: it finds one itself"
            )),
            (Some(_), Some(0)) if staleness != Some(0) => {
                Err(format!("mode {name} takes no bound of staleness: it is 0"))
            }
            (Some(staleness), Some(most)) if staleness > most => Err(format!(
                "max_staleness cannot be {staleness} in mode {name}; expected 0 to {most}"
            )),
            (staleness, _) => Ok(Self::Mode { mode, staleness }),
        }
    }

    /// Of a knob and a value as written.
    pub fn set(knob: &str, value: f64) -> Result<Self, String> {
        let knob = knobs::find(knob).map_err(|error| error.to_string())?;
        let value = knob.check(value)?;
        Ok(Self::Set { knob, value })
    }
}

/// `set actor.optim.lr = 0.00001`, `pause`.
impl fmt::Display for Command {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set { knob, value } => write!(formatter, "set {} = {value}", knob.name),
            Self::Mode {
                mode,
                staleness: Some(staleness),
            } => write!(formatter, "mode {} {staleness}", mode.name()),
            Self::Guard {
                guard,
                order: GuardOrder::Mute { steps: Some(steps) },
            } => write!(formatter, "mute {guard} {steps}"),
            Self::Arm(order) => {
                formatter.write_str(&order.name().replace('_', " "))?;
                match order.arm() {
                    Some(arm) => write!(formatter, " {arm}"),
                    None => Ok(()),
                }
            }
            Self::Mode { .. } | Self::Guard { .. } | Self::RollBack { .. } => write!(
                formatter,
                "{} {}",
                self.name(),
                self.target().unwrap_or_default()
            ),
            other => formatter.write_str(other.name()),
        }
    }
}
