//! The embedded trainer: rollouts, learner, weight sync, checkpoints. The only crate that links libtorch.

pub mod advise;
pub mod arms;
pub mod checkpoint;
pub mod control;
pub mod engine;
pub mod evaluate;
pub mod failure;
pub mod groups;
pub mod guard;
pub mod host;
pub mod learner;
pub mod model;
pub mod objective;
pub mod optimizer;
pub mod oracle;
pub mod overlong;
pub mod resume;
pub mod rollouts;
pub mod run;
pub mod save;
pub mod setup;
pub mod sft;
pub mod stop;
mod stored;
pub mod sync;
pub mod torch_ext;
pub mod training;
