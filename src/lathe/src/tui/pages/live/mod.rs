//! The curves of a run: panels of metrics with zoom, crosshair and smoothing, several runs over one another, and the strip
//! of alarms with "since when" and "what changed".
//!
//! ```text
//!  ╭ Reward  test 0.969 · train 0.98 ─────╮╭ KL  ppo_kl 4.8e-4 ───────────╮
//!  │ curves                               ││ curves, limit               │    as many panels as fit; j k scroll
//!  ╰──────────────────────────────────────╯╰─────────────────────────────╯
//!  ! KL blow-up since step 41: actor/ppo_kl is …                              alarms
//! ```

mod draw;
mod exported;
mod panels;
mod picker;
mod view;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crossterm::event::{MouseButton, MouseEventKind};
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use runlog::alarms::{Alarms, Limits};
use runlog::series::{Smoothing, XAxis};

use self::panels::Panel;
use self::picker::Picker;
use super::{Input, Page, PageId};
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::bindings::{Binding, Context, bind};
use crate::tui::modal::Confirm;
use crate::tui::shared::{Notice, RunKey, Shared, Wish};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Left,
    Right,
    Up,
    Down,
    NextPanel,
    PreviousPanel,
    FirstPanel,
    LastPanel,
    Crosshair,
    CrosshairFar(i8),
    OpenStep,
    ZoomIn,
    ZoomOut,
    ZoomReset,
    PanLeft,
    PanRight,
    SmoothMore,
    SmoothLess,
    NextAxis,
    LogX,
    LogY,
    Expand,
    Pin,
    MoveEarlier,
    MoveLater,
    Hide,
    Choose,
    AddPanel,
    AskReset,
    Reset,
    Alarms,
    NextAlarm,
    AlarmLog,
}

/// Answers to this page's jobs.
#[derive(Debug)]
pub enum Message {
    /// The KL at which the run's experiment says that something must happen, and the key that says so.
    KlLimit {
        key: RunKey,
        limit: Option<(f64, String)>,
    },
}

const HERE: Context = Context::Page(PageId::Live);

const fn here(
    id: &'static str,
    keys: &'static [&'static str],
    command: Command,
    help: &'static str,
    hint: &'static str,
) -> Binding {
    bind(id, keys, HERE, action::Command::Live(command), help, hint)
}

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    here("live.left", &["h", "left"], Command::Left, "panel to the left; with the crosshair: one point back", ""),
    here("live.right", &["l", "right"], Command::Right, "panel to the right; with the crosshair: one point on", ""),
    here("live.up", &["k", "up"], Command::Up, "panel above", ""),
    here("live.down", &["j", "down"], Command::Down, "panel below", ""),
    here("live.next", &["tab"], Command::NextPanel, "next panel", ""),
    here("live.previous", &["shift-tab"], Command::PreviousPanel, "panel before", ""),
    here("live.first", &["g g", "home"], Command::FirstPanel, "first panel", ""),
    here("live.last", &["G", "end"], Command::LastPanel, "last panel", ""),
    here("live.crosshair", &["c"], Command::Crosshair, "crosshair on or off: every curve read exactly at one step", "crosshair"),
    here("live.crosshair_back", &["H"], Command::CrosshairFar(-1), "crosshair: ten points back", ""),
    here("live.crosshair_on", &["L"], Command::CrosshairFar(1), "crosshair: ten points on", ""),
    here("live.open_step", &["enter"], Command::OpenStep, "the dialogues of the step at the crosshair (page Rollouts)", "dialogues"),
    here("live.zoom_in", &["+", "="], Command::ZoomIn, "zoom in, around the crosshair or the newest part", "zoom"),
    here("live.zoom_out", &["-"], Command::ZoomOut, "zoom out", ""),
    here("live.zoom_reset", &["0"], Command::ZoomReset, "the whole run", ""),
    here("live.pan_left", &[","], Command::PanLeft, "zoomed: earlier", ""),
    here("live.pan_right", &["."], Command::PanRight, "zoomed: later", ""),
    here("live.smooth_more", &["s"], Command::SmoothMore, "smooth more (debiased moving average over the faint raw line)", "smooth"),
    here("live.smooth_less", &["S"], Command::SmoothLess, "smooth less", ""),
    here("live.axis", &["x"], Command::NextAxis, "x axis: step, time, tokens or samples", "x axis"),
    here("live.log_x", &["X"], Command::LogX, "logarithmic x axis", ""),
    here("live.log_y", &["Y"], Command::LogY, "logarithmic y axis of this panel", ""),
    here("live.expand", &["e"], Command::Expand, "this panel alone, or all again", "expand"),
    here("live.pin", &["p"], Command::Pin, "keep this panel in front, or let it go", ""),
    here("live.earlier", &["K"], Command::MoveEarlier, "move this panel forward", ""),
    here("live.later", &["J"], Command::MoveLater, "move this panel back", ""),
    here("live.hide", &["D"], Command::Hide, "take this panel off the screen (r puts the layout back)", ""),
    here("live.choose", &["m"], Command::Choose, "choose this panel's metrics", "metrics"),
    here("live.add", &["A"], Command::AddPanel, "add a panel", ""),
    here("live.reset", &["r"], Command::AskReset, "the layout as it was at first (asks)", ""),
    here("live.alarms", &["a"], Command::Alarms, "show all alarms, or one line of them", "alarms"),
    here("live.next_alarm", &["n"], Command::NextAlarm, "crosshair to where the next alarm began", ""),
    here("live.alarm_log", &["o"], Command::AlarmLog, "the log around the crosshair or the first alarm (page Logs)", ""),
];

/// Points that are copied at most: terminals drop what is longer. The file export has no limit.
const MOST_LINES: usize = 2000;

/// Weights of the moving average that `s` goes through.
const SMOOTHINGS: [f64; 6] = [0.0, 0.6, 0.8, 0.9, 0.97, 0.99];

#[derive(Debug)]
pub struct Live {
    panels: Vec<Panel>,
    /// A panel for each metric of the run that no panel of the layout shows; after those of the layout.
    others: Vec<Panel>,
    is_layout_read: bool,
    focus: usize,
    is_expanded: bool,
    axis: XAxis,
    is_log_x: bool,
    /// The part of the x axis on screen; None: all.
    zoom: Option<(f64, f64)>,
    /// The crosshair's x, always that of a logged point.
    crosshair: Option<f64>,
    weight: f64,
    smoothings: BTreeMap<RunKey, Smoothing>,
    alarms: Option<(RunKey, Alarms)>,
    shows_all_alarms: bool,
    kl_limits: BTreeMap<RunKey, (f64, String)>,
    /// Runs whose experiment was asked for its KL limit.
    asked: Vec<RunKey>,
    picker: Option<Picker>,
    /// The run that zoom and crosshair are of.
    run: Option<RunKey>,
    /// See [`Live::visible`]; found anew with every update, since looking through a thousand metrics for each panel costs more
    /// than drawing them.
    order: Vec<usize>,
    envelopes: view::Envelopes,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            panels: panels::defaults(),
            others: Vec::new(),
            is_layout_read: false,
            focus: 0,
            is_expanded: false,
            axis: XAxis::Step,
            is_log_x: false,
            zoom: None,
            crosshair: None,
            weight: 0.0,
            smoothings: BTreeMap::new(),
            alarms: None,
            shows_all_alarms: false,
            kl_limits: BTreeMap::new(),
            asked: Vec::new(),
            picker: None,
            run: None,
            order: Vec::new(),
            envelopes: view::Envelopes::default(),
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

    fn find_order(&self, shared: &Shared) -> Vec<usize> {
        let runs = shared.shown_runs();
        let with_data: Vec<usize> = (0..self.panels.len() + self.others.len())
            .filter(|index| {
                runs.iter()
                    .any(|(_, run)| !self.panel(*index).names(&run.state).is_empty())
            })
            .collect();
        let mut order = if with_data.is_empty() {
            (0..self.panels.len()).collect()
        } else {
            with_data
        };
        order.sort_by_key(|index| !self.panel(*index).is_pinned);
        order
    }

    /// A panel of the layout, or of those after it.
    fn panel(&self, index: usize) -> &Panel {
        self.panels
            .get(index)
            .unwrap_or_else(|| &self.others[index - self.panels.len()])
    }

    /// Takes a panel into the layout, so that it can be changed; gives its index there.
    fn adopt(&mut self, index: usize) -> usize {
        if index < self.panels.len() {
            return index;
        }
        let panel = self.others.remove(index - self.panels.len());
        self.panels.push(panel);
        self.panels.len() - 1
    }

    /// The focused panel's index into `panels`.
    fn focused(&self) -> Option<usize> {
        let visible = self.visible();
        visible
            .get(self.focus.min(visible.len().saturating_sub(1)))
            .copied()
    }

    fn command(&mut self, command: Command, shared: &mut Shared) -> Vec<Effect> {
        let count = self.visible().len();
        self.focus = self.focus.min(count.saturating_sub(1));
        let columns = draw::columns(shared.columns).max(1);
        match command {
            Command::Left if self.crosshair.is_some() => self.move_crosshair(-1, shared),
            Command::Right if self.crosshair.is_some() => self.move_crosshair(1, shared),
            Command::CrosshairFar(by) => self.move_crosshair(10 * isize::from(by), shared),
            Command::Left | Command::PreviousPanel => self.focus = self.focus.saturating_sub(1),
            Command::Right | Command::NextPanel => {
                self.focus = if self.focus + 1 < count {
                    self.focus + 1
                } else {
                    0
                };
                if command == Command::Right && self.focus == 0 {
                    self.focus = count.saturating_sub(1);
                }
            }
            Command::Up => self.focus = self.focus.saturating_sub(columns),
            Command::Down => {
                self.focus = (self.focus + columns).min(count.saturating_sub(1));
            }
            Command::FirstPanel => self.focus = 0,
            Command::LastPanel => self.focus = count.saturating_sub(1),
            Command::Crosshair => {
                if self.crosshair.take().is_none() {
                    self.set_crosshair(f64::INFINITY, shared);
                    if self.crosshair.is_none() {
                        shared.say(Notice::caution("there is no curve to read yet"));
                    }
                } else {
                    shared.step = None;
                }
            }
            Command::OpenStep => {
                if self.crosshair.is_none() {
                    shared.step = None;
                }
                shared.wish = Some(Wish::Go(PageId::Rollouts));
            }
            Command::ZoomIn => self.zoom_by(0.5, shared),
            Command::ZoomOut => self.zoom_by(2.0, shared),
            Command::ZoomReset => self.zoom = None,
            Command::PanLeft => self.pan(-0.25, shared),
            Command::PanRight => self.pan(0.25, shared),
            Command::SmoothMore | Command::SmoothLess => {
                let at = SMOOTHINGS
                    .iter()
                    .position(|weight| *weight >= self.weight)
                    .unwrap_or(0);
                let next = if command == Command::SmoothMore {
                    (at + 1).min(SMOOTHINGS.len() - 1)
                } else {
                    at.saturating_sub(1)
                };
                self.weight = SMOOTHINGS[next];
                shared.say(Notice::good(if self.weight == 0.0 {
                    "not smoothed".to_owned()
                } else {
                    format!("smoothed by {}", self.weight)
                }));
            }
            Command::NextAxis => {
                let at = XAxis::ALL.iter().position(|axis| *axis == self.axis);
                self.axis = XAxis::ALL[at.map_or(0, |at| (at + 1) % XAxis::ALL.len())];
                self.zoom = None;
                if self.crosshair.is_some() {
                    self.set_crosshair(f64::INFINITY, shared);
                }
                shared.say(Notice::good(format!("x is {}", self.axis.name())));
            }
            Command::LogX => self.is_log_x = !self.is_log_x,
            Command::LogY => {
                if let Some(index) = self.focused() {
                    let index = self.adopt(index);
                    self.panels[index].is_log = !self.panels[index].is_log;
                    self.follow_panel(index, shared);
                    return self.keep(shared);
                }
            }
            Command::Expand => self.is_expanded = !self.is_expanded,
            Command::Pin => {
                if let Some(index) = self.focused() {
                    let index = self.adopt(index);
                    self.panels[index].is_pinned = !self.panels[index].is_pinned;
                    self.follow_panel(index, shared);
                    return self.keep(shared);
                }
            }
            Command::MoveEarlier => return self.move_panel(-1, shared),
            Command::MoveLater => return self.move_panel(1, shared),
            Command::Hide => {
                if let Some(index) = self.focused() {
                    if index >= self.panels.len() {
                        shared.say(Notice::caution(
                            "this metric is in no panel of the layout, so it stands here at the end",
                        ));
                        return Vec::new();
                    }
                    let panel = self.panels.remove(index);
                    self.find_others(shared);
                    self.is_expanded = false;
                    shared.say(Notice::good(format!(
                        "took off {}; r puts the first layout back",
                        panel.title
                    )));
                    return self.keep(shared);
                }
            }
            Command::Choose => {
                if let (Some(index), Some(run)) = (self.focused(), shared.current_run()) {
                    let index = self.adopt(index);
                    self.order = self.find_order(shared);
                    self.picker = Some(Picker::of_panel(index, &self.panels[index], &run.state));
                }
            }
            Command::AddPanel => match shared.current_run() {
                Some(run) => self.picker = Some(Picker::of_new(&run.state)),
                None => shared.say(Notice::caution("choose a run first: page 1, enter")),
            },
            Command::AskReset => {
                shared.wish = Some(Wish::Confirm(Confirm {
                    title: "Put the first layout back?".to_owned(),
                    body: "Panels that were added, changed, moved or taken off are forgotten."
                        .to_owned(),
                    yes: 'y',
                    yes_label: "put it back".to_owned(),
                    command: action::Command::Live(Command::Reset),
                }));
            }
            Command::Reset => {
                self.panels = panels::defaults();
                self.find_others(shared);
                self.focus = 0;
                self.is_expanded = false;
                return self.keep(shared);
            }
            Command::Alarms => self.shows_all_alarms = !self.shows_all_alarms,
            Command::NextAlarm => self.next_alarm(shared),
            Command::AlarmLog => return self.alarm_log(shared),
        }
        Vec::new()
    }

    /// The run and series by which the crosshair moves: the focused panel's main curve.
    fn main_series<'s>(&self, shared: &'s Shared) -> Option<runlog::series::Series<'s>> {
        let run = shared.current_run()?;
        let names = self.panel(self.focused()?).names(&run.state);
        // Step metrics are the finest; a panel of evaluations alone moves by evaluations.
        names
            .into_iter()
            .filter_map(|name| run.state.series.get(name))
            .max_by_key(|series| series.len())
    }

    fn set_crosshair(&mut self, x: f64, shared: &mut Shared) {
        let found = self.main_series(shared).and_then(|series| {
            let index = if x.is_finite() {
                series.index_at(x, self.axis)?
            } else {
                series.len().checked_sub(1)?
            };
            Some((series.x(index, self.axis), series.step(index)))
        });
        if let Some((x, step)) = found {
            self.crosshair = Some(x);
            shared.step = Some(step);
        } else {
            self.crosshair = None;
        }
    }

    fn move_crosshair(&mut self, by: isize, shared: &mut Shared) {
        let Some(x) = self.crosshair else {
            self.set_crosshair(f64::INFINITY, shared);
            return;
        };
        let to = self.main_series(shared).and_then(|series| {
            let index = series.index_at(x, self.axis)?;
            let index = index
                .saturating_add_signed(by)
                .min(series.len().saturating_sub(1));
            Some(series.x(index, self.axis))
        });
        if let Some(to) = to {
            self.set_crosshair(to, shared);
        }
        self.keep_in_view(shared);
    }

    /// A zoomed window follows the crosshair.
    fn keep_in_view(&mut self, shared: &Shared) {
        if let (Some((x0, x1)), Some(x)) = (self.zoom, self.crosshair)
            && !(x0..=x1).contains(&x)
        {
            let half = (x1 - x0) / 2.0;
            self.zoom = self.clamped(x - half, x + half, shared);
        }
    }

    fn zoom_by(&mut self, factor: f64, shared: &mut Shared) {
        let Some(window) = view::window(self, shared) else {
            return;
        };
        let width = (window.x1 - window.x0) * factor;
        // Around the crosshair; else the newest part stays.
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
            shared.say(Notice::caution("this is as near as it gets"));
            return;
        }
        self.zoom = self.clamped(x0, x1, shared);
    }

    fn pan(&mut self, share: f64, shared: &Shared) {
        if let Some((x0, x1)) = self.zoom {
            let by = (x1 - x0) * share;
            self.zoom = self.clamped(x0 + by, x1 + by, shared);
        }
    }

    /// The window moved inside of the whole; None when it is the whole.
    fn clamped(&self, x0: f64, x1: f64, shared: &Shared) -> Option<(f64, f64)> {
        let (low, high) = view::full_range(self.axis, shared)?;
        let width = x1 - x0;
        if width >= high - low {
            return None;
        }
        let x0 = x0.clamp(low, high - width);
        Some((x0, x0 + width))
    }

    fn move_panel(&mut self, by: isize, shared: &mut Shared) -> Vec<Effect> {
        let visible = self.visible();
        let Some(&from) = visible.get(self.focus) else {
            return Vec::new();
        };
        let Some(&to) = self
            .focus
            .checked_add_signed(by)
            .and_then(|place| visible.get(place))
        else {
            return Vec::new();
        };
        // The earlier one first: taking a panel in moves only those before it.
        let first = self.adopt(from.min(to));
        let second = self.adopt(from.max(to));
        self.panels.swap(first, second);
        self.follow_panel(if from < to { second } else { first }, shared);
        self.keep(shared)
    }

    /// Keeps the focus on a panel after the order changed.
    fn follow_panel(&mut self, index: usize, shared: &Shared) {
        self.order = self.find_order(shared);
        if let Some(place) = self.visible().iter().position(|&other| other == index) {
            self.focus = place;
        }
    }

    fn keep(&self, shared: &mut Shared) -> Vec<Effect> {
        shared.kept.set("live.panels", &self.panels);
        vec![Effect::SaveState]
    }

    fn findings(&self) -> &[runlog::alarms::Finding] {
        self.alarms
            .as_ref()
            .map_or(&[], |(_, alarms)| alarms.active())
    }

    /// Where the alarms of the run began, past ones too, in order of time: `(step, elapsed_ms)`.
    fn alarm_starts(&self) -> Vec<(u64, f64)> {
        let Some((_, alarms)) = &self.alarms else {
            return Vec::new();
        };
        let mut starts: Vec<(u64, f64)> = alarms
            .active()
            .iter()
            .chain(alarms.past())
            .map(|finding| (finding.since_step, finding.since_ms))
            .collect();
        starts.sort_by(|a, b| a.1.total_cmp(&b.1));
        starts
    }

    fn next_alarm(&mut self, shared: &mut Shared) {
        let starts = self.alarm_starts();
        let x_of = |(step, ms): (u64, f64)| match self.axis {
            XAxis::Time => ms,
            _ => step as f64,
        };
        if matches!(self.axis, XAxis::Tokens | XAxis::Samples) {
            shared.say(Notice::caution(
                "alarms have steps and times: x changes the axis",
            ));
            return;
        }
        let now = self.crosshair.unwrap_or(f64::NEG_INFINITY);
        let next = starts
            .iter()
            .copied()
            .map(x_of)
            .find(|x| *x > now)
            .or_else(|| starts.first().copied().map(x_of));
        match next {
            Some(x) => {
                self.set_crosshair(x, shared);
                self.keep_in_view(shared);
            }
            None => shared.say(Notice::good("no alarm in this run")),
        }
    }

    fn alarm_log(&mut self, shared: &mut Shared) -> Vec<Effect> {
        let at_crosshair = self.crosshair.and_then(|x| {
            let series = self.main_series(shared)?;
            Some(series.x(series.index_at(x, self.axis)?, XAxis::Time))
        });
        let first_alarm = self.findings().first().map(|finding| finding.since_ms);
        let Some(elapsed_ms) = at_crosshair.or(first_alarm) else {
            shared.wish = Some(Wish::Go(PageId::Logs));
            return Vec::new();
        };
        shared.wish = Some(Wish::LogAt(elapsed_ms));
        Vec::new()
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
        }
        if self.run != shared.current {
            self.run.clone_from(&shared.current);
            self.zoom = None;
            self.crosshair = None;
            self.alarms = None;
        }
        self.find_others(shared);
        self.smooth(shared);
        let mut effects = Vec::new();
        if let Some(run) = shared.current_run() {
            if self.alarms.as_ref().is_none_or(|(key, _)| *key != run.key) {
                let limits = Limits {
                    kl_nats: self.kl_limits.get(&run.key).map(|(value, _)| *value),
                };
                self.alarms = Some((run.key.clone(), Alarms::new(limits)));
            }
            if let Some((_, alarms)) = &mut self.alarms {
                alarms.follow(&run.state);
            }
            if !self.asked.contains(&run.key) {
                self.asked.push(run.key.clone());
                effects.push(ask_kl_limit(run.key.clone()));
            }
        }
        effects
    }

    fn find_others(&mut self, shared: &Shared) {
        self.others = shared
            .current_run()
            .map(|run| panels::others(&self.panels, &run.state))
            .unwrap_or_default();
        self.order = self.find_order(shared);
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
        let on_screen: Vec<&Panel> = draw::places(self, page)
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

    fn mouse(
        &mut self,
        event: crossterm::event::MouseEvent,
        area: Rect,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        let at = Position::new(event.column, event.row);
        let places = draw::places(self, area);
        let Some((place, rect)) = places.iter().find(|(_, rect)| rect.contains(at)).copied() else {
            return Vec::new();
        };
        match event.kind {
            MouseEventKind::Down(MouseButton::Left) | MouseEventKind::Drag(MouseButton::Left) => {
                self.focus = place;
                let inner = draw::inner(rect);
                let label = chart_label(inner);
                if at.x >= inner.x + label && inner.width > label {
                    let share =
                        f64::from(at.x - inner.x - label) / f64::from(inner.width - label).max(1.0);
                    if let Some(window) = view::window(self, shared) {
                        self.set_crosshair(window.at(share), shared);
                    }
                }
            }
            MouseEventKind::ScrollUp => self.zoom_by(0.8, shared),
            MouseEventKind::ScrollDown => self.zoom_by(1.25, shared),
            _ => {}
        }
        Vec::new()
    }
}

fn chart_label(inner: Rect) -> u16 {
    crate::tui::widgets::chart::label_columns(inner.width)
}

/// Reads the KL target of the run's experiment, for the line on the KL panel.
fn ask_kl_limit(key: RunKey) -> Effect {
    Effect::job("read the KL limit", move || {
        let limit = experiment::load(&key.path().join("experiment.yaml"), &[])
            .ok()
            .and_then(|loaded| {
                let control = &loaded.experiment.algorithm.kl_ctrl;
                let is_adaptive =
                    matches!(control.kind, experiment::settings::KlCtrlType::Adaptive)
                        && loaded.experiment.algorithm.use_kl_in_reward;
                is_adaptive.then(|| (control.target_kl, "target_kl".to_owned()))
            });
        action::Message::Page(PageMessage::Live(Message::KlLimit { key, limit }))
    })
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
            Input::Message(PageMessage::Live(Message::KlLimit { key, limit })) => {
                if let Some(limit) = limit.take() {
                    self.kl_limits.insert(key.clone(), limit);
                    self.alarms = None;
                    return self.refresh(shared);
                }
                Vec::new()
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
        } else if self.crosshair.take().is_some() {
            shared.step = None;
        } else if self.zoom.take().is_none() {
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
        if count > MOST_LINES {
            lines.drain(1..=count - MOST_LINES);
        }
        Some((
            lines.join("\n") + "\n",
            format!("the last {} points of {}", lines.len() - 1, panel.title),
        ))
    }

    fn curves(&self, shared: &Shared) -> Vec<crate::export::curves::Panel> {
        exported::panels(self, shared)
    }

    fn status(&self, shared: &Shared) -> String {
        let mut parts = Vec::new();
        if let Some(step) = shared.step.filter(|_| self.crosshair.is_some()) {
            parts.push(format!("step {step}"));
        }
        if self.weight > 0.0 {
            parts.push(format!("smoothed {}", self.weight));
        }
        if self.axis != XAxis::Step || self.is_log_x {
            let log = if self.is_log_x { " (log)" } else { "" };
            parts.push(format!("x {}{log}", self.axis.name()));
        }
        if self.zoom.is_some() {
            parts.push("zoomed".to_owned());
        }
        parts.join("  ")
    }
}

impl Live {
    fn apply_choice(
        &mut self,
        panel: Option<usize>,
        metrics: Vec<String>,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        if metrics.is_empty() {
            shared.say(Notice::caution("a panel needs at least one metric"));
            return Vec::new();
        }
        if let Some(panel) = panel.and_then(|index| self.panels.get_mut(index)) {
            // A panel of one metric goes by its name.
            if panel.metrics.len() == 1 && panel.metrics[0] == panel.title {
                view::short_name(&metrics[0]).clone_into(&mut panel.title);
            }
            panel.metrics = metrics;
        } else {
            let title = view::short_name(&metrics[0]).to_owned();
            self.panels.push(Panel {
                title,
                metrics,
                ..Panel::default()
            });
            let added = self.panels.len() - 1;
            self.follow_panel(added, shared);
        }
        self.find_others(shared);
        self.smooth(shared);
        self.keep(shared)
    }
}
