//! Randomness without a hidden state: hashes of a seed and a place, and the distributions made from them.
//!
//! Written out here, and not taken from a crate, so that a checkpoint's next draw never depends on a crate's version.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// A source of numbers in \[0, 1).
pub trait Uniforms {
    fn next(&mut self) -> f64;

    /// Standard normal (Box-Muller, one of the pair).
    fn normal(&mut self) -> f64 {
        // 1 - u is never 0.
        let radius = (-2.0 * (1.0 - self.next()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.next()).cos()
    }

    /// Gamma of scale 1 (Marsaglia and Tsang 2000); for a shape below 1 by Gamma(shape + 1) · u^(1/shape).
    fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = (1.0 - self.next()).powf(1.0 / shape);
            return self.gamma(shape + 1.0) * boost;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v <= 0.0 {
                continue;
            }
            let u = 1.0 - self.next();
            if u.ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
                return d * v;
            }
        }
    }

    fn beta(&mut self, alpha: f64, beta: f64) -> f64 {
        let (x, y) = (self.gamma(alpha), self.gamma(beta));
        // Both can underflow for shapes near 0; then either end is as good.
        if x + y > 0.0 {
            x / (x + y)
        } else if self.next() * (alpha + beta) < alpha {
            1.0
        } else {
            0.0
        }
    }
}

/// XXH3-64 (seed 0) over the bytes `lathe bandit 1` and the words, each as 8 bytes, little endian.
pub fn seed(words: &[u64]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(b"lathe bandit 1");
    for word in words {
        hash.update(&word.to_le_bytes());
    }
    hash.digest()
}

/// A hash of a text, as a word for [`seed`].
pub(crate) fn word(text: &str) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), 0)
}

/// Number i is the 53 high bits of XXH3-64 over i, seeded by the key.
#[derive(Debug, Clone)]
pub struct Draws {
    key: u64,
    next: u64,
}

impl Draws {
    pub fn new(words: &[u64]) -> Self {
        Self {
            key: seed(words),
            next: 0,
        }
    }
}

impl Uniforms for Draws {
    fn next(&mut self) -> f64 {
        let hash = xxh3_64_with_seed(&self.next.to_le_bytes(), self.key);
        self.next += 1;
        (hash >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 40_000;

    /// Mean and variance of `N` draws.
    fn moments(mut draw: impl FnMut(&mut Draws) -> f64) -> (f64, f64) {
        let mut draws = Draws::new(&[7]);
        let values: Vec<f64> = (0..N).map(|_| draw(&mut draws)).collect();
        let mean = values.iter().sum::<f64>() / N as f64;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / N as f64;
        (mean, variance)
    }

    #[test]
    fn normal_gamma_and_beta_have_their_moments() {
        // Within five standard errors of mean and variance.
        let near = |got: f64, want: f64, sd: f64| {
            assert!(
                (got - want).abs() < 5.0 * sd / (N as f64).sqrt(),
                "{got} is not {want}"
            );
        };
        let (mean, variance) = moments(Uniforms::normal);
        near(mean, 0.0, 1.0);
        near(variance, 1.0, 2.0_f64.sqrt());
        for shape in [0.3, 1.0, 2.5, 40.0] {
            let (mean, variance) = moments(|draws| draws.gamma(shape));
            near(mean, shape, shape.sqrt());
            // Var of a sample variance: (μ4 − σ⁴) / n, and a gamma's μ4 is 3k² + 6k.
            near(variance, shape, (2.0 * shape * shape + 6.0 * shape).sqrt());
        }
        for (a, b) in [(0.5_f64, 0.5), (1.0, 1.0), (3.0, 9.0), (120.0, 30.0)] {
            let (mean, variance) = moments(|draws| draws.beta(a, b));
            let wanted = a * b / ((a + b).powi(2) * (a + b + 1.0));
            near(mean, a / (a + b), wanted.sqrt());
            // A variable in [0, 1] has μ4 <= σ².
            near(variance, wanted, wanted.sqrt());
        }
    }

    #[test]
    fn a_beta_of_tiny_shapes_is_still_a_number_in_0_to_1() {
        let mut draws = Draws::new(&[3]);
        for _ in 0..2000 {
            let value = draws.beta(1e-3, 2e-3);
            assert!((0.0..=1.0).contains(&value), "{value}");
        }
    }

    #[test]
    fn the_same_key_draws_the_same_bits_in_every_version() {
        let mut draws = Draws::new(&[42, 1]);
        let first: Vec<u64> = (0..3).map(|_| (draws.next() * 1e9) as u64).collect();
        assert_eq!(first, FIRST);
    }

    /// Written down once; another value would make every checkpoint go on differently.
    const FIRST: [u64; 3] = [705_362_981, 589_816_205, 936_923_000];
}
