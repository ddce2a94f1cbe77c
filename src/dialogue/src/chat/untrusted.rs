//! Keeps special tokens that people or tools wrote apart from those that the template writes.
//!
//! Before rendering, each special token inside a message is replaced by a placeholder; after rendering, the text is split
//! at the special tokens that are left (the template's own) and the placeholders are turned back into plain characters.

use serde_json::Value;

use crate::tokenizer::{Segment, Tokenizer, TokenizerError};

/// Private-use characters; one that no message contains starts and ends a placeholder.
const CANDIDATES: std::ops::RangeInclusive<char> = '\u{F0000}'..='\u{F00FF}';

/// What was replaced in a conversation, and by which placeholders.
#[derive(Debug)]
pub(super) struct Marks<'a> {
    tokenizer: &'a Tokenizer,
    fence: char,
    any: bool,
}

impl<'a> Marks<'a> {
    /// Chooses a fence character that is in none of the values.
    pub(super) fn for_values<'v>(
        tokenizer: &'a Tokenizer,
        values: &(impl Iterator<Item = &'v Value> + Clone),
    ) -> Self {
        let fence = CANDIDATES
            .into_iter()
            .find(|fence| !values.clone().any(|value| contains(value, *fence)))
            // All 256 are in use: only text made for the purpose does that, and then its placeholders are read as its text.
            .unwrap_or('\u{F0000}');
        Self {
            tokenizer,
            fence,
            any: false,
        }
    }

    /// The fence, free for other unique markers as long as no digit follows it.
    pub(super) fn fence(&self) -> char {
        self.fence
    }

    /// Replaces the special tokens in every text of a value.
    pub(super) fn hide(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => self.hide_text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide(item)),
            Value::Object(fields) => {
                if fields.keys().any(|key| self.is_in(key)) {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(mut key, item)| {
                            self.hide_text(&mut key);
                            (key, item)
                        })
                        .collect();
                }
                fields.values_mut().for_each(|item| self.hide(item));
            }
            _ => {}
        }
    }

    fn is_in(&self, text: &str) -> bool {
        self.tokenizer
            .specials()
            .any(|(special, _)| text.contains(special))
    }

    fn hide_text(&mut self, text: &mut String) {
        // Longest first, so that a token inside a longer one is not cut out of it.
        let tokenizer = self.tokenizer;
        for (index, (special, _)) in tokenizer.specials().enumerate() {
            if text.contains(special) {
                *text = text.replace(special, &self.placeholder(index));
                self.any = true;
            }
        }
    }

    fn placeholder(&self, index: usize) -> String {
        format!("{0}{index}{0}", self.fence)
    }

    /// The text with placeholders turned back into what they stand for.
    pub(super) fn restore(&self, text: &str) -> String {
        if !self.any || !text.contains(self.fence) {
            return text.to_owned();
        }
        let mut text = text.to_owned();
        for (index, (special, _)) in self.tokenizer.specials().enumerate() {
            text = text.replace(&self.placeholder(index), special);
        }
        text
    }

    /// Ids of a rendered text: the template's special tokens by their ids, everything else as plain text.
    pub(super) fn encode(&self, rendered: &str) -> Result<Vec<u32>, TokenizerError> {
        if !self.any {
            return self
                .tokenizer
                .encode(rendered, crate::tokenizer::Trust::Template, false);
        }
        let mut ids = Vec::new();
        for segment in self.tokenizer.segments(rendered) {
            match segment {
                Segment::Special(id) => ids.push(id),
                Segment::Text(text) => {
                    ids.extend(self.tokenizer.encode_untrusted(&self.restore(text))?);
                }
            }
        }
        Ok(ids)
    }
}

fn contains(value: &Value, fence: char) -> bool {
    match value {
        Value::String(text) => text.contains(fence),
        Value::Array(items) => items.iter().any(|item| contains(item, fence)),
        Value::Object(fields) => fields
            .iter()
            .any(|(key, item)| key.contains(fence) || contains(item, fence)),
        _ => false,
    }
}
