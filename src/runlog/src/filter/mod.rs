//! The expression language of the list of runs: `state:running kl>0.02 tag:paper cfg.actor.optim.lr<1e-5 sort -state:dead`.
//!
//! ```text
//!  expression  terms with spaces between; all must hold; `-` before a term turns it round
//!  word        name:sort  state:running,failed  host:gpu1  tag:paper  note:"too high"  mode:sync    `:` contains, `=` is
//!  number      step>=100  age<2h  kl>0.02  reward.last>=0.9  best(reward)>0.8  mean(kl,20)<1e-3  kl:nan
//!  config      cfg.actor.optim.lr<1e-5  cfg.algorithm.adv_estimator=grpo   the end of a key is enough
//!  else        fuzzy text for the name
//! ```
//! A metric may be given by its end (`ppo_kl`, `score/mean`) or by a word of [`ALIASES`]. Knows facts, not screens.

mod metric;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;

pub use metric::{ALIASES, Resolved, resolve};

use crate::series::Series;
/// What a filter may ask of a run.
pub trait RunFacts {
    fn name(&self) -> &str;
    /// One word of [`STATES`], or another of the screen.
    fn state(&self) -> &str;
    fn host(&self) -> &str;
    /// `sync`, `one_step_off`, `sft`, …
    fn mode(&self) -> &str;
    fn note(&self) -> &str;
    fn has_tag(&self, tag: &str) -> bool;
    /// Last step that ended.
    fn step(&self) -> u64;
    /// Seconds since the run started.
    fn age_s(&self) -> f64;
    /// The resolved experiment; `Null` when it cannot be read.
    fn config(&self) -> &serde_json::Value;
    /// Every metric the run has logged, as far as that is known.
    fn metric_names(&self) -> Vec<&str>;
    /// One number of a metric. None: not logged, or not known without reading the whole log.
    fn metric(&self, name: &str, reduce: Reduce) -> Option<f64>;
}

/// Which number of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduce {
    Last,
    First,
    Min,
    Max,
    /// Max or min, as the metric table says which way is better.
    Best,
    /// Mean of the last so many finite values.
    Mean(usize),
}

impl Reduce {
    /// This number of a series. None: there is no finite value; or it is [`Reduce::Best`] of a metric (by its `name`) of
    /// which no way is better. The last value is given as it is, NaN too.
    pub fn of(self, name: &str, series: Series<'_>) -> Option<f64> {
        let bounds = || series.bounds(0..series.len());
        match metric::directed(name, self)? {
            Self::Last => Some(series.last()?.value.0),
            Self::First => Some(series.first()?.value.0),
            Self::Min => Some(bounds()?.min),
            Self::Max | Self::Best => Some(bounds()?.max),
            Self::Mean(count) => {
                let finite = series
                    .values()
                    .iter()
                    .rev()
                    .filter(|value| value.is_finite());
                let (sum, count) = finite
                    .take(count)
                    .fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
                (count > 0).then(|| sum / f64::from(count))
            }
        }
    }
}

/// A filter, read and ready.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    terms: Vec<Term>,
}

/// What is wrong with an expression, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {}: {message}", at.start + 1)]
pub struct FilterError {
    /// Bytes of the expression.
    pub at: Range<usize>,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Term {
    at: Range<usize>,
    is_negated: bool,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    /// Letters in this order in the name.
    Fuzzy(String),
    Word {
        field: Field,
        is_exact: bool,
        /// Any of them.
        any_of: Vec<String>,
    },
    Number {
        of: Quantity,
        compare: Compare,
        value: f64,
    },
    /// The number is NaN or infinite.
    NonFinite(Quantity),
    ConfigWord {
        key: String,
        is_exact: bool,
        any_of: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    State,
    Host,
    Tag,
    Note,
    Mode,
}

#[derive(Debug, Clone, PartialEq)]
enum Quantity {
    Step,
    Age,
    Config(String),
    Metric { word: String, reduce: Reduce },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Less,
    AtMost,
    Equal,
    NotEqual,
    AtLeast,
    More,
}

impl Compare {
    fn holds(self, found: f64, value: f64) -> bool {
        match self {
            Self::Less => found < value,
            Self::AtMost => found <= value,
            Self::Equal => found == value,
            Self::NotEqual => found != value,
            Self::AtLeast => found >= value,
            Self::More => found > value,
        }
    }
}

/// The words `state:` knows. A paused run is running too.
pub const STATES: [&str; 6] = ["running", "paused", "finished", "stopped", "failed", "dead"];

impl Filter {
    /// Reads an expression. An empty one lets every run through.
    pub fn parse(expression: &str) -> Result<Self, FilterError> {
        parse::parse(expression).map(|terms| Self { terms })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The fuzzy words, for ranking and highlighting; a screen that ranks by them need not drop what they do not match.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().filter_map(|term| match &term.test {
            Test::Fuzzy(word) if !term.is_negated => Some(word.as_str()),
            _ => None,
        })
    }

    /// True: every term holds. A number that the run does not have makes its term fail, negated or not.
    pub fn matches(&self, run: &(impl RunFacts + ?Sized)) -> bool {
        self.terms
            .iter()
            .all(|term| holds(&term.test, run).is_some_and(|holds| holds != term.is_negated))
    }

    /// What is wrong with a filter in view of the runs it is for: a metric or key that none has, or that is ambiguous.
    pub fn check<'a>(&self, runs: impl IntoIterator<Item = &'a dyn RunFacts>) -> Vec<FilterError> {
        let runs: Vec<&dyn RunFacts> = runs.into_iter().collect();
        if runs.is_empty() {
            return Vec::new();
        }
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for run in &runs {
            names.extend(run.metric_names());
        }
        self.terms
            .iter()
            .filter_map(|term| {
                let message = match &term.test {
                    Test::Number { of, .. } | Test::NonFinite(of) => match of {
                        Quantity::Metric { word, reduce } => {
                            metric::complaint(word, *reduce, &names)
                        }
                        Quantity::Config(key) => config_complaint(key, &runs),
                        Quantity::Step | Quantity::Age => None,
                    },
                    Test::ConfigWord { key, .. } => config_complaint(key, &runs),
                    Test::Fuzzy(_) | Test::Word { .. } => None,
                }?;
                Some(FilterError {
                    at: term.at.clone(),
                    message,
                })
            })
            .collect()
    }
}

/// None: the run does not have what is asked for.
fn holds(test: &Test, run: &(impl RunFacts + ?Sized)) -> Option<bool> {
    match test {
        Test::Fuzzy(word) => Some(has_letters(run.name(), word)),
        Test::Word {
            field,
            is_exact,
            any_of,
        } => Some(any_of.iter().any(|word| {
            let text = match field {
                Field::Name => run.name(),
                Field::State if run.state() == "paused" => {
                    return ["paused", "running"]
                        .into_iter()
                        .any(|text| word_fits(text, word, *is_exact));
                }
                Field::State => run.state(),
                Field::Host => run.host(),
                Field::Note => run.note(),
                Field::Mode => run.mode(),
                Field::Tag => return run.has_tag(word),
            };
            word_fits(text, word, *is_exact)
        })),
        Test::Number { of, compare, value } => Some(compare.holds(quantity(of, run)?, *value)),
        Test::NonFinite(of) => Some(!quantity(of, run)?.is_finite()),
        Test::ConfigWord {
            key,
            is_exact,
            any_of,
        } => {
            let found = config_value(run.config(), key).ok()?;
            Some(any_of.iter().any(|word| value_fits(found, word, *is_exact)))
        }
    }
}

fn quantity(of: &Quantity, run: &(impl RunFacts + ?Sized)) -> Option<f64> {
    match of {
        Quantity::Step => Some(run.step() as f64),
        Quantity::Age => Some(run.age_s()),
        Quantity::Config(key) => {
            let found = config_value(run.config(), key).ok()?;
            found.as_f64().or_else(|| found.as_str()?.parse().ok())
        }
        Quantity::Metric { word, reduce } => match resolve(word, run.metric_names()) {
            Resolved::One(name) => run.metric(name, metric::directed(name, *reduce)?),
            Resolved::None | Resolved::Many(_) => None,
        },
    }
}

/// True: the letters of `word` come in `text` in this order, whatever their case.
fn has_letters(text: &str, word: &str) -> bool {
    let mut letters = text.chars().flat_map(char::to_lowercase);
    word.chars()
        .flat_map(char::to_lowercase)
        .all(|letter| letters.any(|found| found == letter))
}

fn word_fits(text: &str, word: &str, is_exact: bool) -> bool {
    let (text, word) = (text.to_lowercase(), word.to_lowercase());
    if is_exact {
        text == word
    } else {
        text.contains(&word)
    }
}

fn value_fits(value: &serde_json::Value, word: &str, is_exact: bool) -> bool {
    match value {
        serde_json::Value::String(text) => word_fits(text, word, is_exact),
        serde_json::Value::Array(items) => {
            items.iter().any(|item| value_fits(item, word, is_exact))
        }
        other => {
            let text = other.to_string();
            text == word
        }
    }
}

/// The value of a key, or of the only key that ends in `.key`. Err: the keys it could be; none, or several.
fn config_value<'a>(
    config: &'a serde_json::Value,
    key: &str,
) -> Result<&'a serde_json::Value, Vec<String>> {
    let pointer = format!("/{}", key.replace('.', "/"));
    if let Some(found) = config.pointer(&pointer) {
        return Ok(found);
    }
    let mut found = Vec::new();
    leaves(config, &mut String::new(), &mut |path, value| {
        let is_end = path
            .strip_suffix(key)
            .is_some_and(|before| before.ends_with('.'));
        if is_end {
            found.push((path.to_owned(), value));
        }
    });
    match found.as_slice() {
        [(_, value)] => Ok(value),
        _ => Err(found.into_iter().map(|(path, _)| path).collect()),
    }
}

fn leaves<'a>(
    value: &'a serde_json::Value,
    path: &mut String,
    found: &mut dyn FnMut(&str, &'a serde_json::Value),
) {
    let serde_json::Value::Object(map) = value else {
        found(path, value);
        return;
    };
    for (key, value) in map {
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(key);
        leaves(value, path, found);
        path.truncate(length);
    }
}

fn config_complaint(key: &str, runs: &[&dyn RunFacts]) -> Option<String> {
    let mut candidates = Vec::new();
    for run in runs {
        match config_value(run.config(), key) {
            Ok(_) => return None,
            Err(found) => candidates.extend(found),
        }
    }
    candidates.sort_unstable();
    candidates.dedup();
    Some(if candidates.is_empty() {
        format!("no run has a configuration key that is `{key}` or ends in it")
    } else {
        format!(
            "`{key}` could be {}; give more of it",
            candidates.join(", ")
        )
    })
}
