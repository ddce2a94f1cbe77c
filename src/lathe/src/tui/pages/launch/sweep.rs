//! Overrides whose value is a list to sweep, and the runs that they make. Pure.
//!
//! `lr={1e-5,3e-5}` tries each value, `n=range(2,9,2)` counts as Hydra's does (the end is not included). Several sweeps make a
//! grid, or are walked in step when they are zipped.

/// More runs than anybody means to start at once.
pub const MOST_RUNS: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Combine {
    /// Every value of one with every value of the others.
    #[default]
    Grid,
    /// The first with the first, the second with the second.
    Zip,
}

/// One override as typed, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// `actor.optim.lr`, with its sigil; the whole text when there is no `=`.
    pub key: String,
    /// One text each; a single one: no sweep. Empty: there is no `=`.
    pub values: Vec<String>,
}

impl Swept {
    pub fn is_sweep(&self) -> bool {
        self.values.len() > 1
    }

    /// The overrides that it stands for, one a value.
    pub fn overrides(&self) -> Vec<String> {
        if self.values.is_empty() {
            return vec![self.key.clone()];
        }
        self.values
            .iter()
            .map(|value| format!("{}={value}", self.key))
            .collect()
    }

    /// The key without blocks and sigil: `lr`.
    pub fn short_name(&self) -> &str {
        let key = self.key.trim_start_matches(['+', '~']);
        key.rsplit('.').next().unwrap_or(key)
    }
}

/// One run of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    pub overrides: Vec<String>,
    /// What tells it from the others: `lr=1e-5 n=8`. Empty when there is only one.
    pub label: String,
}

/// Reads one override. The reason says what is wrong with a sweep.
pub fn read(text: &str) -> Result<Swept, String> {
    let text = text.trim();
    let Some((key, value)) = text.split_once('=') else {
        return Ok(Swept {
            key: text.to_owned(),
            values: Vec::new(),
        });
    };
    let value = value.trim();
    let values = if let Some(arguments) = value
        .strip_prefix("range(")
        .and_then(|rest| rest.strip_suffix(')'))
    {
        range(arguments)?
    } else if let Some(inner) = set_of(value) {
        let values: Vec<String> = split(inner);
        if values.iter().any(String::is_empty) {
            return Err(format!("{value}: a value is missing between two commas"));
        }
        values
    } else {
        vec![value.to_owned()]
    };
    Ok(Swept {
        key: key.trim().to_owned(),
        values,
    })
}

/// The inside of `{a,b}`; `{k: v}` is a mapping and one value.
fn set_of(value: &str) -> Option<&str> {
    let inner = value.strip_prefix('{')?.strip_suffix('}')?;
    let is_mapping = split_at(inner, ':').len() > 1 && !inner.contains("${");
    (!inner.trim().is_empty() && !is_mapping).then_some(inner)
}

fn split(text: &str) -> Vec<String> {
    split_at(text, ',')
}

/// Splits where neither brackets nor quotes are open.
fn split_at(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0_usize;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), _) => quote = Some(open).filter(|_| c != open),
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{' | '(') => depth += 1,
            (None, ']' | '}' | ')') => depth = depth.saturating_sub(1),
            (None, _) if c == separator && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            (None, _) => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

fn range(arguments: &str) -> Result<Vec<String>, String> {
    let wrong = || {
        format!(
            "range({arguments}): write range(start,stop) or range(start,stop,step); stop is not included"
        )
    };
    let numbers: Vec<f64> = arguments
        .split(',')
        .map(|number| number.trim().parse::<f64>().ok().filter(|n| n.is_finite()))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    let (start, stop, step) = match numbers[..] {
        [stop] => (0.0, stop, 1.0),
        [start, stop] => (start, stop, 1.0),
        [start, stop, step] => (start, stop, step),
        _ => return Err(wrong()),
    };
    if step == 0.0 {
        return Err(format!("range({arguments}): a step of 0 never ends"));
    }
    // A hair less, so that 0.1 * 3 does not become a fourth step of range(0,0.3,0.1).
    let count = ((stop - start) / step - 1e-9).ceil();
    if count < 1.0 {
        return Err(format!("range({arguments}) has no value"));
    }
    if count > MOST_RUNS as f64 {
        return Err(format!(
            "range({arguments}) has {count} values; {MOST_RUNS} at most"
        ));
    }
    Ok((0..count as usize)
        .map(|index| tidy(start + index as f64 * step))
        .collect())
}

/// Twelve digits: what adding steps leaves behind them is noise.
fn tidy(number: f64) -> String {
    let rounded: f64 = format!("{number:.11e}").parse().unwrap_or(number);
    if rounded != 0.0 && (rounded.abs() < 1e-3 || rounded.abs() >= 1e15) {
        format!("{rounded:e}")
    } else {
        format!("{rounded}")
    }
}

/// The runs that these overrides make, in the order in which they start.
pub fn plan(overrides: &[String], combine: Combine) -> Result<Vec<Planned>, String> {
    let swept: Vec<Swept> = overrides
        .iter()
        .filter(|text| !text.trim().is_empty())
        .map(|text| read(text))
        .collect::<Result<_, _>>()?;
    let lengths: Vec<usize> = swept
        .iter()
        .filter(|swept| swept.is_sweep())
        .map(|swept| swept.values.len())
        .collect();
    let count = match combine {
        Combine::Grid => lengths
            .iter()
            .try_fold(1_usize, |product, length| product.checked_mul(*length))
            .unwrap_or(usize::MAX),
        Combine::Zip => {
            if let Some(other) = lengths.iter().find(|length| **length != lengths[0]) {
                return Err(format!(
                    "zipped lists need the same length; one has {} values, another {other}",
                    lengths[0]
                ));
            }
            lengths.first().copied().unwrap_or(1)
        }
    };
    if count > MOST_RUNS {
        return Err(format!(
            "that is more than {MOST_RUNS} runs; sweep fewer values"
        ));
    }
    Ok((0..count)
        .map(|index| one(&swept, combine, index, count))
        .collect())
}

fn one(swept: &[Swept], combine: Combine, index: usize, count: usize) -> Planned {
    let mut overrides = Vec::new();
    let mut labels = Vec::new();
    // In a grid the last key changes fastest.
    let mut left = count;
    let mut rest = index;
    for swept in swept {
        let mut all = swept.overrides();
        let at = if !swept.is_sweep() {
            0
        } else if combine == Combine::Zip {
            index
        } else {
            left /= all.len();
            let at = rest / left;
            rest %= left;
            at
        };
        if swept.is_sweep() {
            labels.push(format!("{}={}", swept.short_name(), swept.values[at]));
        }
        overrides.push(all.swap_remove(at));
    }
    Planned {
        overrides,
        label: labels.join(" "),
    }
}

/// A run's name: the base and what tells it from the others, in characters that names of directories like.
pub fn run_name(base: &str, label: &str) -> String {
    if label.is_empty() {
        return base.to_owned();
    }
    let label: String = label
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "._+-".contains(c) {
                c
            } else {
                '-'
            }
        })
        .take(60)
        .collect();
    format!("{base}-{label}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(overrides: &[&str]) -> Vec<String> {
        overrides.iter().map(|&text| text.to_owned()).collect()
    }

    fn values(text: &str) -> Vec<String> {
        read(text).unwrap().values
    }

    #[test]
    fn a_set_is_a_sweep_and_a_mapping_or_list_is_one_value() {
        assert_eq!(values("lr={1e-5, 3e-5}"), ["1e-5", "3e-5"]);
        assert_eq!(values("files={[a,b],[c]}"), ["[a,b]", "[c]"]);
        assert_eq!(values("names={\"a,b\",c}"), ["\"a,b\"", "c"]);
        assert_eq!(values("kwargs={a: 1, b: 2}"), ["{a: 1, b: 2}"]);
        assert_eq!(values("kwargs={{a: 1},{a: 2}}"), ["{a: 1}", "{a: 2}"]);
        assert_eq!(values("stop=[a,b]"), ["[a,b]"]);
        assert_eq!(values("empty={}"), ["{}"]);
        assert_eq!(read("~a.b").unwrap().overrides(), ["~a.b"]);
        assert!(read("lr={1,,2}").is_err());
    }

    #[test]
    fn a_range_counts_as_hydras_does() {
        assert_eq!(values("n=range(2,9,2)"), ["2", "4", "6", "8"]);
        assert_eq!(values("n=range(3)"), ["0", "1", "2"]);
        assert_eq!(values("lr=range(0,0.3,0.1)"), ["0", "0.1", "0.2"]);
        assert_eq!(values("n=range(3,0,-1)"), ["3", "2", "1"]);
        assert_eq!(values("lr=range(1e-5,4e-5,1e-5)"), ["1e-5", "2e-5", "3e-5"]);
        for wrong in [
            "n=range(1,1)",
            "n=range(1,9,0)",
            "n=range(a)",
            "n=range(0,1e9)",
        ] {
            assert!(read(wrong).unwrap_err().starts_with("range("), "{wrong}");
        }
    }

    #[test]
    fn a_grid_has_every_pair_and_a_zip_walks_in_step() {
        let swept = texts(&["lr={1e-5,3e-5}", "seed=7", "n={4,8}"]);
        let labels = |combine| -> Vec<String> {
            let plan = plan(&swept, combine).unwrap();
            plan.into_iter().map(|planned| planned.label).collect()
        };
        assert_eq!(
            labels(Combine::Grid),
            ["lr=1e-5 n=4", "lr=1e-5 n=8", "lr=3e-5 n=4", "lr=3e-5 n=8"]
        );
        assert_eq!(labels(Combine::Zip), ["lr=1e-5 n=4", "lr=3e-5 n=8"]);
        let zipped = plan(&swept, Combine::Zip).unwrap();
        assert_eq!(zipped[1].overrides, ["lr=3e-5", "seed=7", "n=8"]);
        let uneven = texts(&["lr={1,2}", "n={1,2,3}"]);
        assert!(
            plan(&uneven, Combine::Zip)
                .unwrap_err()
                .contains("same length")
        );
    }

    #[test]
    fn without_a_sweep_there_is_one_run() {
        let plan = plan(&texts(&["lr=1e-5", ""]), Combine::Grid).unwrap();
        assert_eq!(
            plan,
            [Planned {
                overrides: texts(&["lr=1e-5"]),
                label: String::new()
            }]
        );
    }

    #[test]
    fn too_many_runs_are_refused_before_they_are_made() {
        let many = texts(&["a=range(0,900)", "b=range(0,900)", "c=range(0,900)"]);
        assert!(
            plan(&many, Combine::Grid)
                .unwrap_err()
                .contains("1000 runs")
        );
    }

    #[test]
    fn a_label_becomes_part_of_a_name() {
        assert_eq!(run_name("quick", "lr=1e-5 n=4"), "quick-lr-1e-5-n-4");
        assert_eq!(run_name("quick", ""), "quick");
    }

    proptest! {
        #[test]
        fn a_grid_has_each_combination_once(lengths in prop::collection::vec(1_usize..5, 0..5)) {
            let overrides: Vec<String> = lengths
                .iter()
                .enumerate()
                .map(|(key, length)| {
                    let values: Vec<String> = (0..*length).map(|value| value.to_string()).collect();
                    format!("k{key}={{{}}}", values.join(","))
                })
                .collect();
            let plan = plan(&overrides, Combine::Grid).unwrap();
            prop_assert_eq!(plan.len(), lengths.iter().product::<usize>());
            let mut seen = std::collections::HashSet::new();
            for planned in plan {
                prop_assert!(seen.insert(planned.overrides));
            }
        }
    }
}
