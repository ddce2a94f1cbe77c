//! The weights of a model: plain leaf tensors under their Hugging Face names, in one fixed order. An optimizer, a weight sync
//! and a checkpoint all walk this list; the forward pass looks tensors up by name once per call.

use std::collections::HashMap;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tch::{Device, Kind, Tensor};

use super::config::{Head, ModelConfig};

/// Named tensors in the order of [`ModelConfig::tensor_shapes`]. Not `Sync`; [`Parameters::shallow_clone`] gives another thread
/// the same storage.
#[derive(Debug)]
pub struct Parameters {
    config: Arc<ModelConfig>,
    entries: Vec<(String, Tensor)>,
    index: HashMap<String, usize>,
}

impl Parameters {
    /// Takes tensors as they are; `entries` must have the names and shapes of `config.tensor_shapes()`, in that order.
    pub(crate) fn from_entries(config: Arc<ModelConfig>, entries: Vec<(String, Tensor)>) -> Self {
        debug_assert!(
            config
                .tensor_shapes()
                .iter()
                .zip(&entries)
                .all(|((name, shape), (held, tensor))| name == held && *shape == tensor.size()),
            "parameters in the order of the config"
        );
        let index = entries
            .iter()
            .enumerate()
            .map(|(at, (name, _))| (name.clone(), at))
            .collect();
        Self {
            config,
            entries,
            index,
        }
    }

    /// Random weights as transformers draws them (normal with `initializer_range`, norms one, biases zero). The same seed gives
    /// the same bits on every machine and device.
    pub fn random(config: &Arc<ModelConfig>, seed: u64, kind: Kind, device: Device) -> Self {
        let entries = config
            .tensor_shapes()
            .into_iter()
            .enumerate()
            .map(|(at, (name, shape))| {
                let tensor = random_tensor(config, &name, &shape, seed, at as u64);
                (name, tensor.to_kind(kind).to_device(device))
            })
            .collect();
        Self::from_entries(Arc::clone(config), entries)
    }

    /// A critic that starts from this trunk: copies of its tensors and a fresh value head (weight random, bias zero).
    #[must_use]
    pub fn to_critic(&self, seed: u64) -> Self {
        self.under_head(Head::Value, seed)
    }

    /// The same trunk under another head: copies of its tensors, what is new drawn from `seed`.
    #[must_use]
    pub fn under_head(&self, head: Head, seed: u64) -> Self {
        let config = Arc::new(self.config.with_head(head));
        let (kind, device) = (self.kind(), self.device());
        let entries = config
            .tensor_shapes()
            .into_iter()
            .enumerate()
            .map(|(at, (name, shape))| {
                let tensor = match self.index.get(&name) {
                    Some(held) => self.entries[*held].1.detach().copy(),
                    None => random_tensor(&config, &name, &shape, seed, at as u64)
                        .to_kind(kind)
                        .to_device(device),
                };
                (name, tensor)
            })
            .collect();
        Self::from_entries(config, entries)
    }

    pub fn config(&self) -> &Arc<ModelConfig> {
        &self.config
    }

    /// Name and tensor, in the fixed order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.entries
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The tensors alone, as an optimizer takes them; each shares its storage with the parameter.
    pub fn tensors(&self) -> Vec<Tensor> {
        self.entries
            .iter()
            .map(|(_, tensor)| tensor.shallow_clone())
            .collect()
    }

    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.index.get(name).map(|at| &self.entries[*at].1)
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn kind(&self) -> Kind {
        self.entries[0].1.kind()
    }

    pub fn device(&self) -> Device {
        self.entries[0].1.device()
    }

    pub fn bytes(&self) -> u64 {
        self.entries
            .iter()
            .map(|(_, tensor)| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64)
            .sum()
    }

    /// Makes every tensor a leaf that collects gradients (or no longer one).
    #[must_use]
    pub fn set_requires_grad(self, requires_grad: bool) -> Self {
        let entries = self
            .entries
            .into_iter()
            .map(|(name, tensor)| (name, tensor.detach().set_requires_grad(requires_grad)))
            .collect();
        Self { entries, ..self }
    }

    /// Forgets all gradients.
    pub fn zero_grad(&mut self) {
        for (_, tensor) in &mut self.entries {
            tensor.zero_grad();
        }
    }

    /// The same storage in a second owner, for another thread or a second model over it.
    #[must_use]
    pub fn shallow_clone(&self) -> Self {
        Self {
            config: Arc::clone(&self.config),
            entries: self
                .entries
                .iter()
                .map(|(name, tensor)| (name.clone(), tensor.shallow_clone()))
                .collect(),
            index: self.index.clone(),
        }
    }

    /// A frozen copy of its own, as a reference policy keeps it.
    #[must_use]
    pub fn deep_copy(&self, kind: Kind, device: Device) -> Self {
        let entries = self
            .entries
            .iter()
            .map(|(name, tensor)| {
                let copy = tensor.detach().to_device(device).to_kind(kind);
                let copy = if copy.data_ptr() == tensor.data_ptr() {
                    copy.copy()
                } else {
                    copy
                };
                (name.clone(), copy)
            })
            .collect();
        Self::from_entries(Arc::clone(&self.config), entries)
    }
}

fn random_tensor(
    config: &ModelConfig,
    name: &str,
    shape: &[i64],
    seed: u64,
    stream: u64,
) -> Tensor {
    let options = (Kind::Float, Device::Cpu);
    if name.ends_with("norm.weight") {
        return Tensor::ones(shape, options);
    }
    if name.ends_with("bias") {
        return Tensor::zeros(shape, options);
    }
    let count = shape.iter().product::<i64>() as usize;
    Tensor::from_slice(&normals(count, config.initializer_range, seed, stream)).view(shape)
}

/// `count` draws of N(0, deviation²) by Box and Muller, from the given stream of the seed.
fn normals(count: usize, deviation: f64, seed: u64, stream: u64) -> Vec<f32> {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream);
    let mut uniform = || f64::from(generator.next_u32()) / 4_294_967_296.0;
    let mut values = Vec::with_capacity(count + 1);
    while values.len() < count {
        // 1 - u lies in (0, 1], so its logarithm is finite.
        let radius = deviation * (-2.0 * (1.0 - uniform()).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * uniform()).sin_cos();
        values.push((radius * cosine) as f32);
        values.push((radius * sine) as f32);
    }
    values.truncate(count);
    values
}

#[cfg(test)]
mod tests {
    use super::normals;

    #[test]
    fn normals_have_the_asked_deviation_and_depend_on_seed_and_stream_only() {
        let draws = normals(100_001, 0.02, 7, 3);
        assert_eq!(draws.len(), 100_001);
        assert_eq!(draws, normals(100_001, 0.02, 7, 3));
        assert_ne!(draws, normals(100_001, 0.02, 7, 4));
        assert_ne!(draws, normals(100_001, 0.02, 8, 3));
        let count = draws.len() as f64;
        let mean = draws.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
        let variance = draws.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / count;
        // Four standard errors: 0.02/√n for the mean, √(2/n) relative for the variance.
        assert!(mean.abs() < 4.0 * 0.02 / count.sqrt(), "{mean}");
        assert!(
            (variance / 0.0004 - 1.0).abs() < 4.0 * (2.0 / count).sqrt(),
            "{variance}"
        );
    }
}
