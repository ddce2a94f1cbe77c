//! A one-line text field: tui-input's editing with emacs-like keys, drawn with the cursor where it is.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use tui_input::{Input, InputRequest};

/// What a key did to the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The text changed.
    Changed,
    /// The cursor moved, or nothing happened.
    Kept,
    /// Enter.
    Accepted,
    /// Esc.
    Cancelled,
    /// A key that fields do not use (up, down, tab…): the caller may.
    Unused,
}

#[derive(Debug, Clone, Default)]
pub struct Field {
    input: Input,
}

impl Field {
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            input: Input::new(text.into()),
        }
    }

    pub fn text(&self) -> &str {
        self.input.value()
    }

    pub fn is_empty(&self) -> bool {
        self.text().is_empty()
    }

    pub fn key(&mut self, key: KeyEvent) -> Outcome {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let request = match key.code {
            KeyCode::Enter => return Outcome::Accepted,
            KeyCode::Esc => return Outcome::Cancelled,
            KeyCode::Char('a') if control => InputRequest::GoToStart,
            KeyCode::Char('e') if control => InputRequest::GoToEnd,
            KeyCode::Char('b') if control => InputRequest::GoToPrevChar,
            KeyCode::Char('f') if control => InputRequest::GoToNextChar,
            KeyCode::Char('w') if control => InputRequest::DeletePrevWord,
            KeyCode::Char('u') if control => InputRequest::DeleteLine,
            KeyCode::Char('k') if control => InputRequest::DeleteTillEnd,
            KeyCode::Char('d') if control => InputRequest::DeleteNextChar,
            KeyCode::Char('b') if alt => InputRequest::GoToPrevWord,
            KeyCode::Char('f') if alt => InputRequest::GoToNextWord,
            KeyCode::Char(c) if !control && !alt => InputRequest::InsertChar(c),
            KeyCode::Backspace if alt => InputRequest::DeletePrevWord,
            KeyCode::Backspace => InputRequest::DeletePrevChar,
            KeyCode::Delete => InputRequest::DeleteNextChar,
            KeyCode::Left if control => InputRequest::GoToPrevWord,
            KeyCode::Right if control => InputRequest::GoToNextWord,
            KeyCode::Left => InputRequest::GoToPrevChar,
            KeyCode::Right => InputRequest::GoToNextChar,
            KeyCode::Home => InputRequest::GoToStart,
            KeyCode::End => InputRequest::GoToEnd,
            _ => return Outcome::Unused,
        };
        match self.input.handle(request) {
            Some(change) if change.value => Outcome::Changed,
            _ => Outcome::Kept,
        }
    }

    /// Inserts pasted text; line ends become spaces.
    pub fn paste(&mut self, text: &str) {
        for c in text.trim_end_matches(['\n', '\r']).chars() {
            let c = if c.is_control() { ' ' } else { c };
            let _ = self.input.handle(InputRequest::InsertChar(c));
        }
    }

    /// Draws `label` and the text into one line; shows the terminal's cursor when `is_focused`.
    pub fn draw(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        label: &str,
        styles: (Style, Style),
        is_focused: bool,
    ) {
        let (label_style, text_style) = styles;
        let label_width = super::text::width(label).min(usize::from(area.width)) as u16;
        let room = usize::from(area.width - label_width).max(1);
        let scroll = self.input.visual_scroll(room.saturating_sub(1).max(1));
        let shown = super::text::skip_columns(self.text(), scroll);
        frame.render_widget(
            Line::from(vec![
                Span::styled(label.to_owned(), label_style),
                Span::styled(shown.to_owned(), text_style),
            ]),
            area,
        );
        if is_focused && area.height > 0 {
            let column = self
                .input
                .visual_cursor()
                .saturating_sub(scroll)
                .min(room - 1);
            frame.set_cursor_position(Position::new(area.x + label_width + column as u16, area.y));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(field: &mut Field, code: KeyCode, modifiers: KeyModifiers) -> Outcome {
        field.key(KeyEvent::new(code, modifiers))
    }

    #[test]
    fn a_line_is_edited_as_in_a_shell() {
        let mut field = Field::new("kl>0.02 state:running");
        assert_eq!(
            press(&mut field, KeyCode::Char('w'), KeyModifiers::CONTROL),
            Outcome::Changed
        );
        press(&mut field, KeyCode::Char('a'), KeyModifiers::CONTROL);
        press(&mut field, KeyCode::Char('x'), KeyModifiers::NONE);
        assert!(field.text().starts_with("xkl>0.02"), "{}", field.text());
        assert_eq!(
            press(&mut field, KeyCode::Enter, KeyModifiers::NONE),
            Outcome::Accepted
        );
        assert_eq!(
            press(&mut field, KeyCode::Up, KeyModifiers::NONE),
            Outcome::Unused
        );
    }

    #[test]
    fn pasted_lines_stay_on_one_line() {
        let mut field = Field::default();
        field.paste("a\nb\r\n");
        assert_eq!(field.text(), "a b");
    }
}
