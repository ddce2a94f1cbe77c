//! What a dialogue starts from.

use std::collections::BTreeMap;
use std::sync::Arc;

use experiment::settings::AgentLoop;
use serde_json::Value;

use crate::message::Message;
use crate::score::Scorers;
use crate::tool::{ToolKwargs, ToolRegistry};

/// One row of a data set as a session needs it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Prompt {
    /// Of the row in its data set.
    pub row_index: u64,
    pub data_source: String,
    pub messages: Vec<Message>,
    pub ground_truth: Value,
    pub extra_info: Value,
    /// `single_turn_agent` or `tool_agent`; None: the experiment's.
    pub agent_name: Option<String>,
    /// By tool name.
    pub tools_kwargs: Arc<BTreeMap<String, ToolKwargs>>,
    /// Tools this row may call; None: all.
    pub tool_selection: Option<Vec<String>>,
}

/// What keeps a row from becoming a dialogue.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    #[error("row {row_index}: agent_name is `{name}`; expected single_turn_agent or tool_agent")]
    UnknownAgent { row_index: u64, name: String },
    #[error(transparent)]
    Tool(#[from] crate::tool::ToolConfigError),
    #[error("row {row_index}: {source}")]
    UnknownSource {
        row_index: u64,
        source: crate::score::UnknownSource,
    },
    #[error("row {row_index}: reward_model.ground_truth: {source}")]
    GroundTruth {
        row_index: u64,
        source: crate::score::ScoreError,
    },
    #[error("row {row_index}: the prompt cannot be rendered: {message}")]
    Render { row_index: u64, message: String },
    #[error(
        "row {row_index}: the prompt has {tokens} tokens, more than {key} = {limit}; raise it, or set data.filter_overlong_prompts"
    )]
    TooLong {
        row_index: u64,
        tokens: usize,
        key: &'static str,
        limit: usize,
    },
}

/// The loop a row runs in: its own `agent_name`, else the experiment's.
pub fn agent_loop(name: Option<&str>, default: AgentLoop) -> Option<AgentLoop> {
    match name {
        None => Some(default),
        Some("single_turn_agent") => Some(AgentLoop::SingleTurnAgent),
        Some("tool_agent") => Some(AgentLoop::ToolAgent),
        Some(_) => None,
    }
}

impl Prompt {
    pub(super) fn agent(&self, default: AgentLoop) -> Result<AgentLoop, PromptError> {
        let name = self.agent_name.as_deref();
        agent_loop(name, default).ok_or_else(|| PromptError::UnknownAgent {
            row_index: self.row_index,
            name: name.unwrap_or_default().to_owned(),
        })
    }

    /// The tools its dialogue may call; none in a single-turn loop.
    pub fn visible_tools(
        &self,
        tools: &ToolRegistry,
        default: AgentLoop,
    ) -> Result<ToolRegistry, PromptError> {
        match self.agent(default)? {
            AgentLoop::SingleTurnAgent => Ok(ToolRegistry::default()),
            AgentLoop::ToolAgent => Ok(tools.select(
                self.tool_selection.as_deref(),
                &format!("row {}", self.row_index),
            )?),
        }
    }

    /// Everything about a row that can be known without running it.
    pub fn check(
        &self,
        tools: &ToolRegistry,
        scorers: &Scorers,
        default: AgentLoop,
    ) -> Result<(), PromptError> {
        self.visible_tools(tools, default)?;
        let scorer =
            scorers
                .for_source(&self.data_source)
                .map_err(|source| PromptError::UnknownSource {
                    row_index: self.row_index,
                    source,
                })?;
        scorer
            .check(&self.ground_truth)
            .map_err(|source| PromptError::GroundTruth {
                row_index: self.row_index,
                source,
            })
    }
}
