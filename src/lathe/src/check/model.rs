//! Does a model directory look complete? Reads config.json and the headers of the weights, never the weights.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use safetensors::tensor::Metadata;
use serde::Serialize;
use serde_json::Value;

use super::Finding;

/// Largest header that safetensors itself accepts.
const LARGEST_HEADER_BYTES: u64 = 100_000_000;
/// Architectures that the trainer loads.
const KNOWN_TYPES: [&str; 2] = ["qwen2", "llama"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelFacts {
    /// `model_type` of config.json.
    pub model_type: String,
    /// Elements over all tensors; tied weights count once.
    pub parameters: u64,
    pub tensors: u64,
    /// Types of the tensors, as safetensors names them.
    pub dtypes: BTreeSet<String>,
    pub bytes: u64,
}

/// None: too little was there to say anything; the findings say what.
pub fn inspect(directory: &Path, findings: &mut Vec<Finding>) -> Option<ModelFacts> {
    let mut wrong = |message: String| findings.push(Finding::error("model", message));
    if !directory.is_dir() {
        wrong(format!(
            "{}: is not a directory; name one in the Hugging Face layout",
            directory.display()
        ));
        return None;
    }
    let config = match read_json(&directory.join("config.json")) {
        Ok(config) => config,
        Err(message) => {
            wrong(message);
            return None;
        }
    };
    let model_type = config["model_type"].as_str().unwrap_or_default().to_owned();
    if !KNOWN_TYPES.contains(&model_type.as_str()) {
        wrong(format!(
            "{}: model_type is {:?}; expected one of {}",
            directory.join("config.json").display(),
            model_type,
            KNOWN_TYPES.join(", ")
        ));
    }
    let mut facts = ModelFacts {
        model_type,
        parameters: 0,
        tensors: 0,
        dtypes: BTreeSet::new(),
        bytes: 0,
    };
    let shards = match shards(directory) {
        Ok(shards) => shards,
        Err(message) => {
            wrong(message);
            return None;
        }
    };
    for (shard, promised) in shards {
        let path = directory.join(&shard);
        match header(&path) {
            Ok((metadata, bytes)) => {
                facts.bytes += bytes;
                let tensors = metadata.tensors();
                for name in promised.iter().filter(|name| !tensors.contains_key(*name)) {
                    wrong(format!(
                        "{}: has no tensor {name}, which the index promises",
                        path.display()
                    ));
                }
                for info in tensors.values() {
                    facts.tensors += 1;
                    facts.parameters += info.shape.iter().map(|size| *size as u64).product::<u64>();
                    facts.dtypes.insert(format!("{:?}", info.dtype));
                }
            }
            Err(message) => wrong(message),
        }
    }
    Some(facts)
}

fn read_json(path: &Path) -> Result<Value, String> {
    let text = std::fs::read(path)
        .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    serde_json::from_slice(&text)
        .map_err(|error| format!("{}: is not JSON: {error}", path.display()))
}

/// File names of the weights, each with the tensors that the index expects in it.
fn shards(directory: &Path) -> Result<BTreeMap<String, Vec<String>>, String> {
    let single = "model.safetensors";
    let index = directory.join("model.safetensors.index.json");
    if index.exists() {
        let map = read_json(&index)?;
        let Some(map) = map["weight_map"].as_object() else {
            return Err(format!("{}: has no weight_map", index.display()));
        };
        let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tensor, shard) in map {
            let shard = shard
                .as_str()
                .ok_or_else(|| format!("{}: the file of {tensor} is not text", index.display()))?;
            shards
                .entry(shard.to_owned())
                .or_default()
                .push(tensor.clone());
        }
        return Ok(shards);
    }
    if directory.join(single).exists() {
        return Ok(BTreeMap::from([(single.to_owned(), Vec::new())]));
    }
    let hint = if directory.join("pytorch_model.bin").exists() {
        "; pytorch_model.bin is not read: save the model again with save_pretrained(safe_serialization=True)"
    } else {
        ""
    };
    Err(format!(
        "{}: has no model.safetensors and no index of shards{hint}",
        directory.display()
    ))
}

/// The header, after checking that the file is as long as it says.
fn header(path: &Path) -> Result<(Metadata, u64), String> {
    let at = |reason: String| format!("{}: {reason}", path.display());
    let mut file = File::open(path).map_err(|error| at(format!("cannot be opened: {error}")))?;
    let size = file
        .metadata()
        .map_err(|error| at(error.to_string()))?
        .len();
    let mut length = [0; 8];
    file.read_exact(&mut length)
        .map_err(|_| at(format!("has {size} bytes, which is no safetensors file")))?;
    let length = u64::from_le_bytes(length);
    if length > LARGEST_HEADER_BYTES || length > size.saturating_sub(8) {
        return Err(at(format!(
            "promises a header of {length} bytes in a file of {size}; it is cut or no safetensors file"
        )));
    }
    let mut bytes = Vec::new();
    file.take(length)
        .read_to_end(&mut bytes)
        .map_err(|error| at(format!("cannot be read: {error}")))?;
    let metadata: Metadata = serde_json::from_slice(&bytes)
        .map_err(|error| at(format!("has a header that cannot be read: {error}")))?;
    let data = metadata
        .tensors()
        .values()
        .map(|info| info.data_offsets.1 as u64)
        .max()
        .unwrap_or(0);
    let expected = 8 + length + data;
    if size != expected {
        return Err(at(format!(
            "has {size} bytes where its header says {expected}; fetch it again"
        )));
    }
    Ok((metadata, size))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn model(folder: &Path) {
        fs::write(folder.join("config.json"), r#"{"model_type": "qwen2"}"#).unwrap();
        let data = [0_u8; 24];
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2, 3], &data)
            .unwrap();
        let bytes = safetensors::serialize([("w", view)], None).unwrap();
        fs::write(folder.join("model.safetensors"), bytes).unwrap();
    }

    fn messages(folder: &Path) -> Vec<String> {
        let mut findings = Vec::new();
        inspect(folder, &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn a_whole_model_is_counted_from_its_header() {
        let folder = tempfile::tempdir().unwrap();
        model(folder.path());
        let mut findings = Vec::new();
        let facts = inspect(folder.path(), &mut findings).unwrap();
        assert_eq!(findings, []);
        assert_eq!((facts.parameters, facts.tensors), (6, 1));
        assert_eq!(facts.dtypes.into_iter().collect::<Vec<_>>(), ["F32"]);
    }

    #[test]
    fn cut_weights_are_found_without_reading_them() {
        let folder = tempfile::tempdir().unwrap();
        model(folder.path());
        let path = folder.path().join("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 4]).unwrap();
        assert!(messages(folder.path())[0].ends_with("fetch it again"));
        fs::write(&path, &bytes[..20]).unwrap();
        assert!(messages(folder.path())[0].ends_with("it is cut or no safetensors file"));
        fs::write(&path, "version https://git-lfs.github.com/spec/v1").unwrap();
        assert_eq!(messages(folder.path()).len(), 1);
    }

    #[test]
    fn a_missing_shard_and_a_missing_tensor_are_named() {
        let folder = tempfile::tempdir().unwrap();
        model(folder.path());
        let index = r#"{"weight_map": {"w": "model.safetensors", "v": "model.safetensors", "u": "second.safetensors"}}"#;
        fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
        let messages = messages(folder.path());
        assert!(
            messages[0].ends_with("has no tensor v, which the index promises"),
            "{messages:?}"
        );
        assert!(
            messages[1].contains("second.safetensors: cannot be opened"),
            "{messages:?}"
        );
    }

    #[test]
    fn other_architectures_and_formats_say_what_is_expected() {
        let folder = tempfile::tempdir().unwrap();
        model(folder.path());
        fs::write(
            folder.path().join("config.json"),
            r#"{"model_type": "gpt2"}"#,
        )
        .unwrap();
        assert!(
            messages(folder.path())[0]
                .ends_with("model_type is \"gpt2\"; expected one of qwen2, llama")
        );
        fs::remove_file(folder.path().join("model.safetensors")).unwrap();
        fs::write(folder.path().join("pytorch_model.bin"), "").unwrap();
        assert!(messages(folder.path())[1].contains("save_pretrained(safe_serialization=True)"));
        fs::remove_file(folder.path().join("config.json")).unwrap();
        assert!(messages(folder.path())[0].contains("config.json: cannot be read"));
    }
}
