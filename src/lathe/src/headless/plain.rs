//! A short line per step, evaluation, alarm and checkpoint; on request every metric in verl's console form. For pipes,
//! logs and batch jobs.

use std::collections::BTreeMap;

use runlog::control::find_knob;
use runlog::event::{BanditArm, Event, EventKind, Level, Phase};
use runlog::loggers::step_line;
use runlog::number::Number;
use runlog::state::{Evaluation, RunState};

use super::rows::{ENTROPY, KL, LENGTH, REWARD, SFT_LOSS, STEP_TIME};
use super::{View, format};
use crate::cli::{Failure, Output};

#[derive(Debug)]
pub struct PlainView<'a> {
    out: &'a mut Output,
    is_verbose: bool,
    /// Alarms so far, by name.
    alarms: BTreeMap<String, u64>,
}

/// Who says whether asynchrony pays.
const ADVISOR: &str = "advisor";

/// Alarms of one name that are told one by one; then the tenth, the hundredth, …
const ALARMS_TOLD: u64 = 3;

impl<'a> PlainView<'a> {
    /// `is_verbose`: every metric of each step, in verl's console form.
    pub fn new(out: &'a mut Output, is_verbose: bool) -> Self {
        Self {
            out,
            is_verbose,
            alarms: BTreeMap::new(),
        }
    }

    /// What an alarm says, unless it said the like often enough.
    fn alarm(&mut self, name: &str, kind: &EventKind) -> Option<String> {
        let count = self.alarms.entry(name.to_owned()).or_default();
        *count += 1;
        let is_round = count.ilog10() > 0 && *count == 10_u64.pow(count.ilog10());
        let more = match *count {
            ALARMS_TOLD => " (the 3rd of its kind; from here on the 10th, the 100th, … are told)",
            few if few < ALARMS_TOLD => "",
            _ if is_round => return Some(format!("{} (number {count} of its kind)", line(kind)?)),
            _ => return None,
        };
        Some(format!("{}{more}", line(kind)?))
    }
}

impl View for PlainView<'_> {
    fn event(&mut self, event: &Event, state: &RunState) -> Result<(), Failure> {
        let line = match &event.kind {
            EventKind::StepEnded { step, .. } if !self.is_verbose => Some(step_text(*step, state)),
            EventKind::EvalEnded { step, .. } if !self.is_verbose => state
                .evals
                .last()
                .map(|evaluation| eval_text(*step, evaluation)),
            kind @ EventKind::Alarm { name, .. } => self.alarm(name, kind),
            kind => line(kind),
        };
        match line {
            Some(line) => self.out.line(&line),
            None => Ok(()),
        }
    }
}

/// `step  3/80  reward 0.445     kl 1.63e-3   …  1.15 s/step`
fn step_text(step: u64, state: &RunState) -> String {
    let total = state.total_steps().unwrap_or(0).to_string();
    let mut parts = vec![match total.as_str() {
        "0" => format!("step {step}"),
        total => format!("step {step:>width$}/{total}", width = total.len()),
    }];
    for row in [REWARD, SFT_LOSS, KL, ENTROPY, LENGTH] {
        if let Some(value) = row.last_at(step, state) {
            let label = row.label.trim_start_matches("train ");
            // The widest number is `-1.23e-10`.
            parts.push(format!("{label} {:<9}", format::number(value)));
        }
    }
    if let Some(sync) = state.syncs.last() {
        let sync = format!("sync {} ms", format::number(sync.transfer_ms));
        parts.push(format!("{sync:<13}"));
    }
    if let Some(step_s) = STEP_TIME.last_at(step, state) {
        parts.push(format!("{} s/step", format::number(step_s)));
    }
    parts.join("  ").trim_end().to_owned()
}

/// `eval at step 10: val reward 0.621 over 256 samples`
pub fn eval_text(step: u64, evaluation: &Evaluation) -> String {
    let samples = format::plural(evaluation.samples, "sample");
    match runlog::state::val_reward(evaluation) {
        Some(reward) => format!(
            "eval at step {step}: val reward {} over {samples}",
            format::number(reward)
        ),
        None => format!("eval at step {step} over {samples}"),
    }
}

/// None: an event that has no line.
pub fn line(kind: &EventKind) -> Option<String> {
    Some(match kind {
        // Another tracker's: no process of ours.
        EventKind::RunStarted {
            experiment_name,
            mode,
            pid: 0,
            ..
        } => format!("started {experiment_name}: a {mode} run"),
        EventKind::RunStarted {
            experiment_name,
            mode,
            total_steps,
            parameters,
            seed,
            ..
        } => format!(
            "started {experiment_name}: {mode}, {}, {} parameters, seed {seed}",
            format::plural(*total_steps, "step"),
            format::count(*parameters)
        ),
        EventKind::RunResumed {
            from_step,
            checkpoint,
            lost_steps,
            passed_over,
        } => {
            let from = checkpoint.as_ref().map_or_else(
                || "resumed from the start: there was no checkpoint".to_owned(),
                |path| format!("resumed after step {from_step} from {path}"),
            );
            let mut words = format!(
                "{from}; {} trained again",
                format::plural(*lost_steps, "later step")
            );
            for problem in passed_over {
                words.push_str("; passed over: ");
                words.push_str(problem);
            }
            words
        }
        EventKind::PhaseChanged { phase } => format!("phase {}", phase_text(*phase)),
        EventKind::StepEnded { step, values, .. } => step_line(*step, values),
        EventKind::EvalEnded {
            step,
            samples,
            values,
            ..
        } => format!("eval {} - samples:{samples}", step_line(*step, values)),
        EventKind::CheckpointSaved {
            step, path, bytes, ..
        } => {
            format!(
                "checkpoint at step {step}: {path} ({})",
                format::bytes(*bytes)
            )
        }
        EventKind::Alarm {
            name,
            step,
            message,
        } => match step {
            Some(step) => format!("alarm {name} at step {step}: {message}"),
            None => format!("alarm {name}: {message}"),
        },
        EventKind::ControlApplied {
            who,
            command,
            step,
            knob,
            from,
            to,
            from_step,
            target,
            before,
            after,
            ..
        } => {
            let change = change(knob.as_deref().or(target.as_deref()), *from, *to);
            let stood = before.as_deref().zip(after.as_deref());
            let became = stood.map_or_else(String::new, |(before, after)| {
                format!(" ({before} -> {after})")
            });
            let from_step = from_step.map_or_else(
                || format!("at step {step}"),
                |from_step| format!("from step {from_step}"),
            );
            format!("{command}{change}{became} {from_step}, by {who}")
        }
        EventKind::ControlRefused {
            who,
            command,
            knob,
            target,
            to,
            reason,
            ..
        } => {
            let change = change(knob.as_deref().or(target.as_deref()), None, *to);
            format!("refused {command}{change} of {who}: {reason}")
        }
        // One that is for a whole batch: a line for each rollout would hide the steps.
        EventKind::BanditChose {
            step,
            uid,
            arm,
            why,
            ..
        } if uid.is_empty() => {
            let arm = arm.as_deref().unwrap_or("all arms");
            format!("bandit: {arm} from step {step} ({why})")
        }
        EventKind::BanditUpdated {
            update, step, arms, ..
        } => {
            let beliefs: Vec<String> = arms.iter().map(belief).collect();
            format!(
                "bandit update {update} after step {step}: {}",
                beliefs.join(", ")
            )
        }
        EventKind::LogLine {
            level: level @ (Level::Warning | Level::Error),
            message,
            ..
        } => {
            let word = if *level == Level::Error {
                "error"
            } else {
                "warning"
            };
            format!("{word}: {message}")
        }
        EventKind::LogLine {
            target, message, ..
        } if target == ADVISOR => format!("advice: {message}"),
        EventKind::WeightsSynced {
            version,
            verified: false,
            ..
        } => format!("alarm weight sync of version {version} could not be verified"),
        _ => return None,
    })
}

/// `rule 0.712 (sd 0.0310)`
fn belief(arm: &BanditArm) -> String {
    let mean = arm
        .mean
        .map_or_else(|| "unknown".to_owned(), |mean| format::number(mean.0));
    let sd = arm
        .sd
        .map_or_else(String::new, |sd| format!(" (sd {})", format::number(sd.0)));
    format!("{} {mean}{sd}", arm.name)
}

/// ` actor.optim.lr 1e-6 -> 1e-5`, ` kl`; empty for a command that is about nothing.
fn change(knob: Option<&str>, from: Option<Number>, to: Option<Number>) -> String {
    let Some(key) = knob else {
        return String::new();
    };
    let name = find_knob(key).map_or(key, |knob| knob.name);
    let values: Vec<String> = [from, to]
        .into_iter()
        .flatten()
        .map(|value| format::number(value.0))
        .collect();
    let space = if values.is_empty() { "" } else { " " };
    format!(" {name}{space}{}", values.join(" -> "))
}

pub fn phase_text(phase: Phase) -> &'static str {
    match phase {
        Phase::Setup => "setup",
        Phase::Sft => "warm-up",
        Phase::Train => "train",
        Phase::Finish => "finish",
        Phase::Other => "other",
    }
}
