//! A time limit as sbatch takes it.

/// How long a job may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// In whole minutes, as Slurm counts.
    Seconds(u64),
    None,
}

/// `30`, `30:00`, `12:00:00`, `2-12`, `2-12:30`, `2-12:30:00`, `UNLIMITED`; None: it is none of them.
pub(super) fn limit(text: &str) -> Option<Limit> {
    if matches!(text.to_ascii_lowercase().as_str(), "unlimited" | "infinite") {
        return Some(Limit::None);
    }
    let number = |part: &str| -> Option<u64> {
        let is_number =
            !part.is_empty() && part.len() <= 6 && part.chars().all(|c| c.is_ascii_digit());
        is_number.then(|| part.parse().ok())?
    };
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts: Vec<u64> = rest.split(':').map(number).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match (days, &parts[..]) {
        (None, [minutes]) => (0, *minutes, 0),
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (Some(_), [hours]) => (*hours, 0, 0),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let all = ((days.unwrap_or(0) * 24 + hours) * 60 + minutes) * 60 + seconds;
    Some(match all {
        // Slurm takes it for none.
        0 => Limit::None,
        all => Limit::Seconds(all.div_ceil(60) * 60),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_sbatch_is_read_and_nothing_else() {
        for (text, seconds) in [
            ("30", 1800),
            ("30:01", 1860),
            ("12:00:00", 43_200),
            ("2-12", 216_000),
            ("2-12:30", 217_800),
            ("2-12:30:30", 217_860),
        ] {
            assert_eq!(limit(text), Some(Limit::Seconds(seconds)), "{text}");
        }
        for text in ["UNLIMITED", "infinite", "0"] {
            assert_eq!(limit(text), Some(Limit::None), "{text}");
        }
        for text in ["", "x", "1:2:3:4", "-1", "1-", "1.5", "12h", "1234567"] {
            assert_eq!(limit(text), None, "{text}");
        }
    }
}
