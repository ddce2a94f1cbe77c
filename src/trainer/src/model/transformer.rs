//! The forward pass with gradients, over packed rows: every linear, norm and MLP works on the N real tokens, attention on groups
//! (see [`attention`](super::attention)). Logits are computed only for the rows asked for.

use tch::{Kind, Tensor};

use super::attention::AttentionPlan;
use super::checkpoint::Tape;
use super::config::{Head, ModelConfig, RopeScaling};
use super::packed::PackedBatch;
use super::parameters::Parameters;

/// Weights and how to run them. Gradients gather in the parameters when they require them and no `no_grad` guard is up.
#[derive(Debug)]
pub struct Transformer {
    parameters: Parameters,
    compute: Kind,
    gradient_checkpointing: bool,
}

/// The trunk's output for one batch.
#[derive(Debug)]
pub struct Hidden<'a> {
    /// \[N, H\] after the final norm, in the compute dtype.
    pub rows: Tensor,
    tape: Option<Tape<'a>>,
}

impl Hidden<'_> {
    /// Ends the backward pass: call it once after `loss.backward()`. With gradient checkpointing this is where the trunk's
    /// gradients come from; without, there is nothing left to do.
    pub fn backward(self) {
        if let Some(tape) = self.tape {
            tape.backward();
        }
    }
}

/// A weight and perhaps a bias, in the compute dtype.
struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    fn forward(&self, rows: &Tensor) -> Tensor {
        rows.linear(&self.weight, self.bias.as_ref())
    }
}

/// Rotary tables for the batch's rows, \[N, 1, D/2\] in the compute dtype.
struct Rotary {
    cosine: Tensor,
    sine: Tensor,
}

impl Rotary {
    /// Turns each head's pairs (i, i + D/2) by the row's angle; `rows` is \[N, heads, D\].
    fn turn(&self, rows: &Tensor) -> Tensor {
        let halves = rows.chunk(2, -1);
        let (first, second) = (&halves[0], &halves[1]);
        Tensor::cat(
            &[
                first * &self.cosine - second * &self.sine,
                second * &self.cosine + first * &self.sine,
            ],
            -1,
        )
    }
}

impl Transformer {
    /// `compute` is the dtype of the matrix work; parameters of another dtype are cast in the pass (f32 masters under bf16 maths).
    pub fn new(parameters: Parameters, compute: Kind, gradient_checkpointing: bool) -> Self {
        Self {
            parameters,
            compute,
            gradient_checkpointing,
        }
    }

    /// The same weights under matrix work of another dtype; nothing is copied.
    #[must_use]
    pub fn computing_in(&self, compute: Kind) -> Self {
        Self::new(self.parameters.shallow_clone(), compute, false)
    }

    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    pub fn parameters_mut(&mut self) -> &mut Parameters {
        &mut self.parameters
    }

    pub fn config(&self) -> &ModelConfig {
        self.parameters.config()
    }

    /// Runs the trunk. With gradients wanted: build the loss on `rows`, call its `backward`, then [`Hidden::backward`].
    pub fn hidden(&self, batch: &PackedBatch) -> Hidden<'_> {
        let device = self.parameters.device();
        let ids = Tensor::from_slice(&batch.token_ids).to_device(device);
        let plan = std::rc::Rc::new(AttentionPlan::new(batch, device));
        let rotary = std::rc::Rc::new(self.rotary(&batch.positions));
        if self.gradient_checkpointing && self.wants_gradients() {
            let mut tape = Tape::new(&ids);
            tape.run(|ids| self.embed(ids));
            for layer in 0..self.config().num_layers {
                let (plan, rotary) = (std::rc::Rc::clone(&plan), std::rc::Rc::clone(&rotary));
                tape.run(move |rows| self.layer(layer, rows, &plan, &rotary));
            }
            tape.run(|rows| self.norm(rows, "model.norm.weight"));
            return Hidden {
                rows: tape.leaf(),
                tape: Some(tape),
            };
        }
        let mut rows = self.embed(&ids);
        for layer in 0..self.config().num_layers {
            rows = self.layer(layer, &rows, &plan, &rotary);
        }
        Hidden {
            rows: self.norm(&rows, "model.norm.weight"),
            tape: None,
        }
    }

    /// Scores of every vocabulary entry, \[M, V\] in the compute dtype, for rows of [`Hidden::rows`] \[M, H\]. Row i scores the
    /// token after it.
    pub fn logits(&self, rows: &Tensor) -> Tensor {
        let name = if self.config().tie_word_embeddings {
            "model.embed_tokens.weight"
        } else {
            "lm_head.weight"
        };
        rows.linear(&self.weight(name), None::<&Tensor>)
    }

    /// A critic's value of each row, or a reward model's, \[M\] in f32.
    ///
    /// # Panics
    /// When the model has a language head.
    pub fn values(&self, rows: &Tensor) -> Tensor {
        let bias = match self.config().head {
            Head::Language => panic!("values need a value head"),
            Head::Value => Some(self.weight("score.bias")),
            Head::Reward => None,
        };
        rows.linear(&self.weight("score.weight"), bias.as_ref())
            .squeeze_dim(-1)
            .to_kind(Kind::Float)
    }

    fn wants_gradients(&self) -> bool {
        // The tape needs a trunk that learns; under no_grad the product of a learning weight does not require a gradient.
        self.parameters
            .get("model.norm.weight")
            .is_some_and(|weight| weight.requires_grad() && (weight * 1.0).requires_grad())
    }

    fn weight(&self, name: &str) -> Tensor {
        self.parameters
            .get(name)
            .unwrap_or_else(|| panic!("the config asked for {name}, so it was loaded"))
            .to_kind(self.compute)
    }

    fn linear(&self, layer: i64, name: &str) -> Linear {
        let prefix = format!("model.layers.{layer}.{name}");
        Linear {
            weight: self.weight(&format!("{prefix}.weight")),
            bias: self
                .parameters
                .get(&format!("{prefix}.bias"))
                .map(|bias| bias.to_kind(self.compute)),
        }
    }

    fn embed(&self, ids: &Tensor) -> Tensor {
        Tensor::embedding(
            &self.weight("model.embed_tokens.weight"),
            ids,
            -1,
            false,
            false,
        )
    }

    fn norm(&self, rows: &Tensor, name: &str) -> Tensor {
        rms_norm(rows, &self.weight(name), self.config().rms_norm_eps)
    }

    fn layer(&self, layer: i64, rows: &Tensor, plan: &AttentionPlan, rotary: &Rotary) -> Tensor {
        let config = self.config();
        let (count, _) = rows.size2().expect("rows are [N, H]");
        let heads = |rows: Tensor, heads: i64| rows.view([count, heads, config.head_dim]);
        let input = self.norm(
            rows,
            &format!("model.layers.{layer}.input_layernorm.weight"),
        );
        let project =
            |name: &str, count: i64| heads(self.linear(layer, name).forward(&input), count);
        let normed = |rows: Tensor, name: &str| {
            if config.head_norms {
                self.norm(&rows, &format!("model.layers.{layer}.{name}.weight"))
            } else {
                rows
            }
        };
        let query = project("self_attn.q_proj", config.num_heads);
        let query = rotary.turn(&normed(query, "self_attn.q_norm"));
        let key = project("self_attn.k_proj", config.num_kv_heads);
        let key = rotary.turn(&normed(key, "self_attn.k_norm"));
        let value = project("self_attn.v_proj", config.num_kv_heads);
        let attended = plan.attend(&query, &key, &value);
        let rows = rows + self.linear(layer, "self_attn.o_proj").forward(&attended);
        let input = self.norm(
            &rows,
            &format!("model.layers.{layer}.post_attention_layernorm.weight"),
        );
        let gate = self.linear(layer, "mlp.gate_proj").forward(&input).silu();
        let up = self.linear(layer, "mlp.up_proj").forward(&input);
        let inner = gate * up;
        rows + self.linear(layer, "mlp.down_proj").forward(&inner)
    }

    fn rotary(&self, positions: &[i64]) -> Rotary {
        let (cosine, sine) = rotary_tables(
            self.config(),
            &Tensor::from_slice(positions).to_device(self.parameters.device()),
        );
        Rotary {
            cosine: cosine.to_kind(self.compute).unsqueeze(1),
            sine: sine.to_kind(self.compute).unsqueeze(1),
        }
    }
}

/// x / √(mean x² + ε) · weight over the last dimension. In bf16 the mean is f32 and the quotient is rounded before the weight
/// multiplies it, as transformers does, so that both give the same bits.
pub fn rms_norm(rows: &Tensor, weight: &Tensor, eps: f64) -> Tensor {
    if rows.kind() == Kind::Float {
        return rows.rms_norm(weight.size(), Some(weight), eps);
    }
    let wide = rows.to_kind(Kind::Float);
    let mean = wide.square().mean_dim(-1, true, Kind::Float);
    (wide * (mean + eps).rsqrt()).to_kind(rows.kind()) * weight
}

/// Cosine and sine of every position's D/2 angles, \[N, D/2\] each, f32.
pub fn rotary_tables(config: &ModelConfig, positions: &Tensor) -> (Tensor, Tensor) {
    let frequencies = inverse_frequencies(config).to_device(positions.device());
    let angles = positions.to_kind(Kind::Float).unsqueeze(1) * frequencies.unsqueeze(0);
    (angles.cos(), angles.sin())
}

/// \[D/2\] f32: θ^(-2i/D), scaled as the config says.
fn inverse_frequencies(config: &ModelConfig) -> Tensor {
    let dim = config.head_dim;
    let options = (Kind::Float, tch::Device::Cpu);
    let exponents = Tensor::arange_start_step(0, dim, 2, options) / dim as f64;
    let inverse = Tensor::pow_scalar(config.rope_theta, &exponents).reciprocal();
    let RopeScaling::Llama3 {
        factor,
        low_freq_factor,
        high_freq_factor,
        original_max_position_embeddings: original,
    } = config.rope_scaling
    else {
        return inverse;
    };
    let wavelength = inverse.reciprocal() * std::f64::consts::TAU;
    let smooth = ((wavelength.reciprocal() * original) - low_freq_factor)
        / (high_freq_factor - low_freq_factor);
    let scaled = &inverse / factor;
    let blended = (1.0 - &smooth) * &scaled + smooth * &inverse;
    // Long waves are stretched, short ones kept, those between blended.
    let kept = inverse.where_self(&wavelength.lt(original / high_freq_factor), &blended);
    scaled.where_self(&wavelength.gt(original / low_freq_factor), &kept)
}
