//! Command-line overrides in Hydra's grammar: `a.b=v`, `+a.b=v`, `++a.b=v`, `~a.b`; `[x, y]`, `{k: v}`, quotes, null.

use thiserror::Error;

use crate::yaml::{Entry, Node, Span, Style, Value};

#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// As typed.
    pub text: String,
    pub path: Vec<String>,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// `a.b=v`, and `++a.b=v`.
    Set(Node),
    /// `+a.b=v`: only where the file does not say it.
    Add(Node),
    /// `~a.b`, or `~a.b=v` only if it is v.
    Remove(Option<Node>),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message} (character {position})")]
pub struct OverrideError {
    /// 1-based character of the override's text.
    pub position: usize,
    pub message: String,
}

/// One override from its text.
pub fn parse(text: &str) -> Result<Override, OverrideError> {
    let (sigil, body) = if let Some(body) = text.strip_prefix("++") {
        ("++", body)
    } else if let Some(body) = text.strip_prefix('+') {
        ("+", body)
    } else if let Some(body) = text.strip_prefix('~') {
        ("~", body)
    } else {
        ("", text)
    };
    let (path, value) = match body.split_once('=') {
        Some((path, value)) => (path, Some(value)),
        None => (body, None),
    };
    let at = |position: usize, message: String| OverrideError { position, message };
    let start = sigil.len() + 1;
    let named = !path.is_empty()
        && path.split('.').all(|name| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_alphanumeric() || "_-/".contains(c))
        });
    if !named {
        return Err(at(
            start,
            format!("{path:?} is not a key path; write a.b=value"),
        ));
    }
    let value = match value {
        Some(value) => {
            let mut reader = Reader {
                chars: value.chars().collect(),
                at: 0,
                offset: sigil.len() + path.chars().count() + 1,
            };
            Some(reader.whole()?)
        }
        None => None,
    };
    let action = match (sigil, value) {
        ("~", value) => Action::Remove(value),
        ("+", Some(value)) => Action::Add(value),
        (_, Some(value)) => Action::Set(value),
        (_, None) => {
            let path = path.to_owned();
            return Err(at(
                text.chars().count() + 1,
                format!("no `=`; write {path}=value to set it, or ~{path} to remove it"),
            ));
        }
    };
    Ok(Override {
        text: text.to_owned(),
        path: path.split('.').map(str::to_owned).collect(),
        action,
    })
}

/// A value in the override grammar, also what `${oc.select:a.b,VALUE}` takes as its default.
pub fn parse_value(text: &str) -> Result<Node, OverrideError> {
    let mut reader = Reader {
        chars: text.chars().collect(),
        at: 0,
        offset: 0,
    };
    reader.whole()
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    /// Characters before the value in the override.
    offset: usize,
}

const MAX_DEPTH: usize = 32;

impl Reader {
    fn error(&self, message: impl Into<String>) -> OverrideError {
        OverrideError {
            position: self.offset + self.at + 1,
            message: message.into(),
        }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    fn whole(&mut self) -> Result<Node, OverrideError> {
        self.skip_spaces();
        let value = self.value(0, "")?;
        self.skip_spaces();
        match self.peek() {
            None => Ok(value),
            Some(',') => Err(self.error("a list needs brackets: [a,b]; a choice sweep (a,b) starts several runs, which is not supported")),
            Some(other) => Err(self.error(format!("unexpected {other:?} after the value; quote a value that holds it"))),
        }
    }

    /// `ends`: the characters that end an unquoted value here, besides `,`.
    fn value(&mut self, depth: usize, ends: &str) -> Result<Node, OverrideError> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        match self.peek() {
            Some('[') => self.list(depth),
            Some('{') => self.map(depth),
            Some(quote @ ('\'' | '"')) => {
                let text = self.quoted(quote)?;
                Ok(Node {
                    style: if quote == '"' {
                        Style::DoubleQuoted
                    } else {
                        Style::SingleQuoted
                    },
                    ..Node::placeless(Value::Text(text))
                })
            }
            _ => {
                let text = self.unquoted(ends)?;
                Ok(plain(&text))
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Node, OverrideError> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.skip_spaces();
            match self.peek() {
                Some(']') => {
                    self.at += 1;
                    return Ok(Node::placeless(Value::List(items)));
                }
                None => return Err(self.error("the list has no closing `]`")),
                _ => {}
            }
            items.push(self.value(depth + 1, "]")?);
            self.skip_spaces();
            match self.peek() {
                Some(',') => self.at += 1,
                Some(']') => {}
                None => return Err(self.error("the list has no closing `]`")),
                Some(other) => {
                    return Err(self.error(format!(
                        "unexpected {other:?} in the list; separate items by `,`"
                    )));
                }
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Node, OverrideError> {
        self.at += 1;
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            self.skip_spaces();
            match self.peek() {
                Some('}') => {
                    self.at += 1;
                    return Ok(Node::placeless(Value::Map(entries)));
                }
                None => return Err(self.error("the mapping has no closing `}`")),
                _ => {}
            }
            let key = match self.peek() {
                Some(quote @ ('\'' | '"')) => self.quoted(quote)?,
                _ => self.unquoted(":}")?,
            };
            self.skip_spaces();
            if self.peek() != Some(':') {
                return Err(self.error("a mapping is written {key: value}"));
            }
            if entries.iter().any(|entry| entry.key == key) {
                return Err(self.error(format!("{key} is given twice in this mapping")));
            }
            self.at += 1;
            self.skip_spaces();
            let value = self.value(depth + 1, "}")?;
            entries.push(Entry {
                key,
                key_span: Span::default(),
                value,
            });
            self.skip_spaces();
            match self.peek() {
                Some(',') => self.at += 1,
                Some('}') => {}
                None => return Err(self.error("the mapping has no closing `}`")),
                Some(other) => {
                    return Err(self.error(format!(
                        "unexpected {other:?} in the mapping; separate entries by `,`"
                    )));
                }
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, OverrideError> {
        let opened = self.at;
        self.at += 1;
        let mut text = String::new();
        while let Some(c) = self.peek() {
            self.at += 1;
            if c == quote {
                return Ok(text);
            }
            // Hydra: a backslash is itself unless it escapes the quote or a backslash.
            match self.peek() {
                Some(next) if c == '\\' && (next == quote || next == '\\') => {
                    self.at += 1;
                    text.push(next);
                }
                _ => text.push(c),
            }
        }
        self.at = opened;
        Err(self.error("the quote is not closed"))
    }

    fn unquoted(&mut self, ends: &str) -> Result<String, OverrideError> {
        let mut text = String::new();
        while let Some(c) = self.peek() {
            match c {
                '$' if self.chars.get(self.at + 1) == Some(&'{') => {
                    text.push_str(&self.interpolation()?);
                }
                '\\' => {
                    self.at += 1;
                    if let Some(next) = self.peek() {
                        self.at += 1;
                        text.push(next);
                    }
                }
                ',' => break,
                c if ends.contains(c) => break,
                '(' | ')' => {
                    return Err(self.error("functions and sweeps such as range(..) or choice(..) are not supported; quote a text that holds parentheses"));
                }
                '[' | ']' | '{' | '}' | '\'' | '"' => {
                    return Err(self.error(format!(
                        "{c:?} inside an unquoted value; quote the whole value"
                    )));
                }
                _ => {
                    text.push(c);
                    self.at += 1;
                }
            }
        }
        Ok(text.trim_end().to_owned())
    }

    /// `${...}` with balanced braces, kept as text for later.
    fn interpolation(&mut self) -> Result<String, OverrideError> {
        let opened = self.at;
        let mut depth = 0_usize;
        let mut text = String::new();
        while let Some(c) = self.peek() {
            self.at += 1;
            text.push(c);
            match c {
                '{' => depth += 1,
                '}' => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(text);
                    }
                }
                _ => {}
            }
        }
        self.at = opened;
        Err(self.error("the interpolation `${` has no closing `}`"))
    }
}

/// Hydra's reading of an unquoted word: null, true, false, a number, else text. Empty is the empty text.
fn plain(text: &str) -> Node {
    let value = match text.to_ascii_lowercase().as_str() {
        "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "nan" => Value::Float(f64::NAN),
        "inf" | "+inf" => Value::Float(f64::INFINITY),
        "-inf" => Value::Float(f64::NEG_INFINITY),
        word if word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            let digits = word.replace('_', "");
            if let Ok(number) = digits.parse::<i128>() {
                Value::Int(number)
            } else {
                digits
                    .parse::<f64>()
                    .map_or_else(|_| Value::Text(text.to_owned()), Value::Float)
            }
        }
        _ => Value::Text(text.to_owned()),
    };
    Node {
        raw: text.to_owned(),
        ..Node::placeless(value)
    }
}
