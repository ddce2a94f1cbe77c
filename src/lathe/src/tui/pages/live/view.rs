//! From series to a chart: which part of the runs is in view, decimated, and read out at the crosshair.

use std::cell::RefCell;
use std::collections::HashMap;

use ratatui::layout::Rect;
use runlog::metrics;
use runlog::series::{Cell, Scale, Series, Smoothing, XAxis, envelope};

use super::panels::Panel;
use super::{Live, marks};
use crate::tui::shared::{OpenRun, RunKey, Shared};
use crate::tui::theme::Role;
use crate::tui::widgets::chart::{self, Chart, Curve, YAxis};
use crate::tui::widgets::text;
use crate::tui::widgets::viewport::Window;

/// One curve of a panel: its run, metric, style, and value read out.
#[derive(Debug, Clone)]
pub struct Legend {
    pub label: String,
    pub style: ratatui::style::Style,
    pub mark: char,
    /// At the crosshair, or the last one.
    pub value: Option<f64>,
    /// The step of the value, where the curve has none at the crosshair's.
    pub at: Option<u64>,
    /// Values that are no numbers.
    pub non_finite: u64,
}

/// A panel ready to draw.
#[derive(Debug, Clone)]
pub struct View {
    pub chart: Chart,
    pub legend: Vec<Legend>,
    pub unit: &'static str,
    /// Percentiles and the like, for the panel's last words.
    pub note: String,
}

/// The curves that a panel draws: `(run, metric, place in the panel)`. Several runs: the main metric of each, or all when
/// the panel fills the page.
pub fn curves<'s>(
    live: &Live,
    panel: &'s Panel,
    shared: &'s Shared,
) -> Vec<(usize, &'s OpenRun, &'s str, usize)> {
    let runs = shared.shown_runs();
    let is_crowded = runs.len() > 1 && !live.is_expanded;
    let mut found = Vec::new();
    for (color, run) in runs {
        let names = panel.names(&run.state);
        let shown = if is_crowded {
            names.len().min(1)
        } else {
            names.len()
        };
        for (place, name) in names.into_iter().take(shown).enumerate() {
            found.push((color, run, name, place));
        }
    }
    found
}

/// All x of all shown runs, or the zoomed part. None: nothing is logged.
pub fn window(live: &Live, shared: &Shared) -> Option<Window> {
    Some(live.at.window(full_range(live.at.axis, shared)?))
}

/// From the first to the last x of the shown runs, the end rounded up so that a growing curve moves seldom.
pub fn full_range(axis: XAxis, shared: &Shared) -> Option<(f64, f64)> {
    let mut range: Option<(f64, f64)> = None;
    for (_, run) in shared.shown_runs() {
        for (_, series) in run.state.series.iter() {
            if let Some((low, high)) = series.x_bounds(axis) {
                let (least, most) = range.unwrap_or((low, high));
                range = Some((least.min(low), most.max(high)));
            }
        }
    }
    let (low, high) = range?;
    let is_growing = shared
        .shown_runs()
        .iter()
        .any(|(_, run)| run.state.ended.is_none() && run.problem.is_none());
    let end = if is_growing {
        let total = shared
            .shown_runs()
            .iter()
            .filter_map(|(_, run)| run.state.total_steps())
            .max()
            .unwrap_or(0) as f64;
        let ahead = chart::nice_step(high * 1.02);
        match axis {
            XAxis::Step if total >= high => ahead.min(total),
            _ => ahead,
        }
    } else {
        high
    };
    let low = if axis == XAxis::Step {
        low.max(0.0)
    } else {
        0.0
    };
    Some((low, if end > low { end } else { low + 1.0 }))
}

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

/// Makes a panel's view for a plot of this size.
pub fn view(live: &Live, panel: &Panel, window: Window, shared: &Shared, plot: Rect) -> View {
    let marks = shared.glyphs.plot;
    let columns = chart::dot_columns(plot.width, marks);
    let shown = curves(live, panel, shared);
    let has_runs = shared.shown_runs().len() > 1;
    let mut drawn: Vec<Curve> = Vec::new();
    let mut legend = Vec::new();
    let mut unit = "1";
    for (color, run, name, place) in shown {
        let Some(series) = run.state.series.get(name) else {
            continue;
        };
        if place == 0 {
            unit = metrics::lookup(name).map_or("1", |metric| metric.unit);
        }
        let index = if has_runs { color } else { place };
        let style = shared.theme.series(index);
        let mark = chart::mark(index, shared.glyphs);
        let smoothed = live
            .smoothing(&run.key)
            .and_then(|smoothing: &Smoothing| smoothing.get(&run.state.series, name));
        let cut = |series: Series<'_>, is_smoothed: bool| {
            let key = Cut {
                run: run.key.clone(),
                name: name.to_owned(),
                weight: if is_smoothed {
                    live.weight.to_bits()
                } else {
                    0
                },
                points: series.len(),
                axis: live.at.axis,
                range: (window.x0.to_bits(), window.x1.to_bits()),
                scale: window.scale,
                columns,
            };
            live.envelopes.get(key, || {
                envelope(
                    series,
                    live.at.axis,
                    window.x0,
                    window.x1,
                    columns,
                    window.scale,
                )
            })
        };
        if let Some(smoothed) = smoothed {
            drawn.push(Curve {
                cells: cut(series, false),
                style: shared.style(Role::Raw),
                is_faint: true,
                mark: '.',
            });
            drawn.push(Curve {
                cells: cut(smoothed, true),
                style,
                is_faint: false,
                mark,
            });
        } else {
            drawn.push(Curve {
                cells: cut(series, false),
                style,
                is_faint: false,
                mark,
            });
        }
        let index = match live.at.crosshair {
            Some(x) => series.index_at(x, live.at.axis),
            None => series.len().checked_sub(1),
        };
        let is_elsewhere = |step: u64| live.at.crosshair.is_some_and(|x| step as f64 != x);
        let at = index
            .map(|index| series.step(index))
            .filter(|step| live.at.axis == XAxis::Step && is_elsewhere(*step));
        let value = index.map(|index| series.value(index));
        legend.push(Legend {
            label: if has_runs {
                run_label(&run.key, run)
            } else {
                let short = short_name(name);
                // The unit stands behind the value.
                short
                    .strip_suffix(unit)
                    .and_then(|short| short.strip_suffix('_'))
                    .unwrap_or(short)
                    .to_owned()
            },
            style,
            mark,
            value,
            at,
            non_finite: series.non_finite(),
        });
    }
    // The current run is drawn last, on top.
    if has_runs {
        drawn.reverse();
    }
    let limits = live.limits.of_panel(panel, shared);
    View {
        chart: Chart {
            y: YAxis::around(&drawn, &limits, panel.is_log),
            curves: drawn,
            limits,
            x_labels: (
                x_text(window.x0, live.at.axis),
                format!(
                    "{} {}",
                    live.at.axis.name(),
                    x_text(window.x1, live.at.axis)
                ),
            ),
            events: marks::in_view(live.at.axis, window, shared)
                .into_iter()
                .map(|(share, mark)| (share, mark.letter()))
                .collect(),
            crosshair: live
                .at
                .crosshair
                .map(|x| window.share(x))
                .filter(|share| (0.0..=1.0).contains(share)),
        },
        legend,
        unit,
        note: note(panel, shared),
    }
}

/// Percentiles of the weight syncs of the current run.
fn note(panel: &Panel, shared: &Shared) -> String {
    let shows_sync = panel
        .metrics
        .iter()
        .any(|name| name == "weight_sync/blocked_ms");
    let Some(run) = shared.current_run().filter(|_| shows_sync) else {
        return String::new();
    };
    let percentiles = |pick: fn(&runlog::state::Sync) -> f64| {
        runlog::state::Percentiles::of(run.state.syncs.iter().map(pick))
    };
    let Some(blocked) = percentiles(|sync| sync.blocked_ms) else {
        return String::new();
    };
    let transfer = percentiles(|sync| sync.transfer_ms);
    let line = |name: &str, p: runlog::state::Percentiles| {
        format!(
            "{name} p50 {} p95 {} max {}",
            text::number(p.p50),
            text::number(p.p95),
            text::number(p.max)
        )
    };
    let unverified = run
        .state
        .syncs
        .iter()
        .filter(|sync| !sync.is_verified)
        .count();
    let proof = if unverified == 0 {
        format!("{} verified", run.state.syncs.len())
    } else {
        format!("{unverified} NOT verified")
    };
    match transfer {
        Some(transfer) => format!(
            "{}; {}; {proof}",
            line("blocked", blocked),
            line("transfer", transfer)
        ),
        None => format!("{}; {proof}", line("blocked", blocked)),
    }
}

/// An x as people read it on this axis.
pub fn x_text(x: f64, axis: XAxis) -> String {
    match axis {
        XAxis::Time => text::clock(x),
        XAxis::Step => format!("{x:.0}"),
        XAxis::Tokens | XAxis::Samples => text::number(x),
    }
}

/// `quickstart-ab12`: short enough for a legend.
pub fn run_label(key: &RunKey, run: &OpenRun) -> String {
    run.info.as_ref().map_or_else(
        || key.name(),
        |info| {
            let id: String = info.id.chars().take(4).collect();
            format!("{}-{id}", info.experiment_name)
        },
    )
}

/// A metric's name without what every metric of a panel shares: `ppo_kl`, `blocked_ms`, `calc`.
pub fn short_name(name: &str) -> &str {
    if let Some(rest) = name.strip_prefix("val-core/") {
        // `val-core/calc/reward/mean@1`: the source tells it apart; it is the test reward.
        return if rest.contains("/reward/") {
            "test"
        } else {
            rest
        };
    }
    if name == "critic/score/mean" {
        return "train";
    }
    match name.rsplit_once('/') {
        Some((_, statistic @ ("mean" | "max" | "min" | "std"))) => statistic,
        Some((rest, last)) if rest.starts_with("gpu/") => {
            // `gpu/0`: the panel says what is measured.
            if last == "utilization_percent" || last == "memory_used_bytes" {
                rest
            } else {
                name
            }
        }
        Some((_, last)) => last,
        None => name,
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
