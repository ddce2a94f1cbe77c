//! Drawing a token from a row of probabilities, in one pass: inverse of the cumulative sum at a number that only the request's
//! seed and the token's position decide, so a sample does not depend on what else is in the batch.

use dialogue::generate::Sampling;

/// Elements summed at once before the cumulative sum is looked at.
const BLOCK: usize = 64;

/// The row holds NaN: the model's logits were not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotFinite;

/// A token and ln p of it in the row it was drawn from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Draw {
    pub id: u32,
    pub logprob: f32,
}

/// What logits are divided by before the softmax. Greedy turns report log-probs at temperature 1.
pub(super) fn temperature(sampling: &Sampling) -> f64 {
    if sampling.temperature == 0.0 {
        1.0
    } else {
        sampling.temperature
    }
}

/// Uniform in \[0, 1): the 53 high bits of xxh3-64 over the position, seeded by the request.
pub(super) fn uniform(seed: u64, position: u64) -> f64 {
    let hash = xxhash_rust::xxh3::xxh3_64_with_seed(&position.to_le_bytes(), seed);
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

/// Draws from `probabilities` (a softmax after temperature). Filters apply in the order top-k, top-p, min-p, each on what the one
/// before left, renormalised; equal probabilities count in order of id.
pub(super) fn draw(
    probabilities: &[f32],
    sampling: &Sampling,
    uniform: f64,
) -> Result<Draw, NotFinite> {
    // A softmax with one NaN is NaN throughout.
    if probabilities[0].is_nan() {
        return Err(NotFinite);
    }
    let id = if sampling.temperature == 0.0 {
        argmax(probabilities)
    } else if sampling.top_k.is_some() || sampling.top_p < 1.0 || sampling.min_p > 0.0 {
        filtered(probabilities, sampling, uniform)
    } else {
        inverse_cumulative(probabilities, uniform)
    };
    Ok(Draw {
        id: id as u32,
        logprob: probabilities[id].ln(),
    })
}

/// The first of the largest.
fn argmax(row: &[f32]) -> usize {
    let mut best = 0;
    for (at, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = at;
        }
    }
    best
}

/// The first index whose cumulative sum exceeds `uniform`. Rounding may leave the total a little under 1; past it, the last index
/// that has any probability is taken.
fn inverse_cumulative(row: &[f32], uniform: f64) -> usize {
    let mut before = 0.0;
    for (at, block) in row.chunks(BLOCK).enumerate() {
        // Four running sums, so that the additions do not wait for each other.
        let mut sums = [0.0_f32; 4];
        for quad in block.chunks(4) {
            for (sum, value) in sums.iter_mut().zip(quad) {
                *sum += value;
            }
        }
        let after = before + sums.iter().map(|sum| f64::from(*sum)).sum::<f64>();
        if after > uniform {
            let mut cumulative = before;
            for (offset, value) in block.iter().enumerate() {
                cumulative += f64::from(*value);
                if cumulative > uniform && *value > 0.0 {
                    return at * BLOCK + offset;
                }
            }
        }
        before = after;
    }
    row.iter()
        .rposition(|value| *value > 0.0)
        .expect("a softmax has a positive entry")
}

fn filtered(row: &[f32], sampling: &Sampling, uniform: f64) -> usize {
    // With top-p alone, entries whose combined mass cannot reach 1 - top_p are out whatever the order.
    let floor = if sampling.top_k.is_none() && sampling.top_p < 1.0 {
        ((1.0 - sampling.top_p) / row.len() as f64 * 0.999) as f32
    } else {
        0.0
    };
    let mut kept: Vec<(f32, usize)> = row
        .iter()
        .enumerate()
        .filter(|(_, value)| **value > 0.0 && **value >= floor)
        .map(|(at, value)| (*value, at))
        .collect();
    let order = |a: &(f32, usize), b: &(f32, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    if let Some(count) = sampling.top_k.map(|k| (k as usize).max(1))
        && count < kept.len()
    {
        kept.select_nth_unstable_by(count - 1, order);
        kept.truncate(count);
    }
    kept.sort_unstable_by(order);
    let mass = |kept: &[(f32, usize)]| kept.iter().map(|(value, _)| f64::from(*value)).sum::<f64>();
    if sampling.top_p < 1.0 {
        // What the floor left out belongs to the total as well.
        let total = if floor > 0.0 { 1.0 } else { mass(&kept) };
        let mut cumulative = 0.0;
        let enough = kept.iter().position(|(value, _)| {
            cumulative += f64::from(*value);
            cumulative >= sampling.top_p * total
        });
        kept.truncate(enough.map_or(kept.len(), |last| last + 1));
    }
    if sampling.min_p > 0.0 {
        let least = sampling.min_p * f64::from(kept[0].0);
        kept.retain(|(value, _)| f64::from(*value) >= least);
    }
    let goal = uniform * mass(&kept);
    let mut cumulative = 0.0;
    kept.iter()
        .find(|(value, _)| {
            cumulative += f64::from(*value);
            cumulative > goal
        })
        .or(kept.last())
        .expect("the filters keep the most probable entry")
        .1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn softmax(scores: &[f32]) -> Vec<f32> {
        let total: f32 = scores.iter().map(|score| score.exp()).sum();
        scores.iter().map(|score| score.exp() / total).collect()
    }

    fn frequencies(row: &[f32], sampling: &Sampling, draws: u64) -> Vec<f64> {
        let mut counts = vec![0.0; row.len()];
        for position in 0..draws {
            let drawn = draw(row, sampling, uniform(42, position)).unwrap();
            assert_eq!(drawn.logprob, row[drawn.id as usize].ln());
            counts[drawn.id as usize] += 1.0 / draws as f64;
        }
        counts
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let row = softmax(
            &(0..200)
                .map(|i| ((i * 37) % 11) as f32 * 0.4)
                .collect::<Vec<_>>(),
        );
        let draws = 200_000;
        for (id, frequency) in frequencies(&row, &Sampling::default(), draws)
            .iter()
            .enumerate()
        {
            let expected = f64::from(row[id]);
            // Five standard deviations of a binomial count, over 200 entries.
            let bound = 5.0 * (expected * (1.0 - expected) / draws as f64).sqrt();
            assert!(
                (frequency - expected).abs() < bound,
                "{id}: {frequency} {expected}"
            );
        }
    }

    #[test]
    fn filters_keep_what_their_definitions_say() {
        let row = [0.05, 0.4, 0.1, 0.3, 0.15];
        let kept = |sampling: Sampling| -> Vec<usize> {
            let frequencies = frequencies(&row, &sampling, 5000);
            (0..row.len()).filter(|id| frequencies[*id] > 0.0).collect()
        };
        let base = Sampling::default;
        assert_eq!(
            kept(Sampling {
                top_k: Some(2),
                ..base()
            }),
            [1, 3]
        );
        assert_eq!(
            kept(Sampling {
                top_k: Some(99),
                ..base()
            }),
            [0, 1, 2, 3, 4]
        );
        assert_eq!(
            kept(Sampling {
                top_p: 0.7,
                ..base()
            }),
            [1, 3]
        );
        assert_eq!(
            kept(Sampling {
                top_p: 0.71,
                ..base()
            }),
            [1, 3, 4]
        );
        assert_eq!(
            kept(Sampling {
                top_p: 1e-9,
                ..base()
            }),
            [1]
        );
        assert_eq!(
            kept(Sampling {
                min_p: 0.3,
                ..base()
            }),
            [1, 3, 4]
        );
        // Top-p counts on what top-k left: 0.4 / 0.7 is enough for 0.5.
        assert_eq!(
            kept(Sampling {
                top_k: Some(2),
                top_p: 0.5,
                ..base()
            }),
            [1]
        );
        assert_eq!(
            kept(Sampling {
                temperature: 0.0,
                ..base()
            }),
            [1]
        );
    }

    #[test]
    fn rounding_at_the_end_of_the_sum_never_draws_an_impossible_token() {
        let row = [0.5_f32, 0.499_999, 0.0, 0.0];
        let drawn = draw(&row, &Sampling::default(), 1.0 - f64::EPSILON).unwrap();
        assert_eq!(drawn.id, 1);
        assert_eq!(draw(&[0.0, 1.0], &Sampling::default(), 0.0).unwrap().id, 1);
    }

    #[test]
    fn a_row_of_nan_is_an_error() {
        assert_eq!(
            draw(&[f32::NAN; 4], &Sampling::default(), 0.5),
            Err(NotFinite)
        );
    }

    #[test]
    fn uniforms_depend_on_seed_and_position_and_fill_the_unit_interval() {
        assert_eq!(uniform(1, 2), uniform(1, 2));
        assert_ne!(uniform(1, 2), uniform(1, 3));
        assert_ne!(uniform(1, 2), uniform(2, 2));
        let mean = (0..10_000).map(|p| uniform(9, p)).sum::<f64>() / 1e4;
        // Five standard errors of a uniform's mean.
        assert!((mean - 0.5).abs() < 5.0 * (1.0 / 12.0_f64 / 1e4).sqrt());
    }
}
