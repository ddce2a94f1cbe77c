//! What tells a curve from the others: its colour, and, where colour cannot or must not say it alone, a dashed line or, on a
//! screen of plain characters, a character.
//!
//! The legend shows a sample of the same: `━`, `╍╍`, `┈┈`, `━·`, or the character.

use ratatui::style::{Color, Style};

use crate::tui::shared::{Glyphs, PlotMarks};
use crate::tui::theme::Theme;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub style: Style,
    pub dash: Dash,
    /// Where dots are characters: `*`, `+`, `o`…
    pub mark: char,
}

/// Which dot columns of a curve are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dash {
    Solid,
    Dashed,
    Dotted,
    Mixed,
    Long,
    Pairs,
    Sparse,
    Triple,
}

/// Told apart at a glance; letters come after them.
const MARKS: [char; 8] = ['*', '+', 'o', 'x', '#', '%', '@', '='];

impl Look {
    /// Of the `place`-th metric of a panel with one run.
    pub fn of_metric(place: usize, theme: &Theme) -> Self {
        let style = theme.series(place);
        Self {
            style,
            dash: Dash::nth(if has_color(style) { 0 } else { place }),
            mark: mark(place),
        }
    }

    /// Of the `place`-th arm of a bandit: dashed also in colour, since its mark stands for it elsewhere.
    pub fn of_arm(place: usize, theme: &Theme) -> Self {
        Self {
            style: theme.series(place),
            dash: Dash::nth(place),
            mark: mark(place),
        }
    }

    /// Of the `place`-th metric of one of several runs: colours are the runs' own, of which there are `runs`.
    pub fn of_run(color: usize, place: usize, runs: usize, theme: &Theme) -> Self {
        let style = theme.series(color);
        let index = color + place * runs.max(color + 1);
        Self {
            style,
            dash: Dash::nth(if has_color(style) { place } else { index }),
            mark: mark(index),
        }
    }

    /// Of the raw curve below a smoothed one.
    pub fn raw(style: Style) -> Self {
        Self {
            style,
            dash: Dash::Solid,
            mark: '.',
        }
    }

    /// What the legend shows of the curve.
    pub fn sample(self, glyphs: Glyphs) -> String {
        if glyphs.plot == PlotMarks::Ascii || !glyphs.unicode {
            return self.mark.to_string();
        }
        match self.dash {
            Dash::Solid => "━",
            Dash::Dashed => "╍╍",
            Dash::Dotted => "┈┈",
            Dash::Mixed => "━·",
            Dash::Long => "━ ━",
            Dash::Pairs => "╌╌",
            Dash::Sparse => "· ·",
            Dash::Triple => "━··",
        }
        .to_owned()
    }
}

impl Dash {
    const ALL: [Self; 8] = [
        Self::Solid,
        Self::Dashed,
        Self::Dotted,
        Self::Mixed,
        Self::Long,
        Self::Pairs,
        Self::Sparse,
        Self::Triple,
    ];

    fn nth(index: usize) -> Self {
        Self::ALL[index % Self::ALL.len()]
    }

    /// Whether a curve has dots in this column; columns are counted in halves of a character.
    pub fn shows(self, half: usize) -> bool {
        match self {
            Self::Solid => true,
            Self::Dashed => half % 6 < 4,
            Self::Dotted => half.is_multiple_of(3),
            Self::Mixed => matches!(half % 9, 0..=4 | 7),
            Self::Long => half % 16 < 11,
            Self::Pairs => half % 4 < 2,
            Self::Sparse => half.is_multiple_of(6),
            Self::Triple => matches!(half % 12, 0..=4 | 7 | 10),
        }
    }
}

fn has_color(style: Style) -> bool {
    style.fg.is_some_and(|color| color != Color::Reset)
}

fn mark(index: usize) -> char {
    let letters = || {
        (b'A'..=b'Z')
            .map(char::from)
            .nth((index - MARKS.len()) % 26)
    };
    MARKS
        .get(index)
        .copied()
        .or_else(letters)
        .unwrap_or(MARKS[0])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tui::testing::shared;

    fn glyphs(plot: PlotMarks) -> Glyphs {
        Glyphs {
            unicode: plot != PlotMarks::Ascii,
            plot,
        }
    }

    #[test]
    fn without_colour_the_first_curves_of_a_panel_have_samples_of_their_own() {
        let theme = shared().theme.without_color();
        for plot in [PlotMarks::Braille, PlotMarks::Ascii] {
            let samples: BTreeSet<String> = (0..8)
                .map(|place| Look::of_metric(place, &theme).sample(glyphs(plot)))
                .collect();
            assert_eq!(samples.len(), 8, "{samples:?}");
        }
    }

    #[test]
    fn two_metrics_of_each_of_eight_runs_are_all_told_apart() {
        let theme = shared().theme;
        let mut marks = BTreeSet::new();
        for run in 0..8 {
            for place in 0..2 {
                marks.insert(Look::of_run(run, place, 8, &theme).mark);
            }
        }
        assert_eq!(marks.len(), 16);
        let [test, train] = [0, 1].map(|place| Look::of_run(3, place, 8, &theme));
        assert_eq!(test.style, train.style, "one run, one colour");
        assert_ne!(test.dash, train.dash);
    }

    #[test]
    fn a_dashed_line_leaves_columns_out_and_no_two_dashes_the_same_ones() {
        let patterns: BTreeSet<Vec<bool>> = Dash::ALL
            .into_iter()
            .map(|dash| (0..18).map(|half| dash.shows(half)).collect())
            .collect();
        assert_eq!(patterns.len(), 8);
        assert!(patterns.iter().all(|pattern| pattern.contains(&true)));
    }
}
