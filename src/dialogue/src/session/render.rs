//! What a session asks of a chat template and tokenizer.

use serde_json::Value;

use crate::chat::Chat;
use crate::message::Message;

/// Messages to ids, ids to text. Errors are sentences for a person.
pub trait Renderer: Send + Sync {
    /// Ids of a conversation up to where the model's turn begins. `tools` are the schemas the model may call.
    fn prompt_ids(&self, messages: &[Message], tools: &[Value]) -> Result<Vec<u32>, String>;

    /// The ids between a model turn that ended in `last_id` and the next one: `new` messages and the generation prompt. When
    /// `last_id` is no end token (the turn was cut, or ended by a stop string) they begin with the missing end token.
    fn turn_delta_ids(
        &self,
        last_id: Option<u32>,
        new: &[Message],
        tools: &[Value],
    ) -> Result<Vec<u32>, String>;

    /// The text of a model turn without special tokens.
    fn decode(&self, ids: &[u32]) -> Result<String, String>;
}

impl Renderer for Chat {
    fn prompt_ids(&self, messages: &[Message], tools: &[Value]) -> Result<Vec<u32>, String> {
        Chat::prompt_ids(self, messages, tools, true).map_err(|error| error.to_string())
    }

    fn turn_delta_ids(
        &self,
        last_id: Option<u32>,
        new: &[Message],
        tools: &[Value],
    ) -> Result<Vec<u32>, String> {
        Chat::turn_delta_ids(self, last_id, new, tools).map_err(|error| error.to_string())
    }

    fn decode(&self, ids: &[u32]) -> Result<String, String> {
        self.tokenizer()
            .decode(ids, true)
            .map_err(|error| error.to_string())
    }
}
