use tch::Device;

use super::*;

const CPU: (Kind, Device) = (Kind::Float, Device::Cpu);

fn settings(clip_grad: f64) -> Optim {
    Optim {
        weight_decay: 0.1,
        betas: [0.9, 0.95],
        eps: 1e-6,
        clip_grad,
        ..Optim::default()
    }
}

fn leaf(values: &[f32]) -> Tensor {
    Tensor::from_slice(values).set_requires_grad(true)
}

fn optimizer(parameters: &[&Tensor], clip_grad: f64, masters: MasterWeights) -> AdamW {
    let named = parameters
        .iter()
        .enumerate()
        .map(|(index, tensor)| (format!("p{index}"), tensor.shallow_clone()));
    AdamW::new(named, &settings(clip_grad), masters).unwrap()
}

/// Gives each parameter exactly this gradient.
fn backward(pairs: &[(&Tensor, &[f32])]) {
    let loss: Tensor = pairs
        .iter()
        .map(|(parameter, gradient)| (*parameter * Tensor::from_slice(gradient)).sum(Kind::Float))
        .sum();
    loss.backward();
}

fn values(tensor: &Tensor) -> Vec<f64> {
    Vec::<f64>::try_from(tensor.detach().to_kind(Kind::Double)).unwrap()
}

/// The formula of the doc comment, one number at a time, in float64.
struct Plain {
    theta: Vec<f64>,
    m: Vec<f64>,
    v: Vec<f64>,
    t: i32,
}

impl Plain {
    fn new(theta: &[f32]) -> Self {
        let theta: Vec<_> = theta.iter().map(|x| f64::from(*x)).collect();
        let zeros = vec![0.0; theta.len()];
        Self {
            m: zeros.clone(),
            v: zeros,
            theta,
            t: 0,
        }
    }

    fn step(&mut self, gradient: &[f32], factor: f64, lr: f64) {
        let Optim {
            betas: [b1, b2],
            eps,
            weight_decay,
            ..
        } = settings(1.0);
        self.t += 1;
        for (index, gradient) in gradient.iter().enumerate() {
            let g = f64::from(*gradient) * factor;
            self.theta[index] *= 1.0 - lr * weight_decay;
            self.m[index] = b1 * self.m[index] + (1.0 - b1) * g;
            self.v[index] = b2 * self.v[index] + (1.0 - b2) * g * g;
            let m = self.m[index] / (1.0 - b1.powi(self.t));
            let v = self.v[index] / (1.0 - b2.powi(self.t));
            self.theta[index] -= lr * m / (v.sqrt() + eps);
        }
    }
}

fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() <= tolerance * expected.abs().max(1.0),
            "{found} is not {expected}"
        );
    }
}

#[test]
fn steps_equal_the_formula_in_double_precision_clipped_or_not() {
    let (start_a, start_b) = ([0.5_f32, -1.0, 2.0], [0.01_f32, -3.0]);
    let (a, b) = (leaf(&start_a), leaf(&start_b));
    let mut optimizer = optimizer(&[&a, &b], 5.0, MasterWeights::Float32);
    let (mut plain_a, mut plain_b) = (Plain::new(&start_a), Plain::new(&start_b));
    let gradients: [([f32; 3], [f32; 2]); 4] = [
        ([0.1, -0.2, 0.3], [0.0, 1.0]),
        ([30.0, -4.0, 0.5], [1e-4, 7.0]),
        ([0.0, 0.0, 0.0], [-1.0, 1.0]),
        ([-2.0, 1.0, 8.0], [3.0, -1.0]),
    ];
    for (index, (grad_a, grad_b)) in gradients.iter().enumerate() {
        let lr = 0.05 / (index + 1) as f64;
        optimizer.clear_grads().unwrap();
        backward(&[(&a, grad_a), (&b, grad_b)]);
        let norm = grad_a
            .iter()
            .chain(grad_b)
            .map(|x| f64::from(*x).powi(2))
            .sum::<f64>()
            .sqrt();
        let factor = (5.0 / (norm + 1e-6)).min(1.0);
        let outcome = optimizer.step(lr).unwrap();
        assert!((outcome.grad_norm() - norm).abs() < 1e-5 * norm);
        assert_eq!(
            outcome,
            StepOutcome::Stepped {
                grad_norm: outcome.grad_norm(),
                was_clipped: factor < 1.0
            }
        );
        plain_a.step(grad_a, factor, lr);
        plain_b.step(grad_b, factor, lr);
        // 24-bit mantissas, a few operations a step.
        assert_close(&values(&a), &plain_a.theta, 1e-6);
        assert_close(&values(&b), &plain_b.theta, 1e-6);
    }
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing_and_is_reported() {
    let parameter = leaf(&[1.0, 2.0]);
    let mut optimizer = optimizer(&[&parameter], 1.0, MasterWeights::Float32);
    for bad in [f32::NAN, f32::INFINITY] {
        optimizer.clear_grads().unwrap();
        backward(&[(&parameter, &[1.0, bad])]);
        let outcome = optimizer.step(0.1).unwrap();
        assert!(
            matches!(outcome, StepOutcome::SkippedNonFinite { grad_norm } if !grad_norm.is_finite())
        );
        assert_eq!(values(&parameter), [1.0, 2.0]);
    }
    // As if the bad steps had not been.
    let mut plain = Plain::new(&[1.0, 2.0]);
    plain.step(&[0.3, 0.4], 1.0, 0.1);
    optimizer.clear_grads().unwrap();
    backward(&[(&parameter, &[0.3, 0.4])]);
    optimizer.step(0.1).unwrap();
    assert_close(&values(&parameter), &plain.theta, 1e-6);
}

#[test]
fn a_parameter_without_a_gradient_is_left_alone() {
    let (used, unused) = (leaf(&[1.0]), leaf(&[1.0]));
    let mut optimizer = optimizer(&[&used, &unused], 1.0, MasterWeights::Float32);
    assert!(matches!(optimizer.step(0.1), Err(Error::NoGradients)));
    backward(&[(&used, &[0.5])]);
    optimizer.step(0.1).unwrap();
    assert_eq!(values(&unused), [1.0]);
    assert_ne!(values(&used), [1.0]);
}

#[test]
fn saved_and_loaded_it_goes_on_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    for kind in [Kind::Float, Kind::BFloat16] {
        let start = || {
            Tensor::from_slice(&[0.5_f32, -1.0, 3.0])
                .to_kind(kind)
                .set_requires_grad(true)
        };
        let gradients: [&[f32]; 4] = [
            &[1.0, -2.0, 0.3],
            &[0.2, 0.1, -4.0],
            &[9.0, 1.0, 1.0],
            &[0.1, 0.2, 0.3],
        ];
        let advance = |optimizer: &mut AdamW, parameter: &Tensor, gradients: &[&[f32]]| {
            for gradient in gradients {
                optimizer.clear_grads().unwrap();
                backward(&[(parameter, gradient)]);
                optimizer.step(0.01).unwrap();
            }
        };
        let whole = start();
        let mut optimizer_whole = optimizer(&[&whole], 2.0, MasterWeights::Float32);
        advance(&mut optimizer_whole, &whole, &gradients);

        let first = start();
        let mut optimizer_first = optimizer(&[&first], 2.0, MasterWeights::Float32);
        advance(&mut optimizer_first, &first, &gradients[..2]);
        optimizer_first.save(&path).unwrap();
        let second = first.detach().copy().set_requires_grad(true);
        let mut optimizer_second = optimizer(&[&second], 2.0, MasterWeights::Float32);
        optimizer_second.load(&path).unwrap();
        advance(&mut optimizer_second, &second, &gradients[2..]);
        assert_eq!(values(&second), values(&whole), "{kind:?}");
    }
}

#[test]
fn the_state_of_another_model_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    let (small, wide) = (leaf(&[1.0]), leaf(&[1.0, 2.0]));
    optimizer(&[&small], 1.0, MasterWeights::Float32)
        .save(&path)
        .unwrap();
    let message = |mut optimizer: AdamW| optimizer.load(&path).unwrap_err().to_string();
    assert_eq!(
        message(optimizer(&[&wide], 1.0, MasterWeights::Float32)),
        "the saved optimizer state has p0.exp_avg with shape [1]; this model needs [2]"
    );
    assert_eq!(
        message(optimizer(&[&small, &wide], 1.0, MasterWeights::Float32)),
        "the saved optimizer state lacks p1.exp_avg; it belongs to another model or was cut short"
    );
    optimizer(&[&small, &wide], 1.0, MasterWeights::Float32)
        .save(&path)
        .unwrap();
    assert_eq!(
        message(optimizer(&[&small], 1.0, MasterWeights::Float32)),
        "the saved optimizer state has p1.exp_avg, which this model has not; it belongs to another model"
    );
    std::fs::write(&path, b"torn").unwrap();
    assert!(matches!(
        optimizer(&[&small], 1.0, MasterWeights::Float32).load(&path),
        Err(Error::File { what: "load", .. })
    ));
}

#[test]
fn masters_add_up_updates_too_small_for_bf16() {
    // bf16 has nothing between 1.0 and 1.0078; each step moves by about 0.001.
    let run = |masters| {
        let parameter = Tensor::ones([1], CPU)
            .to_kind(Kind::BFloat16)
            .set_requires_grad(true);
        let named = [("p".to_owned(), parameter.shallow_clone())];
        let optim = Optim {
            weight_decay: 0.0,
            ..Optim::default()
        };
        let mut optimizer = AdamW::new(named, &optim, masters).unwrap();
        for _ in 0..20 {
            optimizer.clear_grads().unwrap();
            backward(&[(&parameter, &[-1.0])]);
            optimizer.step(1e-3).unwrap();
        }
        values(&parameter)[0]
    };
    assert_eq!(run(MasterWeights::None), 1.0);
    assert!((run(MasterWeights::Float32) - 1.02).abs() <= 1.0 / 256.0);
}
