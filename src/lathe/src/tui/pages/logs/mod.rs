//! The run's log: follow, search, filter by level.

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

const HERE: Context = Context::Page(PageId::Logs);

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    bind("logs.top", &["g g", "home"], HERE, action::Command::Logs(Command::Top), "first line", ""),
];

#[derive(Debug, Default)]
pub struct Logs {
    scroll: usize,
}

impl Page for Logs {
    fn update(&mut self, input: Input<'_>, _shared: &mut Shared) -> Vec<Effect> {
        if let Input::Command(action::Command::Logs(Command::Top)) = input {
            self.scroll = 0;
        }
        Vec::new()
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        empty::draw(shared, frame, area, "This page is being built", "");
    }
}
