//! What the terminal says of itself: asked once, in one go, before anything else reads from it.
//!
//! ```text
//!  a character · REP · where is the cursor? · colours? · who are you?      ─►  terminal
//!  row;column · rgb:… · rgb:… · ?62;…                                      ◄─  as many answers as it knows, in order
//! ```
//! Every terminal knows the last question, so its answer ends the wait. Without any answer nothing is counted on. Keys that are
//! typed meanwhile are kept.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long to wait for the answers: a round trip over a slow line.
const PATIENCE: Duration = Duration::from_millis(150);

/// Relative luminance of the middle grey, as people see it (L* of 50).
const MIDDLE_GREY: f64 = 0.184_187;

/// What is to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Questions {
    /// The colours of text and background.
    pub colors: bool,
    /// Whether it repeats this character on request: one that runs of are drawn with, since a terminal may know how to repeat
    /// letters alone.
    pub repeats: Option<char>,
}

/// What is known of the terminal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answers {
    /// None: it did not say.
    pub is_light: Option<bool>,
    pub repeats: bool,
    /// What a person typed before the answers were there.
    pub typed: Vec<KeyEvent>,
}

/// Copies of the character that the terminal is asked for.
const COPIES: u16 = 3;

impl Questions {
    /// On a screen that is blank, and stays so.
    fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(character) = self.repeats {
            let probe = format!("\x1b[H{character}\x1b[{COPIES}b\x1b[6n\x1b[H\x1b[K");
            bytes.extend_from_slice(probe.as_bytes());
        }
        if self.colors {
            // The bell ends it: some terminals end their answer as the question was, and get the other end wrong.
            bytes.extend_from_slice(b"\x1b]10;?\x07\x1b]11;?\x07");
        }
        bytes.extend_from_slice(b"\x1b[c");
        bytes
    }

    /// Asks, and waits for the answers; for none where nothing is asked. The terminal is in raw mode, its screen blank.
    pub fn ask(self) -> io::Result<Answers> {
        if !self.colors && self.repeats.is_none() {
            return Ok(Answers::default());
        }
        let mut out = io::stdout();
        out.write_all(&self.bytes())?;
        out.flush()?;
        let stdin = io::stdin();
        let until = Instant::now() + PATIENCE;
        let mut heard = Heard::default();
        while !heard.is_over && wait(&stdin, until)? {
            let mut bytes = [0; 512];
            let count = rustix::io::read(stdin.as_fd(), &mut bytes)?;
            if count == 0 {
                break;
            }
            heard.take(&bytes[..count]);
        }
        Ok(heard.answers())
    }
}

/// False: the time is over.
fn wait(input: &impl AsFd, until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut waits = [PollFd::new(input, PollFlags::IN)];
        match poll(&mut waits, Some(&timeout)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// What came so far, taken apart.
#[derive(Debug, Default)]
struct Heard {
    /// A sequence that is not complete.
    rest: Vec<u8>,
    typed: Vec<u8>,
    /// Where the cursor was, counted from 1.
    column: Option<u16>,
    foreground: Option<f64>,
    background: Option<f64>,
    /// The last answer was there.
    is_over: bool,
}

impl Heard {
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.rest);
        let mut left = all.as_slice();
        while let Some(first) = left.first() {
            if *first != 0x1b {
                self.typed.push(*first);
                left = &left[1..];
                continue;
            }
            let Some(length) = sequence(left) else {
                self.rest = left.to_vec();
                return;
            };
            self.answer(&left[..length]);
            left = &left[length..];
        }
    }

    /// A whole sequence: an answer, or a key that has one, which is lost.
    fn answer(&mut self, sequence: &[u8]) {
        let text = String::from_utf8_lossy(sequence);
        let text = text.trim_end_matches("\x1b\\").trim_end_matches('\x07');
        if let Some(color) = text.strip_prefix("\x1b]10;") {
            self.foreground = luminance(color);
        } else if let Some(color) = text.strip_prefix("\x1b]11;") {
            self.background = luminance(color);
        } else if text.starts_with("\x1b[?") && text.ends_with('c') {
            self.is_over = true;
        } else if let Some(place) = text
            .strip_prefix("\x1b[")
            .and_then(|rest| rest.strip_suffix('R'))
        {
            let column = place.split_once(';').map(|(_, column)| column.parse());
            self.column = column.and_then(Result::ok);
        }
    }

    fn answers(self) -> Answers {
        let is_light = self.background.map(|background| match self.foreground {
            Some(foreground) if foreground != background => background > foreground,
            _ => background > MIDDLE_GREY,
        });
        let mut typed = self.typed;
        // An escape that nothing followed is a key.
        typed.extend(self.rest.first().filter(|_| self.rest.len() == 1));
        Answers {
            is_light,
            repeats: self.column == Some(2 + COPIES),
            typed: keys(&typed),
        }
    }
}

/// The length of the escape sequence at the start; None: more of it is to come.
fn sequence(bytes: &[u8]) -> Option<usize> {
    match bytes.get(1)? {
        b'[' => {
            let end = bytes[2..].iter().position(|b| (0x40..=0x7e).contains(b))?;
            Some(2 + end + 1)
        }
        b']' => {
            let end = bytes[2..].iter().position(|b| matches!(b, 0x07 | 0x1b))?;
            match bytes[2 + end] {
                0x07 => Some(2 + end + 1),
                // The backslash of ESC \.
                _ => (bytes.len() > 2 + end + 1).then_some(2 + end + 2),
            }
        }
        b'O' => (bytes.len() > 2).then_some(3),
        _ => Some(2),
    }
}

/// Relative luminance, 0 to 1, of `rgb:ffff/8080/0000`, with one to four digits a part.
fn luminance(color: &str) -> Option<f64> {
    let (_, parts) = color.split_once(':')?;
    let mut linear = parts.split('/').map(|part| {
        let most = 16_f64.powi(i32::try_from(part.len()).ok()?) - 1.0;
        let value = f64::from(u32::from_str_radix(part, 16).ok()?) / most;
        // sRGB
        Some(if value <= 0.040_45 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        })
    });
    let (red, green, blue) = (linear.next()??, linear.next()??, linear.next()??);
    Some(0.2126 * red + 0.7152 * green + 0.0722 * blue)
}

/// Letters and the keys that are one byte.
fn keys(typed: &[u8]) -> Vec<KeyEvent> {
    let text = String::from_utf8_lossy(typed);
    let key = |character: char| match character {
        '\r' | '\n' => KeyEvent::from(KeyCode::Enter),
        '\t' => KeyEvent::from(KeyCode::Tab),
        '\x1b' => KeyEvent::from(KeyCode::Esc),
        '\x7f' => KeyEvent::from(KeyCode::Backspace),
        '\x01'..='\x1a' => {
            let letter = char::from(character as u8 - 1 + b'a');
            KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)
        }
        character => KeyEvent::from(KeyCode::Char(character)),
    };
    text.chars().map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(pieces: &[&str]) -> (Answers, bool) {
        let mut heard = Heard::default();
        for piece in pieces {
            heard.take(piece.as_bytes());
        }
        let is_over = heard.is_over;
        (heard.answers(), is_over)
    }

    const WHITE: &str = "\x1b]10;rgb:ffff/ffff/ffff\x1b\\";
    const GREY: &str = "\x1b]11;rgb:30/30/30\x07";

    #[test]
    fn answers_are_understood_however_they_are_cut() {
        let all = format!("\x1b[1;5R{WHITE}{GREY}\x1b[?62;22c");
        let wanted = Answers {
            is_light: Some(false),
            repeats: true,
            typed: Vec::new(),
        };
        assert_eq!(heard(&[&all]), (wanted.clone(), true));
        for cut in 1..all.len() {
            let (one, two) = all.split_at(cut);
            assert_eq!(heard(&[one, two]), (wanted.clone(), true), "{one:?}");
        }
    }

    #[test]
    fn a_terminal_that_ignores_the_request_is_not_counted_on() {
        assert!(!heard(&["\x1b[1;2R\x1b[?6c"]).0.repeats, "ignored");
        assert!(
            !heard(&["\x1b[1;8R\x1b[?6c"]).0.repeats,
            "its bytes, not itself"
        );
        assert!(!heard(&["\x1b[?6c"]).0.repeats, "no answer");
        assert_eq!(heard(&[]), (Answers::default(), false));
    }

    #[test]
    fn a_background_is_light_beside_the_text_or_by_itself() {
        let light = |text: &str| heard(&[text]).0.is_light;
        assert_eq!(light(GREY), Some(false));
        assert_eq!(light("\x1b]11;rgb:ffff/f000/e000\x1b\\"), Some(true));
        assert_eq!(light(&format!("\x1b]10;rgb:0/0/0\x07{GREY}")), Some(true));
        assert_eq!(light(WHITE), None, "the background did not say");
        assert_eq!(light("\x1b]11;what\x07"), None);
    }

    #[test]
    fn keys_typed_meanwhile_are_kept() {
        let (answers, is_over) = heard(&["7\x1b[1;2R", "jé\x1b[?6c", "\r\x03\x1b"]);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        let typed: Vec<KeyEvent> = ['7', 'j', 'é']
            .map(|letter| KeyEvent::from(KeyCode::Char(letter)))
            .into_iter()
            .chain([KeyCode::Enter.into(), control, KeyCode::Esc.into()])
            .collect();
        assert_eq!(answers.typed, typed);
        assert!(is_over);
    }

    #[test]
    fn what_is_asked_leaves_the_screen_blank() {
        let questions = Questions {
            colors: true,
            repeats: Some('─'),
        };
        let mut terminal = vt100::Parser::new(4, 20, 0);
        terminal.process(&questions.bytes());
        assert_eq!(terminal.screen().contents().trim(), "");
    }
}
