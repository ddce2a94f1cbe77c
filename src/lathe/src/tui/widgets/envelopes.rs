//! Curves that were cut into columns of dots already, for all pages that draw curves.

use std::cell::RefCell;
use std::collections::HashMap;

use runlog::series::{Cell, Scale, Series, XAxis, envelope};

use super::viewport::Window;
use crate::tui::shared::RunKey;

/// Which part of which curve, and for how many columns of dots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Cut {
    run: RunKey,
    name: String,
    /// Bits of the smoothing's weight; 0: the raw curve.
    weight: u64,
    points: usize,
    axis: XAxis,
    range: (u64, u64),
    scale: Scale,
    columns: usize,
}

/// Curves that were cut already: most keys move a crosshair or the focus over the same curves, and cutting millions of points
/// anew costs more than drawing them. Emptied whenever the data changed.
#[derive(Debug, Default)]
pub struct Envelopes(RefCell<HashMap<Cut, Vec<Cell>>>);

/// Curves that are kept at most: a few screens.
const MOST_KEPT: usize = 512;

impl Envelopes {
    pub fn clear(&mut self) {
        self.0.get_mut().clear();
    }

    /// A curve (its run, its metric, the weight of its smoothing or 0) cut into `columns` of dots.
    pub fn cut(
        &self,
        (run, name, weight): (&RunKey, &str, f64),
        series: Series<'_>,
        axis: XAxis,
        window: Window,
        columns: usize,
    ) -> Vec<Cell> {
        let Window { x0, x1, scale } = window;
        let cut = Cut {
            run: run.clone(),
            name: name.to_owned(),
            weight: weight.to_bits(),
            points: series.len(),
            axis,
            range: (x0.to_bits(), x1.to_bits()),
            scale,
            columns,
        };
        self.get(cut, || envelope(series, axis, x0, x1, columns, scale))
    }

    fn get(&self, cut: Cut, make: impl FnOnce() -> Vec<Cell>) -> Vec<Cell> {
        if let Some(cells) = self.0.borrow().get(&cut) {
            return cells.clone();
        }
        let cells = make();
        let mut kept = self.0.borrow_mut();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(cut, cells.clone());
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_cut_once_for_each_window_until_the_data_change() {
        let mut envelopes = Envelopes::default();
        let made = std::cell::Cell::new(0);
        let cut = |end: f64| Cut {
            run: RunKey::new(std::path::Path::new("runs/a")),
            name: "loss".to_owned(),
            weight: 0,
            points: 3,
            axis: XAxis::Step,
            range: (0.0_f64.to_bits(), end.to_bits()),
            scale: Scale::Linear,
            columns: 8,
        };
        let make = || {
            made.set(made.get() + 1);
            vec![Cell::EMPTY; 8]
        };
        envelopes.get(cut(1.0), make);
        envelopes.get(cut(1.0), make);
        assert_eq!(made.get(), 1);
        envelopes.get(cut(2.0), make);
        assert_eq!(made.get(), 2);
        envelopes.clear();
        envelopes.get(cut(1.0), make);
        assert_eq!(made.get(), 3);
    }
}
