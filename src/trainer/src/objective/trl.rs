//! The same ideas as TRL 1.16 has them, to be compared with it: GRPO's family of losses and advantages, and leave-one-out.
//! The learner does not train by these. Where TRL and verl part: 1e-4 beside a deviation instead of 1e-6, no limit on the log
//! ratio, `grpo` averages over all rows, empty ones too, `cispo` clips from above only and at `epsilon_high` itself.

use serde::Deserialize;
use tch::{Kind, Tensor};

use super::ObjectiveError;
use super::masked::{sum_per_sequence, zeroed};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossType {
    Grpo,
    Bnpo,
    DrGrpo,
    Dapo,
    Cispo,
    Sapo,
    Luspo,
    Vespo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    Token,
    Sequence,
}

/// TRL's names.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    pub loss_type: LossType,
    pub level: RatioLevel,
    pub epsilon_low: f64,
    pub epsilon_high: f64,
    /// Cap of the unclipped ratio.
    pub delta: Option<f64>,
    /// Weight of the k3 KL to the reference.
    pub beta: f64,
    pub use_bias_correction_kl: bool,
    pub off_policy_mask_threshold: Option<f64>,
    pub top_entropy_quantile: f64,
    pub sapo_temperature: [f64; 2],
    /// k and λ of vespo where the advantage is not negative, and where it is.
    pub vespo: [(f64, f64); 2],
    pub num_items_in_batch: f64,
    pub max_completion_length: f64,
}

/// \[B, T\] but for the advantages \[B\].
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// With gradients.
    pub logprobs: &'a Tensor,
    /// None: the policy's own, held.
    pub old_logprobs: Option<&'a Tensor>,
    pub ref_logprobs: &'a Tensor,
    pub advantages: &'a Tensor,
    pub mask: &'a Tensor,
    pub entropies: &'a Tensor,
    /// Of the trainer to the sampler.
    pub importance_ratio: Option<&'a Tensor>,
}

/// A loss and TRL's numbers beside it.
#[derive(Debug)]
pub struct Answer {
    pub loss: Tensor,
    pub numbers: Vec<(&'static str, f64)>,
}

/// `GRPOTrainer._compute_loss` of one micro-batch, one process.
pub fn grpo_loss(settings: &Settings, batch: &Batch<'_>) -> Answer {
    let mask = batch.mask;
    let cells = mask.to_kind(Kind::Float);
    let inside = |values: &Tensor| zeroed(values, mask);
    let logprobs = inside(batch.logprobs);
    let old = batch.old_logprobs.map_or_else(|| logprobs.detach(), inside);
    let advantages = batch.advantages.unsqueeze(-1); // [B, 1]
    let lengths = cells.sum_dim_intlist(-1, false, Kind::Float); // [B]
    let at_least_one = lengths.clamp_min(1.0);
    let log_ratio = &logprobs - &old;
    let log_weights = match settings.level {
        RatioLevel::Token => log_ratio.shallow_clone(),
        RatioLevel::Sequence => {
            (sum_per_sequence(&log_ratio, mask) / &at_least_one).unsqueeze(-1) // [B, 1]
        }
    };
    let ratio = log_weights.exp();
    let mut capped = ratio.shallow_clone();
    let mut numbers = Vec::new();
    let clips = matches!(
        settings.loss_type,
        LossType::Grpo | LossType::Bnpo | LossType::DrGrpo | LossType::Dapo | LossType::Luspo
    );
    let mut phi = None;
    let mut loss = match settings.loss_type {
        LossType::Cispo => {
            -ratio.detach().clamp_max(settings.epsilon_high) * &advantages * &logprobs
        }
        LossType::Sapo => {
            let [above, below] = settings.sapo_temperature;
            let temperature = choose(&advantages.gt(0.0), above, below);
            -((&ratio - 1.0) * &temperature).sigmoid() * 4.0 / &temperature * &advantages
        }
        LossType::Vespo => {
            let weights = vespo_weights(settings, batch, &log_ratio.detach());
            let loss = -&weights * &advantages * &logprobs;
            phi = Some(weights);
            loss
        }
        _ => {
            let clipped = ratio.clamp(1.0 - settings.epsilon_low, 1.0 + settings.epsilon_high);
            if let Some(delta) = settings.delta {
                capped = ratio.clamp_max(delta);
            }
            -(&capped * &advantages).minimum(&(clipped * &advantages))
        }
    };
    // One number a sequence may become one a token here: no assignment in place.
    if let Some(threshold) = settings.off_policy_mask_threshold {
        let gap = &old - logprobs.detach();
        let of_sequence = (sum_per_sequence(&gap, mask) / &at_least_one).unsqueeze(-1);
        let keeps = advantages.ge(0.0).logical_or(&of_sequence.le(threshold));
        loss = &loss * keeps.to_kind(Kind::Float);
    }
    if settings.top_entropy_quantile < 1.0 {
        loss = &loss * most_uncertain(batch, 1.0 - settings.top_entropy_quantile);
    }
    if let (Some(weights), false) = (
        batch.importance_ratio,
        settings.loss_type == LossType::Vespo,
    ) {
        loss = &loss * weights;
    }
    if settings.beta != 0.0 {
        let gap = inside(batch.ref_logprobs) - &logprobs;
        let mut kl = gap.exp() - &gap - 1.0;
        if settings.use_bias_correction_kl {
            kl *= &ratio;
        }
        numbers.push(("kl", masked_mean(&kl, &cells)));
        loss = &loss + kl * settings.beta;
    }
    numbers.push((
        "entropy",
        masked_mean(&zeroed(batch.entropies, mask), &cells),
    ));
    if clips {
        let low = capped
            .lt(1.0 - settings.epsilon_low)
            .logical_and(&advantages.lt(0.0))
            .to_kind(Kind::Float);
        let high = capped
            .gt(1.0 + settings.epsilon_high)
            .logical_and(&advantages.gt(0.0))
            .to_kind(Kind::Float);
        let (low_rows, high_rows) = (per_row(&low, &cells), per_row(&high, &cells));
        numbers.extend([
            ("clip_ratio/low_mean", masked_mean(&low, &cells)),
            ("clip_ratio/high_mean", masked_mean(&high, &cells)),
            (
                "clip_ratio/region_mean",
                masked_mean(&(&low + &high), &cells),
            ),
            ("clip_ratio/low_min", extreme(&low_rows, f64::min)),
            ("clip_ratio/high_max", extreme(&high_rows, f64::max)),
        ]);
    }
    if settings.loss_type == LossType::Cispo {
        let clipped = ratio
            .gt(settings.epsilon_high)
            .logical_and(&advantages.gt(0.0));
        let share = masked_mean(&clipped.to_kind(Kind::Float), &cells);
        numbers.push(("cispo_clip_ratio", share));
    }
    if let Some(phi) = phi {
        numbers.push(("vespo/phi_seq_mean", masked_mean(&phi, &cells)));
    }
    let rows = mask.size()[0] as f64;
    let sum = |loss: &Tensor| (loss * &cells).sum(Kind::Float);
    let loss = match settings.loss_type {
        LossType::Grpo | LossType::Sapo => {
            let of_rows = (&loss * &cells).sum_dim_intlist(-1, false, Kind::Float);
            (of_rows / &at_least_one).mean(Kind::Float)
        }
        LossType::Bnpo => sum(&loss) / cells.sum(Kind::Float).clamp_min(1.0),
        LossType::DrGrpo => sum(&loss) / (rows * settings.max_completion_length),
        LossType::Cispo | LossType::Dapo | LossType::Vespo => {
            sum(&loss) / settings.num_items_in_batch.max(1.0)
        }
        LossType::Luspo if loss.size()[1] == 1 => (loss.squeeze_dim(1) * lengths).mean(Kind::Float),
        LossType::Luspo => {
            let of_rows = (&loss * &cells).sum_dim_intlist(-1, false, Kind::Float);
            (of_rows / &at_least_one * lengths).mean(Kind::Float)
        }
    };
    Answer { loss, numbers }
}

/// One number where the condition holds, another where not.
fn choose(condition: &Tensor, yes: f64, no: f64) -> Tensor {
    condition.to_kind(Kind::Float) * (yes - no) + no
}

/// φ = e^λ·w^k·e^(−λw) per sequence \[B, 1\], w its ratio: 1 at w = 1.
fn vespo_weights(settings: &Settings, batch: &Batch<'_>, log_ratio: &Tensor) -> Tensor {
    let smallest = 1e-8_f64.ln();
    let limited = log_ratio.clamp(-20.0, 20.0);
    let mut sum = sum_per_sequence(&limited, batch.mask).unsqueeze(-1);
    if let Some(weights) = batch.importance_ratio {
        let log_weights = weights.log().clamp(smallest, 20.0);
        sum += log_weights.sum_dim_intlist(-1, true, Kind::Float);
    }
    let log_weight = sum.clamp(smallest, 20.0);
    let [above, below] = settings.vespo;
    let not_negative = batch.advantages.unsqueeze(-1).ge(0.0);
    let k = choose(&not_negative, above.0, below.0);
    let lambda = choose(&not_negative, above.1, below.1).clamp_min(1e-4);
    let weight = log_weight.exp();
    (&lambda + k * log_weight - &lambda * weight)
        .exp()
        .nan_to_num(0.0, 0.0, 0.0)
}

/// 1 on the tokens whose entropy reaches the quantile, \[B, T\].
fn most_uncertain(batch: &Batch<'_>, quantile: f64) -> Tensor {
    let valid = batch.mask.to_kind(Kind::Bool);
    let entropies = zeroed(batch.entropies, batch.mask);
    let drawn = entropies.masked_select(&valid);
    if drawn.numel() == 0 {
        return entropies.zeros_like();
    }
    let threshold = drawn.quantile_scalar(quantile, None::<i64>, false, "linear");
    entropies
        .ge_tensor(&threshold)
        .logical_and(&valid)
        .to_kind(Kind::Float)
}

/// Over tokens, or over sequences where there is one number each.
fn masked_mean(values: &Tensor, cells: &Tensor) -> f64 {
    let values = values.detach();
    if values.size()[1] == 1 && cells.size()[1] != 1 || values.size() != cells.size() {
        return values.mean(Kind::Float).double_value(&[]);
    }
    let sum = (values * cells).sum(Kind::Float).double_value(&[]);
    sum / cells.sum(Kind::Float).double_value(&[]).max(1.0)
}

/// Mean of each row; NaN for one without tokens.
fn per_row(values: &Tensor, cells: &Tensor) -> Vec<f64> {
    let rows = if values.size()[1] == 1 {
        values.squeeze_dim(1)
    } else {
        (values * cells).sum_dim_intlist(-1, false, Kind::Float)
            / cells.sum_dim_intlist(-1, false, Kind::Float)
    };
    Vec::try_from(rows.to_kind(Kind::Double).contiguous()).expect("one number a row")
}

/// Over the numbers that are numbers; NaN if none is.
fn extreme(numbers: &[f64], pick: fn(f64, f64) -> f64) -> f64 {
    numbers
        .iter()
        .copied()
        .filter(|number| !number.is_nan())
        .reduce(pick)
        .unwrap_or(f64::NAN)
}

/// What TRL divides a difference of rewards by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleRewards {
    Group,
    Batch,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    SumThenNormalize,
    NormalizeThenSum,
}

/// Rewards of n samples by several functions, row by row; NaN where a function gave none. Groups are consecutive.
#[derive(Debug, Clone, Copy)]
pub struct Rewards<'a> {
    pub per_function: &'a [Vec<f64>],
    pub weights: &'a [f64],
    pub group: usize,
}

/// Advantages and TRL's numbers beside them.
#[derive(Debug)]
pub struct Advantages {
    pub advantages: Vec<f64>,
    pub reward: f64,
    pub reward_std: f64,
    pub frac_reward_zero_std: f64,
}

/// Beside a deviation.
const EPSILON: f64 = 1e-4;

impl Rewards<'_> {
    fn check(&self) -> Result<(), ObjectiveError> {
        let whole = self.group > 0 && self.per_function.len().is_multiple_of(self.group);
        let weighted = self
            .per_function
            .iter()
            .all(|row| row.len() == self.weights.len());
        if whole && weighted {
            return Ok(());
        }
        Err(ObjectiveError::Shapes {
            left: "rewards",
            left_shape: vec![
                self.per_function.len() as i64,
                self.per_function.first().map_or(0, Vec::len) as i64,
            ],
            right: "generations a prompt, and weights",
            right_shape: vec![self.group as i64, self.weights.len() as i64],
        })
    }

    /// Weighted sums of what there is; NaN for a sample that no function could score.
    fn totals(&self, rows: &[Vec<f64>]) -> Vec<f64> {
        rows.iter()
            .zip(self.per_function)
            .map(|(row, given)| {
                if given.iter().all(|reward| reward.is_nan()) {
                    return f64::NAN;
                }
                row.iter()
                    .zip(self.weights)
                    .map(|(reward, weight)| reward * weight)
                    .filter(|product| !product.is_nan())
                    .sum()
            })
            .collect()
    }

    fn summary(&self, advantages: Vec<f64>, deviations: &[f64]) -> Advantages {
        let totals = self.totals(self.per_function);
        let zero = deviations
            .iter()
            .filter(|deviation| deviation.abs() <= 1e-8)
            .count();
        Advantages {
            advantages: advantages
                .into_iter()
                .map(|advantage| if advantage.is_nan() { 0.0 } else { advantage })
                .collect(),
            reward: mean(&totals),
            reward_std: deviation(&totals),
            frac_reward_zero_std: zero as f64 / deviations.len().max(1) as f64,
        }
    }

    /// One number of each group, for each of its samples.
    fn of_groups(&self, totals: &[f64], number: fn(&[f64]) -> f64) -> Vec<f64> {
        totals
            .chunks(self.group)
            .flat_map(|group| vec![number(group); group.len()])
            .collect()
    }
}

/// `GRPOTrainer`'s advantages.
pub fn grpo_advantages(
    rewards: &Rewards<'_>,
    scale: ScaleRewards,
    aggregation: Aggregation,
) -> Result<Advantages, ObjectiveError> {
    rewards.check()?;
    if aggregation == Aggregation::NormalizeThenSum {
        let columns = rewards.weights.len();
        let mut normalized = rewards.per_function.to_vec();
        for column in 0..columns {
            let values: Vec<f64> = rewards.per_function.iter().map(|row| row[column]).collect();
            let (means, deviations) = (
                rewards.of_groups(&values, mean),
                rewards.of_groups(&values, deviation),
            );
            for (row, value) in values.iter().enumerate() {
                normalized[row][column] = (value - means[row]) / (deviations[row] + EPSILON);
            }
        }
        let totals = rewards.totals(&normalized);
        let (center, spread) = (mean(&totals), deviation(&totals));
        let advantages = totals
            .iter()
            .map(|total| (total - center) / (spread + EPSILON))
            .collect();
        return Ok(rewards.summary(advantages, &vec![spread; totals.len()]));
    }
    let totals = rewards.totals(rewards.per_function);
    let means = rewards.of_groups(&totals, mean);
    let deviations = match scale {
        ScaleRewards::Group | ScaleRewards::None => rewards.of_groups(&totals, deviation),
        ScaleRewards::Batch => vec![deviation(&totals); totals.len()],
    };
    let advantages = (0..totals.len())
        .map(|row| {
            let difference = totals[row] - means[row];
            match scale {
                ScaleRewards::None => difference,
                _ => difference / (deviations[row] + EPSILON),
            }
        })
        .collect();
    Ok(rewards.summary(advantages, &deviations))
}

/// `RLOOTrainer`'s advantages without KL: against the mean of the other samples that could be scored. One that nobody can be
/// compared with has none.
pub fn rloo_advantages(
    rewards: &Rewards<'_>,
    normalize: bool,
) -> Result<Advantages, ObjectiveError> {
    rewards.check()?;
    let totals = rewards.totals(rewards.per_function);
    let mut advantages = Vec::with_capacity(totals.len());
    for group in totals.chunks(rewards.group) {
        let scored: Vec<f64> = group
            .iter()
            .copied()
            .filter(|total| !total.is_nan())
            .collect();
        let sum: f64 = scored.iter().sum();
        advantages.extend(
            group
                .iter()
                .map(|total| total - (sum - total) / (scored.len() as f64 - 1.0)),
        );
    }
    if normalize {
        let (center, spread) = (mean(&advantages), deviation(&advantages));
        for advantage in &mut advantages {
            *advantage = (*advantage - center) / (spread + EPSILON);
        }
    }
    Ok(rewards.summary(advantages, &rewards.of_groups(&totals, deviation)))
}

/// Of the numbers that are numbers; NaN if none is.
fn mean(numbers: &[f64]) -> f64 {
    let there = || numbers.iter().filter(|number| !number.is_nan());
    there().sum::<f64>() / there().count() as f64
}

/// Unbiased, of the numbers that are numbers; NaN for fewer than two.
fn deviation(numbers: &[f64]) -> f64 {
    let center = mean(numbers);
    let there = || numbers.iter().filter(|number| !number.is_nan());
    let count = there().count() as f64;
    if count < 2.0 {
        return f64::NAN;
    }
    let squares: f64 = there().map(|number| (number - center).powi(2)).sum();
    (squares / (count - 1.0)).sqrt()
}
