//! A model directory in the Hugging Face layout, read and written: config.json, one or many safetensors, and beside them the
//! tokenizer, chat template and generation config, which are copied as they are. Tensors are read one at a time, so no second
//! copy of the weights is ever held.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use tch::{Device, Kind, Tensor};

use super::config::{ConfigError, Head, ModelConfig};
use super::parameters::Parameters;
use crate::stored::StoredTensor;

/// What a model directory may hold beside the weights; copied on save.
const COMPANION_FILES: [&str; 10] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
];

/// A header longer than this is not a header (the format's own limit).
const MAX_HEADER_BYTES: u64 = 100_000_000;

#[derive(Debug, thiserror::Error)]
pub enum PretrainedError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{} has neither model.safetensors nor model.safetensors.index.json; weights are read in the safetensors format only", directory.display())]
    NoWeights { directory: PathBuf },
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot write {}: {reason}", path.display())]
    Write { path: PathBuf, reason: String },
    #[error("{} is damaged: {reason}; fetch or copy it again", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{}: {count} tensors that config.json asks for are missing, first {name}", path.display())]
    MissingTensor {
        path: PathBuf,
        name: String,
        count: usize,
    },
    #[error("{}: {count} tensors are not part of the model that config.json describes, first {name}", path.display())]
    UnexpectedTensor {
        path: PathBuf,
        name: String,
        count: usize,
    },
    #[error("{}: tensor {name} has shape {found:?}; config.json makes it {expected:?}", path.display())]
    WrongShape {
        path: PathBuf,
        name: String,
        found: Vec<usize>,
        expected: Vec<i64>,
    },
    #[error("{}: tensor {name} has {count} values that are NaN or infinite; a model cannot start from them", path.display())]
    NotFinite {
        path: PathBuf,
        name: String,
        count: i64,
    },
    #[error("{}: config.json has {layers} layers (num_hidden_layers), the weights hold {tensors} tensors in all; one of the two belongs to another model", path.display())]
    TooManyLayers {
        path: PathBuf,
        layers: i64,
        tensors: usize,
    },
    #[error("{}: tensor {name} is {found:?}; expected F32, BF16 or F16", path.display())]
    WrongDtype {
        path: PathBuf,
        name: String,
        found: Dtype,
    },
}

impl Parameters {
    /// Loads `directory`, widened or narrowed to `kind`.
    pub fn load(directory: &Path, kind: Kind, device: Device) -> Result<Self, PretrainedError> {
        let config = Arc::new(ModelConfig::load(directory)?);
        let entries = read_tensors(directory, &config, kind, device)?;
        Ok(Self::from_entries(config, entries))
    }

    /// The weights in `directory`, on the CPU, for a model of this very shape. Nothing is changed.
    pub fn stage(&self, directory: &Path) -> Result<Self, PretrainedError> {
        let entries = read_tensors(directory, self.config(), self.kind(), Device::Cpu)?;
        Ok(Self::from_entries(Arc::clone(self.config()), entries))
    }

    /// Loads a critic: as it is when the directory holds one, else the trunk of a language model under a fresh value head.
    pub fn load_critic(
        directory: &Path,
        seed: u64,
        kind: Kind,
        device: Device,
    ) -> Result<Self, PretrainedError> {
        let loaded = Self::load(directory, kind, device)?;
        Ok(match loaded.config().head {
            Head::Value => loaded,
            Head::Language | Head::Reward => loaded.to_critic(seed),
        })
    }

    /// Writes config.json and model.safetensors to `directory` (made when absent) and copies tokenizer, chat template and
    /// generation config from `source` when given. Nothing is synced to disk or renamed: that is the checkpoint's part.
    pub fn save_pretrained(
        &self,
        directory: &Path,
        source: Option<&Path>,
    ) -> Result<(), PretrainedError> {
        let write_error = |path: PathBuf, reason: &dyn std::fmt::Display| PretrainedError::Write {
            path,
            reason: reason.to_string(),
        };
        std::fs::create_dir_all(directory)
            .map_err(|error| write_error(directory.to_owned(), &error))?;

        let path = directory.join("config.json");
        let mut json = serde_json::to_string_pretty(&self.config().to_json(self.kind()))
            .expect("a JSON object of strings, numbers and lists serialises");
        json.push('\n');
        std::fs::write(&path, json).map_err(|error| write_error(path, &error))?;

        let path = directory.join("model.safetensors");
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let views = self
            .iter()
            .map(|(name, tensor)| (name.to_owned(), StoredTensor::new(tensor)));
        safetensors::serialize_to_file(views, Some(metadata), &path)
            .map_err(|error| write_error(path.clone(), &error))?;
        // The writer makes it readable for its owner alone. A model is as public as the rest of its directory.
        std::fs::metadata(directory.join("config.json"))
            .and_then(|config| std::fs::set_permissions(&path, config.permissions()))
            .map_err(|error| write_error(path, &error))?;

        for name in COMPANION_FILES {
            let Some(from) = source.map(|source| source.join(name)) else {
                break;
            };
            let to = directory.join(name);
            if from.is_file() && from != to {
                std::fs::copy(&from, &to).map_err(|error| write_error(to, &error))?;
            }
        }
        Ok(())
    }
}

/// One safetensors file, opened and with its header checked against its length.
struct WeightFile {
    path: PathBuf,
    file: File,
    data_start: u64,
    tensors: BTreeMap<String, TensorInfo>,
}

impl WeightFile {
    fn open(path: PathBuf) -> Result<Self, PretrainedError> {
        let read = |source| PretrainedError::Read {
            path: path.clone(),
            source,
        };
        let damaged = |reason: String| PretrainedError::Damaged {
            path: path.clone(),
            reason,
        };
        let mut file = File::open(&path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let mut size = [0; 8];
        file.read_exact(&mut size)
            .map_err(|_| damaged(format!("{length} bytes hold no header")))?;
        let header_bytes = u64::from_le_bytes(size);
        if header_bytes > MAX_HEADER_BYTES || header_bytes + 8 > length {
            return Err(damaged(format!(
                "its header claims {header_bytes} bytes of a file of {length}"
            )));
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact(&mut header).map_err(read)?;
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|error| damaged(format!("its header does not parse: {error}")))?;
        let expected = header_bytes + 8 + metadata.data_len() as u64;
        if expected != length {
            return Err(damaged(format!(
                "{length} bytes, its header promises {expected}"
            )));
        }
        let tensors = metadata
            .tensors()
            .into_iter()
            .map(|(name, info)| (name, info.clone()))
            .collect();
        Ok(Self {
            path,
            file,
            data_start: header_bytes + 8,
            tensors,
        })
    }

    fn read(&mut self, name: &str, shape: &[i64]) -> Result<Tensor, PretrainedError> {
        let info = &self.tensors[name];
        let same = info.shape.len() == shape.len()
            && info.shape.iter().zip(shape).all(|(a, b)| *a as i64 == *b);
        if !same {
            return Err(PretrainedError::WrongShape {
                path: self.path.clone(),
                name: name.to_owned(),
                found: info.shape.clone(),
                expected: shape.to_vec(),
            });
        }
        let kind = match info.dtype {
            Dtype::F32 => Kind::Float,
            Dtype::BF16 => Kind::BFloat16,
            Dtype::F16 => Kind::Half,
            found => {
                return Err(PretrainedError::WrongDtype {
                    path: self.path.clone(),
                    name: name.to_owned(),
                    found,
                });
            }
        };
        let (start, end) = info.data_offsets;
        let expected = shape.iter().product::<i64>() as usize * kind.elt_size_in_bytes();
        if end.checked_sub(start) != Some(expected) {
            return Err(PretrainedError::Damaged {
                path: self.path.clone(),
                reason: format!("tensor {name} lies at bytes {start}..{end} but needs {expected}"),
            });
        }
        let mut bytes = vec![0; expected];
        self.file
            .seek(SeekFrom::Start(self.data_start + start as u64))
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(|source| PretrainedError::Read {
                path: self.path.clone(),
                source,
            })?;
        let tensor = Tensor::from_data_size(&bytes, shape, kind);
        let count = tensor.numel() as i64 - tensor.isfinite().sum(Kind::Int64).int64_value(&[]);
        if count > 0 {
            return Err(PretrainedError::NotFinite {
                path: self.path.clone(),
                name: name.to_owned(),
                count,
            });
        }
        Ok(tensor)
    }
}

/// The safetensors of a directory: the single file, else those the index names.
fn weight_files(directory: &Path) -> Result<Vec<WeightFile>, PretrainedError> {
    let single = directory.join("model.safetensors");
    if single.is_file() {
        return Ok(vec![WeightFile::open(single)?]);
    }
    let path = directory.join("model.safetensors.index.json");
    let text = std::fs::read_to_string(&path).map_err(|source| {
        if source.kind() == std::io::ErrorKind::NotFound {
            PretrainedError::NoWeights {
                directory: directory.to_owned(),
            }
        } else {
            PretrainedError::Read {
                path: path.clone(),
                source,
            }
        }
    })?;
    let damaged = |reason: String| PretrainedError::Damaged {
        path: path.clone(),
        reason,
    };
    let index: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    let map = index
        .get("weight_map")
        .and_then(serde_json::Value::as_object)
        .ok_or_else(|| damaged("it has no weight_map".to_owned()))?;
    let mut names: Vec<&str> = Vec::new();
    for file in map.values() {
        let name = file
            .as_str()
            .filter(|name| {
                Path::new(name)
                    .file_name()
                    .is_some_and(|last| last == *name)
            })
            .ok_or_else(|| damaged(format!("{file} is not a file name")))?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort_unstable();
    names
        .into_iter()
        .map(|name| WeightFile::open(directory.join(name)))
        .collect()
}

/// Every tensor of a directory, and the file that each is in.
struct Weights {
    directory: PathBuf,
    files: Vec<WeightFile>,
    place: HashMap<String, usize>,
}

impl Weights {
    fn open(directory: &Path) -> Result<Self, PretrainedError> {
        let files = weight_files(directory)?;
        let mut place: HashMap<String, usize> = HashMap::new();
        for (at, file) in files.iter().enumerate() {
            for name in file.tensors.keys() {
                place.insert(name.clone(), at);
            }
        }
        Ok(Self {
            directory: directory.to_owned(),
            files,
            place,
        })
    }

    /// An error where one of these is in no file.
    fn has_all(&self, shapes: &[(String, Vec<i64>)]) -> Result<(), PretrainedError> {
        let missing: Vec<&String> = shapes
            .iter()
            .map(|(name, _)| name)
            .filter(|name| !self.place.contains_key(*name))
            .collect();
        match missing.first() {
            None => Ok(()),
            Some(first) => Err(PretrainedError::MissingTensor {
                path: self.directory.clone(),
                name: (*first).clone(),
                count: missing.len(),
            }),
        }
    }

    /// One that is there, and is not looked for again.
    fn take(&mut self, name: &str, shape: &[i64]) -> Result<Tensor, PretrainedError> {
        let at = self
            .place
            .remove(name)
            .expect("every name was found to be in a file");
        self.files[at].read(name, shape)
    }
}

/// These tensors of a directory, by name; what else is there is left.
pub(crate) fn read_named(
    directory: &Path,
    shapes: Vec<(String, Vec<i64>)>,
    kind: Kind,
    device: Device,
) -> Result<HashMap<String, Tensor>, PretrainedError> {
    let mut weights = Weights::open(directory)?;
    weights.has_all(&shapes)?;
    let read = shapes.into_iter().map(|(name, shape)| {
        let tensor = weights.take(&name, &shape)?;
        Ok((name, tensor.to_device(device).to_kind(kind)))
    });
    read.collect()
}

fn read_tensors(
    directory: &Path,
    config: &ModelConfig,
    kind: Kind,
    device: Device,
) -> Result<Vec<(String, Tensor)>, PretrainedError> {
    let mut weights = Weights::open(directory)?;
    // Asked before anything is made for each layer: the number may be anything.
    if usize::try_from(config.num_layers).is_ok_and(|layers| layers > weights.place.len()) {
        return Err(PretrainedError::TooManyLayers {
            path: directory.to_owned(),
            layers: config.num_layers,
            tensors: weights.place.len(),
        });
    }
    let shapes = config.tensor_shapes();
    weights.has_all(&shapes)?;
    let mut entries = Vec::with_capacity(shapes.len());
    for (name, shape) in shapes {
        let tensor = weights.take(&name, &shape)?;
        entries.push((name, tensor.to_device(device).to_kind(kind)));
    }
    // Old exporters wrote the rotary table, and some write the tied head a second time: neither is a weight of its own.
    let Weights { files, place, .. } = weights;
    let mut unexpected: Vec<&String> = place
        .keys()
        .filter(|name| {
            let tied_head = config.tie_word_embeddings && *name == "lm_head.weight";
            !tied_head && !name.ends_with("rotary_emb.inv_freq")
        })
        .collect();
    unexpected.sort();
    if let Some(first) = unexpected.first() {
        return Err(PretrainedError::UnexpectedTensor {
            path: files[place[*first]].path.clone(),
            name: (*first).clone(),
            count: unexpected.len(),
        });
    }
    Ok(entries)
}
