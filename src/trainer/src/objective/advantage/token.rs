//! Estimators that give each token a return of its own. Tool tokens are skipped, not discounted.

use std::collections::HashMap;
use std::hash::Hash;

use tch::{Device, Kind, Tensor};

use super::{Advantages, float32_on, numbers};
use crate::objective::masked::whiten;
use crate::objective::{ObjectiveError, same_shape};

/// Generalised advantage estimation (<https://arxiv.org/abs/1506.02438>; verl `compute_gae_advantage_return`). Backwards over
/// the tokens of `mask`, which are neighbours whatever lies between them (tool tokens are skipped, not discounted):
///
/// ```text
/// δ_t = r_t + γ·V_next − V_t;   A_t = δ_t + γλ·A_next;   R_t = A_t + V_t
/// ```
///
/// V after the last token is 0. `values` are those of the state *before* each token. Rewards outside the mask are lost.
/// Returns are taken before the advantages are whitened over `mask`, which is not defined for fewer than two tokens.
pub fn gae(
    token_rewards: &Tensor,
    values: &Tensor,
    mask: &Tensor,
    gamma: f64,
    lam: f64,
) -> Result<Advantages, ObjectiveError> {
    same_shape(("token rewards", token_rewards), ("mask", mask))?;
    same_shape(("values", values), ("mask", mask))?;
    let rows = Rows::new(mask);
    let (rewards, value) = (numbers(token_rewards), numbers(values));
    let mut advantages = vec![0.0; rewards.len()];
    for row in 0..rows.count {
        let (mut next_value, mut next_advantage) = (0.0, 0.0);
        for token in rows.cells(row).rev() {
            if rows.mask[token] {
                let delta = rewards[token] + gamma * next_value - value[token];
                next_advantage = delta + gamma * lam * next_advantage;
                next_value = value[token];
            }
            advantages[token] = next_advantage;
        }
    }
    let advantages = rows.tensor(&advantages);
    let device = token_rewards.device();
    let returns = &advantages + values.to_device(Device::Cpu).to_kind(Kind::Double);
    Ok(Advantages {
        advantages: float32_on(
            &whiten(&advantages, &mask.to_device(Device::Cpu), true)?,
            device,
        ),
        returns: float32_on(&returns.detach(), device),
    })
}

/// REINFORCE++ (<https://arxiv.org/abs/2501.03262>; verl `compute_reinforce_plus_plus_outcome_advantage`): G = r + γ·G of the
/// next token of `mask`, whitened over the mask. Rewards outside it are lost. Returns are G before whitening, which is not
/// defined for fewer than two tokens. Both are 0 outside the mask.
pub fn reinforce_plus_plus(
    token_rewards: &Tensor,
    mask: &Tensor,
    gamma: f64,
) -> Result<Advantages, ObjectiveError> {
    same_shape(("token rewards", token_rewards), ("mask", mask))?;
    let rows = Rows::new(mask);
    let rewards = numbers(token_rewards);
    let mut returns = vec![0.0; rewards.len()];
    for row in 0..rows.count {
        let mut next = 0.0;
        for token in rows.cells(row).rev().filter(|token| rows.mask[*token]) {
            next = rewards[token] + gamma * next;
            returns[token] = next;
        }
    }
    let returns = rows.tensor(&returns);
    let mask = mask.to_device(Device::Cpu);
    let advantages = whiten(&returns, &mask, true)? * mask.to_kind(Kind::Bool);
    let device = token_rewards.device();
    Ok(Advantages {
        advantages: float32_on(&advantages, device),
        returns: float32_on(&returns, device),
    })
}

/// `ReMax` (<https://arxiv.org/abs/2310.10505>; verl `compute_remax_outcome_advantage`): the sum of the rewards from a token on,
/// minus the score of a greedy answer to the same prompt, `baselines` \[B\]. Rewards outside `mask` are lost. Returns are the
/// sums.
pub fn remax(
    token_rewards: &Tensor,
    baselines: &Tensor,
    mask: &Tensor,
) -> Result<Advantages, ObjectiveError> {
    same_shape(("token rewards", token_rewards), ("mask", mask))?;
    let rows = Rows::new(mask);
    per_sequence("reward baselines", baselines, mask)?;
    let baselines = numbers(baselines);
    let returns = rows.rewards_to_go(&numbers(token_rewards));
    let mut advantages = returns.clone();
    for (row, baseline) in baselines.iter().enumerate() {
        for token in rows.cells(row).filter(|token| rows.mask[*token]) {
            advantages[token] -= baseline;
        }
    }
    Ok(rows.advantages(&advantages, &returns, token_rewards.device()))
}

/// What the optimal token baselines look at; all \[B, T\].
#[derive(Debug, Clone, Copy)]
pub struct TokenBaselineInputs<'a> {
    pub token_rewards: &'a Tensor,
    /// Of the policy before the update.
    pub old_logprobs: &'a Tensor,
    /// Σ π² over the vocabulary, of the same policy.
    pub sum_pi_squared: &'a Tensor,
    /// From the rollout correction; squared into the weights.
    pub rollout_weights: Option<&'a Tensor>,
    pub mask: &'a Tensor,
    /// Where the longest sample of a group goes on alone, it has no baseline.
    pub zero_tail: bool,
    /// Added to the sum of weights.
    pub epsilon: f64,
}

impl TokenBaselineInputs<'_> {
    /// W: how much of the gradient's variance has gathered up to each token, Σ (1 − 2π + Σπ²)·ρ² over the mask.
    fn weights(&self, rows: &Rows) -> Vec<f64> {
        let (logprobs, squares) = (numbers(self.old_logprobs), numbers(self.sum_pi_squared));
        let rho = self.rollout_weights.map(numbers);
        let mut gathered = vec![0.0; logprobs.len()];
        for row in 0..rows.count {
            let mut sum = 0.0;
            for token in rows.cells(row) {
                if rows.mask[token] {
                    let rho = rho.as_ref().map_or(1.0, |rho| rho[token]);
                    sum += (1.0 - 2.0 * logprobs[token].exp() + squares[token]) * rho * rho;
                }
                gathered[token] = sum;
            }
        }
        gathered
    }

    fn check(&self) -> Result<(), ObjectiveError> {
        let mask = ("mask", self.mask);
        same_shape(("token rewards", self.token_rewards), mask)?;
        same_shape(("old log-probs", self.old_logprobs), mask)?;
        same_shape(("sums of squared probabilities", self.sum_pi_squared), mask)?;
        match self.rollout_weights {
            Some(weights) => same_shape(("rollout weights", weights), mask),
            None => Ok(()),
        }
    }
}

/// Optimal token baseline (verl `compute_optimal_token_baseline_advantage`): each *place* t in the response has a baseline of
/// its own, over the samples of the group that have a token there.
///
/// ```text
/// B_t = Σ G_t·W_t / (Σ W_t + ε);   A_t = G_t − B_t      G: rewards from t on
/// ```
///
/// Places count tool tokens, so samples whose tools answered differently are compared at an offset; see
/// [`tir_optimal_token_baseline`]. A group of one has no baseline. Returns are G.
pub fn optimal_token_baseline<K: Eq + Hash>(
    inputs: &TokenBaselineInputs<'_>,
    groups: &[K],
) -> Result<Advantages, ObjectiveError> {
    inputs.check()?;
    let rows = Rows::new(inputs.mask);
    let returns = rows.rewards_to_go(&numbers(inputs.token_rewards));
    let weights = inputs.weights(&rows);
    let mut advantages: Vec<f64> = returns
        .iter()
        .zip(&rows.mask)
        .map(|(value, valid)| if *valid { *value } else { 0.0 })
        .collect();
    for members in rows.groups(groups)? {
        if members.len() == 1 {
            continue;
        }
        let alone = alone_from(&members, |row| rows.length(row), inputs.zero_tail);
        for place in 0..rows.width {
            let there = |row: &&usize| rows.mask[*row * rows.width + place];
            let (mut weighted, mut total) = (0.0, inputs.epsilon);
            for row in members.iter().filter(there) {
                let token = row * rows.width + place;
                weighted += returns[token] * weights[token];
                total += weights[token];
            }
            for row in members.iter().filter(there) {
                if alone.is_none_or(|(longest, from)| *row != longest || place < from) {
                    advantages[row * rows.width + place] -= weighted / total;
                }
            }
        }
    }
    Ok(rows.advantages(&advantages, &returns, inputs.token_rewards.device()))
}

/// The same over the tokens of the model alone, whatever tools said between them (verl
/// `compute_multi_turn_optimal_token_baseline_advantage`): the k-th token of each sample is compared with the k-th of the
/// others. A sample that is shorter takes part with G = W = 0.
pub fn tir_optimal_token_baseline<K: Eq + Hash>(
    inputs: &TokenBaselineInputs<'_>,
    groups: &[K],
) -> Result<Advantages, ObjectiveError> {
    inputs.check()?;
    let rows = Rows::new(inputs.mask);
    let returns = rows.rewards_to_go(&numbers(inputs.token_rewards));
    let weights = inputs.weights(&rows);
    let tokens: Vec<Vec<usize>> = (0..rows.count)
        .map(|row| rows.cells(row).filter(|cell| rows.mask[*cell]).collect())
        .collect();
    let mut advantages = vec![0.0; returns.len()];
    for members in rows.groups(groups)? {
        let members: Vec<usize> = members
            .into_iter()
            .filter(|row| !tokens[*row].is_empty())
            .collect();
        let alone = alone_from(&members, |row| tokens[row].len(), inputs.zero_tail);
        let longest = members.iter().map(|row| tokens[*row].len()).max();
        for place in 0..longest.unwrap_or(0) {
            let there = || {
                members
                    .iter()
                    .filter_map(|row| Some((*row, *tokens[*row].get(place)?)))
            };
            let (mut weighted, mut total) = (0.0, inputs.epsilon);
            for (_, token) in there() {
                weighted += returns[token] * weights[token];
                total += weights[token];
            }
            let baseline = if members.len() == 1 {
                0.0
            } else {
                weighted / total
            };
            for (row, token) in there() {
                let has_baseline =
                    alone.is_none_or(|(longest, from)| row != longest || place < from);
                advantages[token] = returns[token] - if has_baseline { baseline } else { 0.0 };
            }
        }
    }
    Ok(rows.advantages(&advantages, &returns, inputs.token_rewards.device()))
}

/// The one longest of `members` and where it goes on alone; None when there is none, or `zero_tail` is false.
fn alone_from(
    members: &[usize],
    length: impl Fn(usize) -> usize,
    zero_tail: bool,
) -> Option<(usize, usize)> {
    let mut order: Vec<(usize, usize)> = members.iter().map(|row| (length(*row), *row)).collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    let [(longest, row), (second, _), ..] = order[..] else {
        return None;
    };
    (zero_tail && longest > second).then_some((row, second))
}

/// B rows of T cells laid end to end.
struct Rows {
    count: usize,
    width: usize,
    size: Vec<i64>,
    mask: Vec<bool>,
}

impl Rows {
    fn new(mask: &Tensor) -> Self {
        let size = mask.size();
        let width = *size.last().unwrap_or(&0) as usize;
        let mask: Vec<bool> = numbers(mask).iter().map(|valid| *valid != 0.0).collect();
        Self {
            count: mask.len().checked_div(width).unwrap_or(0),
            width,
            size,
            mask,
        }
    }

    fn cells(&self, row: usize) -> std::ops::Range<usize> {
        row * self.width..(row + 1) * self.width
    }

    fn length(&self, row: usize) -> usize {
        self.mask[self.cells(row)]
            .iter()
            .filter(|valid| **valid)
            .count()
    }

    /// Sum of the rewards of the mask from each cell on, at every cell.
    fn rewards_to_go(&self, rewards: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; rewards.len()];
        for row in 0..self.count {
            let mut sum = 0.0;
            for token in self.cells(row).rev() {
                if self.mask[token] {
                    sum += rewards[token];
                }
                sums[token] = sum;
            }
        }
        sums
    }

    /// Rows of each group.
    fn groups<K: Eq + Hash>(&self, groups: &[K]) -> Result<Vec<Vec<usize>>, ObjectiveError> {
        if groups.len() != self.size.first().map_or(0, |rows| *rows as usize) {
            return Err(ObjectiveError::Shapes {
                left: "groups",
                left_shape: vec![groups.len() as i64],
                right: "mask",
                right_shape: self.size.clone(),
            });
        }
        let mut members: HashMap<&K, Vec<usize>> = HashMap::new();
        for (row, group) in groups.iter().enumerate().take(self.count) {
            members.entry(group).or_default().push(row);
        }
        Ok(members.into_values().collect())
    }

    fn tensor(&self, cells: &[f64]) -> Tensor {
        Tensor::from_slice(cells).view(self.size.as_slice())
    }

    fn advantages(&self, advantages: &[f64], returns: &[f64], device: Device) -> Advantages {
        Advantages {
            advantages: float32_on(&self.tensor(advantages), device),
            returns: float32_on(&self.tensor(returns), device),
        }
    }
}

/// Refuses anything but one number a sequence.
fn per_sequence(name: &'static str, values: &Tensor, mask: &Tensor) -> Result<(), ObjectiveError> {
    let size = mask.size();
    if values.size() == size[..1] {
        return Ok(());
    }
    Err(ObjectiveError::Shapes {
        left: name,
        left_shape: values.size(),
        right: "the first dimension of mask",
        right_shape: size[..1].to_vec(),
    })
}
