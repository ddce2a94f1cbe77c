//! Lanes of work over time: who waits for whom, and the share of each in a step.
//!
//! ```text
//!                 0:10                 0:12          ▼      0:14            a cursor names the spans under it
//!  generate       ██████████░                 ██████████░               62%
//!  learner                   ████████████████░                          31%
//!  wait rollouts  ██████████                                             9%
//!  steps          |4                          |5
//!  step 5 waits 1.2 s for tool `search`, instance 5-7/0
//!  step   time    gen  tool …  overlap   longest wait                     the same step by step
//! ```
//! `lanes` measures, `window` zooms, `excerpt` reads old spans in a job, `table` is the lower half, `draw` the screen.

mod commands;
mod draw;
mod excerpt;
mod lanes;
mod table;
#[cfg(test)]
mod tests;
mod window;

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::Rect;
use runlog::RunState;
use runlog::state::{RECENT_SPANS, Span, StepTimes};

use self::excerpt::Excerpt;
use self::lanes::{Busy, LaneRow, ROWS};
use self::table::Order;
use self::window::Window;
use super::{Input, Page, PageId};
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::bindings::{Binding, Context, bind};
use crate::tui::shared::{RunKey, Shared};
use crate::tui::widgets::list::Move;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Move(Move),
    Left,
    Right,
    FarLeft,
    FarRight,
    NextEdge,
    PreviousEdge,
    ZoomIn,
    ZoomOut,
    ZoomStep,
    Fit,
    Follow,
    StepBack,
    StepForward,
    NextStall,
    WorstStall,
    NextPane,
    Sort,
    Open,
    Log,
}

/// Answers to this page's jobs.
#[derive(Debug)]
pub enum Message {
    /// Spans of a part of the run; an error is said on the page.
    Read {
        run: RunKey,
        excerpt: Result<Excerpt, String>,
    },
}

const HERE: Context = Context::Page(PageId::Timeline);

const fn of(command: Command) -> action::Command {
    action::Command::Timeline(command)
}

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    bind("timeline.zoom_in", &["+", "="], HERE, of(Command::ZoomIn), "zoom in around the cursor (also the wheel)", "zoom"),
    bind("timeline.zoom_out", &["-"], HERE, of(Command::ZoomOut), "zoom out", "out"),
    bind("timeline.step_back", &[","], HERE, of(Command::StepBack), "the step before", "step"),
    bind("timeline.step_forward", &["."], HERE, of(Command::StepForward), "the next step", "step"),
    bind("timeline.open", &["enter"], HERE, of(Command::Open), "the dialogues of this step (page Rollouts)", "dialogues"),
    bind("timeline.log", &["i"], HERE, of(Command::Log), "what the log says at the cursor (page Logs)", "log"),
    bind("timeline.worst", &["S"], HERE, of(Command::WorstStall), "to the longest wait of the run", ""),
    bind("timeline.stall", &["s"], HERE, of(Command::NextStall), "to the next long wait", "stall"),
    bind("timeline.sort", &["o"], HERE, of(Command::Sort), "sort the steps by number, length or longest wait", "sort"),
    bind("timeline.pane", &["tab", "shift-tab"], HERE, of(Command::NextPane), "between lanes and steps", "pane"),
    bind("timeline.follow", &["f"], HERE, of(Command::Follow), "follow the end of the run, or stay", ""),
    bind("timeline.fit", &["a"], HERE, of(Command::Fit), "the whole run", ""),
    bind("timeline.zoom_step", &["z"], HERE, of(Command::ZoomStep), "just this step", ""),
    bind("timeline.left", &["h", "left"], HERE, of(Command::Left), "cursor back", ""),
    bind("timeline.right", &["l", "right"], HERE, of(Command::Right), "cursor on", ""),
    bind("timeline.far_left", &["H"], HERE, of(Command::FarLeft), "half a screen back", ""),
    bind("timeline.far_right", &["L"], HERE, of(Command::FarRight), "half a screen on", ""),
    bind("timeline.next_edge", &["w"], HERE, of(Command::NextEdge), "to where work in this lane next begins or ends", ""),
    bind("timeline.previous_edge", &["b"], HERE, of(Command::PreviousEdge), "to where work in this lane last began or ended", ""),
    bind("timeline.down", &["j", "down"], HERE, of(Command::Move(Move::Down)), "next lane, or next row of the table", ""),
    bind("timeline.up", &["k", "up"], HERE, of(Command::Move(Move::Up)), "lane or row above", ""),
    bind("timeline.half_down", &["ctrl-d"], HERE, of(Command::Move(Move::HalfPageDown)), "half a page down the table", ""),
    bind("timeline.half_up", &["ctrl-u"], HERE, of(Command::Move(Move::HalfPageUp)), "half a page up the table", ""),
    bind("timeline.page_down", &["pgdn"], HERE, of(Command::Move(Move::PageDown)), "a page down the table", ""),
    bind("timeline.page_up", &["pgup"], HERE, of(Command::Move(Move::PageUp)), "a page up the table", ""),
    bind("timeline.first", &["g g", "home"], HERE, of(Command::Move(Move::First)), "the start of the run, or the table's first row", ""),
    bind("timeline.last", &["G", "end"], HERE, of(Command::Move(Move::Last)), "the end of the run, or the table's last row", ""),
];

/// Steps that the first screen shows: enough to see a rhythm, few enough to see its parts.
const FIRST_STEPS: usize = 5;
/// Excerpts kept.
const KEPT: usize = 8;
/// An excerpt is a few steps: more cannot be told apart anyway.
const MOST_STEPS_NAMED: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Pane {
    #[default]
    Lanes,
    Steps,
}

#[derive(Debug, Default)]
pub struct Timeline {
    /// Of which run the rest is.
    run: Option<RunKey>,
    /// None: as at the start, the last few steps.
    window: Option<Window>,
    cursor_ms: Option<f64>,
    /// The window ends where the run does.
    is_following: bool,
    pane: Pane,
    lane: usize,
    order: Order,
    /// Indices into the steps, in the table's order; empty while that is the steps' own.
    sorted: Vec<usize>,
    sorted_of: usize,
    excerpts: VecDeque<Excerpt>,
    /// Of each of [`ROWS`], as of the last data.
    busy: Vec<Busy>,
    is_reading: bool,
    problem: Option<String>,
    /// The step picked when this page was last shown: a new one moves the cursor.
    seen_step: Option<u64>,
}

/// What is known of the spans at some moment.
enum Known<'a> {
    Spans(Vec<&'a Span>),
    /// They must be read; or that is going on.
    Unread,
    /// Too many to name.
    TooMany,
}

fn end_ms(state: &RunState) -> f64 {
    // Spans may end a little after the event that was read last.
    state.elapsed_ms.max(1.0)
}

impl Timeline {
    fn window(&self, state: &RunState) -> Window {
        let end = end_ms(state);
        match self.window {
            Some(window) if self.is_following => {
                Window::at(end - window.length(), window.length(), end)
            }
            Some(window) => Window::at(window.start_ms, window.length(), end),
            None => {
                let times = &state.steps.times;
                let first = times.len().saturating_sub(FIRST_STEPS);
                let start = times.get(first).map_or(0.0, |step| step.start_ms);
                Window::at(start, end - start, end)
            }
        }
    }

    fn cursor(&self, state: &RunState) -> f64 {
        let window = self.window(state);
        match self.cursor_ms {
            Some(ms) if !(self.is_following && ms < window.start_ms) => {
                ms.clamp(0.0, end_ms(state))
            }
            // In the last whole step, where there is something to read.
            _ => state.steps.times.last().map_or_else(
                || f64::midpoint(window.start_ms, window.end_ms),
                |step| f64::midpoint(step.start_ms.max(window.start_ms), step.end_ms),
            ),
        }
    }

    /// The lanes that have something in this run.
    fn rows(state: &RunState) -> Vec<&'static LaneRow> {
        ROWS.iter().filter(|row| row.is_used(state)).collect()
    }

    fn row(&self, state: &RunState) -> Option<&'static LaneRow> {
        let rows = Self::rows(state);
        rows.get(self.lane.min(rows.len().saturating_sub(1)))
            .copied()
    }

    /// Makes the lanes ready that have new spans.
    fn measure(&mut self, shared: &Shared) {
        let Some(open) = shared.current_run() else {
            self.busy.clear();
            return;
        };
        self.busy.resize_with(ROWS.len(), Busy::default);
        for (busy, row) in self.busy.iter_mut().zip(&ROWS) {
            if !busy.is_of(row, &open.state) {
                *busy = row.busy(&open.state);
            }
        }
    }

    /// The step under the cursor; after the last whole one, that one.
    fn step<'a>(&self, state: &'a RunState) -> Option<&'a StepTimes> {
        let cursor = self.cursor(state);
        state.steps.at(cursor).or_else(|| {
            let last = state.steps.times.last()?;
            (cursor >= last.end_ms).then_some(last)
        })
    }

    /// The moments of the cursor's column.
    fn cell(&self, state: &RunState, columns: usize) -> (f64, f64) {
        let window = self.window(state);
        let cursor = self.cursor(state);
        match window.column_of(cursor, columns) {
            Some(column) => window.column(column, columns),
            None => (cursor, cursor),
        }
    }

    fn spans_at<'a>(&'a self, state: &'a RunState, from: f64, to: f64) -> Known<'a> {
        if steps_touched(state, from, to) > MOST_STEPS_NAMED {
            return Known::TooMany;
        }
        let touches = |span: &&Span| span.start_ms <= to && span.end_ms >= from;
        // The fold keeps the latest spans; they ended in nearly this order.
        let is_whole = state.recent_spans.len() < RECENT_SPANS;
        let oldest = state.recent_spans.front().map_or(0.0, |span| span.end_ms);
        if is_whole || from > oldest {
            return Known::Spans(state.recent_spans.iter().filter(touches).collect());
        }
        if let Some(excerpt) = self
            .excerpts
            .iter()
            .find(|excerpt| excerpt.start_ms <= from && excerpt.end_ms >= to)
        {
            return Known::Spans(excerpt.spans.iter().filter(touches).collect());
        }
        Known::Unread
    }

    /// Asks for the spans under the cursor where the fold no longer has them.
    fn want_spans(&mut self, shared: &Shared) -> Option<Effect> {
        let open = shared.current_run()?;
        if self.is_reading || shared.front != PageId::Timeline {
            return None;
        }
        let state = &open.state;
        let (from, to) = self.cell(state, draw::columns(shared.page_area().width));
        if !matches!(self.spans_at(state, from, to), Known::Unread) {
            return None;
        }
        // The whole step, so that moving within it reads nothing.
        let times = &state.steps.times;
        let start = state.steps.at(from).map_or(from, |step| step.start_ms);
        let end = state.steps.at(to).map_or(to, |step| step.end_ms);
        let end = if times.is_empty() { to } else { end.max(to) };
        self.is_reading = true;
        let run = open.key.clone();
        Some(Effect::job("read spans", move || {
            let log = run.path().join("events.jsonl");
            let excerpt = excerpt::read(&log, start.min(from), end)
                .map_err(|error| format!("{}: {error}", log.display()));
            action::Message::Page(PageMessage::Timeline(Message::Read { run, excerpt }))
        }))
    }

    /// Takes over another run or another picked step.
    fn follow_shared(&mut self, shared: &Shared) {
        if self.run != shared.current {
            let kept = (self.order, self.pane);
            *self = Self {
                run: shared.current.clone(),
                is_following: true,
                ..Self::default()
            };
            (self.order, self.pane) = kept;
        }
        if self.seen_step != shared.step {
            self.seen_step = shared.step;
            if let Some(step) = shared.step {
                self.show_step(step, shared);
            }
        }
    }

    /// Puts the cursor into the middle of a step, and the step onto the screen.
    fn show_step(&mut self, step: u64, shared: &Shared) {
        let Some(open) = shared.current_run() else {
            return;
        };
        let state = &open.state;
        let Some(times) = state.steps.find(step) else {
            return;
        };
        let end = end_ms(state);
        let mut window = self.window(state);
        let length = times.end_ms - times.start_ms;
        if length > window.length() {
            window = Window::at(times.start_ms, length * 1.2, end);
        } else if times.start_ms < window.start_ms || times.end_ms > window.end_ms {
            let middle = f64::midpoint(times.start_ms, times.end_ms);
            window = Window::at(middle - window.length() / 2.0, window.length(), end);
        }
        self.is_following = false;
        self.window = Some(window);
        self.cursor_ms = Some(f64::midpoint(times.start_ms, times.end_ms));
    }
}

fn steps_touched(state: &RunState, from: f64, to: f64) -> usize {
    let times = &state.steps.times;
    let first = times.partition_point(|step| step.end_ms < from);
    let last = times.partition_point(|step| step.start_ms <= to);
    last.saturating_sub(first)
}

impl Page for Timeline {
    fn update(&mut self, input: Input<'_>, shared: &mut Shared) -> Vec<Effect> {
        match input {
            Input::Command(action::Command::Timeline(command)) => {
                self.follow_shared(shared);
                self.command(command, shared);
            }
            Input::Mouse(event, area) => self.mouse(event, area, shared),
            Input::Message(PageMessage::Timeline(Message::Read { run, excerpt })) => {
                self.is_reading = false;
                if self.run.as_ref() == Some(run) {
                    // What is moved out is replaced by nothing anybody reads.
                    match std::mem::replace(excerpt, Err(String::new())) {
                        Ok(excerpt) => {
                            self.problem = None;
                            self.excerpts.push_front(excerpt);
                            self.excerpts.truncate(KEPT);
                        }
                        Err(problem) => self.problem = Some(problem),
                    }
                    if self.problem.is_some() {
                        return Vec::new();
                    }
                }
            }
            Input::Shown | Input::DataChanged => {
                if shared.front != PageId::Timeline {
                    return Vec::new();
                }
                self.follow_shared(shared);
                self.measure(shared);
                self.sort(shared);
            }
            _ => return Vec::new(),
        }
        self.want_spans(shared).into_iter().collect()
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        self.draw_page(shared, frame, area);
    }

    fn back(&mut self, _shared: &mut Shared) -> bool {
        if self.pane == Pane::Steps {
            self.pane = Pane::Lanes;
            return true;
        }
        // A zoom or a place that was chosen: back to the end of the run.
        let was_moved = self.window.take().is_some() || self.cursor_ms.is_some();
        self.cursor_ms = None;
        self.is_following = true;
        was_moved
    }

    fn copied(&self, shared: &Shared) -> Option<(String, String)> {
        let state = &shared.current_run()?.state;
        let text = table::as_text(state)?;
        Some((
            text,
            format!("the times of {} steps", state.steps.times.len()),
        ))
    }

    fn status(&self, shared: &Shared) -> String {
        let Some(open) = shared.current_run() else {
            return String::new();
        };
        let window = self.window(&open.state);
        format!(
            "{} of the run{}",
            draw::length(window.length()),
            if self.is_following { ", following" } else { "" }
        )
    }
}
