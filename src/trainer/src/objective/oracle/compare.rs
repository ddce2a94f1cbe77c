//! When a number is right: `|ours − out| <= 1e-6·max(1, max|out|) + 1e-4·|out| + 4·|out64 − out|`, NaN and infinities where
//! the reference has them; a case the reference refuses must be refused.

use serde_json::Value;
use tch::{Kind, Tensor};

/// Reports the worst element.
pub(super) fn compare_lists(
    name: &str,
    found: &[f64],
    expected: &[f64],
    wide: &[f64],
    mismatches: &mut Vec<String>,
) {
    if found.len() != expected.len() {
        return mismatches.push(format!(
            "{name} has {} numbers, not {}",
            found.len(),
            expected.len()
        ));
    }
    let largest = expected
        .iter()
        .filter(|number| number.is_finite())
        .fold(1.0_f64, |largest, number| largest.max(number.abs()));
    let worst = (0..found.len())
        .map(|index| {
            let (ours, theirs) = (found[index], expected[index]);
            let excess = if ours.is_nan() && theirs.is_nan() || ours == theirs {
                0.0
            } else if ours.is_finite() && theirs.is_finite() {
                let tolerance =
                    1e-6 * largest + 1e-4 * theirs.abs() + 4.0 * (wide[index] - theirs).abs();
                // A NaN in the float64 run forgives nothing.
                if tolerance.is_nan() {
                    f64::INFINITY
                } else {
                    (ours - theirs).abs() / tolerance
                }
            } else {
                f64::INFINITY
            };
            (excess, index)
        })
        .max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((excess, index)) = worst.filter(|(excess, _)| *excess > 1.0) {
        mismatches.push(format!(
            "{name}[{index}] is {}, not {}: {excess:.3} times the tolerance",
            found[index], expected[index]
        ));
    }
}

pub(super) fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.detach().to_kind(Kind::Double).reshape([-1]))
        .expect("a flat float64 tensor")
}

/// JSON has no NaN: the oracle writes such numbers as strings.
pub(super) fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => match text.as_str() {
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            _ => f64::NAN,
        },
        other => other.as_f64().unwrap_or(f64::NAN),
    }
}
