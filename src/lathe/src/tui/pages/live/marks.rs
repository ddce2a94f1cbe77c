//! What happened to the run, as letters at the foot of its curves, and the line that says what they mean.

use ratatui::text::{Line, Span};
use runlog::RunState;
use runlog::series::XAxis;

use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::viewport::Window;

/// Of two at one place the later one is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    Checkpoint,
    Control,
    Alarm,
    Resume,
    Guard,
}

impl Mark {
    const ALL: [Self; 5] = [
        Self::Checkpoint,
        Self::Control,
        Self::Alarm,
        Self::Resume,
        Self::Guard,
    ];

    pub fn letter(self) -> char {
        match self {
            Self::Checkpoint => 'c',
            Self::Control => 'k',
            Self::Alarm => 'a',
            Self::Resume => 'r',
            Self::Guard => 'g',
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Control => "changed by hand",
            Self::Alarm => "alarm",
            Self::Resume => "resumed",
            Self::Guard => "guard tripped",
        }
    }
}

/// The marks of the current run that are in view, each at its share of the width.
pub fn in_view(axis: XAxis, window: Window, shared: &Shared) -> Vec<(f64, Mark)> {
    let Some(run) = shared.current_run() else {
        return Vec::new();
    };
    let mut marks: Vec<(f64, Mark)> = all(&run.state, axis)
        .into_iter()
        .map(|(x, mark)| (window.share(x), mark))
        .filter(|(share, _)| (0.0..=1.0).contains(share))
        .collect();
    marks.sort_by_key(|(_, mark)| *mark);
    marks
}

fn all(state: &RunState, axis: XAxis) -> Vec<(f64, Mark)> {
    // Any curve of the steps tells where a step lies on the axes of tokens and samples.
    let clock = ["critic/score/mean", "train/loss", "actor/pg_loss"]
        .into_iter()
        .find_map(|name| state.series.get(name));
    let place = |step: Option<u64>, elapsed_ms: f64| match axis {
        XAxis::Time => Some(elapsed_ms),
        XAxis::Step => Some(step? as f64),
        XAxis::Tokens | XAxis::Samples => {
            let series = clock?;
            let index = series.index_at(step? as f64, XAxis::Step)?;
            Some(series.x(index, axis))
        }
    };
    let checkpoints = state
        .checkpoints
        .iter()
        .map(|saved| (place(Some(saved.step), saved.elapsed_ms), Mark::Checkpoint));
    let controls = state
        .controls
        .iter()
        .filter(|record| record.mark().is_some())
        .map(|record| (place(record.mark(), record.elapsed_ms), Mark::Control));
    // The alarm that a guard records says the same as its trip.
    let trips = &state.guards.trips;
    let alarms = state
        .alarms
        .iter()
        .filter(|alarm| !trips.iter().any(|trip| trip.is_told_by(alarm)))
        .map(|alarm| (place(alarm.step, alarm.elapsed_ms), Mark::Alarm));
    let resumes = state.resumes.iter().map(|resume| {
        (
            place(Some(resume.from_step), resume.elapsed_ms),
            Mark::Resume,
        )
    });
    let trips = trips
        .iter()
        .map(|trip| (place(Some(trip.step), trip.elapsed_ms), Mark::Guard));
    checkpoints
        .chain(controls)
        .chain(alarms)
        .chain(resumes)
        .chain(trips)
        .filter_map(|(x, mark)| Some((x?, mark)))
        .collect()
}

/// `c checkpoint  a alarm`: of those that are in view. None: there are none.
pub fn legend(marks: &[(f64, Mark)], shared: &Shared) -> Option<Line<'static>> {
    let mut spans = Vec::new();
    for mark in Mark::ALL {
        if marks.iter().any(|(_, seen)| *seen == mark) {
            spans.push(Span::styled(
                format!(" {}", mark.letter()),
                shared.style(Role::Caution),
            ));
            spans.push(Span::styled(
                format!(" {} ", mark.words()),
                shared.style(Role::Muted),
            ));
        }
    }
    (!spans.is_empty()).then(|| Line::from(spans))
}
