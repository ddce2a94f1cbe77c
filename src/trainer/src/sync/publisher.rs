//! The learner's side of a sync: fill the spare buffer, hash what was sent, hand it over.

use std::sync::mpsc;
use std::time::Instant;

use tch::Kind;

use super::{Fingerprint, SyncError, fingerprint};
use crate::engine::WeightBuffer;
use crate::model::packed::PackedBatch;
use crate::model::transformer::Transformer;
use crate::torch_ext;

/// One version of the weights on its way to the rollouts.
#[derive(Debug)]
pub struct Delivery {
    pub version: u64,
    /// Times the learner went back to older weights before it published these.
    pub rewinds: u64,
    pub buffer: WeightBuffer,
    pub sent: Fingerprint,
    /// ln p of each canary token but the first, as the learner's own forward pass says it in the engine's dtype: in another one
    /// improbable tokens of a pretrained model differ by nats.
    pub canary_logprobs: Vec<f32>,
    pub bytes: u64,
    pub transfer_ms: f64,
    /// When the optimizer step ended.
    pub step_ended: Instant,
}

/// Copies the learner's weights into whichever buffer is not generating.
#[derive(Debug)]
pub struct Publisher {
    // Holds the spare buffer: one, or none while it is under way. The other buffer is generating.
    spare: mpsc::Receiver<WeightBuffer>,
    canary_ids: Vec<u32>,
}

impl Publisher {
    /// `canary_ids`: two tokens or more, the same on both sides.
    pub fn new(spare: mpsc::Receiver<WeightBuffer>, canary_ids: Vec<u32>) -> Self {
        Self { spare, canary_ids }
    }

    /// Waits for the spare buffer (free as soon as the version before last has left the engine) and fills it.
    pub fn publish(
        &mut self,
        model: &Transformer,
        version: u64,
        step_ended: Instant,
    ) -> Result<Delivery, SyncError> {
        let _no_grad = tch::no_grad_guard();
        let mut buffer = self.spare.recv().map_err(|_| SyncError::Gone {
            side: "rollout side",
        })?;
        let started = Instant::now();
        let bytes = buffer.copy_from(model.parameters());
        let transfer_ms = started.elapsed().as_secs_f64() * 1e3;
        let sent = fingerprint(model.parameters().iter(), buffer.kind());
        Ok(Delivery {
            version,
            rewinds: 0,
            sent,
            canary_logprobs: canary_logprobs(&model.computing_in(buffer.kind()), &self.canary_ids)?,
            bytes,
            transfer_ms,
            step_ended,
            buffer,
        })
    }
}

/// ln p of `ids[1..]` by the learner's forward pass, temperature 1.
pub(crate) fn canary_logprobs(
    model: &Transformer,
    ids: &[u32],
) -> Result<Vec<f32>, torch_ext::Error> {
    let mut packed = PackedBatch::default();
    packed.push_group(ids, &[]);
    let rows = model
        .hidden(&packed)
        .rows
        .narrow(0, 0, ids.len() as i64 - 1);
    let targets: Vec<i64> = ids[1..].iter().map(|id| i64::from(*id)).collect();
    let targets = tch::Tensor::from_slice(&targets).to_device(rows.device());
    let (logprobs, _) = torch_ext::token_logprobs(&model.logits(&rows), &targets, 1.0, false)?;
    Ok(
        Vec::try_from(logprobs.to_kind(Kind::Float).to_device(tch::Device::Cpu))
            .expect("one float a token"),
    )
}
