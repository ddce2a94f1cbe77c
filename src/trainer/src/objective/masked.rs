//! Statistics over a mask (verl `utils/torch_functional.py`: `masked_sum`, `masked_mean`, `masked_var`, `masked_whiten`).
//!
//! Values outside the mask are never read, so they may be NaN and get a gradient of 0.

use tch::{Kind, Tensor};

use super::ObjectiveError;

/// Keeps the mean of an empty mask at 0.
const COUNT_EPSILON: f64 = 1e-8;
/// Below the square root when whitening.
const VARIANCE_EPSILON: f64 = 1e-8;

/// `values` where `mask`, 0 elsewhere. Put it before exp, log and the like, where 0·NaN would spoil the gradient.
pub fn zeroed(values: &Tensor, mask: &Tensor) -> Tensor {
    values.masked_fill(&mask.to_kind(Kind::Bool).logical_not(), 0.0)
}

/// Number of tokens in `mask`: a scalar of the kind of a float tensor.
pub fn count(mask: &Tensor) -> Tensor {
    mask.to_kind(Kind::Bool).sum(Kind::Float)
}

/// Σ x over `mask`; 0 when it is empty.
pub fn sum(values: &Tensor, mask: &Tensor) -> Tensor {
    zeroed(values, mask).sum(values.kind())
}

/// Σ x over `mask`, per sequence: \[B\].
pub fn sum_per_sequence(values: &Tensor, mask: &Tensor) -> Tensor {
    zeroed(values, mask).sum_dim_intlist(-1, false, values.kind())
}

/// Σ x / (n + 1e-8) over the n tokens of `mask`; 0 when it is empty.
pub fn mean(values: &Tensor, mask: &Tensor) -> Tensor {
    sum(values, mask) / (count(mask) + COUNT_EPSILON)
}

/// Mean over each sequence's own tokens: \[B\]; 0 for one without tokens.
pub fn mean_per_sequence(values: &Tensor, mask: &Tensor) -> Tensor {
    sum_per_sequence(values, mask) / (tokens_per_sequence(mask) + COUNT_EPSILON)
}

/// Tokens of each sequence in the mask: \[B\], float32.
pub fn tokens_per_sequence(mask: &Tensor) -> Tensor {
    mask.to_kind(Kind::Bool)
        .sum_dim_intlist(-1, false, Kind::Float)
}

/// Variance over `mask` without Bessel's correction; 0 when it is empty.
pub fn biased_variance(values: &Tensor, mask: &Tensor) -> Tensor {
    mean(&(values - mean(values, mask)).square(), mask)
}

/// Variance over the n tokens of `mask`, times n / (n − 1). Not defined for n < 2.
pub fn variance(values: &Tensor, mask: &Tensor) -> Result<Tensor, ObjectiveError> {
    let tokens = at_least_two(mask, "a variance")?;
    Ok(biased_variance(values, mask) * (tokens / (tokens - 1.0)))
}

/// (x − μ) / √(σ² + 1e-8) with mean and variance over `mask`; with `shift_mean` false μ is added again. Tokens outside the
/// mask are whitened with the same numbers, not zeroed. Not defined for fewer than two tokens.
pub fn whiten(values: &Tensor, mask: &Tensor, shift_mean: bool) -> Result<Tensor, ObjectiveError> {
    let center = mean(values, mask);
    let deviation = (variance(values, mask)? + VARIANCE_EPSILON).sqrt();
    let whitened = (values - &center) / deviation;
    Ok(if shift_mean {
        whitened
    } else {
        whitened + center
    })
}

/// Share of the variance of `returns` that `values` explain: 1 − Var(R − V) / (Var(R) + 1e-5), over `mask`: verl's
/// `critic/vf_explained_var`. 1 is a perfect critic, 0 a constant one. Not defined for fewer than two tokens.
pub fn explained_variance(
    returns: &Tensor,
    values: &Tensor,
    mask: &Tensor,
) -> Result<f64, ObjectiveError> {
    let unexplained = variance(&(returns - values), mask)?.double_value(&[]);
    Ok(1.0 - unexplained / (variance(returns, mask)?.double_value(&[]) + 1e-5))
}

/// True up to and including the first of `stop_ids` in each row of `response_ids` \[B, T\] (verl `get_response_mask`).
pub fn until_stop(response_ids: &Tensor, stop_ids: &[i64]) -> Tensor {
    let stops = stop_ids
        .iter()
        .map(|id| response_ids.eq(*id))
        .reduce(|a, b| a.logical_or(&b))
        .unwrap_or_else(|| response_ids.zeros_like().to_kind(Kind::Bool))
        .to_kind(Kind::Int64);
    // Stops strictly before a token.
    (stops.cumsum(-1, Kind::Int64) - &stops).eq(0)
}

fn at_least_two(mask: &Tensor, quantity: &'static str) -> Result<f64, ObjectiveError> {
    match count(mask).double_value(&[]) {
        0.0 => Err(ObjectiveError::EmptyMask { quantity }),
        1.0 => Err(ObjectiveError::SingleToken { quantity }),
        tokens => Ok(tokens),
    }
}
