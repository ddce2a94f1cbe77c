//! Numbers, bytes and times as people read them: three significant digits, a unit, no noise.

use std::time::Duration;

/// Three significant digits: `0.412`, `12.3`, `1.2e-4`. Non-finite numbers by name.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if (1e-3..1e6).contains(&size) {
        // Rounding may carry into the next decade (0.9996 is 1.00), so the exponent is that of the rounded value.
        let exponent = rounded_exponent(size);
        let decimals = (2 - exponent).max(0) as usize;
        format!("{value:.decimals$}")
    } else {
        format!("{value:.2e}")
    }
}

/// `12/80`; `12` where it is not known how many there will be.
pub fn steps(step: u64, total: u64) -> String {
    match total {
        0 => step.to_string(),
        total => format!("{step}/{total}"),
    }
}

fn rounded_exponent(size: f64) -> i32 {
    let text = format!("{size:.2e}");
    text.rsplit('e')
        .next()
        .and_then(|exponent| exponent.parse().ok())
        .expect("`{:e}` ends with an exponent")
}

/// `3.2 MB`; powers of 1000.
pub fn bytes(count: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{} {}", number(value), units[unit])
    }
}

/// `850 ms`, `12.3 s`, `4m 05s`, `3h 12m`, `2d 4h`.
pub fn duration(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    if seconds < 0.9995 {
        return format!("{:.0} ms", seconds * 1e3);
    }
    if seconds < 59.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h {:02}m", whole / 3600, whole % 3600 / 60),
        _ => format!("{}d {}h", whole / 86_400, whole % 86_400 / 3600),
    }
}

/// The largest unit only, for tables: `5s`, `12m`, `3h`, `2d`.
pub fn age(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `812,345`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `step`/`steps` after a count.
pub fn plural(count: u64, one: &str) -> String {
    format!(
        "{} {one}{}",
        self::count(count),
        if count == 1 { "" } else { "s" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown: Vec<String> = [
            0.0, 0.4123, 0.9996, 12.345, 123.4, 12345.6, 1.234e-4, -2.5, 3e9,
        ]
        .into_iter()
        .map(number)
        .collect();
        assert_eq!(
            shown,
            [
                "0", "0.412", "1.00", "12.3", "123", "12346", "1.23e-4", "-2.50", "3.00e9"
            ]
        );
        assert_eq!([f64::NAN, f64::NEG_INFINITY].map(number), ["NaN", "-inf"]);
    }

    #[test]
    fn bytes_change_unit_before_four_digits() {
        assert_eq!(
            [0, 999, 1000, 999_600, 3_200_000].map(bytes),
            ["0 B", "999 B", "1.00 kB", "1.00 MB", "3.20 MB"]
        );
    }

    #[test]
    fn durations_carry_into_the_next_unit() {
        let shown = [
            0.0, 0.85, 0.9999, 12.34, 59.99, 245.0, 3599.7, 11_520.0, 187_200.0,
        ]
        .map(|seconds| duration(Duration::from_secs_f64(seconds)));
        assert_eq!(
            shown,
            [
                "0 ms", "850 ms", "1.0 s", "12.3 s", "1m 00s", "4m 05s", "1h 00m", "3h 12m",
                "2d 4h"
            ]
        );
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!(
            [0, 999, 1000, 812_345, 1_234_567].map(count),
            ["0", "999", "1,000", "812,345", "1,234,567"]
        );
        assert_eq!(plural(1, "step"), "1 step");
        assert_eq!(plural(1200, "step"), "1,200 steps");
    }
}
