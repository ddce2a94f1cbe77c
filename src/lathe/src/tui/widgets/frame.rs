//! Lines around panes, in ASCII where Unicode cannot be shown.

use ratatui::symbols::border;
use ratatui::text::Span;
use ratatui::widgets::{Block, BorderType};

use crate::tui::shared::Shared;
use crate::tui::theme::Role;

const ASCII: border::Set<'_> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// A frame with a title. `border` is [`Role::Border`], or [`Role::Focus`] for the pane that keys go to.
pub fn block<'a>(shared: &Shared, title: &'a str, border: Role) -> Block<'a> {
    let block = Block::bordered()
        .border_style(shared.style(border))
        .title(Span::styled(title, shared.style(Role::Title)));
    if shared.glyphs.unicode {
        block.border_type(BorderType::Rounded)
    } else {
        block.border_set(ASCII)
    }
}
