//! From text to terms, with the place of whatever is wrong.

use std::ops::Range;

use super::{Compare, Field, FilterError, Quantity, Reduce, STATES, Term, Test};

pub(super) fn parse(expression: &str) -> Result<Vec<Term>, FilterError> {
    words(expression)?
        .into_iter()
        .map(|at| term(expression, at))
        .collect()
}

fn error(at: Range<usize>, message: impl Into<String>) -> FilterError {
    FilterError {
        at,
        message: message.into(),
    }
}

/// Cuts at white space, but not inside of quotes.
fn words(expression: &str) -> Result<Vec<Range<usize>>, FilterError> {
    let mut found = Vec::new();
    let mut start = None;
    let mut quote = None;
    for (at, c) in expression.char_indices() {
        if c == '"' {
            quote = match quote {
                None => Some(at),
                Some(_) => None,
            };
        }
        if c.is_whitespace() && quote.is_none() {
            found.extend(start.take().map(|start| start..at));
        } else {
            start.get_or_insert(at);
        }
    }
    if let Some(at) = quote {
        return Err(error(at..expression.len(), "this quote is not closed"));
    }
    found.extend(start.map(|start| start..expression.len()));
    Ok(found)
}

/// Longest first, since `<` begins `<=`.
const OPERATORS: [&str; 8] = ["<=", ">=", "!=", "==", "<", ">", "=", ":"];

fn term(expression: &str, at: Range<usize>) -> Result<Term, FilterError> {
    let mut start = at.start;
    let is_negated = expression[start..at.end].starts_with('-') && at.len() > 1;
    start += usize::from(is_negated);
    let text = &expression[start..at.end];
    let operator = (!text.starts_with('"'))
        .then(|| text.find(['<', '>', '=', ':', '!']))
        .flatten()
        .and_then(|place| {
            let operator = OPERATORS
                .iter()
                .find(|op| text[place..].starts_with(**op))?;
            Some((place, *operator))
        });
    let test = match operator {
        None => Test::Fuzzy(text.replace('"', "")),
        Some((place, operator)) => {
            let left = start..start + place;
            let right = left.end + operator.len()..at.end;
            comparison(expression, left, operator, right)?
        }
    };
    Ok(Term {
        at,
        is_negated,
        test,
    })
}

fn comparison(
    expression: &str,
    left: Range<usize>,
    operator: &str,
    right: Range<usize>,
) -> Result<Test, FilterError> {
    let (name, value) = (&expression[left.clone()], &expression[right.clone()]);
    let whole = left.start..right.end;
    if name.is_empty() {
        return Err(error(whole, format!("nothing stands before `{operator}`")));
    }
    if value.is_empty() || value == "\"\"" {
        return Err(error(whole, format!("nothing stands after `{operator}`")));
    }
    let any_of = || -> Vec<String> {
        let words = value
            .split(',')
            .map(|word| word.trim_matches('"').to_owned());
        words.filter(|word| !word.is_empty()).collect()
    };
    let is_word = matches!(operator, ":" | "=" | "==");
    let field = match name {
        "name" => Some(Field::Name),
        "state" => Some(Field::State),
        "host" => Some(Field::Host),
        "tag" => Some(Field::Tag),
        "note" => Some(Field::Note),
        "mode" => Some(Field::Mode),
        _ => None,
    };
    if let Some(field) = field {
        if !is_word {
            return Err(error(
                whole,
                format!("{name} is text: use `{name}:word`, or `-{name}:word` for those without"),
            ));
        }
        let any_of = any_of();
        if field == Field::State
            && let Some(unknown) = any_of
                .iter()
                .find(|word| !STATES.iter().any(|state| state.starts_with(*word)))
        {
            return Err(error(
                right,
                format!("`{unknown}` is no state; there are {}", STATES.join(", ")),
            ));
        }
        return Ok(Test::Word {
            field,
            // `state:run` while typing; a tag is always whole.
            is_exact: operator != ":",
            any_of,
        });
    }
    let is_config = name
        .strip_prefix("cfg.")
        .or_else(|| name.strip_prefix("config."));
    let of = match is_config {
        Some("") => return Err(error(left, "a configuration key is missing after the dot")),
        Some(key) => Quantity::Config(key.to_owned()),
        None => quantity(name, left)?,
    };
    if is_word && matches!(value, "nan" | "NaN" | "inf") {
        return Ok(Test::NonFinite(of));
    }
    if let (Quantity::Config(key), true) = (&of, operator == ":" || number(value).is_none())
        && is_word
    {
        return Ok(Test::ConfigWord {
            key: key.clone(),
            is_exact: operator != ":",
            any_of: any_of(),
        });
    }
    let Some(value) = number(value) else {
        return Err(error(
            right,
            format!("`{value}` is no number; as in {name}>0.02, {name}<1e-5, age<2h"),
        ));
    };
    let compare = match operator {
        "<" => Compare::Less,
        "<=" => Compare::AtMost,
        ">" => Compare::More,
        ">=" => Compare::AtLeast,
        "!=" => Compare::NotEqual,
        _ => Compare::Equal,
    };
    Ok(Test::Number { of, compare, value })
}

fn quantity(name: &str, at: Range<usize>) -> Result<Quantity, FilterError> {
    match name {
        "step" => return Ok(Quantity::Step),
        "age" => return Ok(Quantity::Age),
        _ => {}
    }
    // `best(reward)`, `mean(kl,20)`
    if let Some((function, rest)) = name.split_once('(') {
        let Some(inside) = rest.strip_suffix(')') else {
            return Err(error(
                at,
                format!("the bracket after `{function}` is not closed"),
            ));
        };
        let (word, count) = match inside.split_once(',') {
            Some((word, count)) => (word, Some(count)),
            None => (inside, None),
        };
        let Some(reduce) = reduce(function, count) else {
            return Err(error(
                at,
                format!(
                    "`{function}` with `{inside}` is unknown; there are last, first, min, max, best and mean(metric,20)"
                ),
            ));
        };
        if word.is_empty() {
            return Err(error(at, format!("a metric is missing in `{function}()`")));
        }
        return Ok(Quantity::Metric {
            word: word.to_owned(),
            reduce,
        });
    }
    // `reward.last`; a dot may also be part of a name
    let (word, reduce) = name
        .rsplit_once('.')
        .and_then(|(word, function)| {
            let digits = function.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let (function, count) = function.split_at(function.len() - digits.len());
            Some((
                word,
                reduce(function, (!count.is_empty()).then_some(count))?,
            ))
        })
        .unwrap_or((name, Reduce::Last));
    Ok(Quantity::Metric {
        word: word.to_owned(),
        reduce,
    })
}

/// How many last values `mean` takes when nothing else is said: a screen of steps, enough to calm the noise of one batch.
const MEAN_OF_LAST: usize = 10;

fn reduce(function: &str, count: Option<&str>) -> Option<Reduce> {
    match (function, count) {
        ("last", None) => Some(Reduce::Last),
        ("first", None) => Some(Reduce::First),
        ("min", None) => Some(Reduce::Min),
        ("max", None) => Some(Reduce::Max),
        ("best", None) => Some(Reduce::Best),
        ("mean", None) => Some(Reduce::Mean(MEAN_OF_LAST)),
        ("mean", Some(count)) => {
            let count = count.trim().parse().ok().filter(|count| *count > 0)?;
            Some(Reduce::Mean(count))
        }
        _ => None,
    }
}

/// `0.02`, `1e-5`, `50%`, `2h`, `30m` (minutes), `3d`, `10k`, `2M`, `1G`.
fn number(text: &str) -> Option<f64> {
    if let Ok(value) = text.parse::<f64>() {
        return value.is_finite().then_some(value);
    }
    let (digits, factor) = [
        ("%", 0.01),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("d", 86_400.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
    ]
    .into_iter()
    .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let value: f64 = digits.parse().ok()?;
    value.is_finite().then_some(value * factor)
}
