//! Curves set dot by dot: by hand and not by a canvas, since a curve's style may be bold or dim, and its line dashed, where there
//! is no colour.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::symbols::pixel;
use runlog::series::Cell;

use super::look::{Dash, Look};
use super::{Chart, dots};
use crate::tui::shared::{PlotMarks, Shared};
use crate::tui::theme::Role;

/// One curve, cut into the plot's dot columns (see [`super::dot_columns`]).
#[derive(Debug, Clone)]
pub struct Curve {
    pub cells: Vec<Cell>,
    pub look: Look,
    /// Drawn first and overdrawn by the others.
    pub is_faint: bool,
}

/// Dots of the plot, a byte a character, and who drew there last.
struct Raster {
    columns: u16,
    rows: u16,
    across: u16,
    down: u16,
    bits: Vec<u8>,
    /// Index of the curve, or none.
    owner: Vec<Option<u8>>,
    /// Of the curve that is being drawn.
    dash: Dash,
}

impl Raster {
    fn new(columns: u16, rows: u16, marks: PlotMarks) -> Self {
        let (across, down) = dots(marks);
        let count = usize::from(columns) * usize::from(rows);
        Self {
            columns,
            rows,
            across,
            down,
            bits: vec![0; count],
            owner: vec![None; count],
            dash: Dash::Solid,
        }
    }

    /// As [`Raster::column`], where the curve's dash has dots.
    fn dashed(&mut self, x: usize, from: i32, to: i32, curve: u8, overdraws: bool) {
        if self.dash.shows(2 * x / usize::from(self.across)) {
            self.column(x, from, to, curve, overdraws);
        }
    }

    /// Sets the dots of one dot column from `from` to `to` (dot rows from the top), for a curve.
    fn column(&mut self, x: usize, from: i32, to: i32, curve: u8, overdraws: bool) {
        let height = i32::from(self.rows) * i32::from(self.down);
        let (top, bottom) = (from.min(to).max(0), from.max(to).min(height - 1));
        let cell_x = x / usize::from(self.across);
        if cell_x >= usize::from(self.columns) {
            return;
        }
        for y in top..=bottom {
            let cell_y = y as usize / usize::from(self.down);
            let cell = cell_y * usize::from(self.columns) + cell_x;
            if self.owner[cell] != Some(curve) {
                if overdraws && self.owner[cell].is_some() {
                    self.bits[cell] = 0;
                }
                self.owner[cell] = Some(curve);
            }
            let (dx, dy) = (
                x % usize::from(self.across),
                y as usize % usize::from(self.down),
            );
            self.bits[cell] |= 1 << (dy * usize::from(self.across) + dx);
        }
    }
}

/// The character for dots set row by row, left to right.
fn symbol(bits: u8, marks: PlotMarks, mark: char) -> char {
    match marks {
        PlotMarks::Braille => {
            // Braille counts its dots down the left column, then the right, the lowest pair last.
            const ORDER: [u8; 8] = [0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80];
            let dots: u32 = ORDER
                .iter()
                .enumerate()
                .filter(|(bit, _)| bits & (1 << bit) != 0)
                .map(|(_, dot)| u32::from(*dot))
                .sum();
            char::from_u32(0x2800 + dots).unwrap_or(' ')
        }
        PlotMarks::Octant => pixel::OCTANTS[usize::from(bits)],
        PlotMarks::Block => pixel::QUADRANTS[usize::from(bits & 0x0f)],
        PlotMarks::Dot => '•',
        PlotMarks::Ascii => mark,
    }
}

/// Faint curves first, the others in order over them; a mark at the top edge where a value is no number.
pub fn draw(chart: &Chart, shared: &Shared, buffer: &mut Buffer, plot: Rect) {
    let marks = shared.glyphs.plot;
    let mut raster = Raster::new(plot.width, plot.height, marks);
    let height = f64::from(plot.height) * f64::from(raster.down);
    let dot_row = |value: f64| {
        chart
            .y
            .share(value)
            .map(|share| ((1.0 - share) * (height - 1.0)).round().clamp(-1.0, height) as i32)
    };
    let mut gaps: Vec<u16> = Vec::new();
    // Faint curves first, so that the others lie on top.
    let order = |is_faint: bool| {
        chart
            .curves
            .iter()
            .enumerate()
            .filter(move |(_, curve)| curve.is_faint == is_faint)
    };
    for (index, curve) in order(true).chain(order(false)) {
        let overdraws = !curve.is_faint;
        let index = u8::try_from(index).unwrap_or(u8::MAX);
        // Characters of their own tell such curves apart.
        raster.dash = match marks {
            PlotMarks::Ascii => Dash::Solid,
            _ => curve.look.dash,
        };
        let points = curve.cells.iter().filter(|cell| !cell.is_gap()).count();
        let is_sparse = 3 * points < curve.cells.len();
        let mut before: Option<(usize, f64)> = None;
        for (x, cell) in curve.cells.iter().enumerate() {
            if cell.non_finite > 0 {
                gaps.push((x / usize::from(raster.across)) as u16);
            }
            if cell.is_gap() {
                // Nothing logged here joins its neighbours; a value that is no number parts them.
                if cell.non_finite > 0 {
                    before = None;
                }
                continue;
            }
            if let (Some((last_x, last)), Some(to)) = (before, dot_row(cell.first))
                && let Some(from) = dot_row(last)
            {
                join(&mut raster, (last_x, from), (x, to), index, overdraws);
            }
            if let (Some(low), Some(high)) = (dot_row(cell.min), dot_row(cell.max)) {
                // A few points are all seen; of many the dash leaves some out.
                if is_sparse {
                    raster.column(x, high, low, index, overdraws);
                } else {
                    raster.dashed(x, high, low, index, overdraws);
                }
            }
            before = Some((x, cell.last));
        }
    }
    for (cell, bits) in raster.bits.iter().enumerate() {
        let (Some(owner), true) = (raster.owner[cell], *bits != 0) else {
            continue;
        };
        let curve = &chart.curves[usize::from(owner).min(chart.curves.len() - 1)];
        let x = plot.x + (cell % usize::from(raster.columns)) as u16;
        let y = plot.y + (cell / usize::from(raster.columns)) as u16;
        buffer[(x, y)]
            .set_char(symbol(*bits, marks, curve.look.mark))
            .set_style(curve.look.style);
    }
    for column in gaps {
        if column < plot.width {
            buffer[(plot.x + column, plot.y)]
                .set_symbol(shared.glyphs.pick("×", "!"))
                .set_style(shared.style(Role::Bad));
        }
    }
}

/// A straight line between two dots of neighbouring points.
fn join(raster: &mut Raster, from: (usize, i32), to: (usize, i32), curve: u8, overdraws: bool) {
    let span = to.0.saturating_sub(from.0);
    if span == 0 {
        return;
    }
    let row = |x: usize| {
        let part = (x - from.0) as f64 / span as f64;
        (f64::from(from.1) + part * f64::from(to.1 - from.1)).round() as i32
    };
    for x in from.0..to.0 {
        // A dot column holds half of the way to each neighbour, so steep lines have no holes.
        let next = row(x + 1);
        let here = row(x);
        let middle = here + (next - here) / 2;
        raster.dashed(x, here, middle, curve, overdraws);
        raster.dashed(x + 1, middle, next, curve, overdraws);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_braille_dot_has_its_place() {
        assert_eq!(symbol(0b1111_1111, PlotMarks::Braille, '*'), '⣿');
        assert_eq!(symbol(0b0000_0001, PlotMarks::Braille, '*'), '⠁');
        assert_eq!(symbol(0b0000_0010, PlotMarks::Braille, '*'), '⠈');
        assert_eq!(symbol(0b0100_0000, PlotMarks::Braille, '*'), '⡀');
        assert_eq!(symbol(0b1000_0000, PlotMarks::Braille, '*'), '⢀');
    }
}
