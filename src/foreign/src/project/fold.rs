//! From a source's items to events of ours: which values make a step, when it was, and what a later one supersedes.
//!
//! - **A step** is whole when a later one begins, or when its source writes rows. Values for a step that is over are written as an
//!   evaluation of it: that is what they nearly always are, and the run's step does not go back for them.
//! - **Going back.** Where a metric comes again at an earlier step, its run was resumed: later values win, everywhere. A metric
//!   that counts in steps of its own (epochs, say) is no sign of that; both of its values stay.
//! - **Time** is the source's. Where it has none, it is what verl says a step took, else a second a step.

use std::borrow::Cow;
use std::collections::BTreeMap;

use runlog::event::{EventKind, Level, Phase};
use runlog::number::{Number, Values};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Report;
use super::host;
use super::terminal::Terminal;
use super::writer::Writer;
use crate::item::{Item, Moment, Row};
use crate::{Format, Found, names, yaml};

/// Notes that are told one by one.
const MOST_NOTES: usize = 100;
/// By these verl says how long a step took, seconds.
const STEP_TIMES: [&str; 2] = ["perf/time_per_step", "timing_s/step"];
/// Where experiments say how many steps they are to make.
const TOTAL_STEPS: [&str; 4] = [
    "trainer.total_training_steps",
    "max_steps",
    "total_steps",
    "total_training_steps",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Last {
    step: u64,
    /// It came with the run's newest step, not for an earlier one.
    is_current: bool,
}

/// Values of one step that are not written yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Gathering {
    step: u64,
    elapsed_ms: Number,
    values: Values,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Fold {
    format: Option<Format>,
    name: String,
    started_s: f64,
    /// Of the newest thing that had a time.
    last_ms: f64,
    next_seq: u64,
    has_started: bool,
    has_ended: bool,
    /// The newest step of the run.
    newest: Option<u64>,
    last: BTreeMap<String, Last>,
    /// Of the newest step.
    current: Option<Gathering>,
    /// Of a step before it.
    late: Option<Gathering>,
    values: u64,
    config: Map<String, Value>,
    host: String,
    terminal: Terminal,
    notes: Vec<String>,
    more_notes: u64,
    #[serde(skip)]
    is_config_changed: bool,
    #[serde(skip)]
    about: Option<(Option<String>, Option<String>)>,
    /// Followed as it happens: what has no time happens now.
    #[serde(skip)]
    pub is_live: bool,
    /// What the source holds by now was read once: what comes now happens now.
    #[serde(skip)]
    pub is_caught_up: bool,
}

impl Fold {
    pub fn new(found: &Found, started_s: f64) -> Self {
        Self {
            format: Some(found.format),
            name: found.name.clone(),
            started_s,
            ..Self::default()
        }
    }

    /// A run of this machine, from its first event on.
    pub fn start_live(&mut self, started: EventKind, writer: &mut Writer) {
        self.is_live = true;
        self.has_started = true;
        self.write(0.0, started, writer);
        let train = EventKind::PhaseChanged {
            phase: Phase::Train,
        };
        self.write(0.0, train, writer);
    }

    fn now_ms(&self) -> f64 {
        let now_s = jiff::Timestamp::now().as_microsecond() as f64 / 1e6;
        ((now_s - self.started_s) * 1e6).round() / 1e3
    }

    /// Another process goes on: what was left out before is told again only if it is met again.
    pub fn begin_session(&mut self) {
        self.is_caught_up = false;
    }

    pub fn is_ended(&self) -> bool {
        self.has_ended
    }

    pub fn report(&self) -> Report {
        Report {
            values: self.values,
            step: self.newest,
            metrics: self.last.len(),
            notes: self.notes.clone(),
            more_notes: self.more_notes,
            is_ended: self.has_ended,
        }
    }

    /// The settings as YAML, if they changed since they were asked for.
    pub fn changed_config(&mut self) -> Option<String> {
        std::mem::take(&mut self.is_config_changed).then(|| yaml::text(&self.config))
    }

    /// Host and commit, if they were told since they were asked for.
    pub fn changed_about(&mut self) -> Option<(Option<String>, Option<String>)> {
        self.about.take()
    }

    pub fn take(&mut self, item: Item, writer: &mut Writer) {
        match item {
            Item::Row(row) => self.row(row, writer),
            Item::About { host, commit, .. } => {
                if let Some(host) = &host {
                    self.host.clone_from(host);
                }
                if host.is_some() || commit.is_some() {
                    self.about = Some((host, commit));
                }
            }
            Item::Config(update) => {
                let before = self.config.clone();
                yaml::merge(&mut self.config, update);
                self.is_config_changed |= self.config != before;
            }
            Item::Output { text } => self.terminal.take(&text, |line| writer.log_line(line)),
            Item::Host { at, sample } => {
                let elapsed_ms = self.elapsed_ms(at);
                self.event(elapsed_ms, host::event(sample), writer);
            }
            Item::Alert {
                at,
                title,
                text,
                level,
                step,
            } => {
                let elapsed_ms = self.elapsed_ms(at);
                let message = [title, text].into_iter().filter(|part| !part.is_empty());
                let message = message.collect::<Vec<_>>().join(": ");
                let kind = if matches!(level, Level::Warning | Level::Error) {
                    EventKind::Alarm {
                        name: "alert".to_owned(),
                        step: step.or(self.newest),
                        message,
                    }
                } else {
                    EventKind::LogLine {
                        level,
                        target: self.source().to_owned(),
                        message,
                    }
                };
                self.event(elapsed_ms, kind, writer);
            }
            Item::Restart { at_step } => self.go_back(at_step.saturating_sub(1), writer),
            Item::Ended {
                at,
                status,
                exit_code,
                reason,
            } => {
                self.finish(writer);
                let elapsed_ms = self.elapsed_ms(at);
                let ended = EventKind::RunEnded {
                    status,
                    exit_code,
                    reason,
                    steps: self.newest.unwrap_or(0),
                };
                self.event(elapsed_ms, ended, writer);
                self.has_ended = true;
            }
            Item::Note(text) => {
                self.note(&text, writer);
            }
        }
    }

    /// Tells what was left out; false: it was told already.
    pub fn note(&mut self, text: &str, writer: &mut Writer) -> bool {
        if self.notes.iter().any(|known| known == text) {
            return false;
        }
        if self.notes.len() == MOST_NOTES {
            self.more_notes += 1;
            return true;
        }
        self.notes.push(text.to_owned());
        let line = EventKind::LogLine {
            level: Level::Warning,
            target: "import".to_owned(),
            message: text.to_owned(),
        };
        let elapsed_ms = if self.is_live {
            self.now_ms()
        } else {
            self.last_ms
        };
        self.event(elapsed_ms, line, writer);
        true
    }

    /// Writes the step that is being gathered, whole or not.
    pub fn flush(&mut self, writer: &mut Writer) {
        self.flush_late(writer);
        self.flush_current(writer);
    }

    /// Writes the line that was begun, too: nothing may come after it.
    pub fn finish(&mut self, writer: &mut Writer) {
        self.flush(writer);
        if let Some(line) = self.terminal.finish() {
            writer.log_line(&line);
        }
    }

    fn source(&self) -> &'static str {
        self.format.map_or("import", Format::name)
    }

    fn event(&mut self, elapsed_ms: f64, kind: EventKind, writer: &mut Writer) {
        if !self.has_started {
            self.has_started = true;
            self.start(0.0, writer);
        } else if self.has_ended && !matches!(kind, EventKind::LogLine { .. }) {
            // It goes on after its end: W&B appends to the same file.
            self.has_ended = false;
            self.start(elapsed_ms, writer);
        }
        self.write(elapsed_ms, kind, writer);
    }

    fn write(&mut self, elapsed_ms: f64, kind: EventKind, writer: &mut Writer) {
        writer.event(self.next_seq, elapsed_ms, kind);
        self.next_seq += 1;
    }

    fn start(&mut self, elapsed_ms: f64, writer: &mut Writer) {
        let started = EventKind::RunStarted {
            experiment_name: self.name.clone(),
            mode: self.source().to_owned(),
            total_steps: self.total_steps().unwrap_or(0),
            parameters: 0,
            pid: 0,
            host: self.host.clone(),
            seed: 0,
        };
        self.write(elapsed_ms, started, writer);
        let train = EventKind::PhaseChanged {
            phase: Phase::Train,
        };
        self.write(elapsed_ms, train, writer);
    }

    fn total_steps(&self) -> Option<u64> {
        TOTAL_STEPS.iter().find_map(|path| {
            let mut value = self.config.get(*path);
            if value.is_none() {
                let (first, rest) = path.split_once('.')?;
                value = self.config.get(first)?.get(rest);
            }
            value?.as_u64()
        })
    }

    /// Milliseconds since the run began; of what has no time, the latest one known.
    fn elapsed_ms(&mut self, at: Option<Moment>) -> f64 {
        let elapsed_ms = match at {
            Some(Moment::Wall(wall_s)) => (wall_s - self.started_s) * 1e3,
            Some(Moment::SinceStart(elapsed_s)) => elapsed_s * 1e3,
            None if self.is_live => self.now_ms(),
            None => return self.last_ms,
        };
        // Three decimals: a float of seconds since 1970 has no more.
        let elapsed_ms = (elapsed_ms.max(0.0) * 1e3).round() / 1e3;
        self.last_ms = self.last_ms.max(elapsed_ms);
        elapsed_ms
    }

    fn elapsed_ms_of_row(&mut self, row: &Row, writer: &mut Writer) -> f64 {
        if row.at.is_some() || self.is_live {
            return self.elapsed_ms(row.at);
        }
        let took_s = STEP_TIMES
            .iter()
            .find_map(|name| row.values.iter().find(|(known, _)| known == name))
            .map(|(_, seconds)| *seconds)
            .filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
        let is_first = self.newest.is_none();
        let is_same_step = self.newest == Some(row.step);
        match took_s {
            Some(took_s) => self.last_ms += took_s * 1e3,
            None if is_first || is_same_step => {}
            None if self.is_caught_up => {
                self.last_ms = self.last_ms.max(self.now_ms());
            }
            None => {
                self.last_ms += 1e3;
                let text = "the source has no times: its steps are put a second apart";
                self.note(text, writer);
            }
        }
        self.last_ms
    }

    fn row(&mut self, mut row: Row, writer: &mut Writer) {
        let format = self.format.unwrap_or(Format::Jsonl);
        for (name, _) in &mut row.values {
            if let Cow::Owned(ours) = names::ours(format, name) {
                *name = ours;
            }
        }
        self.look_for_resume(&row, writer);
        let elapsed_ms = self.elapsed_ms_of_row(&row, writer);
        let is_current = self.newest.is_none_or(|newest| row.step >= newest);
        for (name, _) in &row.values {
            let last = Last {
                step: row.step,
                is_current,
            };
            // Names repeat from row to row: most are there.
            match self.last.get_mut(name) {
                Some(known) => *known = last,
                None => {
                    self.last.insert(name.clone(), last);
                }
            }
        }
        self.values += row.values.len() as u64;
        if is_current {
            if self.newest != Some(row.step) {
                self.flush_late(writer);
                self.flush_current(writer);
            }
            self.newest = Some(row.step);
        }
        let gathered = if is_current {
            &self.current
        } else {
            &self.late
        };
        let is_full = gathered.as_ref().is_some_and(|gathered| {
            gathered.step != row.step
                || row
                    .values
                    .iter()
                    .any(|(name, _)| gathered.values.contains_key(name))
        });
        if is_full {
            // A second value at the same step is a value too.
            if is_current {
                self.flush_current(writer);
            } else {
                self.flush_late(writer);
            }
        }
        let gathered = if is_current {
            &mut self.current
        } else {
            &mut self.late
        };
        let gathered = gathered.get_or_insert_with(|| Gathering {
            step: row.step,
            ..Gathering::default()
        });
        gathered.elapsed_ms = Number(gathered.elapsed_ms.0.max(elapsed_ms));
        let values = row
            .values
            .into_iter()
            .map(|(name, value)| (name, Number(value)));
        gathered.values.extend(values);
    }

    /// A metric that comes again at an earlier step than it was at tells of a resume.
    fn look_for_resume(&mut self, row: &Row, writer: &mut Writer) {
        let goes_back = row.values.iter().find_map(|(name, _)| {
            let last = self.last.get(name).filter(|last| row.step < last.step)?;
            Some((name.clone(), *last))
        });
        let Some((name, last)) = goes_back else {
            return;
        };
        if !last.is_current {
            let text = format!(
                "{name} counts in steps of its own and goes back from {} to {}: all of its values are kept",
                last.step, row.step
            );
            let is_known = (self.notes.iter())
                .any(|note| note.starts_with(&format!("{name} counts in steps")));
            if !is_known {
                self.note(&text, writer);
            }
            return;
        }
        // verl evaluates once more before it goes on: what was trained in that step stays.
        let is_evaluation = row.values.iter().all(|(name, _)| is_validation(name));
        let from_step = if is_evaluation {
            row.step
        } else {
            row.step.saturating_sub(1)
        };
        self.go_back(from_step, writer);
    }

    /// What was said of later steps than `from_step` is superseded.
    fn go_back(&mut self, from_step: u64, writer: &mut Writer) {
        self.flush_late(writer);
        self.flush_current(writer);
        let Some(newest) = self.newest.filter(|newest| *newest > from_step) else {
            return;
        };
        let resumed = EventKind::RunResumed {
            from_step,
            checkpoint: None,
            lost_steps: newest - from_step,
            passed_over: Vec::new(),
        };
        self.event(self.last_ms, resumed, writer);
        self.newest = Some(from_step);
        for last in self.last.values_mut() {
            last.step = last.step.min(from_step);
        }
        let text =
            format!("the source goes back from step {newest} to {from_step}: later values win");
        self.note(&text, writer);
    }

    fn flush_current(&mut self, writer: &mut Writer) {
        let Some(Gathering {
            step,
            elapsed_ms: Number(elapsed_ms),
            values,
        }) = self.current.take()
        else {
            return;
        };
        let (validation, values): (Values, Values) = values
            .into_iter()
            .partition(|(name, _)| is_validation(name));
        if !values.is_empty() {
            let ended = EventKind::StepEnded {
                step,
                policy_version: step,
                values,
            };
            self.event(elapsed_ms, ended, writer);
        }
        if !validation.is_empty() {
            self.evaluation(step, elapsed_ms, validation, writer);
        }
    }

    fn flush_late(&mut self, writer: &mut Writer) {
        if let Some(late) = self.late.take() {
            self.evaluation(late.step, late.elapsed_ms.0, late.values, writer);
        }
    }

    fn evaluation(&mut self, step: u64, elapsed_ms: f64, values: Values, writer: &mut Writer) {
        let ended = EventKind::EvalEnded {
            step,
            policy_version: step,
            samples: 0,
            values,
        };
        self.event(elapsed_ms, ended, writer);
    }
}

/// verl logs what it measured on unseen prompts in the row of the step before.
fn is_validation(name: &str) -> bool {
    name.starts_with("val-core/") || name.starts_with("val-aux/")
}
