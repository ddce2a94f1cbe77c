//! One typed row of a data set, in verl's schema.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::DataError;
use super::json::{brief, without_padding};
use crate::message::Message;
use crate::tool::ToolKwargs;

/// Where a row lies. `row` counts from 0 in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub path: Arc<Path>,
    pub row: u64,
}

/// What a row must have for the work at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// `prompt`, `data_source` and `reward_model`: rows to sample from.
    Prompts,
    /// `messages` with an assistant's turn: rows to imitate.
    Demonstrations,
    /// `prompt`, and `chosen` with `rejected` or a `label`.
    Preferences,
    /// Whatever is there; only its types are checked.
    Anything,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewardModel {
    /// `rule` or `model`.
    pub style: String,
    /// Whatever the scorer compares with.
    pub ground_truth: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub place: Place,
    /// Number of this row in its data set, over all its files: what the cursor counts.
    pub index: u64,
    /// Selects the scorer and the `val-core/<data_source>` metrics; empty when absent.
    pub data_source: String,
    pub ability: Option<String>,
    /// `single_turn_agent` or `tool_agent`; None: the experiment's default.
    pub agent_name: Option<String>,
    pub prompt: Vec<Message>,
    /// A demonstration: a whole dialogue.
    pub messages: Vec<Message>,
    pub reward_model: Option<RewardModel>,
    /// As in the file, padding removed.
    pub extra_info: Map<String, Value>,
    /// Per tool name, from `extra_info.tools_kwargs`.
    pub tools_kwargs: BTreeMap<String, ToolKwargs>,
    /// Names of the tools this row may use, from `extra_info.tool_selection`; None: all.
    pub tool_selection: Option<Vec<String>>,
    /// Tool schemas of this row's own (`tools`: a list, or JSON text of one); empty: the experiment's.
    pub tools: Vec<Value>,
    pub chosen: Option<Vec<Message>>,
    pub rejected: Option<Vec<Message>>,
    pub response: Option<Vec<Message>>,
    /// A preference or thumbs label of `response`.
    pub label: Option<Value>,
}

impl Row {
    /// Reads a row from JSON. `prompt_key` names the prompt's column (`data.prompt_key`).
    pub fn read(
        mut fields: Map<String, Value>,
        place: &Place,
        prompt_key: &str,
        need: Need,
    ) -> Result<Self, DataError> {
        let reader = Reader { place };
        let mut take = |key: &str| fields.remove(key).and_then(without_padding);
        let prompt = take(prompt_key)
            .map(|value| reader.messages(prompt_key, value))
            .transpose()?
            .unwrap_or_default();
        let messages = take("messages")
            .map(|value| reader.messages("messages", value))
            .transpose()?
            .unwrap_or_default();
        let mut response = |key: &str| {
            take(key)
                .map(|value| reader.response(key, value))
                .transpose()
        };
        let (chosen, rejected) = (response("chosen")?, response("rejected")?);
        let answer = response("response")?;
        let data_source = take("data_source")
            .map(|value| reader.text("data_source", value))
            .transpose()?;
        let ability = take("ability")
            .map(|value| reader.text("ability", value))
            .transpose()?;
        let agent_name = take("agent_name")
            .map(|value| reader.text("agent_name", value))
            .transpose()?;
        let reward_model = take("reward_model")
            .map(|value| reader.reward_model(value))
            .transpose()?;
        let extra_info = take("extra_info")
            .map(|value| reader.object("extra_info", value))
            .transpose()?
            .unwrap_or_default();
        let tools = take("tools")
            .map(|value| reader.tools(value))
            .transpose()?
            .unwrap_or_default();
        let label = take("label");
        let row = Self {
            index: place.row,
            data_source: data_source.clone().unwrap_or_default(),
            ability,
            agent_name,
            prompt,
            messages,
            reward_model,
            tools_kwargs: reader.tools_kwargs(&extra_info)?,
            tool_selection: reader.tool_selection(&extra_info)?,
            extra_info,
            tools,
            chosen,
            rejected,
            response: answer,
            label,
            place: place.clone(),
        };
        let missing = |column: &str, expected| Err(reader.wrong(column, "missing", expected));
        match need {
            Need::Prompts | Need::Preferences if row.prompt.is_empty() => {
                return missing(prompt_key, "a list of messages {role, content}");
            }
            Need::Prompts if data_source.is_none() => {
                return missing("data_source", "text that names the data's source");
            }
            Need::Prompts if row.reward_model.is_none() => {
                return missing("reward_model", "a struct {style, ground_truth}");
            }
            Need::Demonstrations
                if !row
                    .messages
                    .iter()
                    .any(|message| message.role == "assistant") =>
            {
                return missing("messages", "a dialogue with an assistant's turn");
            }
            Need::Preferences
                if (row.chosen.is_none() || row.rejected.is_none()) && row.label.is_none() =>
            {
                return missing("chosen", "chosen and rejected answers, or a label");
            }
            _ => {}
        }
        Ok(row)
    }

    /// Schemas this row's prompt is rendered with: its own, else those of `registry` that it may use, by function name.
    pub fn tool_schemas(&self, registry: &[Value]) -> Vec<Value> {
        if !self.tools.is_empty() {
            return self.tools.clone();
        }
        registry
            .iter()
            .filter(|schema| {
                let name = schema["function"]["name"].as_str().unwrap_or_default();
                self.tool_selection
                    .as_ref()
                    .is_none_or(|selection| selection.iter().any(|selected| selected == name))
            })
            .cloned()
            .collect()
    }
}

/// Checks values of one row.
pub(crate) struct Reader<'a> {
    pub place: &'a Place,
}

impl Reader<'_> {
    pub fn wrong(
        &self,
        column: impl Into<String>,
        given: impl Into<String>,
        expected: &'static str,
    ) -> DataError {
        DataError::Row {
            path: self.place.path.to_path_buf(),
            row: self.place.row,
            column: column.into(),
            given: given.into(),
            expected,
        }
    }

    pub fn text(&self, column: &str, value: Value) -> Result<String, DataError> {
        match value {
            Value::String(text) => Ok(text),
            other => Err(self.wrong(column, brief(&other), "text")),
        }
    }

    fn object(&self, column: &str, value: Value) -> Result<Map<String, Value>, DataError> {
        match value {
            Value::Object(fields) => Ok(fields),
            other => Err(self.wrong(column, brief(&other), "a struct")),
        }
    }

    pub fn messages(&self, column: &str, value: Value) -> Result<Vec<Message>, DataError> {
        let expected = "a list of messages {role, content}";
        let Value::Array(items) = value else {
            return Err(self.wrong(column, brief(&value), expected));
        };
        if items.is_empty() {
            return Err(self.wrong(column, "an empty list", expected));
        }
        items
            .into_iter()
            .enumerate()
            .map(|(index, item)| self.message(&format!("{column}[{index}]"), item))
            .collect()
    }

    fn message(&self, column: &str, value: Value) -> Result<Message, DataError> {
        let Some(Value::Object(mut fields)) = without_padding(value) else {
            return Err(self.wrong(column, "not a struct", "a message {role, content}"));
        };
        let Some(Value::String(_)) = fields.get("role") else {
            let given = fields
                .get("role")
                .map_or_else(|| "missing".to_owned(), brief);
            return Err(self.wrong(
                format!("{column}.role"),
                given,
                "text such as user or assistant",
            ));
        };
        match fields.get("content") {
            Some(Value::String(_) | Value::Array(_)) => {}
            // An assistant that only calls tools says nothing.
            None if fields.contains_key("tool_calls") => {}
            None => {
                return Err(self.wrong(
                    format!("{column}.content"),
                    "missing",
                    "text or a list of parts",
                ));
            }
            Some(other) => {
                let given = brief(other);
                return Err(self.wrong(
                    format!("{column}.content"),
                    given,
                    "text or a list of parts",
                ));
            }
        }
        // An empty list of calls is an absent one; OpenAI's wire form has arguments as JSON text, templates want the object.
        if let Some(Value::Array(calls)) = fields.get_mut("tool_calls") {
            for call in calls.iter_mut() {
                let function = match call.get("function") {
                    Some(_) => &mut call["function"],
                    None => call,
                };
                match function.get("arguments") {
                    Some(Value::String(text)) => {
                        if let Ok(Value::Object(arguments)) = serde_json::from_str(text) {
                            function["arguments"] = Value::Object(arguments);
                        }
                    }
                    None if function.get("name").is_some() => {
                        function["arguments"] = Value::Object(Map::new());
                    }
                    _ => {}
                }
            }
        }
        serde_json::from_value(Value::Object(fields)).map_err(|error| {
            self.wrong(
                column,
                format!("not a message ({error})"),
                "{role, content, tool_calls: [{function: {name, arguments}}]}",
            )
        })
    }

    /// An answer as text or as messages.
    fn response(&self, column: &str, value: Value) -> Result<Vec<Message>, DataError> {
        match value {
            Value::String(text) => Ok(vec![Message::new("assistant", text)]),
            other => self.messages(column, other),
        }
    }

    fn reward_model(&self, value: Value) -> Result<RewardModel, DataError> {
        let mut fields = self.object("reward_model", value)?;
        let Some(ground_truth) = fields.remove("ground_truth") else {
            return Err(self.wrong(
                "reward_model.ground_truth",
                "missing",
                "what the scorer compares with",
            ));
        };
        let style = match fields.remove("style") {
            None => "rule".to_owned(),
            Some(style) => self.text("reward_model.style", style)?,
        };
        Ok(RewardModel {
            style,
            ground_truth,
        })
    }

    /// A list of schemas; a struct column cannot hold schemas that differ, so JSON text is read too.
    fn tools(&self, value: Value) -> Result<Vec<Value>, DataError> {
        let expected = "a list of tool schemas, or JSON text of one";
        let value = match value {
            Value::String(text) => serde_json::from_str(&text)
                .map_err(|error| self.wrong("tools", format!("not JSON ({error})"), expected))?,
            other => other,
        };
        match value {
            Value::Array(items) => Ok(items.into_iter().filter_map(without_padding).collect()),
            other => Err(self.wrong("tools", brief(&other), expected)),
        }
    }

    fn tools_kwargs(
        &self,
        extra_info: &Map<String, Value>,
    ) -> Result<BTreeMap<String, ToolKwargs>, DataError> {
        let column = "extra_info.tools_kwargs";
        let Some(value) = extra_info.get("tools_kwargs") else {
            return Ok(BTreeMap::new());
        };
        self.object(column, value.clone())?
            .into_iter()
            .map(|(tool, kwargs)| {
                let given = brief(&kwargs);
                let kwargs = serde_json::from_value(kwargs).map_err(|_| {
                    self.wrong(
                        format!("{column}.{tool}"),
                        given,
                        "a struct of create_kwargs, execute_kwargs, calc_reward_kwargs, release_kwargs, each a struct",
                    )
                })?;
                Ok((tool, kwargs))
            })
            .collect()
    }

    fn tool_selection(
        &self,
        extra_info: &Map<String, Value>,
    ) -> Result<Option<Vec<String>>, DataError> {
        let Some(value) = extra_info.get("tool_selection") else {
            return Ok(None);
        };
        serde_json::from_value(value.clone())
            .map(Some)
            .map_err(|_| {
                self.wrong(
                    "extra_info.tool_selection",
                    brief(value),
                    "a list of tool names",
                )
            })
    }
}
