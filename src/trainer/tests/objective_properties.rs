//! What must hold for any batch: tool tokens, padding, order and micro-batches change nothing.

use experiment::losses::LOSSES;
use experiment::settings::{Actor, ImportanceLevel, KlEstimator, LossAggMode};
use proptest::collection::vec;
use proptest::prelude::*;
use tch::{Kind, Tensor};
use trainer::objective::advantage::{
    Advantages, Alone, Scale, TokenBaselineInputs, gae, gdpo, gpg, grpo, grpo_passk, opo,
    reinforce_plus_plus, reinforce_plus_plus_baseline, remax, rloo, tir_optimal_token_baseline,
};
use trainer::objective::aggregate::{Denominators, GlobalCounts, aggregate};
use trainer::objective::kl::{apply_kl_penalty, kl_loss};
use trainer::objective::policy_loss::{
    Clip, PolicyBatch, PolicyLoss, PolicySums, Surrogate, vanilla,
};
use trainer::objective::rollout_correction::{ImportanceSampling, rollout_correction};
use trainer::objective::value_loss::{ValueBatch, clipped};

const MODES: [LossAggMode; 5] = [
    LossAggMode::TokenMean,
    LossAggMode::TokenSum,
    LossAggMode::SeqMeanTokenSum,
    LossAggMode::SeqMeanTokenMean,
    LossAggMode::SeqMeanTokenSumNorm,
];

const CLIP: Clip = Clip {
    low: 0.2,
    high: 0.3,
    dual: 1.5,
};

/// B rows of T tokens: four columns of numbers and a mask.
#[derive(Debug, Clone)]
struct Batch {
    rows: i64,
    width: i64,
    columns: [Vec<f32>; 4],
    mask: Vec<bool>,
}

impl Batch {
    fn tensor(&self, column: usize) -> Tensor {
        Tensor::from_slice(&self.columns[column]).view([self.rows, self.width])
    }

    fn mask(&self) -> Tensor {
        Tensor::from_slice(&self.mask).view([self.rows, self.width])
    }

    /// The same with all that is outside the mask made NaN.
    fn spoiled(&self) -> Self {
        let mut spoiled = self.clone();
        for column in &mut spoiled.columns {
            for (value, valid) in column.iter_mut().zip(&self.mask) {
                if !valid {
                    *value = f32::NAN;
                }
            }
        }
        spoiled
    }

    /// Each row with NaN tokens outside the mask before the places that `gaps` names, and padded with them to equal length.
    fn stretched(&self, gaps: &[u8]) -> Self {
        let width = self.width as usize;
        let gap = |place: usize| usize::from(gaps[place % gaps.len()]);
        let wide = width
            + (0..self.rows as usize)
                .map(|row| (0..width).map(|t| gap(row * width + t)).sum::<usize>())
                .max()
                .unwrap();
        let mut stretched = Self {
            width: wide as i64,
            columns: [(); 4].map(|()| vec![f32::NAN; wide * self.rows as usize]),
            mask: vec![false; wide * self.rows as usize],
            ..*self
        };
        for (row, token, place) in self.places(gaps) {
            for column in 0..4 {
                stretched.columns[column][row * wide + place] =
                    self.columns[column][row * width + token];
            }
            stretched.mask[row * wide + place] = self.mask[row * width + token];
        }
        stretched
    }

    /// (row, token, the token's place after stretching)
    fn places(&self, gaps: &[u8]) -> Vec<(usize, usize, usize)> {
        let width = self.width as usize;
        let mut places = Vec::new();
        for row in 0..self.rows as usize {
            let mut place = 0;
            for token in 0..width {
                place += usize::from(gaps[(row * width + token) % gaps.len()]);
                places.push((row, token, place));
                place += 1;
            }
        }
        places
    }
}

fn batches() -> impl Strategy<Value = Batch> {
    (2..6_usize, 1..8_usize).prop_flat_map(|(rows, width)| {
        let numbers = || vec(-2.0_f32..2.0, rows * width);
        (
            numbers(),
            numbers(),
            numbers(),
            numbers(),
            vec(prop::bool::weighted(0.7), rows * width),
        )
            .prop_map(move |(a, b, c, d, mut mask)| {
                // Whitening needs two tokens.
                mask[0] = true;
                *mask.last_mut().unwrap() = true;
                Batch {
                    rows: rows as i64,
                    width: width as i64,
                    columns: [a, b, c, d],
                    mask,
                }
            })
    })
}

fn list(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.detach().to_kind(Kind::Double).reshape([-1])).unwrap()
}

fn number(tensor: &Tensor) -> f64 {
    tensor.double_value(&[])
}

fn close(a: f64, b: f64) -> bool {
    // Sums in another order, float32.
    (a - b).abs() <= 1e-5 * a.abs().max(b.abs()).max(1.0)
}

fn whole(mask: &Tensor, mode: LossAggMode) -> Denominators {
    let counts = GlobalCounts {
        loss_scale_factor: Some(7.0),
        ..GlobalCounts::default()
    };
    Denominators::new(mask, mode, &counts).unwrap()
}

/// Policy loss with rollout weights, KL loss and value loss, added up.
fn loss(
    tensors: &[Tensor; 4],
    leaf: &Tensor,
    mask: &Tensor,
    mode: LossAggMode,
    denominators: &Denominators,
) -> Tensor {
    let weights = tensors[3].abs();
    let policy = PolicyBatch {
        logprobs: leaf,
        old_logprobs: &tensors[1],
        advantages: &tensors[2],
        mask,
        rollout_weights: Some(&weights),
    };
    let value = ValueBatch {
        predictions: leaf,
        old_values: &tensors[1],
        returns: &tensors[2],
        mask,
    };
    vanilla(&policy, &CLIP, mode, denominators).unwrap().loss
        + kl_loss(leaf, &tensors[3], mask, KlEstimator::K3, mode, denominators).unwrap()
        + clipped(&value, 0.5, mode, denominators).unwrap().loss
}

fn loss_and_gradient(batch: &Batch, mode: LossAggMode) -> (f64, Vec<f64>) {
    let tensors = [0, 1, 2, 3].map(|column| batch.tensor(column));
    let leaf = tensors[0].set_requires_grad(true);
    let mask = batch.mask();
    let loss = loss(&tensors, &leaf, &mask, mode, &whole(&mask, mode));
    loss.backward();
    (number(&loss), list(&leaf.grad()))
}

type Estimate<'a> = Box<dyn Fn(&Batch) -> Tensor + 'a>;

/// Every estimator without a critic by name. `optimal_token_baseline` is not among them: it compares tokens by their place in
/// the response, tool tokens included; its form for tools is.
fn estimators(gamma: f64, groups: &[i64]) -> Vec<(&'static str, Estimate<'_>)> {
    let given = |batch: &Batch| (batch.tensor(0), batch.mask());
    let of = move |kind: fn(&Tensor, &Tensor, &[i64]) -> Advantages| -> Estimate<'_> {
        Box::new(move |batch| {
            let (rewards, mask) = given(batch);
            kind(&rewards, &mask, groups).advantages
        })
    };
    vec![
        (
            "grpo",
            of(|r, m, g| grpo(r, m, g, Scale::DEVIATION).unwrap()),
        ),
        (
            "Dr. GRPO",
            of(|r, m, g| grpo(r, m, g, Scale::None).unwrap()),
        ),
        ("rloo", of(|r, m, g| rloo(r, m, g, Alone::Score).unwrap())),
        ("opo", of(|r, m, g| opo(r, m, g).unwrap())),
        ("gpg", of(|r, m, g| gpg(r, m, g).unwrap())),
        (
            "gdpo",
            of(|r, m, g| {
                let components = [(1.0, r.shallow_clone()), (0.5, r.square())];
                gdpo(&components, m, g, Scale::DEVIATION).unwrap()
            }),
        ),
        (
            "reinforce_plus_plus_baseline",
            of(|r, m, g| reinforce_plus_plus_baseline(r, m, g).unwrap()),
        ),
        (
            "grpo_passk",
            Box::new(move |batch| {
                let (rewards, mask) = given(batch);
                // One group: a group of one is refused.
                let one = vec![0; groups.len()];
                grpo_passk(&rewards, &mask, &one, Scale::DEVIATION)
                    .unwrap()
                    .advantages
            }),
        ),
        (
            "reinforce_plus_plus",
            Box::new(move |batch| {
                let (rewards, mask) = given(batch);
                reinforce_plus_plus(&rewards, &mask, gamma)
                    .unwrap()
                    .advantages
            }),
        ),
        (
            "remax",
            Box::new(move |batch| {
                let (rewards, mask) = given(batch);
                let baselines = Tensor::arange(batch.rows, (Kind::Float, tch::Device::Cpu));
                remax(&rewards, &baselines, &mask).unwrap().advantages
            }),
        ),
        (
            "tir_optimal_token_baseline",
            Box::new(move |batch| {
                let (rewards, mask) = given(batch);
                let logprobs = -batch.tensor(1).abs();
                let squares = batch.tensor(2).sigmoid();
                let inputs = TokenBaselineInputs {
                    token_rewards: &rewards,
                    old_logprobs: &logprobs,
                    sum_pi_squared: &squares,
                    rollout_weights: None,
                    mask: &mask,
                    zero_tail: true,
                    epsilon: 1e-8,
                };
                tir_optimal_token_baseline(&inputs, groups)
                    .unwrap()
                    .advantages
            }),
        ),
    ]
}

/// Every loss of the table, with settings that make something of small batches.
fn surrogates() -> Vec<(Surrogate, bool)> {
    LOSSES
        .iter()
        .map(|row| {
            let mut actor = Actor {
                clip_ratio_high: 0.3,
                clip_ratio_c: 1.5,
                ..Actor::default()
            };
            actor.policy_loss.loss_mode = row.kind;
            actor.policy_loss.dro_beta = Some(0.4);
            actor.policy_loss.kl_cov_ratio = 0.3;
            actor.policy_loss.clip_cov_ratio = 0.3;
            actor.policy_loss.clip_cov_lb = 0.1;
            (Surrogate::new(&actor), row.micro_batches_matter.is_none())
        })
        .chain([(Surrogate::Reinforce, true)])
        .collect()
}

/// Columns: log-probs, old log-probs, advantages, rollout weights. Tokens that are drawn are the first.
fn policy_loss_of(
    surrogate: &Surrogate,
    tensors: &[Tensor; 4],
    leaf: &Tensor,
    mask: &Tensor,
    mode: LossAggMode,
    denominators: &Denominators,
) -> PolicyLoss {
    let weights = tensors[3].abs();
    let batch = PolicyBatch {
        logprobs: leaf,
        old_logprobs: &tensors[1],
        advantages: &tensors[2],
        mask,
        rollout_weights: Some(&weights),
    };
    surrogate
        .loss(&batch, mode, denominators, &mut |count| {
            (0..count).collect()
        })
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn tool_tokens_between_the_models_own_change_no_advantage(
        batch in batches(),
        gaps in vec(0..3_u8, 1..12),
        gamma in 0.5..1.0_f64,
        lam in 0.0..1.0_f64,
    ) {
        let stretched = batch.stretched(&gaps);
        let wide = stretched.width as usize;
        let estimate = |batch: &Batch| {
            let gae = gae(&batch.tensor(0), &batch.tensor(1), &batch.mask(), gamma, lam).unwrap();
            [list(&gae.advantages), list(&gae.returns)]
        };
        let (before, after) = (estimate(&batch), estimate(&stretched));
        for (row, token, place) in batch.places(&gaps) {
            let (old, new) = (row * batch.width as usize + token, row * wide + place);
            if batch.mask[old] {
                for (before, after) in before.iter().zip(&after) {
                    prop_assert!(close(before[old], after[new]), "{} is not {}", after[new], before[old]);
                }
            }
        }

        // Rewards outside the mask would count for a group, so both sides have none there.
        let spoiled = batch.spoiled();
        let groups: Vec<_> = (0..batch.rows).map(|row| row % 2).collect();
        for (name, estimate) in estimators(gamma, &groups) {
            let (before, after) = (list(&estimate(&spoiled)), list(&estimate(&spoiled.stretched(&gaps))));
            for (row, token, place) in batch.places(&gaps) {
                let (old, new) = (row * batch.width as usize + token, row * wide + place);
                if batch.mask[old] {
                    prop_assert!(close(before[old], after[new]), "{name}: {} is not {}", after[new], before[old]);
                }
            }
        }
    }

    #[test]
    fn micro_batches_add_up_to_the_whole(batch in batches(), cut in 1..5_i64) {
        for mode in MODES {
            let (value, gradient) = loss_and_gradient(&batch, mode);
            let mask = batch.mask();
            let denominators = whole(&mask, mode);
            let tensors = [0, 1, 2, 3].map(|column| batch.tensor(column));
            let leaf = tensors[0].set_requires_grad(true);
            let mut sum = 0.0;
            for start in (0..batch.rows).step_by(cut as usize) {
                let rows = cut.min(batch.rows - start);
                let part = |tensor: &Tensor| tensor.narrow(0, start, rows);
                let parts = [0, 1, 2, 3].map(|column: usize| part(&tensors[column]));
                let loss = loss(&parts, &part(&leaf), &part(&mask), mode, &denominators);
                loss.backward();
                sum += number(&loss);
            }
            prop_assert!(close(value, sum), "{mode:?}: {sum} is not {value}");
            for (whole, parts) in gradient.iter().zip(list(&leaf.grad())) {
                prop_assert!(close(*whole, parts), "{mode:?}: {parts} is not {whole}");
            }
        }
    }

    #[test]
    fn micro_batches_of_any_loss_that_says_so_add_up_to_the_whole(batch in batches(), cut in 1..5_i64, mode in 0..5_usize) {
        let mask = batch.mask();
        for (surrogate, _) in surrogates().iter().filter(|(_, adds_up)| *adds_up) {
            let mode = surrogate.aggregation(MODES[mode]);
            let denominators = whole(&mask, mode);
            let tensors = [0, 1, 2, 3].map(|column| batch.tensor(column));
            let leaf = batch.tensor(0).set_requires_grad(true);
            let all = policy_loss_of(surrogate, &tensors, &leaf, &mask, mode, &denominators);
            all.loss.backward();
            let gradient = list(&leaf.grad());
            let leaf = batch.tensor(0).set_requires_grad(true);
            let (mut sum, mut sums) = (0.0, None::<PolicySums>);
            for start in (0..batch.rows).step_by(cut as usize) {
                let rows = cut.min(batch.rows - start);
                let part = |tensor: &Tensor| tensor.narrow(0, start, rows);
                let parts = [0, 1, 2, 3].map(|column: usize| part(&tensors[column]));
                let micro = policy_loss_of(surrogate, &parts, &part(&leaf), &part(&mask), mode, &denominators);
                micro.loss.backward();
                sum += number(&micro.loss);
                sums = Some(match sums {
                    Some(sums) => sums.plus(&micro.sums),
                    None => micro.sums,
                });
            }
            prop_assert!(close(number(&all.loss), sum), "{surrogate:?} {mode:?}: {sum} is not {}", number(&all.loss));
            for (whole, parts) in gradient.iter().zip(list(&leaf.grad())) {
                prop_assert!(close(*whole, parts), "{surrogate:?} {mode:?}: {parts} is not {whole}");
            }
            let (whole, parts) = (all.sums.metrics(), sums.unwrap().metrics());
            for ((name, whole), (_, parts)) in whole.named().zip(parts.named()) {
                prop_assert!(close(whole, parts), "{surrogate:?}: {name} is {parts}, not {whole}");
            }
        }
    }

    #[test]
    fn nothing_outside_the_mask_matters_to_any_loss_its_gradient_or_its_metrics(
        batch in batches(),
        gaps in vec(0..3_u8, 1..12),
        mode in 0..5_usize,
    ) {
        for (surrogate, _) in surrogates() {
            let mode = surrogate.aggregation(MODES[mode]);
            let computed = |batch: &Batch| {
                let tensors = [0, 1, 2, 3].map(|column| batch.tensor(column));
                let leaf = batch.tensor(0).set_requires_grad(true);
                let mask = batch.mask();
                let result = policy_loss_of(&surrogate, &tensors, &leaf, &mask, mode, &whole(&mask, mode));
                result.loss.backward();
                let metrics: Vec<(&str, f64)> = result.sums.metrics().named().collect();
                (number(&result.loss), list(&leaf.grad()), metrics)
            };
            let stretched = batch.stretched(&gaps);
            let (value, gradient, metrics) = computed(&batch);
            let (wide_value, wide_gradient, wide_metrics) = computed(&stretched);
            prop_assert!(close(value, wide_value), "{surrogate:?}: {wide_value} is not {value}");
            prop_assert!(wide_gradient.iter().all(|number| number.is_finite()), "{surrogate:?}");
            for ((name, before), (_, after)) in metrics.iter().zip(wide_metrics) {
                prop_assert!(close(*before, after), "{surrogate:?}: {name} is {after}, not {before}");
            }
            for (row, token, place) in batch.places(&gaps) {
                let old = gradient[row * batch.width as usize + token];
                let new = wide_gradient[row * stretched.width as usize + place];
                prop_assert!(close(old, new), "{surrogate:?}: {new} is not {old}");
            }
        }
    }

    #[test]
    fn nothing_outside_the_mask_matters_to_losses_gradients_and_metrics(batch in batches(), gaps in vec(0..3_u8, 1..12)) {
        let spoiled = batch.spoiled();
        let stretched = batch.stretched(&gaps);
        for mode in MODES {
            let (value, gradient) = loss_and_gradient(&batch, mode);
            prop_assert_eq!((value, gradient.clone()), loss_and_gradient(&spoiled, mode), "{:?}", mode);
            let (wide_value, wide_gradient) = loss_and_gradient(&stretched, mode);
            prop_assert!(close(value, wide_value), "{mode:?}: {wide_value} is not {value}");
            prop_assert!(wide_gradient.iter().all(|number| number.is_finite()));
            for (row, token, place) in batch.places(&gaps) {
                let old = gradient[row * batch.width as usize + token];
                prop_assert!(close(old, wide_gradient[row * stretched.width as usize + place]));
            }
        }
        let metrics = |batch: &Batch, level| {
            let sampling = ImportanceSampling { level, upper: 2.0, lower: None, batch_normalize: true };
            rollout_correction(&batch.tensor(0), &batch.tensor(1), &batch.mask(), Some(&sampling)).unwrap().metrics
        };
        let kl = |batch: &Batch| {
            apply_kl_penalty(&batch.tensor(0), &batch.tensor(1), &batch.tensor(2), &batch.mask(), KlEstimator::K1, 0.1)
                .unwrap()
                .mean_kl
                .per_token
        };
        for other in [&spoiled, &stretched] {
            prop_assert!(close(kl(&batch), kl(other)));
            for level in [ImportanceLevel::Token, ImportanceLevel::Sequence] {
                for ((name, before), (_, after)) in metrics(&batch, level).into_iter().zip(metrics(other, level)) {
                    // A deviation is the root of a difference of two means in float32: its square is what is exact to 1e-5.
                    let power = if name.ends_with("is_std") { 2 } else { 1 };
                    prop_assert!(close(before.powi(power), after.powi(power)), "{name}: {after} is not {before}");
                }
            }
        }
    }

    #[test]
    fn the_order_of_sequences_changes_nothing(batch in batches()) {
        let backwards = |tensor: &Tensor| tensor.flip([0]);
        let mask = batch.mask();
        let (rewards, values) = (batch.tensor(0), batch.tensor(1));
        let groups: Vec<_> = (0..batch.rows).map(|row| row % 2).collect();
        let turned: Vec<_> = groups.iter().rev().copied().collect();
        let pairs = [
            (
                grpo(&rewards, &mask, &groups, Scale::DEVIATION).unwrap().advantages,
                grpo(&backwards(&rewards), &backwards(&mask), &turned, Scale::DEVIATION).unwrap().advantages,
            ),
            (
                rloo(&rewards, &mask, &groups, Alone::Score).unwrap().advantages,
                rloo(&backwards(&rewards), &backwards(&mask), &turned, Alone::Score).unwrap().advantages,
            ),
            (
                opo(&rewards, &mask, &groups).unwrap().advantages,
                opo(&backwards(&rewards), &backwards(&mask), &turned).unwrap().advantages,
            ),
            (
                gae(&rewards, &values, &mask, 0.9, 0.9).unwrap().advantages,
                gae(&backwards(&rewards), &backwards(&values), &backwards(&mask), 0.9, 0.9).unwrap().advantages,
            ),
        ];
        for (straight, turned) in &pairs {
            for ((a, b), valid) in list(straight).iter().zip(list(&backwards(turned))).zip(&batch.mask) {
                prop_assert!(!valid || close(*a, b), "{b} is not {a}");
            }
        }
        for mode in MODES {
            let denominators = whole(&mask, mode);
            let straight = number(&aggregate(&rewards, &mask, mode, &denominators));
            let turned = number(&aggregate(&backwards(&rewards), &backwards(&mask), mode, &denominators));
            prop_assert!(close(straight, turned));
        }
    }
}
