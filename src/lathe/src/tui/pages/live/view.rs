//! From series to a chart: which part of the runs is in view, decimated, and read out at the crosshair.

use ratatui::layout::Rect;
use runlog::metrics;
use runlog::series::{Series, Smoothing, XAxis};
use runlog::state::Percentiles;

use super::panels::Panel;
use super::{Live, marks, names};
use crate::tui::shared::{OpenRun, RunKey, Shared};
use crate::tui::theme::Role;
use crate::tui::widgets::chart::{self, Chart, Curve, Look, YAxis};
use crate::tui::widgets::text;
use crate::tui::widgets::viewport::Window;

/// One curve of a panel: its run, metric, style, and value read out.
#[derive(Debug, Clone)]
pub struct Legend {
    /// Empty: the panel has nothing else of that run, and the line above the panels names the run.
    pub label: String,
    pub look: Look,
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
    /// Values in view for which a log axis has no place.
    pub undrawn: usize,
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

/// Makes a panel's view for a plot of this size.
pub fn view(live: &Live, panel: &Panel, window: Window, shared: &Shared, plot: Rect) -> View {
    let marks = shared.glyphs.plot;
    let columns = (
        chart::dot_columns(plot.width, marks),
        chart::dots_across(marks),
    );
    let shown = curves(live, panel, shared);
    let runs = shared.shown_runs().len();
    let has_runs = runs > 1;
    let has_names_above = names::rows(shared, shared.page_area()) > 0;
    let mut drawn: Vec<Curve> = Vec::new();
    let mut legend = Vec::new();
    let mut unit = "1";
    for &(color, run, name, place) in &shown {
        let Some(series) = run.state.series.get(name) else {
            continue;
        };
        if place == 0 {
            unit = metrics::lookup(name).map_or("1", |metric| metric.unit);
        }
        let look = if has_runs {
            Look::of_run(color, place, runs, &shared.theme)
        } else {
            Look::of_metric(place, &shared.theme)
        };
        let smoothed = live
            .smoothing(&run.key)
            .and_then(|smoothing: &Smoothing| smoothing.get(&run.state.series, name));
        let cut = |series: Series<'_>, is_smoothed: bool| {
            let weight = if is_smoothed { live.weight } else { 0.0 };
            let curve = (&run.key, name, weight);
            live.envelopes
                .cut(curve, series, live.at.axis, window, columns)
        };
        if let Some(smoothed) = smoothed {
            drawn.push(Curve {
                cells: cut(series, false),
                look: Look::raw(shared.style(Role::Raw)),
                is_faint: true,
            });
            drawn.push(Curve {
                cells: cut(smoothed, true),
                look,
                is_faint: false,
            });
        } else {
            drawn.push(Curve {
                cells: cut(series, false),
                look,
                is_faint: false,
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
        // Those of the run that are drawn: asking the panel would go through every metric for each curve.
        let of_run = shown.iter().filter(|(_, other, ..)| other.key == run.key);
        let drawn_names: Vec<&str> = of_run.map(|(_, _, name, _)| *name).collect();
        let of_metric = metric_label(name, &drawn_names, unit);
        legend.push(Legend {
            label: match (has_runs, live.is_expanded) {
                (true, false) if has_names_above => String::new(),
                (true, false) => run_label(&run.key, run),
                (true, true) if has_names_above => of_metric,
                (true, true) => format!("{} {of_metric}", run_label(&run.key, run)),
                (false, _) => of_metric,
            },
            look,
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
    let y = YAxis::around(&drawn, &limits, panel.is_log);
    let undrawn = if y.is_log {
        let series = shown
            .iter()
            .filter_map(|(_, run, name, _)| run.state.series.get(name));
        series
            .map(|series| not_positive(series, live.at.axis, window))
            .sum()
    } else {
        0
    };
    View {
        undrawn,
        chart: Chart {
            y,
            curves: drawn,
            limits,
            x_labels: window.labels(live.at.axis),
            x_ticks: window.ticks(live.at.axis, chart::plot_columns(plot.width)),
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
    }
}

/// How many finite values in view are zero or less.
fn not_positive(series: Series<'_>, axis: XAxis, window: Window) -> usize {
    let range = series.range(window.x0, window.x1, axis);
    // Mostly none, which the pyramid knows at once.
    let has_any = series
        .bounds(range.clone())
        .is_some_and(|bounds| bounds.min <= 0.0);
    if !has_any {
        return 0;
    }
    let values = series.values()[range].iter();
    values
        .filter(|value| value.is_finite() && **value <= 0.0)
        .count()
}

/// A metric's short name, the unit left out, which stands behind the value; with the part before it where another metric of
/// the panel has the same: `actor/lr`, `critic/lr`.
pub fn metric_label(name: &str, of_panel: &[&str], unit: &str) -> String {
    let short = short_name(name);
    let is_shared = of_panel
        .iter()
        .any(|other| *other != name && short_name(other) == short);
    let shown = if is_shared {
        let before = name
            .strip_suffix(short)
            .and_then(|rest| rest.strip_suffix('/'));
        let from = before.map_or(0, |before| before.rfind('/').map_or(0, |at| at + 1));
        &name[from..]
    } else {
        short
    };
    shown
        .strip_suffix(unit)
        .and_then(|rest| rest.strip_suffix('_'))
        .unwrap_or(shown)
        .to_owned()
}

/// Percentiles of the weight syncs of the current run, as far as they fit, with its name where several are drawn; empty for
/// panels of anything else.
pub fn note(panel: &Panel, columns: usize, shared: &Shared) -> String {
    let shows_sync = panel
        .metrics
        .iter()
        .any(|name| name == "weight_sync/blocked_ms");
    let Some(run) = shared.current_run().filter(|_| shows_sync) else {
        return String::new();
    };
    let percentiles =
        |pick: fn(&runlog::state::Sync) -> f64| Percentiles::of(run.state.syncs.iter().map(pick));
    let Some(blocked) = percentiles(|sync| sync.blocked_ms) else {
        return String::new();
    };
    let transfer = percentiles(|sync| sync.transfer_ms);
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
    let named = [("blocked", Some(blocked)), ("transfer", transfer)];
    let each = |write: &dyn Fn(&str, Percentiles) -> String| -> Vec<String> {
        named
            .iter()
            .filter_map(|(name, of)| Some(write(name, (*of)?)))
            .collect()
    };
    let number = text::number;
    let long = each(&|name, p| {
        format!(
            "{name} p50 {} p95 {} max {}",
            number(p.p50),
            number(p.p95),
            number(p.max)
        )
    });
    let short = |digits: usize, has_names: bool| {
        let each = each(&|name, p| {
            let [p50, p95, max] =
                [p.p50, p.p95, p.max].map(|value| text::number_within(value, digits));
            let name = if has_names {
                format!("{name} ")
            } else {
                String::new()
            };
            format!("{name}{p50}/{p95}/{max}")
        });
        each.join(if has_names { ", " } else { " " })
    };
    let long = long.join("; ");
    let of_run = if shared.shown_runs().len() > 1 {
        format!("{}: ", text::printable(&run_label(&run.key, run)))
    } else {
        String::new()
    };
    let written = [
        format!("{of_run}{long} ms; {proof}"),
        format!("{of_run}p50/p95/max {} ms; {proof}", short(6, true)),
        format!("{of_run}p50/p95/max {} ms", short(6, true)),
        format!("{of_run}p50/95/max {}", short(5, false)),
        format!("{long} ms; {proof}"),
        format!("p50/p95/max {} ms; {proof}", short(6, true)),
        format!("p50/p95/max {} ms", short(6, true)),
        format!("p50/p95/max {}", short(4, true)),
        format!("p50/95/max {}", short(5, false)),
        format!("p50/95/max {}", short(4, false)),
        format!("p50-max {}", short(4, false)),
    ];
    // What must not be missed is there however little the room.
    let is_whole = |note: &String| unverified == 0 || note.contains(&proof);
    written
        .into_iter()
        .find(|note| text::width(note) <= columns && is_whole(note))
        .unwrap_or(if unverified == 0 {
            short(4, false)
        } else {
            proof
        })
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
    fn metrics_of_one_short_name_in_a_panel_are_told_apart() {
        let both = ["actor/grad_norm", "critic/grad_norm"];
        assert_eq!(metric_label(both[0], &both, "1"), "actor/grad_norm");
        assert_eq!(metric_label(both[1], &both, "1"), "critic/grad_norm");
        assert_eq!(metric_label(both[0], &both[..1], "1"), "grad_norm");
        let sync = ["weight_sync/blocked_ms", "weight_sync/transfer_ms"];
        assert_eq!(metric_label(sync[0], &sync, "ms"), "blocked");
        assert_eq!(metric_label("a/lr", &["a/lr", "lr"], "1"), "a/lr");
        assert_eq!(metric_label("lr", &["a/lr", "lr"], "1"), "lr");
    }
}
