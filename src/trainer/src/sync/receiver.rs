//! The rollouts' side of a sync: prove what arrived, then swap.

use std::sync::mpsc;

use runlog::event::EventKind;
use runlog::number::Number;

use super::{Agreement, Delivery, Fingerprint, SyncError, fingerprint};
use crate::engine::{EngineHandle, WeightBuffer, score};

/// How one sync went.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncReport {
    pub version: u64,
    pub bytes: u64,
    pub blocked_ms: f64,
    pub transfer_ms: f64,
    pub total_ms: f64,
    pub sent: Fingerprint,
    pub received: Fingerprint,
    pub canary_max_diff_nats: f64,
}

impl SyncReport {
    /// As the run's log has it.
    pub fn event(&self) -> EventKind {
        EventKind::WeightsSynced {
            version: self.version,
            bytes: self.bytes,
            blocked_ms: self.blocked_ms,
            transfer_ms: self.transfer_ms,
            total_ms: self.total_ms,
            sent_fingerprint: self.sent.to_string(),
            received_fingerprint: self.received.to_string(),
            canary_max_diff_nats: Number(self.canary_max_diff_nats),
            verified: self.sent == self.received,
        }
    }
}

/// Takes deliveries for one engine.
#[derive(Debug)]
pub struct Receiver {
    spare: mpsc::Sender<WeightBuffer>,
    canary_ids: Vec<u32>,
    threads: i32,
}

impl Receiver {
    pub fn new(spare: mpsc::Sender<WeightBuffer>, canary_ids: Vec<u32>, threads: i32) -> Self {
        Self {
            spare,
            canary_ids,
            threads,
        }
    }

    /// Proves `delivery` beside the running engine, swaps it in between two decode steps, and gives the old buffer back to
    /// the publisher. On a mismatch nothing is swapped.
    pub async fn accept(
        &self,
        engine: &EngineHandle,
        delivery: Delivery,
    ) -> Result<SyncReport, SyncError> {
        let (canary_ids, threads) = (self.canary_ids.clone(), self.threads);
        let (delivery, proof) = tokio::task::spawn_blocking(move || {
            tch::set_num_threads(threads);
            let proof = prove(&delivery, &canary_ids);
            (delivery, proof)
        })
        .await
        .map_err(|_| SyncError::Gone { side: "verifier" })?;
        let (received, canary_max_diff_nats) = proof?;
        let swap = engine.swap(delivery.buffer, delivery.version).await?;
        let total_ms = delivery.step_ended.elapsed().as_secs_f64() * 1e3;
        // The publisher is gone when the run is ending; then nobody needs the buffer.
        drop(self.spare.send(swap.previous));
        Ok(SyncReport {
            version: delivery.version,
            bytes: delivery.bytes,
            blocked_ms: swap.blocked.as_secs_f64() * 1e3,
            transfer_ms: delivery.transfer_ms,
            total_ms,
            sent: delivery.sent,
            received,
            canary_max_diff_nats,
        })
    }
}

/// Fingerprint of what arrived and the canary's largest difference.
fn prove(delivery: &Delivery, canary_ids: &[u32]) -> Result<(Fingerprint, f64), SyncError> {
    let _no_grad = tch::no_grad_guard();
    let views = delivery.buffer.views();
    let received = fingerprint(
        views.iter().map(|(name, tensor)| (name.as_str(), tensor)),
        delivery.buffer.kind(),
    );
    if received != delivery.sent {
        return Err(SyncError::Fingerprint {
            version: delivery.version,
            sent: delivery.sent,
            received,
        });
    }
    let spoken = score(&delivery.buffer, canary_ids)?;
    let agreement = Agreement::of(&delivery.canary_logprobs, &spoken, delivery.buffer.kind());
    let agreement = agreement.unwrap_or(Agreement {
        largest: f64::NAN,
        judged: f64::NAN,
        tolerance: 0.0,
    });
    if !agreement.is_close() {
        return Err(SyncError::Canary {
            version: delivery.version,
            difference: agreement.judged,
            tolerance: agreement.tolerance,
        });
    }
    Ok((received, agreement.largest))
}
