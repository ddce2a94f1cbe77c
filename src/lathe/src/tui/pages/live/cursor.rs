//! The crosshair, zoom and pan, and the way to alarms and logs from there.

use runlog::series::XAxis;

use super::{Live, marks, view};
use crate::tui::action::Effect;
use crate::tui::pages::PageId;
use crate::tui::shared::{Notice, Shared, Wish};

impl Live {
    /// The run and series by which the crosshair moves: the focused panel's main curve.
    fn main_series<'s>(&self, shared: &'s Shared) -> Option<runlog::series::Series<'s>> {
        let panel = self.panel(self.focused()?);
        // The current run is first; one without any of these metrics leaves it to the next.
        shared.shown_runs().into_iter().find_map(|(_, run)| {
            // Step metrics are the finest; a panel of evaluations alone moves by evaluations.
            let names = panel.names(&run.state).into_iter();
            names
                .filter_map(|name| run.state.series.get(name))
                .max_by_key(|series| series.len())
        })
    }

    pub(super) fn set_crosshair(&mut self, x: f64, shared: &mut Shared) {
        let mut at = self.at;
        let step = at.set_crosshair(x, self.main_series(shared));
        self.at = at;
        shared.step = step.or(shared.step);
    }

    pub(super) fn move_crosshair(&mut self, by: isize, shared: &mut Shared) {
        let Some(range) = view::full_range(self.at.axis, shared) else {
            self.at.crosshair = None;
            return;
        };
        // Switched on by a move: on the newest point.
        let by = if self.at.crosshair.is_some() { by } else { 0 };
        let mut at = self.at;
        let step = at.move_crosshair(by, self.main_series(shared), range);
        self.at = at;
        shared.step = step.or(shared.step);
    }

    pub(super) fn zoom_by(&mut self, factor: f64, shared: &mut Shared) {
        if let Some(range) = view::full_range(self.at.axis, shared)
            && !self.at.zoom_by(factor, range)
        {
            shared.say(Notice::caution("this is as near as it gets"));
        }
    }

    pub(super) fn pan(&mut self, share: f64, shared: &mut Shared) {
        if let Some(range) = view::full_range(self.at.axis, shared) {
            let mut at = self.at;
            let step = at.pan(share, range, self.main_series(shared));
            self.at = at;
            shared.step = step.or(shared.step);
        }
    }

    /// Where the alarms of the run began, past ones and those that the run recorded too, in order of time:
    /// `(step, elapsed_ms)`.
    fn alarm_starts(&self, shared: &Shared) -> Vec<(u64, f64)> {
        let found = self.alarms.iter().flat_map(|(_, alarms)| {
            let findings = alarms.active().iter().chain(alarms.past());
            findings.map(|finding| (finding.since_step, finding.since_ms))
        });
        let recorded = shared.current_run().into_iter().flat_map(|run| {
            let steps = &run.state.steps;
            run.state.alarms.iter().map(|alarm| {
                let ended = steps
                    .times
                    .partition_point(|step| step.end_ms <= alarm.elapsed_ms);
                let last = ended.checked_sub(1).map_or(0, |at| steps.times[at].step);
                (alarm.step.unwrap_or(last), alarm.elapsed_ms)
            })
        });
        let mut starts: Vec<(u64, f64)> = found.chain(recorded).collect();
        starts.sort_by(|a, b| a.1.total_cmp(&b.1));
        starts
    }

    pub(super) fn next_alarm(&mut self, shared: &mut Shared) {
        let starts = self.alarm_starts(shared);
        let x_of = |(step, ms): (u64, f64)| match self.at.axis {
            XAxis::Time => ms,
            _ => step as f64,
        };
        if matches!(self.at.axis, XAxis::Tokens | XAxis::Samples) {
            shared.say(Notice::caution(
                "alarms have steps and times: x changes the axis",
            ));
            return;
        }
        let now = self.at.crosshair.unwrap_or(f64::NEG_INFINITY);
        let next = starts
            .iter()
            .copied()
            .map(x_of)
            .find(|x| *x > now)
            .or_else(|| starts.first().copied().map(x_of));
        match next {
            Some(x) => {
                self.set_crosshair(x, shared);
                if let Some(range) = view::full_range(self.at.axis, shared) {
                    self.at.keep_in_view(range);
                }
            }
            None => shared.say(Notice::good("no alarm in this run")),
        }
    }

    pub(super) fn alarm_log(&mut self, shared: &mut Shared) -> Vec<Effect> {
        let at_crosshair = self.at.crosshair.and_then(|x| {
            let series = self.main_series(shared)?;
            let of_step = series.x(series.index_at(x, self.at.axis)?, XAxis::Time);
            // What happened there, rather than the end of the step that it happened in.
            let happened = marks::at(self.at.axis, x, shared);
            Some(happened.unwrap_or(of_step))
        });
        let found = self.findings().first().map(|finding| finding.since_ms);
        let first_alarm = found.or_else(|| Some(self.alarm_starts(shared).first()?.1));
        let Some(elapsed_ms) = at_crosshair.or(first_alarm) else {
            shared.wish = Some(Wish::Go(PageId::Logs));
            return Vec::new();
        };
        shared.wish = Some(Wish::LogAt(elapsed_ms));
        Vec::new()
    }
}
