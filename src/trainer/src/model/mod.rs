//! Transformers in the Hugging Face layout: config, weights, the forward pass with gradients.

pub mod packed;
