//! Reward models: one number of a dialogue, learned from preferences or from another judge's scores.
//!
//! ```text
//!  preferences ─► examples ─► train (Bradley-Terry) ─┐
//!  scores      ─► examples ─► train (squares)       ─┴─► a directory in the Hugging Face layout ─► RewardModel ─► arm `model`
//! ```
//! Either a transformer, which reads prompt and answer through its own chat template and has its number at the last token; or a
//! linear head on a frozen sentence encoder, which reads the same as one text.

pub mod arm;
mod beside;
pub mod examples;
mod head;
mod linear;
pub mod report;
pub mod train;

use std::path::Path;

use dialogue::chat::{Chat, ChatError};
use dialogue::message::Message;
use serde_json::Map;
use tch::{Device, Kind, Tensor};

use crate::encoder::{self, Encoder, EncoderError, Words};
use crate::model::config::Head;
use crate::model::packed::PackedBatch;
use crate::model::parameters::Parameters;
use crate::model::pretrained::PretrainedError;
use crate::model::transformer::Transformer;

/// Packed tokens of one forward pass.
const FORWARD_TOKENS: usize = 8192;

#[derive(Debug, thiserror::Error)]
pub enum RewardModelError {
    #[error(transparent)]
    Weights(#[from] PretrainedError),
    #[error(transparent)]
    Chat(#[from] ChatError),
    #[error(transparent)]
    Encoder(#[from] EncoderError),
    #[error(
        "{directory} is {what}: it has no score head; make a reward model of it with `lathe reward train`"
    )]
    NoHead {
        directory: String,
        what: &'static str,
    },
    #[error("the dialogue has {tokens} tokens; this reward model takes {limit}")]
    TooLong { tokens: usize, limit: usize },
}

/// A reward model that judges.
#[derive(Debug)]
pub struct RewardModel {
    reader: Reader,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Transformer(Transformer),
    /// It has a head.
    Encoder(Box<Encoder>),
}

impl RewardModel {
    /// From a directory with weights and tokenizer. `max_tokens`: of a dialogue; None: what the model was made for.
    pub fn load(
        directory: &Path,
        max_tokens: Option<usize>,
        kind: Kind,
        device: Device,
    ) -> Result<Self, RewardModelError> {
        let no_head = |what| RewardModelError::NoHead {
            directory: directory.display().to_string(),
            what,
        };
        if encoder::is_encoder(directory) {
            let encoder = Encoder::load(directory, max_tokens, kind, device)?;
            if encoder.head().is_none() {
                return Err(no_head("a sentence encoder"));
            }
            return Ok(Self {
                reader: Reader::of_encoder(&encoder),
                body: Body::Encoder(Box::new(encoder)),
            });
        }
        let parameters = Parameters::load(directory, kind, device)?;
        if parameters.config().head == Head::Language {
            return Err(no_head("a language model"));
        }
        let most = parameters.config().max_position_embeddings as usize;
        let chat = Chat::load(directory, None, &Map::new())?;
        let limit = max_tokens.map_or(most, |limit| limit.min(most));
        Ok(Self {
            reader: Reader::new(chat, limit),
            body: Body::Transformer(Transformer::new(parameters, kind, false)),
        })
    }

    /// The words of a dialogue as it reads them, apart from it: for another thread.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// One number a dialogue.
    pub fn scores<T: AsRef<[u32]>>(&self, dialogues: &[T]) -> Vec<f64> {
        match &self.body {
            Body::Transformer(model) => scores_of(model, dialogues),
            Body::Encoder(encoder) => encoder.scores(dialogues).expect("it has a head"),
        }
    }
}

/// One number a dialogue, in passes of bounded size.
fn scores_of<T: AsRef<[u32]>>(model: &Transformer, dialogues: &[T]) -> Vec<f64> {
    let _no_grad = tch::no_grad_guard();
    let mut scores = Vec::with_capacity(dialogues.len());
    let mut start = 0;
    while start < dialogues.len() {
        let mut packed = PackedBatch::default();
        let mut last = Vec::new();
        let mut end = start;
        while end < dialogues.len()
            && (end == start || packed.len() + dialogues[end].as_ref().len() <= FORWARD_TOKENS)
        {
            let rows = &packed.push_group(dialogues[end].as_ref(), &[]).prompt;
            last.push(rows.end as i64 - 1);
            end += 1;
        }
        scores.extend(numbers(&scores_at(model, &packed, &last)));
        start = end;
    }
    scores
}

/// Turns dialogues into a reward model's tokens.
#[derive(Debug, Clone)]
pub struct Reader(Reads);

#[derive(Debug, Clone)]
enum Reads {
    Chat { chat: Chat, max_tokens: usize },
    Text(Words),
}

impl Reader {
    /// Through a chat template; a dialogue of more than `max_tokens` is refused.
    pub fn new(chat: Chat, max_tokens: usize) -> Self {
        Self(Reads::Chat { chat, max_tokens })
    }

    /// As one text, of which the end is taken where it is too long.
    pub fn of_encoder(encoder: &Encoder) -> Self {
        Self(Reads::Text(encoder.words().clone()))
    }

    /// Ids of a prompt with its answer, to the end of the turn.
    pub fn ids(&self, prompt: &[Message], answer: &str) -> Result<Vec<u32>, RewardModelError> {
        match &self.0 {
            Reads::Chat { chat, max_tokens } => {
                let mut messages = prompt.to_vec();
                messages.push(Message::new("assistant", answer));
                let ids = chat.sft_ids(&messages, &[])?.ids;
                if ids.len() > *max_tokens {
                    return Err(RewardModelError::TooLong {
                        tokens: ids.len(),
                        limit: *max_tokens,
                    });
                }
                Ok(ids)
            }
            Reads::Text(words) => {
                let mut text = String::new();
                for message in prompt {
                    text.push_str(&message.text());
                    text.push('\n');
                }
                text.push_str(answer);
                Ok(words.ids(&text)?)
            }
        }
    }
}

/// `[M]` f32: the number at each of these rows of a batch.
fn scores_at(model: &Transformer, packed: &PackedBatch, rows: &[i64]) -> Tensor {
    let hidden = model.hidden(packed);
    let rows = Tensor::from_slice(rows).to_device(hidden.rows.device());
    model.values(&hidden.rows.index_select(0, &rows))
}

/// A tensor of one dimension as numbers.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.to_device(Device::Cpu).to_kind(Kind::Double);
    Vec::try_from(flat.contiguous()).expect("a flat tensor on the CPU")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use dialogue::recipe::{TinyModel, write_tiny};

    use super::*;
    use crate::model::config::ModelConfig;

    /// Random weights under a score head, with a tokenizer.
    pub fn tiny_reward_model() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a folder");
        write_tiny(TinyModel::Calc, directory.path()).expect("a tokenizer and a config");
        let mut config = ModelConfig::load(directory.path()).expect("a config");
        config.num_layers = 2;
        config.json.insert("num_hidden_layers".to_owned(), 2.into());
        let config = Arc::new(config.with_head(Head::Reward));
        Parameters::random(&config, 7, Kind::Float, Device::Cpu)
            .save_pretrained(directory.path(), None)
            .expect("written");
        directory
    }

    #[test]
    fn a_language_model_is_no_reward_model() {
        let directory = tempfile::tempdir().expect("a folder");
        write_tiny(TinyModel::Calc, directory.path()).expect("a tokenizer and a config");
        let config = Arc::new(ModelConfig::load(directory.path()).expect("a config"));
        Parameters::random(&config, 7, Kind::Float, Device::Cpu)
            .save_pretrained(directory.path(), None)
            .expect("written");
        let error = RewardModel::load(directory.path(), None, Kind::Float, Device::Cpu)
            .expect_err("no score head");
        assert!(
            error.to_string().contains(
                "it has no score head; make a reward model of it with `lathe reward train`"
            ),
            "{error}"
        );
    }
}
