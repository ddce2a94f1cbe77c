//! What `linucb` chooses by: the prompts of a batch as the policy sees them.

use ::bandit::{BanditError, Context};
use dialogue::rollout::Rollout;
use tch::{Device, Kind, Tensor};

use crate::model::packed::PackedBatch;
use crate::model::transformer::Transformer;

/// The mean over the batch's prompts of the hidden state at their last token, \[H\], scaled to length 1 (`LASeR`, arXiv
/// 2410.01735). Each prompt counts once, however many samples it has.
pub fn context(model: &Transformer, rollouts: &[Rollout]) -> Result<Context, BanditError> {
    let mut packed = PackedBatch::default();
    let mut last_rows = Vec::new();
    let mut previous: Option<&str> = None;
    for rollout in rollouts {
        let is_new = previous != Some(&*rollout.uid);
        previous = Some(&rollout.uid);
        if is_new && !rollout.prompt_ids.is_empty() {
            let group = packed.push_group(&rollout.prompt_ids, &[]);
            last_rows.push(group.prompt.end as i64 - 1);
        }
    }
    if packed.is_empty() {
        return Context::unit(Vec::new());
    }
    let _no_grad = tch::no_grad_guard();
    let rows = model.hidden(&packed).rows;
    let last = Tensor::from_slice(&last_rows).to_device(rows.device());
    let mean = rows
        .index_select(0, &last)
        .mean_dim(0, false, Kind::Double)
        .to_device(Device::Cpu);
    Context::unit(Vec::<f64>::try_from(mean).expect("a flat f64 tensor on the CPU"))
}
