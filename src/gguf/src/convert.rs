//! A GGUF file written as a Hugging Face directory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use half::bf16;
use safetensors::tensor::{Dtype, Metadata, TensorInfo as Placed};
use serde_json::{Value as Json, json};

use crate::error::GgufError;
use crate::file::{GgufFile, TensorInfo};
use crate::model::{Model, turn_back};
use crate::quant::dequantize;
use crate::tokenizer;
use crate::value::Value;

/// How the weights are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Four bytes a number instead of two: quantised numbers are then exactly what their blocks say.
    pub is_f32: bool,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    pub architecture: &'static str,
    pub tensors: usize,
    /// Numbers in all.
    pub parameters: u64,
    /// Bytes of model.safetensors.
    pub bytes: u64,
    /// `general.name` and `general.license` of the file.
    pub name: Option<String>,
    pub license: Option<String>,
}

/// Reads `from` and writes `config.json`, `generation_config.json`, `model.safetensors`, `tokenizer.json` and `tokenizer_config.json`
/// into `into`, which is made where it is absent. The files appear in it only when all are whole.
pub fn convert(from: &Path, into: &Path, options: Options) -> Result<Converted, GgufError> {
    let mut file = GgufFile::open(from)?;
    let model = Model::of(&file)?;
    let tokens = tokenizer::files(&file)?;
    let mut config = model.config.clone();
    let dtype = if options.is_f32 {
        "float32"
    } else {
        "bfloat16"
    };
    config.insert("torch_dtype".to_owned(), json!(dtype));
    let ids = |ids: &[u64]| match ids {
        [one] => json!(one),
        many => json!(many),
    };
    let mut generation = serde_json::Map::new();
    for (key, value) in [
        ("bos_token_id", tokens.start.map(|id| json!(id))),
        ("eos_token_id", Some(ids(&tokens.ends))),
        ("pad_token_id", tokens.pad.map(|id| json!(id))),
    ] {
        if let Some(value) = value {
            config.insert(key.to_owned(), value.clone());
            generation.insert(key.to_owned(), value);
        }
    }
    let written = |path: &Path, error: &dyn std::fmt::Display| GgufError::Write {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let mut aside = into.as_os_str().to_owned();
    aside.push(".partial");
    let aside = Path::new(&aside);
    if aside.exists() {
        fs::remove_dir_all(aside).map_err(|error| written(aside, &error))?;
    }
    fs::create_dir_all(aside).map_err(|error| written(aside, &error))?;
    let text = |name: &str, value: &Json, is_long: bool| {
        let path = aside.join(name);
        // A vocabulary of a line a token is of no use to people.
        let json = if is_long {
            serde_json::to_string(value)
        } else {
            serde_json::to_string_pretty(value)
        };
        let json = json.expect("JSON of texts and numbers") + "\n";
        fs::write(&path, json).map_err(|error| written(&path, &error))
    };
    text("config.json", &Json::Object(config), false)?;
    text("generation_config.json", &Json::Object(generation), false)?;
    text("tokenizer.json", &tokens.tokenizer, true)?;
    text("tokenizer_config.json", &Json::Object(tokens.config), false)?;
    let weights = aside.join("model.safetensors");
    let bytes = write_weights(&mut file, &model, options, &weights)?;
    fs::create_dir_all(into).map_err(|error| written(into, &error))?;
    let entries = fs::read_dir(aside).map_err(|error| written(aside, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| written(aside, &error))?;
        let path = into.join(entry.file_name());
        fs::rename(entry.path(), &path).map_err(|error| written(&path, &error))?;
    }
    fs::remove_dir(aside).map_err(|error| written(aside, &error))?;
    let said = |key: &str| {
        let value = file.metadata.get(key).and_then(Value::text);
        value.map(str::to_owned)
    };
    Ok(Converted {
        architecture: model.architecture.name(),
        tensors: file.tensors.len(),
        parameters: file.tensors.iter().map(|t| numbers(t) as u64).sum(),
        bytes,
        name: said("general.name"),
        license: said("general.license"),
    })
}

fn numbers(tensor: &TensorInfo) -> usize {
    tensor.shape.iter().product()
}

/// One tensor after the other: a header that says where each will lie, then their bytes.
fn write_weights(
    file: &mut GgufFile,
    model: &Model,
    options: Options,
    path: &Path,
) -> Result<u64, GgufError> {
    let (dtype, size) = if options.is_f32 {
        (Dtype::F32, 4)
    } else {
        (Dtype::BF16, 2)
    };
    let mut placed: Vec<(String, Placed)> = Vec::new();
    let mut targets = Vec::new();
    let mut at = 0;
    for tensor in &file.tensors {
        let target = model.target(&tensor.name);
        let target = target.ok_or_else(|| GgufError::UnknownTensor {
            path: file.path().to_owned(),
            name: tensor.name.clone(),
            architecture: model.architecture.name().to_owned(),
        })?;
        if let Some(heads) = target.turned_heads
            && !tensor.shape[0].is_multiple_of(2 * heads)
        {
            return Err(GgufError::Damaged {
                path: file.path().to_owned(),
                reason: format!(
                    "tensor {} has {} rows for {heads} heads",
                    tensor.name, tensor.shape[0]
                ),
            });
        }
        let end = at + size * numbers(tensor);
        placed.push((
            target.name.clone(),
            Placed {
                dtype,
                shape: tensor.shape.clone(),
                data_offsets: (at, end),
            },
        ));
        targets.push(target);
        at = end;
    }
    let written = |error: &dyn std::fmt::Display| GgufError::Write {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let metadata = Metadata::new(Some(format), placed).map_err(|error| written(&error))?;
    let mut header = serde_json::to_vec(&metadata).expect("names, shapes and places");
    // Readers map the file: what follows starts at a multiple of eight.
    header.resize(header.len().next_multiple_of(8), b' ');
    let out = fs::File::create(path).map_err(|error| written(&error))?;
    let mut out = io::BufWriter::new(out);
    let put = |out: &mut io::BufWriter<fs::File>, bytes: &[u8]| {
        io::Write::write_all(out, bytes).map_err(|error| written(&error))
    };
    put(&mut out, &(header.len() as u64).to_le_bytes())?;
    put(&mut out, &header)?;
    let tensors = file.tensors.clone();
    let mut wide = Vec::new();
    for (tensor, target) in tensors.iter().zip(targets) {
        wide.clear();
        dequantize(tensor.kind, &file.read(tensor)?, &mut wide);
        let numbers = match target.turned_heads {
            Some(heads) => Cow::Owned(turn_back(&wide, tensor.shape[0], heads)),
            None => Cow::Borrowed(&wide),
        };
        for part in numbers.chunks(1 << 16) {
            let bytes: Vec<u8> = if options.is_f32 {
                part.iter().flat_map(|x| x.to_le_bytes()).collect()
            } else {
                let narrow = part.iter().map(|x| bf16::from_f32(*x));
                narrow.flat_map(bf16::to_le_bytes).collect()
            };
            put(&mut out, &bytes)?;
        }
    }
    let out = out.into_inner().map_err(|error| written(error.error()))?;
    out.sync_all().map_err(|error| written(&error))?;
    Ok(8 + header.len() as u64 + at as u64)
}
