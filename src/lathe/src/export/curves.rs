//! Curves as plain data: which points, how smoothed, on which axes. Pictures and tables are made from it; it can leave the
//! screen's thread.

use std::fmt::Write as _;

use runlog::metrics;
use runlog::series::{Smoothed, XAxis};
use runlog::state::RunState;

use super::table::csv_cell;

/// Metrics that a picture of a run shows when none is named: words of [`runlog::filter::ALIASES`], those that the run has.
const USUAL: [&str; 15] = [
    "reward",
    "score",
    "kl",
    "ref_kl",
    "entropy",
    "loss",
    "clip",
    "grad_norm",
    "length",
    "staleness",
    "sync",
    "throughput",
    "gpu",
    "gpu_memory",
    "memory",
];

/// Fewer points than this are not smoothed: the average of a handful of evaluations would only lag behind them.
const LEAST_SMOOTHED: usize = 20;

/// What a page shows of its curves.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    pub axis: XAxis,
    /// Weight of the average; 0: only the raw line.
    pub smoothing: f64,
    /// The part that is zoomed into; None: all.
    pub x_range: Option<(f64, f64)>,
    pub is_log_x: bool,
    pub is_log_y: bool,
}

impl Default for View {
    fn default() -> Self {
        Self {
            axis: XAxis::Step,
            smoothing: 0.0,
            x_range: None,
            is_log_x: false,
            is_log_y: false,
        }
    }
}

/// A run of which curves are shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    pub name: &'a str,
    /// Index of its colour in the theme.
    pub color: usize,
    pub state: &'a RunState,
}

/// One run's line in a panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    pub run: String,
    pub metric: String,
    /// What tells the metric from others of its panel, in a word.
    pub label: String,
    pub color: usize,
    /// Its line is dashed, in the second of two ways and so on; 0: it is not.
    pub dash: usize,
    /// x and y in the order of the log; y may be NaN or infinite.
    pub points: Vec<(f64, f64)>,
    /// x and y of the smoothed line: of every point, or of the last one of each part of a long run
    /// ([`runlog::series::MOST_PARTS`]). Empty when it is not smoothed.
    pub smoothed: Vec<(f64, f64)>,
    /// Which of `points` each smoothed one lies at.
    pub smoothed_at: Vec<usize>,
}

/// One metric, or several that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    pub title: String,
    /// Of the first curve.
    pub unit: String,
    pub axis: XAxis,
    pub is_log_x: bool,
    pub is_log_y: bool,
    pub x_range: Option<(f64, f64)>,
    pub curves: Vec<Curve>,
}

/// Panels that belong together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sheet {
    pub title: String,
    pub panels: Vec<Panel>,
}

/// The metrics that are shown when none is named.
pub fn usual(states: &[&RunState]) -> Vec<String> {
    let mut chosen: Vec<String> = Vec::new();
    for word in USUAL {
        for state in states {
            let names = match runlog::filter::resolve(word, state.series.names()) {
                runlog::filter::Resolved::One(name) => vec![name],
                runlog::filter::Resolved::Many(names) => names,
                runlog::filter::Resolved::None => Vec::new(),
            };
            for name in names {
                if !chosen.iter().any(|known| known == name) {
                    chosen.push(name.to_owned());
                }
            }
        }
    }
    if chosen.is_empty() {
        // A run of another kind: what it has, as long as it can be seen at once.
        for state in states {
            chosen.extend(state.series.names().take(USUAL.len()).map(str::to_owned));
        }
        chosen.dedup();
    }
    chosen
}

/// One metric of some runs; None: none of them has it.
pub fn panel(runs: &[Shown<'_>], metric: &str, view: &View) -> Option<Panel> {
    let curves: Vec<Curve> = runs
        .iter()
        .filter_map(|run| {
            let series = run.state.series.get(metric)?;
            let range = match view.x_range {
                Some((from, to)) => series.range(from, to, view.axis),
                None => 0..series.len(),
            };
            let points = range
                .clone()
                .map(|i| (series.x(i, view.axis), series.value(i)))
                .collect();
            let (mut smoothed, mut smoothed_at) = (Vec::new(), Vec::new());
            if view.smoothing > 0.0 && series.len() >= LEAST_SMOOTHED {
                let mut average = Smoothed::new(view.smoothing);
                average.follow(series);
                let smooth = average.over(series);
                for (part, point) in average.ends().enumerate() {
                    if range.contains(&point) {
                        smoothed.push((smooth.x(part, view.axis), smooth.value(part)));
                        smoothed_at.push(point - range.start);
                    }
                }
            }
            Some(Curve {
                run: run.name.to_owned(),
                metric: metric.to_owned(),
                label: String::new(),
                color: run.color,
                dash: 0,
                points,
                smoothed,
                smoothed_at,
            })
        })
        .collect();
    if curves.is_empty() {
        return None;
    }
    Some(Panel {
        title: metric.to_owned(),
        unit: metrics::lookup(metric)
            .map_or("", |metric| metric.unit)
            .to_owned(),
        axis: view.axis,
        is_log_x: view.is_log_x,
        is_log_y: view.is_log_y,
        x_range: view.x_range,
        curves,
    })
}

impl Sheet {
    /// What the curves show, as CSV: `metric,run,x,value,smoothed` with the name of the axis for x. In a long run, where the
    /// smoothed line has a point a part, only the last row of a part has a smoothed value.
    pub fn csv(&self) -> String {
        let axis = self
            .panels
            .first()
            .map_or("step", |panel| match panel.axis {
                XAxis::Time => "elapsed_ms",
                axis => axis.name(),
            });
        let mut text = format!("metric,run,{axis},value,smoothed\n");
        for panel in &self.panels {
            for curve in &panel.curves {
                let at = curve.smoothed_at.iter().zip(&curve.smoothed);
                let mut smoothed = at.peekable();
                for (i, (x, y)) in curve.points.iter().enumerate() {
                    let smooth = smoothed
                        .next_if(|(at, _)| **at == i)
                        .map_or_else(String::new, |(_, (_, smooth))| smooth.to_string());
                    let _ = writeln!(
                        text,
                        "{},{},{x},{y},{smooth}",
                        csv_cell(&curve.metric),
                        csv_cell(&curve.run)
                    );
                }
            }
        }
        text
    }
}
