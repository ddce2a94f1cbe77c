//! What the keys do on page Live.

use runlog::series::XAxis;

use super::picker::Picker;
use super::sizes::{Side, Sizes};
use super::{HERE, Live, draw, panels};
use crate::tui::action::{self, Effect};
use crate::tui::bindings::{Binding, bind};
use crate::tui::modal::Confirm;
use crate::tui::pages::PageId;
use crate::tui::shared::{Notice, Shared, Wish};

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
    Wider(i8),
    Taller(i8),
    Hide,
    Choose,
    AddPanel,
    AskReset,
    Reset,
    Alarms,
    NextAlarm,
    AlarmLog,
}

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
    here("live.wider", &["w"], Command::Wider(1), "make this panel's column wider (or drag its border)", ""),
    here("live.narrower", &["W"], Command::Wider(-1), "make this panel's column narrower", ""),
    here("live.taller", &["v"], Command::Taller(1), "make this panel's row taller (or drag its border)", ""),
    here("live.lower", &["V"], Command::Taller(-1), "make this panel's row lower", ""),
    here("live.hide", &["D"], Command::Hide, "take this panel off the screen (r puts the layout back)", ""),
    here("live.choose", &["m"], Command::Choose, "choose this panel's metrics", "metrics"),
    here("live.add", &["A"], Command::AddPanel, "add a panel", ""),
    here("live.reset", &["r"], Command::AskReset, "the layout as it was at first (asks)", ""),
    here("live.alarms", &["a"], Command::Alarms, "show all alarms, or one line of them", "alarms"),
    here("live.next_alarm", &["n"], Command::NextAlarm, "crosshair to where the next alarm began", ""),
    here("live.alarm_log", &["o"], Command::AlarmLog, "the log around the crosshair or the first alarm (page Logs)", ""),
];

/// Weights of the moving average that `s` goes through.
const SMOOTHINGS: [f64; 6] = [0.0, 0.6, 0.8, 0.9, 0.97, 0.99];

impl Live {
    pub(super) fn command(&mut self, command: Command, shared: &mut Shared) -> Vec<Effect> {
        let count = self.visible().len();
        self.focus = self.focus.min(count.saturating_sub(1));
        let columns = draw::columns(shared.columns).max(1);
        match command {
            Command::Left if self.at.crosshair.is_some() => self.move_crosshair(-1, shared),
            Command::Right if self.at.crosshair.is_some() => self.move_crosshair(1, shared),
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
                if self.at.crosshair.take().is_none() {
                    self.set_crosshair(f64::INFINITY, shared);
                    if self.at.crosshair.is_none() {
                        shared.say(Notice::caution("there is no curve to read yet"));
                    }
                } else {
                    shared.step = None;
                }
            }
            Command::OpenStep => {
                if self.at.crosshair.is_none() {
                    shared.step = None;
                }
                shared.wish = Some(Wish::Go(PageId::Rollouts));
            }
            Command::ZoomIn => self.zoom_by(0.5, shared),
            Command::ZoomOut => self.zoom_by(2.0, shared),
            Command::ZoomReset => self.at.zoom = None,
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
                let at = XAxis::ALL.iter().position(|axis| *axis == self.at.axis);
                let had_crosshair = self.at.crosshair.is_some();
                self.at
                    .set_axis(XAxis::ALL[at.map_or(0, |at| (at + 1) % XAxis::ALL.len())]);
                if had_crosshair {
                    self.set_crosshair(f64::INFINITY, shared);
                }
                shared.say(Notice::good(format!("x is {}", self.at.axis.name())));
            }
            Command::LogX => self.at.is_log = !self.at.is_log,
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
            Command::Wider(by) => return self.resize(Side::Width, 4 * i16::from(by), shared),
            Command::Taller(by) => return self.resize(Side::Height, 2 * i16::from(by), shared),
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
                    body: "Panels that were added, changed, moved, resized or taken off are forgotten."
                        .to_owned(),
                    yes: 'y',
                    yes_label: "put it back".to_owned(),
                    command: action::Command::Live(Command::Reset),
                }));
            }
            Command::Reset => {
                self.panels = panels::defaults();
                self.sizes = Sizes::default();
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
}
