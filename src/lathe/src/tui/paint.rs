//! Changed cells turned into as few bytes as a terminal needs to show them: what a key costs over a slow line.
//!
//! ```text
//!  changed cells ─► strokes (runs of one look) ─► grouped by look ─► move · style · text, each the shortest that says it
//! ```
//! A colour is set once a frame and not once a cell; long blanks are erased (ECH, EL) instead of written; a cursor goes the
//! shortest way (over what is already there, `\r \n \b`, relative, absolute). Colours that are exactly in the palette of 256
//! are named by their number. Knows nothing of what the cells mean.

use std::io::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Size;
use ratatui::style::{Color, Modifier};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// From this many blanks on, erasing is shorter than writing them.
const LEAST_ERASED: u16 = 6;
/// Rows down that are still shorter one by one than by an address.
const MOST_ROWS_DOWN: u16 = 4;

/// What stands, among what is shown, where the second half of a symbol lies.
const COVERED: &str = "";

/// Modifiers that show on a blank cell.
const ON_BLANKS: Modifier = Modifier::UNDERLINED
    .union(Modifier::REVERSED)
    .union(Modifier::CROSSED_OUT);

/// What a terminal has to be told before it writes a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    fg: Color,
    bg: Color,
    modifier: Modifier,
}

impl Look {
    const PLAIN: Self = Self {
        fg: Color::Reset,
        bg: Color::Reset,
        modifier: Modifier::empty(),
    };

    fn of(cell: &Cell) -> Self {
        Self {
            fg: cell.fg,
            bg: cell.bg,
            modifier: cell.modifier,
        }
    }

    /// A blank looks the same with this look as with none.
    fn leaves_blanks(self) -> bool {
        self.bg == Color::Reset && !self.modifier.intersects(ON_BLANKS)
    }
}

/// Neighbouring cells that are written, or erased, in one go.
#[derive(Debug, Clone, Copy)]
struct Stroke {
    x: u16,
    y: u16,
    columns: u16,
    is_erased: bool,
}

/// Writes frames, and knows what the terminal shows.
#[derive(Debug, Default)]
pub struct Painter {
    size: Size,
    shown: Vec<Cell>,
    /// Where the cursor is; None: not known, or waiting behind the last column.
    at: Option<(u16, u16)>,
}

impl Painter {
    /// The terminal was cleared.
    pub fn clear(&mut self) {
        self.shown.fill(Cell::EMPTY);
        self.at = None;
    }

    /// Appends the bytes that show `changed`, given row by row and from left to right, on a terminal of this size. Leaves the
    /// terminal with its plain style and its cursor anywhere.
    pub fn paint<'a>(
        &mut self,
        size: Size,
        changed: impl Iterator<Item = (u16, u16, &'a Cell)>,
        out: &mut Vec<u8>,
    ) {
        if size != self.size {
            self.size = size;
            self.shown = vec![Cell::EMPTY; usize::from(size.width) * usize::from(size.height)];
        }
        self.at = None;
        let mut places = Vec::new();
        for (x, y, cell) in changed {
            if x >= size.width || y >= size.height {
                continue;
            }
            let index = self.index(x, y);
            // The second half of a symbol that stands: it has no content of its own.
            if self.is_covered(x, y)
                && is_wide(self.shown[index - 1].symbol())
                && cell.symbol() == " "
            {
                continue;
            }
            self.tear(x, y, &mut places, out);
            self.shown[index] = cell.clone();
            places.push((x, y));
            if is_wide(cell.symbol()) {
                // What the second half is once the symbol is gone: a blank of the same look (see `fill_halves`).
                if x + 1 < size.width {
                    self.tear(x + 1, y, &mut places, out);
                    self.shown[index + 1] = cell.clone();
                    self.shown[index + 1].set_symbol(COVERED);
                }
            }
        }
        places.sort_unstable_by_key(|(x, y)| (*y, *x));
        places.dedup();
        places.retain(|(x, y)| !self.is_covered(*x, *y));
        let mut look = Look::PLAIN;
        for (wanted, strokes) in self.strokes(&places) {
            set_look(look, wanted, out);
            look = wanted;
            for stroke in strokes {
                self.stroke(stroke, look, out);
            }
        }
        set_look(look, Look::PLAIN, out);
    }

    /// A symbol of two columns of which one is about to change is taken away first: what terminals leave of its other half,
    /// and in which look, differs. Nothing is set yet, so blanks are plain; both places are then written.
    fn tear(&mut self, x: u16, y: u16, places: &mut Vec<(u16, u16)>, out: &mut Vec<u8>) {
        let first = if self.is_covered(x, y) {
            x - 1
        } else if is_wide(self.cell(x, y).symbol()) {
            x
        } else {
            return;
        };
        self.go(first, y, Look::PLAIN, out);
        let end = (first + 2).min(self.size.width);
        for at in first..end {
            out.push(b' ');
            let index = self.index(at, y);
            self.shown[index].set_symbol(" ");
            places.push((at, y));
        }
        self.at = (end < self.size.width).then_some((end, y));
    }

    /// The second half of a symbol of two columns.
    fn is_covered(&self, x: u16, y: u16) -> bool {
        x > 0 && self.cell(x, y).symbol() == COVERED
    }

    fn index(&self, x: u16, y: u16) -> usize {
        usize::from(y) * usize::from(self.size.width) + usize::from(x)
    }

    fn cell(&self, x: u16, y: u16) -> &Cell {
        &self.shown[self.index(x, y)]
    }

    /// A space that shows nothing else.
    fn is_blank(&self, x: u16, y: u16) -> bool {
        let cell = self.cell(x, y);
        cell.symbol() == " " && Look::of(cell).leaves_blanks()
    }

    /// The changed places as strokes, by look; what has none comes first.
    fn strokes(&self, places: &[(u16, u16)]) -> Vec<(Look, Vec<Stroke>)> {
        let mut groups: Vec<(Look, Vec<Stroke>)> = vec![(Look::PLAIN, Vec::new())];
        let mut rest = places;
        while let Some(&(x, y)) = rest.first() {
            let count = (1..rest.len())
                .find(|&i| rest[i] != (x + i as u16, y))
                .unwrap_or(rest.len());
            self.cut(x, y, count as u16, &mut groups);
            rest = &rest[count..];
        }
        groups
    }

    /// Cuts neighbouring places into strokes. Short blanks go with what stands before them, or else after them.
    fn cut(&self, x: u16, y: u16, columns: u16, groups: &mut Vec<(Look, Vec<Stroke>)>) {
        let end = x + columns;
        let mut at = x;
        while at < end {
            let blanks = (at..end).take_while(|&x| self.is_blank(x, y)).count() as u16;
            let is_erased =
                blanks >= LEAST_ERASED || (blanks >= 4 && at + blanks == self.size.width);
            if is_erased || at + blanks == end {
                let stroke = Stroke {
                    x: at,
                    y,
                    columns: blanks,
                    is_erased,
                };
                groups[0].1.push(stroke);
                at += blanks;
                continue;
            }
            // Something stands here, after no or few blanks.
            let look = Look::of(self.cell(at + blanks, y));
            if blanks > 0 && !look.leaves_blanks() {
                let stroke = Stroke {
                    x: at,
                    y,
                    columns: blanks,
                    is_erased: false,
                };
                groups[0].1.push(stroke);
                at += blanks;
            }
            let start = at;
            at += if look.leaves_blanks() { blanks } else { 0 };
            while at < end {
                if Look::of(self.cell(at, y)) == look && !self.is_blank(at, y) {
                    at += 1;
                    continue;
                }
                let blanks = (at..end).take_while(|&x| self.is_blank(x, y)).count() as u16;
                let goes_on = blanks > 0
                    && blanks < LEAST_ERASED
                    && look.leaves_blanks()
                    && (at + blanks == end || Look::of(self.cell(at + blanks, y)) == look)
                    && !(blanks >= 4 && at + blanks == self.size.width);
                if !goes_on {
                    break;
                }
                at += blanks;
            }
            let stroke = Stroke {
                x: start,
                y,
                columns: at - start,
                is_erased: false,
            };
            match groups.iter_mut().find(|(known, _)| *known == look) {
                Some((_, strokes)) => strokes.push(stroke),
                None => groups.push((look, vec![stroke])),
            }
        }
    }

    fn stroke(&mut self, stroke: Stroke, look: Look, out: &mut Vec<u8>) {
        self.go(stroke.x, stroke.y, look, out);
        if stroke.is_erased {
            if stroke.x + stroke.columns == self.size.width {
                out.extend_from_slice(b"\x1b[K");
            } else {
                put(out, format_args!("\x1b[{}X", stroke.columns));
            }
            return;
        }
        for x in stroke.x..stroke.x + stroke.columns {
            if self.at != Some((x, stroke.y)) {
                self.go(x, stroke.y, look, out);
            }
            let symbol = self.cell(x, stroke.y).symbol();
            out.extend_from_slice(symbol.as_bytes());
            // Terminals disagree on how wide other symbols are, and on where the cursor is behind the last column.
            let is_known = is_one_column(symbol) && x + 1 < self.size.width;
            self.at = is_known.then_some((x + 1, stroke.y));
        }
    }

    /// Moves the cursor the shortest way.
    fn go(&mut self, x: u16, y: u16, look: Look, out: &mut Vec<u8>) {
        if self.at == Some((x, y)) {
            return;
        }
        let mut best = absolute(x, y);
        if let Some((from_x, from_y)) = self.at {
            let mut consider = |way: Vec<u8>| {
                if way.len() < best.len() {
                    best = way;
                }
            };
            if from_y == y && from_x < x {
                consider(sideways(from_x, x));
                if let Some(over) = self.over(from_x, x, y, look) {
                    consider(over);
                }
            } else if y >= from_y && y - from_y <= MOST_ROWS_DOWN {
                let down = vec![b'\n'; usize::from(y - from_y)];
                consider([down.clone(), sideways(from_x, x)].concat());
                consider([vec![b'\r'], down, sideways(0, x)].concat());
            }
        }
        out.extend_from_slice(&best);
        self.at = Some((x, y));
    }

    /// What stands between two columns written once more, where it has the look that is set.
    fn over(&self, from: u16, to: u16, y: u16, look: Look) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for x in from..to {
            let cell = self.cell(x, y);
            let fits = Look::of(cell) == look || (self.is_blank(x, y) && look.leaves_blanks());
            if !fits || !is_one_column(cell.symbol()) || bytes.len() > 8 {
                return None;
            }
            bytes.extend_from_slice(cell.symbol().as_bytes());
        }
        Some(bytes)
    }
}

/// Gives the second half of each symbol of two columns the look of the first: on the screen it has no other.
pub fn fill_halves(buffer: &mut Buffer) {
    let width = usize::from(buffer.area.width);
    for index in 0..buffer.content.len() {
        if index % width.max(1) + 1 < width && is_wide(buffer.content[index].symbol()) {
            let mut half = buffer.content[index].clone();
            half.set_symbol(" ");
            buffer.content[index + 1] = half;
        }
    }
}

fn is_wide(symbol: &str) -> bool {
    UnicodeWidthStr::width(symbol) > 1
}

fn is_one_column(symbol: &str) -> bool {
    let mut characters = symbol.chars();
    match (characters.next(), characters.next()) {
        (Some(one), None) => one.width() == Some(1),
        _ => false,
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = out.write_fmt(text);
}

fn absolute(x: u16, y: u16) -> Vec<u8> {
    match (x, y) {
        (0, 0) => b"\x1b[H".to_vec(),
        (0, y) => format!("\x1b[{}H", y + 1).into_bytes(),
        (x, y) => format!("\x1b[{};{}H", y + 1, x + 1).into_bytes(),
    }
}

fn sideways(from: u16, to: u16) -> Vec<u8> {
    match (from, to) {
        (from, to) if from == to => Vec::new(),
        (from, to) if to == from + 1 => b"\x1b[C".to_vec(),
        (from, to) if to > from => format!("\x1b[{}C", to - from).into_bytes(),
        (from, to) if from - to <= 4 => vec![b'\x08'; usize::from(from - to)],
        (from, to) => format!("\x1b[{}D", from - to).into_bytes(),
    }
}

/// The shortest SGR from one look to another.
fn set_look(from: Look, to: Look, out: &mut Vec<u8>) {
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
        codes.push("0".to_owned());
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
fn color(color: Color, base: u8) -> String {
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
fn palette_place(r: u8, g: u8, b: u8) -> Option<u8> {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let level = |value: u8| LEVELS.iter().position(|level| *level == value);
    if let (Some(r), Some(g), Some(b)) = (level(r), level(g), level(b)) {
        return u8::try_from(16 + 36 * r + 6 * g + b).ok();
    }
    let is_grey = r == g && g == b && (8..=238).contains(&r) && (r - 8).is_multiple_of(10);
    is_grey.then(|| 232 + (r - 8) / 10)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;
    use crate::tui::testing::Bench;

    const WIDTH: u16 = 24;
    const HEIGHT: u16 = 6;

    fn style() -> impl Strategy<Value = Style> {
        let color = prop_oneof![
            3 => Just(Color::Reset),
            1 => Just(Color::Rgb(0x5f, 0xaf, 0xd7)),
            1 => Just(Color::Rgb(1, 2, 3)),
            1 => Just(Color::Indexed(9)),
        ];
        let modifier = prop_oneof![
            4 => Just(Modifier::empty()),
            1 => Just(Modifier::BOLD),
            1 => Just(Modifier::REVERSED),
            1 => Just(Modifier::UNDERLINED | Modifier::ITALIC),
        ];
        let ground = prop_oneof![4 => Just(Color::Reset), 1 => Just(Color::Rgb(8, 8, 8))];
        (color, ground, modifier)
            .prop_map(|(fg, bg, modifier)| Style::new().fg(fg).bg(bg).add_modifier(modifier))
    }

    /// Texts at places: blanks, dots, words, and symbols of two columns.
    fn writing() -> impl Strategy<Value = Vec<(u16, u16, String, Style)>> {
        let text = prop_oneof![
            Just(" ".repeat(12)),
            Just("   ".to_owned()),
            Just("⣿⡇⠁".to_owned()),
            Just("│".to_owned()),
            Just("loss 0.5".to_owned()),
            Just("日本".to_owned()),
        ];
        prop::collection::vec((0..WIDTH, 0..HEIGHT, text, style()), 0..14)
    }

    fn frame(before: &Buffer, writing: &[(u16, u16, String, Style)]) -> Buffer {
        let mut buffer = before.clone();
        let is_wide = |text: &str| text.starts_with('日');
        for (x, y, text, style) in writing.iter().filter(|(_, _, text, _)| !is_wide(text)) {
            // Half of a symbol of two columns has no meaning: one that is written over is gone.
            if *x > 0 && super::is_wide(buffer[(x - 1, *y)].symbol()) {
                buffer[(x - 1, *y)].reset();
            }
            buffer.set_string(*x, *y, text, *style);
        }
        for (x, y, text, style) in writing.iter().filter(|(_, _, text, _)| is_wide(text)) {
            buffer.set_string(x / 4 * 4, *y, text, *style);
        }
        fill_halves(&mut buffer);
        buffer
    }

    fn color_of(color: Color) -> vt100::Color {
        match color {
            Color::Rgb(r, g, b) => match palette_place(r, g, b) {
                Some(place) => vt100::Color::Idx(place),
                None => vt100::Color::Rgb(r, g, b),
            },
            Color::Indexed(place) => vt100::Color::Idx(place),
            _ => vt100::Color::Default,
        }
    }

    fn assert_shows(screen: &vt100::Screen, buffer: &Buffer) {
        for y in 0..buffer.area.height {
            let mut x = 0;
            while x < buffer.area.width {
                let wanted = &buffer[(x, y)];
                let cell = screen.cell(y, x).unwrap();
                let shown = if cell.contents().is_empty() {
                    " "
                } else {
                    cell.contents()
                };
                assert_eq!(shown, wanted.symbol(), "column {x}, row {y}");
                assert_eq!(cell.bgcolor(), color_of(wanted.bg), "column {x}, row {y}");
                let look = Look::of(wanted);
                if wanted.symbol() != " " {
                    assert_eq!(cell.fgcolor(), color_of(look.fg), "column {x}, row {y}");
                    assert_eq!(cell.bold(), look.modifier.contains(Modifier::BOLD));
                    assert_eq!(cell.italic(), look.modifier.contains(Modifier::ITALIC));
                }
                assert_eq!(cell.inverse(), look.modifier.contains(Modifier::REVERSED));
                assert_eq!(
                    cell.underline(),
                    look.modifier.contains(Modifier::UNDERLINED)
                );
                x += if cell.is_wide() { 2 } else { 1 };
            }
        }
    }

    proptest! {
        #[test]
        fn a_terminal_shows_every_frame_cell_by_cell(frames in prop::collection::vec(writing(), 1..5)) {
            let area = Rect::new(0, 0, WIDTH, HEIGHT);
            let mut terminal = vt100::Parser::new(HEIGHT, WIDTH, 0);
            let mut painter = Painter::default();
            let mut before = Buffer::empty(area);
            for writing in &frames {
                // Each frame is drawn anew, as ratatui does, over the half of the one before.
                let mut next = before.clone();
                for y in 0..HEIGHT / 2 {
                    for x in 0..WIDTH {
                        next[(x, y)] = Cell::EMPTY;
                    }
                }
                let next = frame(&next, writing);
                let mut bytes = Vec::new();
                painter.paint(area.as_size(), before.diff(&next).into_iter(), &mut bytes);
                terminal.process(&bytes);
                assert_shows(terminal.screen(), &next);
                before = next;
            }
        }
    }

    #[test]
    fn nothing_changed_costs_no_byte() {
        let mut bytes = Vec::new();
        Painter::default().paint(Size::new(80, 24), std::iter::empty(), &mut bytes);
        assert!(bytes.is_empty());
    }

    #[test]
    fn a_colour_of_the_palette_goes_by_its_number_and_others_by_their_parts() {
        assert_eq!(color(Color::Rgb(0x5f, 0xaf, 0xd7), 38), "38;5;74");
        assert_eq!(color(Color::Rgb(0x8a, 0x8a, 0x8a), 48), "48;5;245");
        assert_eq!(color(Color::Rgb(0x30, 0x3a, 0x46), 48), "48;2;48;58;70");
        assert_eq!(color(Color::Reset, 48), "49");
    }

    #[test]
    fn the_dashboard_costs_less_than_twice_its_glyphs() {
        let mut bench = Bench::with_run(60);
        bench.press("2");
        let next = bench.buffer(160, 48);
        let before = Buffer::empty(next.area);
        let changed = before.diff(&next);
        let glyphs: usize = changed.iter().map(|(_, _, cell)| cell.symbol().len()).sum();
        let mut bytes = Vec::new();
        Painter::default().paint(next.area.as_size(), changed.into_iter(), &mut bytes);
        assert!(
            bytes.len() < 2 * glyphs,
            "{} bytes for {glyphs} of glyphs",
            bytes.len()
        );
    }
}
