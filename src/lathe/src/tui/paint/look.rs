//! How a cell looks apart from its symbol, and the shortest SGR from one look to another.

use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};

use super::put;

/// Modifiers that show on a blank cell.
const ON_BLANKS: Modifier = Modifier::UNDERLINED
    .union(Modifier::REVERSED)
    .union(Modifier::CROSSED_OUT);

/// What a terminal has to be told before it writes a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub fg: Color,
    pub bg: Color,
    pub modifier: Modifier,
}

impl Look {
    pub const PLAIN: Self = Self {
        fg: Color::Reset,
        bg: Color::Reset,
        modifier: Modifier::empty(),
    };

    pub fn of(cell: &Cell) -> Self {
        Self {
            fg: cell.fg,
            bg: cell.bg,
            modifier: cell.modifier,
        }
    }

    /// A blank looks the same with this look as with none.
    pub fn leaves_blanks(self) -> bool {
        self.bg == Color::Reset && !self.modifier.intersects(ON_BLANKS)
    }
}

/// The shortest SGR from one look to another.
pub fn set_look(from: Look, to: Look, out: &mut Vec<u8>) {
    if from == to {
        return;
    }
    if to == Look::PLAIN {
        out.extend_from_slice(b"\x1b[m");
        return;
    }
    // Taking one modifier away may take another along (22 ends bold and dim): all is set anew.
    let is_reset = !to.modifier.contains(from.modifier);
    let from = if is_reset { Look::PLAIN } else { from };
    let mut codes: Vec<String> = Vec::new();
    if is_reset {
        // An empty number is 0.
        codes.push(String::new());
    }
    for (modifier, code) in [
        (Modifier::BOLD, "1"),
        (Modifier::DIM, "2"),
        (Modifier::ITALIC, "3"),
        (Modifier::UNDERLINED, "4"),
        (Modifier::SLOW_BLINK, "5"),
        (Modifier::RAPID_BLINK, "6"),
        (Modifier::REVERSED, "7"),
        (Modifier::HIDDEN, "8"),
        (Modifier::CROSSED_OUT, "9"),
    ] {
        if to.modifier.contains(modifier) && !from.modifier.contains(modifier) {
            codes.push(code.to_owned());
        }
    }
    if to.fg != from.fg {
        codes.push(color(to.fg, 38));
    }
    if to.bg != from.bg {
        codes.push(color(to.bg, 48));
    }
    put(out, format_args!("\x1b[{}m", codes.join(";")));
}

/// `38;5;110`; `base` is 38 for the foreground, 48 for the background.
pub fn color(color: Color, base: u8) -> String {
    match color {
        Color::Reset => (base + 1).to_string(),
        Color::Rgb(r, g, b) => match palette_place(r, g, b) {
            Some(place) => format!("{base};5;{place}"),
            None => format!("{base};2;{r};{g};{b}"),
        },
        Color::Indexed(place) => format!("{base};5;{place}"),
        Color::Black => format!("{base};5;0"),
        Color::Red => format!("{base};5;1"),
        Color::Green => format!("{base};5;2"),
        Color::Yellow => format!("{base};5;3"),
        Color::Blue => format!("{base};5;4"),
        Color::Magenta => format!("{base};5;5"),
        Color::Cyan => format!("{base};5;6"),
        Color::Gray => format!("{base};5;7"),
        Color::DarkGray => format!("{base};5;8"),
        Color::LightRed => format!("{base};5;9"),
        Color::LightGreen => format!("{base};5;10"),
        Color::LightYellow => format!("{base};5;11"),
        Color::LightBlue => format!("{base};5;12"),
        Color::LightMagenta => format!("{base};5;13"),
        Color::LightCyan => format!("{base};5;14"),
        Color::White => format!("{base};5;15"),
    }
}

/// The number of a colour that is exactly in the palette's cube or greys (16 to 255, the same in every terminal).
pub fn palette_place(r: u8, g: u8, b: u8) -> Option<u8> {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let level = |value: u8| LEVELS.iter().position(|level| *level == value);
    if let (Some(r), Some(g), Some(b)) = (level(r), level(g), level(b)) {
        return u8::try_from(16 + 36 * r + 6 * g + b).ok();
    }
    let is_grey = r == g && g == b && (8..=238).contains(&r) && (r - 8).is_multiple_of(10);
    is_grey.then(|| 232 + (r - 8) / 10)
}
