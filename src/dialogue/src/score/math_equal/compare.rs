//! Whether two answers are one. Expressions are equal when they have equal values: exactly for fractions, within rounding for the
//! rest, and for variables at several points, which two different formulas do not agree on.

use std::collections::BTreeSet;
use std::f64::consts::{E, PI};

use super::number::{Complex, Number, Rational};
use super::parse::{Answer, Expression};

/// Points at which formulas are compared …
const POINTS: u64 = 6;
/// … and how many of them must have a value.
const NEEDED_POINTS: u64 = 2;

pub fn same(one: &Answer, other: &Answer) -> bool {
    match (one, other) {
        (Answer::Words(left), Answer::Words(right)) => words(left) == words(right),
        (Answer::Value(left, unit), Answer::Value(right, other)) => {
            let is_unit_same = match (unit, other) {
                (Some(unit), Some(other)) => unit == other,
                _ => true,
            };
            is_unit_same && equal(left, right)
        }
        (Answer::Named(left, of_left), Answer::Named(right, of_right)) => {
            (left == right && same(of_left, of_right))
                || match (equation(one), equation(other)) {
                    (Some(one), Some(other)) => proportional(&one, &other),
                    _ => false,
                }
        }
        (Answer::Equation(..), _) | (_, Answer::Equation(..)) => {
            match (equation(one), equation(other)) {
                (Some(one), Some(other)) => proportional(&one, &other),
                _ => false,
            }
        }
        (Answer::Named(_, value), answer) | (answer, Answer::Named(_, value)) => {
            same(value, answer)
        }
        (Answer::Relation(left, signs), Answer::Relation(right, others)) => {
            signs == others
                && left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| equal(left, right))
        }
        (Answer::Set(left), Answer::Set(right)) | (Answer::Union(left), Answer::Union(right)) => {
            same_in_any_order(left, right)
        }
        (Answer::Tuple(open, left, close), Answer::Tuple(other, right, other_close)) => {
            open == other && close == other_close && same_in_order(left, right)
        }
        (Answer::Matrix(left), Answer::Matrix(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same_in_order(left, right))
        }
        // A set of one value is not that value; a matrix is no tuple; words are no number.
        _ => false,
    }
}

/// Percent and its hundredth part are both read, because data sets write either.
pub fn hundredth(answer: &Answer) -> Option<Answer> {
    match answer {
        Answer::Value(expression, Some(unit)) if unit == "%" => {
            let hundred = Expression::Number(Rational::from_integer(100.into()));
            let part = Expression::Quotient(expression.clone().into(), hundred.into());
            Some(Answer::Value(part, None))
        }
        Answer::Named(name, inner) => {
            Some(Answer::Named(name.clone(), Box::new(hundredth(inner)?)))
        }
        _ => None,
    }
}

fn same_in_order(left: &[Answer], right: &[Answer]) -> bool {
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .all(|(left, right)| same(left, right))
}

fn same_in_any_order(left: &[Answer], right: &[Answer]) -> bool {
    let mut open: Vec<&Answer> = right.iter().collect();
    left.len() == right.len()
        && left.iter().all(|item| {
            let found = open.iter().position(|other| same(item, other));
            found.is_some_and(|index| {
                open.swap_remove(index);
                true
            })
        })
}

fn words(text: &str) -> String {
    let kept: String = text
        .to_lowercase()
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { ' ' })
        .collect();
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Left side minus right side of an equation between variables, such as `y = 2x + 1`.
fn equation(answer: &Answer) -> Option<Expression> {
    let (left, right) = match answer {
        Answer::Equation(left, right) => (left.clone(), right.clone()),
        Answer::Named(name, value) if !name.ends_with("()") => match &**value {
            Answer::Value(value, None) if has_variables(value) => {
                (Expression::Symbol(name.clone()), value.clone())
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(Expression::Sum(vec![
        left,
        Expression::Negative(right.into()),
    ]))
}

fn has_variables(expression: &Expression) -> bool {
    let mut names = BTreeSet::new();
    variables(expression, &mut names);
    !names.is_empty()
}

fn variables<'a>(expression: &'a Expression, names: &mut BTreeSet<&'a str>) {
    if let Expression::Symbol(name) = expression
        && constant(name).is_none()
        && name != "∞"
    {
        names.insert(name);
    }
    for part in expression.parts() {
        variables(part, names);
    }
}

fn equal(left: &Expression, right: &Expression) -> bool {
    let mut names = BTreeSet::new();
    variables(left, &mut names);
    let mut others = BTreeSet::new();
    variables(right, &mut others);
    let is_constant = names.is_empty() && others.is_empty();
    let mut agreed = 0;
    for point in 0..POINTS {
        let (Some(left), Some(right)) = (evaluate(left, point), evaluate(right, point)) else {
            continue;
        };
        match left.equals(&right) {
            Some(true) => agreed += 1,
            Some(false) => return false,
            None => {}
        }
        if is_constant {
            return agreed > 0;
        }
    }
    agreed >= NEEDED_POINTS
}

/// Do two formulas vanish together, one a constant times the other?
fn proportional(left: &Expression, right: &Expression) -> bool {
    let values: Vec<(Number, Number)> = (0..POINTS)
        .filter_map(|point| Some((evaluate(left, point)?, evaluate(right, point)?)))
        .filter(|(left, right)| left.is_finite() && right.is_finite())
        .collect();
    let zero = Number::int(0);
    let is_zero = |value: &Number| value.equals(&zero) == Some(true);
    let Some((first, other)) = values
        .iter()
        .find(|(left, right)| !is_zero(left) && !is_zero(right))
    else {
        return false;
    };
    values.len() as u64 >= NEEDED_POINTS
        && values
            .iter()
            .all(|(left, right)| left.times(other).equals(&right.times(first)) == Some(true))
}

fn constant(name: &str) -> Option<Number> {
    match name {
        "pi" => Some(Number::real(PI)),
        "e" => Some(Number::real(E)),
        "i" => Some(Number::Float(Complex::new(0.0, 1.0))),
        _ => None,
    }
}

/// A variable's value at a point: an ordinary fraction, of either sign, that depends on its name.
fn at_point(name: &str, point: u64) -> Number {
    let mut hash = xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), point);
    let mut draw = |count: u64| {
        let drawn = hash % count;
        hash /= count;
        drawn as i64
    };
    let (above, below) = (draw(97) + 11, draw(17) + 13);
    let sign = if draw(2) == 0 || point == 0 { 1 } else { -1 };
    Number::exact(Rational::new((sign * above).into(), below.into()))
}

/// The value at a point; None where there is none.
fn evaluate(expression: &Expression, point: u64) -> Option<Number> {
    let of = |inner: &Expression| evaluate(inner, point);
    match expression {
        Expression::Number(number) => Some(Number::exact(number.clone())),
        Expression::Symbol(name) => Some(constant(name).unwrap_or_else(|| at_point(name, point))),
        Expression::Sum(terms) => terms
            .iter()
            .try_fold(Number::int(0), |sum, term| Some(sum.plus(&of(term)?))),
        Expression::Product(factors) => {
            factors.iter().try_fold(Number::int(1), |product, factor| {
                Some(product.times(&of(factor)?))
            })
        }
        Expression::Quotient(left, right) => Some(of(left)?.over(&of(right)?)),
        Expression::Power(left, right) => Some(of(left)?.power(&of(right)?)),
        Expression::Root(degree, inner) => Some(of(inner)?.root(&of(degree)?)),
        Expression::Negative(inner) => Some(of(inner)?.negated()),
        Expression::Call(name, inner) => of(inner)?.function(name),
        Expression::Logarithm(base, inner) => {
            Some(of(inner)?.function("ln")?.over(&of(base)?.function("ln")?))
        }
        Expression::Choose(above, below) => of(above)?.choose(&of(below)?),
        Expression::Factorial(inner) => of(inner)?.factorial(),
        Expression::Magnitude(inner) => Some(of(inner)?.magnitude()),
        Expression::Floor(inner, is_up) => of(inner)?.floor(*is_up),
        Expression::Degrees(inner) => Some(of(inner)?.times(&Number::real(PI / 180.0))),
    }
}
