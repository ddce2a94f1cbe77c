//! What a key may hold: type, range, choices, and the words for both.

use std::fmt;

/// An end of a range of floats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    None,
    /// The end itself is allowed.
    Closed(f64),
    Open(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Bool,
    /// A whole number `min..=max`; `off`: a value outside the range that switches the thing off (verl's -1).
    Int {
        min: i128,
        max: i128,
        off: Option<i128>,
    },
    Float {
        low: Bound,
        high: Bound,
    },
    /// 0..=1 unless the key narrows it.
    Probability {
        low: Bound,
        high: Bound,
    },
    /// Seconds as a number, or `250ms`, `90s`, `5m`, `2h`; more than zero.
    Duration,
    Text,
    /// A file or directory.
    Path,
    Choice(&'static Choices),
    /// One value stands for a list of one.
    List(&'static Kind),
    /// Exactly two numbers.
    Pair(&'static Kind),
    /// A mapping whose keys are not ours.
    Mapping,
    /// A cap of a ratio or a band of it; see [`crate::correction::Band`].
    Band,
    /// A list of guards; see [`crate::guards`].
    Guards,
    /// A list of judges; see [`crate::arms`].
    Arms,
}

/// The names of an enum.
#[derive(Debug, PartialEq, Eq)]
pub struct Choices {
    /// What works in this build, as serde writes it.
    pub now: &'static [&'static str],
    /// Other spellings of those that the typed experiment reads as well.
    pub also: &'static [&'static str],
    /// Known to verl or planned here, not available yet.
    pub later: &'static [&'static str],
    /// A value of `later` is dropped with a warning instead of refused (a logger more or less changes no result).
    pub later_is_dropped: bool,
}

pub const U32: i128 = u32::MAX as i128;
pub const I64: i128 = i64::MAX as i128;
pub const U64: i128 = u64::MAX as i128;

impl Kind {
    /// "a whole number", for `expected a whole number, got "abc"`.
    pub fn noun(&self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Int { .. } => "a whole number".to_owned(),
            Self::Float { .. } => "a number".to_owned(),
            Self::Probability { .. } => "a number between 0 and 1".to_owned(),
            Self::Duration => "seconds, or a time such as 250ms, 90s, 5m, 2h".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Choice(choices) => or_list(choices.now),
            Self::List(item) => format!("{} or a list of such", item.noun()),
            Self::Pair(_) => "two numbers [a, b]".to_owned(),
            Self::Mapping => "a mapping {key: value}".to_owned(),
            Self::Band => "a number above 0, or a band such as 0.5_5.0".to_owned(),
            Self::Arms => "a list of arms {name: ..., scorer: ..., weight: ...}".to_owned(),
            Self::Guards => {
                "online, off, or a list of guards {metric: ..., above: ..., action: ...}".to_owned()
            }
        }
    }

    /// The allowed values in the form `0 < name < 1`, `>= 1`; empty when the type says it all.
    pub fn range(&self, name: &str) -> String {
        match self {
            Self::Int { min, max, off } => {
                let off = off.map_or_else(String::new, |off| format!(", or {off} (off)"));
                if *max >= U32 {
                    format!(">= {min}{off}")
                } else {
                    format!("{min} <= {name} <= {max}{off}")
                }
            }
            Self::Float { low, high } | Self::Probability { low, high } => match (low, high) {
                (Bound::None, Bound::None) => "a finite number".to_owned(),
                (Bound::Closed(low), Bound::None) => format!(">= {low}"),
                (Bound::Open(low), Bound::None) => format!("> {low}"),
                (Bound::None, Bound::Closed(high)) => format!("<= {high}"),
                (Bound::None, Bound::Open(high)) => format!("< {high}"),
                (low, high) => format!("{}{name}{}", End(*low, true), End(*high, false)),
            },
            Self::Duration => "> 0".to_owned(),
            Self::List(item) | Self::Pair(item) => item.range(name),
            Self::Bool
            | Self::Text
            | Self::Path
            | Self::Choice(_)
            | Self::Mapping
            | Self::Band
            | Self::Guards
            | Self::Arms => String::new(),
        }
    }
}

struct End(Bound, bool);

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Bound::None, _) => Ok(()),
            (Bound::Closed(bound), true) => write!(f, "{bound} <= "),
            (Bound::Open(bound), true) => write!(f, "{bound} < "),
            (Bound::Closed(bound), false) => write!(f, " <= {bound}"),
            (Bound::Open(bound), false) => write!(f, " < {bound}"),
        }
    }
}

/// `a, b or c`.
pub fn or_list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
