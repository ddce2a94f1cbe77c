//! Events to tree.

use saphyr_parser::{Event, Parser, ScalarStyle, Span as EventSpan, StrInput};

use super::{Entry, Node, Span, Style, Value};

/// Deeper than any experiment; keeps a hostile file from exhausting the stack.
const MAX_DEPTH: usize = 48;

/// One thing wrong with the text as YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub line: u32,
    pub column: u32,
    pub message: String,
}

/// `root` is `None` when the text holds no document or its syntax is broken.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parsed {
    pub root: Option<Node>,
    pub faults: Vec<Fault>,
}

/// Reads one document. Never panics; everything wrong is in `faults`, and after a syntax error there is no tree.
pub fn parse(text: &str) -> Parsed {
    // The scanner takes a byte order mark for a character of the first key.
    let base = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let body = &text[base..];
    if let Some((at, c)) = body
        .char_indices()
        .find(|(_, c)| c.is_control() && !"\t\n\r\u{85}".contains(*c))
    {
        let before = &body[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        return Parsed {
            root: None,
            faults: vec![Fault {
                line: before.matches('\n').count() as u32 + 1,
                column: before[line_start..].chars().count() as u32 + 1,
                message: format!(
                    "not YAML: the control character U+{:04X}; write it as \"\\x{:02x}\" if it is meant",
                    u32::from(c),
                    u32::from(c)
                ),
            }],
        };
    }
    let mut builder = Builder {
        events: Parser::new_from_str(body),
        places: Places::new(body, base),
        text,
        faults: Vec::new(),
    };
    let root = match builder.document() {
        Ok(root) => root,
        Err(fault) => {
            builder.faults.push(fault);
            None
        }
    };
    Parsed {
        root,
        faults: builder.faults,
    }
}

struct Places {
    base: usize,
    /// Byte offset of each character; empty when the text is ASCII and both counts agree.
    offsets: Vec<usize>,
    len: usize,
}

impl Places {
    fn new(text: &str, base: usize) -> Self {
        let offsets = if text.is_ascii() {
            Vec::new()
        } else {
            text.char_indices().map(|(offset, _)| offset).collect()
        };
        Self {
            base,
            offsets,
            len: text.len(),
        }
    }

    fn byte(&self, character: usize) -> usize {
        let offset = if self.offsets.is_empty() {
            character
        } else {
            self.offsets.get(character).copied().unwrap_or(self.len)
        };
        self.base + offset.min(self.len)
    }

    fn span(&self, span: &EventSpan) -> Span {
        Span {
            start: self.byte(span.start.index()),
            end: self.byte(span.end.index()),
            line: span.start.line() as u32,
            column: span.start.col() as u32 + 1,
        }
    }
}

struct Builder<'t> {
    events: Parser<'t, StrInput<'t>>,
    places: Places,
    text: &'t str,
    faults: Vec<Fault>,
}

impl<'t> Builder<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), Fault> {
        match self.events.next() {
            Some(Ok((event, span))) => Ok((event, self.places.span(&span))),
            Some(Err(error)) => {
                let line = error.marker().line() as u32;
                Err(Fault {
                    line,
                    column: error.marker().col() as u32 + 1,
                    message: self.explain(line, error.info()),
                })
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// The scanner's words, or plainer ones for what people meet most.
    fn explain(&self, line: u32, info: &str) -> String {
        let written = self
            .text
            .lines()
            .nth((line as usize).saturating_sub(1))
            .unwrap_or("");
        let indent: String = written.chars().take_while(|c| c.is_whitespace()).collect();
        if indent.contains('\t') {
            "the line is indented with a tab; YAML indents with spaces".to_owned()
        } else if info.starts_with("mapping values are not allowed") {
            format!(
                "not YAML: {info}; quote a value that holds `: `, and give the keys of one block the same indentation"
            )
        } else {
            format!("not YAML: {info}")
        }
    }

    fn document(&mut self) -> Result<Option<Node>, Fault> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(Fault {
                        line: span.line,
                        column: span.column,
                        message: "a second document starts here; an experiment is one document"
                            .to_owned(),
                    });
                }
                Event::Nothing
                | Event::StreamStart
                | Event::DocumentStart(_)
                | Event::DocumentEnd => {}
                event => root = Some(self.node(event, span, 0)?),
            }
        }
    }

    fn refuse(&mut self, span: Span, message: &str) {
        self.faults.push(Fault {
            line: span.line,
            column: span.column,
            message: message.to_owned(),
        });
    }

    fn refuse_decoration(&mut self, anchor: usize, has_tag: bool, span: Span) {
        if anchor != 0 {
            self.refuse(span, "anchors (&name) are not supported; write the value where it is used, or ${path.to.key}");
        }
        if has_tag {
            self.refuse(
                span,
                "tags (!name) are not supported; quote the value to make it text",
            );
        }
    }

    fn node(&mut self, event: Event<'t>, mut span: Span, depth: usize) -> Result<Node, Fault> {
        if depth > MAX_DEPTH {
            return Err(Fault {
                line: span.line,
                column: span.column,
                message: format!("nested deeper than {MAX_DEPTH} levels"),
            });
        }
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_decoration(anchor, tag.is_some(), span);
                Ok(self.scalar(&text, style, span))
            }
            Event::Alias(_) => {
                self.refuse(
                    span,
                    "aliases (*name) are not supported; write the value out, or ${path.to.key}",
                );
                Ok(Node {
                    span,
                    ..Node::placeless(Value::Null)
                })
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_decoration(anchor, tag.is_some(), span);
                let flow = span.end > span.start && self.text[span.start..].starts_with(['[', '{']);
                let mut items = Vec::new();
                loop {
                    let (event, at) = self.next()?;
                    if matches!(event, Event::SequenceEnd) {
                        span.end = collection_end(
                            self.text,
                            flow,
                            items.last().map(|item: &Node| item.span),
                            span,
                        );
                        break;
                    }
                    items.push(self.node(event, at, depth + 1)?);
                }
                Ok(collection(Value::List(items), flow, span))
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_decoration(anchor, tag.is_some(), span);
                let flow = span.end > span.start && self.text[span.start..].starts_with(['[', '{']);
                let mut entries: Vec<Entry> = Vec::new();
                loop {
                    let (event, at) = self.next()?;
                    if matches!(event, Event::MappingEnd) {
                        let last = entries.last().map(|entry| Span {
                            end: entry.value.span.end.max(entry.key_span.end),
                            ..entry.value.span
                        });
                        span.end = collection_end(self.text, flow, last, span);
                        break;
                    }
                    let key = self.node(event, at, depth + 1)?;
                    let (event, at) = self.next()?;
                    let value = self.node(event, at, depth + 1)?;
                    self.push_entry(&mut entries, key, value);
                }
                Ok(collection(Value::Map(entries), flow, span))
            }
            // The parser closes what it opened; reaching this would be its bug, so say where instead of panicking.
            _ => Err(Fault {
                line: span.line,
                column: span.column,
                message: "not YAML: expected a value".to_owned(),
            }),
        }
    }

    fn push_entry(&mut self, entries: &mut Vec<Entry>, key: Node, value: Node) {
        let name = match key.value {
            Value::List(_) | Value::Map(_) => {
                self.refuse(key.span, "a key must be a name, not a list or a mapping");
                return;
            }
            Value::Text(text) => text,
            _ => key.raw,
        };
        if name == "<<" {
            self.refuse(
                key.span,
                "merge keys (<<) are not supported; write the keys out, or ${path.to.key}",
            );
            return;
        }
        if let Some(first) = entries.iter().find(|entry| entry.key == name) {
            let message = format!(
                "{name} is given twice in this block, first on line {}",
                first.key_span.line
            );
            self.refuse(key.span, &message);
            return;
        }
        entries.push(Entry {
            key: name,
            key_span: key.span,
            value,
        });
    }

    fn scalar(&self, text: &str, style: ScalarStyle, mut span: Span) -> Node {
        let style = match style {
            ScalarStyle::Plain => Style::Plain,
            ScalarStyle::SingleQuoted => Style::SingleQuoted,
            ScalarStyle::DoubleQuoted => Style::DoubleQuoted,
            ScalarStyle::Literal | ScalarStyle::Folded => Style::BlockText,
        };
        if style == Style::Plain && text.is_empty() {
            span.end = span.start;
        }
        // The scanner's span of a quoted or block scalar runs on to the next token, over spaces and comments.
        let written = self.text.get(span.start..span.end).unwrap_or("");
        span.end = span.start
            + match style {
                Style::SingleQuoted => quoted_len(written, '\'', None),
                Style::DoubleQuoted => quoted_len(written, '"', Some('\\')),
                _ => written.trim_end().len(),
            };
        let value = if style == Style::Plain {
            plain(text)
        } else {
            Value::Text(text.to_owned())
        };
        Node {
            value,
            span,
            style,
            raw: if style == Style::Plain {
                text.to_owned()
            } else {
                String::new()
            },
        }
    }
}

/// Bytes of a quoted scalar with its quotes; a doubled quote inside closes and opens again.
fn quoted_len(written: &str, quote: char, escape: Option<char>) -> usize {
    let mut closed_at = written.len();
    let mut inside = false;
    let mut escaped = false;
    for (at, c) in written.char_indices() {
        if escaped {
            escaped = false;
        } else if inside && Some(c) == escape {
            escaped = true;
        } else if c == quote {
            inside = !inside;
            closed_at = at + c.len_utf8();
        } else if !inside {
            break;
        }
    }
    closed_at
}

fn collection(value: Value, flow: bool, span: Span) -> Node {
    Node {
        value,
        span,
        style: if flow { Style::Flow } else { Style::Block },
        raw: String::new(),
    }
}

/// Behind the last item, or behind the bracket that closes a flow collection (the event's own span is no use: it may
/// start at a trailing comma and run over a comment).
fn collection_end(text: &str, flow: bool, last: Option<Span>, own: Span) -> usize {
    let end = last.map_or(own.start, |last| last.end).max(own.start);
    if !flow {
        return end;
    }
    let mut at = end.max(own.start + 1);
    let mut in_comment = false;
    for c in text[at..].chars() {
        at += c.len_utf8();
        match c {
            '\n' => in_comment = false,
            '#' => in_comment = true,
            ']' | '}' if !in_comment => break,
            _ => {}
        }
    }
    at
}

/// What an unquoted scalar means, in `serde_yaml`'s reading of YAML 1.2.
pub(super) fn plain(text: &str) -> Value {
    if text.is_empty() {
        return Value::Null;
    }
    let may_be_other = text.starts_with(|c: char| c.is_ascii_digit() || "+-.~nNtTfF".contains(c));
    // `---` is a plain scalar inside a line but a marker on its own.
    if !may_be_other || text == "---" || text == "..." || text.contains(['\n', '\r']) {
        return Value::Text(text.to_owned());
    }
    match serde_yaml::from_str(text) {
        Ok(serde_yaml::Value::Null) => Value::Null,
        Ok(serde_yaml::Value::Bool(flag)) => Value::Bool(flag),
        Ok(serde_yaml::Value::Number(number)) => number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))
            .map_or_else(
                || Value::Float(number.as_f64().unwrap_or(f64::NAN)),
                Value::Int,
            ),
        _ => Value::Text(text.to_owned()),
    }
}
