//! One arm's linear model of its values in the context, with an inverse that is kept instead of computed.
//!
//! `A = ridge·I + Σ xxᵀ`, `b = Σ v·x`, `θ = A⁻¹b`. A value costs O(d²) by Sherman and Morrison. With a discount the ridge
//! must not fade (D-LinUCB, Russac et al. 2019: `A ← γA + (1 − γ)·ridge·I + xxᵀ`), which no update of rank one can do: `A`
//! itself is kept as well, and inverted anew once an update, O(d³).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::BanditError;

/// What a choice depends on: an embedding of the prompt. Finite, at least one number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
pub struct Context(Vec<f64>);

impl Context {
    pub fn new(values: Vec<f64>) -> Result<Self, BanditError> {
        let bad = |message: String| Err(BanditError::Context { message });
        if values.is_empty() {
            return bad("it is empty".to_owned());
        }
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => bad(format!("number {at} is {}", values[at])),
            None => Ok(Self(values)),
        }
    }

    /// Scaled to length 1, as `alpha` is meant for; zeros stay zeros.
    pub fn unit(values: Vec<f64>) -> Result<Self, BanditError> {
        let Self(mut values) = Self::new(values)?;
        let largest = values
            .iter()
            .fold(0.0_f64, |most, value| most.max(value.abs()));
        if largest > 0.0 {
            // By the largest first, so that no square overflows.
            for value in &mut values {
                *value /= largest;
            }
            let length = dot(&values, &values).sqrt();
            for value in &mut values {
                *value /= length;
            }
        }
        Ok(Self(values))
    }

    pub fn values(&self) -> &[f64] {
        &self.0
    }

    pub fn dimensions(&self) -> usize {
        self.0.len()
    }
}

impl TryFrom<Vec<f64>> for Context {
    type Error = BanditError;

    fn try_from(values: Vec<f64>) -> Result<Self, BanditError> {
        Self::new(values)
    }
}

impl From<Context> for Vec<f64> {
    fn from(context: Context) -> Self {
        context.0
    }
}

/// A symmetric matrix: the rows of its upper triangle, one after the other. Written as base64 of little-endian bytes: exact,
/// and half the length of decimals.
#[derive(Debug, Clone, PartialEq)]
pub struct Symmetric {
    size: usize,
    upper: Vec<f64>,
}

impl Symmetric {
    pub fn diagonal(size: usize, value: f64) -> Self {
        let mut matrix = Self {
            size,
            upper: vec![0.0; size * (size + 1) / 2],
        };
        for row in 0..size {
            let start = matrix.start(row);
            matrix.upper[start] = value;
        }
        matrix
    }

    /// Where row `row` begins, at its diagonal.
    fn start(&self, row: usize) -> usize {
        row * self.size - row * row.saturating_sub(1) / 2
    }

    fn row(&self, row: usize) -> &[f64] {
        let start = self.start(row);
        &self.upper[start..start + self.size - row]
    }

    /// `xᵀMx`.
    pub fn quadratic(&self, x: &[f64]) -> f64 {
        let mut sum = 0.0;
        let mut rest = &self.upper[..];
        for (index, value) in x.iter().enumerate() {
            let (row, after) = rest.split_at(self.size - index);
            sum += value * (row[0] * value + 2.0 * dot(&row[1..], &x[index + 1..]));
            rest = after;
        }
        sum
    }

    /// `Mx`.
    pub fn times(&self, x: &[f64]) -> Vec<f64> {
        let mut product = vec![0.0; self.size];
        let mut rest = &self.upper[..];
        for index in 0..self.size {
            let (row, after) = rest.split_at(self.size - index);
            product[index] += row[0] * x[index] + dot(&row[1..], &x[index + 1..]);
            let value = x[index];
            for (sum, cell) in product[index + 1..].iter_mut().zip(&row[1..]) {
                *sum += cell * value;
            }
            rest = after;
        }
        product
    }

    /// `M += factor · xxᵀ`.
    pub fn add_outer(&mut self, x: &[f64], factor: f64) {
        let size = self.size;
        let mut rest = &mut self.upper[..];
        for (index, value) in x.iter().enumerate() {
            let (row, after) = rest.split_at_mut(size - index);
            let scaled = factor * value;
            for (cell, other) in row.iter_mut().zip(&x[index..]) {
                *cell += scaled * other;
            }
            rest = after;
        }
    }

    /// `M ← factor·M + shift·I`.
    fn fade(&mut self, factor: f64, shift: f64) {
        for cell in &mut self.upper {
            *cell *= factor;
        }
        for row in 0..self.size {
            let start = self.start(row);
            self.upper[start] += shift;
        }
    }

    pub fn get(&self, row: usize, column: usize) -> f64 {
        let (low, high) = (row.min(column), row.max(column));
        self.row(low)[high - low]
    }

    /// The inverse by Cholesky; None when the matrix is not positive definite.
    pub fn inverse(&self) -> Option<Self> {
        let d = self.size;
        // Lower factor L, M = LLᵀ, row by row.
        let mut factor = vec![0.0; d * d];
        for i in 0..d {
            for j in 0..=i {
                let (row_i, row_j) = (&factor[i * d..i * d + j], &factor[j * d..j * d + j]);
                let rest = self.get(i, j) - dot(row_i, row_j);
                if i == j {
                    if rest.is_nan() || rest <= 0.0 {
                        return None;
                    }
                    factor[i * d + i] = rest.sqrt();
                } else {
                    factor[i * d + j] = rest / factor[j * d + j];
                }
            }
        }
        // Columns of L⁻¹, kept as rows so that the products below run along memory.
        let mut inverse = vec![0.0; d * d];
        for column in 0..d {
            for i in column..d {
                let known = dot(
                    &factor[i * d + column..i * d + i],
                    &inverse[column * d + column..column * d + i],
                );
                let unit = f64::from(u8::from(i == column));
                inverse[column * d + i] = (unit - known) / factor[i * d + i];
            }
        }
        // M⁻¹ = L⁻ᵀL⁻¹: entry (i, j) is the product of columns i and j of L⁻¹, which start at their own row.
        let mut product = Self::diagonal(d, 0.0);
        let mut at = 0;
        for i in 0..d {
            for j in i..d {
                product.upper[at] = dot(
                    &inverse[i * d + j..(i + 1) * d],
                    &inverse[j * d + j..(j + 1) * d],
                );
                at += 1;
            }
        }
        Some(product)
    }

    fn is_finite(&self) -> bool {
        self.upper.iter().all(|cell| cell.is_finite())
    }
}

impl Serialize for Symmetric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self
            .upper
            .iter()
            .flat_map(|cell| cell.to_le_bytes())
            .collect();
        serializer.serialize_str(&STANDARD_NO_PAD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Symmetric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD_NO_PAD.decode(text).map_err(D::Error::custom)?;
        let cells = bytes.len() / 8;
        // size (size + 1) / 2 cells.
        let size = ((((8 * cells + 1) as f64).sqrt() - 1.0) / 2.0).round() as usize;
        let matrix = Self {
            size,
            upper: bytes
                .chunks_exact(8)
                .map(|cell| f64::from_le_bytes(cell.try_into().expect("chunks have 8 bytes")))
                .collect(),
        };
        if bytes.len() % 8 != 0 || size * (size + 1) / 2 != cells || !matrix.is_finite() {
            return Err(D::Error::custom(
                "this is no symmetric matrix of finite numbers",
            ));
        }
        Ok(matrix)
    }
}

/// Eight sums side by side, which the compiler turns into vector instructions; the order of additions is part of the result.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (left, right) = (x.chunks_exact(8), y.chunks_exact(8));
    let tail: f64 = left
        .remainder()
        .iter()
        .zip(&y[x.len() / 8 * 8..])
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in left.zip(right) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + tail
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearModel {
    inverse: Symmetric,
    /// Kept with a discount below 1 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gram: Option<Symmetric>,
    b: Vec<f64>,
    theta: Vec<f64>,
}

impl LinearModel {
    pub fn new(dimensions: usize, ridge: f64, is_discounted: bool) -> Self {
        Self {
            inverse: Symmetric::diagonal(dimensions, 1.0 / ridge),
            gram: is_discounted.then(|| Symmetric::diagonal(dimensions, ridge)),
            b: vec![0.0; dimensions],
            theta: vec![0.0; dimensions],
        }
    }

    pub fn dimensions(&self) -> usize {
        self.b.len()
    }

    pub(crate) fn is_discounted(&self) -> bool {
        self.gram.is_some()
    }

    pub fn theta(&self) -> &[f64] {
        &self.theta
    }

    pub fn inverse(&self) -> &Symmetric {
        &self.inverse
    }

    /// What it expects in this context, and how unsure it is of that: `x·θ` and `√(xᵀA⁻¹x)`.
    pub fn expect(&self, context: &Context) -> (f64, f64) {
        let x = context.values();
        // Rounding may leave a hair below 0.
        (
            dot(x, &self.theta),
            self.inverse.quadratic(x).max(0.0).sqrt(),
        )
    }

    /// With a discount: one value older.
    pub(crate) fn fade(&mut self, discount: f64, ridge: f64) {
        if let Some(gram) = &mut self.gram {
            gram.fade(discount, (1.0 - discount) * ridge);
            for value in &mut self.b {
                *value *= discount;
            }
        }
    }

    pub(crate) fn add(&mut self, context: &Context, value: f64) {
        let x = context.values();
        for (sum, part) in self.b.iter_mut().zip(x) {
            *sum += value * part;
        }
        if let Some(gram) = &mut self.gram {
            gram.add_outer(x, 1.0);
        } else {
            let moved = self.inverse.times(x);
            let denominator = 1.0 + dot(x, &moved).max(0.0);
            self.inverse.add_outer(&moved, -1.0 / denominator);
        }
    }

    /// After the values of an update are in.
    pub(crate) fn solve(&mut self) {
        if let Some(inverse) = self.gram.as_ref().and_then(Symmetric::inverse) {
            self.inverse = inverse;
        }
        self.theta = self.inverse.times(&self.b);
    }

    /// Whether the parts belong together.
    pub(crate) fn is_whole(&self) -> bool {
        let d = self.b.len();
        self.inverse.size == d
            && self.theta.len() == d
            && self.gram.as_ref().is_none_or(|gram| gram.size == d)
            && self
                .b
                .iter()
                .chain(&self.theta)
                .all(|value| value.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contexts(d: usize, n: usize) -> impl Strategy<Value = Vec<(Vec<f64>, f64)>> {
        prop::collection::vec(
            (prop::collection::vec(-1.0..1.0_f64, d), 0.0..1.0_f64),
            0..n,
        )
    }

    proptest! {
        #[test]
        fn the_inverse_that_is_kept_equals_a_direct_solve(values in contexts(6, 80), ridge in 0.1..4.0_f64) {
            let mut model = LinearModel::new(6, ridge, false);
            let mut gram = Symmetric::diagonal(6, ridge);
            for (x, value) in &values {
                let x = Context::new(x.clone()).unwrap();
                model.add(&x, *value);
                gram.add_outer(x.values(), 1.0);
            }
            model.solve();
            let direct = gram.inverse().unwrap();
            for row in 0..6 {
                for column in 0..6 {
                    // Sizes are at most 1/ridge = 10; rounding of 80 updates stays far below this.
                    prop_assert!((model.inverse.get(row, column) - direct.get(row, column)).abs() < 1e-9);
                }
            }
            for (kept, solved) in model.theta.iter().zip(direct.times(&model.b)) {
                prop_assert!((kept - solved).abs() < 1e-8);
            }
        }

        #[test]
        fn products_are_those_of_the_full_matrix(x in prop::collection::vec(-1.0..1.0_f64, 11), y in prop::collection::vec(-1.0..1.0_f64, 11)) {
            let mut matrix = Symmetric::diagonal(11, 0.5);
            matrix.add_outer(&x, 2.0);
            // (½I + 2xxᵀ)y = ½y + 2x(x·y)
            let along: f64 = x.iter().zip(&y).map(|(a, b)| a * b).sum();
            let product = matrix.times(&y);
            for index in 0..11 {
                prop_assert!((product[index] - (0.5 * y[index] + 2.0 * x[index] * along)).abs() < 1e-12);
            }
            let quadratic: f64 = product.iter().zip(&y).map(|(a, b)| a * b).sum();
            prop_assert!((matrix.quadratic(&y) - quadratic).abs() < 1e-12);
            prop_assert_eq!(matrix.get(3, 7), matrix.get(7, 3));
        }

        #[test]
        fn a_matrix_survives_being_written(x in prop::collection::vec(-1e9..1e9_f64, 1..9)) {
            let mut matrix = Symmetric::diagonal(x.len(), 1.0);
            matrix.add_outer(&x, 1.0);
            let text = serde_json::to_string(&matrix).unwrap();
            prop_assert_eq!(serde_json::from_str::<Symmetric>(&text).unwrap(), matrix);
        }
    }

    #[test]
    fn a_torn_matrix_is_refused() {
        for text in [
            "\"AAAA\"",
            "\"!\"",
            "\"AAAAAAAA8H8\"",
            "\"AAAAAAAAAAAAAAAAAAAAAA\"",
        ] {
            assert!(serde_json::from_str::<Symmetric>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn with_a_discount_the_ridge_does_not_fade() {
        let mut model = LinearModel::new(2, 1.0, true);
        let x = Context::new(vec![1.0, 0.0]).unwrap();
        for _ in 0..5000 {
            model.fade(0.9, 1.0);
            model.add(&x, 1.0);
        }
        model.solve();
        // The unseen direction is as unsure as at the start, the seen one as after 1 / (1 − γ) = 10 values.
        let unseen = Context::new(vec![0.0, 1.0]).unwrap();
        assert!((model.expect(&unseen).1 - 1.0).abs() < 1e-9);
        let (mean, width) = model.expect(&x);
        assert!((width - (1.0_f64 / 11.0).sqrt()).abs() < 1e-9, "{width}");
        assert!((mean - 10.0 / 11.0).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn a_context_must_be_finite_and_can_be_made_a_unit_vector() {
        assert!(Context::new(vec![]).is_err());
        assert!(Context::new(vec![1.0, f64::NAN]).is_err());
        let unit = Context::unit(vec![3e200, 4e200]).unwrap();
        assert!((unit.values()[0] - 0.6).abs() < 1e-15 && (unit.values()[1] - 0.8).abs() < 1e-15);
        assert_eq!(Context::unit(vec![0.0]).unwrap().values(), [0.0]);
    }
}
