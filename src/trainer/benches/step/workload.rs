//! The two workloads: random Qwen2 weights, random prompts of 32 to 64 tokens, 64 new tokens for each sample.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use trainer::model::config::ModelConfig;

pub const NEW_TOKENS: u32 = 64;
pub const PROMPT_TOKENS: std::ops::RangeInclusive<usize> = 32..=64;

#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub name: &'static str,
    pub shape: Shape,
    pub prompts: usize,
    pub samples: usize,
}

/// A Qwen2 with tied embeddings.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub vocab: u32,
    pub hidden: u32,
    pub inner: u32,
    pub layers: u32,
    pub heads: u32,
    pub kv_heads: u32,
}

/// About 5 M parameters, many short samples.
pub const W1: Workload = Workload {
    name: "W1",
    shape: Shape {
        vocab: 8192,
        hidden: 256,
        inner: 704,
        layers: 4,
        heads: 4,
        kv_heads: 2,
    },
    prompts: 16,
    samples: 8,
};

/// About 100 M parameters, few samples.
pub const W2: Workload = Workload {
    name: "W2",
    shape: Shape {
        vocab: 32_000,
        hidden: 768,
        inner: 2048,
        layers: 12,
        heads: 12,
        kv_heads: 4,
    },
    prompts: 4,
    samples: 4,
};

impl Workload {
    pub fn config(&self) -> anyhow::Result<Arc<ModelConfig>> {
        self.shape.config()
    }

    /// Prompts no other step has, so that no step finds another's keys and values.
    pub fn prompts(&self, count: usize, step: u64) -> Vec<Vec<u32>> {
        let mut random = ChaCha8Rng::seed_from_u64(step);
        (0..count)
            .map(|_| {
                let length = random.random_range(PROMPT_TOKENS);
                (0..length)
                    .map(|_| random.random_range(0..self.shape.vocab))
                    .collect()
            })
            .collect()
    }
}

impl Shape {
    pub fn config(&self) -> anyhow::Result<Arc<ModelConfig>> {
        let json = serde_json::json!({
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": self.vocab,
            "hidden_size": self.hidden, "intermediate_size": self.inner, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "max_position_embeddings": 512,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true, "initializer_range": 0.02,
            "eos_token_id": 0,
        });
        let serde_json::Value::Object(json) = json else {
            bail!("a config is an object");
        };
        Ok(Arc::new(ModelConfig::from_json(
            Path::new("config.json"),
            json,
        )?))
    }
}
