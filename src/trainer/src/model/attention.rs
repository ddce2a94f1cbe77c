//! Causal attention over a [`PackedBatch`]: the rows are cut into prompts and runs of equally long branches, each run attends to
//! its prompt and itself, and nothing is padded. A run is a batch of `count` sequences that share the prompt's keys.
//!
//! ```text
//!           keys:  prompt P │ own L
//!  prompt   rows   ◣        │          causal, P x P
//!  branches rows   ■        │ ◣        [count, L, P + L], one mask for all
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use super::packed::PackedBatch;

/// A stretch of rows that is attended to in one call.
#[derive(Debug)]
struct Run {
    count: i64,
    /// L, tokens of each sequence of the run.
    length: i64,
    is_prompt: bool,
    /// \[L, P + L\], true where a branch's query sees the key. None where it sees all, and for prompts.
    mask: Option<Rc<Tensor>>,
}

/// How the rows of one batch attend to each other; made once per batch, used by every layer.
#[derive(Debug)]
pub struct AttentionPlan {
    runs: Vec<Run>,
    /// Rows of each run, for splitting.
    rows: Vec<i64>,
}

impl AttentionPlan {
    pub fn new(batch: &PackedBatch, device: Device) -> Self {
        let masks = RefCell::new(HashMap::new());
        let mask = |prompt: i64, length: i64| -> Option<Rc<Tensor>> {
            (length > 1).then(|| {
                Rc::clone(
                    masks
                        .borrow_mut()
                        .entry((prompt, length))
                        .or_insert_with(|| Rc::new(branch_mask(prompt, length, device))),
                )
            })
        };
        let mut runs: Vec<Run> = Vec::new();
        for group in &batch.groups {
            let prompt = group.prompt.len() as i64;
            runs.push(Run {
                count: 1,
                length: prompt,
                is_prompt: true,
                mask: None,
            });
            for branch in &group.branches {
                let length = branch.len() as i64;
                match runs.last_mut().expect("a prompt run was pushed") {
                    _ if length == 0 => {}
                    run if !run.is_prompt && run.length == length => run.count += 1,
                    _ => runs.push(Run {
                        count: 1,
                        length,
                        is_prompt: false,
                        mask: mask(prompt, length),
                    }),
                }
            }
        }
        let rows = runs.iter().map(|run| run.count * run.length).collect();
        Self { runs, rows }
    }

    /// `query` \[N, heads, D\], `key` and `value` \[N, kv heads, D\]; gives \[N, heads · D\].
    pub fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor {
        let (_, heads, head_dim) = query.size3().expect("queries are [N, heads, D]");
        let (_, kv_heads, _) = key.size3().expect("keys are [N, kv heads, D]");
        let queries = query.split_with_sizes(&self.rows, 0);
        let keys = key.split_with_sizes(&self.rows, 0);
        let values = value.split_with_sizes(&self.rows, 0);
        let mut outputs = Vec::with_capacity(self.runs.len());
        let mut prompt = 0;
        for (at, run) in self.runs.iter().enumerate() {
            let shaped =
                |rows: &Tensor, heads: i64| rows.view([run.count, run.length, heads, head_dim]);
            let query = shaped(&queries[at], heads);
            let (key, value, mask) = if run.is_prompt {
                prompt = at;
                (
                    shaped(&keys[at], kv_heads),
                    shaped(&values[at], kv_heads),
                    None,
                )
            } else {
                let with_prompt = |prompt: &Tensor, own: &Tensor| {
                    let shared = prompt.unsqueeze(0).expand([run.count, -1, -1, -1], false);
                    Tensor::cat(&[shared, shaped(own, kv_heads)], 1)
                };
                (
                    with_prompt(&keys[prompt], &keys[at]),
                    with_prompt(&values[prompt], &values[at]),
                    run.mask.as_deref(),
                )
            };
            let output = Tensor::scaled_dot_product_attention(
                &query.transpose(1, 2),
                &key.transpose(1, 2),
                &value.transpose(1, 2),
                mask,
                0.0,
                run.is_prompt && run.length > 1,
                None,
                heads != kv_heads,
            );
            outputs.push(
                output
                    .transpose(1, 2)
                    .reshape([run.count * run.length, heads * head_dim]),
            );
        }
        Tensor::cat(&outputs, 0)
    }
}

/// \[length, prompt + length\]: all of the prompt, then the lower triangle.
fn branch_mask(prompt: i64, length: i64, device: Device) -> Tensor {
    Tensor::ones([length, prompt + length], (Kind::Bool, device)).tril(prompt)
}
