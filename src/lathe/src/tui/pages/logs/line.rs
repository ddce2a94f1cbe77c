//! One line of a log, whichever it comes from, and how serious it is.

use runlog::event::Level;

use crate::tui::widgets::text;

/// From the least serious on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Severity {
    #[default]
    Debug,
    Info,
    Warning,
    Error,
}

impl Severity {
    pub const ALL: [Self; 4] = [Self::Debug, Self::Info, Self::Warning, Self::Error];

    /// Five columns: said in words, since colour may be missing.
    pub fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "WARN",
            Self::Error => "ERROR",
        }
    }

    /// What a filter with this as its least shows.
    pub fn filter_words(self) -> &'static str {
        match self {
            Self::Debug => "every line",
            Self::Info => "no debug lines",
            Self::Warning => "warnings and errors",
            Self::Error => "errors only",
        }
    }

    #[must_use]
    pub fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    /// Of a line that says it in its own words; `Info` where it does not.
    pub fn guess(text: &str) -> Self {
        // Levels stand at the start; the words of a long line mean nothing.
        let end = text
            .char_indices()
            .nth(160)
            .map_or(text.len(), |(at, _)| at);
        let head = &text[..end];
        let has = |words: &[&str]| words.iter().any(|word| head.contains(word));
        if has(&[
            "ERROR",
            "Error:",
            "error:",
            "error[",
            "FATAL",
            "fatal:",
            "CRITICAL",
            "panicked at",
            "Traceback (most",
            "Exception",
            "out of memory",
            "Segmentation fault",
        ]) {
            Self::Error
        } else if has(&["WARN", "Warning", "warning:", "[W "]) {
            Self::Warning
        } else if has(&["DEBUG", "TRACE", "[debug]"]) {
            Self::Debug
        } else {
            Self::Info
        }
    }
}

impl From<Level> for Severity {
    fn from(level: Level) -> Self {
        match level {
            Level::Debug => Self::Debug,
            Level::Info | Level::Other => Self::Info,
            Level::Warning => Self::Warning,
            Level::Error => Self::Error,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Grows from line to line; in a file its offset.
    pub id: u64,
    /// Of the run; None where the line does not tell.
    pub elapsed_ms: Option<f64>,
    pub severity: Severity,
    /// Who said it: a part of the program, `alarm`, `phase`…; empty in a file.
    pub source: String,
    pub text: String,
}

impl Line {
    /// Whether a search finds it: in its text, or by who said it, as both are on the screen.
    pub fn has(&self, pattern: &str) -> bool {
        text::finds(&self.text, pattern) || text::finds(&self.source, pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_from_the_words_of_a_line() {
        for (text, severity) in [
            ("step:41 - actor/kl_loss:0.1", Severity::Info),
            (
                "2026-01-01T00:00:00Z  WARN trainer: slow",
                Severity::Warning,
            ),
            ("thread 'main' panicked at src/main.rs:1", Severity::Error),
            ("CUDA error: out of memory", Severity::Error),
            ("[W socket.cpp:426] retry", Severity::Warning),
            ("DEBUG tick", Severity::Debug),
            ("", Severity::Info),
        ] {
            assert_eq!(Severity::guess(text), severity, "{text}");
        }
        let late = "x".repeat(200) + "ERROR";
        assert_eq!(Severity::guess(&late), Severity::Info);
    }
}
