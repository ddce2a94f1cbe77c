//! Weights from the learner to the rollouts, in one process: two buffers, one generating, one being filled.
//!
//! ```text
//!  learner ─► Publisher: copy into the spare buffer, hash what was sent, canary log-probs ─► Delivery
//!  rollouts ◄─ Receiver: hash what arrived, canary under the engine's own code, compare ◄──────┘
//!                 └─► swap between two decode steps (the only moment that blocks), old buffer back to the Publisher
//! ```
//! Every delivery is proved before it generates a token: the fingerprints of both sides must be equal and the canary prompt's
//! log-probs must agree. A mismatch stops generation.

mod fingerprint;
mod publisher;
mod receiver;

pub use fingerprint::{Fingerprint, fingerprint};
pub(crate) use publisher::canary_logprobs;
pub use publisher::{Delivery, Publisher};
pub use receiver::{Receiver, SyncReport};

/// Largest canary difference that two correct forward passes may show, nats. f32: measured 5e-6 between fused and plain
/// layouts; bf16 rounds each activation to 8 bits, so single tokens differ by up to a few hundredths.
pub fn canary_tolerance_nats(kind: tch::Kind) -> f64 {
    if kind == tch::Kind::Float { 1e-3 } else { 0.5 }
}

#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error(
        "weights of version {version} did not arrive whole: the learner sent {sent}, the rollouts hold {received}; generation is stopped"
    )]
    Fingerprint {
        version: u64,
        sent: Fingerprint,
        received: Fingerprint,
    },
    #[error(
        "weights of version {version} arrived but speak differently: canary log-probs differ by {difference} nats (at most {tolerance} expected); generation is stopped"
    )]
    Canary {
        version: u64,
        difference: f64,
        tolerance: f64,
    },
    #[error("cannot sync weights: the {side} has stopped")]
    Gone { side: &'static str },
    #[error("cannot sync weights: {0}")]
    Torch(#[from] crate::torch_ext::Error),
    #[error("cannot sync weights: {0}")]
    Generate(#[from] dialogue::generate::GenerateError),
    #[error("cannot sync weights: the {side} has no tensor {name} of shape {shape:?}")]
    Shape {
        side: &'static str,
        name: String,
        shape: Vec<i64>,
    },
}
