//! What the frozen and the trained copies say of a batch, without gradients, micro-batch by micro-batch.

use tch::Tensor;

use super::batch::{MicroBatch, MicroLimit, TrainBatch};
use super::{Learner, LearnerError};
use crate::model::transformer::Transformer;
use crate::objective::kl::full_kl;
use crate::objective::logprob::sum_pi_squared;
use crate::torch_ext;

impl Learner {
    /// Sampling temperature; log-probs are of the distribution that was sampled from.
    pub(super) fn temperature(&self) -> f64 {
        let temperature = self.experiment.actor_rollout_ref.rollout.temperature;
        if temperature > 0.0 { temperature } else { 1.0 }
    }

    pub(super) fn forward_limit(&self) -> MicroLimit {
        let settings = &self.experiment.actor_rollout_ref;
        let sequences = settings
            .rollout
            .log_prob_micro_batch_size_per_gpu
            .or(settings.r#ref.log_prob_micro_batch_size_per_gpu);
        self.limit(sequences)
    }

    pub(super) fn limit(&self, sequences: Option<u32>) -> MicroLimit {
        MicroLimit {
            sequences: sequences.map(|count| count as usize),
            tokens: sequences.is_none().then_some(
                self.experiment
                    .actor_rollout_ref
                    .actor
                    .ppo_max_token_len_per_gpu as usize,
            ),
        }
    }

    /// `[B, T]` log-probs of every drawn token under `model`, and Σ π² of the distribution each was drawn from if asked for.
    pub(super) fn logprobs_without_gradients(
        &self,
        model: &Transformer,
        micros: &[MicroBatch],
        batch: &TrainBatch,
        with_squares: bool,
    ) -> Result<(Tensor, Option<Tensor>), LearnerError> {
        let _no_grad = tch::no_grad_guard();
        let mut padded = batch.mask.zeros_like();
        let mut squares = with_squares.then(|| batch.mask.zeros_like());
        for micro in micros {
            let hidden = model.hidden(&micro.packed);
            let logits = model.logits(&hidden.rows.index_select(0, &micro.source_rows));
            let (logprobs, _) =
                torch_ext::token_logprobs(&logits, &micro.targets, self.temperature(), false)?;
            let _ = padded.index_copy_(0, &micro.rows, &micro.scatter(&logprobs));
            if let Some(squares) = &mut squares {
                let sums = sum_pi_squared(&logits, self.temperature());
                let _ = squares.index_copy_(0, &micro.rows, &micro.scatter(&sums));
            }
        }
        Ok((padded, squares))
    }

    /// `[B, T]` KL(policy‖reference) over the vocabulary at every drawn token.
    pub(super) fn full_kl_without_gradients(
        &self,
        reference: &Transformer,
        micros: &[MicroBatch],
        batch: &TrainBatch,
    ) -> Result<Tensor, LearnerError> {
        let _no_grad = tch::no_grad_guard();
        let mut padded = batch.mask.zeros_like();
        for micro in micros {
            let [logits, ref_logits] =
                [&self.actor.model, reference].map(|model| logits_of(model, micro));
            let kl = full_kl(&logits, &ref_logits, self.temperature())?;
            let _ = padded.index_copy_(0, &micro.rows, &micro.scatter(&kl));
        }
        Ok(padded)
    }
}

/// `[M, V]` logits that each drawn token of a micro-batch was drawn from.
pub(super) fn logits_of(model: &Transformer, micro: &MicroBatch) -> Tensor {
    let hidden = model.hidden(&micro.packed);
    model.logits(&hidden.rows.index_select(0, &micro.source_rows))
}

/// `[B, T]` values of the state before every drawn token.
pub(super) fn values_without_gradients(
    model: &Transformer,
    micros: &[MicroBatch],
    batch: &TrainBatch,
) -> Tensor {
    let _no_grad = tch::no_grad_guard();
    let mut padded = batch.mask.zeros_like();
    for micro in micros {
        let hidden = model.hidden(&micro.packed);
        let state_values = model.values(&hidden.rows.index_select(0, &micro.source_rows));
        let _ = padded.index_copy_(0, &micro.rows, &micro.scatter(&state_values));
    }
    padded
}
