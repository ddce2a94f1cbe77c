//! How Python writes values: `json.dumps`, `repr` and `str`, which chat templates were written against.

use std::fmt::Write as _;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// The options of `json.dumps` that chat templates use.
#[derive(Debug, Clone)]
pub(super) struct JsonStyle {
    pub ensure_ascii: bool,
    /// Text of one indentation step; None: one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl JsonStyle {
    /// Python's defaults for a given indent, but with `ensure_ascii=False` as transformers' `tojson` has it.
    pub(super) fn new(indent: Option<String>) -> Self {
        Self {
            ensure_ascii: false,
            item_separator: if indent.is_some() { "," } else { ", " }.to_owned(),
            key_separator: ": ".to_owned(),
            indent,
            sort_keys: false,
        }
    }
}

/// `json.dumps(value, …)`.
pub(super) fn json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    json_at(value, style, 0)
}

fn json_at(value: &Value, style: &JsonStyle, depth: usize) -> Result<String, Error> {
    Ok(match value.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if value.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::Number => number(value, "NaN", "Infinity"),
        ValueKind::String => json_string(value.as_str().unwrap_or_default(), style.ensure_ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value
                .try_iter()?
                .map(|item| json_at(&item, style, depth + 1))
                .collect::<Result<Vec<_>, _>>()?;
            block(('[', ']'), &items, style, depth)
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort_by_key(ToString::to_string);
            }
            let items = keys
                .iter()
                .map(|key| {
                    let name = json_string(&display(key), style.ensure_ascii);
                    let item = json_at(&value.get_item(key)?, style, depth + 1)?;
                    Ok(format!("{name}{}{item}", style.key_separator))
                })
                .collect::<Result<Vec<_>, Error>>()?;
            block(('{', '}'), &items, style, depth)
        }
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("object of type {kind} is not JSON serializable"),
            ));
        }
    })
}

/// Items between brackets; with an indent, one a line.
fn block((open, close): (char, char), items: &[String], style: &JsonStyle, depth: usize) -> String {
    match &style.indent {
        Some(indent) if !items.is_empty() => {
            let inner = format!("\n{}", indent.repeat(depth + 1));
            let outer = format!("\n{}", indent.repeat(depth));
            let separator = format!("{}{inner}", style.item_separator);
            format!("{open}{inner}{}{outer}{close}", items.join(&separator))
        }
        _ => format!("{open}{}{close}", items.join(&style.item_separator)),
    }
}

fn json_string(text: &str, ensure_ascii: bool) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{0}'..='\u{1f}' => push_unicode(&mut out, character),
            _ if ensure_ascii && !character.is_ascii() => push_unicode(&mut out, character),
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

fn push_unicode(out: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        let _ = write!(out, "\\u{unit:04x}");
    }
}

fn number(value: &Value, nan: &str, infinity: &str) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), |x| float(x, nan, infinity))
}

/// `repr(float)`: the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn float(x: f64, nan: &str, infinity: &str) -> String {
    if x.is_nan() {
        return nan.to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 {
            infinity.to_owned()
        } else {
            format!("-{infinity}")
        };
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific
        .split_once('e')
        .expect("Rust's {:e} always writes an exponent");
    let exponent: i32 = exponent.parse().expect("Rust writes exponents as integers");
    if (-4..16).contains(&exponent) {
        let text = format!("{x}");
        if text.contains('.') {
            text
        } else {
            text + ".0"
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}

/// `str(value)`: what `{{ value }}` writes.
pub(super) fn display(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => value.as_str().unwrap_or_default().to_owned(),
        ValueKind::Undefined => String::new(),
        _ => repr(value),
    }
}

/// `repr(value)`.
fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined => "Undefined".to_owned(),
        ValueKind::None => "None".to_owned(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.to_owned(),
        ValueKind::Number => number(value, "nan", "inf"),
        ValueKind::String => repr_string(value.as_str().unwrap_or_default()),
        ValueKind::Seq => {
            let items: Vec<String> = value
                .try_iter()
                .map(|items| items.map(|item| repr(&item)).collect())
                .unwrap_or_default();
            format!("[{}]", items.join(", "))
        }
        ValueKind::Map => {
            let items: Vec<String> = value
                .try_iter()
                .map(|keys| {
                    keys.map(|key| {
                        let item = value.get_item(&key).unwrap_or_default();
                        format!("{}: {}", repr(&key), repr(&item))
                    })
                    .collect()
                })
                .unwrap_or_default();
            format!("{{{}}}", items.join(", "))
        }
        _ => value.to_string(),
    }
}

fn repr_string(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::from(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            '\u{0}'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        // Pairs from Python 3.11's repr.
        for (x, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (100.0, "100.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.234e22, "1.234e+22"),
            (1e100, "1e+100"),
        ] {
            assert_eq!(float(x, "nan", "inf"), text);
        }
        assert_eq!(float(f64::NEG_INFINITY, "NaN", "Infinity"), "-Infinity");
    }
}
