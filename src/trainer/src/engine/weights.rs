//! The engine's own copy of a model's weights, laid out for decoding: q, k and v in one matrix, gate and up in one matrix.

use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use crate::model::config::ModelConfig;
use crate::model::parameters::Parameters;
use crate::torch_ext;

/// A matrix \[out, in\] and perhaps a bias \[out\].
#[derive(Debug)]
pub(super) struct Linear {
    pub weight: Tensor,
    pub bias: Option<Tensor>,
}

impl Linear {
    fn new(out: i64, input: i64, bias: bool, options: (Kind, Device)) -> Self {
        Self {
            weight: Tensor::zeros([out, input], options),
            bias: bias.then(|| Tensor::zeros([out], options)),
        }
    }

    pub fn forward(&self, rows: &Tensor) -> Tensor {
        rows.linear(&self.weight, self.bias.as_ref())
    }

    /// Rows `start..start + count` under a canonical name.
    fn part(&self, name: &str, start: i64, count: i64, into: &mut Vec<(String, Tensor)>) {
        into.push((
            format!("{name}.weight"),
            self.weight.narrow(0, start, count),
        ));
        if let Some(bias) = &self.bias {
            into.push((format!("{name}.bias"), bias.narrow(0, start, count)));
        }
    }
}

#[derive(Debug)]
pub(super) struct Layer {
    pub input_norm: Tensor,
    /// \[(heads + 2 kv heads) · D, H\]
    pub qkv: Linear,
    /// Of q and k, each \[D\].
    pub head_norms: Option<[Tensor; 2]>,
    pub output: Linear,
    pub post_norm: Tensor,
    /// \[2 I, H\]
    pub gate_up: Linear,
    pub down: Linear,
}

/// One set of weights. Two of them make a double buffer: one generates, one is filled. `Send`, not `Sync`.
#[derive(Debug)]
pub struct WeightBuffer {
    pub(super) config: Arc<ModelConfig>,
    pub(super) embedding: Tensor,
    pub(super) layers: Vec<Layer>,
    pub(super) norm: Tensor,
    /// None: tied to the embedding.
    pub(super) lm_head: Option<Tensor>,
}

impl WeightBuffer {
    /// A buffer of zeros.
    ///
    /// # Panics
    /// When the config is a critic's: critics do not speak.
    pub fn new(config: &Arc<ModelConfig>, kind: Kind, device: Device) -> Self {
        assert_eq!(
            config.head,
            crate::model::config::Head::Language,
            "only a language model can generate"
        );
        let options = (kind, device);
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let q = config.num_heads * config.head_dim;
        let qkv = q + 2 * config.num_kv_heads * config.head_dim;
        let layers = (0..config.num_layers)
            .map(|_| Layer {
                input_norm: Tensor::zeros([hidden], options),
                qkv: Linear::new(qkv, hidden, config.qkv_bias, options),
                head_norms: config
                    .head_norms
                    .then(|| [(); 2].map(|()| Tensor::zeros([config.head_dim], options))),
                output: Linear::new(hidden, q, config.output_bias, options),
                post_norm: Tensor::zeros([hidden], options),
                gate_up: Linear::new(2 * inner, hidden, config.mlp_bias, options),
                down: Linear::new(hidden, inner, config.mlp_bias, options),
            })
            .collect();
        let table = || Tensor::zeros([config.vocab_size, hidden], options);
        Self {
            config: Arc::clone(config),
            embedding: table(),
            layers,
            norm: Tensor::zeros([hidden], options),
            lm_head: (!config.tie_word_embeddings).then(table),
        }
    }

    /// A buffer that holds these weights, cast to `kind`.
    pub fn from_parameters(parameters: &Parameters, kind: Kind, device: Device) -> Self {
        let mut buffer = Self::new(parameters.config(), kind, device);
        buffer.copy_from(parameters);
        buffer
    }

    /// Overwrites this buffer, casting where the dtypes differ, and gives the number of bytes written.
    ///
    /// # Panics
    /// When the models differ in shape.
    pub fn copy_from(&mut self, parameters: &Parameters) -> u64 {
        tch::no_grad(|| {
            let mut bytes = 0;
            let views = self.views();
            assert_eq!(views.len(), parameters.len(), "both sides hold one model");
            for ((name, mut view), (from_name, from)) in views.into_iter().zip(parameters.iter()) {
                assert_eq!(name, from_name, "both sides list tensors in one order");
                assert_eq!(
                    view.size(),
                    from.size(),
                    "one shape of {name} on both sides"
                );
                if !torch_ext::copy_bytes(&view, from) {
                    view.copy_(from);
                }
                bytes += (view.numel() * view.kind().elt_size_in_bytes()) as u64;
            }
            bytes
        })
    }

    /// Every tensor under its Hugging Face name, in the order of [`ModelConfig::tensor_shapes`]: views into this buffer, so
    /// writing to one writes the weights. All are contiguous.
    pub fn views(&self) -> Vec<(String, Tensor)> {
        let config = &self.config;
        let q = config.num_heads * config.head_dim;
        let kv = config.num_kv_heads * config.head_dim;
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let mut views = vec![(
            "model.embed_tokens.weight".to_owned(),
            self.embedding.shallow_clone(),
        )];
        for (at, layer) in self.layers.iter().enumerate() {
            let mut part = |linear: &Linear, name: &str, start: i64, count: i64| {
                linear.part(
                    &format!("model.layers.{at}.{name}"),
                    start,
                    count,
                    &mut views,
                );
            };
            part(&layer.qkv, "self_attn.q_proj", 0, q);
            part(&layer.qkv, "self_attn.k_proj", q, kv);
            part(&layer.qkv, "self_attn.v_proj", q + kv, kv);
            part(&layer.output, "self_attn.o_proj", 0, hidden);
            part(&layer.gate_up, "mlp.gate_proj", 0, inner);
            part(&layer.gate_up, "mlp.up_proj", inner, inner);
            part(&layer.down, "mlp.down_proj", 0, hidden);
            let of_heads = layer.head_norms.iter().flatten();
            let of_heads = ["self_attn.q_norm", "self_attn.k_norm"]
                .into_iter()
                .zip(of_heads);
            let of_rows = [
                ("input_layernorm", &layer.input_norm),
                ("post_attention_layernorm", &layer.post_norm),
            ];
            for (name, tensor) in of_rows.into_iter().chain(of_heads) {
                views.push((
                    format!("model.layers.{at}.{name}.weight"),
                    tensor.shallow_clone(),
                ));
            }
        }
        views.push(("model.norm.weight".to_owned(), self.norm.shallow_clone()));
        if let Some(head) = &self.lm_head {
            views.push(("lm_head.weight".to_owned(), head.shallow_clone()));
        }
        views
    }

    pub fn config(&self) -> &Arc<ModelConfig> {
        &self.config
    }

    pub fn kind(&self) -> Kind {
        self.embedding.kind()
    }

    pub fn device(&self) -> Device {
        self.embedding.device()
    }

    pub fn bytes(&self) -> u64 {
        self.views()
            .iter()
            .map(|(_, view)| (view.numel() * view.kind().elt_size_in_bytes()) as u64)
            .sum()
    }

    pub(super) fn head(&self) -> &Tensor {
        self.lm_head.as_ref().unwrap_or(&self.embedding)
    }
}
