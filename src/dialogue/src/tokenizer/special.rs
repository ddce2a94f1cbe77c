//! Special tokens in a text: where they are, and the plain text between them.

use std::collections::HashSet;

/// A piece of a text, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'a> {
    Text(&'a str),
    Special(u32),
}

#[derive(Debug)]
struct Special {
    text: String,
    id: u32,
    /// The token swallows white space on that side, as `tokenizers` does.
    left_strip: bool,
    right_strip: bool,
}

/// The special tokens of a tokenizer, longest first.
#[derive(Debug)]
pub(super) struct Specials {
    tokens: Vec<Special>,
    ids: HashSet<u32>,
}

impl Specials {
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Self {
        let mut tokens: Vec<Special> = tokenizer
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special && !token.content.is_empty())
            .map(|(id, token)| Special {
                text: token.content,
                id,
                left_strip: token.lstrip,
                right_strip: token.rstrip,
            })
            .collect();
        tokens.sort_by(|a, b| b.text.len().cmp(&a.text.len()).then(a.id.cmp(&b.id)));
        let ids = tokens.iter().map(|token| token.id).collect();
        Self { tokens, ids }
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.tokens
            .iter()
            .map(|token| (token.text.as_str(), token.id))
    }

    /// The first special token at or after `from` (leftmost, then longest): its start and itself.
    fn find(&self, text: &str, from: usize) -> Option<(usize, &Special)> {
        // `tokens` is sorted longest first and `min_by_key` keeps the first of equals.
        self.tokens
            .iter()
            .filter_map(|token| Some((from + text[from..].find(&token.text)?, token)))
            .min_by_key(|(start, _)| *start)
    }

    pub(super) fn split<'a>(&self, text: &'a str) -> Vec<Segment<'a>> {
        let mut segments = Vec::new();
        let mut done = 0;
        while let Some((start, token)) = self.find(text, done) {
            let mut before = &text[done..start];
            if token.left_strip {
                before = before.trim_end();
            }
            if !before.is_empty() {
                segments.push(Segment::Text(before));
            }
            segments.push(Segment::Special(token.id));
            done = start + token.text.len();
            if token.right_strip {
                done = text.len() - text[done..].trim_start().len();
            }
        }
        if done < text.len() {
            segments.push(Segment::Text(&text[done..]));
        }
        segments
    }

    /// The text cut after the first character of every special token in it, so that no piece contains one.
    pub(super) fn cut<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let mut pieces = Vec::new();
        let mut done = 0;
        let mut from = 0;
        while let Some((start, token)) = self.find(text, from) {
            let first = token.text.chars().next().map_or(1, char::len_utf8);
            pieces.push(&text[done..start + first]);
            done = start + first;
            from = done;
        }
        pieces.push(&text[done..]);
        pieces
    }
}
