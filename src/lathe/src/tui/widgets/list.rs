//! A selected row in a long list, and the window of rows that shows it; and what keys and the wheel mean there. Draws nothing.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseEventKind};

/// Which row is selected and which rows are on screen. The list may change length at any time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListState {
    selected: usize,
    top: usize,
}

/// How a selection moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    Up,
    Down,
    HalfPageUp,
    HalfPageDown,
    PageUp,
    PageDown,
    First,
    Last,
}

impl Move {
    /// What a key means in a list while letters are typed into a field.
    pub fn of_typed(key: KeyEvent) -> Option<Self> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Down => Some(Self::Down),
            KeyCode::Up => Some(Self::Up),
            KeyCode::PageDown => Some(Self::PageDown),
            KeyCode::PageUp => Some(Self::PageUp),
            KeyCode::Char('n') if control => Some(Self::Down),
            KeyCode::Char('p') if control => Some(Self::Up),
            _ => None,
        }
    }

    /// What a key means in a list that stands over the page: letters move too.
    pub fn of_menu(key: KeyEvent) -> Option<Self> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('d') => Some(Self::HalfPageDown),
                KeyCode::Char('u') => Some(Self::HalfPageUp),
                _ => Self::of_typed(key),
            };
        }
        match key.code {
            KeyCode::Char('j') => Some(Self::Down),
            KeyCode::Char('k') => Some(Self::Up),
            KeyCode::Home | KeyCode::Char('g') => Some(Self::First),
            KeyCode::End | KeyCode::Char('G') => Some(Self::Last),
            _ => Self::of_typed(key),
        }
    }

    /// What the wheel means.
    pub fn of_wheel(kind: MouseEventKind) -> Option<Self> {
        match kind {
            MouseEventKind::ScrollDown => Some(Self::Down),
            MouseEventKind::ScrollUp => Some(Self::Up),
            _ => None,
        }
    }
}

impl ListState {
    /// The selected row, always one of `length`; 0 in an empty list.
    pub fn selected(&self, length: usize) -> usize {
        self.selected.min(length.saturating_sub(1))
    }

    pub fn select(&mut self, row: usize) {
        self.selected = row;
    }

    /// Keeps the same rows on screen after `by` rows came (or went, when negative) before them.
    pub fn shift(&mut self, by: isize) {
        self.selected = self.selected.saturating_add_signed(by);
        self.top = self.top.saturating_add_signed(by);
    }

    /// Moves within `length` rows of which `visible` are on screen.
    pub fn go(&mut self, by: Move, length: usize, visible: usize) {
        let now = self.selected(length);
        let last = length.saturating_sub(1);
        let visible = visible.max(1);
        self.selected = match by {
            Move::Up => now.saturating_sub(1),
            Move::Down => (now + 1).min(last),
            Move::HalfPageUp => now.saturating_sub((visible / 2).max(1)),
            Move::HalfPageDown => (now + (visible / 2).max(1)).min(last),
            Move::PageUp => now.saturating_sub(visible),
            Move::PageDown => (now + visible).min(last),
            Move::First => 0,
            Move::Last => last,
        };
        self.top = self.top(length, visible);
    }

    /// The first row on screen so that the selected one is seen and no room is wasted at the end.
    pub fn top(&self, length: usize, visible: usize) -> usize {
        let visible = visible.max(1);
        let selected = self.selected(length);
        self.top
            .min(selected)
            .max((selected + 1).saturating_sub(visible))
            .min(length.saturating_sub(visible))
    }

    /// The rows on screen.
    pub fn window(&self, length: usize, visible: usize) -> std::ops::Range<usize> {
        let top = self.top(length, visible);
        top..(top + visible).min(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_selected_row_is_always_on_screen(
            moves in prop::collection::vec((0_u8..8, 0_usize..60, 1_usize..30), 1..40)
        ) {
            let mut list = ListState::default();
            for (which, length, visible) in moves {
                let by = [
                    Move::Up, Move::Down, Move::HalfPageUp, Move::HalfPageDown,
                    Move::PageUp, Move::PageDown, Move::First, Move::Last,
                ][usize::from(which)];
                list.go(by, length, visible);
                let window = list.window(length, visible);
                prop_assert!(window.end <= length);
                prop_assert_eq!(window.len(), visible.min(length));
                if length > 0 {
                    prop_assert!(window.contains(&list.selected(length)));
                }
            }
        }
    }
}
