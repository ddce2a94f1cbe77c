//! LaTeX and plain notation to tokens: what is only layout goes, and each sign has one spelling.

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// Digits, with at most one point.
    Number(String),
    /// A variable.
    Letter(char),
    /// A command without its backslash.
    Command(String),
    /// Words: of `\text{…}`, or written plainly.
    Text(String),
    /// A sign: `+ - * / ^ _ ( ) [ ] { } , = < > ≤ ≥ ≠ ∈ ∪ ± | ! % ° &`, `«` and `»` for the braces of a set, `↵` for a new row.
    Sign(char),
}

/// Commands that only place or style.
const LAYOUT: [&str; 27] = [
    "left",
    "right",
    "big",
    "Big",
    "bigg",
    "Bigg",
    "bigl",
    "bigr",
    "Bigl",
    "Bigr",
    "displaystyle",
    "textstyle",
    "limits",
    "quad",
    "qquad",
    "thinspace",
    "mathbf",
    "mathbb",
    "mathcal",
    "boldsymbol",
    "vec",
    "mathit",
    "bf",
    "rm",
    "hspace",
    "phantom",
    "mathsf",
];
/// Commands whose braces hold words.
const WORDS: [&str; 7] = [
    "text",
    "textbf",
    "textit",
    "textrm",
    "mathrm",
    "mbox",
    "operatorname",
];
/// Units that two letters are read as; longer words are words anyway.
const SHORT_UNITS: [&str; 14] = [
    "cm", "mm", "km", "kg", "mg", "ft", "in", "ml", "hr", "oz", "lb", "am", "pm", "mi",
];
/// Functions that may be written without a backslash.
pub const FUNCTIONS: [&str; 16] = [
    "sin", "cos", "tan", "cot", "sec", "csc", "exp", "ln", "log", "arcsin", "arccos", "arctan",
    "sinh", "cosh", "tanh", "sqrt",
];

/// The tokens of an answer. With `groups`, a comma before three digits belongs to their number.
pub fn tokens(text: &str, groups: bool) -> Vec<Token> {
    let text = text.replace("{,}", ",").replace(",\\!", ",");
    let mut lexer = Lexer {
        rest: text.trim(),
        groups,
        tokens: Vec::new(),
    };
    while let Some(first) = lexer.rest.chars().next() {
        lexer.step(first);
    }
    let mut tokens = lexer.tokens;
    while tokens.last() == Some(&Token::Sign('.')) {
        tokens.pop();
    }
    tokens
}

struct Lexer<'a> {
    rest: &'a str,
    groups: bool,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn sign(&mut self, sign: char) {
        self.tokens.push(Token::Sign(sign));
    }

    fn step(&mut self, first: char) {
        if first == '\\' {
            self.command();
        } else if first.is_ascii_digit()
            || (first == '.' && self.rest[1..].starts_with(|c: char| c.is_ascii_digit()))
        {
            self.number();
        } else if first.is_alphabetic() {
            self.word();
        } else {
            self.rest = &self.rest[first.len_utf8()..];
            match first {
                '−' | '–' => self.sign('-'),
                '×' | '·' | '⋅' | '∗' => self.sign('*'),
                '÷' => self.sign('/'),
                '∞' => self.tokens.push(Token::Command("infty".to_owned())),
                '√' => self.tokens.push(Token::Command("sqrt".to_owned())),
                ';' => self.sign(','),
                '$' | '~' | '"' | '`' => {}
                c if c.is_whitespace() => {}
                c => self.sign(c),
            }
        }
    }

    fn command(&mut self) {
        let after = &self.rest[1..];
        let length = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        if length == 0 {
            let Some(sign) = after.chars().next() else {
                self.rest = "";
                return;
            };
            self.rest = &after[sign.len_utf8()..];
            match sign {
                '{' => self.sign('«'),
                '}' => self.sign('»'),
                '%' => self.sign('%'),
                '|' => self.sign('|'),
                '\\' => self.sign('↵'),
                // `\, \; \: \! \  \$ \( \) \[ \]`: spaces, currency and the borders of a formula.
                _ => {}
            }
            return;
        }
        let (name, after) = after.split_at(length);
        self.rest = after;
        if LAYOUT.contains(&name) {
            // `\left.` has no bracket.
            if matches!(name, "left" | "right") && after.starts_with('.') {
                self.rest = &after[1..];
            }
            return;
        }
        if WORDS.contains(&name)
            && let Some((words, after)) = after
                .trim_start()
                .strip_prefix('{')
                .and_then(|inside| inside.split_once('}'))
        {
            self.rest = after;
            self.text(words);
            return;
        }
        match name {
            "dfrac" | "tfrac" | "cfrac" => self.tokens.push(Token::Command("frac".to_owned())),
            "dbinom" | "tbinom" => self.tokens.push(Token::Command("binom".to_owned())),
            "times" | "cdot" | "ast" => self.sign('*'),
            "div" => self.sign('/'),
            "le" | "leq" | "leqslant" => self.sign('≤'),
            "ge" | "geq" | "geqslant" => self.sign('≥'),
            "lt" => self.sign('<'),
            "gt" => self.sign('>'),
            "ne" | "neq" => self.sign('≠'),
            "in" => self.sign('∈'),
            "cup" => self.sign('∪'),
            "pm" | "mp" => self.sign('±'),
            "lbrace" => self.sign('«'),
            "rbrace" => self.sign('»'),
            "vert" | "lvert" | "rvert" | "mid" => self.sign('|'),
            "degree" => self.sign('°'),
            "percent" => self.sign('%'),
            "ldots" | "dots" | "cdots" => self.sign('…'),
            "emptyset" | "varnothing" => {
                self.sign('«');
                self.sign('»');
            }
            "begin" | "end" => self.environment(name),
            _ => self.tokens.push(Token::Command(name.to_owned())),
        }
    }

    /// `begin` and `end` of a matrix, whatever its brackets.
    fn environment(&mut self, name: &str) {
        if let Some(end) = self.rest.find('}') {
            let kind = &self.rest[..end];
            self.rest = &self.rest[end + 1..];
            // `{array}{cc}`
            if name == "begin"
                && kind.contains("array")
                && self.rest.starts_with('{')
                && let Some(end) = self.rest.find('}')
            {
                self.rest = &self.rest[end + 1..];
            }
        }
        self.tokens.push(Token::Command(name.to_owned()));
    }

    fn number(&mut self) {
        let mut digits = String::new();
        // Groups of three behind one to three digits.
        let can_have_groups = (1..=3).contains(&count_digits(self.rest));
        loop {
            let count = count_digits(self.rest);
            digits.push_str(&self.rest[..count]);
            self.rest = &self.rest[count..];
            let rest = self.rest;
            let parted = |mark: &str| {
                let after = rest.strip_prefix(mark)?;
                (can_have_groups && count_digits(after) == 3).then_some(after)
            };
            let next = parted("\\,")
                .or_else(|| parted("\\!"))
                .or_else(|| parted("\\ "))
                .or_else(|| parted(",").filter(|_| self.groups));
            match next {
                Some(after) => self.rest = after,
                None => break,
            }
        }
        if let Some(after) = self.rest.strip_prefix('.')
            && !digits.contains('.')
        {
            let count = count_digits(after);
            // `0.\overline{3}`, but not the end of a sentence.
            if count > 0 || after.starts_with("\\overline") {
                digits.push('.');
                digits.push_str(&after[..count]);
                self.rest = &after[count..];
            }
        }
        self.tokens.push(Token::Number(digits));
    }

    fn word(&mut self) {
        let length = self
            .rest
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(self.rest.len());
        let (word, after) = self.rest.split_at(length);
        self.rest = after;
        let count = word.chars().count();
        let is_exponent = matches!(word, "e" | "E")
            && matches!(self.tokens.last(), Some(Token::Number(_)))
            && after
                .strip_prefix(['+', '-'])
                .unwrap_or(after)
                .starts_with(|c: char| c.is_ascii_digit());
        if is_exponent {
            self.tokens.push(Token::Command("e".to_owned()));
        } else if FUNCTIONS.contains(&word) || matches!(word, "pi" | "infty") {
            self.tokens.push(Token::Command(word.to_owned()));
        } else if word == "π" {
            self.tokens.push(Token::Command("pi".to_owned()));
        } else if count == 1
            || (count == 2 && !SHORT_UNITS.contains(&word) && word != "or")
            || (count == 3 && word.chars().all(|c| "abcxyz".contains(c)))
        {
            self.tokens.extend(word.chars().map(Token::Letter));
        } else {
            self.text(word);
        }
    }

    fn text(&mut self, words: &str) {
        let words = words.trim().trim_end_matches('.');
        let mut characters = words.chars();
        match (characters.next(), characters.next()) {
            (None, _) => {}
            (Some(letter), None) if letter.is_alphabetic() => {
                self.tokens.push(Token::Letter(letter));
            }
            _ if words == "and" || words == "or" => self.sign(','),
            _ => match self.tokens.last_mut() {
                Some(Token::Text(before)) => {
                    before.push(' ');
                    before.push_str(words);
                }
                _ => self.tokens.push(Token::Text(words.to_owned())),
            },
        }
    }
}

fn count_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}
