//! The embedded trainer: rollouts, learner, weight sync, checkpoints. The only crate that links libtorch.

pub mod model;
