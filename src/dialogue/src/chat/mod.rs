//! Conversations to token ids: the one path that the prompt filter, rollouts and supervised warm-up all take.
//!
//! ```text
//!  messages, tools ─► ChatTemplate ─► text ─► Tokenizer ─► prompt_ids        (a whole conversation)
//!                                                      ├─► turn_delta_ids    (what stands between two model turns)
//!                                                      └─► sft_ids           (ids and which of them a model should say)
//! ```
//! Special tokens inside messages stay plain characters, so neither a user nor a tool can end a turn or open one.

mod python;
mod react;
mod template;
#[cfg(test)]
mod tests;
mod untrusted;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use experiment::settings::ToolFormat;
use serde_json::{Map, Value, json};
use untrusted::Marks;

use crate::message::Message;
use crate::tokenizer::{Tokenizer, TokenizerError};

pub use template::ChatTemplate;

#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    #[error(
        "{directory}: has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); give one by actor_rollout_ref.model.custom_chat_template"
    )]
    NoTemplate { directory: PathBuf },
    #[error("{path}: {reason}")]
    Config { path: PathBuf, reason: String },
    #[error("the chat template of {origin} cannot be read: {reason}")]
    Template { origin: String, reason: String },
    #[error("the chat template of {origin} cannot render this conversation: {reason}")]
    Render { origin: String, reason: String },
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(
        "the chat template of {origin} does not write the assistant's own text, so the tokens after a model turn cannot be found"
    )]
    NoAssistantText { origin: String },
    #[error(
        "the chat template of {origin} writes message {index} differently from how the model would continue the generation prompt; demonstrations would train on other tokens than rollouts see"
    )]
    NotPrefixStable { origin: String, index: usize },
    #[error("the conversation has no assistant message, so there is nothing to learn from it")]
    NothingToLearn,
}

/// Token ids of a demonstration, and which of them the model should learn to say. Both are as long as each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demonstration {
    pub ids: Vec<u32>,
    /// True on the assistant's tokens, its end token included.
    pub mask: Vec<bool>,
}

/// A tokenizer with its chat template. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Chat {
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    /// Special tokens and the caller's own template variables.
    variables: Map<String, Value>,
    stop_ids: Vec<u32>,
    format: ToolFormat,
}

impl Chat {
    /// `kwargs` are template variables (`data.apply_chat_template_kwargs`); they win over the tokenizer's.
    pub fn new(
        tokenizer: Arc<Tokenizer>,
        template: ChatTemplate,
        kwargs: &Map<String, Value>,
    ) -> Self {
        let mut variables = tokenizer.special_tokens().clone();
        variables.extend(kwargs.clone());
        let mut chat = Self {
            stop_ids: tokenizer.eos_ids().to_vec(),
            tokenizer,
            template,
            variables,
            format: ToolFormat::Hermes,
        };
        if let Some(id) = chat.template_end_id()
            && !chat.stop_ids.contains(&id)
        {
            chat.stop_ids.push(id);
        }
        chat
    }

    /// Tokenizer and template of a Hugging Face directory. `custom_template` is Jinja text that replaces the directory's.
    pub fn load(
        directory: &Path,
        custom_template: Option<&str>,
        kwargs: &Map<String, Value>,
    ) -> Result<Self, ChatError> {
        let tokenizer = Arc::new(Tokenizer::load(directory)?);
        let template = match custom_template {
            Some(source) => {
                ChatTemplate::new(source, "actor_rollout_ref.model.custom_chat_template")?
            }
            None => ChatTemplate::load(directory)?,
        };
        Ok(Self::new(tokenizer, template, kwargs))
    }

    /// With tools shown in this form: as the template has it, or (`react`) in plain words.
    #[must_use]
    pub fn with_format(mut self, format: ToolFormat) -> Self {
        self.format = format;
        self
    }

    /// Messages and tools as the template gets them.
    fn presented<'a>(
        &self,
        messages: &'a [Message],
        tools: &'a [Value],
    ) -> (Cow<'a, [Message]>, &'a [Value]) {
        match self.format {
            ToolFormat::Hermes | ToolFormat::Llama3Json => (Cow::Borrowed(messages), tools),
            ToolFormat::React => (Cow::Owned(react::presented(messages, tools)), &[]),
        }
    }

    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// Ids at which a model turn ends: the model's end tokens and the one that this template writes after a turn.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// The conversation as text, as transformers renders it. `tools` are schemas (`{"type": "function", "function": …}`).
    pub fn render(
        &self,
        messages: &[Message],
        tools: &[Value],
        add_generation_prompt: bool,
    ) -> Result<String, ChatError> {
        let (messages, tools) = self.presented(messages, tools);
        self.template.render(
            &as_values(&messages),
            tools,
            add_generation_prompt,
            &self.variables,
        )
    }

    /// Ids of a conversation; with `add_generation_prompt`, up to where the model's turn begins.
    pub fn prompt_ids(
        &self,
        messages: &[Message],
        tools: &[Value],
        add_generation_prompt: bool,
    ) -> Result<Vec<u32>, ChatError> {
        let (messages, tools) = self.presented(messages, tools);
        let hidden = self.hide(&messages, tools);
        let text = hidden.render(self, 0..messages.len(), add_generation_prompt)?;
        Ok(hidden.marks.encode(&text)?)
    }

    /// The tokens between a model turn and the next one: `new` messages (tool results, a user's reply) as the template
    /// writes them after an assistant's turn, and the generation prompt. `last_id` is the last token of the model's turn:
    /// when it is not an end token (the turn was cut, or ended by a stop string), the result starts with the end token.
    pub fn turn_delta_ids(
        &self,
        last_id: Option<u32>,
        new: &[Message],
        tools: &[Value],
    ) -> Result<Vec<u32>, ChatError> {
        let ended = last_id.is_some_and(|id| self.stop_ids.contains(&id));
        // The tools stood in the prompt.
        let tools: &[Value] = match self.format {
            ToolFormat::React => &[],
            ToolFormat::Hermes | ToolFormat::Llama3Json => tools,
        };
        let (new, tools) = self.presented(new, tools);
        let hidden = self.hide(&new, tools);
        let marker = format!("{0}turn{0}", hidden.marks.fence());
        // Some templates want tool results to answer a call, some write an assistant's call without its content.
        let said = json!({"role": "assistant", "content": marker});
        let called = json!({"role": "assistant", "content": "", "tool_calls": [{
            "id": "call00000", "type": "function",
            "function": {"name": "tool", "arguments": {"argument": marker}}}]});
        let mut problem = None;
        for assistant in [said, called] {
            let mut messages = vec![json!({"role": "user", "content": "."}), assistant];
            messages.extend(hidden.messages.iter().cloned());
            let text = match self
                .template
                .render(&messages, &hidden.tools, true, &self.variables)
            {
                Ok(text) => text,
                Err(error) => {
                    problem.get_or_insert(error);
                    continue;
                }
            };
            let Some((_, tail)) = text.rsplit_once(&marker) else {
                continue;
            };
            let ids = hidden.marks.encode(tail)?;
            // The first special token after the turn's words is its end token, if the template writes one.
            let end = ids
                .iter()
                .position(|id| self.tokenizer.is_special(*id))
                .filter(|end| self.stop_ids.contains(&ids[*end]));
            return Ok(match end {
                Some(end) => ids[end + usize::from(ended)..].to_vec(),
                None => ids,
            });
        }
        Err(problem.unwrap_or_else(|| ChatError::NoAssistantText {
            origin: self.template.origin().to_owned(),
        }))
    }

    /// Ids of a demonstration, built turn by turn as a rollout is, up to the last assistant message's end token.
    pub fn sft_ids(
        &self,
        messages: &[Message],
        tools: &[Value],
    ) -> Result<Demonstration, ChatError> {
        let mut ids: Vec<u32> = Vec::new();
        let mut mask = Vec::new();
        let mut next = 0;
        let (messages, tools) = self.presented(messages, tools);
        let hidden = self.hide(&messages, tools);
        for (index, _) in messages
            .iter()
            .enumerate()
            .filter(|(_, message)| message.role == "assistant")
        {
            let before = hidden.render(self, 0..index, true)?;
            if ids.is_empty() {
                ids = hidden.marks.encode(&before)?;
            } else {
                ids.extend(self.turn_delta_ids(
                    ids.last().copied(),
                    &messages[next..index],
                    tools,
                )?);
            }
            mask.resize(ids.len(), false);
            let with_turn = hidden.render(self, 0..index + 1, false)?;
            let turn =
                with_turn
                    .strip_prefix(&before)
                    .ok_or_else(|| ChatError::NotPrefixStable {
                        origin: self.template.origin().to_owned(),
                        index,
                    })?;
            let mut turn = hidden.marks.encode(turn)?;
            if let Some(end) = turn.iter().position(|id| self.stop_ids.contains(id)) {
                turn.truncate(end + 1);
            }
            ids.extend(turn);
            mask.resize(ids.len(), true);
            next = index + 1;
        }
        if next == 0 {
            return Err(ChatError::NothingToLearn);
        }
        Ok(Demonstration { ids, mask })
    }

    fn hide(&self, messages: &[Message], tools: &[Value]) -> Hidden<'_> {
        let mut messages = as_values(messages);
        let mut tools = tools.to_vec();
        let mut marks = Marks::for_values(&self.tokenizer, &messages.iter().chain(&tools));
        messages
            .iter_mut()
            .chain(&mut tools)
            .for_each(|value| marks.hide(value));
        Hidden {
            marks,
            messages,
            tools,
        }
    }

    /// The special token that the template writes right after an assistant's words.
    fn template_end_id(&self) -> Option<u32> {
        let messages = [
            json!({"role": "user", "content": "."}),
            json!({"role": "assistant", "content": "\u{F0000}"}),
        ];
        let text = self
            .template
            .render(&messages, &[], false, &self.variables)
            .ok()?;
        let (_, tail) = text.rsplit_once('\u{F0000}')?;
        self.tokenizer
            .segments(tail)
            .into_iter()
            .find_map(|segment| match segment {
                crate::tokenizer::Segment::Special(id) => Some(id),
                crate::tokenizer::Segment::Text(_) => None,
            })
    }
}

/// A conversation whose own special tokens are hidden from the template.
struct Hidden<'a> {
    marks: Marks<'a>,
    messages: Vec<Value>,
    tools: Vec<Value>,
}

impl Hidden<'_> {
    fn render(
        &self,
        chat: &Chat,
        messages: std::ops::Range<usize>,
        add_generation_prompt: bool,
    ) -> Result<String, ChatError> {
        chat.template.render(
            &self.messages[messages],
            &self.tools,
            add_generation_prompt,
            &chat.variables,
        )
    }
}

fn as_values(messages: &[Message]) -> Vec<Value> {
    messages
        .iter()
        .map(|message| {
            serde_json::to_value(message)
                .expect("a message is strings and JSON values, which serialise")
        })
        .collect()
}
