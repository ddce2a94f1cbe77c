//! The typed experiment. Field paths are the YAML's key paths; defaults are verl 0.9.1's unless the key table says otherwise.

mod actor;
mod algorithm;
mod data;
mod launch;
mod reward;
mod rollout;
mod trainer;

use serde::{Deserialize, Serialize};

pub use crate::scorers::ScorerName;
pub use actor::{
    Actor, ActorRolloutRef, Critic, CriticModel, Dtype, KlEstimator, LossAggMode, LossMode,
    LrScheduler, Model, Optim, PolicyLoss, Precision, Ref,
};
pub use algorithm::{
    AdvEstimator, Algorithm, BypassLoss, FilterGroups, ImportanceLevel, KlCtrl, KlCtrlType,
    KlLossCtrl, KlTargetPer, RolloutCorrection,
};
pub use data::Data;
pub use launch::{Engine, Launch, LaunchVerl};
pub use reward::{CustomRewardFunction, OverlongBuffer, Reward, RewardKwargs};
pub use rollout::{
    Agent, AgentLoop, AsyncTraining, EngineName, MultiTurn, Rollout, ToolFormat, TruncateSide,
    ValKwargs,
};
pub use trainer::{AUTO_STALENESS, Device, LoggerName, Mode, ResumeMode, Sft, Trainer};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Experiment {
    pub data: Data,
    pub actor_rollout_ref: ActorRolloutRef,
    pub critic: Critic,
    pub algorithm: Algorithm,
    pub async_training: AsyncTraining,
    pub reward: Reward,
    pub trainer: Trainer,
    pub sft: Sft,
    pub launch: Launch,
}
