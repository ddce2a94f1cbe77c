//! What is optimised, as pure tensor maths: log-probs, advantages, losses, KL, and the numbers people watch.
//!
//! Letters: B sequences, T response tokens (padded), M tokens laid end to end, V vocabulary, G samples per prompt.
//! A mask \[B, T\] is true on the tokens the model wrote; tool, template and padding tokens are false. What lies outside the
//! mask, NaN included, changes no loss, no gradient and no metric. Log-probs, entropies and KL are in nats.
//!
//! Each function has verl 0.9.1's formula and is compared with verl's numbers (`tests/oracles`). It knows no threads, files
//! or events; [`oracle`] alone reads files.

pub mod advantage;
pub mod aggregate;
pub mod controller;
pub mod kl;
pub mod logprob;
pub mod masked;
pub mod oracle;
pub mod policy_loss;
pub mod rejection;
pub mod rollout_correction;
pub mod trl;
pub mod value_loss;

use tch::Tensor;

use crate::torch_ext;

/// Why a quantity is not defined for what it was given.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ObjectiveError {
    #[error("{quantity} needs at least one token in the mask, which is empty")]
    EmptyMask { quantity: &'static str },
    #[error("{quantity} needs at least two tokens in the mask, which has one")]
    SingleToken { quantity: &'static str },
    #[error("{left} has shape {left_shape:?}, but {right} has {right_shape:?}")]
    Shapes {
        left: &'static str,
        left_shape: Vec<i64>,
        right: &'static str,
        right_shape: Vec<i64>,
    },
    #[error("over {ranks} ranks this loss needs the global number of {what} in the mini-batch")]
    MissingGlobalCount { ranks: u32, what: &'static str },
    #[error(
        "{estimator} needs at least two samples of each prompt, and one prompt has a single one"
    )]
    GroupOfOne { estimator: &'static str },
    #[error("clip_ratio_c is {0}; dual clipping needs a number above 1")]
    DualClip(f64),
    #[error("{name} is {value}; expected a number above 0")]
    NotPositive { name: &'static str, value: f64 },
    #[error("{name} is {value}; expected at most 1")]
    Share { name: &'static str, value: f64 },
    #[error("the order given is of {given} things, but {candidates} are to be drawn from")]
    Order { given: usize, candidates: usize },
    #[error("{0}")]
    Rejection(String),
    #[error(
        "the full KL is a sum over the vocabulary; it needs logits, not log-probs of single tokens"
    )]
    NeedsLogits,
    #[error("rollout_is_threshold is {lower:?} to {upper}; expected 0 < lower <= upper")]
    Threshold { lower: Option<f64>, upper: f64 },
    #[error(transparent)]
    Torch(#[from] torch_ext::Error),
}

/// Refuses tensors that broadcasting would quietly stretch.
fn same_shape(
    (left, left_tensor): (&'static str, &Tensor),
    (right, right_tensor): (&'static str, &Tensor),
) -> Result<(), ObjectiveError> {
    if left_tensor.size() == right_tensor.size() {
        return Ok(());
    }
    Err(ObjectiveError::Shapes {
        left,
        left_shape: left_tensor.size(),
        right,
        right_shape: right_tensor.size(),
    })
}
