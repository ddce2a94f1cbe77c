//! A line of a log as a terminal would have shown it: carriage returns write over what stood there, colours are dropped.

use vte::{Params, Parser, Perform};

/// Longer lines are cut: nobody reads them here, and one must not fill the memory.
pub const MOST_CHARACTERS: usize = 16_384;

/// The last state of a line that may hold progress bars, escape sequences and bytes that are no text.
pub fn clean(line: &[u8]) -> String {
    let mut parser = Parser::new();
    let mut screen = Row::default();
    parser.advance(&mut screen, line);
    let mut text: String = screen.cells.iter().collect();
    text.truncate(text.trim_end().len());
    if screen.is_cut {
        text.push('…');
    }
    text
}

/// One row of a terminal.
#[derive(Default)]
struct Row {
    cells: Vec<char>,
    cursor: usize,
    is_cut: bool,
}

impl Row {
    fn fill_to_cursor(&mut self) {
        if self.cells.len() < self.cursor {
            self.cells.resize(self.cursor, ' ');
        }
    }
}

impl Perform for Row {
    fn print(&mut self, c: char) {
        // The second set of control characters comes as text.
        if c.is_control() {
            return;
        }
        if self.cursor >= MOST_CHARACTERS {
            self.is_cut = true;
            return;
        }
        self.fill_to_cursor();
        match self.cells.get_mut(self.cursor) {
            Some(cell) => *cell = c,
            None => self.cells.push(c),
        }
        self.cursor += 1;
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\r' => self.cursor = 0,
            8 => self.cursor = self.cursor.saturating_sub(1),
            b'\t' => {
                // To the next multiple of eight, as terminals do.
                let to = (self.cursor / 8 + 1) * 8;
                self.cursor = to.min(MOST_CHARACTERS);
                self.fill_to_cursor();
            }
            _ => {}
        }
    }

    fn csi_dispatch(
        &mut self,
        params: &Params,
        _intermediates: &[u8],
        _ignore: bool,
        action: char,
    ) {
        let first = params
            .iter()
            .next()
            .and_then(|param| param.first().copied());
        let count = usize::from(first.unwrap_or(0));
        match (action, count) {
            ('K', 0) => self.cells.truncate(self.cursor),
            ('K', 1) => {
                let end = (self.cursor + 1).min(self.cells.len());
                self.cells[..end].fill(' ');
            }
            ('K' | 'J', 2) => self.cells.clear(),
            ('G', column) => self.cursor = column.saturating_sub(1).min(MOST_CHARACTERS),
            ('C', by) => self.cursor = (self.cursor + by.max(1)).min(MOST_CHARACTERS),
            ('D', by) => self.cursor = self.cursor.saturating_sub(by.max(1)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_progress_bar_is_shown_in_its_last_state() {
        assert_eq!(clean(b" 10%|#   |\r 50%|##  |\r100%|####|"), "100%|####|");
        assert_eq!(clean(b"downloading...\rdone"), "doneloading...");
        assert_eq!(clean(b"downloading...\r\x1b[Kdone"), "done");
        assert_eq!(
            clean(b"a line with a Windows end\r"),
            "a line with a Windows end"
        );
        assert_eq!(clean(b"12345\x08\x08X"), "123X5");
    }

    #[test]
    fn colours_titles_and_links_are_dropped_and_tabs_are_columns() {
        assert_eq!(clean(b"\x1b[1;31mERROR\x1b[0m: bad"), "ERROR: bad");
        assert_eq!(clean(b"\x1b]0;title\x07text"), "text");
        assert_eq!(clean(b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"), "link");
        assert_eq!(clean(b"a\tb"), "a       b");
        assert_eq!(clean("日本語 ✓".as_bytes()), "日本語 ✓");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let long = clean(&vec![b'x'; MOST_CHARACTERS * 3]);
        assert_eq!(long.chars().count(), MOST_CHARACTERS + 1);
        assert!(clean(&b"x\r".repeat(100_000)).len() <= 2);
    }

    proptest! {
        #[test]
        fn no_bytes_leave_a_control_character(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(clean(&bytes).chars().all(|c| !c.is_control()));
        }

        #[test]
        fn plain_text_stays_as_it_is(text in "[ -~]{0,80}") {
            prop_assert_eq!(clean(text.as_bytes()), text.trim_end());
        }
    }
}
