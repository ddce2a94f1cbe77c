//! `data`: files, batches, lengths.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Parquet files; relative paths are relative to the directory `lathe` runs in, then to the experiment's file.
    pub train_files: Vec<String>,
    pub val_files: Vec<String>,
    pub prompt_key: String,
    /// Prompts a step (times `rollout.n` samples).
    pub train_batch_size: u32,
    /// None: the whole file.
    pub train_max_samples: Option<u64>,
    pub val_max_samples: Option<u64>,
    pub max_prompt_length: u32,
    /// Tokens of the whole dialogue after the prompt, tool results included.
    pub max_response_length: u32,
    pub filter_overlong_prompts: bool,
    pub shuffle: bool,
    pub seed: u64,
    pub apply_chat_template_kwargs: serde_json::Map<String, serde_json::Value>,
}

impl Default for Data {
    fn default() -> Self {
        Self {
            train_files: Vec::new(),
            val_files: Vec::new(),
            prompt_key: "prompt".to_owned(),
            train_batch_size: 1024,
            train_max_samples: None,
            val_max_samples: None,
            max_prompt_length: 512,
            max_response_length: 512,
            filter_overlong_prompts: false,
            shuffle: true,
            seed: 42,
            apply_chat_template_kwargs: serde_json::Map::new(),
        }
    }
}
