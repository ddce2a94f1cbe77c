//! `actor_rollout_ref.rollout` and `async_training`: how dialogues are generated.

use serde::{Deserialize, Serialize};

use super::Dtype;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rollout {
    pub name: EngineName,
    pub nnodes: u32,
    pub n_gpus_per_node: u32,
    pub gpu_memory_utilization: f64,
    /// Samples per prompt (group size G).
    pub n: u32,
    pub temperature: f64,
    /// -1: off.
    pub top_k: i64,
    pub top_p: f64,
    pub min_p: f64,
    pub ignore_eos: bool,
    pub stop: Vec<String>,
    pub seed: u64,
    pub dtype: Option<Dtype>,
    /// Sequences decoded together.
    pub max_num_seqs: u32,
    /// None: `max_prompt_length` + `max_response_length`.
    pub max_model_len: Option<u32>,
    /// Batches do not depend on timing, so the same seed gives the same bits; a slow tool then holds every session up.
    pub full_determinism: bool,
    pub calculate_log_probs: bool,
    pub log_prob_micro_batch_size_per_gpu: Option<u32>,
    /// A session older than this ends with what it has; None: no deadline.
    pub session_timeout_s: Option<f64>,
    /// How often a dialogue that fails, or reaches that with nothing drawn, is begun again.
    pub session_retries: u32,
    pub multi_turn: MultiTurn,
    pub agent: Agent,
    pub val_kwargs: ValKwargs,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            name: EngineName::Embedded,
            nnodes: 0,
            n_gpus_per_node: 8,
            gpu_memory_utilization: 0.5,
            n: 1,
            temperature: 1.0,
            top_k: -1,
            top_p: 1.0,
            min_p: 0.0,
            ignore_eos: false,
            stop: Vec::new(),
            seed: 42,
            dtype: None,
            max_num_seqs: 256,
            max_model_len: None,
            full_determinism: false,
            calculate_log_probs: true,
            log_prob_micro_batch_size_per_gpu: None,
            session_timeout_s: Some(3600.0),
            session_retries: 1,
            multi_turn: MultiTurn::default(),
            agent: Agent::default(),
            val_kwargs: ValKwargs::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineName {
    /// In this process.
    Embedded,
    Vllm,
    Sglang,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MultiTurn {
    pub enable: bool,
    pub max_assistant_turns: Option<u32>,
    pub max_parallel_calls: u32,
    pub tool_config_path: Option<String>,
    pub format: ToolFormat,
    /// Characters, as in verl.
    pub max_tool_response_length: u32,
    pub tool_response_truncate_side: TruncateSide,
    pub tool_timeout_s: f64,
}

impl Default for MultiTurn {
    fn default() -> Self {
        Self {
            enable: false,
            max_assistant_turns: None,
            max_parallel_calls: 1,
            tool_config_path: None,
            format: ToolFormat::Hermes,
            max_tool_response_length: 256,
            tool_response_truncate_side: TruncateSide::Middle,
            tool_timeout_s: 60.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolFormat {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Qwen, Hermes.
    Hermes,
    /// `{"name": …, "parameters": {…}}`, alone in its turn: Llama 3.1 and later.
    Llama3Json,
    /// `Action: …`, `Action Input: …`, `Observation: …`, in plain words; the template needs to know no tools.
    React,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TruncateSide {
    Left,
    Middle,
    Right,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    /// `single_turn_agent` or `tool_agent`; a row's `agent_name` wins.
    pub default_agent_loop: AgentLoop,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            default_agent_loop: AgentLoop::SingleTurnAgent,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentLoop {
    SingleTurnAgent,
    ToolAgent,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValKwargs {
    pub temperature: f64,
    pub top_k: i64,
    pub top_p: f64,
    pub n: u32,
}

impl Default for ValKwargs {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: -1,
            top_p: 1.0,
            n: 1,
        }
    }
}

/// Generation beside training (verl's `fully_async_policy`); of effect in mode `async`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AsyncTraining {
    /// Sessions in flight go on under new weights when they arrive; each token keeps its version and its log-prob.
    pub partial_rollout: bool,
}

impl Default for AsyncTraining {
    fn default() -> Self {
        Self {
            partial_rollout: true,
        }
    }
}
