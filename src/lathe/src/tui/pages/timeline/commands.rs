//! What the keys and the mouse do on page Timeline.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;
use runlog::RunState;

use super::table::Order;
use super::window::Window;
use super::{Command, Pane, Timeline, draw, end_ms};
use crate::tui::pages::PageId;
use crate::tui::shared::{Notice, Shared, Wish};
use crate::tui::widgets::list::Move;

impl Timeline {
    pub(super) fn command(&mut self, command: Command, shared: &mut Shared) {
        let Some(open) = shared.current_run() else {
            shared.say(Notice::caution("choose a run first: page 1, enter"));
            return;
        };
        let state = &open.state;
        let columns = draw::columns(shared.page_area().width);
        let window = self.window(state);
        let cursor = self.cursor(state);
        let column_ms = window.length() / columns.max(1) as f64;
        match command {
            Command::Move(by) if self.pane == Pane::Steps => self.move_in_table(by, shared),
            Command::Move(by) => {
                let last = Self::rows(state).len().saturating_sub(1);
                let lane = self.lane.min(last);
                match by {
                    Move::Up => self.lane = lane.saturating_sub(1),
                    Move::Down => self.lane = (lane + 1).min(last),
                    Move::First => self.place(0.0, state),
                    Move::Last => {
                        self.is_following = true;
                        self.cursor_ms = None;
                    }
                    Move::HalfPageUp | Move::PageUp | Move::HalfPageDown | Move::PageDown => {
                        self.pane = Pane::Steps;
                        self.move_in_table(by, shared);
                    }
                }
            }
            Command::Left => self.place(cursor - column_ms, state),
            Command::Right => self.place(cursor + column_ms, state),
            Command::FarLeft => self.pan(-window.length() / 2.0, state),
            Command::FarRight => self.pan(window.length() / 2.0, state),
            Command::NextEdge | Command::PreviousEdge => {
                let is_forward = command == Command::NextEdge;
                let edge = self
                    .row(state)
                    .and_then(|row| row.next_edge(state, cursor, is_forward));
                match edge {
                    Some(edge) => self.place(edge, state),
                    None => shared.say(Notice::caution("no more work in this lane there")),
                }
            }
            Command::ZoomIn => self.zoom(0.5, cursor, state),
            Command::ZoomOut => self.zoom(2.0, cursor, state),
            Command::Fit => self.zoom(f64::MAX, cursor, state),
            Command::ZoomStep => {
                if let Some(step) = self.step(state) {
                    let length = step.end_ms - step.start_ms;
                    self.window = Some(Window::at(
                        step.start_ms - length * 0.05,
                        length * 1.1,
                        end_ms(state),
                    ));
                    self.is_following = false;
                }
            }
            Command::Follow => {
                self.is_following = !self.is_following;
                self.window = Some(window);
                if self.is_following {
                    self.cursor_ms = None;
                }
            }
            Command::StepBack => self.go_step(false, shared),
            Command::StepForward => self.go_step(true, shared),
            Command::NextStall => {
                let next = state
                    .steps
                    .stalls
                    .iter()
                    .find(|stall| stall.wait.start_ms > cursor)
                    .or_else(|| state.steps.stalls.front())
                    .map(|stall| stall.wait.clone());
                self.show_wait(next.map(|wait| (wait.start_ms, wait.end_ms)), shared);
            }
            Command::WorstStall => {
                let worst = state.steps.worst_stall(f64::NEG_INFINITY, f64::INFINITY);
                let worst = worst.map(|stall| (stall.wait.start_ms, stall.wait.end_ms));
                self.show_wait(worst, shared);
            }
            Command::NextPane => {
                self.pane = match self.pane {
                    Pane::Lanes => Pane::Steps,
                    Pane::Steps => Pane::Lanes,
                };
            }
            Command::Sort => {
                self.order = match self.order {
                    Order::Step => Order::Length,
                    Order::Length => Order::Wait,
                    Order::Wait => Order::Step,
                };
                self.sorted_of = usize::MAX;
                self.sort(shared);
                shared.say(Notice::good(format!("steps {}", self.order.words())));
            }
            Command::Log => shared.wish = Some(Wish::LogAt(cursor)),
            Command::Open => match self.step(state) {
                Some(step) => {
                    shared.step = Some(step.step);
                    self.seen_step = shared.step;
                    shared.wish = Some(Wish::Go(PageId::Rollouts));
                }
                None => shared.say(Notice::caution("no step has ended here")),
            },
        }
    }

    /// Moves the cursor, and the window as far as needed.
    fn place(&mut self, ms: f64, state: &RunState) {
        let end = end_ms(state);
        let ms = ms.clamp(0.0, end);
        self.window = Some(self.window(state).showing(ms, end));
        self.is_following = false;
        self.cursor_ms = Some(ms);
    }

    fn pan(&mut self, by: f64, state: &RunState) {
        let window = self.window(state);
        let moved = window.moved(by, end_ms(state));
        let cursor = self.cursor(state) + moved.start_ms - window.start_ms;
        self.window = Some(moved);
        self.is_following = false;
        self.cursor_ms = Some(cursor);
    }

    fn zoom(&mut self, factor: f64, around: f64, state: &RunState) {
        let window = self.window(state);
        self.cursor_ms = Some(self.cursor(state));
        self.window = Some(window.zoomed(factor, around, end_ms(state)));
        // Still at the end: still following.
        self.is_following &= around >= window.end_ms;
    }

    fn go_step(&mut self, is_forward: bool, shared: &mut Shared) {
        let Some(open) = shared.current_run() else {
            return;
        };
        let times = &open.state.steps.times;
        let cursor = self.cursor(&open.state);
        let at = times.partition_point(|step| step.end_ms <= cursor);
        let next = if is_forward {
            at.checked_add(1)
        } else {
            at.checked_sub(1)
        };
        match next.and_then(|at| times.get(at)) {
            Some(step) => self.pick(step.step, shared),
            None => shared.say(Notice::caution(if is_forward {
                "no later step has ended"
            } else {
                "this is the first step"
            })),
        }
    }

    /// Picks a step for this page and for Rollouts.
    fn pick(&mut self, step: u64, shared: &mut Shared) {
        shared.step = Some(step);
        self.seen_step = shared.step;
        self.show_step(step, shared);
    }

    fn show_wait(&mut self, wait: Option<(f64, f64)>, shared: &mut Shared) {
        let (Some((start, end)), Some(open)) = (wait, shared.current_run()) else {
            shared.say(Notice::good("no wait of 0.1 s or more"));
            return;
        };
        let most = end_ms(&open.state);
        let window = self.window(&open.state);
        // With what was before it and after it; not smaller than it was.
        let length = ((end - start) * 2.0).max(window.length().min((end - start) * 20.0));
        let window = Window::at(start - (length - (end - start)) / 2.0, length, most);
        self.window = Some(window);
        self.is_following = false;
        self.cursor_ms = Some(f64::midpoint(start, end));
        let rows = Self::rows(&open.state);
        if let Some(lane) = rows.iter().position(|row| {
            row.is_wait() && row.busy_ms(&open.state, start, end) >= (end - start) * 0.99
        }) {
            self.lane = lane;
        }
    }

    fn move_in_table(&mut self, by: Move, shared: &mut Shared) {
        let Some(open) = shared.current_run() else {
            return;
        };
        let times = &open.state.steps.times;
        let Some(now) = self.table_row(&open.state) else {
            return;
        };
        let visible = draw::table_rows(self, &open.state, shared.page_area());
        let mut list = crate::tui::widgets::list::ListState::default();
        list.select(now);
        list.go(by, times.len(), visible);
        let row = list.selected(times.len());
        let step = times[self.table_index(row)].step;
        self.pick(step, shared);
    }

    pub(super) fn mouse(&mut self, event: MouseEvent, area: Rect, shared: &mut Shared) {
        let Some(open) = shared.current_run() else {
            return;
        };
        let state = &open.state;
        let window = self.window(state);
        let columns = draw::columns(area.width);
        let column = usize::from(event.column.saturating_sub(area.x + draw::LABEL));
        let (start, end) = window.column(column.min(columns.saturating_sub(1)), columns);
        let middle = f64::midpoint(start, end);
        let is_in_lanes = event.row < area.y + draw::lane_rows(state, area) + 1;
        match event.kind {
            MouseEventKind::ScrollUp if is_in_lanes => self.zoom(0.8, middle, state),
            MouseEventKind::ScrollDown if is_in_lanes => self.zoom(1.25, middle, state),
            MouseEventKind::ScrollLeft => self.pan(-window.length() / 8.0, state),
            MouseEventKind::ScrollRight => self.pan(window.length() / 8.0, state),
            MouseEventKind::ScrollUp => self.move_in_table(Move::Up, shared),
            MouseEventKind::ScrollDown => self.move_in_table(Move::Down, shared),
            MouseEventKind::Down(MouseButton::Left) | MouseEventKind::Drag(MouseButton::Left)
                if is_in_lanes =>
            {
                self.pane = Pane::Lanes;
                self.place(middle, state);
                let lane = usize::from(event.row.saturating_sub(area.y));
                if (1..=Self::rows(state).len()).contains(&lane) {
                    self.lane = lane - 1;
                }
            }
            MouseEventKind::Down(MouseButton::Left) => {
                if let Some(row) = draw::table_row_at(self, state, area, event.row) {
                    self.pane = Pane::Steps;
                    let step = state.steps.times[self.table_index(row)].step;
                    self.pick(step, shared);
                }
            }
            _ => {}
        }
    }
}
