//! How the room is shared among panels: evenly, until somebody drags a border.

use std::collections::BTreeMap;

use ratatui::layout::{Constraint, Layout, Position, Rect};
use serde::{Deserialize, Serialize};

/// The least that a panel is dragged to.
const LEAST_COLUMNS: u16 = 16;
const LEAST_ROWS: u16 = 5;

/// Columns and rows of the grid, by how many there are; as they were on the screen on which they were dragged, and in
/// proportion on others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sizes {
    columns: BTreeMap<usize, Vec<u16>>,
    rows: BTreeMap<usize, Vec<u16>>,
}

/// What lies between two panels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Border {
    /// Right of so many columns of the grid, counted from 0.
    RightOf(usize),
    Below(usize),
}

/// The cells of the grid: row by row, from the left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    pub columns: Vec<Rect>,
    pub rows: Vec<Rect>,
}

fn constraints(count: usize, weights: Option<&Vec<u16>>) -> Vec<Constraint> {
    match weights {
        Some(weights) if weights.len() == count => weights
            .iter()
            .map(|weight| Constraint::Fill((*weight).max(1)))
            .collect(),
        _ => vec![Constraint::Fill(1); count],
    }
}

impl Sizes {
    pub fn grid(&self, area: Rect, across: usize, down: usize) -> Grid {
        let columns = constraints(across, self.columns.get(&across));
        let rows = constraints(down, self.rows.get(&down));
        Grid {
            columns: Layout::horizontal(columns).split(area).to_vec(),
            rows: Layout::vertical(rows).split(area).to_vec(),
        }
    }

    /// Puts a border where the mouse is; the panels on both sides of it share what they had.
    pub fn drag(&mut self, border: Border, to: Position, grid: &Grid) {
        match border {
            Border::RightOf(at) => {
                let mut widths: Vec<u16> = grid.columns.iter().map(|cell| cell.width).collect();
                let start = grid.columns.get(at).map_or(0, |cell| cell.x);
                if share(
                    &mut widths,
                    at,
                    to.x.saturating_sub(start) + 1,
                    LEAST_COLUMNS,
                ) {
                    self.columns.insert(widths.len(), widths);
                }
            }
            Border::Below(at) => {
                let mut heights: Vec<u16> = grid.rows.iter().map(|cell| cell.height).collect();
                let start = grid.rows.get(at).map_or(0, |cell| cell.y);
                if share(&mut heights, at, to.y.saturating_sub(start) + 1, LEAST_ROWS) {
                    self.rows.insert(heights.len(), heights);
                }
            }
        }
    }
}

/// Gives `wanted` to the one at `at`, as far as the next one can spare it. False: they are too small to be parted otherwise.
fn share(sizes: &mut [u16], at: usize, wanted: u16, least: u16) -> bool {
    let Some([first, second]) = sizes.get_mut(at..at + 2) else {
        return false;
    };
    let both = *first + *second;
    if both < 2 * least {
        return false;
    }
    *first = wanted.clamp(least, both - least);
    *second = both - *first;
    true
}

impl Grid {
    /// The border under the mouse: the last column or row of a panel, or the first of the next.
    pub fn border_at(&self, at: Position) -> Option<Border> {
        let inner = |cells: &[Rect], start: fn(&Rect) -> u16, at: u16| {
            cells
                .iter()
                .skip(1)
                .position(|cell| (start(cell).saturating_sub(1)..=start(cell)).contains(&at))
        };
        inner(&self.columns, |cell| cell.x, at.x)
            .map(Border::RightOf)
            .or_else(|| inner(&self.rows, |cell| cell.y, at.y).map(Border::Below))
    }

    pub fn cell(&self, row: usize, column: usize) -> Option<Rect> {
        Some(self.columns.get(column)?.intersection(*self.rows.get(row)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dragged_border_stays_where_it_was_put_and_nothing_is_lost() {
        let area = Rect::new(0, 1, 100, 30);
        let mut sizes = Sizes::default();
        let even = sizes.grid(area, 3, 2);
        assert_eq!(
            even.border_at(Position::new(even.columns[1].x, 4)),
            Some(Border::RightOf(0))
        );
        assert_eq!(
            even.border_at(Position::new(5, even.rows[1].y - 1)),
            Some(Border::Below(0))
        );
        assert_eq!(even.border_at(Position::new(5, 5)), None);
        sizes.drag(Border::RightOf(0), Position::new(49, 5), &even);
        sizes.drag(Border::Below(0), Position::new(5, 20), &even);
        let dragged = sizes.grid(area, 3, 2);
        assert_eq!((dragged.columns[1].x, dragged.rows[1].y), (50, 21));
        assert_eq!(dragged.columns[2], even.columns[2], "the others stay");
        assert_eq!(dragged.columns[2].right(), 100);
        // Past the edge of the next panel: as far as that can be made small.
        sizes.drag(Border::RightOf(0), Position::new(99, 5), &dragged);
        assert_eq!(sizes.grid(area, 3, 2).columns[1].width, LEAST_COLUMNS);
        // Another grid has sizes of its own.
        assert_eq!(sizes.grid(area, 2, 2).columns[0].width, 50);
    }
}
