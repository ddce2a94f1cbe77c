//! Estimators that compare the scores of the samples of a prompt. A sequence's score is the sum of its token rewards; its
//! advantage is one number, the same on every token of the mask and 0 elsewhere. Returns are the advantages.
//!
//! Rewards outside the mask count towards the score, unless they are NaN.

use std::collections::HashMap;
use std::hash::Hash;

use tch::{Device, Kind, Tensor};

use super::{Advantages, float32_on, numbers};
use crate::objective::masked::whiten;
use crate::objective::{ObjectiveError, same_shape};

/// What a difference of scores is divided by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Nothing: Dr. GRPO (<https://arxiv.org/abs/2503.20783>).
    None,
    /// The group's deviation plus this, which keeps a group of equal scores finite.
    Deviation(f64),
}

impl Scale {
    /// verl's 1e-6.
    pub const DEVIATION: Self = Self::Deviation(1e-6);

    /// `norm_adv_by_std_in_grpo`
    pub fn by_std(by_std: bool) -> Self {
        if by_std { Self::DEVIATION } else { Self::None }
    }

    fn apply(self, difference: f64, deviation: f64) -> f64 {
        match self {
            Self::None => difference,
            Self::Deviation(epsilon) => difference / (deviation + epsilon),
        }
    }
}

/// The advantage of a sample that has no other to be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    /// Its score.
    Score,
    Zero,
}

/// Sequences by group, in order of first appearance.
struct Groups {
    scores: Vec<f64>,
    members: Vec<Vec<usize>>,
}

impl Groups {
    fn new<K: Eq + Hash>(
        token_rewards: &Tensor,
        mask: &Tensor,
        groups: &[K],
    ) -> Result<Self, ObjectiveError> {
        same_shape(("token rewards", token_rewards), ("mask", mask))?;
        let width = (*mask.size().last().unwrap_or(&0) as usize).max(1);
        let (rewards, mask_numbers) = (numbers(token_rewards), numbers(mask));
        let mut scores: Vec<f64> = rewards
            .chunks(width)
            .zip(mask_numbers.chunks(width))
            .map(|(rewards, mask)| {
                let counted = rewards.iter().zip(mask);
                counted
                    .filter(|(reward, valid)| **valid != 0.0 || !reward.is_nan())
                    .map(|(reward, _)| reward)
                    .sum()
            })
            .collect();
        scores.resize(groups.len(), 0.0);
        Ok(Self {
            members: members(groups, mask)?,
            scores,
        })
    }

    fn mean(&self, rows: &[usize]) -> f64 {
        rows.iter().map(|row| self.scores[*row]).sum::<f64>() / rows.len() as f64
    }

    /// Mean and unbiased deviation; 0 and 1 for a group of one, whose score then passes as it is.
    fn mean_and_deviation(&self, rows: &[usize]) -> (f64, f64) {
        if rows.len() == 1 {
            return (0.0, 1.0);
        }
        let mean = self.mean(rows);
        let squares: f64 = rows
            .iter()
            .map(|row| (self.scores[*row] - mean).powi(2))
            .sum();
        (mean, (squares / (rows.len() as f64 - 1.0)).sqrt())
    }

    /// Score minus `baseline` of its group, whatever that is.
    fn less(&self, baseline: impl Fn(&[usize]) -> f64) -> Vec<f64> {
        let mut advantages = self.scores.clone();
        for rows in &self.members {
            let baseline = baseline(rows);
            for row in rows {
                advantages[*row] -= baseline;
            }
        }
        advantages
    }

    fn relative(&self, scale: Scale) -> Vec<f64> {
        let mut advantages = self.scores.clone();
        for rows in &self.members {
            let (mean, deviation) = self.mean_and_deviation(rows);
            for row in rows {
                advantages[*row] = scale.apply(self.scores[*row] - mean, deviation);
            }
        }
        advantages
    }
}

/// Rows of each group. `mask` \[B, T\] has one row for each of `groups`.
fn members<K: Eq + Hash>(groups: &[K], mask: &Tensor) -> Result<Vec<Vec<usize>>, ObjectiveError> {
    let size = mask.size();
    if size.first() != Some(&(groups.len() as i64)) {
        return Err(ObjectiveError::Shapes {
            left: "groups",
            left_shape: vec![groups.len() as i64],
            right: "mask",
            right_shape: size,
        });
    }
    let mut places: HashMap<&K, usize> = HashMap::new();
    let mut members: Vec<Vec<usize>> = Vec::new();
    for (row, group) in groups.iter().enumerate() {
        let place = *places.entry(group).or_insert_with(|| {
            members.push(Vec::new());
            members.len() - 1
        });
        members[place].push(row);
    }
    Ok(members)
}

/// One number a sequence on every token of `mask`, 0 elsewhere, float64 on the CPU: \[B, T\].
fn spread(per_sequence: &[f64], mask: &Tensor) -> Tensor {
    let valid = mask.to_device(Device::Cpu).to_kind(Kind::Bool);
    Tensor::from_slice(per_sequence).unsqueeze(-1) * valid
}

fn both(advantages: &Tensor, device: Device) -> Advantages {
    let advantages = float32_on(advantages, device);
    Advantages {
        returns: advantages.shallow_clone(),
        advantages,
    }
}

/// Group-relative advantages (<https://arxiv.org/abs/2402.03300>; verl `compute_grpo_outcome_advantage`, `_vectorized`). With
/// score s, and mean μ and unbiased deviation σ of the scores of its group:
///
/// ```text
/// A = (s − μ) / (σ + ε)      or s − μ with Scale::None (Dr. GRPO)
/// ```
///
/// A group of one keeps its raw score (μ = 0, σ = 1), as in verl. `groups` \[B\] names each sequence's group.
pub fn grpo<K: Eq + Hash>(
    token_rewards: &Tensor,
    mask: &Tensor,
    groups: &[K],
    scale: Scale,
) -> Result<Advantages, ObjectiveError> {
    let scored = Groups::new(token_rewards, mask, groups)?;
    Ok(both(
        &spread(&scored.relative(scale), mask),
        token_rewards.device(),
    ))
}

/// Pass@k (<https://arxiv.org/abs/2503.19595>; verl `compute_grpo_passk_outcome_advantage`): only the best sample of a group
/// has an advantage, (best − second best) / (σ + ε). Of several best ones the first has it, and it is 0. Not defined for a
/// group of one.
pub fn grpo_passk<K: Eq + Hash>(
    token_rewards: &Tensor,
    mask: &Tensor,
    groups: &[K],
    scale: Scale,
) -> Result<Advantages, ObjectiveError> {
    let scored = Groups::new(token_rewards, mask, groups)?;
    let mut advantages = vec![0.0; scored.scores.len()];
    for rows in &scored.members {
        // NaN counts as the largest, so that it shows.
        let score = |row: usize| {
            let score = scored.scores[row];
            if score.is_nan() {
                f64::NAN.abs()
            } else {
                score
            }
        };
        let mut order = rows.clone();
        order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
        let [best, second, ..] = order[..] else {
            return Err(ObjectiveError::GroupOfOne {
                estimator: "grpo_passk",
            });
        };
        let (_, deviation) = scored.mean_and_deviation(rows);
        advantages[best] = scale.apply(scored.scores[best] - scored.scores[second], deviation);
    }
    Ok(both(&spread(&advantages, mask), token_rewards.device()))
}

/// Leave-one-out (<https://arxiv.org/abs/2402.14740>; verl `compute_rloo_outcome_advantage`): the score minus the mean of the
/// *other* n − 1 samples of the group.
///
/// ```text
/// A = s − (Σ s − s) / (n − 1) = n / (n − 1) · (s − μ)
/// ```
///
/// verl's two versions differ in a group of one: its score in `rloo`, 0 in `rloo_vectorized`.
pub fn rloo<K: Eq + Hash>(
    token_rewards: &Tensor,
    mask: &Tensor,
    groups: &[K],
    alone: Alone,
) -> Result<Advantages, ObjectiveError> {
    let scored = Groups::new(token_rewards, mask, groups)?;
    let mut advantages = scored.scores.clone();
    for rows in &scored.members {
        if rows.len() == 1 {
            // The product keeps a NaN.
            advantages[rows[0]] *= match alone {
                Alone::Score => 1.0,
                Alone::Zero => 0.0,
            };
            continue;
        }
        let (count, mean) = (rows.len() as f64, scored.mean(rows));
        for row in rows {
            advantages[*row] = (scored.scores[*row] - mean) * count / (count - 1.0);
        }
    }
    Ok(both(&spread(&advantages, mask), token_rewards.device()))
}

/// On-policy RL with an optimal baseline (<https://arxiv.org/abs/2505.23585>; verl `compute_opo_outcome_advantage`): the score
/// minus its group's mean weighted by length, Σ n·s / Σ n with n the tokens of each sample in `mask`. A group of one keeps its
/// score; NaN for a group without any token.
pub fn opo<K: Eq + Hash>(
    token_rewards: &Tensor,
    mask: &Tensor,
    groups: &[K],
) -> Result<Advantages, ObjectiveError> {
    let scored = Groups::new(token_rewards, mask, groups)?;
    let lengths = numbers(
        &mask
            .to_kind(Kind::Bool)
            .sum_dim_intlist(-1, false, Kind::Double),
    );
    let advantages = scored.less(|rows| {
        if rows.len() == 1 {
            return 0.0;
        }
        let weighted: f64 = rows
            .iter()
            .map(|row| lengths[*row] * scored.scores[*row])
            .sum();
        weighted / rows.iter().map(|row| lengths[*row]).sum::<f64>()
    });
    Ok(both(&spread(&advantages, mask), token_rewards.device()))
}

/// Group policy gradient (<https://arxiv.org/abs/2504.02546>; verl `compute_gpg_outcome_advantage`):
///
/// ```text
/// A = α · (s − μ)      α = B / (sequences whose score is not 0, at least 1)
/// ```
///
/// A group of one keeps α times its score.
pub fn gpg<K: Eq + Hash>(
    token_rewards: &Tensor,
    mask: &Tensor,
    groups: &[K],
) -> Result<Advantages, ObjectiveError> {
    let scored = Groups::new(token_rewards, mask, groups)?;
    let not_zero = scored.scores.iter().filter(|score| **score != 0.0).count();
    let alpha = scored.scores.len() as f64 / not_zero.max(1) as f64;
    let mut advantages = scored.relative(Scale::None);
    for advantage in &mut advantages {
        *advantage *= alpha;
    }
    Ok(both(&spread(&advantages, mask), token_rewards.device()))
}

/// REINFORCE++ with a group baseline (<https://arxiv.org/abs/2501.03262>; verl
/// `compute_reinforce_plus_plus_baseline_outcome_advantage`): s − μ of the group on every token, whitened over `mask`. A group
/// of one keeps its score. Whitening is not defined for fewer than two tokens.
pub fn reinforce_plus_plus_baseline<K: Eq + Hash>(
    token_rewards: &Tensor,
    mask: &Tensor,
    groups: &[K],
) -> Result<Advantages, ObjectiveError> {
    let scored = Groups::new(token_rewards, mask, groups)?;
    whitened(
        &spread(&scored.relative(Scale::None), mask),
        mask,
        token_rewards.device(),
    )
}

/// Group reward-decoupled normalisation (<https://arxiv.org/abs/2601.05242>; verl `compute_gdpo_outcome_advantage`): GRPO of
/// each component of the reward by itself, their weighted sum, whitened over `mask`, so that no component drowns another.
/// `components`: weight, and the component of each sequence as token rewards \[B, T\]. Whitening is not defined for fewer than
/// two tokens.
pub fn gdpo<K: Eq + Hash>(
    components: &[(f64, Tensor)],
    mask: &Tensor,
    groups: &[K],
    scale: Scale,
) -> Result<Advantages, ObjectiveError> {
    let mut sums = vec![0.0; groups.len()];
    for (weight, token_rewards) in components {
        let scored = Groups::new(token_rewards, mask, groups)?;
        for (sum, advantage) in sums.iter_mut().zip(scored.relative(scale)) {
            *sum += weight * advantage;
        }
    }
    whitened(&spread(&sums, mask), mask, mask.device())
}

fn whitened(
    advantages: &Tensor,
    mask: &Tensor,
    device: Device,
) -> Result<Advantages, ObjectiveError> {
    let mask = mask.to_device(Device::Cpu);
    let whitened = whiten(advantages, &mask, true)? * mask.to_kind(Kind::Bool);
    Ok(both(&whitened, device))
}
