//! Which part of the x axis is on screen, and the crosshair that reads curves at one of their points. The same on every page
//! that has curves.
//!
//! ```text
//!  whole:   0 ├──────────────┤ 80        range, from the curves
//!  zoomed:       20 ├────┤ 40            zoom; None: the whole
//!  crosshair:          ┆ 32              always the x of a logged point
//! ```
//! Pure: the range of the curves, and the curve by whose points the crosshair moves, are given with each question.

use runlog::series::{Scale, Series, XAxis};

use super::{chart, text};

/// The part of the x axis on screen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    pub x0: f64,
    pub x1: f64,
    pub scale: Scale,
}

impl Window {
    /// Where an x lies, 0 at the left and 1 at the right.
    pub fn share(self, x: f64) -> f64 {
        match self.scale {
            Scale::Linear => (x - self.x0) / (self.x1 - self.x0).max(f64::MIN_POSITIVE),
            Scale::Log => {
                (x.ln() - self.x0.ln()) / (self.x1.ln() - self.x0.ln()).max(f64::MIN_POSITIVE)
            }
        }
    }

    /// The x at a share of the width.
    pub fn at(self, share: f64) -> f64 {
        match self.scale {
            Scale::Linear => self.x0 + share * (self.x1 - self.x0),
            Scale::Log => (self.x0.ln() + share * (self.x1.ln() - self.x0.ln())).exp(),
        }
    }

    /// What stands below both ends: `0`, `step 80`.
    pub fn labels(self, axis: XAxis) -> (String, String) {
        let right = format!("{} {}", axis.name(), x_text(self.x1, axis));
        (x_text(self.x0.max(0.0), axis), right)
    }

    /// Round places between the ends with their labels, in a plot so many characters wide: shares of the width.
    pub fn ticks(self, axis: XAxis, columns: u16) -> Vec<(f64, String)> {
        let most = f64::from(columns / COLUMNS_A_TICK);
        let width = self.x1 - self.x0;
        if most < 2.0 || !(width.is_finite() && width > 0.0) {
            return Vec::new();
        }
        let places: Vec<f64> = match self.scale {
            Scale::Log => {
                let (first, last) = (self.x0.log10().ceil(), self.x1.log10().floor());
                let step = ((last - first) / most).ceil().max(1.0);
                (0..=((last - first).max(0.0) / step) as u32)
                    .map(|i| 10_f64.powf(first + step * f64::from(i)))
                    .collect()
            }
            Scale::Linear => {
                let step = match axis {
                    XAxis::Time => time_step(width / most),
                    XAxis::Step | XAxis::Samples => chart::nice_step(width / most).max(1.0).ceil(),
                    XAxis::Tokens => chart::nice_step(width / most),
                };
                let first = (self.x0 / step).ceil();
                (0..=(width / step) as u32)
                    .map(|i| (first + f64::from(i)) * step)
                    .collect()
            }
        };
        places
            .into_iter()
            .map(|x| (self.share(x), x_text(x, axis)))
            .filter(|(share, _)| (0.0..=1.0).contains(share))
            .collect()
    }
}

/// Characters of the x axis for one tick.
const COLUMNS_A_TICK: u16 = 14;

/// An x as people read it on this axis.
pub fn x_text(x: f64, axis: XAxis) -> String {
    match axis {
        XAxis::Time => text::clock(x),
        XAxis::Step => format!("{x:.0}"),
        XAxis::Tokens | XAxis::Samples => text::number(x),
    }
}

/// The next round stretch of time that is not shorter, ms.
fn time_step(wanted_ms: f64) -> f64 {
    const SECONDS: [f64; 17] = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0,
        10_800.0, 21_600.0, 43_200.0,
    ];
    let day = 86_400e3;
    SECONDS
        .into_iter()
        .map(|seconds| seconds * 1e3)
        .find(|step| *step >= wanted_ms)
        .unwrap_or_else(|| day * chart::nice_step(wanted_ms / day).ceil())
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Viewport {
    pub axis: XAxis,
    pub is_log: bool,
    /// None: all.
    pub zoom: Option<(f64, f64)>,
    /// The x of a logged point.
    pub crosshair: Option<f64>,
}

impl Default for Viewport {
    fn default() -> Self {
        Self {
            axis: XAxis::Step,
            is_log: false,
            zoom: None,
            crosshair: None,
        }
    }
}

impl Viewport {
    /// The part on screen of curves that go over `range`.
    pub fn window(&self, range: (f64, f64)) -> Window {
        let (scale, least) = if self.is_log {
            (Scale::Log, 1.0)
        } else {
            (Scale::Linear, f64::NEG_INFINITY)
        };
        let (x0, x1) = self.zoom.unwrap_or_else(|| {
            let low = range.0.max(least);
            (low, range.1.max(low + f64::EPSILON))
        });
        Window { x0, x1, scale }
    }

    /// Another axis: what was looked at has no place on it.
    pub fn set_axis(&mut self, axis: XAxis) {
        if self.axis != axis {
            self.axis = axis;
            self.zoom = None;
            self.crosshair = None;
        }
    }

    /// Zooms around the crosshair where it is in view, else the newest part stays. False: this is as near as it gets.
    pub fn zoom_by(&mut self, factor: f64, range: (f64, f64)) -> bool {
        let window = self.window(range);
        let width = (window.x1 - window.x0) * factor;
        let (x0, x1) = match self.crosshair {
            Some(x) if (window.x0..=window.x1).contains(&x) => {
                let share = (x - window.x0) / (window.x1 - window.x0);
                (x - width * share, x + width * (1.0 - share))
            }
            _ => (window.x1 - width, window.x1),
        };
        let least = match self.axis {
            XAxis::Step | XAxis::Samples => 2.0,
            XAxis::Time => 100.0,
            XAxis::Tokens => 10.0,
        };
        if width < least {
            return false;
        }
        self.zoom = clamped(x0, x1, range);
        true
    }

    /// Moves the zoomed part by a share of its width, and the crosshair with it to a point of `series`, so that it stays in
    /// view; gives the crosshair's step where it moved.
    pub fn pan(
        &mut self,
        share: f64,
        range: (f64, f64),
        series: Option<Series<'_>>,
    ) -> Option<u64> {
        let (x0, x1) = self.zoom?;
        let by = (x1 - x0) * share;
        self.zoom = clamped(x0 + by, x1 + by, range);
        let (now0, now1) = self.zoom?;
        let x = self.crosshair?;
        if (now0..=now1).contains(&x) {
            return None;
        }
        self.set_crosshair(x.clamp(now0, now1), series)
    }

    /// Puts the crosshair on the point of `series` that is nearest to `x`, infinity for the last one; gives its step. None: there
    /// is no point, and no crosshair.
    pub fn set_crosshair(&mut self, x: f64, series: Option<Series<'_>>) -> Option<u64> {
        let found = series.and_then(|series| {
            let index = if x.is_finite() {
                series.index_at(x, self.axis)?
            } else {
                series.len().checked_sub(1)?
            };
            Some((series.x(index, self.axis), series.step(index)))
        });
        self.crosshair = found.map(|(x, _)| x);
        found.map(|(_, step)| step)
    }

    /// Moves the crosshair by some points of `series`, and what is in view with it; puts it on the last one where there was none.
    pub fn move_crosshair(
        &mut self,
        by: isize,
        series: Option<Series<'_>>,
        range: (f64, f64),
    ) -> Option<u64> {
        let to = match (self.crosshair, series) {
            (Some(x), Some(series)) => series.index_at(x, self.axis).map(|index| {
                let x_of = |index: usize| series.x(index, self.axis);
                let (mut index, from) = (index, x_of(index));
                // Several samples of one step are one place: each move goes on to another x.
                for _ in 0..by.unsigned_abs() {
                    let here = x_of(index);
                    let next = if by > 0 {
                        (index..series.len()).find(|next| x_of(*next) > here)
                    } else {
                        (0..index).rev().find(|next| x_of(*next) < here)
                    };
                    let Some(next) = next else { break };
                    index = next;
                }
                if by == 0 { from } else { x_of(index) }
            }),
            _ => None,
        };
        let step = self.set_crosshair(to.unwrap_or(f64::INFINITY), series);
        self.keep_in_view(range);
        step
    }

    /// A zoomed window follows the crosshair.
    pub fn keep_in_view(&mut self, range: (f64, f64)) {
        if let (Some((x0, x1)), Some(x)) = (self.zoom, self.crosshair)
            && !(x0..=x1).contains(&x)
        {
            let half = (x1 - x0) / 2.0;
            self.zoom = clamped(x - half, x + half, range);
        }
    }
}

/// A part moved inside of the whole; None when it is the whole.
fn clamped(x0: f64, x1: f64, (low, high): (f64, f64)) -> Option<(f64, f64)> {
    let width = x1 - x0;
    if width >= high - low {
        return None;
    }
    let x0 = x0.clamp(low, high - width);
    Some((x0, x0 + width))
}

#[cfg(test)]
mod tests {
    use runlog::RunState;

    use super::*;
    use crate::tui::testing::sample_events;

    #[test]
    fn a_zoomed_part_stays_inside_of_the_whole_and_ends_as_it() {
        let range = (0.0, 80.0);
        let mut view = Viewport::default();
        assert!(view.zoom_by(0.5, range));
        assert_eq!(view.zoom, Some((40.0, 80.0)));
        view.pan(0.25, range, None);
        assert_eq!(view.zoom, Some((40.0, 80.0)));
        view.pan(-0.25, range, None);
        assert_eq!(view.zoom, Some((30.0, 70.0)));
        assert!(view.zoom_by(2.0, range));
        assert_eq!(view.zoom, None);
        view.zoom = Some((10.0, 12.0));
        assert!(
            !view.zoom_by(0.5, range),
            "two steps are as near as it gets"
        );
    }

    #[test]
    fn ticks_are_round_and_as_many_as_have_room() {
        let ticks = |x0: f64, x1: f64, scale: Scale, axis: XAxis, columns: u16| -> Vec<String> {
            let ticks = Window { x0, x1, scale }.ticks(axis, columns);
            assert!(ticks.iter().all(|(share, _)| (0.0..=1.0).contains(share)));
            ticks.into_iter().map(|(_, label)| label).collect()
        };
        let linear = |x0, x1, axis, columns| ticks(x0, x1, Scale::Linear, axis, columns);
        assert_eq!(
            linear(0.0, 80.0, XAxis::Step, 60),
            ["0", "20", "40", "60", "80"]
        );
        assert_eq!(linear(0.0, 80.0, XAxis::Step, 20), Vec::<String>::new());
        assert_eq!(
            linear(3.0, 7.0, XAxis::Step, 200),
            ["3", "4", "5", "6", "7"]
        );
        assert_eq!(
            linear(0.0, 200e3, XAxis::Time, 60),
            ["0:00", "1:00", "2:00", "3:00"]
        );
        assert_eq!(
            ticks(1.0, 20_000.0, Scale::Log, XAxis::Step, 80),
            ["1", "10", "100", "1000", "10000"]
        );
        assert_eq!(linear(5.0, 5.0, XAxis::Step, 80), Vec::<String>::new());
    }

    #[test]
    fn the_crosshair_goes_from_point_to_point_and_takes_the_view_with_it() {
        let state = RunState::fold(&sample_events(20));
        let evaluations = state.series.get("val-core/calc/reward/mean@1");
        let range = (0.0, 20.0);
        let mut view = Viewport::default();
        assert_eq!(view.move_crosshair(-1, evaluations, range), Some(20));
        view.zoom = Some((16.0, 20.0));
        assert_eq!(view.move_crosshair(-1, evaluations, range), Some(10));
        assert_eq!((view.crosshair, view.zoom), (Some(10.0), Some((8.0, 12.0))));
        assert_eq!(view.move_crosshair(-1, evaluations, range), Some(10));
        view.set_axis(XAxis::Time);
        assert_eq!((view.crosshair, view.zoom), (None, None));
        assert_eq!(view.set_crosshair(1.0, None), None);
    }
}
