//! When what came out is what must: APPS's rules, which verl has, without those that let a wrong answer pass.
//!
//! White space at the ends of a line and blank lines do not count, nor does how wide the gaps between words are. Numbers that are
//! not both whole may differ as numpy's `allclose` lets them; whole ones not at all (APPS takes 1000001 for 1000000), and words in
//! another order are another answer (APPS compares them as sets).

use serde_json::Value;

/// `|a - b| <= ABSOLUTE + RELATIVE |b|`
const RELATIVE: f64 = 1e-5;
const ABSOLUTE: f64 = 1e-8;

/// Of what a program prints.
pub fn is_output(printed: &str, expected: &str) -> bool {
    fn lines(text: &str) -> impl Iterator<Item = &str> {
        text.lines().map(str::trim).filter(|line| !line.is_empty())
    }
    let is_line = |given: &str, expected: &str| {
        each(
            given.split_whitespace(),
            expected.split_whitespace(),
            is_word,
        )
    };
    each(lines(printed), lines(expected), is_line)
}

/// As many of the one as of the other, and each the same.
fn each<'a>(
    mut given: impl Iterator<Item = &'a str>,
    mut expected: impl Iterator<Item = &'a str>,
    is_same: impl Fn(&str, &str) -> bool,
) -> bool {
    loop {
        match (given.next(), expected.next()) {
            (None, None) => return true,
            (Some(given), Some(expected)) if is_same(given, expected) => {}
            _ => return false,
        }
    }
}

fn is_word(given: &str, expected: &str) -> bool {
    let number = |word: &str| {
        let looks_like_one = word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        looks_like_one.then(|| word.parse::<f64>().ok()).flatten()
    };
    let is_whole = |word: &str| !word.contains(['.', 'e', 'E']);
    given == expected
        || match (number(given), number(expected)) {
            (Some(_), Some(_)) if is_whole(given) && is_whole(expected) => given
                .parse::<i128>()
                .is_ok_and(|given| expected.parse() == Ok(given)),
            (Some(given), Some(expected)) => is_close(given, expected),
            _ => false,
        }
}

fn is_close(given: f64, expected: f64) -> bool {
    given == expected || (given - expected).abs() <= ABSOLUTE + RELATIVE * expected.abs()
}

/// Of what a function gives. The expected value may stand in a list of its own, as in APPS.
pub fn is_result(given: &Value, expected: &Value) -> bool {
    is_value(given, expected)
        || matches!(expected, Value::Array(items) if items.first().is_some_and(|first| is_value(given, first)))
}

fn is_value(given: &Value, expected: &Value) -> bool {
    match (given, expected) {
        (Value::Number(one), Value::Number(other)) => {
            if one.is_f64() || other.is_f64() {
                match (one.as_f64(), other.as_f64()) {
                    (Some(one), Some(other)) => is_close(one, other),
                    _ => false,
                }
            } else {
                one == other
            }
        }
        (Value::Array(given), Value::Array(expected)) => {
            given.len() == expected.len()
                && given
                    .iter()
                    .zip(expected)
                    .all(|(one, other)| is_value(one, other))
        }
        (Value::Object(given), Value::Object(expected)) => {
            given.len() == expected.len()
                && given
                    .iter()
                    .all(|(key, one)| expected.get(key).is_some_and(|other| is_value(one, other)))
        }
        (given, expected) => given == expected,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn white_space_does_not_count_and_words_and_their_order_do() {
        for (printed, expected, is_same) in [
            ("3\n", "3", true),
            ("  1   2 \n\n3\r\n", "1 2\n3\n", true),
            ("", "\n", true),
            ("1 2 3", "1\n2 3", false),
            ("3 2 1", "1 2 3", false),
            ("YES", "yes", false),
            ("1\n2", "1", false),
            ("1", "1\n2", false),
            ("1 2", "1 2 3", false),
        ] {
            assert_eq!(
                is_output(printed, expected),
                is_same,
                "{printed:?} {expected:?}"
            );
        }
    }

    #[test]
    fn numbers_may_be_near_unless_both_are_whole() {
        for (printed, expected, is_same) in [
            ("0.333333", "0.33333333", true),
            ("0.3334", "0.33333333", false),
            ("2", "2.0", true),
            ("1000001", "1000000", false),
            ("007", "7", true),
            ("1e3", "1000", true),
            (
                "170141183460469231731687303715884105729",
                "170141183460469231731687303715884105728",
                false,
            ),
            ("nan", "inf", false),
            ("-5.0", "-5", true),
        ] {
            assert_eq!(
                is_output(printed, expected),
                is_same,
                "{printed:?} {expected:?}"
            );
        }
        assert!(is_result(&json!([1, 2]), &json!([1, 2])));
        assert!(is_result(&json!([1, 2]), &json!([[1, 2]])));
        assert!(is_result(&json!(0.1), &json!(0.100_000_000_1)));
        assert!(!is_result(&json!(1_000_001), &json!(1_000_000)));
        assert!(!is_result(&json!([2, 1]), &json!([1, 2])));
        assert!(is_result(&json!({"1": [2.0]}), &json!({"1": [2]})));
        assert!(!is_result(&json!(null), &json!([])));
    }
}
