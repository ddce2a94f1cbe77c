//! Starting runs, sweeps and the queue; live control of a running run.

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
pub enum Message {
    /// Prepare the experiment of this run.
    Again(crate::tui::shared::RunKey),
}

const HERE: Context = Context::Page(PageId::Launch);

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    bind("launch.top", &["g g", "home"], HERE, action::Command::Launch(Command::Top), "first line", ""),
];

#[derive(Debug, Default)]
pub struct Launch {
    scroll: usize,
}

impl Page for Launch {
    fn update(&mut self, input: Input<'_>, _shared: &mut Shared) -> Vec<Effect> {
        if let Input::Command(action::Command::Launch(Command::Top)) = input {
            self.scroll = 0;
        }
        Vec::new()
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        empty::draw(shared, frame, area, "This page is being built", "");
    }
}
