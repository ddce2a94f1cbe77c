//! Printed output as lines: `\r` begins a line anew, as a progress bar does; codes that move the cursor are taken off.

use serde::{Deserialize, Serialize};

/// A line longer than this is cut: a program that never ends a line must not fill memory.
const MOST_LINE_BYTES: usize = 64 << 10;

/// The line that is being printed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    line: String,
    /// A `\r` came: what comes next begins the line anew, unless it ends it.
    is_returned: bool,
    /// In an escape sequence that is not whole yet.
    escape: Option<String>,
}

impl Terminal {
    /// Takes a piece of output; gives each line that ends in it.
    pub fn take(&mut self, text: &str, mut line: impl FnMut(&str)) {
        for c in text.chars() {
            if let Some(escape) = &mut self.escape {
                escape.push(c);
                // CSI ends with its first letter, others are of one character.
                let is_csi = escape.starts_with('[');
                let is_whole = if is_csi {
                    escape.len() > 1 && ('@'..='~').contains(&c)
                } else {
                    true
                };
                if is_whole || escape.len() > 64 {
                    self.escape = None;
                }
                continue;
            }
            match c {
                '\u{1b}' => self.escape = Some(String::new()),
                '\n' => {
                    self.is_returned = false;
                    line(&self.line);
                    self.line.clear();
                }
                '\r' => self.is_returned = true,
                c => {
                    if std::mem::take(&mut self.is_returned) {
                        self.line.clear();
                    }
                    if self.line.len() < MOST_LINE_BYTES {
                        self.line.push(c);
                    }
                }
            }
        }
    }

    /// The line that was begun, if there is one; it is done then.
    pub fn finish(&mut self) -> Option<String> {
        self.is_returned = false;
        Some(std::mem::take(&mut self.line)).filter(|line| !line.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_the_lines_that_a_terminal_would_show() {
        let mut terminal = Terminal::default();
        let mut lines = Vec::new();
        for piece in [
            "a",
            "b\r\n",
            "10%\r20",
            "%\r100%\n",
            "\u{1b}[3",
            "1mred\u{1b}[0m\n\n",
            "rest",
        ] {
            terminal.take(piece, |line| lines.push(line.to_owned()));
        }
        assert_eq!(lines, ["ab", "100%", "red", ""]);
        assert_eq!(terminal.finish().as_deref(), Some("rest"));
        assert_eq!(terminal.finish(), None);
    }
}
