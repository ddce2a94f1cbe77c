//! Runs side by side: config keys that differ, a table of metrics, overlaid curves.
//!
//! ```text
//!                          ● quickstart-ab12   ● sort-cd34          a column a run, the first is the current one
//!  configuration: 3 of 181 keys differ
//!    actor.optim.lr            2e-4                5e-4
//!  metrics: last, best, mean of the last 10
//! >  critic/score/mean    0.93* 0.95* 0.92*   0.71 0.80 0.70       * the better one
//!  ⡠⠤⠒⠉ critic/score/mean against step                              of the selected metric
//! ```
//! Compares what the workbench has open: the current run and the marked ones.

mod commands;
mod config;
mod draw;
mod draw_chart;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crossterm::event::{KeyEvent, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use runlog::series::XAxis;
use serde::{Deserialize, Serialize};

use super::{Input, Page, PageId};
use crate::export::curves::{Panel, Shown, View, panel};
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::shared::{Notice, RunKey, Shared};
use crate::tui::widgets::chart;
use crate::tui::widgets::envelopes::Envelopes;
use crate::tui::widgets::field::{Field, Outcome};
use crate::tui::widgets::list::{ListState, Move};
use crate::tui::widgets::viewport::Viewport;
use config::Config;
use table::{Row, Table};

pub use commands::{BINDINGS, Command};

/// Answers to this page's jobs.
#[derive(Debug)]
pub enum Message {
    Configs(Vec<(RunKey, Result<Config, String>)>),
}

/// Which numbers of a metric stand in its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    #[default]
    All,
    Last,
    Best,
    Mean,
}

/// How a number stands beside the baseline's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    #[default]
    Value,
    Difference,
    Percent,
}

/// What is remembered per project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    statistic: Statistic,
    against: Against,
    last_count: usize,
    axis: usize,
    has_all_keys: bool,
}

const KEPT: &str = "compare";

impl Default for Kept {
    fn default() -> Self {
        Self {
            statistic: Statistic::All,
            against: Against::Value,
            last_count: 10,
            axis: 0,
            has_all_keys: false,
        }
    }
}

impl Kept {
    fn axis(self) -> XAxis {
        XAxis::ALL[self.axis % XAxis::ALL.len()]
    }
}

#[derive(Debug, Default)]
pub struct Compare {
    kept: Option<Kept>,
    configs: HashMap<RunKey, Result<Config, String>>,
    awaited: Vec<RunKey>,
    table: Table,
    list: ListState,
    /// The selected run, an index into the table's runs.
    column: usize,
    baseline: Option<RunKey>,
    /// Of the curves.
    view: Viewport,
    is_log_y: bool,
    is_expanded: bool,
    search: Option<Field>,
    needle: String,
    envelopes: Envelopes,
}

impl Compare {
    fn kept(&self) -> Kept {
        self.kept.unwrap_or_default()
    }

    fn keep(&mut self, kept: Kept, shared: &mut Shared) -> Vec<Effect> {
        shared.kept.set(KEPT, &kept);
        self.kept = Some(kept);
        self.rebuild(shared);
        vec![Effect::SaveState]
    }

    /// Makes the table anew from what is open; the selected row stays selected by its name.
    fn rebuild(&mut self, shared: &Shared) {
        let selected = self.selected_row().map(Row::identity);
        self.table = table::build(shared, &self.configs, self.kept());
        if let Some(identity) = selected
            && let Some(at) = self
                .table
                .rows
                .iter()
                .position(|row| row.identity() == identity)
        {
            self.list.select(at);
        }
        self.column = self.column.min(self.table.runs.len().saturating_sub(1));
        self.rest_on_a_row(1);
    }

    /// Headings are no rows to rest on.
    fn rest_on_a_row(&mut self, by: isize) {
        let rows = &self.table.rows;
        let is_rest = |at: usize| !matches!(rows.get(at), Some(Row::Heading(_)));
        let at = self.list.selected(rows.len());
        if rows.is_empty() || is_rest(at) {
            return;
        }
        let found = if by >= 0 {
            (at..rows.len()).find(|at| is_rest(*at))
        } else {
            (0..at).rev().find(|at| is_rest(*at))
        };
        // At an end with nothing but a heading: the other way.
        let found = found
            .or_else(|| (at..rows.len()).find(|at| is_rest(*at)))
            .or_else(|| (0..at).rev().find(|at| is_rest(*at)));
        if let Some(found) = found {
            self.list.select(found);
        }
    }

    fn selected_row(&self) -> Option<&Row> {
        self.table
            .rows
            .get(self.list.selected(self.table.rows.len()))
    }

    /// The metric whose curves are drawn: the selected one, else the first above or below it.
    fn metric(&self) -> Option<&str> {
        let at = self.list.selected(self.table.rows.len());
        let of = |row: &'_ Row| matches!(row, Row::Metric { .. });
        let rows = &self.table.rows;
        let found = rows
            .get(at)
            .filter(|row| of(row))
            .or_else(|| rows.iter().find(|row| of(row)))?;
        match found {
            Row::Metric { name, .. } => Some(name),
            _ => None,
        }
    }

    /// From the first to the last x of the selected metric's curves. None: nothing is logged.
    fn range(&self, shared: &Shared) -> Option<(f64, f64)> {
        let metric = self.metric()?;
        let (from, to) = shared
            .shown_runs()
            .iter()
            .filter_map(|(_, run)| run.state.series.get(metric)?.x_bounds(self.view.axis))
            .reduce(|(low, high), (from, to)| (low.min(from), high.max(to)))?;
        // One point has no width.
        Some(if from < to {
            (from, to)
        } else {
            (from - 0.5, to + 0.5)
        })
    }

    /// Asks for the experiments that were not read.
    fn wants(&mut self, shared: &Shared) -> Vec<Effect> {
        if shared.front != PageId::Compare {
            return Vec::new();
        }
        let wanted: Vec<RunKey> = shared
            .shown_runs()
            .into_iter()
            .map(|(_, run)| run.key.clone())
            .filter(|key| !self.configs.contains_key(key) && !self.awaited.contains(key))
            .collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        self.awaited.extend(wanted.iter().cloned());
        vec![Effect::job("read experiments", move || {
            let found = wanted
                .into_iter()
                .map(|key| {
                    let config = config::read(&key);
                    (key, config)
                })
                .collect();
            action::Message::Page(PageMessage::Compare(Message::Configs(found)))
        })]
    }

    fn go(&mut self, by: Move) {
        let rows = self.table.rows.len();
        let before = self.list.selected(rows);
        self.list.go(by, rows, self.table.visible_rows);
        let after = self.list.selected(rows);
        self.rest_on_a_row(after as isize - before as isize);
    }

    fn find(&mut self, by: isize, from_here: bool) -> bool {
        if self.needle.is_empty() {
            return false;
        }
        let rows = self.table.rows.len() as isize;
        let needle = self.needle.to_lowercase();
        let at = self.list.selected(self.table.rows.len()) as isize;
        let first = isize::from(!from_here);
        let found = (first..first + rows)
            .map(|distance| (at + by * distance).rem_euclid(rows.max(1)) as usize)
            .find(|at| {
                self.table.rows[*at]
                    .name()
                    .is_some_and(|name| name.to_lowercase().contains(&needle))
            });
        if let Some(found) = found {
            self.list.select(found);
        }
        found.is_some()
    }

    fn key(&mut self, key: KeyEvent, shared: &mut Shared) {
        let Some(mut field) = self.search.take() else {
            return;
        };
        match field.key(key) {
            Outcome::Cancelled => self.needle.clear(),
            Outcome::Accepted => {
                if !self.needle.is_empty() && !self.find(1, true) {
                    shared.say(Notice::caution(format!(
                        "nothing is called `{}`",
                        self.needle
                    )));
                }
            }
            outcome => {
                if outcome == Outcome::Changed {
                    field.text().clone_into(&mut self.needle);
                    self.find(1, true);
                }
                self.search = Some(field);
            }
        }
    }

    fn mouse(&mut self, event: MouseEvent, area: Rect, shared: &mut Shared) {
        let at = Position::new(event.column, event.row);
        let plot = draw::chart_area(self, area)
            .map(|chart| draw_chart::plot(self, shared, chart))
            .filter(|plot| plot.contains(at));
        if let Some(plot) = plot {
            match event.kind {
                MouseEventKind::ScrollUp => self.zoom_by(0.8, shared),
                MouseEventKind::ScrollDown => self.zoom_by(1.25, shared),
                MouseEventKind::Down(MouseButton::Left)
                | MouseEventKind::Drag(MouseButton::Left) => {
                    if let (Some(share), Some(range)) =
                        (chart::share_at(plot, at.x), self.range(shared))
                    {
                        let x = self.view.window(range).at(share);
                        self.set_crosshair(x, shared);
                    }
                }
                _ => {}
            }
            return;
        }
        if let Some(by) = Move::of_wheel(event.kind) {
            self.go(by);
        }
        if event.kind == MouseEventKind::Down(MouseButton::Left) {
            let (row, column) = draw::place_at(self, shared, area, event);
            if let Some(row) = row {
                self.list.select(row);
                self.rest_on_a_row(1);
            }
            if let Some(column) = column {
                self.column = column;
            }
        }
    }

    /// The baseline among the runs that are shown: the chosen one, else the one that was marked first, else the current one.
    fn baseline_index(&self) -> usize {
        let chosen = self
            .baseline
            .as_ref()
            .and_then(|key| self.table.runs.iter().position(|run| run.key == *key));
        // Colours are given in the order of the marks; a current run without a mark has the last.
        let first_marked = || {
            let runs = self.table.runs.iter().enumerate();
            runs.min_by_key(|(_, run)| run.color).map(|(at, _)| at)
        };
        chosen.or_else(first_marked).unwrap_or(0)
    }
}

impl Page for Compare {
    fn update(&mut self, input: Input<'_>, shared: &mut Shared) -> Vec<Effect> {
        if self.kept.is_none() {
            let kept: Kept = shared.kept.get(KEPT).unwrap_or_default();
            self.view.axis = kept.axis();
            self.kept = Some(kept);
        }
        match input {
            Input::Command(action::Command::Compare(command)) => self.command(command, shared),
            Input::Key(key) => {
                self.key(key, shared);
                Vec::new()
            }
            Input::Paste(pasted) => {
                if let Some(field) = &mut self.search {
                    field.paste(pasted);
                    field.text().clone_into(&mut self.needle);
                    self.find(1, true);
                }
                Vec::new()
            }
            Input::Mouse(event, area) => {
                self.table.visible_rows = usize::from(area.height);
                self.mouse(event, area, shared);
                Vec::new()
            }
            Input::Message(PageMessage::Compare(Message::Configs(found))) => {
                for (key, config) in std::mem::take(found) {
                    self.awaited.retain(|awaited| *awaited != key);
                    self.configs.insert(key, config);
                }
                self.rebuild(shared);
                Vec::new()
            }
            Input::Shown => {
                // An experiment that could not be read may be there by now.
                self.configs.retain(|_, config| config.is_ok());
                self.rebuild(shared);
                self.wants(shared)
            }
            // A page that is not in front is made anew when it comes there.
            Input::DataChanged => {
                self.envelopes.clear();
                if shared.front != PageId::Compare {
                    return Vec::new();
                }
                self.rebuild(shared);
                self.wants(shared)
            }
            Input::Command(_) | Input::Message(_) => Vec::new(),
        }
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        draw::draw(self, shared, frame, area);
    }

    fn is_typing(&self) -> bool {
        self.search.is_some()
    }

    fn back(&mut self, shared: &mut Shared) -> bool {
        if self.is_expanded {
            self.is_expanded = false;
            return true;
        }
        if self.view.crosshair.take().is_some() {
            shared.step = None;
            return true;
        }
        if self.view.zoom.take().is_some() {
            return true;
        }
        if !self.needle.is_empty() {
            self.needle.clear();
            return true;
        }
        if self.baseline.take().is_some() {
            let kept = Kept {
                against: Against::Value,
                ..self.kept()
            };
            self.kept = Some(kept);
            shared.kept.set(KEPT, &kept);
            return true;
        }
        false
    }

    fn copied(&self, _shared: &Shared) -> Option<(String, String)> {
        if self.table.runs.is_empty() {
            return None;
        }
        let text = self.table.tab_separated();
        Some((text, format!("the table of {} runs", self.table.runs.len())))
    }

    fn curves(&self, shared: &Shared) -> Vec<Panel> {
        let Some(metric) = self.metric() else {
            return Vec::new();
        };
        let names: Vec<(usize, String, &runlog::RunState)> = shared
            .shown_runs()
            .into_iter()
            .map(|(color, run)| (color, table::label(run), &run.state))
            .collect();
        let shown: Vec<Shown<'_>> = names
            .iter()
            .map(|(color, name, state)| Shown {
                name,
                color: *color,
                state,
            })
            .collect();
        let view = View {
            axis: self.view.axis,
            x_range: self.view.zoom,
            is_log_x: self.view.is_log,
            is_log_y: self.is_log_y,
            ..View::default()
        };
        panel(&shown, metric, &view).into_iter().collect()
    }

    fn status(&self, shared: &Shared) -> String {
        let mut parts = Vec::new();
        if let Some(step) = shared.step.filter(|_| self.view.crosshair.is_some()) {
            parts.push(format!("step {step}"));
        }
        if self.view.zoom.is_some() {
            parts.push("zoomed".to_owned());
        }
        match self.table.runs.len() {
            0 => {}
            1 => parts.push("1 run".to_owned()),
            count => parts.push(format!("{count} runs")),
        }
        parts.join("  ")
    }
}
