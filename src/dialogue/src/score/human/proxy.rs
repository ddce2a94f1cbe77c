//! A linear Bradley-Terry model that learns label by label: P(a is preferred to b) = σ(w · (φ(a) − φ(b))).

use std::collections::BTreeMap;

/// Of the step that a weight takes; `AdaGrad` divides it by the root of the squares seen.
const RATE: f64 = 0.5;
const EPSILON: f64 = 1e-8;
/// Towards 0, with each label that is learned: what is rarely asked stays small.
const DECAY: f64 = 1e-4;
/// Passes over what is known at each update.
const PASSES: usize = 4;
/// Labels that are kept for it, the latest.
const KEPT: usize = 5000;
/// Of the mean agreement, the latest labels.
const RECENT: usize = 200;

/// Numbers of an answer by their place; those that are not there are 0.
pub type Features = BTreeMap<u32, f64>;

/// What it has learned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Proxy {
    weights: BTreeMap<u32, f64>,
    squares: BTreeMap<u32, f64>,
    /// Of the answers it has learned from: its scores are told from there.
    center: f64,
    /// φ(chosen) − φ(rejected) and the sum of the two.
    known: Vec<(Features, Features)>,
    labels: u64,
    /// Of each of the latest labels, before it was learned: 1 when it would have been right, a half for a tie.
    foretold: Vec<f64>,
}

impl Proxy {
    pub fn labels(&self) -> u64 {
        self.labels
    }

    /// How often it would have said of the latest labels what they say, before it learned them; None: there are none.
    pub fn agreement(&self) -> Option<f64> {
        let count = self.foretold.len();
        (count > 0).then(|| self.foretold.iter().sum::<f64>() / count as f64)
    }

    pub fn score(&self, features: &Features) -> f64 {
        dot(&self.weights, features) - self.center
    }

    /// First says what it thinks of each label, then learns them.
    pub fn learn(&mut self, labels: Vec<(Features, Features)>) {
        for (chosen, rejected) in labels {
            let delta = combined(&chosen, &rejected, -1.0);
            let said = dot(&self.weights, &delta);
            self.foretold.push(if said > 0.0 {
                1.0
            } else if said == 0.0 {
                0.5
            } else {
                0.0
            });
            self.labels += 1;
            self.known.push((delta, combined(&chosen, &rejected, 1.0)));
        }
        let surplus = self.foretold.len().saturating_sub(RECENT);
        self.foretold.drain(..surplus);
        let surplus = self.known.len().saturating_sub(KEPT);
        self.known.drain(..surplus);
        for _ in 0..PASSES {
            for at in 0..self.known.len() {
                self.step(at);
            }
        }
        let sum: f64 = self
            .known
            .iter()
            .map(|(_, sum)| dot(&self.weights, sum))
            .sum();
        self.center = sum / (2 * self.known.len().max(1)) as f64;
    }

    fn step(&mut self, at: usize) {
        let (delta, _) = &self.known[at];
        let surprise = 1.0 / (1.0 + dot(&self.weights, delta).exp());
        for (place, number) in delta {
            let weight = self.weights.entry(*place).or_default();
            let gradient = surprise * number - DECAY * *weight;
            let squares = self.squares.entry(*place).or_default();
            *squares += gradient * gradient;
            *weight += RATE * gradient / (squares.sqrt() + EPSILON);
        }
    }
}

fn dot(weights: &BTreeMap<u32, f64>, features: &Features) -> f64 {
    features
        .iter()
        .map(|(place, number)| weights.get(place).copied().unwrap_or(0.0) * number)
        .sum()
}

/// `one + factor · other`
fn combined(one: &Features, other: &Features, factor: f64) -> Features {
    let mut sum = one.clone();
    for (place, number) in other {
        *sum.entry(*place).or_default() += factor * number;
    }
    sum.retain(|_, number| *number != 0.0);
    sum
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Labels of a rater with weights 2, −1 and 0 on three features.
    fn labels(count: usize, seed: u64) -> Vec<(Features, Features)> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..count)
            .map(|_| {
                let mut answer =
                    || -> Features { (0..3).map(|at| (at, rng.random_range(-1.0..1.0))).collect() };
                let (one, other) = (answer(), answer());
                let worth = |of: &Features| 2.0 * of[&0] - of[&1];
                let chance = 1.0 / (1.0 + (worth(&other) - worth(&one)).exp());
                if rng.random::<f64>() < chance {
                    (one, other)
                } else {
                    (other, one)
                }
            })
            .collect()
    }

    #[test]
    fn the_weights_of_a_rater_are_found_from_his_labels() {
        let mut proxy = Proxy::default();
        for labels in labels(2000, 1).chunks(50) {
            proxy.learn(labels.to_vec());
        }
        let weight = |at: u32| proxy.weights[&at];
        assert!((weight(0) - 2.0).abs() < 0.3, "{}", weight(0));
        assert!((weight(1) + 1.0).abs() < 0.3, "{}", weight(1));
        assert!(weight(2).abs() < 0.3, "{}", weight(2));
        assert_eq!(proxy.labels(), 2000);
        // Scores are told from the middle of the answers it knows.
        let mean: f64 = labels(500, 2)
            .iter()
            .flat_map(|(one, other)| [proxy.score(one), proxy.score(other)])
            .sum::<f64>()
            / 1000.0;
        assert!(mean.abs() < 0.2, "{mean}");
    }

    #[test]
    fn agreement_is_of_labels_before_they_are_learned() {
        let mut proxy = Proxy::default();
        assert_eq!(proxy.agreement(), None);
        let one = |at: u32| (Features::from([(at, 1.0)]), Features::new());
        // Knows nothing: a tie. Then the same once more: right. Another place is a tie again.
        proxy.learn(vec![one(0)]);
        assert_eq!(proxy.agreement(), Some(0.5));
        proxy.learn(vec![one(0)]);
        assert_eq!(proxy.agreement(), Some(0.75));
        // Within one update nothing of it is learned yet.
        proxy.learn(vec![one(1), one(1)]);
        assert_eq!(proxy.agreement(), Some((0.5 + 1.0 + 0.5 + 0.5) / 4.0));
    }
}
