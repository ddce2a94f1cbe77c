//! Changed cells turned into as few bytes as a terminal needs to show them: what a key costs over a slow line.
//!
//! ```text
//!  changed cells ─► strokes (neighbours of one look) ─► by look, each the nearest next ─► move · style · text
//! ```
//! A colour is set once a frame and not once a cell; the cursor goes the shortest way to the nearest stroke; blanks are
//! erased (ECH, EL) and runs of one character counted (REP, where the terminal does it) when that is shorter than writing
//! them; where most of the screen changes it is cleared first. Knows nothing of what the cells mean.

mod look;
mod way;

#[cfg(test)]
mod tests;

use std::io::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Size;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use self::look::{Look, set_look};
use self::way::{Place, Way, digits};

/// Unchanged blanks between two changed cells that are written rather than skipped: a move is no shorter.
const BRIDGED: u16 = 3;
/// Bytes of unchanged cells that are written at most instead of a move over them.
const MOST_OVER: usize = 8;
/// Rows below the cursor in which the next stroke is looked for; what is farther costs an address wherever it is.
const ROWS_NEAR: usize = 6;
/// Shorter frames are never drawn anew on a cleared screen.
const LEAST_CLEARED_BYTES: usize = 400;

/// What stands, among what is shown, where the second half of a symbol lies.
const COVERED: &str = "";

/// Neighbouring cells of one look that are written in one go. Blanks among them have no look.
#[derive(Debug, Clone, Copy)]
struct Stroke {
    x: u16,
    y: u16,
    columns: u16,
}

/// Writes frames, and knows what the terminal shows.
#[derive(Debug, Default)]
pub struct Painter {
    size: Size,
    shown: Vec<Cell>,
    /// Where the cursor is; None: not known, or waiting behind the last column.
    at: Option<Place>,
    /// The terminal repeats the last character on request (REP).
    repeats: bool,
}

impl Painter {
    /// The terminal was cleared.
    pub fn clear(&mut self) {
        self.shown.fill(Cell::EMPTY);
        self.at = None;
    }

    /// Whether the terminal repeats its last character on request (REP). A painter that was not told counts on nothing.
    pub fn set_repeats(&mut self, repeats: bool) {
        self.repeats = repeats;
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
            let was_blank = self.is_blank(x, y);
            self.shown[index] = cell.clone();
            // A blank in another colour is the same blank.
            if !(was_blank && self.is_blank(x, y)) {
                places.push((x, y));
            }
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
        let before = out.len();
        self.write(&places, usize::MAX, out);
        let bytes = out.len() - before;
        if bytes >= LEAST_CLEARED_BYTES {
            // A cleared screen may be seen for a moment, so it must be worth it: a tenth of the bytes.
            let mut anew = b"\x1b[2J".to_vec();
            self.at = None;
            let all = self.standing();
            if self.write(&all, bytes - bytes / 10, &mut anew) {
                out.truncate(before);
                out.append(&mut anew);
            }
        }
    }

    /// Every place where something stands.
    fn standing(&self) -> Vec<Place> {
        let rows = 0..self.size.height;
        rows.flat_map(|y| (0..self.size.width).map(move |x| (x, y)))
            .filter(|(x, y)| !self.is_blank(*x, *y) && !self.is_covered(*x, *y))
            .collect()
    }

    /// Writes what is shown at these places, in at most so many bytes. False: that is not enough.
    fn write(&mut self, places: &[Place], most_bytes: usize, out: &mut Vec<u8>) -> bool {
        let mut look = Look::PLAIN;
        for (wanted, mut strokes) in self.strokes(places) {
            if strokes.is_empty() {
                continue;
            }
            set_look(look, wanted, out);
            look = wanted;
            while let Some(next) = self.nearest(&strokes, look) {
                let stroke = strokes.remove(next);
                self.stroke(stroke, look, out);
                if out.len() > most_bytes {
                    return false;
                }
            }
        }
        set_look(look, Look::PLAIN, out);
        true
    }

    /// A symbol of two columns of which one is about to change is taken away first: what terminals leave of its other half,
    /// and in which look, differs. Nothing is set yet, so blanks are plain; both places are then written.
    fn tear(&mut self, x: u16, y: u16, places: &mut Vec<Place>, out: &mut Vec<u8>) {
        let first = if self.is_covered(x, y) {
            x - 1
        } else if is_wide(self.cell(x, y).symbol()) {
            x
        } else {
            return;
        };
        Way::shortest(self.at, (first, y)).write(out);
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

    /// The changed places as strokes in reading order, by look; what has none comes first. Few blanks between two places are
    /// written once more, and a line with nothing more on it is erased to its end in one go.
    fn strokes(&self, places: &[Place]) -> Vec<(Look, Vec<Stroke>)> {
        let mut groups: Vec<(Look, Vec<Stroke>)> = vec![(Look::PLAIN, Vec::new())];
        for line in places.chunk_by(|a, b| a.1 == b.1) {
            let y = line[0].1;
            let is_something = |x: &u16| !self.is_blank(*x, y);
            let line_end = (0..self.size.width).rev().find(is_something);
            let line_end = line_end.map_or(0, |x| x + 1);
            let mut rest = line.iter().map(|(x, _)| *x).peekable();
            while let Some(start) = rest.next() {
                let mut end = start + 1;
                let is_near = |end: u16, next: u16| {
                    next - end <= BRIDGED && (end..next).all(|x| self.is_blank(x, y))
                };
                while let Some(next) = rest.next_if(|next| is_near(end, *next)) {
                    end = next + 1;
                }
                // Behind the last thing that stands, and something did before.
                if end > line_end || (end == line_end && rest.peek().is_some()) {
                    end = self.size.width;
                    rest.by_ref().for_each(drop);
                }
                self.cut(start, y, end - start, &mut groups);
            }
        }
        groups
    }

    /// Cuts neighbouring places where the look changes. Blanks go with what stands before them, or else after them.
    fn cut(&self, x: u16, y: u16, columns: u16, groups: &mut Vec<(Look, Vec<Stroke>)>) {
        let mut push = |look: Look, from: u16, to: u16| {
            let columns = to - from;
            let stroke = Stroke {
                x: from,
                y,
                columns,
            };
            match groups.iter_mut().find(|(known, _)| *known == look) {
                Some((_, strokes)) => strokes.push(stroke),
                None => groups.push((look, vec![stroke])),
            }
        };
        let mut start = x;
        // Of the stroke so far; None: nothing but blanks.
        let mut look: Option<Look> = None;
        for at in x..x + columns {
            let here = (!self.is_blank(at, y)).then(|| Look::of(self.cell(at, y)));
            let goes_on = match (look, here) {
                (None, None) => true,
                (None, Some(here)) => here.leaves_blanks() || at == start,
                (Some(look), None) => look.leaves_blanks(),
                (Some(look), Some(here)) => look == here,
            };
            if !goes_on {
                push(look.unwrap_or(Look::PLAIN), start, at);
                start = at;
                look = None;
            }
            look = look.or(here);
        }
        push(look.unwrap_or(Look::PLAIN), start, x + columns);
    }

    /// The stroke that is reached in the fewest bytes, and of those the first in reading order.
    fn nearest(&self, strokes: &[Stroke], look: Look) -> Option<usize> {
        let Some((from_x, from_y)) = self.at else {
            return (!strokes.is_empty()).then_some(0);
        };
        let mut best: Option<(usize, usize)> = None;
        for (index, stroke) in strokes.iter().enumerate() {
            // A row further down is a byte at least, however it is reached, up to the four of the shortest address.
            let down = usize::from(stroke.y.saturating_sub(from_y));
            let is_beaten = |least: usize| least <= down.min(4) || down > ROWS_NEAR;
            if best.is_some_and(|(least, _)| down > 0 && is_beaten(least)) {
                break;
            }
            let mut bytes = Way::shortest(self.at, (stroke.x, stroke.y)).bytes();
            if bytes > 1
                && stroke.y == from_y
                && stroke.x > from_x
                && let Some(over) = self.over(from_x, stroke.x, stroke.y, look)
            {
                bytes = bytes.min(over);
            }
            if best.is_none_or(|(least, _)| bytes < least) {
                best = Some((bytes, index));
                if bytes <= 1 {
                    break;
                }
            }
        }
        best.map(|(_, index)| index)
    }

    fn stroke(&mut self, stroke: Stroke, look: Look, out: &mut Vec<u8>) {
        let y = stroke.y;
        let end = stroke.x + stroke.columns;
        let mut x = stroke.x;
        while x < end {
            self.go(x, y, look, out);
            let is_blank = self.is_blank(x, y);
            let symbol = self.cell(x, y).symbol();
            let is_same = |at: &u16| {
                if is_blank {
                    self.is_blank(*at, y)
                } else {
                    self.cell(*at, y).symbol() == symbol
                }
            };
            let columns = (x..end).take_while(is_same).count() as u16;
            if is_blank {
                self.blanks(x, y, columns, x + columns == end, out);
            } else {
                self.symbols(x, y, columns, out);
            }
            x += columns;
        }
    }

    /// Blanks at the cursor: written, counted, or erased, which leaves the cursor where it is.
    fn blanks(&mut self, x: u16, y: u16, columns: u16, is_end: bool, out: &mut Vec<u8>) {
        let erase = 3 + digits(columns);
        let written = self.bytes_of(" ", x, columns);
        // Behind erased ones the cursor still has to move, unless it goes elsewhere anyway.
        let move_on = if is_end { 0 } else { 3 + digits(columns) };
        let is_to_the_end = is_end && (x + columns..self.size.width).all(|x| self.is_blank(x, y));
        if is_to_the_end && (written > 3 || x + columns == self.size.width) {
            out.extend_from_slice(b"\x1b[K");
        } else if erase + move_on < written {
            put(out, format_args!("\x1b[{columns}X"));
        } else {
            self.symbols(x, y, columns, out);
        }
    }

    /// The same symbol some times over at the cursor.
    fn symbols(&mut self, x: u16, y: u16, columns: u16, out: &mut Vec<u8>) {
        let symbol = self.cell(x, y).symbol();
        out.extend_from_slice(symbol.as_bytes());
        if self.counts(symbol, x, columns) {
            put(out, format_args!("\x1b[{}b", columns - 1));
        } else {
            (1..columns).for_each(|_| out.extend_from_slice(symbol.as_bytes()));
        }
        // Terminals disagree on how wide other symbols are, and on where the cursor is behind the last column.
        let is_known = is_one_column(symbol) && x + columns < self.size.width;
        self.at = is_known.then_some((x + columns, y));
    }

    /// Whether counting is shorter than writing a symbol so many times. Never up to the last column: terminals disagree on
    /// whether a counted symbol wraps there.
    fn counts(&self, symbol: &str, x: u16, columns: u16) -> bool {
        self.repeats
            && columns > 1
            && x + columns < self.size.width
            && is_one_column(symbol)
            && 3 + digits(columns - 1) < usize::from(columns - 1) * symbol.len()
    }

    fn bytes_of(&self, symbol: &str, x: u16, columns: u16) -> usize {
        if self.counts(symbol, x, columns) {
            symbol.len() + 3 + digits(columns - 1)
        } else {
            usize::from(columns) * symbol.len()
        }
    }

    /// Moves the cursor the shortest way.
    fn go(&mut self, x: u16, y: u16, look: Look, out: &mut Vec<u8>) {
        let way = Way::shortest(self.at, (x, y));
        let over = self
            .at
            .filter(|at| at.1 == y && at.0 < x)
            .and_then(|at| Some((at.0, self.over(at.0, x, y, look)?)));
        match over {
            Some((from, bytes)) if bytes < way.bytes() => {
                for x in from..x {
                    out.extend_from_slice(self.cell(x, y).symbol().as_bytes());
                }
            }
            _ => way.write(out),
        }
        self.at = Some((x, y));
    }

    /// Bytes of what stands between two columns, where it could be written once more in the look that is set.
    fn over(&self, from: u16, to: u16, y: u16, look: Look) -> Option<usize> {
        let mut bytes = 0;
        for x in from..to {
            let cell = self.cell(x, y);
            let fits = Look::of(cell) == look || (self.is_blank(x, y) && look.leaves_blanks());
            bytes += cell.symbol().len();
            if !fits || !is_one_column(cell.symbol()) || bytes > MOST_OVER {
                return None;
            }
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
    // Most cells: what has one byte has one column at most.
    symbol.len() > 1 && UnicodeWidthStr::width(symbol) > 1
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
