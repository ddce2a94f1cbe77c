//! Log-probs and entropy from logits, and the way from tokens laid end to end to padded sequences.

use tch::{Kind, Tensor};

use super::ObjectiveError;
use crate::torch_ext;

/// Of M tokens; float32 (float64 from float64 logits), with gradients to the logits.
#[derive(Debug)]
pub struct TokenLogprobs {
    /// \[M\]: log π(target).
    pub logprobs: Tensor,
    /// \[M\]: −Σ π log π in nats, over the whole vocabulary.
    pub entropy: Option<Tensor>,
}

/// log softmax(`logits` / `temperature`) at `targets`, and the entropy of that distribution if asked for (verl
/// `logprobs_from_logits`, `entropy_from_logits`). `logits` \[M, V\] of any float kind, `targets` \[M\].
///
/// The temperature must be the one tokens were drawn with, or the ratio to the rollout's log-probs is off from the start.
/// A logit of −∞ is a token of probability 0; the entropy of such a row is NaN, as in verl. Memory: the logits, their gradient
/// and a few rows.
pub fn token_logprobs(
    logits: &Tensor,
    targets: &Tensor,
    temperature: f64,
    with_entropy: bool,
) -> Result<TokenLogprobs, ObjectiveError> {
    let (logprobs, entropy) =
        torch_ext::token_logprobs(logits, targets, temperature, with_entropy)?;
    Ok(TokenLogprobs { logprobs, entropy })
}

/// The same two quantities as verl computes them from bfloat16 logits on a CPU: every intermediate rounded to the logits' kind,
/// so that an entropy of 0.70 comes out as 0.69. To compare with; the learner uses [`token_logprobs`].
pub fn rounded_logprobs(logits: &Tensor, targets: &Tensor) -> Tensor {
    logits
        .log_softmax(-1, logits.kind())
        .gather(-1, &targets.unsqueeze(-1), false)
        .squeeze_dim(-1)
}

/// See [`rounded_logprobs`].
pub fn rounded_entropy(logits: &Tensor) -> Tensor {
    let probabilities = logits.softmax(-1, logits.kind());
    logits.logsumexp([-1], false)
        - (probabilities * logits).sum_dim_intlist(-1, false, logits.kind())
}

/// Σ π² over the vocabulary of softmax(`logits` / `temperature`): \[M\], float32, without gradients. A few rows at a time.
pub fn sum_pi_squared(logits: &Tensor, temperature: f64) -> Tensor {
    /// Numbers of one piece: 16 MiB in float32.
    const PIECE: i64 = 1 << 22;
    let _no_grad = tch::no_grad_guard();
    let size = logits.size();
    let (rows, vocabulary) = (size[0], *size.last().unwrap_or(&1));
    let step = (PIECE / vocabulary.max(1)).max(1);
    let pieces: Vec<Tensor> = (0..rows)
        .step_by(step as usize)
        .map(|start| {
            let piece = logits.narrow(0, start, step.min(rows - start));
            let scaled = piece.to_kind(Kind::Float) / temperature;
            let probabilities = scaled.softmax(-1, Kind::Float);
            probabilities
                .square()
                .sum_dim_intlist(-1, false, Kind::Float)
        })
        .collect();
    if pieces.is_empty() {
        return Tensor::zeros([0], (Kind::Float, logits.device()));
    }
    Tensor::cat(&pieces, 0)
}

/// Puts `rows` \[M\] into a padded \[B, T\] of zeros, row m at flat place `places`\[m\] = b·T + t. With gradients.
pub fn padded(rows: &Tensor, places: &Tensor, sequences: i64, width: i64) -> Tensor {
    Tensor::zeros([sequences * width], (rows.kind(), rows.device()))
        .scatter(0, &places.to_kind(Kind::Int64), rows)
        .view([sequences, width])
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    /// Enough rows for several chunks, whatever the size of one.
    fn case(kind: Kind) -> (Tensor, Tensor) {
        tch::manual_seed(7);
        let logits = Tensor::randn([700, 500], (kind, Device::Cpu)) * 3.0;
        let targets = Tensor::randint(500, [700], (Kind::Int64, Device::Cpu));
        (logits.set_requires_grad(true), targets)
    }

    /// Some function of both outputs, to give gradients that differ from row to row.
    fn loss(logprobs: &Tensor, entropy: &Tensor) -> Tensor {
        (logprobs.square() + entropy.exp() * logprobs.sin()).sum(logprobs.kind())
    }

    fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).abs().max().double_value(&[])
    }

    #[test]
    fn values_and_gradients_equal_plain_operations_at_any_temperature() {
        for temperature in [1.0, 0.7, 2.5] {
            let (logits, targets) = case(Kind::Double);
            let ours = token_logprobs(&logits, &targets, temperature, true).unwrap();
            let entropy = ours.entropy.unwrap();
            loss(&ours.logprobs, &entropy).backward();

            let (plain_logits, _) = case(Kind::Double);
            let log_softmax = (&plain_logits / temperature).log_softmax(-1, Kind::Double);
            let plain_logprobs = log_softmax
                .gather(1, &targets.unsqueeze(1), false)
                .squeeze_dim(1);
            let plain_entropy =
                -(log_softmax.exp() * &log_softmax).sum_dim_intlist(-1, false, Kind::Double);
            loss(&plain_logprobs, &plain_entropy).backward();

            assert!(largest_difference(&ours.logprobs, &plain_logprobs) < 1e-12);
            assert!(largest_difference(&entropy, &plain_entropy) < 1e-12);
            assert!(largest_difference(&logits.grad(), &plain_logits.grad()) < 1e-9);
        }
    }

    #[test]
    fn without_entropy_the_logprobs_and_their_gradients_are_the_same() {
        let gradient = |with_entropy| {
            let (logits, targets) = case(Kind::Float);
            let result = token_logprobs(&logits, &targets, 0.9, with_entropy).unwrap();
            assert_eq!(result.entropy.is_some(), with_entropy);
            result.logprobs.square().sum(Kind::Float).backward();
            (result.logprobs, logits.grad())
        };
        let ((a, gradient_a), (b, gradient_b)) = (gradient(true), gradient(false));
        assert_eq!(largest_difference(&a, &b), 0.0);
        assert!(largest_difference(&gradient_a, &gradient_b) < 1e-6);
    }

    #[test]
    fn logits_in_bf16_give_the_float32_numbers_of_the_same_logits() {
        let (logits, targets) = case(Kind::Float);
        let narrow = logits
            .detach()
            .to_kind(Kind::BFloat16)
            .set_requires_grad(true);
        let wide = narrow.detach().to_kind(Kind::Float).set_requires_grad(true);
        let [from_narrow, from_wide] =
            [&narrow, &wide].map(|logits| token_logprobs(logits, &targets, 1.0, true).unwrap());
        assert_eq!(from_narrow.logprobs.kind(), Kind::Float);
        assert_eq!(
            largest_difference(&from_narrow.logprobs, &from_wide.logprobs),
            0.0
        );
        assert_eq!(
            largest_difference(&from_narrow.entropy.unwrap(), &from_wide.entropy.unwrap()),
            0.0
        );
        from_narrow.logprobs.sum(Kind::Float).backward();
        from_wide.logprobs.sum(Kind::Float).backward();
        let rounded = wide.grad().to_kind(Kind::BFloat16);
        assert_eq!(largest_difference(&narrow.grad(), &rounded), 0.0);
    }

    #[test]
    fn the_sum_of_squared_probabilities_is_that_of_the_distribution_drawn_from() {
        let (logits, _) = case(Kind::Float);
        let plain = (logits.detach() / 0.7)
            .softmax(-1, Kind::Float)
            .square()
            .sum_dim_intlist(-1, false, Kind::Float);
        assert!(largest_difference(&sum_pi_squared(&logits, 0.7), &plain) < 1e-6);
        let uniform = Tensor::zeros([2, 50], (Kind::Float, Device::Cpu));
        assert!((sum_pi_squared(&uniform, 1.0).double_value(&[1]) - 0.02).abs() < 1e-6);
    }

    #[test]
    fn rows_go_to_their_places_and_gradients_come_back() {
        let rows = Tensor::from_slice(&[1.0_f32, 2.0, 3.0]).set_requires_grad(true);
        let places = Tensor::from_slice(&[0_i64, 4, 2]);
        let padded = padded(&rows, &places, 2, 3);
        assert_eq!(
            Vec::<f32>::try_from(padded.reshape([-1])).unwrap(),
            [1.0, 0.0, 3.0, 0.0, 2.0, 0.0]
        );
        (padded * Tensor::arange(6, (Kind::Float, Device::Cpu)).view([2, 3]))
            .sum(Kind::Float)
            .backward();
        assert_eq!(Vec::<f32>::try_from(rows.grad()).unwrap(), [0.0, 4.0, 2.0]);
    }
}
