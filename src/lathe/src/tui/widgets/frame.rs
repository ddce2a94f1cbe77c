//! Lines around panes and above them, in ASCII where Unicode cannot be shown.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
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

/// A line with a title across the top of a pane that has no frame: `─ title ──────`. `line` is [`Role::Grid`], or
/// [`Role::Focus`] for the pane that keys go to.
pub fn rule(shared: &Shared, title: &Line<'_>, line: Role, buffer: &mut Buffer, area: Rect) {
    if area.height == 0 {
        return;
    }
    // The last column stays empty, so that panes side by side are seen to be two.
    let columns = usize::from(area.width.saturating_sub(1));
    let dashes = shared.glyphs.pick("─", "-").repeat(columns);
    buffer.set_string(area.x, area.y, dashes, shared.style(line));
    if area.width > 3 {
        buffer.set_line(area.x + 1, area.y, title, area.width - 3);
    }
}
