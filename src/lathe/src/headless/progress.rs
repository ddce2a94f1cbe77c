//! Live progress on a terminal: bars and curves that stay at the bottom, what matters for good scrolls above them.
//!
//! ```text
//!  ✓ eval at step 10: val reward 0.621
//!  train   ━━━━━━━━━━━━━━━╾────────────  42/120 steps  eta 1m 20s
//!  step 43 ━━━━━━━━╾───────────────────  24/64 rollouts
//!  reward 0.412 ▁▂▃▅█  kl 1.20e-3  entropy 1.21  length 34.2  sync 0.410 ms
//! ```

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use runlog::event::{Event, EventKind, Lane, Level, Phase};
use runlog::state::{Intervals, RunState};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::rows::{ENTROPY, KL, LENGTH, REWARD, SFT_LOSS};
use super::sparkline::sparkline;
use super::{View, format, plain};
use crate::cli::Failure;
use crate::terminal::{Role, Terminal};

/// Steps whose mean length the time left is reckoned from: enough to smooth, few enough to follow a change.
const ETA_STEPS: usize = 20;
/// Few enough that the line of values fits 80 columns.
const SPARK_COLUMNS: usize = 8;

#[derive(Debug)]
pub struct ProgressView {
    terminal: Terminal,
    bars: MultiProgress,
    steps: ProgressBar,
    rollouts: ProgressBar,
    values: ProgressBar,
    /// None when the experiment does not say.
    rollouts_per_step: Option<u64>,
    is_stopping: bool,
    /// How fresh a copy is; empty for runs of this machine.
    link: String,
    _quiet: QuietControls,
}

/// While it lives, the terminal does not echo `^C`: the echo would push the bars a line down, out of reach of their erasing.
#[derive(Debug)]
struct QuietControls {
    before: Option<Termios>,
}

impl QuietControls {
    fn new() -> Self {
        let before = tcgetattr(std::io::stdin()).ok();
        if let Some(before) = &before {
            let mut quiet = before.clone();
            quiet.local_modes.remove(LocalModes::ECHOCTL);
            // Without it there may be a stray `^C`, no more.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &quiet);
        }
        Self { before }
    }
}

impl Drop for QuietControls {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

impl ProgressView {
    pub fn new(terminal: Terminal, rollouts_per_step: Option<u64>) -> Self {
        let bars = MultiProgress::new();
        let characters = if terminal.unicode { "━╾─" } else { "=>-" };
        let color = if terminal.color { ".green" } else { "" };
        let bar_style = || {
            ProgressStyle::with_template(&format!("{{prefix:9}} {{bar:28{color}}}  {{msg}}"))
                .expect("the template is well formed")
                .progress_chars(characters)
        };
        let text_style =
            ProgressStyle::with_template("{msg}").expect("the template is well formed");
        let steps = bars.add(ProgressBar::new(1).with_style(bar_style()));
        let rollouts = bars.add(ProgressBar::new(1).with_style(bar_style()));
        let values = bars.add(ProgressBar::new(1).with_style(text_style));
        steps.set_prefix("starting");
        steps.set_message("loading libtorch, model and data");
        Self {
            terminal,
            bars,
            steps,
            rollouts,
            values,
            rollouts_per_step,
            is_stopping: false,
            link: String::new(),
            _quiet: QuietControls::new(),
        }
    }

    fn scroll(&self, role: Role, mark: (&'static str, &'static str), text: &str) {
        let mark = self
            .terminal
            .paint(role, self.terminal.glyph(mark.0, mark.1));
        // The bars are only drawn on a terminal; when it is gone there is nobody to tell.
        let _ = self.bars.println(format!("{mark} {text}"));
    }

    fn draw(&self, state: &RunState) {
        let total = state.total_steps().unwrap_or(0);
        self.steps.set_length(total.max(1));
        self.steps.set_position(state.step.min(total));
        self.steps.set_prefix(match state.phase {
            _ if self.is_stopping => "stopping",
            _ if state.is_paused => "paused",
            Some(phase) => plain::phase_text(phase),
            None => "starting",
        });
        if state.started.is_some() {
            let mut text = format!(
                "{}/{} steps",
                format::count(state.step),
                format::count(total)
            );
            if let Some(left) = time_left(state) {
                text.push_str("  eta ");
                text.push_str(&format::duration(left));
            }
            if !self.link.is_empty() {
                text.push_str("  ");
                text.push_str(&self.link);
            }
            self.steps.set_message(text);
        }
        self.draw_rollouts(state);
        self.values.set_message(values_line(state, self.terminal));
    }

    fn draw_rollouts(&self, state: &RunState) {
        let rollouts = &state.rollouts;
        if rollouts.ended == 0 || matches!(state.phase, Some(Phase::Sft)) {
            return;
        }
        self.rollouts
            .set_prefix(format!("step {}", rollouts.current_step));
        let ended = rollouts.current_ended;
        if let Some(all) = self.rollouts_per_step {
            self.rollouts.set_length(all.max(1));
            self.rollouts.set_position(ended.min(all));
            self.rollouts.set_message(format!("{ended}/{all} rollouts"));
        } else {
            self.rollouts.set_message(format!("{ended} rollouts"));
        }
    }
}

impl View for ProgressView {
    fn event(&mut self, event: &Event, state: &RunState) -> Result<(), Failure> {
        match &event.kind {
            EventKind::RunStarted { .. }
            | EventKind::RunResumed { .. }
            | EventKind::CheckpointSaved { .. }
            | EventKind::ControlApplied { .. } => {
                if let Some(line) = plain::line(&event.kind) {
                    self.scroll(Role::Muted, ("•", "*"), &line);
                }
            }
            EventKind::EvalEnded { step, .. } => {
                if let Some(evaluation) = state.evals.last() {
                    self.scroll(Role::Good, ("✓", "+"), &plain::eval_text(*step, evaluation));
                }
            }
            EventKind::Alarm { .. }
            | EventKind::ControlRefused { .. }
            | EventKind::WeightsSynced {
                verified: false, ..
            }
            | EventKind::LogLine {
                level: Level::Warning | Level::Error,
                ..
            } => {
                if let Some(line) = plain::line(&event.kind) {
                    self.scroll(Role::Caution, ("▲", "!"), &line);
                }
            }
            // What is left of log lines has one when it is advice.
            kind @ EventKind::LogLine { .. } => {
                if let Some(line) = plain::line(kind) {
                    self.scroll(Role::Muted, ("•", "*"), &line);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn wants_history(&self) -> bool {
        false
    }

    fn tick(&mut self, state: &RunState) {
        self.draw(state);
    }

    fn notice(&mut self, text: &str) {
        self.is_stopping = true;
        self.scroll(Role::Caution, ("▲", "!"), text);
    }

    fn link(&mut self, words: &str) {
        words.clone_into(&mut self.link);
    }

    fn link_notice(&mut self, text: &str) {
        self.scroll(Role::Caution, ("▲", "!"), text);
    }

    fn close(&mut self) {
        for bar in [&self.steps, &self.rollouts, &self.values] {
            bar.finish_and_clear();
        }
        let _ = self.bars.clear();
    }
}

/// From the mean length of the last steps, without the time in which the run was paused; None until two have ended.
fn time_left(state: &RunState) -> Option<Duration> {
    let total = state.total_steps()?;
    let (_, series) = REWARD.series(state).or_else(|| SFT_LOSS.series(state))?;
    let last = series.last()?;
    let first = series.point(series.len().saturating_sub(ETA_STEPS + 1));
    let steps = last
        .step
        .checked_sub(first.step)
        .filter(|steps| *steps > 0)?;
    let paused_ms = state.lanes.get(&Lane::Paused).map_or(0.0, |lane| {
        let mut window = Intervals::default();
        window.insert(first.elapsed_ms, last.elapsed_ms);
        lane.busy.shared_length(&window)
    });
    let step_ms = (last.elapsed_ms - first.elapsed_ms - paused_ms) / steps as f64;
    let left_ms = total.saturating_sub(state.step) as f64 * step_ms;
    Duration::try_from_secs_f64(left_ms / 1e3).ok()
}

fn values_line(state: &RunState, terminal: Terminal) -> String {
    let mut parts = Vec::new();
    for row in [REWARD, SFT_LOSS] {
        if let Some((_, series)) = row.series(state) {
            let recent = series.values();
            let recent = &recent[recent.len().saturating_sub(SPARK_COLUMNS * 4)..];
            let last = recent.last().copied().unwrap_or(f64::NAN);
            let curve = sparkline(recent, SPARK_COLUMNS, terminal);
            let label = row.label.trim_start_matches("train ");
            parts.push(format!("{label} {} {curve}", format::number(last)));
        }
    }
    for row in [KL, ENTROPY, LENGTH] {
        if let Some(last) = row.last(state) {
            parts.push(format!("{} {}", row.label, format::number(last)));
        }
    }
    if let Some(sync) = state.syncs.last() {
        parts.push(format!("sync {} ms", format::number(sync.transfer_ms)));
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use runlog::number::{Number, Values};

    use super::*;

    fn started(total_steps: u64) -> EventKind {
        EventKind::RunStarted {
            experiment_name: "t".to_owned(),
            mode: "sync".to_owned(),
            total_steps,
            parameters: 1,
            pid: 1,
            host: "h".to_owned(),
            seed: 1,
        }
    }

    fn step(step: u64) -> EventKind {
        EventKind::StepEnded {
            step,
            policy_version: step,
            values: Values::from([("critic/score/mean".to_owned(), Number(0.5))]),
        }
    }

    #[test]
    fn time_left_follows_the_latest_steps_and_needs_two() {
        let mut state = RunState::default();
        let mut elapsed_ms = 0.0;
        let mut apply = |state: &mut RunState, kind, ms: f64| {
            elapsed_ms += ms;
            let seq = state.events;
            state.apply(&Event {
                seq,
                elapsed_ms,
                kind,
            });
        };
        apply(&mut state, started(100), 0.0);
        apply(&mut state, step(1), 60_000.0);
        assert_eq!(time_left(&state), None);
        for index in 2..=40 {
            apply(&mut state, step(index), 1000.0);
        }
        assert_eq!(time_left(&state), Some(Duration::from_secs(60)));
        // Paused for an hour: what is left takes no longer than before.
        let paused = |start_ms: f64, end_ms: f64| EventKind::Span {
            lane: Lane::Paused,
            name: "paused".to_owned(),
            step: None,
            start_ms,
            end_ms,
        };
        let at = state.elapsed_ms;
        apply(&mut state, paused(at, at + 3_600_000.0), 3_600_000.0);
        apply(&mut state, step(41), 1000.0);
        assert_eq!(time_left(&state), Some(Duration::from_secs(59)));
    }
}
