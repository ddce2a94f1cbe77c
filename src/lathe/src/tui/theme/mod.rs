//! Themes: a file names a colour for each role; pages ask by role and never by colour.
//!
//! A theme file may give only what differs from its `base`. Colours are written as in CSS (`"#5fafd7"`), by number (`38`),
//! or by name (`red`); they are reduced to what the terminal can show. Without colour only bold, dim, underlined and
//! reversed are left, so meaning is always also in a word or a mark.

mod depth;
mod file;

use ratatui::style::{Color, Modifier, Style};

pub use depth::{Depth, rgb_of};
pub use file::{ThemeError, built_in_names, load};

/// What a piece of screen means. STYLE: colour only ever stands for one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Ordinary text, and the background of everything.
    Text,
    /// What can be overlooked: units, ages, hints.
    Muted,
    /// What is alive or selected by name: page tabs, keys in the footer.
    Accent,
    /// Headings of panes and columns.
    Title,
    Good,
    Bad,
    Caution,
    /// Lines around panes.
    Border,
    /// Lines around the pane that keys go to.
    Focus,
    /// The selected row or value.
    Selection,
    /// A row that is marked.
    Marked,
    /// What a search matched.
    Match,
    /// Guide lines and limits in plots.
    Grid,
    /// The raw curve behind a smoothed one.
    Raw,
    /// The keyboard's crosshair.
    Crosshair,
}

impl Role {
    pub const ALL: [Self; 15] = [
        Self::Text,
        Self::Muted,
        Self::Accent,
        Self::Title,
        Self::Good,
        Self::Bad,
        Self::Caution,
        Self::Border,
        Self::Focus,
        Self::Selection,
        Self::Marked,
        Self::Match,
        Self::Grid,
        Self::Raw,
        Self::Crosshair,
    ];

    /// The role's name in a theme file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Muted => "muted",
            Self::Accent => "accent",
            Self::Title => "title",
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Caution => "caution",
            Self::Border => "border",
            Self::Focus => "focus",
            Self::Selection => "selection",
            Self::Marked => "marked",
            Self::Match => "match",
            Self::Grid => "grid",
            Self::Raw => "raw",
            Self::Crosshair => "crosshair",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appearance {
    Dark,
    Light,
}

/// A theme made ready for one terminal.
#[derive(Debug, Clone, PartialEq)]
pub struct Theme {
    pub name: String,
    pub appearance: Appearance,
    styles: [Style; Role::ALL.len()],
    series: Vec<Style>,
}

impl Theme {
    pub fn style(&self, role: Role) -> Style {
        self.styles[role as usize]
    }

    /// The style of the `index`-th curve; the same index has the same colour everywhere.
    pub fn series(&self, index: usize) -> Style {
        self.series[index % self.series.len()]
    }

    /// How many curves have a style of their own.
    #[cfg(test)]
    pub fn series_count(&self) -> usize {
        self.series.len()
    }

    /// The colour of a value between `-1` (bad) and `1` (good): bad, muted or good in steps; for heat in tables and tokens.
    pub fn scale(&self, value: f64) -> Style {
        if value.is_nan() {
            self.style(Role::Caution).add_modifier(Modifier::REVERSED)
        } else if value >= 0.66 {
            self.style(Role::Good).add_modifier(Modifier::BOLD)
        } else if value >= 0.15 {
            self.style(Role::Good)
        } else if value > -0.15 {
            self.style(Role::Muted)
        } else if value > -0.66 {
            self.style(Role::Bad)
        } else {
            self.style(Role::Bad).add_modifier(Modifier::BOLD)
        }
    }

    /// The same theme with nothing but modifiers: for `NO_COLOR` and dumb terminals.
    #[must_use]
    pub fn without_color(&self) -> Self {
        let plain = |style: Style| Style {
            fg: None,
            bg: None,
            underline_color: None,
            ..style
        };
        let mut theme = Self {
            styles: self.styles.map(plain),
            series: self.series.iter().copied().map(plain).collect(),
            ..self.clone()
        };
        // What colour alone told must be told by a modifier.
        theme.styles[Role::Selection as usize].add_modifier |= Modifier::REVERSED;
        theme.styles[Role::Match as usize].add_modifier |= Modifier::UNDERLINED;
        for (role, modifier) in [
            (Role::Bad, Modifier::BOLD),
            (Role::Caution, Modifier::BOLD),
            (Role::Accent, Modifier::BOLD),
            (Role::Title, Modifier::BOLD),
            (Role::Marked, Modifier::BOLD),
            (Role::Muted, Modifier::DIM),
            (Role::Raw, Modifier::DIM),
            (Role::Grid, Modifier::DIM),
        ] {
            let style = &mut theme.styles[role as usize];
            // The selection is told from what is bold anyway.
            if style.add_modifier.is_empty() || role == Role::Selection {
                style.add_modifier |= modifier;
            }
        }
        theme
    }

    /// The same theme in the colours that the terminal has.
    #[must_use]
    pub fn at_depth(&self, depth: Depth) -> Self {
        if depth == Depth::Mono {
            return self.without_color();
        }
        let reduce = |style: Style| Style {
            fg: style.fg.map(|color| depth.reduce(color)),
            bg: style.bg.map(|color| depth.reduce(color)),
            ..style
        };
        Self {
            styles: self.styles.map(reduce),
            series: self.series.iter().copied().map(reduce).collect(),
            ..self.clone()
        }
    }
}

/// `#rrggbb`, `0`..`255`, or one of the sixteen names.
fn parse_color(text: &str) -> Option<Color> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_stand_in_the_order_of_their_numbers() {
        for (index, role) in Role::ALL.iter().enumerate() {
            assert_eq!(*role as usize, index);
        }
    }

    #[test]
    fn every_built_in_theme_loads_and_has_eight_series_or_is_monochrome() {
        for name in built_in_names() {
            let theme = load(name, &[]).unwrap();
            assert_eq!(&theme.name, name);
            assert!(theme.series_count() >= 6 || *name == "mono", "{name}");
        }
        assert!(built_in_names().len() >= 6);
    }

    #[test]
    fn without_color_no_style_holds_a_color_and_the_selection_still_shows() {
        let theme = load("dark", &[]).unwrap().at_depth(Depth::Mono);
        for role in Role::ALL {
            let style = theme.style(role);
            assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
        }
        assert!(
            theme
                .style(Role::Selection)
                .add_modifier
                .contains(Modifier::REVERSED)
        );
    }
}
