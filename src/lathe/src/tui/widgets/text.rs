//! Text measured in terminal columns, and numbers as people read them.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Terminal columns.
pub fn width(text: &str) -> usize {
    text.width()
}

/// At most `columns` columns; a cut is marked by `…` (or `~` without Unicode).
pub fn fit(text: &str, columns: usize, unicode: bool) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut fitted = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > columns {
            break;
        }
        used += wide;
        fitted.push(c);
    }
    if columns > 0 {
        fitted.push(if unicode { '…' } else { '~' });
    }
    fitted
}

/// Exactly `columns` columns: cut or padded on the right.
pub fn pad(text: &str, columns: usize, unicode: bool) -> String {
    let mut fitted = fit(text, columns, unicode);
    let missing = columns.saturating_sub(width(&fitted));
    fitted.extend(std::iter::repeat_n(' ', missing));
    fitted
}

/// Exactly `columns` columns: cut or padded on the left, for numbers.
pub fn pad_left(text: &str, columns: usize, unicode: bool) -> String {
    let fitted = fit(text, columns, unicode);
    let missing = columns.saturating_sub(width(&fitted));
    format!("{}{fitted}", " ".repeat(missing))
}

/// `text` after its first `columns` columns.
pub fn skip_columns(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        if used >= columns {
            return &text[at..];
        }
        used += c.width().unwrap_or(0);
    }
    ""
}

/// Control characters and escape sequences made visible, so that data can never steer the terminal. Tabs become spaces.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => ' ',
            '\n' => '⏎',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Whether `needle` occurs: any letter case, unless `needle` has capitals. An empty one never does.
pub fn finds(text: &str, needle: &str) -> bool {
    !matches(text, needle).is_empty()
}

/// Byte ranges of `needle` in `text`, not overlapping; cases as in [`finds`].
pub fn matches(text: &str, needle: &str) -> Vec<std::ops::Range<usize>> {
    if needle.is_empty() {
        return Vec::new();
    }
    if needle.chars().any(char::is_uppercase) {
        return text
            .match_indices(needle)
            .map(|(at, found)| at..at + found.len())
            .collect();
    }
    if needle.is_ascii() {
        return ascii_matches(text.as_bytes(), needle.as_bytes());
    }
    // Character by character, since lower case may have another length than upper case.
    let wanted: Vec<char> = needle.chars().flat_map(char::to_lowercase).collect();
    let mut found = Vec::new();
    let mut from = 0;
    while from < text.len() {
        match match_length(&text[from..], &wanted) {
            Some(length) => {
                found.push(from..from + length);
                from += length;
            }
            None => from += text[from..].chars().next().map_or(1, char::len_utf8),
        }
    }
    found
}

/// [`matches()`] of a needle in ASCII: no byte of a longer character is one of ASCII, so ranges end between characters.
fn ascii_matches(text: &[u8], needle: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let (lower, upper) = (
        needle[0].to_ascii_lowercase(),
        needle[0].to_ascii_uppercase(),
    );
    let mut from = 0;
    while let Some(at) = text[from..]
        .iter()
        .position(|byte| *byte == lower || *byte == upper)
    {
        let start = from + at;
        let end = start + needle.len();
        if text
            .get(start..end)
            .is_some_and(|part| part.eq_ignore_ascii_case(needle))
        {
            found.push(start..end);
            from = end;
        } else {
            from = start + 1;
        }
    }
    found
}

/// Bytes at the start of `text` that are `wanted` in lower case.
fn match_length(text: &str, wanted: &[char]) -> Option<usize> {
    let mut left = wanted;
    for (at, c) in text.char_indices() {
        if left.is_empty() {
            return Some(at);
        }
        for lower in c.to_lowercase() {
            left = left.strip_prefix(&[lower])?;
        }
    }
    left.is_empty().then_some(text.len())
}

/// `text` in lines of at most `columns` columns, broken between words where that is possible. Control characters are made
/// visible; an empty line stays one.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = printable(&line.replace('\t', "    "));
        let wrapped = textwrap::wrap(line.trim_end(), options(columns));
        if wrapped.is_empty() {
            lines.push(String::new());
        }
        lines.extend(wrapped.into_iter().map(std::borrow::Cow::into_owned));
    }
    lines
}

/// Only between words: a path or a name that is broken at a hyphen can be taken for two.
fn options(columns: usize) -> textwrap::Options<'static> {
    textwrap::Options::new(columns.max(1)).word_splitter(textwrap::WordSplitter::NoHyphenation)
}

/// At most `room` lines: of more, the first, `gap`, and the last.
pub fn cut_middle(mut lines: Vec<String>, room: usize, gap: &str) -> Vec<String> {
    if lines.len() <= room {
        return lines;
    }
    let first = usize::from(room > 2);
    let last = room.saturating_sub(first + 1);
    let cut = first..lines.len() - last;
    lines.splice(cut, (room > 0).then(|| gap.to_owned()));
    lines
}

/// One line `  label   what it is` in lines of at most `columns` columns, the later ones under what stands behind the label.
pub fn wrap_under(line: &str, columns: usize) -> Vec<String> {
    let line = printable(line);
    let line = line.trim_end();
    if width(line) <= columns {
        return vec![line.to_owned()];
    }
    let margin = line.len() - line.trim_start().len();
    let label = line[margin..]
        .find("  ")
        .map_or(line.len(), |at| margin + at);
    let gap = line[label..].len() - line[label..].trim_start().len();
    // A label so long that nothing fits beside it is none.
    let under = match width(&line[..label + gap]) {
        under if under * 2 < columns => under,
        _ => margin.min(columns / 2),
    };
    let indent = " ".repeat(under);
    let wrapped = textwrap::wrap(line, options(columns).subsequent_indent(&indent));
    wrapped
        .into_iter()
        .map(std::borrow::Cow::into_owned)
        .collect()
}

/// Three significant digits: `0.0123`, `12.3`, `1.23e-6`, `12.3k`, `NaN`.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if size >= 999_500.0 {
        let (scaled, suffix) = if size >= 999.5e9 {
            return format!("{value:.2e}");
        } else if size >= 999.5e6 {
            (value / 1e9, "G")
        } else {
            (value / 1e6, "M")
        };
        return format!("{}{suffix}", digits(scaled));
    }
    if size >= 9_999.5 {
        return format!("{}k", digits(value / 1e3));
    }
    if size < 1e-3 {
        return trim_exponent(&format!("{value:.2e}"));
    }
    digits(value)
}

/// [`number`] with fewer digits where it would be wider than `columns`, as far as that helps.
pub fn number_within(value: f64, columns: usize) -> String {
    let mut shown = number(value);
    for digits in [1, 0] {
        if width(&shown) <= columns || !value.is_finite() {
            break;
        }
        shown = trim_exponent(&format!("{value:.digits$e}"));
    }
    shown
}

/// Three significant digits without an exponent; trailing zeros after the point are dropped.
fn digits(value: f64) -> String {
    let size = value.abs();
    let decimals = if size >= 99.95 {
        0
    } else if size >= 9.995 {
        1
    } else if size >= 0.9995 {
        2
    } else if size >= 0.09995 {
        3
    } else if size >= 0.009_995 {
        4
    } else {
        5
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// `1.20e-6` as `1.2e-6`.
fn trim_exponent(text: &str) -> String {
    match text.split_once('e') {
        Some((mantissa, exponent)) if mantissa.contains('.') => format!(
            "{}e{exponent}",
            mantissa.trim_end_matches('0').trim_end_matches('.')
        ),
        _ => text.to_owned(),
    }
}

/// `1.5 KiB`, `12 MiB`.
pub fn bytes(count: f64) -> String {
    let mut scaled = count;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if scaled.abs() < 1023.5 || unit == "TiB" {
            return if unit == "B" {
                format!("{scaled:.0} B")
            } else {
                format!("{} {unit}", digits(scaled))
            };
        }
        scaled /= 1024.0;
    }
    unreachable!("the last unit takes every size")
}

/// A metric's value with its unit where that reads better: bytes, ms and s, fractions as they are.
pub fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "1" | "" => number(value),
        "bytes" => bytes(value),
        "percent" => format!("{}%", number(value)),
        unit => format!("{} {unit}", number(value)),
    }
}

/// `3 s`, `12 min`, `5 h`, `3 d`: one unit, for ages.
pub fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    if seconds < 60.0 {
        format!("{seconds:.0} s")
    } else if seconds < 3600.0 {
        format!("{:.0} min", (seconds / 60.0).floor())
    } else if seconds < 48.0 * 3600.0 {
        format!("{:.0} h", (seconds / 3600.0).floor())
    } else {
        format!("{:.0} d", (seconds / 86400.0).floor())
    }
}

/// `0:07`, `12:34`, `1:02:03`: a moment of a run.
pub fn clock(ms: f64) -> String {
    let seconds = (ms.max(0.0) / 1e3) as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_a_narrow_place_has_fewer_digits_before_it_is_cut() {
        assert_eq!(number_within(-5.6e-9, 8), "-5.6e-9");
        assert_eq!(number_within(-5.6e-9, 6), "-6e-9");
        assert_eq!(number_within(-1.26e-9, 7), "-1.3e-9");
        assert_eq!(number_within(0.25, 6), "0.25");
        assert_eq!(number_within(f64::NEG_INFINITY, 2), "-inf");
    }

    #[test]
    fn a_fact_that_is_too_long_goes_on_under_its_value() {
        assert_eq!(wrap_under("  run   runs/a", 40), ["  run   runs/a"]);
        assert_eq!(
            wrap_under("  overlap   98 % of generation ran while", 26),
            [
                "  overlap   98 % of",
                "            generation ran",
                "            while"
            ]
        );
        let cut = wrap_under("  run   runs/20261130-020414-quickstart", 20);
        assert!(cut.iter().all(|line| width(line) <= 20), "{cut:?}");
        assert_eq!(
            cut.iter()
                .map(|line| line.trim())
                .collect::<String>()
                .replace(' ', ""),
            "runruns/20261130-020414-quickstart"
        );
        for columns in 0..30 {
            wrap_under("  ärger   ☃☃☃☃☃☃☃☃ ☃☃☃☃☃☃☃☃☃☃☃☃☃☃☃☃", columns);
        }
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (0.012_345, "0.0123"),
            (12.345, "12.3"),
            (123.45, "123"),
            (1234.5, "1234"),
            (12_345.0, "12.3k"),
            (1_234_567.0, "1.23M"),
            (1e-6, "1e-6"),
            (1.234e-5, "1.23e-5"),
            (-0.25, "-0.25"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
            (999.9, "1000"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn wide_characters_are_never_cut_in_half() {
        assert_eq!(fit("日本語", 4, true), "日…");
        assert_eq!(width(&pad("日本語", 4, true)), 4);
        assert_eq!(width(&pad_left("日本", 6, true)), 6);
        assert_eq!(skip_columns("日本語", 2), "本語");
    }

    #[test]
    fn data_cannot_steer_the_terminal() {
        assert!(!printable("a\x1b[2Jb\u{9b}").chars().any(char::is_control));
    }

    #[test]
    fn small_letters_find_all_and_capitals_only_themselves() {
        assert_eq!(matches("aXax", "ax"), [0..2, 2..4]);
        assert_eq!(matches("aXax", "aX").first(), Some(&(0..2)));
        assert_eq!(matches("ÄrgerÄ", "ä"), [0..2, 6..8]);
        assert!(!finds("abc", "") && !finds("", "a"));
        assert_eq!(matches("aaa", "aa").len(), 1);
    }

    #[test]
    fn of_lines_that_are_too_many_the_first_and_the_last_stay() {
        let lines = || ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let cut = |room| cut_middle(lines(), room, "…").join("");
        let wanted = ["", "…", "…d", "a…d", "abcd", "abcd"];
        for (room, wanted) in wanted.into_iter().enumerate() {
            assert_eq!(cut(room), wanted);
        }
    }

    #[test]
    fn wrapped_lines_fit_and_keep_every_word() {
        let text = "one two  three\n\n  fourfivesixseven 日本語日本語\tx\x1b[31m";
        for columns in 1..20 {
            let lines = wrap(text, columns);
            assert!(
                lines.iter().all(|line| width(line) <= columns.max(2)),
                "{lines:?}"
            );
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(
                letters(&lines.concat()),
                letters(&printable(&text.replace('\n', " ")))
            );
            assert!(lines.contains(&String::new()));
        }
    }

    #[test]
    fn times_are_short() {
        assert_eq!(age(59.0), "59 s");
        assert_eq!(age(3700.0), "1 h");
        assert_eq!(clock(3_723_000.0), "1:02:03");
        assert_eq!(clock(7_000.0), "0:07");
        assert_eq!(bytes(1536.0), "1.5 KiB");
    }
}
