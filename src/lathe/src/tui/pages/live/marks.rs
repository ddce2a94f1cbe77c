//! What happened to the run, as letters at the foot of its curves, and the line that says what they mean.

use ratatui::text::{Line, Span};
use runlog::RunState;
use runlog::series::XAxis;
use runlog::state::{AlarmRecord, Checkpoint, ControlRecord, Resume, TripRecord};

use super::Live;
use crate::tui::pages::words;
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::text;
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

/// Something that happened to the run.
#[derive(Debug, Clone, Copy)]
enum Happening<'s> {
    Checkpoint(&'s Checkpoint),
    Control(&'s ControlRecord),
    Alarm(&'s AlarmRecord),
    Resume(&'s Resume),
    Guard(&'s TripRecord),
}

impl Happening<'_> {
    fn mark(self) -> Mark {
        match self {
            Self::Checkpoint(_) => Mark::Checkpoint,
            Self::Control(_) => Mark::Control,
            Self::Alarm(_) => Mark::Alarm,
            Self::Resume(_) => Mark::Resume,
            Self::Guard(_) => Mark::Guard,
        }
    }

    fn elapsed_ms(self) -> f64 {
        match self {
            Self::Checkpoint(saved) => saved.elapsed_ms,
            Self::Control(record) => record.elapsed_ms,
            Self::Alarm(alarm) => alarm.elapsed_ms,
            Self::Resume(resume) => resume.elapsed_ms,
            Self::Guard(trip) => trip.elapsed_ms,
        }
    }

    /// Who did what, or what was found.
    fn words(self) -> String {
        text::printable(&match self {
            Self::Checkpoint(saved) => words::checkpoint(saved),
            Self::Control(record) => words::control(record),
            Self::Alarm(alarm) => words::alarm(alarm),
            Self::Resume(resume) => words::resume(resume),
            Self::Guard(trip) => words::trip(trip),
        })
    }
}

/// The marks of the current run that are in view, each at its share of the width.
pub fn in_view(axis: XAxis, window: Window, shared: &Shared) -> Vec<(f64, Mark)> {
    let mut marks: Vec<(f64, Mark)> = happenings(axis, window, shared)
        .map(|(share, happening)| (share, happening.mark()))
        .collect();
    marks.sort_by_key(|(_, mark)| *mark);
    marks
}

/// When the first thing with a mark happened that stands at `x` exactly, in milliseconds; trips and orders before checkpoints.
pub fn at(axis: XAxis, x: f64, shared: &Shared) -> Option<f64> {
    let run = shared.current_run()?;
    let here = all(&run.state, axis).into_iter().filter(|(at, _)| *at == x);
    here.map(|(_, happening)| happening)
        .max_by_key(|happening| happening.mark())
        .map(Happening::elapsed_ms)
}

/// What happened in view, with its share of the width.
fn happenings(
    axis: XAxis,
    window: Window,
    shared: &Shared,
) -> impl Iterator<Item = (f64, Happening<'_>)> {
    shared
        .current_run()
        .into_iter()
        .flat_map(move |run| all(&run.state, axis))
        .map(move |(x, happening)| (window.share(x), happening))
        .filter(|(share, _)| (0.0..=1.0).contains(share))
}

fn all(state: &RunState, axis: XAxis) -> Vec<(f64, Happening<'_>)> {
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
        .map(|saved| (Some(saved.step), Happening::Checkpoint(saved)));
    let controls = state
        .controls
        .iter()
        .filter(|record| record.mark().is_some())
        .map(|record| (record.mark(), Happening::Control(record)));
    // The alarm that a guard records says the same as its trip.
    let trips = &state.guards.trips;
    let alarms = state
        .alarms
        .iter()
        .filter(|alarm| !trips.iter().any(|trip| trip.is_told_by(alarm)))
        .map(|alarm| (alarm.step, Happening::Alarm(alarm)));
    let resumes = state
        .resumes
        .iter()
        .map(|resume| (Some(resume.from_step), Happening::Resume(resume)));
    let trips = trips
        .iter()
        .map(|trip| (Some(trip.step), Happening::Guard(trip)));
    checkpoints
        .chain(controls)
        .chain(alarms)
        .chain(resumes)
        .chain(trips)
        .filter_map(|(step, happening)| Some((place(step, happening.elapsed_ms())?, happening)))
        .collect()
}

/// The line below the curves: what happened where the crosshair is, within `reach` of it (a share of the width), what people
/// and guards did before checkpoints; else what the letters in view mean. None: there are none.
pub fn line(live: &Live, window: Window, reach: f64, shared: &Shared) -> Option<Line<'static>> {
    let axis = live.at.axis;
    if let Some(x) = live.at.crosshair {
        let at = window.share(x);
        let distance = |share: f64| (share - at).abs();
        let mut here: Vec<(f64, Happening<'_>)> = happenings(axis, window, shared)
            .filter(|(share, _)| distance(*share) <= reach)
            .collect();
        here.sort_by(|a, b| {
            let order = b.1.mark().cmp(&a.1.mark());
            order.then(distance(a.0).total_cmp(&distance(b.0)))
        });
        if let Some((_, first)) = here.first() {
            let others = match here.len() - 1 {
                0 => String::new(),
                count => format!("(+{count} here) "),
            };
            return Some(Line::from(vec![
                Span::styled(
                    format!(" {} ", first.mark().letter()),
                    shared.style(Role::Caution),
                ),
                Span::styled(
                    format!("{others}{} ", text::clock(first.elapsed_ms())),
                    shared.style(Role::Muted),
                ),
                Span::raw(first.words()),
            ]));
        }
    }
    legend(&in_view(axis, window, shared), shared)
}

/// `c checkpoint  a alarm`: of those that are in view. None: there are none.
fn legend(marks: &[(f64, Mark)], shared: &Shared) -> Option<Line<'static>> {
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
