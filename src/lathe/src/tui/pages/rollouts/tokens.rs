//! A sample token by token: each shaded by one number, with a mark below it that says the same without colour.
//!
//! ```text
//!  96*66 = 6336        the tokens as text
//!  98 79   4981        a mark under each; here: tenths of probability
//! ```

use std::ops::Range;

use dialogue::tokenizer::Tokenizer;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use runlog::store::RolloutRow;

use super::list::signed;
use crate::tui::shared::{Glyphs, Shared};
use crate::tui::theme::Role;
use crate::tui::widgets::text;

const TENTHS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// What tokens are shaded by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shade {
    #[default]
    LogProb,
    Ratio,
    Advantage,
    Mask,
}

impl Shade {
    pub const ALL: [Self; 4] = [Self::LogProb, Self::Ratio, Self::Advantage, Self::Mask];

    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|shade| *shade == self);
        Self::ALL[(at.unwrap_or(0) + 1) % Self::ALL.len()]
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::LogProb => "log-prob",
            Self::Ratio => "ratio",
            Self::Advantage => "advantage",
            Self::Mask => "mask",
        }
    }

    /// What the marks mean.
    pub fn legend(self, glyphs: Glyphs) -> String {
        let not_drawn = "blank: not drawn";
        match self {
            Self::LogProb => {
                format!(
                    "log-prob as tenths of probability: 9 is 0.9 or more, 0 below 0.1; {not_drawn}"
                )
            }
            Self::Ratio => format!(
                "ratio exp(old {} behaviour): = within 1%, < > within 20%, {} {} beyond; {not_drawn}",
                glyphs.pick("−", "-"),
                glyphs.pick("≪", "L"),
                glyphs.pick("≫", "H"),
            ),
            Self::Advantage => format!(
                "advantage: {} + 0 - {} from most to least, of this sample; {not_drawn}",
                glyphs.pick("▲", "A"),
                glyphs.pick("▼", "V"),
            ),
            Self::Mask => {
                "mask: m drawn by the model and in the loss, . tool or template, p prompt"
                    .to_owned()
            }
        }
    }
}

/// The numbers of one token of a row, counted from the start of the prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token<'a> {
    row: &'a RolloutRow,
    /// None: a token of the prompt.
    response: Option<usize>,
    pub id: u32,
}

/// Tokens of the prompt and of the response.
pub fn count(row: &RolloutRow) -> usize {
    row.prompt_ids.len() + row.response_ids.len()
}

pub fn token(row: &RolloutRow, index: usize) -> Option<Token<'_>> {
    if let Some(id) = row.prompt_ids.get(index) {
        return Some(Token {
            row,
            response: None,
            id: *id,
        });
    }
    let at = index.checked_sub(row.prompt_ids.len())?;
    Some(Token {
        row,
        response: Some(at),
        id: *row.response_ids.get(at)?,
    })
}

impl Token<'_> {
    /// The model drew it.
    pub fn is_drawn(&self) -> bool {
        self.response
            .and_then(|at| self.row.response_mask.get(at))
            .copied()
            .unwrap_or(false)
    }

    fn of(&self, list: Option<&Vec<f32>>) -> Option<f64> {
        let value = list?.get(self.response?)?;
        self.is_drawn().then_some(f64::from(*value))
    }

    pub fn behavior(&self) -> Option<f64> {
        self.of(Some(&self.row.behavior_logprobs))
    }

    pub fn old(&self) -> Option<f64> {
        self.of(self.row.old_logprobs.as_ref())
    }

    pub fn reference(&self) -> Option<f64> {
        self.of(self.row.ref_logprobs.as_ref())
    }

    pub fn value(&self) -> Option<f64> {
        self.of(self.row.values.as_ref())
    }

    pub fn advantage(&self) -> Option<f64> {
        self.of(self.row.advantages.as_ref())
    }

    pub fn policy_version(&self) -> Option<u64> {
        self.row.policy_versions.get(self.response?).copied()
    }

    /// `exp(old - behaviour)`: how the weights moved between drawing and training.
    pub fn ratio(&self) -> Option<f64> {
        Some((self.old()? - self.behavior()?).exp())
    }

    /// The mark under it, and how both are drawn. `most`: the largest advantage of the sample by size.
    pub fn mark(&self, shade: Shade, most: f64, shared: &Shared) -> (&'static str, Style) {
        let glyphs = shared.glyphs;
        let muted = (" ", shared.style(Role::Muted));
        let odd = ("?", shared.theme.scale(f64::NAN));
        match shade {
            Shade::LogProb => {
                let Some(logprob) = self.behavior() else {
                    return muted;
                };
                let probability = logprob.exp();
                if !probability.is_finite() {
                    return odd;
                }
                let tenth = ((probability * 10.0) as usize).min(9);
                (
                    TENTHS[tenth],
                    shared.theme.scale(2.0 * probability.min(1.0) - 1.0),
                )
            }
            Shade::Ratio => {
                let Some(ratio) = self.ratio() else {
                    return muted;
                };
                if !ratio.is_finite() {
                    return odd;
                }
                let mark = if ratio < 0.8 {
                    glyphs.pick("≪", "L")
                } else if ratio < 0.99 {
                    "<"
                } else if ratio <= 1.01 {
                    "="
                } else if ratio <= 1.2 {
                    ">"
                } else {
                    glyphs.pick("≫", "H")
                };
                (mark, shared.theme.scale((ratio - 1.0) / 0.2))
            }
            Shade::Advantage => {
                let Some(advantage) = self.advantage() else {
                    return muted;
                };
                if !advantage.is_finite() {
                    return odd;
                }
                let share = if most > 0.0 { advantage / most } else { 0.0 };
                let mark = if share >= 0.66 {
                    glyphs.pick("▲", "A")
                } else if share > 0.05 {
                    "+"
                } else if share >= -0.05 {
                    "0"
                } else if share > -0.66 {
                    "-"
                } else {
                    glyphs.pick("▼", "V")
                };
                (mark, shared.theme.scale(share))
            }
            Shade::Mask => match (self.response, self.is_drawn()) {
                (None, _) => ("p", shared.style(Role::Muted)),
                (Some(_), true) => ("m", shared.style(Role::Good)),
                (Some(_), false) => (".", shared.style(Role::Caution)),
            },
        }
    }
}

/// The largest advantage by size among the finite ones.
pub fn most_advantage(row: &RolloutRow) -> f64 {
    row.advantages
        .iter()
        .flatten()
        .map(|advantage| f64::from(advantage.abs()))
        .filter(|advantage| advantage.is_finite())
        .fold(0.0, f64::max)
}

/// The text of every token, as it is shown: never empty, no control characters. Without a tokenizer: its id.
pub fn texts(row: &RolloutRow, tokenizer: Option<&Tokenizer>) -> Vec<String> {
    row.prompt_ids
        .iter()
        .chain(&row.response_ids)
        .map(|id| match tokenizer {
            None => format!("{id} "),
            Some(tokenizer) => {
                let decoded = tokenizer.decode(&[*id], false).unwrap_or_default();
                // A piece of a character: the vocabulary's own spelling tells more than a replacement sign.
                let shown = if decoded.is_empty() || decoded.contains('\u{fffd}') {
                    tokenizer.token(*id).unwrap_or_else(|| format!("<{id}>"))
                } else {
                    decoded
                };
                let shown = text::printable(&shown);
                if text::width(&shown) == 0 {
                    format!("<{id}>")
                } else {
                    shown
                }
            }
        })
        .collect()
}

/// Which tokens stand on which line of `width` columns; a line ends after a token with a line end.
pub fn layout(texts: &[String], width: usize) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (index, shown) in texts.iter().enumerate() {
        let wide = text::width(shown);
        if used > 0 && used + wide > width {
            lines.push(start..index);
            (start, used) = (index, 0);
        }
        used += wide;
        if shown.contains('⏎') {
            lines.push(start..index + 1);
            (start, used) = (index + 1, 0);
        }
    }
    if start < texts.len() {
        lines.push(start..texts.len());
    }
    lines
}

/// The first of `lines` on the screen, so that line `at` is near its middle.
pub fn top(at: usize, lines: usize, visible: usize) -> usize {
    at.saturating_sub(visible / 2)
        .min(lines.saturating_sub(visible))
}

/// The token in a column of a line.
pub fn at_column(texts: &[String], line: Range<usize>, column: usize) -> Option<usize> {
    let mut used = 0;
    line.into_iter().find(|index| {
        used += text::width(&texts[*index]);
        column < used
    })
}

/// The two rows of one line of tokens.
pub fn draw_line(
    row: &RolloutRow,
    texts: &[String],
    range: Range<usize>,
    look: (Shade, usize),
    width: usize,
    shared: &Shared,
) -> [Line<'static>; 2] {
    let (shade, cursor) = look;
    let most = most_advantage(row);
    let mut above = Vec::new();
    let mut below = Vec::new();
    for index in range {
        let Some(token) = token(row, index) else {
            continue;
        };
        let shown = text::fit(&texts[index], width, shared.glyphs.unicode);
        // The sign of a line end is Unicode.
        let shown = if shared.glyphs.unicode {
            shown
        } else {
            shown.replace('⏎', "$")
        };
        let (mark, style) = token.mark(shade, most, shared);
        let marks = text::pad(mark, text::width(&shown), shared.glyphs.unicode);
        let style = if index == cursor {
            shared.style(Role::Selection)
        } else {
            style
        };
        above.push(Span::styled(shown, style));
        below.push(Span::styled(marks, style));
    }
    [Line::from(above), Line::from(below)]
}

/// Everything known of one token, exactly.
pub fn readout(row: &RolloutRow, index: usize, shown: &str, has_text: bool) -> Vec<String> {
    let Some(token) = token(row, index) else {
        return Vec::new();
    };
    let exact =
        |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |value| format!("{value:.6}"));
    let who = match (token.response, token.is_drawn()) {
        (None, _) => "prompt",
        (Some(_), true) => "drawn by the model",
        (Some(_), false) => "tool or template, not in the loss",
    };
    let name = if has_text {
        format!("`{shown}` id {}", token.id)
    } else {
        format!("id {}", token.id)
    };
    let version = match token.policy_version() {
        Some(version) if token.is_drawn() => format!(", weights v{version}"),
        _ => String::new(),
    };
    let mut lines = vec![format!(
        "token {} of {}: {name}, {who}{version}",
        index + 1,
        count(row)
    )];
    if token.is_drawn() {
        lines.push(format!(
            "log-prob behaviour {}, old {}, reference {}",
            exact(token.behavior()),
            exact(token.old()),
            exact(token.reference()),
        ));
        lines.push(format!(
            "ratio {}, advantage {}, value {}",
            exact(token.ratio()),
            signed(token.advantage()),
            exact(token.value()),
        ));
    }
    lines
}
