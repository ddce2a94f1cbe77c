//! A linear head on frozen embeddings, learned to its optimum.
//!
//! Of pairs: logistic regression on the differences of their embeddings, which is Bradley and Terry's model,
//! Σ −ln σ(w·Δ − margin) + λ/2·|w|². Of scores: ridge regression. Both by Newton's method, which needs no learning rate. λ is the
//! one of [`PENALTIES`] that does best in five-fold cross-validation, whose folds have whole prompts.

use tch::{Device, Kind, Tensor};

use crate::encoder::Head;

/// Strengths of the penalty that are tried, the strongest first: of equally good ones the first is taken.
pub const PENALTIES: [f64; 8] = [30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01];
const FOLDS: u64 = 5;
/// Newton's method on a convex loss takes about ten.
const MOST_STEPS: usize = 100;
/// Of a step, relative to the weights: smaller, and the optimum is reached.
const PRECISION: f64 = 1e-10;

/// What is learned from, on the CPU in f64.
#[derive(Debug)]
pub enum Problem {
    Pairs {
        /// `[N, H]`: the embedding of what was chosen less that of what was rejected.
        deltas: Tensor,
        /// `[N]`
        margins: Tensor,
    },
    Scores {
        /// `[N, H]`
        embeddings: Tensor,
        /// `[N]`
        scores: Tensor,
    },
}

impl Problem {
    fn rows(&self, rows: &Tensor) -> Self {
        match self {
            Self::Pairs { deltas, margins } => Self::Pairs {
                deltas: deltas.index_select(0, rows),
                margins: margins.index_select(0, rows),
            },
            Self::Scores { embeddings, scores } => Self::Scores {
                embeddings: embeddings.index_select(0, rows),
                scores: scores.index_select(0, rows),
            },
        }
    }

    /// The head that is best under a penalty.
    pub fn fit(&self, penalty: f64) -> Head {
        match self {
            Self::Pairs { deltas, margins } => Head {
                weights: numbers(&bradley_terry(deltas, margins, penalty)),
                // It says nothing of a difference.
                bias: 0.0,
            },
            Self::Scores { embeddings, scores } => {
                let (middle, mean) = (embeddings.mean_dim(0_i64, false, None), scores.mean(None));
                let (centred, wanted) = (embeddings - &middle, scores - &mean);
                let square = centred.tr().matmul(&centred) + ridge(&centred, penalty);
                let weights = Tensor::linalg_solve(&square, &centred.tr().mv(&wanted), true);
                let bias = mean.double_value(&[]) - middle.dot(&weights).double_value(&[]);
                Head {
                    weights: numbers(&weights),
                    bias,
                }
            }
        }
    }

    /// `[N]`: what a head says, of pairs the difference.
    fn said(&self, head: &Head) -> Tensor {
        let weights = Tensor::from_slice(&head.weights);
        match self {
            Self::Pairs { deltas, .. } => deltas.mv(&weights),
            Self::Scores { embeddings, .. } => embeddings.mv(&weights) + head.bias,
        }
    }

    /// The mean loss of a head: −ln σ of pairs, squares of scores.
    pub fn loss(&self, head: &Head) -> f64 {
        self.mean_loss(&self.said(head))
    }

    fn mean_loss(&self, said: &Tensor) -> f64 {
        let losses = match self {
            Self::Pairs { margins, .. } => -(said - margins).log_sigmoid(),
            Self::Scores { scores, .. } => (said - scores).square(),
        };
        losses.mean(Kind::Double).double_value(&[])
    }

    /// What heads under a penalty say of rows that they have not learned from; `groups`: rows of one prompt have the same. None
    /// where there are too few prompts to hold some out.
    pub fn cross_validated(&self, groups: &[u64], penalty: f64) -> Option<CrossValidated> {
        let mut known: Vec<u64> = groups.to_vec();
        known.sort_unstable();
        known.dedup();
        let fold_of = |group: &u64| known.binary_search(group).unwrap_or_default() as u64 % FOLDS;
        if known.len() < 2 {
            return None;
        }
        let mut said = Tensor::zeros([groups.len() as i64], (Kind::Double, Device::Cpu));
        for fold in 0..FOLDS {
            let (held, learned): (Vec<i64>, Vec<i64>) =
                (0..groups.len() as i64).partition(|at| fold_of(&groups[*at as usize]) == fold);
            if held.is_empty() {
                continue;
            }
            let head = self.rows(&Tensor::from_slice(&learned)).fit(penalty);
            let held = Tensor::from_slice(&held);
            let _ = said.index_copy_(0, &held, &self.rows(&held).said(&head));
        }
        Some(CrossValidated {
            loss: self.mean_loss(&said),
            said: numbers(&said),
        })
    }
}

/// Of every row, by a head that has not learned from its prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossValidated {
    pub loss: f64,
    /// Of pairs the difference.
    pub said: Vec<f64>,
}

/// λ·I of the size of `rows`' columns.
fn ridge(rows: &Tensor, penalty: f64) -> Tensor {
    Tensor::eye(rows.size()[1], (Kind::Double, rows.device())) * penalty
}

fn bradley_terry(deltas: &Tensor, margins: &Tensor, penalty: f64) -> Tensor {
    let mut weights = Tensor::zeros([deltas.size()[1]], (Kind::Double, deltas.device()));
    let value = |weights: &Tensor| {
        let losses = -(deltas.mv(weights) - margins).log_sigmoid();
        let size = weights.dot(weights).double_value(&[]);
        losses.sum(Kind::Double).double_value(&[]) + penalty / 2.0 * size
    };
    let mut now = value(&weights);
    for _ in 0..MOST_STEPS {
        let right = (deltas.mv(&weights) - margins).sigmoid();
        let gradient = &weights * penalty - deltas.tr().mv(&(1.0 - &right));
        let curvature = (&right - right.square()).unsqueeze(-1);
        let square = deltas.tr().matmul(&(deltas * curvature)) + ridge(deltas, penalty);
        let step = Tensor::linalg_solve(&square, &gradient, true);
        // A whole step may lead too far where the curvature was small.
        let mut share = 1.0;
        let (next, then) = loop {
            let next = &weights - &step * share;
            let then = value(&next);
            if then <= now || share < 1e-6 {
                break (next, then);
            }
            share /= 2.0;
        };
        let moved = step.norm().double_value(&[]) * share;
        let size = next.norm().double_value(&[]);
        (weights, now) = (next, then);
        if moved <= PRECISION * size.max(1.0) {
            break;
        }
    }
    weights
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.contiguous()).expect("a flat f64 tensor on the CPU")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(seed: i64, shape: &[i64]) -> Tensor {
        tch::manual_seed(seed);
        Tensor::randn(shape, (Kind::Double, Device::Cpu))
    }

    #[test]
    fn the_head_of_pairs_is_where_the_gradient_is_zero() {
        let problem = Problem::Pairs {
            deltas: normal(1, &[80, 7]),
            margins: normal(2, &[80]).abs() * 0.1,
        };
        let head = problem.fit(0.3);
        // As any optimum: every direction is uphill.
        let loss = |head: &Head| {
            let size: f64 = head.weights.iter().map(|weight| weight * weight).sum();
            80.0 * problem.loss(head) + 0.15 * size
        };
        let least = loss(&head);
        for at in 0..7 {
            for by in [-1e-3, 1e-3] {
                let mut other = head.clone();
                other.weights[at] += by;
                assert!(loss(&other) > least, "{at} {by}");
            }
        }
    }

    #[test]
    fn pairs_that_can_be_told_apart_wholly_have_an_optimum_too() {
        let deltas = normal(3, &[50, 4]).abs();
        let problem = Problem::Pairs {
            deltas,
            margins: Tensor::zeros([50], (Kind::Double, Device::Cpu)),
        };
        let head = problem.fit(0.01);
        assert!(head.weights.iter().all(|weight| weight.is_finite()));
        assert!(problem.loss(&head) < 0.1, "{}", problem.loss(&head));
    }

    #[test]
    fn a_straight_line_is_found_with_its_height() {
        let embeddings = normal(4, &[200, 3]);
        let scores = embeddings.mv(&Tensor::from_slice(&[1.0, -2.0, 0.5])) + 4.0;
        let problem = Problem::Scores { embeddings, scores };
        let head = problem.fit(1e-9);
        for (found, true_one) in head.weights.iter().zip([1.0, -2.0, 0.5]) {
            assert!((found - true_one).abs() < 1e-8, "{head:?}");
        }
        assert!((head.bias - 4.0).abs() < 1e-8, "{head:?}");
    }

    #[test]
    fn noise_wants_a_strong_penalty_and_a_signal_a_weak_one() {
        let best = |problem: &Problem, groups: &[u64]| {
            let losses = PENALTIES.map(|penalty| {
                let found = problem.cross_validated(groups, penalty);
                found.expect("many prompts").loss
            });
            let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
            PENALTIES[losses
                .iter()
                .position(|loss| *loss == least)
                .expect("one is least")]
        };
        let groups: Vec<u64> = (0..120).map(|at| at / 2).collect();
        let zero = || Tensor::zeros([120], (Kind::Double, Device::Cpu));
        let noise = Problem::Pairs {
            deltas: normal(5, &[120, 20]) * 0.3,
            margins: zero(),
        };
        let deltas = normal(6, &[120, 20]) * 0.3;
        // Chosen and rejected as the first dimension says.
        let sign = deltas.select(1, 0).sign().unsqueeze(-1);
        let signal = Problem::Pairs {
            deltas: deltas * sign,
            margins: zero(),
        };
        assert_eq!(best(&noise, &groups), PENALTIES[0]);
        assert!(best(&signal, &groups) <= 1.0, "{}", best(&signal, &groups));
        assert_eq!(noise.cross_validated(&[7; 120], 1.0), None, "one prompt");
    }
}
