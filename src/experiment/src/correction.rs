//! The words of the rollout correction: bands of a ratio (`2.0`, `0.5_5.0`) and criteria that leave tokens or sequences out of
//! the loss (`token_k1, seq_mean_k3`). Read here, where nothing computes, so that `lathe check` knows them; verl's vocabulary.

use serde::{Deserialize, Serialize};

/// Weights are cut at `upper`; with `lower`, those outside become 0 (`IcePop`). A number, or a text such as `0.5_5.0`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Band {
    pub lower: Option<f64>,
    pub upper: f64,
}

/// A band as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Upper(f64),
    Text(String),
}

impl From<Band> for Written {
    fn from(band: Band) -> Self {
        match band.lower {
            None => Self::Upper(band.upper),
            Some(lower) => Self::Text(format!("{lower}_{}", band.upper)),
        }
    }
}

impl TryFrom<Written> for Band {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Upper(upper) => Self::parse(&upper.to_string()),
            Written::Text(text) => Self::parse(&text),
        }
    }
}

impl Band {
    /// `2.0`, or `0.5_5.0`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?}; expected a number above 0 (weights are cut to it), or a band such as 0.5_5.0 (weights outside become 0)"
            )
        };
        let number = |text: &str| positive(text).ok_or_else(wrong);
        match text.split_once('_') {
            None => Ok(Self {
                lower: None,
                upper: number(text)?,
            }),
            Some((lower, upper)) => {
                let (lower, upper) = (number(lower)?, number(upper)?);
                if lower > upper {
                    return Err(format!("{text:?}; expected the lower end first"));
                }
                Ok(Self {
                    lower: Some(lower),
                    upper,
                })
            }
        }
    }
}

/// Of a token, with x = log π − log `π_rollout`: k1 = −x, k2 = ½x², k3 = eˣ − 1 − x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divergence {
    K1,
    K2,
    K3,
}

/// What is judged: each token by itself, or a sequence by the sum, mean or largest of its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Token,
    Sum,
    Mean,
    Max,
}

/// What must hold of a token that stays.
#[derive(Debug, Clone, PartialEq)]
pub struct Criterion {
    /// As written, e.g. `seq_mean_k3`.
    pub name: String,
    pub divergence: Divergence,
    pub over: Over,
    /// Logarithms of the ratio's bounds for k1; None and the bound for the others.
    pub lower: Option<f64>,
    pub upper: f64,
}

const NAMES: &str = "token_k1 to k3, seq_sum_k1 to k3, seq_mean_k1 to k3, seq_max_k2 or seq_max_k3";

/// `rollout_rs` and `rollout_rs_threshold`: names with commas between, and one threshold for all or one for each. A threshold is
/// an upper bound; for k1 it is one on the ratio, or `lower_upper` (without: 1/upper).
pub fn criteria(options: &str, thresholds: &str) -> Result<Vec<Criterion>, String> {
    let mut names: Vec<&str> = Vec::new();
    for name in parts(options) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let bounds: Vec<&str> = parts(thresholds).collect();
    if names.is_empty() {
        return Err(format!(
            "rollout_rs {options:?} has no criterion; expected some of {NAMES}"
        ));
    }
    if bounds.len() != 1 && bounds.len() != names.len() {
        return Err(format!(
            "rollout_rs_threshold {thresholds:?} has {} thresholds for {} criteria; expected one, or one for each",
            bounds.len(),
            names.len()
        ));
    }
    names
        .iter()
        .enumerate()
        .map(|(index, name)| Criterion::parse(name, bounds.get(index).unwrap_or(&bounds[0])))
        .collect()
}

impl Criterion {
    fn parse(name: &str, bound: &str) -> Result<Self, String> {
        let unknown = || format!("rollout_rs {name:?} is unknown; expected {NAMES}");
        let (over, divergence) = name.rsplit_once('_').ok_or_else(unknown)?;
        let over = match over {
            "token" => Over::Token,
            "seq_sum" => Over::Sum,
            "seq_mean" => Over::Mean,
            "seq_max" => Over::Max,
            _ => return Err(unknown()),
        };
        let divergence = match divergence {
            "k1" => Divergence::K1,
            "k2" => Divergence::K2,
            "k3" => Divergence::K3,
            _ => return Err(unknown()),
        };
        if (over, divergence) == (Over::Max, Divergence::K1) {
            return Err(format!(
                "rollout_rs {name:?}: the largest k1 says nothing; expected seq_max_k2 or seq_max_k3"
            ));
        }
        let wrong = |expected: &str| {
            format!("rollout_rs_threshold {bound:?} of {name}: expected {expected}")
        };
        let number = |text: &str| {
            positive(text).ok_or_else(|| wrong("a number above 0, for k1 also lower_upper"))
        };
        let (lower, upper) = match (divergence, bound.split_once('_')) {
            (Divergence::K1, Some((lower, upper))) => {
                let (lower, upper) = (number(lower)?, number(upper)?);
                if lower > upper {
                    return Err(wrong("the lower end first"));
                }
                (Some(lower.ln()), upper.ln())
            }
            (Divergence::K1, None) => {
                let upper = number(bound)?;
                if upper < 1.0 {
                    return Err(wrong(
                        "a ratio of at least 1, whose inverse is the lower bound",
                    ));
                }
                (Some(-upper.ln()), upper.ln())
            }
            (_, Some(_)) => return Err(wrong("an upper bound alone, for k2 and k3")),
            (_, None) => (None, number(bound)?),
        };
        Ok(Self {
            name: name.to_owned(),
            divergence,
            over,
            lower,
            upper,
        })
    }
}

fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

fn positive(text: &str) -> Option<f64> {
    let number: f64 = text.trim().parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_is_a_cap_or_two_ends_and_nothing_else() {
        let band = |lower, upper| Ok(Band { lower, upper });
        assert_eq!(Band::parse("2"), band(None, 2.0));
        assert_eq!(Band::parse("0.5_5.0"), band(Some(0.5), 5.0));
        for text in ["2", "0.5_5"] {
            let read = Band::parse(text).unwrap();
            let json = serde_json::to_value(read).unwrap();
            assert_eq!(serde_json::from_value::<Band>(json).unwrap(), read);
        }
        for wrong in ["", "-1", "0", "inf", "nan", "5_0.5", "1_2_3", "a"] {
            assert!(Band::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn criteria_take_one_threshold_for_all_or_one_each() {
        let one = criteria("token_k1, seq_max_k3", "2").unwrap();
        assert_eq!(
            (one[0].lower, one[0].upper),
            (Some(-2.0_f64.ln()), 2.0_f64.ln())
        );
        assert_eq!((one[1].lower, one[1].upper), (None, 2.0));
        let each = criteria("token_k1,token_k2", "0.5_3, 0.1").unwrap();
        assert_eq!((each[0].lower, each[1].upper), (Some(0.5_f64.ln()), 0.1));
        for (names, bounds) in [
            ("", "1"),
            ("token_k4", "1"),
            ("token", "1"),
            ("seq_max_k1", "1"),
            ("token_k1", "0.5"),
            ("token_k2", "0.5_2"),
            ("token_k2,token_k3", "1,2,3"),
            ("token_k2", ""),
        ] {
            assert!(criteria(names, bounds).is_err(), "{names} {bounds}");
        }
    }
}
