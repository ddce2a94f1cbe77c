//! Every run that was found: state, progress, metrics, notes; filter, sort, mark, delete.

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

const HERE: Context = Context::Page(PageId::Runs);

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    bind("runs.top", &["g g", "home"], HERE, action::Command::Runs(Command::Top), "first line", ""),
];

#[derive(Debug, Default)]
pub struct Runs {
    scroll: usize,
}

impl Page for Runs {
    fn update(&mut self, input: Input<'_>, _shared: &mut Shared) -> Vec<Effect> {
        if let Input::Command(action::Command::Runs(Command::Top)) = input {
            self.scroll = 0;
        }
        Vec::new()
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        empty::draw(shared, frame, area, "This page is being built", "");
    }
}
