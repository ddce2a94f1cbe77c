//! What the terminal can show: characters, colour. Read once at the start; everything that draws is handed it.

use std::ffi::OsString;
use std::io::IsTerminal;

/// Where the program's two outputs go and what may be written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Standard output is a terminal.
    pub to_screen: bool,
    /// Standard error is a terminal.
    pub errors_to_screen: bool,
    /// Blocks and arrows may be used; otherwise plain ASCII.
    pub unicode: bool,
    /// Standard output may carry colour.
    pub color: bool,
    /// Standard error may carry colour.
    pub color_stderr: bool,
    /// `--plain`: lines only, whatever the terminal can do.
    pub plain: bool,
}

impl Terminal {
    pub fn detect() -> Self {
        let to_screen = std::io::stdout().is_terminal();
        let errors_to_screen = std::io::stderr().is_terminal();
        Self::from_environment(to_screen, errors_to_screen, |name| std::env::var_os(name))
    }

    fn from_environment(
        to_screen: bool,
        errors_to_screen: bool,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_some_and(|term| term == "dumb");
        let locale = set("LC_ALL")
            .or_else(|| set("LC_CTYPE"))
            .or_else(|| set("LANG"))
            .map(|value| value.to_string_lossy().to_lowercase())
            .unwrap_or_default();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        let color_wanted = !dumb && set("NO_COLOR").is_none();
        Self {
            to_screen,
            errors_to_screen,
            unicode: utf8 && !dumb,
            color: to_screen && color_wanted,
            color_stderr: errors_to_screen && color_wanted,
            plain: false,
        }
    }

    /// A person watches both outputs, on a terminal that can move its cursor.
    pub fn is_interactive(self) -> bool {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        self.to_screen && self.errors_to_screen && !dumb && !self.plain
    }

    /// For standard output.
    pub fn paint(self, role: Role, text: &str) -> String {
        paint(self.color, role, text)
    }

    /// For standard error.
    pub fn paint_stderr(self, role: Role, text: &str) -> String {
        paint(self.color_stderr, role, text)
    }

    /// `unicode` where it can be shown, else `ascii`.
    pub fn glyph(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }
}

fn paint(color: bool, role: Role, text: &str) -> String {
    if !color {
        return text.to_owned();
    }
    let code = match role {
        Role::Good => "32",
        Role::Bad => "31",
        Role::Caution => "33",
        Role::Muted => "2",
        Role::Strong => "1",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// What a colour means. Text must be understood without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Good,
    Bad,
    Caution,
    Muted,
    Strong,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal(variables: &[(&str, &str)]) -> Terminal {
        Terminal::from_environment(true, true, |name| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn unicode_needs_a_utf8_locale_and_a_terminal_that_is_not_dumb() {
        assert!(terminal(&[("LANG", "en_US.UTF-8")]).unicode);
        assert!(terminal(&[("LC_ALL", "C.utf8")]).unicode);
        assert!(!terminal(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")]).unicode);
        assert!(!terminal(&[("LANG", "en_US.UTF-8"), ("TERM", "dumb")]).unicode);
        assert!(!terminal(&[]).unicode);
    }

    #[test]
    fn an_empty_no_color_is_not_set_and_any_other_value_is() {
        assert!(terminal(&[("NO_COLOR", "")]).color);
        assert!(!terminal(&[("NO_COLOR", "0")]).color);
        assert_eq!(terminal(&[("NO_COLOR", "1")]).paint(Role::Bad, "no"), "no");
    }
}
