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

/// How two correct forward passes of one dtype may differ, nats.
///
/// f32: any token by 1e-3 (measured: 5e-6 between fused and plain layouts). bf16 rounds each activation to 8 bits: tokens that
/// a pretrained model finds impossible differ by nats, so it is the mean of all that may be half a nat; other weights are off
/// by more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreement {
    /// Largest difference; NaN where either side has no number.
    pub largest: f64,
    /// What is judged, and what it may be.
    pub judged: f64,
    pub tolerance: f64,
}

impl Agreement {
    /// Of the same tokens by both passes in this dtype. A NaN on any side is no agreement. None: they are not as many.
    pub fn of(ours: &[f32], theirs: &[f32], kind: tch::Kind) -> Option<Self> {
        if ours.len() != theirs.len() {
            return None;
        }
        let differences = || {
            ours.iter()
                .zip(theirs)
                .map(|(a, b)| f64::from((a - b).abs()))
        };
        // `max` would pass over NaN, which is the worst difference there is, and stays.
        let largest = differences().fold(0.0, |most: f64, next| {
            if most.is_nan() || next.is_nan() {
                f64::NAN
            } else {
                most.max(next)
            }
        });
        let mean = differences().sum::<f64>() / differences().count().max(1) as f64;
        let (judged, tolerance) = if kind == tch::Kind::Float {
            (largest, 1e-3)
        } else {
            (mean, 0.5)
        };
        Some(Self {
            largest,
            judged,
            tolerance,
        })
    }

    pub fn is_close(self) -> bool {
        self.judged <= self.tolerance
    }
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

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    #[test]
    fn what_is_no_number_is_no_agreement_wherever_it_stands_and_on_whichever_side() {
        let fine = [-1.0, -2.0, -3.0];
        for kind in [Kind::Float, Kind::BFloat16] {
            assert!(Agreement::of(&fine, &fine, kind).unwrap().is_close());
            for at in 0..fine.len() {
                let mut broken = fine;
                broken[at] = f32::NAN;
                for (ours, theirs) in [(fine, broken), (broken, fine), (broken, broken)] {
                    let agreement = Agreement::of(&ours, &theirs, kind).unwrap();
                    assert!(
                        agreement.largest.is_nan() && !agreement.is_close(),
                        "{kind:?} {at}"
                    );
                }
            }
            assert!(Agreement::of(&fine, &fine[..2], kind).is_none());
        }
    }

    #[test]
    fn in_f32_the_worst_token_is_judged_and_in_bf16_the_mean() {
        let (ours, theirs) = ([-1.0, -2.0, -3.0, -14.0], [-1.0, -2.0, -3.0, -15.5]);
        assert!(
            !Agreement::of(&ours, &theirs, Kind::Float)
                .unwrap()
                .is_close()
        );
        let agreement = Agreement::of(&ours, &theirs, Kind::BFloat16).unwrap();
        assert_eq!((agreement.largest, agreement.judged), (1.5, 0.375));
        assert!(agreement.is_close());
    }
}
