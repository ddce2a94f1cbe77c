//! The seed of each model turn: a hash, so that a sample is the same whenever and beside whomever it is drawn.

use xxhash_rust::xxh3::Xxh3;

/// Where the randomness of one dialogue comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds {
    /// Of the run (`rollout.seed`).
    pub run: u64,
    /// Step in training; for an evaluation a constant, so that each evaluation draws alike.
    pub round: u64,
    pub row_index: u64,
    /// Which appearance of the row in the batch; 0 unless a small data set wraps around in it.
    pub repeat: u64,
    pub sample: u32,
}

impl Seeds {
    /// The seed of model turn `turn`, counted from 0.
    pub fn turn(&self, turn: u32) -> u64 {
        seed(&[
            self.run,
            self.round,
            self.row_index,
            self.repeat,
            u64::from(self.sample),
            u64::from(turn),
        ])
    }
}

/// XXH3-64 (seed 0) over the bytes `lathe seed 1` and the words, each as 8 bytes, little endian.
pub fn seed(words: &[u64]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(b"lathe seed 1");
    for word in words {
        hash.update(&word.to_le_bytes());
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_run_round_row_sample_and_turn_has_a_seed_of_its_own() {
        let mut seen = HashSet::new();
        for run in 0..3 {
            for round in 0..5 {
                for row_index in 0..8 {
                    for sample in 0..8 {
                        for turn in 0..4 {
                            let seeds = Seeds {
                                run,
                                round,
                                row_index,
                                repeat: 0,
                                sample,
                            };
                            assert!(seen.insert(seeds.turn(turn)));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn seeds_stay_the_same_from_version_to_version() {
        assert_eq!(seed(&[42, 1, 7, 0, 3, 0]), 9_794_815_027_376_519_938);
    }
}
