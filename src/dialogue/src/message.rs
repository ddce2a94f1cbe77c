//! Chat messages in the `OpenAI` / Hugging Face form that chat templates read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message of a conversation. Unknown keys are kept in `extra` and reach the template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub role: String,
    /// Text, null (an assistant that only calls tools), or a list of `{type: text, text}` parts.
    #[serde(default)]
    pub content: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    #[serde(flatten)]
    pub extra: serde_json::Map<String, Value>,
}

/// A call as templates see it: `{"type": "function", "function": {"name", "arguments"}}`. Read from that form, or from the
/// bare `{"name", "arguments"}` of some data sets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "AnyToolCall")]
pub struct ToolCall {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub function: FunctionCall,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AnyToolCall {
    Wrapped {
        id: Option<String>,
        #[serde(rename = "type")]
        kind: Option<String>,
        function: FunctionCall,
    },
    Bare(FunctionCall),
}

impl From<AnyToolCall> for ToolCall {
    fn from(call: AnyToolCall) -> Self {
        let (id, kind, function) = match call {
            AnyToolCall::Wrapped { id, kind, function } => (id, kind, function),
            AnyToolCall::Bare(function) => (None, None, function),
        };
        Self {
            id,
            kind: kind.unwrap_or_else(|| "function".to_owned()),
            function,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    pub name: String,
    /// An object (or, from some data sets, JSON text).
    pub arguments: Value,
}

impl Message {
    /// A message of plain text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: Value::String(content.into()),
            tool_calls: Vec::new(),
            extra: serde_json::Map::new(),
        }
    }

    /// The text of this message; parts are joined, null is empty.
    pub fn text(&self) -> String {
        match &self.content {
            Value::String(text) => text.clone(),
            Value::Array(parts) => parts
                .iter()
                .filter_map(|part| part.get("text").and_then(Value::as_str))
                .collect(),
            _ => String::new(),
        }
    }
}
