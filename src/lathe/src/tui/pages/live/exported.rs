//! The curves as they stand on the page, as plain data for a file: the same panels, zoom, smoothing and scales.

use super::Live;
use super::view::{curves, metric_label, run_label};
use crate::export::curves::{Panel, Shown, View, panel};
use crate::tui::shared::Shared;

/// The panels of the page, the expanded one alone.
pub fn panels(live: &Live, shared: &Shared) -> Vec<Panel> {
    let visible = live.visible();
    let focus = live.focus.min(visible.len().saturating_sub(1));
    let chosen: Vec<usize> = if live.is_expanded {
        visible.get(focus).copied().into_iter().collect()
    } else {
        visible
            .iter()
            .copied()
            .filter(|index| *index < live.panels.len())
            .collect()
    };
    chosen
        .into_iter()
        .filter_map(|index| exported(live, live.panel(index), shared))
        .collect()
}

fn exported(live: &Live, of: &super::Panel, shared: &Shared) -> Option<Panel> {
    let view = View {
        axis: live.at.axis,
        smoothing: live.weight,
        x_range: live.at.zoom,
        is_log_x: live.at.is_log,
        is_log_y: of.is_log,
    };
    let has_runs = shared.shown_runs().len() > 1;
    let mut joined: Option<Panel> = None;
    for (color, run, metric, place) in curves(live, of, shared) {
        let label = run_label(&run.key, run);
        let shown = [Shown {
            name: &label,
            color: if has_runs { color } else { place },
            state: &run.state,
        }];
        let Some(mut one) = panel(&shown, metric, &view) else {
            continue;
        };
        for curve in &mut one.curves {
            curve.label = metric_label(metric, &of.names(&run.state), &one.unit);
            curve.dash = if has_runs { place } else { 0 };
        }
        match &mut joined {
            None => {
                if !of.title.is_empty() {
                    one.title.clone_from(&of.title);
                }
                joined = Some(one);
            }
            Some(joined) => joined.curves.append(&mut one.curves),
        }
    }
    joined
}
