//! What the keys do on page Compare.

use runlog::series::{Series, XAxis};

use super::{Against, Compare, Kept, Row, Statistic};
use crate::tui::action::Effect;
use crate::tui::bindings::{Binding, page_rows, with_moves};
use crate::tui::pages::PageId;
use crate::tui::shared::{Notice, Shared, Wish};
use crate::tui::widgets::field::Field;
use crate::tui::widgets::list::Move;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Go(Move),
    Left,
    Right,
    AllKeys,
    Statistic,
    MoreOfLast,
    FewerOfLast,
    Baseline,
    Difference,
    Axis,
    Expand,
    Search,
    NextMatch,
    PreviousMatch,
    NextSection,
    Crosshair,
    CrosshairFar(i8),
    OpenStep,
    ZoomIn,
    ZoomOut,
    ZoomReset,
    PanLeft,
    PanRight,
    LogX,
    LogY,
}

/// How many last values a mean can take.
const LAST_COUNTS: [usize; 8] = [1, 2, 5, 10, 20, 50, 100, 500];

page_rows!(Compare);

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = with_moves!["compare", row, Command::Go;
    row("compare.statistic", &["s"], Command::Statistic, "show last, best and mean, or one of them", "last/best"),
    row("compare.baseline", &["b"], Command::Baseline, "take this column's run as the baseline, or none", "baseline"),
    row("compare.difference", &["%", "d"], Command::Difference, "values, differences to the baseline, or per cent", "difference"),
    row("compare.all_keys", &["a"], Command::AllKeys, "every configuration key, or only those that differ", "all keys"),
    row("compare.axis", &["x"], Command::Axis, "curves against step, time, tokens or samples", "x axis"),
    row("compare.expand", &["e"], Command::Expand, "the curves on the whole page, or back", "expand"),
    row("compare.search", &["/"], Command::Search, "search keys and metrics", "search"),
    row("compare.next_match", &["n"], Command::NextMatch, "next match", ""),
    row("compare.previous_match", &["N"], Command::PreviousMatch, "match before", ""),
    row("compare.crosshair", &["c"], Command::Crosshair, "crosshair on or off: every run read at one step, with its difference to the baseline", "crosshair"),
    row("compare.crosshair_back", &["H"], Command::CrosshairFar(-1), "crosshair: ten points back", ""),
    row("compare.crosshair_on", &["L"], Command::CrosshairFar(1), "crosshair: ten points on", ""),
    row("compare.open_step", &["enter"], Command::OpenStep, "the dialogues of the step at the crosshair (page Rollouts)", ""),
    row("compare.zoom_in", &["+", "="], Command::ZoomIn, "zoom in, around the crosshair or the newest part", ""),
    row("compare.zoom_out", &["-"], Command::ZoomOut, "zoom out", ""),
    row("compare.zoom_reset", &["0"], Command::ZoomReset, "the whole runs", ""),
    row("compare.pan_left", &[","], Command::PanLeft, "zoomed: earlier", ""),
    row("compare.pan_right", &["."], Command::PanRight, "zoomed: later", ""),
    row("compare.log_x", &["X"], Command::LogX, "logarithmic x axis", ""),
    row("compare.log_y", &["Y"], Command::LogY, "logarithmic y axis", ""),
    row("compare.more", &["m"], Command::MoreOfLast, "mean of more of the last values", ""),
    row("compare.fewer", &["M"], Command::FewerOfLast, "mean of fewer of the last values", ""),
    row("compare.right", &["l", "right"], Command::Right, "next run; with the crosshair: one point on", ""),
    row("compare.left", &["h", "left"], Command::Left, "run before; with the crosshair: one point back", ""),
    row("compare.section", &["tab"], Command::NextSection, "to the metrics, or to the configuration", ""),
];

impl Compare {
    pub(super) fn command(&mut self, command: Command, shared: &mut Shared) -> Vec<Effect> {
        let kept = self.kept();
        let runs = self.table.runs.len();
        match command {
            Command::Go(by) => self.go(by),
            Command::Left if self.view.crosshair.is_some() => self.move_crosshair(-1, shared),
            Command::Right if self.view.crosshair.is_some() => self.move_crosshair(1, shared),
            Command::CrosshairFar(by) => self.move_crosshair(10 * isize::from(by), shared),
            Command::Crosshair => {
                if self.view.crosshair.take().is_some() {
                    shared.step = None;
                } else {
                    self.move_crosshair(0, shared);
                    if self.view.crosshair.is_none() {
                        shared.say(Notice::caution("there is no curve to read yet"));
                    }
                }
            }
            Command::OpenStep => {
                if self.view.crosshair.is_none() {
                    shared.step = None;
                }
                shared.wish = Some(Wish::Go(PageId::Rollouts));
            }
            Command::ZoomIn => self.zoom_by(0.5, shared),
            Command::ZoomOut => self.zoom_by(2.0, shared),
            Command::ZoomReset => self.view.zoom = None,
            Command::PanLeft | Command::PanRight => {
                let share = if command == Command::PanLeft {
                    -0.25
                } else {
                    0.25
                };
                if let Some(range) = self.range(shared) {
                    let mut view = self.view;
                    let step = view.pan(share, range, self.main_series(shared));
                    self.view = view;
                    shared.step = step.or(shared.step);
                }
            }
            Command::LogX => self.view.is_log = !self.view.is_log,
            Command::LogY => self.is_log_y = !self.is_log_y,
            Command::Left => self.column = self.column.saturating_sub(1),
            Command::Right => self.column = (self.column + 1).min(runs.saturating_sub(1)),
            Command::AllKeys => {
                let has_all_keys = !kept.has_all_keys;
                return self.keep(
                    Kept {
                        has_all_keys,
                        ..kept
                    },
                    shared,
                );
            }
            Command::Statistic => {
                let statistic = match kept.statistic {
                    Statistic::All => Statistic::Last,
                    Statistic::Last => Statistic::Best,
                    Statistic::Best => Statistic::Mean,
                    Statistic::Mean => Statistic::All,
                };
                return self.keep(Kept { statistic, ..kept }, shared);
            }
            Command::MoreOfLast | Command::FewerOfLast => {
                let next = if command == Command::MoreOfLast {
                    LAST_COUNTS
                        .into_iter()
                        .find(|count| *count > kept.last_count)
                } else {
                    LAST_COUNTS
                        .into_iter()
                        .rev()
                        .find(|count| *count < kept.last_count)
                };
                let last_count = next.unwrap_or(kept.last_count);
                shared.say(Notice::good(format!(
                    "mean of the last {last_count} values"
                )));
                return self.keep(Kept { last_count, ..kept }, shared);
            }
            Command::Baseline => {
                let Some(run) = self.table.runs.get(self.column) else {
                    shared.say(Notice::caution("there is no run to compare with"));
                    return Vec::new();
                };
                let is_set = self.baseline.as_ref() == Some(&run.key);
                self.baseline = (!is_set).then(|| run.key.clone());
                let against = match (is_set, kept.against) {
                    (true, _) => Against::Value,
                    (false, Against::Value) => Against::Difference,
                    (false, against) => against,
                };
                return self.keep(Kept { against, ..kept }, shared);
            }
            Command::Difference => {
                let against = match kept.against {
                    Against::Value => Against::Difference,
                    Against::Difference => Against::Percent,
                    Against::Percent => Against::Value,
                };
                return self.keep(Kept { against, ..kept }, shared);
            }
            Command::Axis => {
                let axis = (kept.axis + 1) % XAxis::ALL.len();
                self.view.set_axis(XAxis::ALL[axis]);
                return self.keep(Kept { axis, ..kept }, shared);
            }
            Command::Expand => self.is_expanded = !self.is_expanded,
            Command::Search => self.search = Some(Field::default()),
            Command::NextMatch | Command::PreviousMatch => {
                let by = if command == Command::NextMatch { 1 } else { -1 };
                if !self.find(by, false) {
                    shared.say(Notice::caution("nothing found; / searches"));
                }
            }
            Command::NextSection => {
                let rows = &self.table.rows;
                let is_metric = matches!(self.selected_row(), Some(Row::Metric { .. }));
                let target = rows.iter().position(|row| match row {
                    Row::Metric { .. } => !is_metric,
                    Row::Fact { .. } | Row::Key { .. } => is_metric,
                    Row::Heading(_) => false,
                });
                if let Some(target) = target {
                    self.list.select(target);
                }
            }
        }
        Vec::new()
    }

    /// The curve by whose points the crosshair moves: of the selected run, else of the first that has the metric.
    fn main_series<'s>(&self, shared: &'s Shared) -> Option<Series<'s>> {
        let metric = self.metric()?;
        let selected = self.table.runs.get(self.column).map(|run| &run.key);
        let mut runs: Vec<_> = shared.shown_runs();
        runs.sort_by_key(|(_, run)| Some(&run.key) != selected);
        runs.into_iter()
            .find_map(|(_, run)| run.state.series.get(metric))
    }

    pub(super) fn move_crosshair(&mut self, by: isize, shared: &mut Shared) {
        let Some(range) = self.range(shared) else {
            self.view.crosshair = None;
            return;
        };
        let mut view = self.view;
        let step = view.move_crosshair(by, self.main_series(shared), range);
        self.view = view;
        shared.step = step.or(shared.step);
    }

    pub(super) fn set_crosshair(&mut self, x: f64, shared: &mut Shared) {
        let mut view = self.view;
        let step = view.set_crosshair(x, self.main_series(shared));
        self.view = view;
        shared.step = step.or(shared.step);
    }

    pub(super) fn zoom_by(&mut self, factor: f64, shared: &mut Shared) {
        if let Some(range) = self.range(shared)
            && !self.view.zoom_by(factor, range)
        {
            shared.say(Notice::caution("this is as near as it gets"));
        }
    }
}
