//! Reads and evaluates an expression in one pass (precedence climbing), within bounds.

use num_bigint::BigInt;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::Rational;

/// Characters of an expression.
const MAX_LENGTH: usize = 1000;
/// Parentheses, signs and exponents inside each other.
const MAX_DEPTH: u32 = 64;
/// Bits of any numerator or denominator on the way, about 1200 decimal digits.
const MAX_BITS: u64 = 4096;
/// Of `1.5e3`.
const MAX_DECIMAL_EXPONENT: i64 = 1000;

/// Why an expression has no value; written for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalculatorError {
    #[error("the expression is empty")]
    Empty,
    #[error("the expression is longer than {MAX_LENGTH} characters")]
    TooLong,
    #[error("the expression is nested more than {MAX_DEPTH} deep")]
    TooDeep,
    #[error("a number becomes too large")]
    TooLarge,
    #[error("division by zero")]
    DivisionByZero,
    #[error("an exponent must be a whole number")]
    FractionalExponent,
    #[error("unexpected end of the expression")]
    UnexpectedEnd,
    #[error("unexpected \"{character}\" at character {position}")]
    Unexpected { character: char, position: usize },
    #[error("a closing parenthesis is missing")]
    Unclosed,
    #[error("{number} is not a number")]
    BadNumber { number: String },
}

/// The exact value of an expression.
pub fn evaluate(expression: &str) -> Result<Rational, CalculatorError> {
    let characters: Vec<char> = expression.chars().take(MAX_LENGTH + 1).collect();
    if characters.len() > MAX_LENGTH {
        return Err(CalculatorError::TooLong);
    }
    let mut reader = Reader {
        characters,
        position: 0,
        depth: 0,
    };
    if reader.peek().is_none() {
        return Err(CalculatorError::Empty);
    }
    let value = reader.sum()?;
    match reader.peek() {
        None => Ok(value),
        Some(character) => Err(reader.unexpected(character)),
    }
}

struct Reader {
    characters: Vec<char>,
    position: usize,
    depth: u32,
}

impl Reader {
    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        while self.characters.get(self.position)?.is_whitespace() {
            self.position += 1;
        }
        self.characters.get(self.position).copied()
    }

    fn take(&mut self, wanted: &[char]) -> Option<char> {
        let character = self.peek().filter(|character| wanted.contains(character))?;
        self.position += 1;
        Some(character)
    }

    fn unexpected(&self, character: char) -> CalculatorError {
        CalculatorError::Unexpected {
            character,
            position: self.position + 1,
        }
    }

    fn sum(&mut self) -> Result<Rational, CalculatorError> {
        let mut value = self.product()?;
        while let Some(sign) = self.take(&['+', '-', '−', '–']) {
            let next = self.product()?;
            value = bounded(if sign == '+' {
                value + next
            } else {
                value - next
            })?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<Rational, CalculatorError> {
        let mut value = self.signed()?;
        loop {
            let Some(sign) = self.take(&['*', '/', '×', '·', '÷']) else {
                return Ok(value);
            };
            let next = self.signed()?;
            value = if matches!(sign, '/' | '÷') {
                if next.is_zero() {
                    return Err(CalculatorError::DivisionByZero);
                }
                bounded(value / next)?
            } else {
                bounded(value * next)?
            };
        }
    }

    fn signed(&mut self) -> Result<Rational, CalculatorError> {
        match self.take(&['+', '-', '−', '–']) {
            Some('+') => self.deeper(Self::signed),
            Some(_) => Ok(-self.deeper(Self::signed)?),
            None => self.power(),
        }
    }

    /// Binds tighter than a sign on its left, and to the right: `2^3^2` is `2^9`.
    fn power(&mut self) -> Result<Rational, CalculatorError> {
        let base = self.percent()?;
        if !self.power_sign() {
            return Ok(base);
        }
        self.position += if self.characters[self.position] == '^' {
            1
        } else {
            2
        };
        let exponent = self.deeper(Self::signed)?;
        raise(&base, &exponent)
    }

    fn power_sign(&mut self) -> bool {
        match self.peek() {
            Some('^') => true,
            Some('*') => self.characters.get(self.position + 1) == Some(&'*'),
            _ => false,
        }
    }

    fn percent(&mut self) -> Result<Rational, CalculatorError> {
        let mut value = self.atom()?;
        while self.take(&['%']).is_some() {
            value = bounded(value / Rational::from_integer(100.into()))?;
        }
        Ok(value)
    }

    fn atom(&mut self) -> Result<Rational, CalculatorError> {
        match self.peek() {
            None => Err(CalculatorError::UnexpectedEnd),
            Some('(') => {
                self.position += 1;
                let value = self.deeper(Self::sum)?;
                match self.peek() {
                    Some(')') => {
                        self.position += 1;
                        Ok(value)
                    }
                    None => Err(CalculatorError::Unclosed),
                    Some(character) => Err(self.unexpected(character)),
                }
            }
            Some(character) if character.is_ascii_digit() || character == '.' => self.number(),
            Some(character) => Err(self.unexpected(character)),
        }
    }

    fn deeper(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Rational, CalculatorError>,
    ) -> Result<Rational, CalculatorError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(CalculatorError::TooDeep);
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<Rational, CalculatorError> {
        let start = self.position;
        while self
            .characters
            .get(self.position)
            .is_some_and(|character| character.is_ascii_digit() || matches!(character, '.' | ','))
        {
            self.position += 1;
        }
        let mut text: String = self.characters[start..self.position].iter().collect();
        let exponent = self.decimal_exponent(&mut text)?;
        decimal(&text, exponent)
    }

    /// Reads `e3`, `E-3` after a number, and adds it to `text` for messages.
    fn decimal_exponent(&mut self, text: &mut String) -> Result<i64, CalculatorError> {
        let rest = &self.characters[self.position..];
        if !matches!(rest.first(), Some('e' | 'E')) {
            return Ok(0);
        }
        let sign = usize::from(matches!(rest.get(1), Some('+' | '-')));
        let digits = rest[1 + sign..]
            .iter()
            .take_while(|character| character.is_ascii_digit())
            .count();
        let used = 1 + sign + digits;
        text.extend(&rest[..used]);
        let exponent: String = rest[1..used].iter().collect();
        self.position += used;
        if digits == 0 {
            return Err(CalculatorError::BadNumber {
                number: text.clone(),
            });
        }
        exponent
            .parse::<i64>()
            .ok()
            .filter(|exponent| exponent.abs() <= MAX_DECIMAL_EXPONENT)
            .ok_or(CalculatorError::TooLarge)
    }
}

/// `text` is digits, points and commas, perhaps with the exponent at its end.
fn decimal(text: &str, exponent: i64) -> Result<Rational, CalculatorError> {
    let bad = || CalculatorError::BadNumber {
        number: text.to_owned(),
    };
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if fraction.contains(['.', ',']) || (whole.is_empty() && fraction.is_empty()) {
        return Err(bad());
    }
    // A comma may only part thousands.
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default();
    if whole.contains(',')
        && (!(1..=3).contains(&first.len()) || groups.any(|group| group.len() != 3))
    {
        return Err(bad());
    }
    let digits: String = format!("{whole}{fraction}").replace(',', "");
    let digits: BigInt = digits.parse().map_err(|_| bad())?;
    let scale = exponent - fraction.len() as i64;
    let power = BigInt::from(10).pow(scale.unsigned_abs() as u32);
    bounded(if scale < 0 {
        Rational::new(digits, power)
    } else {
        Rational::from_integer(digits * power)
    })
}

fn raise(base: &Rational, exponent: &Rational) -> Result<Rational, CalculatorError> {
    if !exponent.is_integer() {
        return Err(CalculatorError::FractionalExponent);
    }
    if base.is_zero() && exponent.is_negative() {
        return Err(CalculatorError::DivisionByZero);
    }
    // 0, 1 and -1 have powers of any size.
    if base.is_zero() || (base.is_integer() && base.numer().magnitude().is_one()) {
        return Ok(if exponent.is_zero() {
            Rational::one()
        } else if (exponent.numer() % 2i32).is_zero() {
            base * base
        } else {
            base.clone()
        });
    }
    let times = exponent
        .numer()
        .abs()
        .to_u64()
        .filter(|times| *times <= MAX_BITS)
        .ok_or(CalculatorError::TooLarge)?;
    // x^n has at least n·(bits(x) − 1) bits: refused before the work is done.
    let bits = base.numer().bits().max(base.denom().bits());
    if (bits - 1) * times > MAX_BITS {
        return Err(CalculatorError::TooLarge);
    }
    let times = times as u32;
    let power = Rational::new_raw(base.numer().pow(times), base.denom().pow(times));
    bounded(if exponent.is_negative() {
        power.recip()
    } else {
        power
    })
}

fn bounded(value: Rational) -> Result<Rational, CalculatorError> {
    if value.numer().bits().max(value.denom().bits()) > MAX_BITS {
        return Err(CalculatorError::TooLarge);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tool::calculator::print;

    fn answer(expression: &str) -> String {
        match evaluate(expression) {
            Ok(value) => print(&value, None),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn expressions_have_their_exact_values() {
        for (expression, expected) in [
            ("63*48-34", "2990"),
            ("0.1 + 0.2", "0.3"),
            ("1/3*3", "1"),
            ("2/3", "2/3"),
            ("-7/2", "-3.5"),
            ("(1+2)*(3-4)", "-3"),
            ("--3", "3"),
            ("2*-3", "-6"),
            ("-2^2", "-4"),
            ("2**-2", "0.25"),
            ("2^3^2", "512"),
            ("2 ** 3 * 2", "16"),
            ("(-1)^99999999999999999999", "-1"),
            ("0^0", "1"),
            ("200*15%", "30"),
            ("1,234.5*2", "2469"),
            (".5+1.", "1.5"),
            ("1.5e3", "1500"),
            ("1E-2", "0.01"),
            ("6×7÷2−1", "20"),
            (
                "99999999999999999999*99999999999999999999",
                "9999999999999999999800000000000000000001",
            ),
        ] {
            assert_eq!(answer(expression), expected, "{expression}");
        }
    }

    #[test]
    fn what_has_no_value_is_said_in_words() {
        for (expression, expected) in [
            ("", "error: the expression is empty"),
            ("  ", "error: the expression is empty"),
            ("1/0", "error: division by zero"),
            ("1/(2-2)", "error: division by zero"),
            ("0^-1", "error: division by zero"),
            ("2^0.5", "error: an exponent must be a whole number"),
            ("1+", "error: unexpected end of the expression"),
            ("(1+2", "error: a closing parenthesis is missing"),
            ("1 2", "error: unexpected \"2\" at character 3"),
            ("7 % 3", "error: unexpected \"3\" at character 5"),
            ("x+1", "error: unexpected \"x\" at character 1"),
            ("__import__('os')", "error: unexpected \"_\" at character 1"),
            ("1.2.3", "error: 1.2.3 is not a number"),
            ("1,23", "error: 1,23 is not a number"),
            ("1,2345", "error: 1,2345 is not a number"),
            (".", "error: . is not a number"),
            ("2e", "error: 2e is not a number"),
            ("1)", "error: unexpected \")\" at character 2"),
            ("(1,234", "error: a closing parenthesis is missing"),
        ] {
            assert_eq!(answer(expression), expected, "{expression}");
        }
    }

    #[test]
    fn no_expression_costs_more_than_its_bounds() {
        for expression in [
            "9^9^9^9".to_owned(),
            "2^5000".to_owned(),
            "(2^4000)*(2^4000)".to_owned(),
            "1e1001".to_owned(),
            "1e99999999999999999999".to_owned(),
            "(1/3)^99999999".to_owned(),
        ] {
            assert_eq!(answer(&expression), "error: a number becomes too large");
        }
        assert_eq!(
            answer(&"1+".repeat(600)),
            "error: the expression is longer than 1000 characters"
        );
        for nest in ["(", "-", "2^"] {
            assert_eq!(
                answer(&nest.repeat(400)),
                "error: the expression is nested more than 64 deep"
            );
        }
        assert_eq!(answer("2^4095").len(), 1233);
    }

    /// An expression as text, with its value worked out without our parser, in fractions of i128; None: undefined.
    type Term = (String, Option<(i128, i128)>);

    fn reduce(numerator: i128, denominator: i128) -> Option<(i128, i128)> {
        if denominator == 0 {
            return None;
        }
        let divisor = num_integer::gcd(numerator, denominator) * denominator.signum();
        Some((numerator / divisor, denominator / divisor))
    }

    fn combine(left: &Term, operator: char, right: &Term) -> Term {
        let text = format!("({}{operator}{})", left.0, right.0);
        let value = left
            .1
            .zip(right.1)
            .and_then(|((a, b), (c, d))| match operator {
                '+' => reduce(a * d + c * b, b * d),
                '-' => reduce(a * d - c * b, b * d),
                '*' => reduce(a * c, b * d),
                _ => reduce(a * d, b * c),
            });
        (text, value)
    }

    fn term() -> impl Strategy<Value = Term> {
        let leaf = prop_oneof![
            (-50i128..50).prop_map(|number| (number.to_string(), Some((number, 1)))),
            (0i128..500).prop_map(|cents| (
                format!("{}.{:02}", cents / 100, cents % 100),
                reduce(cents, 100)
            )),
            (0i128..100).prop_map(|percent| (format!("{percent}%"), reduce(percent, 100))),
        ];
        // Three levels keep the i128 fractions far from overflow.
        leaf.prop_recursive(3, 8, 2, |inner| {
            (
                inner.clone(),
                prop::sample::select(vec!['+', '-', '*', '/']),
                inner,
            )
                .prop_map(|(left, operator, right)| combine(&left, operator, &right))
        })
    }

    proptest! {
        #[test]
        fn values_equal_an_independent_evaluation((text, value) in term()) {
            let expected = value
                .map(|(numerator, denominator)| Rational::new(numerator.into(), denominator.into()))
                .ok_or(CalculatorError::DivisionByZero);
            prop_assert_eq!(evaluate(&text), expected);
        }

        #[test]
        fn precedence_without_parentheses_is_that_of_arithmetic(
            first in -9i64..10,
            steps in prop::collection::vec((prop::sample::select(vec!['+', '-', '*']), 0i64..10), 0..6),
        ) {
            let mut text = first.to_string();
            let mut sum = 0i64;
            let mut product = first;
            for (operator, number) in steps {
                text.push(operator);
                text.push_str(&number.to_string());
                match operator {
                    '*' => product *= number,
                    '+' => { sum += product; product = number; }
                    _ => { sum += product; product = -number; }
                }
            }
            prop_assert_eq!(answer(&text), (sum + product).to_string());
        }

        #[test]
        fn any_text_gives_an_answer_or_an_error(text in "[0-9+*/().,%^eE −x-]{0,40}") {
            let _ = evaluate(&text);
        }
    }
}
