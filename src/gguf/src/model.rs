//! A model's shape from its metadata, and its tensors by their Hugging Face names.

use serde_json::{Map, Value as Json, json};

use crate::error::GgufError;
use crate::file::GgufFile;
use crate::value::Value;

/// Which transformer the file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    Llama,
    Qwen2,
    Qwen3,
}

impl Architecture {
    const ALL: [Self; 3] = [Self::Llama, Self::Qwen2, Self::Qwen3];

    /// As `general.architecture` and transformers' `model_type` have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
        }
    }
}

/// What the names and the order of the tensors depend on.
#[derive(Debug)]
pub struct Model {
    pub architecture: Architecture,
    pub heads: usize,
    pub kv_heads: usize,
    /// transformers' config.json.
    pub config: Map<String, Json>,
}

/// What becomes of a tensor.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    /// llama.cpp has turned the rows of each of so many heads for its own rotary order; they are turned back.
    pub turned_heads: Option<usize>,
}

/// Asks for metadata below `llama.` and the like.
struct Asked<'a> {
    file: &'a GgufFile,
    prefix: &'static str,
}

impl Asked<'_> {
    fn find(&self, key: &str) -> Option<&Value> {
        self.file.metadata.get(&format!("{}.{key}", self.prefix))
    }

    fn number(&self, key: &str) -> Result<u64, GgufError> {
        let found = self.find(key).ok_or_else(|| GgufError::Missing {
            path: self.file.path().to_owned(),
            key: format!("{}.{key}", self.prefix),
            expected: "a whole number",
        })?;
        found.integer().ok_or_else(|| GgufError::Unfit {
            path: self.file.path().to_owned(),
            key: format!("{}.{key}", self.prefix),
            found: found.shown(),
            expected: "a whole number".to_owned(),
        })
    }

    fn float(&self, key: &str, otherwise: f64) -> f64 {
        self.find(key).and_then(Value::float).unwrap_or(otherwise)
    }
}

impl Model {
    pub fn of(file: &GgufFile) -> Result<Self, GgufError> {
        let path = || file.path().to_owned();
        let key = "general.architecture";
        let name = file.metadata.get(key).and_then(Value::text);
        let name = name.ok_or_else(|| GgufError::Missing {
            path: path(),
            key: key.to_owned(),
            expected: "the name of an architecture",
        })?;
        let known = Architecture::ALL.into_iter().find(|a| a.name() == name);
        let architecture = known.ok_or_else(|| GgufError::Unfit {
            path: path(),
            key: key.to_owned(),
            found: name.to_owned(),
            expected: "llama, qwen2 or qwen3".to_owned(),
        })?;
        let asked = Asked {
            file,
            prefix: architecture.name(),
        };
        if let Some(scaling) = asked.find("rope.scaling.type")
            && scaling.text().is_some_and(|kind| kind != "none")
        {
            return Err(GgufError::Unfit {
                path: path(),
                key: format!("{}.rope.scaling.type", asked.prefix),
                found: scaling.shown(),
                expected: "none: other ways of stretching positions are not read from GGUF"
                    .to_owned(),
            });
        }
        let heads = asked.number("attention.head_count")?;
        let kv_heads = match asked.find("attention.head_count_kv") {
            Some(_) => asked.number("attention.head_count_kv")?,
            None => heads,
        };
        let hidden = asked.number("embedding_length")?;
        let sensible = |number: u64| (1..=1 << 20).contains(&number);
        if ![heads, kv_heads, hidden].into_iter().all(sensible) || heads % kv_heads != 0 {
            return Err(GgufError::Unfit {
                path: path(),
                key: format!("{}.attention", asked.prefix),
                found: format!("{heads} heads, {kv_heads} of keys, {hidden} wide"),
                expected: "heads of keys that divide the heads".to_owned(),
            });
        }
        let head_dim = match asked.find("attention.key_length") {
            Some(_) => asked.number("attention.key_length")?,
            None => hidden / heads,
        };
        let has = |name: &str| file.tensors.iter().any(|tensor| tensor.name == name);
        let embedding = file.tensors.iter().find(|t| t.name == "token_embd.weight");
        let embedding = embedding.ok_or_else(|| GgufError::Damaged {
            path: path(),
            reason: "it has no tensor token_embd.weight".to_owned(),
        })?;
        let mut config = json!({
            "architectures": [architecture.class()],
            "model_type": architecture.name(),
            "vocab_size": embedding.shape[0],
            "hidden_size": hidden,
            "intermediate_size": asked.number("feed_forward_length")?,
            "num_hidden_layers": asked.number("block_count")?,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": asked.number("context_length")?,
            "rms_norm_eps": single(asked.float("attention.layer_norm_rms_epsilon", 1e-6)),
            "rope_theta": single(asked.float("rope.freq_base", 10_000.0)),
            "tie_word_embeddings": !has("output.weight"),
            "attention_bias": architecture != Architecture::Qwen2 && has("blk.0.attn_q.bias"),
            "mlp_bias": has("blk.0.ffn_up.bias"),
            "initializer_range": 0.02,
        });
        let config = std::mem::take(config.as_object_mut().expect("made above"));
        Ok(Self {
            architecture,
            heads: heads as usize,
            kv_heads: kv_heads as usize,
            config,
        })
    }

    /// Where a tensor of the file goes; None: no model of this architecture has it.
    pub fn target(&self, name: &str) -> Option<Target> {
        let plain = |name: String| Target {
            name,
            turned_heads: None,
        };
        match name {
            "token_embd.weight" => return Some(plain("model.embed_tokens.weight".to_owned())),
            "output_norm.weight" => return Some(plain("model.norm.weight".to_owned())),
            "output.weight" => return Some(plain("lm_head.weight".to_owned())),
            _ => {}
        }
        let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        let layer: u32 = layer.parse().ok()?;
        let (part, what) = rest.rsplit_once('.')?;
        if !matches!(what, "weight" | "bias") {
            return None;
        }
        let has_head_norms = self.architecture == Architecture::Qwen3;
        let module = match part {
            "attn_norm" => "input_layernorm",
            "ffn_norm" => "post_attention_layernorm",
            "attn_q" => "self_attn.q_proj",
            "attn_k" => "self_attn.k_proj",
            "attn_v" => "self_attn.v_proj",
            "attn_output" => "self_attn.o_proj",
            "attn_q_norm" if has_head_norms => "self_attn.q_norm",
            "attn_k_norm" if has_head_norms => "self_attn.k_norm",
            "ffn_gate" => "mlp.gate_proj",
            "ffn_up" => "mlp.up_proj",
            "ffn_down" => "mlp.down_proj",
            _ => return None,
        };
        let is_turned = self.architecture == Architecture::Llama;
        let turned_heads = match part {
            "attn_q" if is_turned => Some(self.heads),
            "attn_k" if is_turned => Some(self.kv_heads),
            _ => None,
        };
        Some(Target {
            name: format!("model.layers.{layer}.{module}.{what}"),
            turned_heads,
        })
    }
}

/// A number that was stored with 24 bits, as people wrote it: 1e-5 and not 0.000009999999747378752.
fn single(value: f64) -> f64 {
    (value as f32).to_string().parse().unwrap_or(value)
}

/// Turns the rows of each head from llama.cpp's rotary order (pairs beside each other) back to Hugging Face's (halves): row
/// `2 i + h` of a head becomes row `h d/2 + i`.
pub fn turn_back(numbers: &[f32], rows: usize, heads: usize) -> Vec<f32> {
    let width = numbers.len() / rows.max(1);
    let in_head = rows / heads.max(1);
    let mut turned = Vec::with_capacity(numbers.len());
    for head in 0..heads {
        for half in 0..2 {
            for i in 0..in_head / 2 {
                let row = head * in_head + 2 * i + half;
                turned.extend_from_slice(&numbers[row * width..(row + 1) * width]);
            }
        }
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_turned_from_pairs_to_halves() {
        // Two heads of four rows of one number: pairs (0 1)(2 3) become halves 0 2 | 1 3.
        let numbers = [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0];
        assert_eq!(
            turn_back(&numbers, 8, 2),
            [0.0, 2.0, 1.0, 3.0, 10.0, 12.0, 11.0, 13.0]
        );
        let wide = [0.0, 0.5, 1.0, 1.5];
        assert_eq!(turn_back(&wide, 2, 1), wide, "one pair stays");
    }

    #[test]
    fn numbers_of_24_bits_are_written_as_they_were_meant() {
        assert_eq!(single(f64::from(1e-5_f32)), 1e-5);
        assert_eq!(single(f64::from(1e6_f32)), 1e6);
    }
}
