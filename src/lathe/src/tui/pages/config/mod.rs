//! The experiment as a tree and as text, checked while it is edited.

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
    /// Show this file for editing.
    Open(std::path::PathBuf),
    /// A watched file was changed by somebody.
    FileChanged(std::path::PathBuf),
}

const HERE: Context = Context::Page(PageId::Config);

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    bind("config.top", &["g g", "home"], HERE, action::Command::Config(Command::Top), "first line", ""),
];

#[derive(Debug, Default)]
pub struct Config {
    scroll: usize,
}

impl Page for Config {
    fn update(&mut self, input: Input<'_>, _shared: &mut Shared) -> Vec<Effect> {
        if let Input::Command(action::Command::Config(Command::Top)) = input {
            self.scroll = 0;
        }
        Vec::new()
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        empty::draw(shared, frame, area, "This page is being built", "");
    }
}
