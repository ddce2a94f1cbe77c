//! GGUF, the model files of llama.cpp: read, widened to plain numbers, and written as a Hugging Face directory.
//!
//! ```text
//!  model.gguf ─► GgufFile { metadata, tensors } ─► dequantize ─► names, shapes and head order of Hugging Face
//!                                                                  │
//!                 config.json · model.safetensors · tokenizer.json · tokenizer_config.json  ◄─┘
//! ```
//! The formats are those of ggml: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. Tensors are read and written one
//! after the other, so that no more than two are held. Knows nothing of running a model.

mod convert;
mod error;
mod file;
mod model;
mod quant;
mod tokenizer;
mod value;

pub use convert::{Converted, Options, convert};
pub use error::GgufError;
pub use file::{GgufFile, TensorInfo};
pub use quant::{GgmlType, dequantize};
pub use value::Value;
