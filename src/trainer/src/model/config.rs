//! `config.json` of a Hugging Face model: what this crate needs of it, checked. Qwen2/Qwen2.5, Qwen3 and Llama-3, as transformers 4
//! (`rope_theta`, `rope_scaling`, `torch_dtype`) and transformers 5 (`rope_parameters`, `dtype`) write them.
//! The file's other keys are kept, so that a saved model carries them on.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tch::Kind;

/// Which family the weights belong to; it decides names, biases and what `config.json` may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Qwen2 and Qwen2.5: biases on q, k and v.
    Qwen2,
    /// Qwen3 (dense): each head's query and key are normed before they are turned.
    Qwen3,
    /// Llama 2 and 3.
    Llama,
}

impl Architecture {
    fn model_type(self) -> &'static str {
        match self {
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Llama => "llama",
        }
    }

    fn class_prefix(self) -> &'static str {
        match self {
            Self::Qwen2 => "Qwen2",
            Self::Qwen3 => "Qwen3",
            Self::Llama => "Llama",
        }
    }
}

/// What sits on top of the trunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// `lm_head.weight` \[V, H\], or the embedding when tied.
    Language,
    /// `score.weight` \[1, H\] and `score.bias` \[1\]: a critic (transformers' token classification with one label).
    Value,
    /// `score.weight` \[1, H\]: a reward model (transformers' sequence classification with one label), read at the last token.
    Reward,
}

/// How rotary frequencies depend on position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    Default,
    /// Llama 3.1's: low frequencies are divided by `factor`, high ones kept, those between interpolated.
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_max_position_embeddings: f64,
    },
}

/// The shape of a model. Made by [`ModelConfig::load`] or [`ModelConfig::from_json`].
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    pub architecture: Architecture,
    pub head: Head,
    /// V
    pub vocab_size: i64,
    /// H
    pub hidden_size: i64,
    pub intermediate_size: i64,
    pub num_layers: i64,
    /// Query heads.
    pub num_heads: i64,
    /// Key and value heads; divides `num_heads`.
    pub num_kv_heads: i64,
    pub head_dim: i64,
    pub qkv_bias: bool,
    /// RMS norms over each head of q and k.
    pub head_norms: bool,
    pub output_bias: bool,
    pub mlp_bias: bool,
    pub tie_word_embeddings: bool,
    pub rms_norm_eps: f64,
    pub rope_theta: f64,
    pub rope_scaling: RopeScaling,
    pub max_position_embeddings: i64,
    /// Standard deviation of random weights.
    pub initializer_range: f64,
    /// Of the weights on disk, as the file declares it.
    pub dtype: Option<Kind>,
    /// Ids that end a turn, as `config.json` declares them (`generation_config.json` may add to them).
    pub eos_token_ids: Vec<u32>,
    pub pad_token_id: Option<u32>,
    /// The whole file.
    pub json: Map<String, Value>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}; a Hugging Face model directory has this file", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} is not JSON: {source}", path.display())]
    Parse {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{}: {key} is missing; expected {expected}", path.display())]
    Missing {
        path: PathBuf,
        key: String,
        expected: &'static str,
    },
    #[error("{}: {key} is {found}; expected {expected}", path.display())]
    Invalid {
        path: PathBuf,
        key: String,
        found: String,
        expected: String,
    },
}

/// One JSON object of the file with the key path that leads to it.
struct Reader<'a> {
    path: &'a Path,
    prefix: &'static str,
    object: &'a Map<String, Value>,
}

impl Reader<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Null counts as absent.
    fn get(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn missing(&self, key: &str, expected: &'static str) -> ConfigError {
        ConfigError::Missing {
            path: self.path.to_owned(),
            key: self.key(key),
            expected,
        }
    }

    fn invalid(&self, key: &str, expected: impl Into<String>) -> ConfigError {
        ConfigError::Invalid {
            path: self.path.to_owned(),
            key: self.key(key),
            found: self
                .object
                .get(key)
                .map_or_else(|| "absent".to_owned(), Value::to_string),
            expected: expected.into(),
        }
    }

    fn optional_integer(&self, key: &str) -> Result<Option<i64>, ConfigError> {
        self.get(key)
            .map(|value| {
                value
                    .as_i64()
                    .filter(|number| (1..=i64::from(i32::MAX)).contains(number))
                    .ok_or_else(|| self.invalid(key, "a positive integer"))
            })
            .transpose()
    }

    fn integer(&self, key: &str) -> Result<i64, ConfigError> {
        self.optional_integer(key)?
            .ok_or_else(|| self.missing(key, "a positive integer"))
    }

    fn optional_number(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.get(key)
            .map(|value| {
                value
                    .as_f64()
                    .filter(|number| *number > 0.0)
                    .ok_or_else(|| self.invalid(key, "a positive number"))
            })
            .transpose()
    }

    fn number(&self, key: &str) -> Result<f64, ConfigError> {
        self.optional_number(key)?
            .ok_or_else(|| self.missing(key, "a positive number"))
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        self.get(key).map_or(Ok(default), |value| {
            value
                .as_bool()
                .ok_or_else(|| self.invalid(key, "true or false"))
        })
    }

    /// One id or a list of ids; none when absent.
    fn ids(&self, key: &str) -> Result<Vec<u32>, ConfigError> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids: Option<Vec<u32>> = match self.get(key) {
            None => Some(Vec::new()),
            Some(Value::Array(list)) => list.iter().map(id).collect(),
            Some(value) => id(value).map(|id| vec![id]),
        };
        ids.ok_or_else(|| self.invalid(key, "a token id or a list of token ids"))
    }
}

impl ModelConfig {
    /// Reads `directory/config.json`.
    pub fn load(directory: &Path) -> Result<Self, ConfigError> {
        let path = directory.join("config.json");
        let text = std::fs::read_to_string(&path).map_err(|source| ConfigError::Read {
            path: path.clone(),
            source,
        })?;
        let json = serde_json::from_str(&text).map_err(|source| ConfigError::Parse {
            path: path.clone(),
            source,
        })?;
        Self::from_json(&path, json)
    }

    /// `path` is only named in errors.
    pub fn from_json(path: &Path, json: Map<String, Value>) -> Result<Self, ConfigError> {
        let top = Reader {
            path,
            prefix: "",
            object: &json,
        };
        let architecture = match top.get("model_type").and_then(Value::as_str) {
            Some("qwen2") => Architecture::Qwen2,
            Some("qwen3") => Architecture::Qwen3,
            Some("llama") => Architecture::Llama,
            _ => return Err(top.invalid("model_type", "qwen2, qwen3 or llama")),
        };
        let head = match top
            .get("architectures")
            .and_then(|list| list.get(0))
            .and_then(Value::as_str)
        {
            Some(class) if class.ends_with("ForTokenClassification") => {
                if top.get("num_labels").is_some_and(|labels| labels != 1) {
                    return Err(top.invalid("num_labels", "1: a critic says one number a token"));
                }
                Head::Value
            }
            Some(class) if class.ends_with("ForSequenceClassification") => {
                // Unsaid, transformers makes two; reward models say one.
                if top.get("num_labels").is_some_and(|labels| labels != 1) {
                    return Err(top.invalid("num_labels", "1: a reward model says one number"));
                }
                let names = top.get("id2label").and_then(Value::as_object);
                if names.is_some_and(|names| names.len() != 1) {
                    return Err(
                        top.invalid("id2label", "one label: a reward model says one number")
                    );
                }
                Head::Reward
            }
            _ => Head::Language,
        };
        if top.get("hidden_act").is_some_and(|act| act != "silu") {
            return Err(top.invalid("hidden_act", "silu"));
        }
        refuse_sliding_window(&top, architecture)?;

        let hidden_size = top.integer("hidden_size")?;
        let num_heads = top.integer("num_attention_heads")?;
        let num_kv_heads = top
            .optional_integer("num_key_value_heads")?
            .unwrap_or(num_heads);
        if num_heads % num_kv_heads != 0 {
            return Err(top.invalid(
                "num_key_value_heads",
                format!("a divisor of num_attention_heads ({num_heads})"),
            ));
        }
        let head_dim = match top.optional_integer("head_dim")? {
            Some(head_dim) => head_dim,
            // transformers' default for this family.
            None if architecture == Architecture::Qwen3 => 128,
            None if hidden_size % num_heads == 0 => hidden_size / num_heads,
            None => {
                return Err(top.invalid(
                    "hidden_size",
                    format!("a multiple of num_attention_heads ({num_heads}), or head_dim given"),
                ));
            }
        };
        if head_dim % 2 != 0 {
            return Err(top.invalid("head_dim", "an even number: rotary embeddings turn pairs"));
        }
        let attention_bias = match architecture {
            Architecture::Qwen2 => true,
            Architecture::Qwen3 | Architecture::Llama => top.flag("attention_bias", false)?,
        };
        let (rope_theta, rope_scaling) = rope(&top)?;
        Ok(Self {
            architecture,
            head,
            vocab_size: top.integer("vocab_size")?,
            hidden_size,
            intermediate_size: top.integer("intermediate_size")?,
            num_layers: top.integer("num_hidden_layers")?,
            num_heads,
            num_kv_heads,
            head_dim,
            qkv_bias: attention_bias,
            head_norms: architecture == Architecture::Qwen3,
            output_bias: attention_bias && architecture != Architecture::Qwen2,
            mlp_bias: architecture == Architecture::Llama && top.flag("mlp_bias", false)?,
            // All families' transformers classes default to false.
            tie_word_embeddings: top.flag("tie_word_embeddings", false)?,
            rms_norm_eps: top.optional_number("rms_norm_eps")?.unwrap_or(1e-6),
            rope_theta,
            rope_scaling,
            max_position_embeddings: top.integer("max_position_embeddings")?,
            initializer_range: top.optional_number("initializer_range")?.unwrap_or(0.02),
            dtype: dtype(&top)?,
            eos_token_ids: top.ids("eos_token_id")?,
            pad_token_id: top.ids("pad_token_id")?.first().copied(),
            json,
        })
    }

    /// The same trunk under another head.
    #[must_use]
    pub fn with_head(&self, head: Head) -> Self {
        let mut config = self.clone();
        config.head = head;
        config
    }

    /// `config.json` for weights of this dtype: the file as it was read, with class and dtype brought up to date.
    pub fn to_json(&self, dtype: Kind) -> Map<String, Value> {
        let mut json = self.json.clone();
        let class = match self.head {
            Head::Language => "ForCausalLM",
            Head::Value => "ForTokenClassification",
            Head::Reward => "ForSequenceClassification",
        };
        let class = format!("{}{class}", self.architecture.class_prefix());
        json.insert("architectures".into(), Value::from(vec![class]));
        json.insert("model_type".into(), self.architecture.model_type().into());
        if self.head != Head::Language {
            json.insert("num_labels".into(), 1.into());
            // Without these transformers makes two labels.
            json.insert("id2label".into(), serde_json::json!({"0": "LABEL_0"}));
            json.insert("label2id".into(), serde_json::json!({"LABEL_0": 0}));
        }
        let key = if json.contains_key("torch_dtype") {
            "torch_dtype"
        } else {
            "dtype"
        };
        json.insert(key.into(), dtype_name(dtype).into());
        json
    }

    /// Every tensor of the model in file order: Hugging Face name and shape.
    pub fn tensor_shapes(&self) -> Vec<(String, Vec<i64>)> {
        let (hidden, inner) = (self.hidden_size, self.intermediate_size);
        let (q, kv) = (
            self.num_heads * self.head_dim,
            self.num_kv_heads * self.head_dim,
        );
        let mut shapes = vec![(
            "model.embed_tokens.weight".to_owned(),
            vec![self.vocab_size, hidden],
        )];
        for layer in 0..self.num_layers {
            let mut linear = |name: &str, out: i64, input: i64, bias: bool| {
                shapes.push((
                    format!("model.layers.{layer}.{name}.weight"),
                    vec![out, input],
                ));
                if bias {
                    shapes.push((format!("model.layers.{layer}.{name}.bias"), vec![out]));
                }
            };
            linear("self_attn.q_proj", q, hidden, self.qkv_bias);
            linear("self_attn.k_proj", kv, hidden, self.qkv_bias);
            linear("self_attn.v_proj", kv, hidden, self.qkv_bias);
            linear("self_attn.o_proj", hidden, q, self.output_bias);
            linear("mlp.gate_proj", inner, hidden, self.mlp_bias);
            linear("mlp.up_proj", inner, hidden, self.mlp_bias);
            linear("mlp.down_proj", hidden, inner, self.mlp_bias);
            for norm in ["input_layernorm", "post_attention_layernorm"] {
                shapes.push((format!("model.layers.{layer}.{norm}.weight"), vec![hidden]));
            }
            for norm in ["self_attn.q_norm", "self_attn.k_norm"] {
                if self.head_norms {
                    let name = format!("model.layers.{layer}.{norm}.weight");
                    shapes.push((name, vec![self.head_dim]));
                }
            }
        }
        shapes.push(("model.norm.weight".to_owned(), vec![hidden]));
        match self.head {
            Head::Language if !self.tie_word_embeddings => {
                shapes.push(("lm_head.weight".to_owned(), vec![self.vocab_size, hidden]));
            }
            Head::Language => {}
            Head::Value => {
                shapes.push(("score.weight".to_owned(), vec![1, hidden]));
                shapes.push(("score.bias".to_owned(), vec![1]));
            }
            Head::Reward => shapes.push(("score.weight".to_owned(), vec![1, hidden])),
        }
        shapes
    }

    /// Number of weights, tied ones counted once.
    pub fn num_parameters(&self) -> i64 {
        self.tensor_shapes()
            .iter()
            .map(|(_, shape)| shape.iter().product::<i64>())
            .sum()
    }
}

/// transformers' name of a dtype.
pub fn dtype_name(kind: Kind) -> &'static str {
    match kind {
        Kind::BFloat16 => "bfloat16",
        Kind::Half => "float16",
        _ => "float32",
    }
}

fn dtype(top: &Reader) -> Result<Option<Kind>, ConfigError> {
    let key = if top.get("dtype").is_some() {
        "dtype"
    } else {
        "torch_dtype"
    };
    match top.get(key).map(|value| value.as_str().unwrap_or_default()) {
        None => Ok(None),
        Some("float32") => Ok(Some(Kind::Float)),
        Some("bfloat16") => Ok(Some(Kind::BFloat16)),
        Some("float16") => Ok(Some(Kind::Half)),
        Some(_) => Err(top.invalid(key, "float32, bfloat16 or float16")),
    }
}

/// A window that no layer uses is what most Qwen2 files carry; one in use would need another attention.
fn refuse_sliding_window(top: &Reader, architecture: Architecture) -> Result<(), ConfigError> {
    let full = |kind: &Value| kind == "full_attention";
    if let Some(layers) = top.get("layer_types").and_then(Value::as_array)
        && !layers.iter().all(full)
    {
        return Err(top.invalid(
            "layer_types",
            "full_attention in every layer: sliding-window attention is not implemented",
        ));
    }
    let in_use = match architecture {
        Architecture::Qwen2 | Architecture::Qwen3 => top.flag("use_sliding_window", false)?,
        Architecture::Llama => top.get("sliding_window").is_some(),
    };
    if in_use {
        return Err(top.invalid(
            match architecture {
                Architecture::Qwen2 | Architecture::Qwen3 => "use_sliding_window",
                Architecture::Llama => "sliding_window",
            },
            "none: sliding-window attention is not implemented",
        ));
    }
    Ok(())
}

/// Base and scaling, from `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (transformers 4).
fn rope(top: &Reader) -> Result<(f64, RopeScaling), ConfigError> {
    let (key, prefix) = if top.get("rope_parameters").is_some() {
        ("rope_parameters", "rope_parameters.")
    } else {
        ("rope_scaling", "rope_scaling.")
    };
    let Some(value) = top.get(key) else {
        let theta = top.optional_number("rope_theta")?.unwrap_or(10_000.0);
        return Ok((theta, RopeScaling::Default));
    };
    let rope = Reader {
        path: top.path,
        prefix,
        object: value
            .as_object()
            .ok_or_else(|| top.invalid(key, "an object or null"))?,
    };
    let theta = match rope.optional_number("rope_theta")? {
        Some(theta) => theta,
        None => top.optional_number("rope_theta")?.unwrap_or(10_000.0),
    };
    if rope
        .get("partial_rotary_factor")
        .or_else(|| top.get("partial_rotary_factor"))
        .is_some_and(|factor| factor.as_f64() != Some(1.0))
    {
        return Err(rope.invalid("partial_rotary_factor", "1"));
    }
    // `type` is the name that early transformers 4 wrote.
    let kind_key = if rope.get("rope_type").is_some() {
        "rope_type"
    } else {
        "type"
    };
    let scaling = match rope.get(kind_key).map(|kind| kind.as_str()) {
        None | Some(Some("default")) => RopeScaling::Default,
        Some(Some("llama3")) => RopeScaling::Llama3 {
            factor: rope.number("factor")?,
            low_freq_factor: rope.number("low_freq_factor")?,
            high_freq_factor: rope.number("high_freq_factor")?,
            original_max_position_embeddings: rope.number("original_max_position_embeddings")?,
        },
        Some(_) => {
            return Err(rope.invalid(kind_key, "default or llama3; others are not implemented"));
        }
    };
    Ok((theta, scaling))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ModelConfig, String> {
        let json = serde_json::from_str(text).expect("the test's JSON parses");
        ModelConfig::from_json(Path::new("m/config.json"), json).map_err(|error| error.to_string())
    }

    const QWEN: &str = r#"{"model_type":"qwen2","vocab_size":512,"hidden_size":64,"intermediate_size":160,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":256,
        "tie_word_embeddings":true,"rms_norm_eps":1e-6,"eos_token_id":[5,7],EXTRA}"#;

    fn qwen_with(extra: &str) -> Result<ModelConfig, String> {
        parse(&QWEN.replace("EXTRA", extra))
    }

    #[test]
    fn both_generations_of_transformers_say_the_same_rope() {
        let scaling = r#""factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":32"#;
        let old = qwen_with(&format!(
            r#""rope_theta":5e5,"rope_scaling":{{"rope_type":"llama3",{scaling}}},"torch_dtype":"bfloat16""#
        ))
        .unwrap();
        let new = qwen_with(&format!(
            r#""rope_parameters":{{"rope_theta":5e5,"rope_type":"llama3",{scaling}}},"dtype":"bfloat16""#
        ))
        .unwrap();
        assert_eq!(
            (old.rope_theta, old.rope_scaling),
            (new.rope_theta, new.rope_scaling)
        );
        assert_eq!(old.rope_theta, 5e5);
        assert_eq!(
            (old.dtype, new.dtype),
            (Some(Kind::BFloat16), Some(Kind::BFloat16))
        );
        assert_eq!(old.eos_token_ids, [5, 7]);
        assert_eq!(
            (old.head_dim, old.qkv_bias, old.output_bias),
            (16, true, false)
        );
    }

    #[test]
    fn what_is_not_implemented_is_refused_by_name() {
        for (extra, message) in [
            (
                r#""rope_scaling":{"type":"yarn","factor":4.0}"#,
                r#"m/config.json: rope_scaling.type is "yarn"; expected default or llama3; others are not implemented"#,
            ),
            (
                r#""use_sliding_window":true"#,
                "m/config.json: use_sliding_window is true; expected none: sliding-window attention is not implemented",
            ),
            (
                r#""hidden_act":"gelu""#,
                r#"m/config.json: hidden_act is "gelu"; expected silu"#,
            ),
            (
                r#""num_key_value_heads":3"#,
                "m/config.json: num_key_value_heads is 3; expected a divisor of num_attention_heads (4)",
            ),
            (
                r#""vocab_size":"many""#,
                r#"m/config.json: vocab_size is "many"; expected a positive integer"#,
            ),
            (
                r#""rope_parameters":{"rope_type":"llama3","factor":8}"#,
                "m/config.json: rope_parameters.low_freq_factor is missing; expected a positive number",
            ),
        ] {
            assert_eq!(qwen_with(extra).unwrap_err(), message);
        }
        assert_eq!(
            parse(r#"{"model_type":"mamba"}"#).unwrap_err(),
            r#"m/config.json: model_type is "mamba"; expected qwen2, qwen3 or llama"#
        );
    }

    #[test]
    fn a_sliding_window_that_no_layer_uses_is_accepted() {
        assert!(
            qwen_with(
                r#""use_sliding_window":false,"sliding_window":32768,"max_window_layers":28"#
            )
            .is_ok()
        );
    }
}
