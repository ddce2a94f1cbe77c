//! The forward pass of the engine: no gradients, fused matrices, keys and values written to and read from the cache.

use dialogue::generate::GenerateError;
use tch::{Device, Kind, Tensor};

use super::cache::KvCache;
use super::weights::{Layer, WeightBuffer};
use crate::model::transformer::rms_norm;
use crate::torch_ext::InferenceMode;

/// Consecutive new tokens of one cache row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub row: usize,
    /// Tokens of the row that are in the cache already.
    pub past: usize,
    /// New tokens, at positions `past..past + count`.
    pub count: usize,
}

/// Runs the new tokens of several rows and gives the hidden state of each token, \[N, H\], before the final norm. The cache must
/// have room.
pub(super) fn prefill(
    weights: &WeightBuffer,
    cache: &mut KvCache,
    spans: &[Span],
    ids: &[i64],
) -> Tensor {
    let device = weights.device();
    let mut rows = Vec::with_capacity(ids.len());
    let mut positions = Vec::with_capacity(ids.len());
    for span in spans {
        rows.extend(std::iter::repeat_n(span.row as i64, span.count));
        positions.extend((span.past..span.past + span.count).map(|at| at as i64));
    }
    let masks: Vec<Option<Tensor>> = spans
        .iter()
        .map(|span| {
            let (past, count) = (span.past as i64, span.count as i64);
            (past > 0 && count > 1)
                .then(|| Tensor::ones([count, past + count], (Kind::Bool, device)).tril(past))
        })
        .collect();
    let config = &weights.config;
    let attend = |keys: &Tensor, values: &Tensor, queries: &Tensor| {
        let mut start = 0;
        let mut outputs = Vec::with_capacity(spans.len());
        for (span, mask) in spans.iter().zip(&masks) {
            let count = span.count as i64;
            let total = span.past as i64 + count;
            let cached = |store: &Tensor| store.narrow(0, span.row as i64, 1).narrow(2, 0, total);
            let output = Tensor::scaled_dot_product_attention(
                &queries.narrow(0, start, count).transpose(0, 1).unsqueeze(0),
                &cached(keys),
                &cached(values),
                mask.as_ref(),
                0.0,
                span.past == 0 && count > 1,
                None,
                config.num_heads != config.num_kv_heads,
            );
            outputs.push(
                output
                    .squeeze_dim(0)
                    .transpose(0, 1)
                    .reshape([count, config.num_heads * config.head_dim]),
            );
            start += count;
        }
        Tensor::cat(&outputs, 0)
    };
    trunk(weights, cache, ids, &rows, &positions, attend)
}

/// One new token for each of the rows 0..A: `ids[r]` at position `positions[r]` of row r. Gives \[A, H\] before the final norm.
pub(super) fn decode(
    weights: &WeightBuffer,
    cache: &mut KvCache,
    ids: &[i64],
    positions: &[i64],
) -> Tensor {
    let device = weights.device();
    let config = &weights.config;
    let active = ids.len() as i64;
    let longest = positions.iter().max().map_or(0, |last| last + 1);
    let shortest = positions.iter().min().map_or(0, |last| last + 1);
    // [A, 1, T]: minus infinity where a row has no token yet.
    let mask = (shortest < longest).then(|| {
        let last = Tensor::from_slice(positions)
            .to_device(device)
            .view([active, 1, 1]);
        let beyond = Tensor::arange(longest, (Kind::Int64, device)).gt_tensor(&last);
        Tensor::zeros([active, 1, longest], (weights.kind(), device))
            .masked_fill_(&beyond, f64::NEG_INFINITY)
    });
    let (heads, kv_heads, head_dim) = (config.num_heads, config.num_kv_heads, config.head_dim);
    let scale = 1.0 / (head_dim as f64).sqrt();
    // Two batched products beat the fused attention kernel where each row has one query.
    let attend = |keys: &Tensor, values: &Tensor, queries: &Tensor| {
        let cached = |store: &Tensor| {
            store.narrow(0, 0, active).narrow(2, 0, longest).view([
                active * kv_heads,
                longest,
                head_dim,
            ])
        };
        let queries = (queries * scale).view([active * kv_heads, heads / kv_heads, head_dim]);
        let mut scores = queries.bmm(&cached(keys).transpose(1, 2));
        if let Some(mask) = &mask {
            let mut by_row = scores.view([active, heads, longest]);
            let _ = by_row.g_add_(mask);
        }
        scores = scores.softmax(-1, scores.kind());
        scores.bmm(&cached(values)).view([active, heads * head_dim])
    };
    let rows: Vec<i64> = (0..active).collect();
    trunk(weights, cache, ids, &rows, positions, attend)
}

/// The layers. `attend(keys, values, queries [N, heads, D])` gives \[N, heads · D\]; keys and values are one layer's whole cache.
fn trunk(
    weights: &WeightBuffer,
    cache: &mut KvCache,
    ids: &[i64],
    rows: &[i64],
    positions: &[i64],
    attend: impl Fn(&Tensor, &Tensor, &Tensor) -> Tensor,
) -> Tensor {
    let index = |values: &[i64]| Tensor::from_slice(values).to_device(weights.device());
    let (ids, cache_rows, positions) = (index(ids), index(rows), index(positions));
    let rotary = cache.rotary(&positions);
    // The heads axis stays whole: [N, kv heads, D] goes to [row, :, position, :].
    let place = [Some(&cache_rows), None, Some(&positions)];
    let mut hidden = weights.embedding.index_select(0, &ids);
    for (at, layer) in weights.layers.iter().enumerate() {
        let (mut keys, mut values) = cache.layer(at as i64);
        let config = &weights.config;
        let (heads, kv_heads, head_dim) = (config.num_heads, config.num_kv_heads, config.head_dim);
        let count = ids.size()[0];
        let input = rms_norm(&hidden, &layer.input_norm, config.rms_norm_eps);
        let qkv = layer.qkv.forward(&input);
        let turned_heads = heads + kv_heads;
        let mut turning =
            qkv.narrow(1, 0, turned_heads * head_dim)
                .view([count, turned_heads, head_dim]);
        if let Some([of_query, of_key]) = &layer.head_norms {
            let normed = |from: i64, heads: i64, weight: &Tensor| {
                rms_norm(&turning.narrow(1, from, heads), weight, config.rms_norm_eps)
            };
            turning = Tensor::cat(
                &[normed(0, heads, of_query), normed(heads, kv_heads, of_key)],
                1,
            );
        }
        let turned = turn(&turning, &rotary);
        let value = qkv
            .narrow(1, turned_heads * head_dim, kv_heads * head_dim)
            .view([count, kv_heads, head_dim]);
        let _ = keys.index_put_(&place, &turned.narrow(1, heads, kv_heads), false);
        let _ = values.index_put_(&place, &value, false);
        let attended = attend(&keys, &values, &turned.narrow(1, 0, heads));
        hidden += layer.output.forward(&attended);
        hidden = mlp(layer, hidden, config.rms_norm_eps);
    }
    hidden
}

fn mlp(layer: &Layer, hidden: Tensor, eps: f64) -> Tensor {
    let gate_up = layer
        .gate_up
        .forward(&rms_norm(&hidden, &layer.post_norm, eps));
    let halves = gate_up.chunk(2, -1);
    hidden + layer.down.forward(&(halves[0].silu() * &halves[1]))
}

/// Turns each head's pairs (i, i + D/2); \[N, heads, D\].
fn turn(rows: &Tensor, (cosine, sine): &(Tensor, Tensor)) -> Tensor {
    let halves = rows.chunk(2, -1);
    Tensor::cat(
        &[
            &halves[0] * cosine - &halves[1] * sine,
            &halves[1] * cosine + &halves[0] * sine,
        ],
        -1,
    )
}

/// Scores of every vocabulary entry, \[M, V\] f32, for hidden states \[M, H\] before the final norm.
pub(super) fn logits(weights: &WeightBuffer, hidden: &Tensor) -> Tensor {
    rms_norm(hidden, &weights.norm, weights.config.rms_norm_eps)
        .linear(weights.head(), None::<&Tensor>)
        .to_kind(Kind::Float)
}

/// ln p of `ids[1..]`, each given the ids before it, at temperature 1: by the engine's own forward code, on the calling thread.
pub fn score(weights: &WeightBuffer, ids: &[u32]) -> Result<Vec<f32>, GenerateError> {
    check_vocabulary(&weights.config, ids)?;
    let Some(targets) = ids.get(1..).filter(|targets| !targets.is_empty()) else {
        return Ok(Vec::new());
    };
    let _inference = InferenceMode::enter();
    let mut cache = KvCache::new(&weights.config, weights.kind(), weights.device());
    let inputs: Vec<i64> = ids[..targets.len()]
        .iter()
        .map(|id| i64::from(*id))
        .collect();
    cache.ensure(1, inputs.len() as i64);
    let span = Span {
        row: 0,
        past: 0,
        count: inputs.len(),
    };
    let hidden = prefill(weights, &mut cache, &[span], &inputs);
    let targets: Vec<i64> = targets.iter().map(|id| i64::from(*id)).collect();
    let targets = Tensor::from_slice(&targets).to_device(weights.device());
    let logprobs = logits(weights, &hidden)
        .log_softmax(-1, Kind::Float)
        .gather(1, &targets.unsqueeze(1), false)
        .squeeze_dim(1)
        .to_device(Device::Cpu);
    Ok(Vec::try_from(&logprobs).expect("a vector of f32"))
}

pub(super) fn check_vocabulary(
    config: &crate::model::config::ModelConfig,
    ids: &[u32],
) -> Result<(), GenerateError> {
    match ids.iter().find(|id| i64::from(**id) >= config.vocab_size) {
        None => Ok(()),
        Some(id) => Err(GenerateError::UnknownToken {
            id: *id,
            vocabulary: config.vocab_size as usize,
        }),
    }
}
