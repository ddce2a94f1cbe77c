//! Sentence encoders as sentence-transformers keeps them: `modules.json` names a BERT, a mean over its tokens, perhaps a cut to
//! length 1, and perhaps a linear layer that makes one number of it.
//!
//! ```text
//!  text ─► WordPiece ids ─► Bert ─► mean over tokens ─► (length 1) ─► embedding [H] ─► (Dense) ─► a number
//! ```
//! Frozen: nothing here has a gradient.

mod bert;

use std::path::{Path, PathBuf};

use dialogue::tokenizer::{Tokenizer, TokenizerError, Trust};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::model::pretrained::{PretrainedError, read_named};
use crate::stored::StoredTensor;
use bert::Bert;

/// Padded tokens of one forward pass.
const FORWARD_TOKENS: usize = 8192;
/// The file that makes a directory one of sentence-transformers.
pub const MODULES: &str = "modules.json";
/// Where a head that was learned here is kept.
const HEAD_FOLDER: &str = "3_Dense";
const HEAD_TYPE: &str = "sentence_transformers.models.Dense";

#[derive(Debug, thiserror::Error)]
pub enum EncoderError {
    #[error("{}: {reason}", path.display())]
    Config { path: PathBuf, reason: String },
    #[error(transparent)]
    Weights(#[from] PretrainedError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error("cannot write {}: {reason}", path.display())]
    Write { path: PathBuf, reason: String },
}

/// A linear layer to one number.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// One a dimension of the embedding.
    pub weights: Vec<f64>,
    pub bias: f64,
}

/// An entry of `modules.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Module {
    idx: u64,
    name: String,
    path: String,
    r#type: String,
}

/// An encoder with its words.
#[derive(Debug)]
pub struct Encoder {
    directory: PathBuf,
    modules: Vec<Module>,
    bert: Bert,
    words: Words,
    is_cut_to_length_1: bool,
    head: Option<Head>,
}

/// An encoder's tokens, apart from it: for another thread.
#[derive(Debug, Clone)]
pub struct Words {
    tokenizer: std::sync::Arc<Tokenizer>,
    /// What a text begins and ends with.
    ends: (u32, u32),
    max_tokens: usize,
}

impl Words {
    /// Ids of a text. Of one that is too long its end is taken: there an answer stands.
    pub fn ids(&self, text: &str) -> Result<Vec<u32>, EncoderError> {
        let ids = self.tokenizer.encode(text, Trust::Plain, false)?;
        let room = self.max_tokens.saturating_sub(2);
        let mut all = vec![self.ends.0];
        all.extend(&ids[ids.len().saturating_sub(room)..]);
        all.push(self.ends.1);
        Ok(all)
    }
}

/// Whether a directory holds a sentence encoder.
pub fn is_encoder(directory: &Path) -> bool {
    directory.join(MODULES).is_file()
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, EncoderError> {
    let says = |reason: String| EncoderError::Config {
        path: path.to_owned(),
        reason,
    };
    let text = std::fs::read(path).map_err(|error| says(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| says(error.to_string()))
}

impl Encoder {
    /// `max_tokens`: of a text; None: what the encoder was made for.
    pub fn load(
        directory: &Path,
        max_tokens: Option<usize>,
        kind: Kind,
        device: Device,
    ) -> Result<Self, EncoderError> {
        let path = directory.join(MODULES);
        let modules: Vec<Module> = read_json(&path)?;
        let says = |reason: String| EncoderError::Config {
            path: path.clone(),
            reason,
        };
        let mut is_cut_to_length_1 = false;
        let mut head = None;
        for (at, module) in modules.iter().enumerate() {
            let kind = module.r#type.rsplit('.').next().unwrap_or_default();
            match (at, kind) {
                (0, "Transformer") if module.path.is_empty() => {}
                (1, "Pooling") => is_mean(&directory.join(&module.path))?,
                (_, "Normalize") if at > 1 && head.is_none() => is_cut_to_length_1 = true,
                (_, "Dense") if at > 1 && head.is_none() => {
                    head = Some(read_head(&directory.join(&module.path))?);
                }
                _ => {
                    return Err(says(format!(
                        "module {at} is {} in {:?}; expected a Transformer in the directory itself, Pooling, and then at most a Normalize and one Dense",
                        module.r#type, module.path
                    )));
                }
            }
        }
        if modules.len() < 2 {
            return Err(says("it has no Pooling".to_owned()));
        }
        let bert = Bert::load(directory, kind, device)?;
        if let Some(head) = &head
            && head.weights.len() as i64 != bert.config.hidden_size
        {
            return Err(says(format!(
                "its Dense takes {} numbers, an embedding has {}",
                head.weights.len(),
                bert.config.hidden_size
            )));
        }
        let tokenizer = Tokenizer::load(directory)?;
        let special = |token: &str| {
            tokenizer
                .token_id(token)
                .ok_or_else(|| EncoderError::Config {
                    path: directory.join("tokenizer.json"),
                    reason: format!("it has no {token}"),
                })
        };
        let ends = (special("[CLS]")?, special("[SEP]")?);
        if tokenizer.vocabulary_size() as i64 > bert.config.vocab_size {
            return Err(EncoderError::Config {
                path: directory.join("tokenizer.json"),
                reason: format!(
                    "it has {} tokens, config.json says {}",
                    tokenizer.vocabulary_size(),
                    bert.config.vocab_size
                ),
            });
        }
        let own = directory.join("sentence_bert_config.json");
        let own: Option<Value> = own.is_file().then(|| read_json(&own)).transpose()?;
        let limits = [
            own.and_then(|own| own["max_seq_length"].as_u64())
                .map(|limit| limit as usize),
            max_tokens,
            Some(bert.config.max_position_embeddings as usize),
        ];
        let max_tokens = limits.into_iter().flatten().min().unwrap_or(0).max(3);
        Ok(Self {
            directory: directory.to_owned(),
            modules,
            bert,
            words: Words {
                tokenizer: std::sync::Arc::new(tokenizer),
                ends,
                max_tokens,
            },
            is_cut_to_length_1,
            head,
        })
    }

    pub fn words(&self) -> &Words {
        &self.words
    }

    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Numbers of an embedding.
    pub fn dimensions(&self) -> usize {
        self.bert.config.hidden_size as usize
    }

    /// `[N, H]` f64 on the CPU, of texts as [`Words::ids`] gives them.
    pub fn embed<T: AsRef<[u32]>>(&self, texts: &[T]) -> Tensor {
        let _no_grad = tch::no_grad_guard();
        let dimensions = self.dimensions() as i64;
        let mut all = Tensor::zeros(
            [texts.len() as i64, dimensions],
            (Kind::Double, Device::Cpu),
        );
        // Texts of about the same length go together: less padding.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|at| texts[*at].as_ref().len());
        let mut start = 0;
        while start < order.len() {
            let mut end = start;
            while end < order.len()
                && (end == start
                    || texts[order[end]].as_ref().len() * (end + 1 - start) <= FORWARD_TOKENS)
            {
                end += 1;
            }
            let together: Vec<&[u32]> = order[start..end]
                .iter()
                .map(|at| texts[*at].as_ref())
                .collect();
            let rows: Vec<i64> = order[start..end].iter().map(|at| *at as i64).collect();
            let embedded = self
                .pass(&together)
                .to_device(Device::Cpu)
                .to_kind(Kind::Double);
            let _ = all.index_copy_(0, &Tensor::from_slice(&rows), &embedded);
            start = end;
        }
        all
    }

    fn pass(&self, texts: &[&[u32]]) -> Tensor {
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let mut ids = vec![0_i64; texts.len() * longest];
        let mut mask = vec![false; texts.len() * longest];
        for (row, text) in texts.iter().enumerate() {
            for (column, id) in text.iter().enumerate() {
                ids[row * longest + column] = i64::from(*id);
                mask[row * longest + column] = true;
            }
        }
        let shape = [texts.len() as i64, longest as i64];
        let (ids, mask) = (
            Tensor::from_slice(&ids).view(shape),
            Tensor::from_slice(&mask).view(shape),
        );
        let hidden = self.bert.hidden(&ids, &mask).to_kind(Kind::Float);
        let weights = mask
            .to_device(hidden.device())
            .to_kind(Kind::Float)
            .unsqueeze(-1);
        let sum = (hidden * &weights).sum_dim_intlist(1_i64, false, Kind::Float);
        let mean = sum / weights.sum_dim_intlist(1_i64, false, Kind::Float);
        if self.is_cut_to_length_1 {
            let length = mean
                .norm_scalaropt_dim(2.0, [-1_i64], true)
                .clamp_min(1e-12);
            mean / length
        } else {
            mean
        }
    }

    /// The head's number of each text; None: it has no head.
    pub fn scores<T: AsRef<[u32]>>(&self, texts: &[T]) -> Option<Vec<f64>> {
        let head = self.head.as_ref()?;
        let said = self.embed(texts).mv(&Tensor::from_slice(&head.weights)) + head.bias;
        Some(Vec::try_from(said).expect("a flat f64 tensor on the CPU"))
    }

    /// Writes the encoder with this head to `directory`, which sentence-transformers reads too.
    pub fn save_with_head(&self, directory: &Path, head: &Head) -> Result<(), EncoderError> {
        let written = |path: &Path, error: &dyn std::fmt::Display| EncoderError::Write {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let folder = directory.join(HEAD_FOLDER);
        std::fs::create_dir_all(&folder).map_err(|error| written(&folder, &error))?;
        let mut modules: Vec<Module> = self.modules.clone();
        modules.retain(|module| !module.r#type.ends_with(".Dense"));
        for name in [
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
            "vocab.txt",
            "sentence_bert_config.json",
            "config_sentence_transformers.json",
        ] {
            copy(&self.directory.join(name), &directory.join(name))?;
        }
        for module in modules.iter().filter(|module| !module.path.is_empty()) {
            let from = self.directory.join(&module.path).join("config.json");
            let to = directory.join(&module.path);
            std::fs::create_dir_all(&to).map_err(|error| written(&to, &error))?;
            copy(&from, &to.join("config.json"))?;
        }
        let idx = modules.len() as u64;
        modules.push(Module {
            idx,
            name: idx.to_string(),
            path: HEAD_FOLDER.to_owned(),
            r#type: HEAD_TYPE.to_owned(),
        });
        let config = serde_json::json!({
            "in_features": head.weights.len(),
            "out_features": 1,
            "bias": true,
            "activation_function": "torch.nn.modules.linear.Identity",
        });
        let weights: Vec<f32> = head.weights.iter().map(|weight| *weight as f32).collect();
        let weights = Tensor::from_slice(&weights).view([1, -1]);
        let bias = Tensor::from_slice(&[head.bias as f32]);
        let path = folder.join("model.safetensors");
        let views = [("linear.bias", &bias), ("linear.weight", &weights)]
            .map(|(name, tensor)| (name.to_owned(), StoredTensor::new(tensor)));
        safetensors::serialize_to_file(views, None, &path)
            .map_err(|error| written(&path, &error))?;
        for (path, json) in [
            (folder.join("config.json"), config),
            (
                directory.join(MODULES),
                serde_json::to_value(&modules).expect("texts and numbers"),
            ),
        ] {
            let text = format!("{json:#}\n");
            std::fs::write(&path, text).map_err(|error| written(&path, &error))?;
        }
        Ok(())
    }
}

/// Where there is such a file, and it is another.
fn copy(from: &Path, to: &Path) -> Result<(), EncoderError> {
    let is_same = from.canonicalize().ok() == to.canonicalize().ok();
    if !from.is_file() || is_same {
        return Ok(());
    }
    std::fs::copy(from, to)
        .map(drop)
        .map_err(|error| EncoderError::Write {
            path: to.to_owned(),
            reason: error.to_string(),
        })
}

/// An error unless the pooling is the mean over tokens.
fn is_mean(folder: &Path) -> Result<(), EncoderError> {
    let path = folder.join("config.json");
    let config: serde_json::Map<String, Value> = read_json(&path)?;
    let modes = config
        .iter()
        .filter(|(key, value)| key.starts_with("pooling_mode") && **value == Value::Bool(true));
    let modes: Vec<&str> = modes.map(|(key, _)| key.as_str()).collect();
    if modes == ["pooling_mode_mean_tokens"] {
        return Ok(());
    }
    Err(EncoderError::Config {
        path,
        reason: format!(
            "it pools by {}; expected pooling_mode_mean_tokens alone",
            if modes.is_empty() {
                "nothing".to_owned()
            } else {
                modes.join(", ")
            }
        ),
    })
}

fn read_head(folder: &Path) -> Result<Head, EncoderError> {
    let path = folder.join("config.json");
    let config: Value = read_json(&path)?;
    let says = |reason: String| EncoderError::Config {
        path: path.clone(),
        reason,
    };
    let activation = config["activation_function"]
        .as_str()
        .unwrap_or("torch.nn.modules.linear.Identity");
    if config["out_features"] != 1 || !activation.ends_with(".Identity") {
        return Err(says(format!(
            "out_features is {} and activation_function {activation}; expected 1 and Identity: a number is a score",
            config["out_features"]
        )));
    }
    let inputs = config["in_features"]
        .as_i64()
        .filter(|inputs| (1..=1 << 20).contains(inputs));
    let inputs = inputs.ok_or_else(|| says(format!("in_features is {}", config["in_features"])))?;
    let has_bias = config["bias"] != Value::Bool(false);
    let mut shapes = vec![("linear.weight".to_owned(), vec![1, inputs])];
    if has_bias {
        shapes.push(("linear.bias".to_owned(), vec![1]));
    }
    let tensors = read_named(folder, shapes, Kind::Double, Device::Cpu)?;
    let weights = tensors["linear.weight"].view(-1);
    Ok(Head {
        weights: Vec::try_from(weights).expect("a flat f64 tensor on the CPU"),
        bias: tensors
            .get("linear.bias")
            .map_or(0.0, |bias| bias.double_value(&[0])),
    })
}
