//! From rollouts to tensors: which rows train, how they are cut into micro-batches, and where each drawn token sits.
//!
//! Letters as in [`crate::objective`]: B rows (sequences), T response tokens of the longest row, M drawn tokens, N packed tokens.

use std::ops::Range;

use dialogue::rollout::{Finish, Rollout};
use tch::{Device, Kind, Tensor};

use crate::model::packed::PackedBatch;

/// The rollouts of one step, group by group, with what every kernel needs as padded `[B, T]` tensors.
#[derive(Debug)]
pub struct TrainBatch {
    /// B rows; the rows of one group lie together.
    pub rollouts: Vec<Rollout>,
    /// Rows of each group (samples of one prompt).
    pub groups: Vec<Range<usize>>,
    /// T
    pub width: usize,
    /// `[B, T]` f32: 1 where the model drew the token.
    pub mask: Tensor,
    /// `[B, T]` f32: log-prob under the weights that drew it; 0 where the mask is 0.
    pub behavior_logprobs: Tensor,
    /// `[B, T]` f32: the row's score on its last drawn token.
    pub token_scores: Tensor,
    /// Rows left out, by reason.
    pub left_out: LeftOut,
}

/// Rollouts that did not train. They are counted, never scored 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The scorer failed or timed out.
    pub missing_score: usize,
    /// Generation failed, or the model drew nothing.
    pub no_tokens: usize,
    /// The only survivor of its group: a group estimator has nothing to compare it with.
    pub lone_survivor: usize,
}

impl LeftOut {
    pub fn total(self) -> usize {
        self.missing_score + self.no_tokens + self.lone_survivor
    }
}

impl TrainBatch {
    /// Takes a step's rollouts in order. `needs_groups`: the estimator compares the samples of a prompt.
    pub fn new(rollouts: Vec<Rollout>, needs_groups: bool, device: Device) -> Self {
        let mut left_out = LeftOut::default();
        let mut by_group: Vec<(String, usize, Vec<Rollout>)> = Vec::new();
        for rollout in rollouts {
            let index = by_group
                .iter()
                .rposition(|(uid, ..)| *uid == rollout.uid)
                .unwrap_or_else(|| {
                    by_group.push((rollout.uid.clone(), 0, Vec::new()));
                    by_group.len() - 1
                });
            by_group[index].1 += 1;
            if rollout.finish == Finish::Error || rollout.model_tokens() == 0 {
                left_out.no_tokens += 1;
            } else if rollout.score.is_none() {
                left_out.missing_score += 1;
            } else {
                by_group[index].2.push(rollout);
            }
        }
        let mut rows = Vec::new();
        let mut groups = Vec::new();
        for (_, sampled, survivors) in by_group {
            if needs_groups && sampled > 1 && survivors.len() == 1 {
                left_out.lone_survivor += 1;
                continue;
            }
            let start = rows.len();
            rows.extend(survivors);
            if rows.len() > start {
                groups.push(start..rows.len());
            }
        }
        let width = rows
            .iter()
            .map(|row: &Rollout| row.response_ids.len())
            .max()
            .unwrap_or(0);
        let mut mask = vec![0f32; rows.len() * width];
        let mut behavior = vec![0f32; rows.len() * width];
        let mut scores = vec![0f32; rows.len() * width];
        for (index, row) in rows.iter().enumerate() {
            let cells = index * width..index * width + row.response_ids.len();
            for (cell, drawn) in cells.clone().zip(&row.response_mask) {
                mask[cell] = f32::from(u8::from(*drawn));
            }
            behavior[cells].copy_from_slice(&row.behavior_logprobs);
            // On the last *drawn* token: a reward on a masked token would vanish.
            if let (Some(last), Some(score)) = (
                row.response_mask.iter().rposition(|drawn| *drawn),
                row.score,
            ) {
                scores[index * width + last] = score as f32;
            }
        }
        let shape = [rows.len() as i64, width as i64];
        let tensor = |values: &[f32]| Tensor::from_slice(values).view(shape).to_device(device);
        Self {
            mask: tensor(&mask),
            behavior_logprobs: tensor(&behavior),
            token_scores: tensor(&scores),
            rollouts: rows,
            groups,
            width,
            left_out,
        }
    }

    /// Which group each of the B rows belongs to.
    pub fn group_of_rows(&self) -> Vec<usize> {
        self.groups
            .iter()
            .enumerate()
            .flat_map(|(group, rows)| rows.clone().map(move |_| group))
            .collect()
    }

    /// `[B, T]` f32: 1 on the last drawn token of each row.
    pub fn last_tokens(&self) -> Tensor {
        // Counted from the end, the last drawn token is the first.
        let from_the_end = self.mask.flip([-1]).cumsum(-1, Kind::Float).flip([-1]);
        from_the_end.eq(1.0).to_kind(Kind::Float) * &self.mask
    }

    /// B
    pub fn len(&self) -> usize {
        self.rollouts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rollouts.is_empty()
    }

    /// Cuts `groups` (indices into [`Self::groups`], in this order) into micro-batches. A group's samples stay together, so that
    /// its prompt is computed once, unless the limit is smaller than the group.
    pub fn micro_batches(
        &self,
        groups: &[usize],
        limit: MicroLimit,
        device: Device,
    ) -> Vec<MicroBatch> {
        let mut plans: Vec<Vec<Range<usize>>> = Vec::new();
        let mut size = Size::default();
        for group in groups {
            let mut rest = self.groups[*group].clone();
            while !rest.is_empty() {
                let prompt_tokens = self.rollouts[rest.start].prompt_ids.len();
                let take = self.fitting(&rest, size, limit, prompt_tokens);
                if take == 0 {
                    // An empty micro-batch takes at least one row, however long.
                    debug_assert!(size.sequences > 0, "a fresh micro-batch takes a row");
                    size = Size::default();
                    continue;
                }
                if size.sequences == 0 {
                    plans.push(Vec::new());
                }
                let rows = rest.start..rest.start + take;
                size.sequences += take;
                size.tokens += prompt_tokens
                    + self.rollouts[rows.clone()]
                        .iter()
                        .map(|row| row.response_ids.len())
                        .sum::<usize>();
                rest.start += take;
                plans
                    .last_mut()
                    .expect("pushed when the size was zero")
                    .push(rows);
            }
        }
        plans
            .iter()
            .map(|rows| self.micro_batch(rows, device))
            .collect()
    }

    /// How many of the first rows of `rest` fit beside what is there. All or nothing while the micro-batch holds other groups.
    fn fitting(
        &self,
        rest: &Range<usize>,
        size: Size,
        limit: MicroLimit,
        prompt_tokens: usize,
    ) -> usize {
        let mut tokens = size.tokens + prompt_tokens;
        let mut take = 0;
        for row in &self.rollouts[rest.clone()] {
            tokens += row.response_ids.len();
            let fits = limit
                .sequences
                .is_none_or(|most| size.sequences + take < most)
                && limit.tokens.is_none_or(|most| tokens <= most);
            if !fits {
                break;
            }
            take += 1;
        }
        if size.sequences > 0 && take < rest.len() {
            0
        } else if size.sequences == 0 {
            take.max(1)
        } else {
            take
        }
    }

    fn micro_batch(&self, parts: &[Range<usize>], device: Device) -> MicroBatch {
        let mut packed = PackedBatch::default();
        let mut rows = Vec::new();
        let (mut source_rows, mut targets, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            let prompt = &self.rollouts[part.start].prompt_ids;
            let responses: Vec<&[u32]> = self.rollouts[part.clone()]
                .iter()
                .map(|row| row.response_ids.as_slice())
                .collect();
            let group = packed.push_group(prompt, &responses).clone();
            for (branch, row) in group.branches.iter().zip(part.clone()) {
                let rollout = &self.rollouts[row];
                for (index, drawn) in rollout.response_mask.iter().enumerate() {
                    if !drawn {
                        continue;
                    }
                    // The row before a token holds the logits it was drawn from; before the first stands the prompt's last.
                    source_rows.push(if index == 0 {
                        group.prompt.end as i64 - 1
                    } else {
                        (branch.start + index) as i64 - 1
                    });
                    targets.push(i64::from(rollout.response_ids[index]));
                    cells.push((rows.len() * self.width + index) as i64);
                }
                rows.push(row as i64);
            }
        }
        MicroBatch {
            packed,
            rows: Tensor::from_slice(&rows).to_device(device),
            source_rows: Tensor::from_slice(&source_rows).to_device(device),
            targets: Tensor::from_slice(&targets).to_device(device),
            cells: Tensor::from_slice(&cells).to_device(device),
            width: self.width,
        }
    }
}

/// The most that one forward and backward pass may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroLimit {
    pub sequences: Option<usize>,
    /// Packed tokens, a shared prompt counted once.
    pub tokens: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Size {
    sequences: usize,
    tokens: usize,
}

/// One forward and backward pass.
#[derive(Debug)]
pub struct MicroBatch {
    /// N tokens.
    pub packed: PackedBatch,
    /// `[b]` i64: its rows in the batch.
    pub rows: Tensor,
    /// `[M]` i64: packed row whose hidden state predicts each drawn token.
    pub source_rows: Tensor,
    /// `[M]` i64: the drawn tokens.
    pub targets: Tensor,
    /// `[M]` i64: where each belongs in a flat `[b * T]`.
    pub cells: Tensor,
    width: usize,
}

impl MicroBatch {
    /// Spreads one value per drawn token over `[b, T]`, 0 elsewhere; gradients flow back.
    pub fn scatter(&self, values: &Tensor) -> Tensor {
        let rows = self.rows.size()[0];
        Tensor::zeros([rows * self.width as i64], (Kind::Float, values.device()))
            .scatter(0, &self.cells, &values.to_kind(Kind::Float))
            .view([rows, self.width as i64])
    }

    /// The rows of this micro-batch out of a `[B, T]` tensor.
    pub fn select(&self, padded: &Tensor) -> Tensor {
        padded.index_select(0, &self.rows)
    }
}
