//! The curves of a run: panels of metrics with zoom, crosshair and smoothing, several runs over one another, and the strip
//! of alarms with "since when" and "what changed".
//!
//! ```text
//!  ─ ▸ Reward  test 0.969 · train 0.98 ─────── KL  ppo_kl 4.8e-4 ────────────
//!  1┤   curves                               0.1┤ curves, limit                   as many panels as fit; j k scroll
//!  0┤                                          0┤
//!   0          40                 step 80      0          40         step 80       once: all panels have the same x axis
//!  ! KL blow-up since step 41: actor/ppo_kl is …                                   alarms
//! ```

mod arrange;
mod commands;
mod cursor;
mod draw;
mod exported;
mod judged;
mod limits;
mod marks;
mod mouse;
mod names;
mod panels;
mod picker;
mod sizes;
mod view;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::layout::Rect;
use runlog::alarms::Alarms;
use runlog::series::{Smoothing, XAxis};

use self::limits::{GuardLimit, Limits};
use self::panels::Panel;
use self::picker::Picker;
use self::sizes::{Border, Sizes};
use super::{Input, Page, PageId};
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::bindings::Context;
use crate::tui::shared::{RunKey, Shared};
use crate::tui::widgets::envelopes::Envelopes;
use crate::tui::widgets::viewport::Viewport;

pub use self::commands::{BINDINGS, Command};

/// Answers to this page's jobs.
#[derive(Debug)]
pub enum Message {
    /// The values at which the run's experiment says that something must happen.
    Limits {
        key: RunKey,
        limits: Vec<GuardLimit>,
    },
}

const HERE: Context = Context::Page(PageId::Live);

/// Points that are copied at most: terminals drop what is longer. The file export has no limit.
const MOST_LINES: usize = 2000;

#[derive(Debug)]
pub struct Live {
    panels: Vec<Panel>,
    /// A panel for each metric of the run that no panel of the layout shows; after those of the layout.
    others: Vec<Panel>,
    is_layout_read: bool,
    focus: usize,
    is_expanded: bool,
    /// Axis, zoom and crosshair.
    at: Viewport,
    sizes: Sizes,
    /// The border that the mouse holds.
    held: Option<Border>,
    weight: f64,
    smoothings: BTreeMap<RunKey, Smoothing>,
    alarms: Option<(RunKey, Alarms)>,
    shows_all_alarms: bool,
    limits: Limits,
    picker: Option<Picker>,
    /// The run that zoom and crosshair are of.
    run: Option<RunKey>,
    /// See [`Live::visible`]; found anew with every update, since looking through a thousand metrics for each panel costs more
    /// than drawing them.
    order: Vec<usize>,
    envelopes: Envelopes,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            panels: panels::defaults(),
            others: Vec::new(),
            is_layout_read: false,
            focus: 0,
            is_expanded: false,
            at: Viewport::default(),
            sizes: Sizes::default(),
            held: None,
            weight: 0.0,
            smoothings: BTreeMap::new(),
            alarms: None,
            shows_all_alarms: false,
            limits: Limits::default(),
            picker: None,
            run: None,
            order: Vec::new(),
            envelopes: Envelopes::default(),
        }
    }
}

impl Live {
    fn smoothing(&self, key: &RunKey) -> Option<&Smoothing> {
        self.smoothings.get(key).filter(|_| self.weight > 0.0)
    }

    /// Panels that have something to show for the shown runs, as indices; before the first metric all of them.
    fn visible(&self) -> &[usize] {
        &self.order
    }

    /// How many of the visible panels are of the layout, not added or taken in for metrics that are in none.
    fn of_layout(&self) -> usize {
        let chosen = |index: &usize| self.panels.get(*index).filter(|panel| !panel.is_adopted);
        self.visible().iter().filter_map(chosen).count()
    }

    /// A panel of the layout, or of those after it.
    fn panel(&self, index: usize) -> &Panel {
        self.panels
            .get(index)
            .unwrap_or_else(|| &self.others[index - self.panels.len()])
    }

    /// The focused panel's index into `panels`.
    fn focused(&self) -> Option<usize> {
        let visible = self.visible();
        visible
            .get(self.focus.min(visible.len().saturating_sub(1)))
            .copied()
    }

    fn findings(&self) -> &[runlog::alarms::Finding] {
        self.alarms
            .as_ref()
            .map_or(&[], |(_, alarms)| alarms.active())
    }

    /// After the data changed: smoothed curves, alarms, what belongs to a run that is no longer shown.
    fn refresh(&mut self, shared: &mut Shared) -> Vec<Effect> {
        self.envelopes.clear();
        if !self.is_layout_read {
            self.is_layout_read = true;
            if let Some(panels) = shared.kept.get::<Vec<Panel>>("live.panels")
                && !panels.is_empty()
            {
                self.panels = panels;
            }
            self.sizes = shared.kept.get("live.sizes").unwrap_or_default();
        }
        if self.run != shared.current {
            self.run.clone_from(&shared.current);
            self.at.zoom = None;
            self.at.crosshair = None;
            self.alarms = None;
        }
        self.find_others(shared);
        self.smooth(shared);
        let mut effects = Vec::new();
        if let Some(run) = shared.current_run() {
            if self.alarms.as_ref().is_none_or(|(key, _)| *key != run.key) {
                let limits = runlog::alarms::Limits {
                    kl_nats: self.limits.kl_nats(&run.key),
                };
                self.alarms = Some((run.key.clone(), Alarms::new(limits)));
            }
            if let Some((_, alarms)) = &mut self.alarms {
                alarms.follow(&run.state);
            }
            effects.extend(self.limits.follow(&run.key, &run.state));
        }
        effects
    }

    fn smooth(&mut self, shared: &Shared) {
        let runs = shared.shown_runs();
        self.smoothings
            .retain(|key, _| runs.iter().any(|(_, run)| run.key == *key));
        if self.weight == 0.0 {
            self.smoothings.clear();
            return;
        }
        // Only what is on screen: a run may have thousands of metrics.
        let page = Rect::new(0, 1, shared.columns, shared.rows.saturating_sub(2));
        let mut smoothings = std::mem::take(&mut self.smoothings);
        let visible = self.visible();
        let on_screen: Vec<&Panel> = draw::places(self, shared, page)
            .into_iter()
            .map(|(place, _)| self.panel(visible[place]))
            .collect();
        for (_, run) in runs {
            let names: Vec<&str> = on_screen
                .iter()
                .flat_map(|panel| panel.names(&run.state))
                .collect();
            let smoothing = smoothings
                .entry(run.key.clone())
                .or_insert_with(|| Smoothing::new(self.weight));
            smoothing.set_weight(self.weight);
            smoothing.follow(&run.state.series, names);
        }
        self.smoothings = smoothings;
    }
}

impl Page for Live {
    fn update(&mut self, input: Input<'_>, shared: &mut Shared) -> Vec<Effect> {
        if self.order.is_empty() {
            self.order = self.find_order(shared);
        }
        match input {
            Input::Command(action::Command::Live(command)) => {
                let effects = self.command(command, shared);
                self.smooth(shared);
                effects
            }
            Input::Key(key) => {
                let Some(picker) = &mut self.picker else {
                    return Vec::new();
                };
                match picker.key(key) {
                    picker::Outcome::Open => Vec::new(),
                    picker::Outcome::Cancelled => {
                        self.picker = None;
                        Vec::new()
                    }
                    picker::Outcome::Done { panel, metrics } => {
                        self.picker = None;
                        self.apply_choice(panel, metrics, shared)
                    }
                }
            }
            Input::Paste(pasted) => {
                if let Some(picker) = &mut self.picker {
                    picker.paste(pasted);
                }
                Vec::new()
            }
            Input::Mouse(event, area) => self.mouse(event, area, shared),
            Input::Message(PageMessage::Live(Message::Limits { key, limits })) => {
                if self.limits.take(key, std::mem::take(limits)) {
                    self.alarms = None;
                }
                self.refresh(shared)
            }
            Input::DataChanged => self.refresh(shared),
            _ => Vec::new(),
        }
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        draw::draw(self, shared, frame, area);
    }

    fn is_typing(&self) -> bool {
        self.picker.is_some()
    }

    fn back(&mut self, shared: &mut Shared) -> bool {
        if self.is_expanded {
            self.is_expanded = false;
        } else if self.at.crosshair.take().is_some() {
            shared.step = None;
        } else if self.at.zoom.take().is_none() {
            if !self.shows_all_alarms {
                return false;
            }
            self.shows_all_alarms = false;
        }
        true
    }

    fn copied(&self, shared: &Shared) -> Option<(String, String)> {
        let panel = self.panel(self.focused()?);
        let mut lines = vec!["run\tmetric\tstep\telapsed_ms\tvalue".to_owned()];
        for (_, run, name, _) in view::curves(self, panel, shared) {
            let series = run.state.series.get(name)?;
            for point in series.iter() {
                lines.push(format!(
                    "{}\t{name}\t{}\t{}\t{}",
                    run.key.name(),
                    point.step,
                    point.elapsed_ms,
                    point.value.0
                ));
            }
        }
        let count = lines.len() - 1;
        if count == 0 {
            return None;
        }
        if count > MOST_LINES {
            lines.drain(1..=count - MOST_LINES);
        }
        Some((
            lines.join("\n") + "\n",
            match lines.len() - 1 {
                1 => format!("the one point of {}", panel.title),
                shown if shown < count => {
                    format!("the last {shown} of {count} points of {}", panel.title)
                }
                all => format!("all {all} points of {}", panel.title),
            },
        ))
    }

    fn curves(&self, shared: &Shared) -> Vec<crate::export::curves::Panel> {
        exported::panels(self, shared)
    }

    fn status(&self, shared: &Shared) -> String {
        let mut parts = Vec::new();
        if let Some(step) = shared.step.filter(|_| self.at.crosshair.is_some()) {
            parts.push(format!("step {step}"));
        }
        if self.weight > 0.0 {
            parts.push(format!("smoothed {}", self.weight));
        }
        if self.at.axis != XAxis::Step || self.at.is_log {
            let log = if self.at.is_log { " (log)" } else { "" };
            parts.push(format!("x {}{log}", self.at.axis.name()));
        }
        if self.at.zoom.is_some() {
            parts.push("zoomed".to_owned());
        }
        let count = self.visible().len();
        let places = draw::places(self, shared, shared.page_area());
        if let (Some((first, _)), Some((last, _))) = (places.first(), places.last())
            && places.len() < count
        {
            parts.push(if first == last {
                format!("panel {} of {count}", first + 1)
            } else {
                format!("panels {}-{} of {count}", first + 1, last + 1)
            });
        }
        parts.join("  ")
    }
}
