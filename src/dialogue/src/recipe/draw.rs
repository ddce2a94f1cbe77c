//! Draws that are the same on every machine and in every version.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of draws for one recipe.
pub(super) struct Draw(ChaCha8Rng);

impl Draw {
    /// `name` keeps recipes with one seed apart.
    pub(super) fn new(name: &str, seed: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        for (at, byte) in name.bytes().take(24).enumerate() {
            key[8 + at] = byte;
        }
        Self(ChaCha8Rng::from_seed(key))
    }

    /// A whole number from `low` to `high`, both included.
    pub(super) fn whole(&mut self, low: i64, high: i64) -> i64 {
        let span = high.abs_diff(low) + 1;
        low + ((u128::from(self.0.next_u64()) * u128::from(span)) >> 64) as i64
    }

    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.whole(0, items.len() as i64 - 1) as usize]
    }
}
