//! What the objectives alone cost for a workload's batch: advantages, KL, policy (and value) loss with their backward pass. The
//! log-probs are there already: they are the model's part.

use experiment::settings::{Actor, KlEstimator, LossAggMode};
use tch::{Device, Kind, Tensor};
use trainer::objective::advantage::{Scale, gae, grpo};
use trainer::objective::aggregate::{Denominators, GlobalCounts};
use trainer::objective::kl::{kl_loss, kl_per_token, penalize};
use trainer::objective::policy_loss::{PolicyBatch, Surrogate};
use trainer::objective::value_loss::{ValueBatch, clipped};

use crate::clock::{cpu_s, median};
use crate::training::Algorithm;
use crate::workload::{NEW_TOKENS, Workload};

/// CPU time has a grain, and one batch takes well under a millisecond of it.
const BATCHES: u32 = 50;
const MEASURED: usize = 5;

/// CPU seconds a step; the median of five rounds of fifty batches.
pub fn seconds(workload: &Workload, algorithm: Algorithm) -> anyhow::Result<f64> {
    let groups: Vec<usize> = (0..workload.prompts)
        .flat_map(|prompt| vec![prompt; workload.samples])
        .collect();
    let shape = [groups.len() as i64, i64::from(NEW_TOKENS)];
    let random = || Tensor::rand(shape, (Kind::Float, Device::Cpu));
    let mask = random().ones_like();
    let old_logprobs = -random() * 4.0;
    let logprobs = &old_logprobs + random() * 0.1;
    let reference = &old_logprobs - random() * 0.1;
    let (scores, values) = (random(), random());
    let surrogate = Surrogate::new(&Actor::default());
    let mode = LossAggMode::TokenMean;
    let once = || -> anyhow::Result<()> {
        let kl = kl_per_token(&old_logprobs, &reference, KlEstimator::K3)?;
        let rewards = penalize(&scores, &kl, &mask, 0.05)?.token_rewards;
        let result = match algorithm {
            Algorithm::Grpo => grpo(&rewards, &mask, &groups, Scale::DEVIATION)?,
            Algorithm::Ppo => gae(&rewards, &values, &mask, 1.0, 0.95)?,
        };
        let denominators = Denominators::new(&mask, mode, &GlobalCounts::default())?;
        let leaf = logprobs.copy().set_requires_grad(true);
        let policy = surrogate.loss(
            &PolicyBatch {
                logprobs: &leaf,
                old_logprobs: &old_logprobs,
                advantages: &result.advantages,
                mask: &mask,
                rollout_weights: None,
            },
            mode,
            &denominators,
            &mut |count| (0..count).collect(),
        )?;
        let kl = kl_loss(
            &leaf,
            &reference,
            &mask,
            KlEstimator::K3,
            mode,
            &denominators,
        )?;
        (policy.loss + kl * 0.001).backward();
        policy.sums.metrics();
        if algorithm == Algorithm::Ppo {
            let leaf = values.copy().set_requires_grad(true);
            let batch = ValueBatch {
                predictions: &leaf,
                old_values: &values,
                returns: &result.returns,
                mask: &mask,
            };
            clipped(&batch, 0.5, mode, &denominators)?.loss.backward();
        }
        Ok(())
    };
    once()?;
    let mut rounds = Vec::with_capacity(MEASURED);
    for _ in 0..MEASURED {
        let start = cpu_s();
        for _ in 0..BATCHES {
            once()?;
        }
        rounds.push((cpu_s() - start) / f64::from(BATCHES));
    }
    Ok(median(rounds))
}
