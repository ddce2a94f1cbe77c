//! Text to token ids and back, as the Hugging Face directory of a model says.
//!
//! Text that people or tools wrote is *untrusted*: it never becomes a special token, so a tool result that contains
//! `<|im_end|>` cannot end a turn. Text that a chat template wrote is parsed for special tokens.

mod special;

use std::path::{Path, PathBuf};

use serde_json::Value;
use special::Specials;

pub use special::Segment;

#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    #[error(
        "{path}: cannot be read: {source}; a model directory needs tokenizer.json (a Hugging Face fast tokenizer)"
    )]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path}: is not a tokenizer the `tokenizers` library can load: {reason}")]
    Tokenizer { path: PathBuf, reason: String },
    #[error("{path}: is not valid JSON: {reason}")]
    Json { path: PathBuf, reason: String },
    #[error("{path}: {key} is {given}; expected {expected}")]
    Value {
        path: PathBuf,
        key: &'static str,
        given: String,
        expected: &'static str,
    },
    #[error("the tokenizer of {path} cannot encode {text:?}: {reason}")]
    Encode {
        path: PathBuf,
        text: String,
        reason: String,
    },
    #[error("the tokenizer of {path} cannot decode {count} ids: {reason}")]
    Decode {
        path: PathBuf,
        count: usize,
        reason: String,
    },
}

/// How to read special tokens in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Special tokens in the text become their ids: text that a template wrote.
    Template,
    /// Special tokens in the text are plain characters: text that people or tools wrote.
    Plain,
}

/// A tokenizer with the special ids its directory names. Cheap to share behind an `Arc`.
pub struct Tokenizer {
    directory: PathBuf,
    parsed: tokenizers::Tokenizer,
    /// The same tokenizer with special tokens read as plain text.
    plain: tokenizers::Tokenizer,
    specials: Specials,
    special_tokens: serde_json::Map<String, Value>,
    eos_ids: Vec<u32>,
    bos_id: Option<u32>,
    pad_id: Option<u32>,
    config: serde_json::Map<String, Value>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Tokenizer")
            .field("directory", &self.directory)
            .field("vocabulary_size", &self.vocabulary_size())
            .field("eos_ids", &self.eos_ids)
            .finish_non_exhaustive()
    }
}

const SPECIAL_KEYS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

impl Tokenizer {
    /// Loads `tokenizer.json` and, where present, `tokenizer_config.json`, `special_tokens_map.json`,
    /// `generation_config.json` and `config.json` of a Hugging Face directory.
    pub fn load(directory: &Path) -> Result<Self, TokenizerError> {
        let path = directory.join("tokenizer.json");
        let bytes = std::fs::read(&path).map_err(|source| TokenizerError::Read {
            path: path.clone(),
            source,
        })?;
        let mut parsed = tokenizers::Tokenizer::from_bytes(&bytes).map_err(|error| {
            TokenizerError::Tokenizer {
                path: path.clone(),
                reason: error.to_string(),
            }
        })?;
        // A length limit or padding stored in the file would change ids behind our back.
        parsed.with_padding(None);
        parsed
            .with_truncation(None)
            .map_err(|error| TokenizerError::Tokenizer {
                path,
                reason: error.to_string(),
            })?;
        let config = object(&directory.join("tokenizer_config.json"))?.unwrap_or_default();
        let map = object(&directory.join("special_tokens_map.json"))?.unwrap_or_default();
        let mut special_tokens = serde_json::Map::new();
        for key in SPECIAL_KEYS {
            if let Some(text) = special_text(config.get(key)).or_else(|| special_text(map.get(key)))
            {
                special_tokens.insert(key.to_owned(), Value::String(text));
            }
        }
        let named = |key: &str| {
            special_tokens
                .get(key)
                .and_then(Value::as_str)
                .and_then(|text| parsed.token_to_id(text))
        };
        let (bos_id, pad_id, eos_id) = (named("bos_token"), named("pad_token"), named("eos_token"));
        let mut eos_ids = Vec::new();
        for file in ["generation_config.json", "config.json"] {
            let path = directory.join(file);
            if let Some(settings) = object(&path)? {
                eos_ids = id_list(settings.get("eos_token_id"), &path)?;
            }
            if !eos_ids.is_empty() {
                break;
            }
        }
        // The tokenizer's own end token comes first: templates write that one.
        if let Some(id) = eos_id {
            eos_ids.retain(|other| *other != id);
            eos_ids.insert(0, id);
        }
        let mut plain = parsed.clone();
        plain.set_encode_special_tokens(true);
        Ok(Self {
            directory: directory.to_owned(),
            specials: Specials::of(&parsed),
            parsed,
            plain,
            special_tokens,
            eos_ids,
            bos_id,
            pad_id,
            config,
        })
    }

    /// The directory it was loaded from.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// `tokenizer_config.json`; empty when there is none.
    pub fn config(&self) -> &serde_json::Map<String, Value> {
        &self.config
    }

    /// `bos_token`, `eos_token`, … as text, as chat templates read them.
    pub fn special_tokens(&self) -> &serde_json::Map<String, Value> {
        &self.special_tokens
    }

    /// Ids that end a turn: the tokenizer's end token first, then those of `generation_config.json`.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos_ids
    }

    pub fn bos_id(&self) -> Option<u32> {
        self.bos_id
    }

    /// None when no padding token is named; padded positions are masked, so any id will do there.
    pub fn pad_id(&self) -> Option<u32> {
        self.pad_id
    }

    /// One more than the largest id in use, added tokens included (a model's embedding may have more rows).
    pub fn vocabulary_size(&self) -> usize {
        let largest = self.parsed.get_vocab(true).into_values().max();
        largest.map_or(0, |id| id as usize + 1)
    }

    /// The id of a token by its text in the vocabulary.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.parsed.token_to_id(token)
    }

    /// The vocabulary's text of an id (byte-level tokenizers spell bytes in their own alphabet; see [`Self::decode`]).
    pub fn token(&self, id: u32) -> Option<String> {
        self.parsed.id_to_token(id)
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.specials.contains(id)
    }

    /// Special tokens and their ids, longest text first.
    pub fn specials(&self) -> impl Iterator<Item = (&str, u32)> {
        self.specials.iter()
    }

    /// Ids of a text. `add_special_tokens` adds what the tokenizer's post-processor adds (Llama: the begin token);
    /// rendered chat templates already contain it.
    pub fn encode(
        &self,
        text: &str,
        trust: Trust,
        add_special_tokens: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        let tokenizer = match trust {
            Trust::Template => &self.parsed,
            Trust::Plain => &self.plain,
        };
        tokenizer
            .encode_fast(text, add_special_tokens)
            .map(|encoding| encoding.get_ids().to_vec())
            .map_err(|error| TokenizerError::Encode {
                path: self.directory.clone(),
                text: text.chars().take(80).collect(),
                reason: error.to_string(),
            })
    }

    /// Ids of a text that people or tools wrote: never a special token.
    pub fn encode_untrusted(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let ids = self.encode(text, Trust::Plain, false)?;
        if !ids.iter().any(|id| self.is_special(*id)) {
            return Ok(ids);
        }
        // The model's own vocabulary has the special token as an ordinary entry too: cut each one after its first character.
        let mut ids = Vec::new();
        for piece in self.specials.cut(text) {
            ids.extend(self.encode(piece, Trust::Plain, false)?);
        }
        ids.retain(|id| !self.is_special(*id));
        Ok(ids)
    }

    /// The text split at its special tokens, in order.
    pub fn segments<'a>(&self, text: &'a str) -> Vec<Segment<'a>> {
        self.specials.split(text)
    }

    /// Text of ids. Ids outside the vocabulary give nothing.
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, TokenizerError> {
        self.parsed
            .decode(ids, skip_special_tokens)
            .map_err(|error| TokenizerError::Decode {
                path: self.directory.clone(),
                count: ids.len(),
                reason: error.to_string(),
            })
    }
}

/// A JSON object from a file; None when there is no such file.
fn object(path: &Path) -> Result<Option<serde_json::Map<String, Value>>, TokenizerError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(TokenizerError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| TokenizerError::Json {
            path: path.to_owned(),
            reason: error.to_string(),
        })
}

/// `"<eos>"` or `{"content": "<eos>", …}`.
fn special_text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Object(token) => token.get("content")?.as_str().map(str::to_owned),
        _ => None,
    }
}

/// `eos_token_id`: an id, a list of ids, or null.
fn id_list(value: Option<&Value>, path: &Path) -> Result<Vec<u32>, TokenizerError> {
    let id = |value: &Value| {
        value
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| TokenizerError::Value {
                path: path.to_owned(),
                key: "eos_token_id",
                given: value.to_string(),
                expected: "a token id or a list of token ids",
            })
    };
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(ids)) => ids.iter().map(id).collect(),
        Some(value) => Ok(vec![id(value)?]),
    }
}
