//! How the room is shared among panels: evenly, until somebody moves a border by mouse or keys.

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

/// Rows of one height, the lowest of them one higher where that does not come out even: an alarm that takes a row at the foot
/// of the page leaves the panels above where they are.
fn even_rows(height: u16, down: usize) -> Vec<Constraint> {
    let count = (down as u16).max(1);
    let lower = usize::from(count - height % count);
    let length = |row: usize| height / count + u16::from(row >= lower);
    (0..down)
        .map(|row| Constraint::Length(length(row)))
        .collect()
}

impl Sizes {
    pub fn grid(&self, area: Rect, across: usize, down: usize) -> Grid {
        let columns = constraints(across, self.columns.get(&across));
        let rows = match self.rows.get(&down) {
            None => even_rows(area.height, down),
            weights => constraints(down, weights),
        };
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
                if share(&mut heights, at, to.y.saturating_sub(start), LEAST_ROWS) {
                    self.rows.insert(heights.len(), heights);
                }
            }
        }
    }
}

/// What a panel is made larger in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Width,
    Height,
}

impl Sizes {
    /// Makes column (or row) `at` of the grid larger by so many cells, smaller when negative, at the cost of the next one, or
    /// of the one before the last. False: there is nothing to take from or to give to.
    pub fn grow(&mut self, side: Side, at: usize, by: i16, grid: &Grid) -> bool {
        let (cells, least) = match side {
            Side::Width => (&grid.columns, LEAST_COLUMNS),
            Side::Height => (&grid.rows, LEAST_ROWS),
        };
        let length = |cell: &Rect| match side {
            Side::Width => cell.width,
            Side::Height => cell.height,
        };
        let mut lengths: Vec<u16> = cells.iter().map(length).collect();
        let before = lengths.clone();
        let is_last = at + 1 >= lengths.len();
        let (first, by) = if is_last {
            (at.wrapping_sub(1), -by)
        } else {
            (at, by)
        };
        let Some(wanted) = lengths.get(first).map(|now| now.saturating_add_signed(by)) else {
            return false;
        };
        if !share(&mut lengths, first, wanted, least) || lengths == before {
            return false;
        }
        let kept = match side {
            Side::Width => &mut self.columns,
            Side::Height => &mut self.rows,
        };
        kept.insert(lengths.len(), lengths);
        true
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
    /// The border under the mouse: the empty column right of a panel or the first of the next, and the title of a lower one.
    pub fn border_at(&self, at: Position) -> Option<Border> {
        let column = |cell: &Rect| (cell.x.saturating_sub(1)..=cell.x).contains(&at.x);
        let row = |cell: &Rect| cell.y == at.y;
        let right_of = self.columns.iter().skip(1).position(column);
        right_of.map(Border::RightOf).or_else(|| {
            let below = self.rows.iter().skip(1).position(row);
            below.map(Border::Below)
        })
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
            even.border_at(Position::new(5, even.rows[1].y)),
            Some(Border::Below(0))
        );
        assert_eq!(even.border_at(Position::new(5, even.rows[1].y - 1)), None);
        sizes.drag(Border::RightOf(0), Position::new(49, 5), &even);
        sizes.drag(Border::Below(0), Position::new(5, 20), &even);
        let dragged = sizes.grid(area, 3, 2);
        assert_eq!((dragged.columns[1].x, dragged.rows[1].y), (50, 20));
        assert_eq!(dragged.columns[2], even.columns[2], "the others stay");
        assert_eq!(dragged.columns[2].right(), 100);
        // Past the edge of the next panel: as far as that can be made small.
        sizes.drag(Border::RightOf(0), Position::new(99, 5), &dragged);
        assert_eq!(sizes.grid(area, 3, 2).columns[1].width, LEAST_COLUMNS);
        // Another grid has sizes of its own.
        assert_eq!(sizes.grid(area, 2, 2).columns[0].width, 50);
    }

    #[test]
    fn a_row_less_moves_only_the_panels_that_were_higher_than_the_others() {
        let sizes = Sizes::default();
        let heights = |height: u16| -> Vec<u16> {
            let rows = sizes.grid(Rect::new(0, 1, 100, height), 2, 5).rows;
            assert_eq!(rows.last().map(|row| row.bottom()), Some(1 + height));
            rows.iter().map(|row| row.height).collect()
        };
        assert_eq!(heights(37), [7, 7, 7, 8, 8]);
        assert_eq!(heights(36), [7, 7, 7, 7, 8]);
        assert_eq!(heights(35), [7, 7, 7, 7, 7]);
    }

    #[test]
    fn a_panel_grows_at_the_cost_of_the_next_or_of_the_one_before_the_last() {
        let area = Rect::new(0, 1, 100, 30);
        let mut sizes = Sizes::default();
        let widths = |sizes: &Sizes| -> Vec<u16> {
            let columns = sizes.grid(area, 4, 2).columns;
            columns.iter().map(|cell| cell.width).collect()
        };
        let grow = |sizes: &mut Sizes, side, at, by| {
            let grid = sizes.grid(area, 4, 2);
            sizes.grow(side, at, by, &grid)
        };
        assert!(grow(&mut sizes, Side::Width, 1, 4));
        assert_eq!(widths(&sizes), [25, 29, 21, 25]);
        assert!(grow(&mut sizes, Side::Width, 3, 4));
        assert_eq!(widths(&sizes), [25, 29, 17, 29]);
        assert!(
            grow(&mut sizes, Side::Width, 3, 4),
            "as far as there is room"
        );
        assert_eq!(widths(&sizes), [25, 29, 16, 30]);
        assert!(!grow(&mut sizes, Side::Width, 3, 4));
        assert!(grow(&mut sizes, Side::Height, 0, -3));
        assert_eq!(sizes.grid(area, 4, 2).rows[0].height, 12);
        let one = sizes.grid(area, 1, 1);
        assert!(!sizes.grow(Side::Width, 0, 4, &one));
    }
}
