//! Logistic regression on shares: targets from 0 to 1, few features, every row of the same weight.

/// A fit: coefficients, and their covariance where it exists.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fit {
    pub coefficients: Vec<f64>,
    /// Robust to targets that are no coin flips: H⁻¹ (Σ x xᵀ (y−p)²) H⁻¹, the "sandwich" (White 1980), row by row.
    pub covariance: Vec<Vec<f64>>,
}

/// Newton steps at most; a handful is the rule.
const STEPS: usize = 100;
/// Of the log-likelihood's gradient per row, where it counts as 0.
const TOLERANCE: f64 = 1e-12;
/// A prior of this many rows' worth of squared coefficients, so that data which a plane separates have a maximum too.
const RIDGE: f64 = 1e-6;

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter()
        .zip(right)
        .map(|(left, right)| left * right)
        .sum()
}

/// Penalised log-likelihood of shares: Σ y ln p + (1−y) ln(1−p), less the ridge.
fn likelihood(rows: &[Vec<f64>], targets: &[f64], coefficients: &[f64]) -> f64 {
    let rows = rows.iter().zip(targets).map(|(row, target)| {
        let x = dot(row, coefficients);
        // y·x − ln(1 + eˣ), without overflow.
        target * x - (x.max(0.0) + (-x.abs()).exp().ln_1p())
    });
    rows.sum::<f64>() - 0.5 * RIDGE * dot(coefficients, coefficients)
}

/// The maximum of the likelihood of `targets` under σ(row · coefficients). Rows are of one length. None where the features are
/// linearly dependent, or there are no rows.
pub(crate) fn fit(rows: &[Vec<f64>], targets: &[f64]) -> Option<Fit> {
    let width = rows.first()?.len();
    let mut coefficients = vec![0.0; width];
    let mut best = likelihood(rows, targets, &coefficients);
    for _ in 0..STEPS {
        let (gradient, hessian) = derivatives(rows, targets, &coefficients);
        let largest = gradient
            .iter()
            .fold(0.0, |most: f64, one| most.max(one.abs()));
        if largest <= TOLERANCE * rows.len() as f64 {
            break;
        }
        let inverse = inverse(&hessian)?;
        let step: Vec<f64> = inverse.iter().map(|row| dot(row, &gradient)).collect();
        // Halved until it climbs: far from the maximum a whole step may overshoot.
        let mut share = 1.0;
        let (next, reached) = loop {
            let next: Vec<f64> = coefficients
                .iter()
                .zip(&step)
                .map(|(held, step)| held + share * step)
                .collect();
            let reached = likelihood(rows, targets, &next);
            if reached >= best || share < 1e-9 {
                break (next, reached);
            }
            share /= 2.0;
        };
        let has_climbed = reached > best;
        coefficients = next;
        best = reached;
        if !has_climbed {
            break;
        }
    }
    let (_, hessian) = derivatives(rows, targets, &coefficients);
    let bread = inverse(&hessian)?;
    let mut filling = vec![vec![0.0; width]; width];
    for (row, target) in rows.iter().zip(targets) {
        let residual = target - logistic(dot(row, &coefficients));
        for (line, left) in filling.iter_mut().zip(row) {
            for (cell, right) in line.iter_mut().zip(row) {
                *cell += left * right * residual * residual;
            }
        }
    }
    Some(Fit {
        covariance: product(&product(&bread, &filling), &bread),
        coefficients,
    })
}

/// Gradient, and the negated matrix of second derivatives.
fn derivatives(
    rows: &[Vec<f64>],
    targets: &[f64],
    coefficients: &[f64],
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let width = coefficients.len();
    let mut gradient: Vec<f64> = coefficients.iter().map(|held| -RIDGE * held).collect();
    let mut hessian = vec![vec![0.0; width]; width];
    for (at, line) in hessian.iter_mut().enumerate() {
        line[at] = RIDGE;
    }
    for (row, target) in rows.iter().zip(targets) {
        let p = logistic(dot(row, coefficients));
        let weight = p * (1.0 - p);
        for (at, left) in row.iter().enumerate() {
            gradient[at] += (target - p) * left;
            for (cell, right) in hessian[at].iter_mut().zip(row) {
                *cell += weight * left * right;
            }
        }
    }
    (gradient, hessian)
}

fn product(left: &[Vec<f64>], right: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let column = |at: usize| -> Vec<f64> { right.iter().map(|row| row[at]).collect() };
    let columns: Vec<Vec<f64>> = (0..right.len()).map(column).collect();
    left.iter()
        .map(|row| columns.iter().map(|column| dot(row, column)).collect())
        .collect()
}

/// Gauss-Jordan with pivots; None of a singular matrix.
fn inverse(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let width = matrix.len();
    let mut rows: Vec<Vec<f64>> = matrix
        .iter()
        .enumerate()
        .map(|(at, row)| {
            let unit = (0..width).map(|column| if column == at { 1.0 } else { 0.0 });
            row.iter().copied().chain(unit).collect()
        })
        .collect();
    for at in 0..width {
        let pivot = (at..width)
            .max_by(|left, right| rows[*left][at].abs().total_cmp(&rows[*right][at].abs()))?;
        if rows[pivot][at].abs() < 1e-12 {
            return None;
        }
        rows.swap(at, pivot);
        let lead = rows[at][at];
        rows[at].iter_mut().for_each(|cell| *cell /= lead);
        let source = rows[at].clone();
        for (other, row) in rows.iter_mut().enumerate() {
            let factor = row[at];
            if other != at && factor != 0.0 {
                row.iter_mut()
                    .zip(&source)
                    .for_each(|(cell, from)| *cell -= factor * from);
            }
        }
    }
    Some(rows.into_iter().map(|row| row[width..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_an_intercept_alone_the_fit_is_the_mean_and_its_error_that_of_the_mean() {
        let targets = [0.1, 0.9, 0.25, 0.75, 0.4];
        let rows = vec![vec![1.0]; targets.len()];
        let fit = fit(&rows, &targets).expect("one feature");
        let mean = targets.iter().sum::<f64>() / 5.0;
        let p = logistic(fit.coefficients[0]);
        assert!((p - mean).abs() < 1e-6, "{p}");
        // d p = p (1−p) d b, and the sandwich gives Σ(y−p)²/n² for p.
        let error = (fit.covariance[0][0]).sqrt() * p * (1.0 - p);
        let squares: f64 = targets.iter().map(|target| (target - mean).powi(2)).sum();
        assert!((error - squares.sqrt() / 5.0).abs() < 1e-6, "{error}");
    }

    #[test]
    fn separable_data_have_a_fit_and_dependent_features_have_none() {
        let rows: Vec<Vec<f64>> = [-2.0, -1.0, 1.0, 2.0]
            .iter()
            .map(|x| vec![*x, 1.0])
            .collect();
        let apart = fit(&rows, &[0.0, 0.0, 1.0, 1.0]).expect("the ridge holds it");
        assert!(apart.coefficients.iter().all(|one| one.is_finite()));
        assert!(apart.coefficients[0] > 5.0);
        let matrix = vec![vec![1.0, 2.0], vec![2.0, 4.0]];
        assert_eq!(inverse(&matrix), None);
        assert_eq!(fit(&[], &[]), None);
    }

    #[test]
    fn an_inverse_times_its_matrix_is_one() {
        let matrix = vec![
            vec![0.0, 2.0, 1.0],
            vec![1.0, -1.0, 3.0],
            vec![4.0, 0.5, 0.0],
        ];
        let unit = product(&inverse(&matrix).expect("regular"), &matrix);
        for (at, row) in unit.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                let expected = if at == column { 1.0 } else { 0.0 };
                assert!((cell - expected).abs() < 1e-12);
            }
        }
    }
}
