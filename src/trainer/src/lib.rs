//! The embedded trainer: rollouts, learner, weight sync, checkpoints. The only crate that links libtorch.

pub mod engine;
pub mod model;
pub mod objective;
pub mod optimizer;
pub mod torch_ext;
