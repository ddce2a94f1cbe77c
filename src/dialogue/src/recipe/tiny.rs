//! Tiny models for the recipes: a tokenizer that any text can be encoded with, in which everything a task always says the
//! same way (a whole tool call up to its argument) is one token and every digit is one token; a short `ChatML` template
//! with hermes tool calls; and the `config.json` of a 0.8 M parameter Qwen2.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::{AddedToken, SplitDelimiterBehavior};

use crate::data::DataError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TinyModel {
    Calc,
    Sort,
    Guess,
}

/// After `<|im_end|>` comes the next message at once, without `ChatML`'s usual line break: one token less each.
const TEMPLATE: &str = r#"{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.role == 'tool' %}
        {{- '<tool_response>\n' + message.content + '\n</tool_response>' }}
    {%- else %}
        {{- message.content or '' }}
        {%- for call in message.tool_calls or [] %}
            {%- if message.content or not loop.first %}{{- '\n' }}{%- endif %}
            {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}\n</tool_call>' }}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}"#;

const QWEN2_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const SPECIALS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

impl TinyModel {
    pub const ALL: [Self; 3] = [Self::Calc, Self::Sort, Self::Guess];

    /// Name of its directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calc => "calc-tiny",
            Self::Sort => "sort-tiny",
            Self::Guess => "guess-tiny",
        }
    }

    /// Texts that are one token each.
    fn phrases(self) -> Vec<&'static str> {
        let mut phrases = vec!["system\n", "user\n", "assistant\n"];
        let tool = ["tool\n<tool_response>\n", "\n</tool_response>"];
        match self {
            Self::Calc => {
                phrases.extend(tool);
                phrases.extend([
                    "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"",
                    "\"}}\n</tool_call>",
                ]);
            }
            Self::Sort => phrases.push("sort "),
            Self::Guess => {
                phrases.extend(tool);
                phrases.extend([
                    "<tool_call>\n{\"name\": \"guess\", \"arguments\": {\"number\": ",
                    "}}\n</tool_call>",
                    "higher",
                    "lower",
                    "correct",
                ]);
            }
        }
        phrases
    }

    /// Byte-level BPE without merges: single bytes, and the phrases as added tokens, which are found before anything is
    /// split. Normaliser and split are Qwen2's, because transformers puts those in for any tokenizer of a Qwen2 model.
    fn tokenizer(self) -> tokenizers::Result<tokenizers::Tokenizer> {
        let bytes: BTreeSet<char> = ByteLevel::alphabet().into_iter().collect();
        let vocabulary: Vocab = bytes.into_iter().map(String::from).zip(0..).collect();
        let model = BPE::builder()
            .vocab_and_merges(vocabulary, Vec::new())
            .build()?;
        let split = Split::new(
            SplitPattern::Regex(QWEN2_SPLIT.to_owned()),
            SplitDelimiterBehavior::Isolated,
            false,
        )?;
        let byte_level = ByteLevel::new(false, false, false);
        let mut tokenizer = tokenizers::Tokenizer::new(model);
        tokenizer
            .with_normalizer(Some(NFC))?
            .with_pre_tokenizer(Some(Sequence::new(vec![
                PreTokenizerWrapper::Split(split),
                PreTokenizerWrapper::ByteLevel(byte_level),
            ])))
            .with_decoder(Some(byte_level));
        let phrases = self.phrases();
        tokenizer.add_tokens(
            phrases
                .into_iter()
                .map(|phrase| AddedToken::from(phrase, false).normalized(false)),
        )?;
        tokenizer.add_special_tokens(SPECIALS.map(|text| AddedToken::from(text, true)))?;
        Ok(tokenizer)
    }
}

/// Writes `tokenizer.json`, `tokenizer_config.json`, `generation_config.json` and `config.json`. Weights are not written:
/// `lathe sft` makes them.
pub fn write_tiny(model: TinyModel, directory: &Path) -> Result<(), DataError> {
    let failed = |reason: String| DataError::Write {
        path: directory.to_owned(),
        reason,
    };
    std::fs::create_dir_all(directory).map_err(|error| failed(error.to_string()))?;
    let tokenizer = model
        .tokenizer()
        .map_err(|error| failed(error.to_string()))?;
    let text = tokenizer
        .to_string(true)
        .map_err(|error| failed(error.to_string()))?;
    let id = |text: &str| tokenizer.token_to_id(text);
    let [pad, _, end] = SPECIALS;
    let write = |name: &str, text: String| {
        std::fs::write(directory.join(name), text + "\n").map_err(|error| failed(error.to_string()))
    };
    let write_json = |name: &str, value: &Value| write(name, format!("{value:#}"));
    write("tokenizer.json", text)?;
    write_json(
        "tokenizer_config.json",
        &json!({
            "tokenizer_class": "Qwen2Tokenizer",
            "clean_up_tokenization_spaces": false,
            "add_prefix_space": false,
            "bos_token": null,
            "unk_token": null,
            "model_max_length": 512,
            "padding_side": "left",
            "eos_token": end,
            "pad_token": pad,
            "chat_template": TEMPLATE,
        }),
    )?;
    write_json(
        "generation_config.json",
        &json!({"eos_token_id": [id(end), id(pad)], "pad_token_id": id(pad), "do_sample": true}),
    )?;
    write_json(
        "config.json",
        &json!({
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "vocab_size": tokenizer.get_vocab_size(true),
            "hidden_size": 128,
            "intermediate_size": 384,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "hidden_act": "silu",
            "max_position_embeddings": 512,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-6,
            "initializer_range": 0.06,
            "attention_dropout": 0.0,
            "tie_word_embeddings": true,
            "use_sliding_window": false,
            "use_cache": true,
            "torch_dtype": "float32",
            "bos_token_id": null,
            "eos_token_id": id(end),
            "pad_token_id": id(pad),
        }),
    )
}
