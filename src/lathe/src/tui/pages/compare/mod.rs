//! Runs side by side: config keys that differ, a table of metrics, overlaid curves.

use ratatui::Frame;
use ratatui::layout::Rect;

use super::{Input, Page, PageId};
use crate::tui::action::{self, Effect};
use crate::tui::bindings::{Binding, Context, bind};
use crate::tui::shared::Shared;
use crate::tui::widgets::empty;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Top,
}

/// Answers to this page's jobs.
#[derive(Debug)]
pub enum Message {}

const HERE: Context = Context::Page(PageId::Compare);

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    bind("compare.top", &["g g", "home"], HERE, action::Command::Compare(Command::Top), "first line", ""),
];

#[derive(Debug, Default)]
pub struct Compare {
    scroll: usize,
}

impl Page for Compare {
    fn update(&mut self, input: Input<'_>, _shared: &mut Shared) -> Vec<Effect> {
        if let Input::Command(action::Command::Compare(Command::Top)) = input {
            self.scroll = 0;
        }
        Vec::new()
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        empty::draw(shared, frame, area, "This page is being built", "");
    }
}
