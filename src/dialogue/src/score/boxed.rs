//! The last `\boxed{…}` of a text, and white space as Python sees it.

/// From the `\` of a command that starts at `from` to the brace that closes its first argument; None where none does.
/// Braces are counted as they stand: a lone `}` before the first `{` counts too, as in the reference.
fn closed(text: &str, from: usize) -> Option<&str> {
    let mut open = 0_i64;
    for (at, byte) in text.bytes().enumerate().skip(from) {
        match byte {
            b'{' => open += 1,
            b'}' => {
                open -= 1;
                if open == 0 {
                    return Some(&text[from..=at]);
                }
            }
            _ => {}
        }
    }
    None
}

/// MATH's `last_boxed_only_string`: `\boxed{…}` or `\fbox{…}` with its command, or `\boxed …` up to a dollar sign.
pub fn last_boxed(text: &str) -> Option<String> {
    if let Some((_, last)) = text.rsplit_once("\\boxed ") {
        let end = last.find('$').unwrap_or(last.len());
        return Some(format!("\\boxed {}", &last[..end]));
    }
    let start = text.rfind("\\boxed").or_else(|| text.rfind("\\fbox"))?;
    closed(text, start).map(str::to_owned)
}

/// What is inside what [`last_boxed`] gives; None for an `\fbox` and other commands.
pub fn inside(boxed: &str) -> Option<&str> {
    boxed
        .strip_prefix("\\boxed ")
        .or_else(|| boxed.strip_prefix("\\boxed{")?.strip_suffix('}'))
}

/// The inside of the last `\boxed{`; None when it does not close.
pub fn last_boxed_inside(text: &str) -> Option<&str> {
    inside(closed(text, text.rfind("\\boxed{")?)?)
}

/// The last `count` characters.
pub fn tail(text: &str, count: usize) -> &str {
    let start = text
        .char_indices()
        .rev()
        .nth(count.saturating_sub(1))
        .map_or(0, |(at, _)| at);
    &text[start..]
}

/// White space to Python's `str`, which counts four control characters in.
pub fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_counted_in_characters() {
        assert_eq!(tail("日本x", 2), "本x");
        assert_eq!(tail("日本x", 9), "日本x");
        assert_eq!(tail("", 3), "");
    }

    #[test]
    fn boxes_nest_and_the_last_one_counts() {
        let text = "\\boxed{1} and $\\boxed{\\frac{1}{2}}$";
        assert_eq!(last_boxed(text).as_deref(), Some("\\boxed{\\frac{1}{2}}"));
        assert_eq!(last_boxed_inside(text), Some("\\frac{1}{2}"));
        assert_eq!(last_boxed("\\boxed{9"), None);
        assert_eq!(inside("\\fbox{8}"), None);
    }
}
