//! How likely each arm is to be the best one: `P_k = ∫ f_k(x) Π_(j≠k) F_j(x) dx`, by trapezoids on a grid that is dense
//! where any of the posteriors changes.

use super::posterior::Belief;

/// Points an arm brings to the grid.
const POINTS: usize = 160;
/// A Student's t of 4 degrees has less than 1e-4 of its mass farther out.
const STANDARD_DEVIATIONS: f64 = 12.0;

/// One a belief, summing to 1.
pub(crate) fn chances(beliefs: &[Belief]) -> Vec<f64> {
    let grid = grid(beliefs);
    let curves: Vec<(Vec<f64>, Vec<f64>)> =
        beliefs.iter().map(|belief| curve(belief, &grid)).collect();
    let mut chances: Vec<f64> = (0..beliefs.len())
        .map(|arm| {
            let below = |at: usize| {
                (curves.iter().enumerate())
                    .filter(|(other, _)| *other != arm)
                    .map(|(_, (_, sum))| sum[at])
                    .product::<f64>()
            };
            let mut total = 0.0;
            let mut before = below(0);
            for at in 1..grid.len() {
                let here = below(at);
                // The mass of this arm between two points, times the middle of what lies below.
                let mass = curves[arm].1[at] - curves[arm].1[at - 1];
                total += mass * 0.5 * (before + here);
                before = here;
            }
            total
        })
        .collect();
    let sum: f64 = chances.iter().sum();
    for chance in &mut chances {
        *chance = if sum > 0.0 {
            *chance / sum
        } else {
            1.0 / beliefs.len() as f64
        };
    }
    chances
}

fn grid(beliefs: &[Belief]) -> Vec<f64> {
    let mut points = Vec::with_capacity(beliefs.len() * POINTS);
    for belief in beliefs {
        let (mean, sd) = belief.moments();
        let sd = sd.unwrap_or(1.0).max(1e-12);
        let (low, high) = belief.support();
        for index in 0..POINTS {
            // Squeezed towards the mean: half the points lie within two standard deviations.
            let t = 2.0 * (index as f64 + 0.5) / POINTS as f64 - 1.0;
            let x = mean + sd * STANDARD_DEVIATIONS * t * t.abs().powf(1.5);
            if x > low && x < high {
                points.push(x);
            }
        }
        if low.is_finite() {
            // Mass near the ends of a Beta, whatever its shape.
            for exponent in 1..=12 {
                let near = 10.0_f64.powi(-exponent);
                points.extend([near, 1.0 - near]);
            }
        }
    }
    points.sort_by(f64::total_cmp);
    points.dedup();
    points
}

/// Density and distribution function at the points, both so that the whole is 1.
fn curve(belief: &Belief, grid: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let logs: Vec<f64> = grid.iter().map(|x| belief.log_density(*x)).collect();
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let density: Vec<f64> = logs.iter().map(|log| (log - most).exp()).collect();
    let mut sum = 0.0;
    let mut below = vec![0.0; grid.len()];
    for at in 1..grid.len() {
        sum += 0.5 * (density[at] + density[at - 1]) * (grid[at] - grid[at - 1]);
        below[at] = sum;
    }
    if sum > 0.0 {
        for value in &mut below {
            *value /= sum;
        }
    }
    (density, below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beta(alpha: f64, beta: f64) -> Belief {
        Belief::Beta { alpha, beta }
    }

    #[test]
    fn a_beta_against_a_uniform_wins_with_its_mean() {
        for (a, b) in [
            (2.0, 1.0),
            (5.0, 3.0),
            (0.5, 0.5),
            (400.0, 40.0),
            (9.0, 3000.0),
        ] {
            let won = chances(&[beta(1.0, 1.0), beta(a, b)])[1];
            // P(X > U) = E X; the trapezoids are good to three digits.
            assert!((won - a / (a + b)).abs() < 3e-3, "{won} {a} {b}");
        }
    }

    #[test]
    fn equal_arms_have_equal_chances_and_they_sum_to_one() {
        for belief in [
            beta(3.0, 4.0),
            beta(5e6, 5e6),
            Belief::Student {
                center: -3.0,
                scale: 1e-3,
                degrees: 4.0,
            },
        ] {
            let all = chances(&[belief; 5]);
            assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            assert!(
                all.iter().all(|chance| (chance - 0.2).abs() < 1e-9),
                "{all:?}"
            );
        }
    }

    #[test]
    fn far_apart_arms_leave_no_doubt() {
        let all = chances(&[beta(10.0, 1e5), beta(1e5, 10.0), beta(1.0, 1e5)]);
        assert!(all[1] > 0.999_999, "{all:?}");
    }
}
