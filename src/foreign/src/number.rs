//! Numbers and times as other programs write them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::item::Moment;

/// A number, whatever it is called: `1e-6`, `nan`, `Infinity`, `np.float64(0.5)`. None: no number.
pub fn parse(text: &str) -> Option<f64> {
    let text = text.trim();
    let text = match text.strip_suffix(')') {
        // NumPy's own way of printing one.
        Some(inner) => inner.rsplit_once('(')?.1,
        None => text,
    };
    // Rust takes nan, inf and infinity with a sign and in any case, as Python does.
    text.parse().ok()
}

/// The number in a JSON value: numbers, and non-finite ones as strings.
pub fn of_json(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => parse(text).filter(|number| !number.is_finite()),
        _ => None,
    }
}

/// JSON, and the JSON of Python and JavaScript libraries with bare `NaN`, `Infinity` and `-Infinity`: those become strings.
pub fn lenient_json(text: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(text).or_else(|error| {
        let quoted = quote_non_finite(text);
        serde_json::from_slice(&quoted).map_err(|_| error)
    })
}

fn quote_non_finite(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    let mut is_text = false;
    while at < text.len() {
        let rest = &text[at..];
        let byte = rest[0];
        if is_text {
            if byte == b'\\' {
                let length = rest.len().min(2);
                out.extend(&rest[..length]);
                at += length;
                continue;
            }
            is_text = byte != b'"';
        } else if byte == b'"' {
            is_text = true;
        } else if let Some(word) = ["NaN", "-Infinity", "Infinity"]
            .iter()
            .find(|word| rest.starts_with(word.as_bytes()))
        {
            out.push(b'"');
            out.extend(word.as_bytes());
            out.push(b'"');
            at += word.len();
            continue;
        }
        out.push(byte);
        at += 1;
    }
    out
}

/// A time in a column: seconds or milliseconds since 1970, seconds since the start, or a date with a time.
pub fn moment(text: &str) -> Option<Moment> {
    match parse(text) {
        Some(number) => moment_of_number(number),
        None => wall_s(text).map(Moment::Wall),
    }
}

pub fn moment_of_number(number: f64) -> Option<Moment> {
    // A run that began before September 2001, or lasts 30 years, is not a run.
    const FIRST_WALL_S: f64 = 1e9;
    if !number.is_finite() {
        return None;
    }
    Some(match number {
        _ if number >= FIRST_WALL_S * 1e9 => Moment::Wall(number / 1e9),
        _ if number >= FIRST_WALL_S * 1e3 => Moment::Wall(number / 1e3),
        _ if number >= FIRST_WALL_S => Moment::Wall(number),
        _ => Moment::SinceStart(number),
    })
}

/// Seconds since 1970 of a date with a time; UTC where it names no zone.
pub fn wall_s(text: &str) -> Option<f64> {
    let text = text.trim();
    let timestamp = text.parse::<Timestamp>().ok().or_else(|| {
        let civil: DateTime = text.parse().ok()?;
        TimeZone::UTC.to_timestamp(civil).ok()
    })?;
    Some(timestamp.as_nanosecond() as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_python_prints_them() {
        assert_eq!(parse("1e-06"), Some(1e-6));
        assert_eq!(parse(" np.float64(0.25)"), Some(0.25));
        assert_eq!(parse("-inf"), Some(f64::NEG_INFINITY));
        assert!(parse("NaN").is_some_and(f64::is_nan));
        assert!(parse("np.float32(nan)").is_some_and(f64::is_nan));
        assert_eq!(parse("0.5)"), None);
        assert_eq!(parse("True"), None);
    }

    #[test]
    fn bare_nan_is_read_and_text_is_left_alone() {
        let value =
            lenient_json(br#"{"a": NaN, "b": [-Infinity, 1], "c": "NaN \" Infinity", "d":1}"#)
                .unwrap();
        assert!(of_json(&value["a"]).is_some_and(f64::is_nan));
        assert_eq!(of_json(&value["b"][0]), Some(f64::NEG_INFINITY));
        assert_eq!(value["c"], "NaN \" Infinity");
        assert!(lenient_json(b"{\"a\": Nan}").is_err());
        assert!(lenient_json(b"{\"a\": \"x").is_err());
    }

    #[test]
    fn times_are_known_by_their_size() {
        assert_eq!(moment("12.5"), Some(Moment::SinceStart(12.5)));
        assert_eq!(moment("1700000000.5"), Some(Moment::Wall(1_700_000_000.5)));
        assert_eq!(moment("1700000000500"), Some(Moment::Wall(1_700_000_000.5)));
        assert_eq!(
            moment("2026-11-30T12:00:00.5+00:00"),
            Some(Moment::Wall(1_796_040_000.5))
        );
        assert_eq!(
            moment("2026-11-30 12:00:00"),
            Some(Moment::Wall(1_796_040_000.0))
        );
        assert_eq!(moment("soon"), None);
        assert_eq!(moment("nan"), None);
    }
}
