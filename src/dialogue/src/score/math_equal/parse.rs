//! Tokens to an answer: lists, sets, intervals, equations, matrices, words, and expressions with a unit.

use num_bigint::BigInt;

use super::lex::{FUNCTIONS, Token};
use super::number::Rational;

/// Brackets, roots and exponents inside each other.
const MOST_DEPTH: u32 = 48;
/// Items of a list or a matrix.
const MOST_ITEMS: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    Number(Rational),
    /// A variable, `pi`, `∞` or any other name.
    Symbol(String),
    Sum(Vec<Expression>),
    Product(Vec<Expression>),
    Quotient(Box<Expression>, Box<Expression>),
    Power(Box<Expression>, Box<Expression>),
    /// Degree, then what is under the root.
    Root(Box<Expression>, Box<Expression>),
    Negative(Box<Expression>),
    Call(String, Box<Expression>),
    /// Base, then argument.
    Logarithm(Box<Expression>, Box<Expression>),
    Choose(Box<Expression>, Box<Expression>),
    Factorial(Box<Expression>),
    Magnitude(Box<Expression>),
    /// `is_up`: the ceiling.
    Floor(Box<Expression>, bool),
    Degrees(Box<Expression>),
}

impl Expression {
    /// What it is made of.
    pub fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Number(_) | Self::Symbol(_) => Vec::new(),
            Self::Sum(parts) | Self::Product(parts) => parts.iter().collect(),
            Self::Quotient(left, right)
            | Self::Power(left, right)
            | Self::Root(left, right)
            | Self::Logarithm(left, right)
            | Self::Choose(left, right) => vec![left, right],
            Self::Negative(inner)
            | Self::Call(_, inner)
            | Self::Factorial(inner)
            | Self::Magnitude(inner)
            | Self::Floor(inner, _)
            | Self::Degrees(inner) => vec![inner],
        }
    }

    /// Levels of parts within parts: evaluation goes as deep.
    fn depth(&self) -> u32 {
        let deepest = self.parts().into_iter().map(Self::depth).max();
        1 + deepest.unwrap_or(0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Words(String),
    Value(Expression, Option<String>),
    /// `x = …`, `x ∈ …`, `x > …` of a single variable.
    Named(String, Box<Answer>),
    Equation(Expression, Expression),
    /// Parts and the signs between them.
    Relation(Vec<Expression>, Vec<char>),
    /// In no order.
    Set(Vec<Answer>),
    /// Ordered, with its brackets: a point or an interval.
    Tuple(char, Vec<Answer>, char),
    Union(Vec<Answer>),
    Matrix(Vec<Vec<Answer>>),
}

/// The answer that tokens say; None: no form that is known here.
pub fn answer(tokens: &[Token]) -> Option<Answer> {
    whole(tokens, MOST_DEPTH)
}

fn whole(tokens: &[Token], depth: u32) -> Option<Answer> {
    let depth = depth.checked_sub(1)?;
    let tokens = match tokens {
        [Token::Sign(','), inner @ ..] | [inner @ .., Token::Sign(',')] => inner,
        all => all,
    };
    if tokens.is_empty() {
        return None;
    }
    let each = |parts: Vec<&[Token]>| -> Option<Vec<Answer>> {
        if parts.len() > MOST_ITEMS {
            return None;
        }
        parts.into_iter().map(|part| whole(part, depth)).collect()
    };
    let items = split(tokens, &[',']);
    if items.len() > 1 {
        return each(items).map(Answer::Set);
    }
    if tokens.contains(&Token::Sign('±')) {
        let with = |sign: char| -> Vec<Token> {
            let change = |token: &Token| match token {
                Token::Sign('±') => Token::Sign(sign),
                token => token.clone(),
            };
            tokens.iter().map(change).collect()
        };
        return Some(Answer::Set(vec![
            whole(&with('+'), depth)?,
            whole(&with('-'), depth)?,
        ]));
    }
    let parts = split(tokens, &['∪']);
    if parts.len() > 1 {
        return each(parts).map(Answer::Union);
    }
    let (sides, signs) = relations(tokens);
    if !signs.is_empty() {
        return relation(&sides, &signs, depth);
    }
    if let [Token::Command(begin), inner @ .., Token::Command(end)] = tokens
        && begin == "begin"
        && end == "end"
    {
        let rows: Option<Vec<Vec<Answer>>> = split(inner, &['↵'])
            .into_iter()
            .filter(|row| !row.is_empty())
            .map(|row| each(split(row, &['&'])))
            .collect();
        return rows.map(Answer::Matrix);
    }
    if let [Token::Sign('«'), inner @ .., Token::Sign('»')] = tokens {
        let items = match inner {
            [] => Vec::new(),
            inner => each(split(inner, &[',']))?,
        };
        return Some(Answer::Set(items));
    }
    if let [
        Token::Sign(open @ ('(' | '[')),
        inner @ ..,
        Token::Sign(close @ (')' | ']')),
    ] = tokens
        && closes_at_end(tokens)
    {
        let items = split(inner, &[',']);
        if items.len() > 1 {
            return Some(Answer::Tuple(*open, each(items)?, *close));
        }
        if *open == '(' && *close == ')' {
            return whole(inner, depth);
        }
    }
    if let [Token::Text(words)] = tokens {
        return Some(Answer::Words(words.clone()));
    }
    value(tokens, depth)
}

/// Whether the bracket that opens the tokens is closed by their last one.
fn closes_at_end(tokens: &[Token]) -> bool {
    let mut level = 0_i64;
    for (index, token) in tokens.iter().enumerate() {
        level += step(token);
        if level == 0 {
            return index + 1 == tokens.len();
        }
    }
    false
}

fn step(token: &Token) -> i64 {
    match token {
        Token::Sign('(' | '[' | '{' | '«') => 1,
        Token::Sign(')' | ']' | '}' | '»') => -1,
        Token::Command(name) if name == "begin" => 1,
        Token::Command(name) if name == "end" => -1,
        _ => 0,
    }
}

/// Splits at signs that lie in no bracket.
fn split<'a>(tokens: &'a [Token], signs: &[char]) -> Vec<&'a [Token]> {
    let mut level = 0_i64;
    tokens
        .split(|token| {
            level += step(token);
            level == 0 && matches!(token, Token::Sign(sign) if signs.contains(sign))
        })
        .collect()
}

fn relations(tokens: &[Token]) -> (Vec<&[Token]>, Vec<char>) {
    const SIGNS: [char; 7] = ['=', '<', '>', '≤', '≥', '≠', '∈'];
    let sides = split(tokens, &SIGNS);
    let mut signs = Vec::new();
    let mut at = 0;
    for side in &sides[..sides.len() - 1] {
        at += side.len();
        if let Token::Sign(sign) = tokens[at] {
            signs.push(sign);
        }
        at += 1;
    }
    (sides, signs)
}

fn relation(sides: &[&[Token]], signs: &[char], depth: u32) -> Option<Answer> {
    let pure = |side: &[Token]| match value(side, depth)? {
        Answer::Value(expression, None) => Some(expression),
        _ => None,
    };
    let name = |side: &[Token]| match side {
        [Token::Letter(letter)] => Some(letter.to_string()),
        // f(x)
        [
            Token::Letter(letter),
            Token::Sign('('),
            Token::Letter(_),
            Token::Sign(')'),
        ] => Some(format!("{letter}()")),
        [Token::Letter(letter), Token::Sign('_'), ..] if side.len() <= 5 => match pure(side)? {
            Expression::Symbol(name) => Some(name),
            _ => Some(letter.to_string()),
        },
        [Token::Command(greek)] if greek != "infty" && greek != "pi" => Some(greek.clone()),
        _ => None,
    };
    if let ([left, right], ['=' | '∈']) = (sides, signs) {
        if let Some(name) = name(left) {
            return Some(Answer::Named(name, Box::new(whole(right, depth)?)));
        }
        if signs[0] == '=' {
            return Some(Answer::Equation(pure(left)?, pure(right)?));
        }
        return None;
    }
    let infinity = || Expression::Symbol("∞".to_owned());
    let end = |expression: Expression| Answer::Value(expression, None);
    let interval = |name: String, open, low, high, close| {
        let ends = vec![end(low), end(high)];
        Answer::Named(name, Box::new(Answer::Tuple(open, ends, close)))
    };
    match (sides, signs) {
        ([left, right], [sign @ ('<' | '>' | '≤' | '≥')]) => {
            let (variable, bound, is_left) = match (name(left), name(right)) {
                (Some(variable), None) => (variable, pure(right)?, true),
                (None, Some(variable)) => (variable, pure(left)?, false),
                _ => {
                    return Some(Answer::Relation(
                        vec![pure(left)?, pure(right)?],
                        signs.to_vec(),
                    ));
                }
            };
            let is_below = matches!(sign, '<' | '≤') == is_left;
            let is_closed = matches!(sign, '≤' | '≥');
            Some(if is_below {
                let close = if is_closed { ']' } else { ')' };
                interval(
                    variable,
                    '(',
                    Expression::Negative(Box::new(infinity())),
                    bound,
                    close,
                )
            } else {
                let open = if is_closed { '[' } else { '(' };
                interval(variable, open, bound, infinity(), ')')
            })
        }
        ([low, middle, high], [first @ ('<' | '≤'), second @ ('<' | '≤')])
        | ([high, middle, low], [second @ ('>' | '≥'), first @ ('>' | '≥')])
            if name(middle).is_some() =>
        {
            let open = if matches!(first, '≤' | '≥') {
                '['
            } else {
                '('
            };
            let close = if matches!(second, '≤' | '≥') {
                ']'
            } else {
                ')'
            };
            Some(interval(
                name(middle)?,
                open,
                pure(low)?,
                pure(high)?,
                close,
            ))
        }
        _ => {
            let sides: Option<Vec<Expression>> = sides.iter().map(|side| pure(side)).collect();
            Some(Answer::Relation(sides?, signs.to_vec()))
        }
    }
}

/// An expression and the unit behind it.
fn value(tokens: &[Token], depth: u32) -> Option<Answer> {
    let words = tokens
        .iter()
        .position(|token| matches!(token, Token::Text(_)));
    let (tokens, unit) = tokens.split_at(words.unwrap_or(tokens.len()));
    let mut unit = (!unit.is_empty()).then(|| unit_name(unit));
    let tokens = match tokens {
        [inner @ .., Token::Sign('%')] => {
            unit = Some("%".to_owned());
            inner
        }
        all => all,
    };
    let mut parser = Parser {
        tokens: tokens.to_vec(),
        at: 0,
        depth,
        base: None,
    };
    let mut expression = parser.sum()?;
    if parser.at < parser.tokens.len() || expression.depth() > MOST_DEPTH {
        return None;
    }
    if let Some(base) = parser.base {
        unit = Some(base);
    }
    if let Expression::Degrees(inner) = expression {
        expression = *inner;
        unit = Some("°".to_owned());
    }
    Some(Answer::Value(expression, unit))
}

fn unit_name(tokens: &[Token]) -> String {
    let mut name = String::new();
    for token in tokens {
        match token {
            Token::Text(words) | Token::Command(words) | Token::Number(words) => {
                for word in words.split_whitespace() {
                    // Singular and plural are one.
                    let word = word.trim_end_matches(['.', ',']).to_lowercase();
                    name.push_str(word.strip_suffix('s').unwrap_or(&word));
                }
            }
            Token::Letter(letter) => name.push(*letter),
            Token::Sign('{' | '}') => {}
            Token::Sign(sign) => name.push(*sign),
        }
    }
    match name.as_str() {
        "degree" => "°".to_owned(),
        "percent" => "%".to_owned(),
        _ => name,
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
    /// `_2` behind a number.
    base: Option<String>,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn takes(&mut self, sign: char) -> bool {
        let is_next = self.peek() == Some(&Token::Sign(sign));
        self.at += usize::from(is_next);
        is_next
    }

    fn sum(&mut self) -> Option<Expression> {
        self.depth = self.depth.checked_sub(1)?;
        let first = self.product()?;
        let mut terms = vec![first];
        loop {
            if self.takes('+') {
                terms.push(self.product()?);
            } else if self.takes('-') {
                terms.push(Expression::Negative(self.product()?.into()));
            } else {
                self.depth += 1;
                return Some(one_or(terms, Expression::Sum));
            }
        }
    }

    fn product(&mut self) -> Option<Expression> {
        let first = self.signed()?;
        let mut factors = vec![first];
        loop {
            if self.takes('*') {
                factors.push(self.signed()?);
            } else if self.takes('/') {
                let above = one_or(factors, Expression::Product);
                factors = vec![Expression::Quotient(above.into(), self.signed()?.into())];
            } else if self.starts_factor() {
                factors.push(self.power()?);
            } else {
                return Some(one_or(factors, Expression::Product));
            }
        }
    }

    /// Does something follow that is multiplied without a sign?
    fn starts_factor(&self) -> bool {
        match self.peek() {
            Some(Token::Letter(_) | Token::Sign('(' | '{')) => true,
            Some(Token::Command(name)) => !matches!(
                &**name,
                "rfloor" | "rceil" | "circ" | "begin" | "end" | "e" | "overline"
            ),
            _ => false,
        }
    }

    fn signed(&mut self) -> Option<Expression> {
        if self.takes('-') {
            self.depth = self.depth.checked_sub(1)?;
            let inner = self.signed()?;
            self.depth += 1;
            return Some(Expression::Negative(inner.into()));
        }
        if self.takes('+') {
            return self.power();
        }
        self.power()
    }

    fn power(&mut self) -> Option<Expression> {
        let mut base = self.primary()?;
        loop {
            if self.takes('!') {
                base = Expression::Factorial(base.into());
            } else if self.takes('°') {
                base = Expression::Degrees(base.into());
            } else if self.takes('^') {
                let is_degree = |token: Option<&Token>| matches!(token, Some(Token::Command(name)) if name == "circ");
                if is_degree(self.peek()) {
                    self.at += 1;
                    base = Expression::Degrees(base.into());
                } else if self.peek() == Some(&Token::Sign('{'))
                    && is_degree(self.tokens.get(self.at + 1))
                {
                    self.at += 2;
                    if !self.takes('}') {
                        return None;
                    }
                    base = Expression::Degrees(base.into());
                } else {
                    let exponent = match self.peek()? {
                        // Plain notation: all its digits.
                        Token::Number(_) => self.primary()?,
                        Token::Sign('-') => self.signed()?,
                        _ => self.argument()?,
                    };
                    base = Expression::Power(base.into(), exponent.into());
                }
            } else {
                return Some(base);
            }
        }
    }

    /// An argument of a command: a group, or one token; of a number one digit.
    fn argument(&mut self) -> Option<Expression> {
        if let Some(Token::Number(digits)) = self.peek() {
            let (first, rest) = digits.split_at(1);
            let number = decimal(first)?;
            let rest = rest.to_owned();
            if rest.is_empty() {
                self.at += 1;
            } else {
                self.tokens[self.at] = Token::Number(rest);
            }
            return Some(Expression::Number(number));
        }
        if self.takes('{') {
            return self.until('}');
        }
        self.primary()
    }

    fn until(&mut self, close: char) -> Option<Expression> {
        let inner = self.sum()?;
        self.takes(close).then_some(inner)
    }

    fn primary(&mut self) -> Option<Expression> {
        match self.next()? {
            Token::Number(digits) => self.number(&digits),
            Token::Letter(letter) => {
                let mut name = letter.to_string();
                if self.takes('_') {
                    name.push('_');
                    name.push_str(&self.subscript()?);
                }
                Some(Expression::Symbol(name))
            }
            Token::Sign('(') => self.until(')'),
            Token::Sign('[') => self.until(']'),
            Token::Sign('{') => self.until('}'),
            Token::Sign('|') => Some(Expression::Magnitude(self.until('|')?.into())),
            Token::Command(name) => self.command(&name),
            Token::Sign(_) | Token::Text(_) => None,
        }
    }

    /// The text of what stands below the line.
    fn subscript(&mut self) -> Option<String> {
        let mut name = String::new();
        let is_group = self.takes('{');
        loop {
            match self.next()? {
                Token::Sign('}') if is_group => return Some(name),
                Token::Number(text) | Token::Command(text) | Token::Text(text) => {
                    name.push_str(&text);
                }
                Token::Letter(letter) | Token::Sign(letter) => name.push(letter),
            }
            if !is_group {
                return Some(name);
            }
        }
    }

    fn number(&mut self, digits: &str) -> Option<Expression> {
        let mut number = decimal(digits)?;
        let command = |token: Option<&Token>, name: &str| matches!(token, Some(Token::Command(found)) if found == name);
        // 0.1\overline{6}
        if digits.contains('.') && command(self.peek(), "overline") {
            self.at += 1;
            let is_group = self.takes('{');
            let Token::Number(period) = self.next()? else {
                return None;
            };
            if is_group && !self.takes('}') {
                return None;
            }
            let places = digits.len() - digits.find('.')? - 1;
            let nines = ten_to(period.len())? - BigInt::from(1);
            let tail = Rational::new(period.parse().ok()?, nines * ten_to(places)?);
            return Some(Expression::Number(number + tail));
        }
        // 1.5e3
        if command(self.peek(), "e") {
            self.at += 1;
            let is_negative = self.takes('-');
            self.takes('+');
            let Token::Number(exponent) = self.next()? else {
                return None;
            };
            let scale = Rational::from_integer(ten_to(exponent.parse().ok()?)?);
            number = if is_negative {
                number / scale
            } else {
                number * scale
            };
            return Some(Expression::Number(number));
        }
        if self.takes('_') {
            self.base = Some(format!("_{}", self.subscript()?));
        }
        let is_whole = !digits.contains('.');
        // 3\frac{1}{2}, or 3 1/2
        if is_whole && let Some(part) = self.fraction_of_whole_numbers() {
            return Some(Expression::Number(number + part));
        }
        if matches!(self.peek(), Some(Token::Number(_))) {
            return None;
        }
        Some(Expression::Number(number))
    }

    /// A proper fraction of two whole numbers that comes next, as after the whole part of a mixed number.
    fn fraction_of_whole_numbers(&mut self) -> Option<Rational> {
        let start = (self.at, self.tokens.clone());
        let whole = |expression: Option<Expression>| match expression? {
            Expression::Number(number) if number.is_integer() => Some(number),
            _ => None,
        };
        let mut read = || match self.peek()? {
            Token::Command(name) if name == "frac" => {
                self.at += 1;
                Some((whole(self.argument())?, whole(self.argument())?))
            }
            Token::Number(above) => {
                let above = decimal(above)?;
                self.at += 1;
                if !self.takes('/') {
                    return None;
                }
                match self.next()? {
                    Token::Number(below) => Some((above, decimal(&below)?)),
                    _ => None,
                }
            }
            _ => None,
        };
        match read() {
            Some((above, below)) if above.is_integer() && above < below => Some(above / below),
            _ => {
                (self.at, self.tokens) = start;
                None
            }
        }
    }

    fn command(&mut self, name: &str) -> Option<Expression> {
        match name {
            "frac" => {
                let above = self.argument()?;
                Some(Expression::Quotient(above.into(), self.argument()?.into()))
            }
            "binom" => {
                let above = self.argument()?;
                Some(Expression::Choose(above.into(), self.argument()?.into()))
            }
            "sqrt" => {
                let degree = if self.takes('[') {
                    self.until(']')?
                } else {
                    Expression::Number(Rational::from_integer(2.into()))
                };
                Some(Expression::Root(degree.into(), self.argument()?.into()))
            }
            "infty" => Some(Expression::Symbol("∞".to_owned())),
            "lfloor" | "lceil" => {
                let inner = self.sum()?;
                match self.next()? {
                    Token::Command(close) if close == "rfloor" && name == "lfloor" => {
                        Some(Expression::Floor(inner.into(), false))
                    }
                    Token::Command(close) if close == "rceil" && name == "lceil" => {
                        Some(Expression::Floor(inner.into(), true))
                    }
                    _ => None,
                }
            }
            _ if FUNCTIONS.contains(&name) => self.call(name),
            "e" | "circ" | "overline" | "begin" | "end" | "rfloor" | "rceil" => None,
            _ => Some(Expression::Symbol(name.to_owned())),
        }
    }

    fn call(&mut self, name: &str) -> Option<Expression> {
        let base = if name == "log" && self.takes('_') {
            Some(self.argument()?)
        } else {
            None
        };
        let exponent = if self.takes('^') {
            Some(self.argument()?)
        } else {
            None
        };
        let mut inner = self.power()?;
        // sin 2x: up to the next sign.
        while matches!(self.peek(), Some(Token::Letter(_)))
            || matches!(self.peek(), Some(Token::Command(name)) if name == "pi")
        {
            inner = Expression::Product(vec![inner, self.power()?]);
        }
        let call = match base {
            Some(base) => Expression::Logarithm(base.into(), inner.into()),
            None => Expression::Call(name.to_owned(), inner.into()),
        };
        Some(match exponent {
            Some(exponent) => Expression::Power(call.into(), exponent.into()),
            None => call,
        })
    }
}

fn one_or(mut parts: Vec<Expression>, many: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            many(parts)
        }
        None => many(parts),
    }
}

fn ten_to(exponent: usize) -> Option<BigInt> {
    (exponent <= 400).then(|| BigInt::from(10).pow(exponent as u32))
}

fn decimal(digits: &str) -> Option<Rational> {
    let (whole, places) = digits.split_once('.').unwrap_or((digits, ""));
    let number: BigInt = match format!("{whole}{places}").as_str() {
        "" => BigInt::ZERO,
        digits => digits.parse().ok()?,
    };
    Some(Rational::new(number, ten_to(places.len())?))
}
