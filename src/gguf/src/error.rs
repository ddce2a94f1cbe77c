//! What can be wrong with a GGUF file.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot write {}: {reason}", path.display())]
    Write { path: PathBuf, reason: String },
    #[error("{} is no GGUF file: it begins with {found:?}, not with \"GGUF\"", path.display())]
    NotGguf { path: PathBuf, found: String },
    #[error("{} is GGUF version {version}; 2 and 3 are read", path.display())]
    Version { path: PathBuf, version: u32 },
    #[error("{} is damaged: {reason}; fetch or copy it again", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{}: tensor {name} is of type {found}; read are F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K and Q6_K", path.display())]
    TensorType {
        path: PathBuf,
        name: String,
        found: String,
    },
    #[error("{}: {key} is missing in its metadata; expected {expected}", path.display())]
    Missing {
        path: PathBuf,
        key: String,
        expected: &'static str,
    },
    #[error("{}: {key} is {found}; expected {expected}", path.display())]
    Unfit {
        path: PathBuf,
        key: String,
        found: String,
        expected: String,
    },
    #[error("{}: it has a tensor {name}, which no model of architecture {architecture} has", path.display())]
    UnknownTensor {
        path: PathBuf,
        name: String,
        architecture: String,
    },
}
