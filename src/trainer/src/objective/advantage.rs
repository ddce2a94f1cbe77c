//! From token rewards to advantages. Small loops over numbers, in float64, on the CPU: B·T additions are nothing beside one
//! layer of the model, and each sequence walks backwards in its own way.

use std::collections::HashMap;
use std::hash::Hash;

use tch::{Device, Kind, Tensor};

use super::masked::whiten;
use super::{ObjectiveError, same_shape};

/// Keeps (s − μ) / σ finite in a group of equal scores.
const GROUP_STD_EPSILON: f64 = 1e-6;

/// Both \[B, T\], float32, on the device of the rewards. Outside the mask they mean nothing.
#[derive(Debug)]
pub struct Advantages {
    pub advantages: Tensor,
    /// The critic's target.
    pub returns: Tensor,
}

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
    let size = mask.size();
    let width = *size.last().unwrap_or(&0) as usize;
    let (rewards, value, mask_numbers) = (numbers(token_rewards), numbers(values), numbers(mask));
    let mut advantages = vec![0.0; rewards.len()];
    for row in 0..rewards.len().checked_div(width).unwrap_or(0) {
        let (mut next_value, mut next_advantage) = (0.0, 0.0);
        for token in (row * width..(row + 1) * width).rev() {
            if mask_numbers[token] != 0.0 {
                let delta = rewards[token] + gamma * next_value - value[token];
                next_advantage = delta + gamma * lam * next_advantage;
                next_value = value[token];
            }
            advantages[token] = next_advantage;
        }
    }
    let advantages = Tensor::from_slice(&advantages).view(size.as_slice());
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

/// Group-relative advantages (<https://arxiv.org/abs/2402.03300>; verl `compute_grpo_outcome_advantage`). With s the sum of a
/// sequence's rewards, and mean μ and unbiased deviation σ over the sequences of its group:
///
/// ```text
/// A = (s − μ) / (σ + 1e-6)      or s − μ without `by_std` (Dr. GRPO, https://arxiv.org/abs/2503.20783)
/// ```
///
/// the same on every token of `mask`, 0 elsewhere; returns are the advantages. A group of one keeps its raw score (μ = 0,
/// σ = 1), as in verl. `groups` \[B\] names each sequence's group. Rewards outside the mask count, unless they are NaN.
pub fn grpo<K: Eq + Hash>(
    token_rewards: &Tensor,
    mask: &Tensor,
    groups: &[K],
    by_std: bool,
) -> Result<Advantages, ObjectiveError> {
    same_shape(("token rewards", token_rewards), ("mask", mask))?;
    let size = mask.size();
    if size.first() != Some(&(groups.len() as i64)) {
        return Err(ObjectiveError::Shapes {
            left: "groups",
            left_shape: vec![groups.len() as i64],
            right: "mask",
            right_shape: size,
        });
    }
    let width = (*size.last().unwrap_or(&0) as usize).max(1);
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

    let mut members: HashMap<&K, Vec<usize>> = HashMap::new();
    for (row, group) in groups.iter().enumerate() {
        members.entry(group).or_default().push(row);
    }
    let mut advantages = scores.clone();
    for rows in members.values().filter(|rows| rows.len() > 1) {
        let count = rows.len() as f64;
        let mean = rows.iter().map(|row| scores[*row]).sum::<f64>() / count;
        let squares: f64 = rows.iter().map(|row| (scores[*row] - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0)).sqrt();
        for row in rows {
            advantages[*row] = scores[*row] - mean;
            if by_std {
                advantages[*row] /= deviation + GROUP_STD_EPSILON;
            }
        }
    }
    if by_std {
        for rows in members.values().filter(|rows| rows.len() == 1) {
            advantages[rows[0]] /= 1.0 + GROUP_STD_EPSILON;
        }
    }
    let per_sequence = Tensor::from_slice(&advantages).unsqueeze(-1); // [B, 1]
    let valid = mask.to_device(Device::Cpu).to_kind(Kind::Bool);
    let spread = float32_on(&(per_sequence * valid), token_rewards.device()); // [B, T]
    Ok(Advantages {
        returns: spread.shallow_clone(),
        advantages: spread,
    })
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor
        .detach()
        .to_device(Device::Cpu)
        .to_kind(Kind::Double)
        .reshape([-1]);
    Vec::try_from(flat).expect("a flat float64 tensor on the CPU")
}

fn float32_on(tensor: &Tensor, device: Device) -> Tensor {
    tensor.to_kind(Kind::Float).to_device(device)
}
