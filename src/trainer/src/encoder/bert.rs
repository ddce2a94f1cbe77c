//! BERT's encoder (Devlin et al. 2018, <https://arxiv.org/abs/1810.04805>) as Hugging Face's `BertModel` computes it: absolute
//! positions, the norm after each sum, exact GELU. The pooler above it is not read. For inference only.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use tch::{Device, Kind, Tensor};

use super::EncoderError;
use crate::model::pretrained::read_named;

/// What config.json says of the shape.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct BertConfig {
    model_type: String,
    pub vocab_size: i64,
    pub hidden_size: i64,
    num_hidden_layers: i64,
    num_attention_heads: i64,
    intermediate_size: i64,
    pub max_position_embeddings: i64,
    type_vocab_size: i64,
    #[serde(default = "usual_epsilon")]
    layer_norm_eps: f64,
    #[serde(default = "usual_activation")]
    hidden_act: String,
    #[serde(default = "usual_positions")]
    position_embedding_type: String,
}

fn usual_epsilon() -> f64 {
    1e-12
}

fn usual_activation() -> String {
    "gelu".to_owned()
}

fn usual_positions() -> String {
    "absolute".to_owned()
}

/// Layers and sizes beyond these are a damaged file and no encoder.
const MOST: i64 = 1 << 20;

impl BertConfig {
    fn load(directory: &Path) -> Result<Self, EncoderError> {
        let path = directory.join("config.json");
        let says = |reason: String| EncoderError::Config {
            path: path.clone(),
            reason,
        };
        let text = std::fs::read(&path).map_err(|error| says(error.to_string()))?;
        let config: Self =
            serde_json::from_slice(&text).map_err(|error| says(error.to_string()))?;
        for (key, given, expected) in [
            ("model_type", &config.model_type, "bert"),
            ("hidden_act", &config.hidden_act, "gelu"),
            (
                "position_embedding_type",
                &config.position_embedding_type,
                "absolute",
            ),
        ] {
            if given != expected {
                return Err(says(format!("{key} is {given}; expected {expected}")));
            }
        }
        for (key, value) in [
            ("vocab_size", config.vocab_size),
            ("hidden_size", config.hidden_size),
            ("num_hidden_layers", config.num_hidden_layers),
            ("num_attention_heads", config.num_attention_heads),
            ("intermediate_size", config.intermediate_size),
            ("max_position_embeddings", config.max_position_embeddings),
            ("type_vocab_size", config.type_vocab_size),
        ] {
            if !(1..=MOST).contains(&value) {
                return Err(says(format!(
                    "{key} is {value}; expected a whole number from 1 to {MOST}"
                )));
            }
        }
        if config.hidden_size % config.num_attention_heads != 0 {
            return Err(says(format!(
                "hidden_size {} is no multiple of num_attention_heads {}",
                config.hidden_size, config.num_attention_heads
            )));
        }
        Ok(config)
    }

    fn shapes(&self) -> Vec<(String, Vec<i64>)> {
        let (h, wide) = (self.hidden_size, self.intermediate_size);
        let mut shapes = vec![
            (
                "embeddings.word_embeddings.weight".to_owned(),
                vec![self.vocab_size, h],
            ),
            (
                "embeddings.position_embeddings.weight".to_owned(),
                vec![self.max_position_embeddings, h],
            ),
            (
                "embeddings.token_type_embeddings.weight".to_owned(),
                vec![self.type_vocab_size, h],
            ),
        ];
        let mut affine = |name: String, shape: Vec<i64>| {
            shapes.push((format!("{name}.bias"), vec![shape[0]]));
            shapes.push((format!("{name}.weight"), shape));
        };
        affine("embeddings.LayerNorm".to_owned(), vec![h]);
        for layer in 0..self.num_hidden_layers {
            for (name, shape) in [
                ("attention.self.query", vec![h, h]),
                ("attention.self.key", vec![h, h]),
                ("attention.self.value", vec![h, h]),
                ("attention.output.dense", vec![h, h]),
                ("attention.output.LayerNorm", vec![h]),
                ("intermediate.dense", vec![wide, h]),
                ("output.dense", vec![h, wide]),
                ("output.LayerNorm", vec![h]),
            ] {
                affine(format!("encoder.layer.{layer}.{name}"), shape);
            }
        }
        shapes
    }
}

/// The encoder with its weights.
#[derive(Debug)]
pub struct Bert {
    pub config: BertConfig,
    tensors: HashMap<String, Tensor>,
    device: Device,
}

impl Bert {
    /// From config.json and safetensors of a directory, in `kind`.
    pub fn load(directory: &Path, kind: Kind, device: Device) -> Result<Self, EncoderError> {
        let config = BertConfig::load(directory)?;
        let tensors = read_named(directory, config.shapes(), kind, device)?;
        Ok(Self {
            config,
            tensors,
            device,
        })
    }

    /// Last hidden states `[B, T, H]` of ids `[B, T]` (i64), of which `mask` `[B, T]` (bool) are there; the others' are of no
    /// meaning. T is at most `max_position_embeddings`.
    pub fn hidden(&self, ids: &Tensor, mask: &Tensor) -> Tensor {
        let (ids, mask) = (ids.to_device(self.device), mask.to_device(self.device));
        let length = ids.size()[1];
        let row = |table: &str, rows: Tensor| {
            Tensor::embedding(self.tensor(table), &rows, -1, false, false)
        };
        let positions = Tensor::arange(length, (Kind::Int64, self.device));
        // One text, so all of the first segment.
        let mut states = row("embeddings.word_embeddings.weight", ids)
            + row("embeddings.position_embeddings.weight", positions)
            + self
                .tensor("embeddings.token_type_embeddings.weight")
                .select(0, 0);
        states = self.norm("embeddings.LayerNorm", &states);
        let is_seen = mask.unsqueeze(1).unsqueeze(1); // [B, 1, 1, T]
        for layer in 0..self.config.num_hidden_layers {
            states = self.layer(layer, &states, &is_seen);
        }
        states
    }

    fn layer(&self, layer: i64, states: &Tensor, is_seen: &Tensor) -> Tensor {
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        let heads = |part: &str| {
            let size = states.size();
            let each = self.config.hidden_size / self.config.num_attention_heads;
            self.linear(&name(part), states)
                .view([size[0], size[1], self.config.num_attention_heads, each])
                .transpose(1, 2)
        };
        let attended = Tensor::scaled_dot_product_attention(
            &heads("attention.self.query"),
            &heads("attention.self.key"),
            &heads("attention.self.value"),
            Some(is_seen),
            0.0,
            false,
            None,
            false,
        );
        let attended = attended.transpose(1, 2).contiguous().view_as(states);
        let attended = self.linear(&name("attention.output.dense"), &attended);
        let states = self.norm(&name("attention.output.LayerNorm"), &(attended + states));
        let wide = self
            .linear(&name("intermediate.dense"), &states)
            .gelu("none");
        let narrow = self.linear(&name("output.dense"), &wide);
        self.norm(&name("output.LayerNorm"), &(narrow + states))
    }

    fn linear(&self, name: &str, input: &Tensor) -> Tensor {
        let bias = self.tensor(&format!("{name}.bias"));
        input.linear(self.tensor(&format!("{name}.weight")), Some(bias))
    }

    fn norm(&self, name: &str, input: &Tensor) -> Tensor {
        input.layer_norm(
            [self.config.hidden_size],
            Some(self.tensor(&format!("{name}.weight"))),
            Some(self.tensor(&format!("{name}.bias"))),
            self.config.layer_norm_eps,
            false,
        )
    }

    fn tensor(&self, name: &str) -> &Tensor {
        // Every name was read when it was loaded.
        &self.tensors[name]
    }
}
