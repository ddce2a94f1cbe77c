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

/// From so many points a column of dots on, a curve is a band of noise whose edges differ from column to column and say
/// nothing by it: both columns of a character then show the extremes of both. The band is a third shorter to send, and is cut
/// in half the time.
const DENSE: usize = 64;

impl Envelopes {
    pub fn clear(&mut self) {
        self.0.get_mut().clear();
    }

    /// A curve (its run, its metric, the weight of its smoothing or 0) cut into `columns` of dots, of which a character has
    /// `across`. A smoothed curve is a thin line however many points it has.
    pub fn cut(
        &self,
        (run, name, weight): (&RunKey, &str, f64),
        series: Series<'_>,
        axis: XAxis,
        window: Window,
        (columns, across): (usize, usize),
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
        self.get(cut, || {
            let is_raw = scale == Scale::Linear && weight == 0.0;
            if across > 1 && is_raw && series.range(x0, x1, axis).len() >= DENSE * columns {
                let characters = envelope(series, axis, x0, x1, columns / across, scale);
                let cells = characters.into_iter();
                return cells
                    .flat_map(|cell| std::iter::repeat_n(cell, across))
                    .collect();
            }
            envelope(series, axis, x0, x1, columns, scale)
        })
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
    use runlog::number::Number;
    use runlog::{Event, EventKind, RunState};

    use super::*;

    #[test]
    fn the_extremes_of_many_points_are_seen_in_every_column_of_their_character() {
        let steps = 4 * 2 * DENSE as u64;
        let spike = |step: u64| if step == 3 * steps / 8 { 9.0 } else { 0.0 };
        let events: Vec<Event> = (0..steps)
            .map(|step| Event {
                seq: step,
                elapsed_ms: step as f64,
                kind: EventKind::StepEnded {
                    step,
                    policy_version: step,
                    values: [("loss".to_owned(), Number(spike(step)))].into(),
                },
            })
            .collect();
        let state = RunState::fold(&events);
        let series = state.series.get("loss").unwrap();
        let key = RunKey::new(std::path::Path::new("runs/a"));
        let tops = |weight: f64, x1: f64, across: usize| -> Vec<f64> {
            let window = Window {
                x0: 0.0,
                x1,
                scale: Scale::Linear,
            };
            let envelopes = Envelopes::default();
            let curve = (&key, "loss", weight);
            let cells = envelopes.cut(curve, series, XAxis::Step, window, (8, across));
            cells.iter().map(|cell| cell.max).collect()
        };
        let end = (steps - 1) as f64;
        let both = [0.0, 0.0, 9.0, 9.0, 0.0, 0.0, 0.0, 0.0];
        let one = [0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(tops(0.0, end, 2), both);
        assert_eq!(tops(0.0, end, 1), one, "a character of one column");
        assert_eq!(tops(0.9, end, 2), one, "a line is as fine as can be");
    }

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
