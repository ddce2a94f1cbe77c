//! Transformers in the Hugging Face layout: config, weights, the forward pass with gradients.
//!
//! ```text
//!  config.json ─► ModelConfig ─► tensor_shapes ─► Parameters (named leaf tensors) ─► save_pretrained
//!                                                     │
//!                       PackedBatch ─► Transformer::hidden ─► logits / values of the rows asked for
//! ```
//! Knows nothing of sampling, losses, optimizers or files other than the model's.

pub mod attention;
pub mod checkpoint;
pub mod config;
pub mod packed;
pub mod parameters;
pub mod pretrained;
pub mod transformer;
