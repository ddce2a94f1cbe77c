//! The tokenizer inside of the file, as Hugging Face's `tokenizer.json` and `tokenizer_config.json`. Byte-level BPE only, which
//! is what the models here have.

use serde_json::{Map, Value as Json, json};

use crate::error::GgufError;
use crate::file::GgufFile;
use crate::value::Value;

/// `tokenizer.ggml.token_type` of tokens that are no text: `<|im_end|>`.
const CONTROL: u64 = 3;
/// Of tokens that somebody added, which are text.
const USER_DEFINED: u64 = 4;

/// How text is cut before BPE, by llama.cpp's names (`tokenizer.ggml.pre`); the patterns are those of the models' own
/// `tokenizer.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Gpt2,
    /// Digits one by one, then as GPT-2.
    Digits,
    Qwen2,
    Llama3,
}

const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl Cut {
    fn of(name: &str) -> Option<Self> {
        match name {
            "gpt-2" | "default" => Some(Self::Gpt2),
            "smollm" => Some(Self::Digits),
            "qwen2" => Some(Self::Qwen2),
            "llama-bpe" => Some(Self::Llama3),
            _ => None,
        }
    }

    fn json(self) -> Json {
        let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
        let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let sequence = |steps: [Json; 2]| json!({"type": "Sequence", "pretokenizers": steps});
        match self {
            Self::Gpt2 => bytes(true),
            Self::Digits => sequence([
                json!({"type": "Digits", "individual_digits": true}),
                bytes(true),
            ]),
            Self::Qwen2 => sequence([split(QWEN2), bytes(false)]),
            Self::Llama3 => sequence([split(LLAMA3), bytes(false)]),
        }
    }
}

/// The two files.
#[derive(Debug)]
pub struct Files {
    pub tokenizer: Json,
    pub config: Map<String, Json>,
    /// Ids that end a turn.
    pub ends: Vec<u64>,
    pub start: Option<u64>,
    pub pad: Option<u64>,
}

pub fn files(file: &GgufFile) -> Result<Files, GgufError> {
    let find = |key: &str| file.metadata.get(&format!("tokenizer.{key}"));
    let missing = |key: &str, expected: &'static str| GgufError::Missing {
        path: file.path().to_owned(),
        key: format!("tokenizer.{key}"),
        expected,
    };
    let unfit = |key: &str, found: String, expected: &str| GgufError::Unfit {
        path: file.path().to_owned(),
        key: format!("tokenizer.{key}"),
        found,
        expected: expected.to_owned(),
    };
    let model = find("ggml.model").and_then(Value::text).unwrap_or("none");
    if model != "gpt2" {
        let expected =
            "gpt2 (byte-level BPE); take the tokenizer of the Hugging Face model instead";
        return Err(unfit("ggml.model", model.to_owned(), expected));
    }
    let pre = find("ggml.pre").and_then(Value::text).unwrap_or("default");
    let cut = Cut::of(pre).ok_or_else(|| {
        let expected = "gpt-2, default, smollm, qwen2 or llama-bpe";
        unfit("ggml.pre", pre.to_owned(), expected)
    })?;
    let texts = |key: &str| -> Result<Vec<&str>, GgufError> {
        find(key)
            .and_then(Value::list)
            .and_then(|list| list.iter().map(Value::text).collect())
            .ok_or_else(|| missing(key, "a list of texts"))
    };
    let tokens = texts("ggml.tokens")?;
    let merges = texts("ggml.merges")?;
    let id = |key: &str| find(key).and_then(Value::integer);
    let text_of = |id: u64| tokens.get(id as usize).copied();
    let mut vocabulary = Map::new();
    for (id, token) in tokens.iter().enumerate() {
        vocabulary.insert((*token).to_owned(), json!(id));
    }
    if vocabulary.len() != tokens.len() {
        let found = format!("{} tokens, {} different", tokens.len(), vocabulary.len());
        return Err(unfit("ggml.tokens", found, "each token once"));
    }
    let pairs: Vec<Vec<&str>> = merges
        .iter()
        .map(|merge| merge.splitn(2, ' ').collect())
        .collect();
    if let Some(odd) = pairs.iter().position(|pair| pair.len() != 2) {
        let found = format!("{:?} as number {odd}", merges[odd]);
        return Err(unfit(
            "ggml.merges",
            found,
            "two tokens with a space between them",
        ));
    }
    let types: Vec<u64> = find("ggml.token_type")
        .and_then(Value::list)
        .into_iter()
        .flatten()
        .map(|kind| kind.integer().unwrap_or(0))
        .collect();
    let added: Vec<Json> = types
        .iter()
        .enumerate()
        .filter(|(at, kind)| [CONTROL, USER_DEFINED].contains(kind) && *at < tokens.len())
        .map(|(at, kind)| {
            json!({
                "id": at, "content": tokens[at], "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": *kind == CONTROL,
            })
        })
        .collect();
    let normalizer = if cut == Cut::Qwen2 {
        json!({"type": "NFC"})
    } else {
        Json::Null
    };
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": cut.json(),
        "post_processor": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": cut == Cut::Llama3, "vocab": vocabulary, "merges": pairs,
        },
    });
    let start = id("ggml.bos_token_id");
    let pad = id("ggml.padding_token_id");
    let end =
        id("ggml.eos_token_id").ok_or_else(|| missing("ggml.eos_token_id", "a token's id"))?;
    let mut ends = vec![end];
    ends.extend(id("ggml.eot_token_id").filter(|other| *other != end));
    let mut config = Map::new();
    config.insert(
        "tokenizer_class".to_owned(),
        json!("PreTrainedTokenizerFast"),
    );
    config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
    let special = [
        ("bos_token", start),
        ("eos_token", Some(end)),
        ("pad_token", pad),
        ("unk_token", id("ggml.unknown_token_id")),
    ];
    for (name, id) in special {
        if let Some(text) = id.and_then(text_of) {
            config.insert(name.to_owned(), json!(text));
        }
    }
    if let Some(template) = find("chat_template").and_then(Value::text) {
        config.insert("chat_template".to_owned(), json!(template));
    }
    Ok(Files {
        tokenizer,
        config,
        ends,
        start,
        pad,
    })
}
