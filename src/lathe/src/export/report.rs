//! A run as one HTML file: nothing is loaded from elsewhere, and it reads without a script.

use std::fmt::Write as _;
use std::time::SystemTime;

use experiment::{Experiment, keys};
use runlog::alarms::{Alarms, Finding, Limits, Severity};
use runlog::event::Lane;
use runlog::run_dir::RunDir;
use runlog::state::{Liveness, RunState, Summary, liveness, word};
use runlog::store::{RolloutRow, read_rollouts, rollouts_path};
use serde_json::Value as Json;

use super::picture::escaped;
use crate::headless::format;
use crate::headless::judges::{self, Judges};
use crate::tui::widgets::text;

/// Characters of one message shown; the rollout file has all of it.
const MESSAGE_CHARS: usize = 4000;
/// Alarms shown one by one.
const ALARMS_SHOWN: usize = 50;

/// What a report needs beside the fold of the events.
#[derive(Debug)]
pub struct Extras {
    pub liveness: Liveness,
    pub bad_lines: u64,
    /// Keys whose value is not the default: key, value used, default.
    pub changed: Vec<(String, String, String)>,
    /// The experiment as the run has it.
    pub experiment_yaml: String,
    /// The arms of its reward.
    pub judges: Option<Judges>,
    /// Of the last step that has rollouts: the best, the middle and the worst.
    pub dialogues: Vec<RolloutRow>,
    /// What of these could not be read.
    pub problems: Vec<String>,
}

impl Extras {
    pub fn read(run: &RunDir, state: &RunState, bad_lines: u64, now: SystemTime) -> Self {
        let end = state
            .ended
            .as_ref()
            .map(|ended| (ended.status, ended.reason.as_str()));
        let mut problems = Vec::new();
        let experiment_yaml = match std::fs::read_to_string(run.experiment_path()) {
            Ok(text) => text,
            Err(error) => {
                problems.push(format!("{}: {error}", run.experiment_path().display()));
                String::new()
            }
        };
        let dialogues = (1..=state.step)
            .rev()
            .map(|step| rollouts_path(run, step))
            .find(|path| path.exists())
            .map(|path| read_rollouts(&path).map(typical))
            .transpose()
            .unwrap_or_else(|error| {
                problems.push(error.to_string());
                None
            });
        Self {
            liveness: liveness(run, end, now),
            bad_lines,
            changed: changed_keys(&experiment_yaml),
            judges: Judges::of(
                &experiment::from_text("experiment.yaml", &experiment_yaml, &[])
                    .experiment
                    .reward,
            ),
            experiment_yaml,
            dialogues: dialogues.unwrap_or_default(),
            problems,
        }
    }
}

/// The keys of an experiment whose value differs from the default.
fn changed_keys(yaml: &str) -> Vec<(String, String, String)> {
    let loaded = experiment::from_text("experiment.yaml", yaml, &[]);
    let used = loaded.effective();
    let Ok(default) = serde_json::to_value(Experiment::default()) else {
        return Vec::new();
    };
    keys::live()
        .iter()
        .filter_map(|key| {
            let at = |tree: &Json| {
                let pointer = format!("/{}", key.path.replace('.', "/"));
                tree.pointer(&pointer).cloned()
            };
            let (used, default) = (at(&used)?, at(&default).unwrap_or(Json::Null));
            (used != default).then(|| (key.path.clone(), used.to_string(), default.to_string()))
        })
        .collect()
}

/// The best, the middle and the worst by score; fewer when there are fewer.
fn typical(mut rows: Vec<RolloutRow>) -> Vec<RolloutRow> {
    rows.retain(|row| row.score.is_some());
    rows.sort_by(|a, b| {
        let score = |row: &RolloutRow| row.score.unwrap_or(f64::NEG_INFINITY);
        score(b).total_cmp(&score(a))
    });
    let last = rows.len().saturating_sub(1);
    let mut wanted = vec![0, last / 2, last];
    wanted.dedup();
    rows.into_iter()
        .enumerate()
        .filter(|(index, _)| wanted.contains(index))
        .map(|(_, row)| row)
        .collect()
}

pub fn html(run: &RunDir, state: &RunState, extras: &Extras, curves: Option<&str>) -> String {
    let mut page = String::new();
    let name = escaped(run.name());
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n"
    );
    let state_class = match extras.liveness {
        Liveness::Finished => "good",
        Liveness::Running | Liveness::Stopped | Liveness::Silent { .. } => "caution",
        Liveness::Failed { .. } | Liveness::PresumedDead { .. } => "bad",
    };
    let _ = write!(
        page,
        "<p><span class=\"{state_class}\">{}</span>",
        word(&extras.liveness, state.is_paused)
    );
    if let Some(reason) = extras.liveness.reason() {
        let _ = write!(page, ": {}", escaped(reason));
    }
    page.push_str("</p>\n");
    for problem in &extras.problems {
        let _ = writeln!(
            page,
            "<p class=\"bad\">not readable: {}</p>",
            escaped(problem)
        );
    }
    facts(&mut page, run, state, extras);
    page.push_str("<h2>Curves</h2>\n");
    match curves {
        Some(svg) => page.push_str(svg),
        None => page.push_str("<p>No metrics were recorded.</p>\n"),
    }
    alarms(&mut page, state);
    bandit(&mut page, state, extras.judges.as_ref());
    lanes(&mut page, state);
    metrics(&mut page, state);
    configuration(&mut page, extras);
    dialogues(&mut page, extras);
    page.push_str("</body>\n</html>\n");
    page
}

fn row(page: &mut String, label: &str, value: &str) {
    let _ = writeln!(
        page,
        "<tr><th>{}</th><td>{}</td></tr>",
        escaped(label),
        escaped(value)
    );
}

fn facts(page: &mut String, run: &RunDir, state: &RunState, extras: &Extras) {
    let info = run.info();
    let summary: Summary = state.summary();
    page.push_str("<table class=\"facts\">\n");
    row(page, "experiment", &info.experiment_name);
    row(page, "mode", &summary.mode);
    row(page, "seed", &summary.seed.to_string());
    row(
        page,
        "steps",
        &match summary.total_steps {
            0 => summary.steps.to_string(),
            total => format!("{} of {total}", summary.steps),
        },
    );
    let wall = std::time::Duration::try_from_secs_f64(summary.wall_s).unwrap_or_default();
    row(page, "time", &format::duration(wall));
    row(page, "started", &info.started_at.to_string());
    row(page, "host", &info.host);
    if let Some(git) = &info.git {
        let dirty = if git.dirty { " with local changes" } else { "" };
        row(page, "commit", &format!("{}{dirty}", git.commit));
    }
    if !info.command.is_empty() {
        row(page, "command", &info.command.join(" "));
    }
    let number = |value: Option<runlog::number::Number>| {
        value.map_or_else(|| "not evaluated".to_owned(), |value| text::number(value.0))
    };
    row(
        page,
        "test reward, first and last",
        &format!(
            "{} to {}",
            number(summary.val_reward_first),
            number(summary.val_reward_last)
        ),
    );
    if let Some(overlap) = summary.overlap_frac {
        row(
            page,
            "overlap",
            &format!(
                "{:.0} % of generation ran while the learner worked",
                overlap * 100.0
            ),
        );
    }
    let unverified = if summary.syncs_unverified == 0 {
        "all verified".to_owned()
    } else {
        format!("{} NOT verified", summary.syncs_unverified)
    };
    row(
        page,
        "weight syncs",
        &format!("{}, {unverified}", summary.syncs),
    );
    row(page, "rollouts", &summary.rollouts.to_string());
    if summary.missing_scores > 0 {
        row(page, "missing scores", &summary.missing_scores.to_string());
    }
    row(page, "alarms", &summary.alarms.to_string());
    if extras.bad_lines + summary.missing_events > 0 {
        row(
            page,
            "log",
            &format!(
                "{} events missing, {} lines unreadable",
                summary.missing_events, extras.bad_lines
            ),
        );
    }
    page.push_str("</table>\n");
}

fn alarms(page: &mut String, state: &RunState) {
    let _ = writeln!(page, "<h2>Alarms</h2>");
    let found = detected(page, state);
    if state.alarms.is_empty() {
        if !found {
            page.push_str("<p>None.</p>\n");
        }
        return;
    }
    page.push_str("<p>Reported by the trainer:</p>\n<table>\n<tr><th>step</th><th>alarm</th><th>what</th></tr>\n");
    for alarm in state.alarms.iter().take(ALARMS_SHOWN) {
        let step = alarm.step.map_or_else(String::new, |step| step.to_string());
        let _ = writeln!(
            page,
            "<tr><td>{step}</td><td>{}</td><td>{}</td></tr>",
            escaped(&alarm.name),
            escaped(&alarm.message)
        );
    }
    page.push_str("</table>\n");
    let more = state.alarm_count.saturating_sub(ALARMS_SHOWN as u64);
    if more > 0 {
        let _ = writeln!(page, "<p>and {more} more</p>");
    }
}

/// What the detectors of the workbench see in the curves, in the order in which it began. False: nothing.
fn detected(page: &mut String, state: &RunState) -> bool {
    let mut alarms = Alarms::new(Limits::default());
    alarms.follow(state);
    let mut findings: Vec<&Finding> = alarms.active().iter().chain(alarms.past()).collect();
    findings.sort_by(|a, b| a.since_ms.total_cmp(&b.since_ms));
    if findings.is_empty() {
        return false;
    }
    page.push_str("<p>Seen in the curves:</p>\n<table>\n<tr><th>since step</th><th>until</th><th>alarm</th><th>what</th><th>before it</th></tr>\n");
    for finding in findings.iter().take(ALARMS_SHOWN) {
        let class = match finding.severity {
            Severity::Critical => "bad",
            Severity::Warning => "caution",
        };
        let until = finding
            .until_ms
            .map_or_else(|| "the end".to_owned(), text::clock);
        let before: Vec<&str> = finding
            .what_changed
            .iter()
            .take(2)
            .map(|change| change.what.as_str())
            .collect();
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{until}</td><td class=\"{class}\">{}</td><td>{}</td><td class=\"muted\">{}</td></tr>",
            finding.since_step,
            escaped(&finding.name.replace('_', " ")),
            escaped(&finding.message),
            escaped(&before.join("; "))
        );
    }
    page.push_str("</table>\n");
    let more = findings.len().saturating_sub(ALARMS_SHOWN);
    if more > 0 {
        let _ = writeln!(page, "<p>and {more} more</p>");
    }
    true
}

/// Arms that are summed, with what the last step says of them; nothing of a run without any.
fn arms(page: &mut String, state: &RunState, judges: Option<&Judges>) {
    let arms = judges::judged(state, judges);
    if arms.is_empty() {
        return;
    }
    let policy = judges.map_or("", Judges::policy_word);
    page.push_str("<h2>Arms</h2>\n<table class=\"facts\">\n");
    row(page, "policy", policy);
    page.push_str("</table>\n<table>\n<tr><th>arm</th><th>weight</th><th>score</th><th>p50 ms</th><th>p99 ms</th><th>late</th><th>missing</th></tr>\n");
    let number = |value: Option<f64>| value.map_or_else(String::new, text::number);
    let share = |share: Option<f64>| share.map_or_else(String::new, judges::percent);
    for arm in arms {
        let _ = write!(page, "<tr><td>{}</td>", escaped(&arm.name));
        for cell in [
            number(arm.weight),
            number(arm.score),
            number(arm.latency_ms.map(|(p50, _)| p50)),
            number(arm.latency_ms.map(|(_, p99)| p99)),
            share(arm.timed_out_frac),
            share(arm.missing_frac),
        ] {
            let _ = write!(page, "<td class=\"number\">{}</td>", escaped(&cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

/// The arms as the last update left them; of a run without a bandit those that are summed.
fn bandit(page: &mut String, state: &RunState, judges: Option<&Judges>) {
    let Some(bandit) = state.bandit_summary() else {
        arms(page, state, judges);
        return;
    };
    page.push_str("<h2>Bandit</h2>\n<table class=\"facts\">\n");
    row(page, "policy", &bandit.policy);
    row(page, "choices", &bandit.choices.to_string());
    let reasons: Vec<String> = (bandit.reasons.iter())
        .map(|(why, count)| format!("{why} {count}"))
        .collect();
    row(page, "reasons", &reasons.join(", "));
    row(page, "updates", &bandit.updates.to_string());
    for (label, value) in [
        ("estimated regret", bandit.regret),
        ("disagreement", bandit.disagreement),
        ("epsilon", bandit.epsilon),
        ("probe accuracy", bandit.probe_accuracy),
    ] {
        if let Some(value) = value {
            row(page, label, &text::number(value.0));
        }
    }
    page.push_str("</table>\n<table>\n<tr><th>arm</th><th>state</th><th>pulls</th><th>mean</th><th>sd</th><th>chance</th><th>timed out</th><th>missing</th><th>score</th></tr>\n");
    let number = |value: Option<runlog::number::Number>| {
        value.map_or_else(String::new, |value| text::number(value.0))
    };
    for arm in &bandit.arms {
        let score = state
            .series
            .get(&format!("reward/arm/{}/score/mean", arm.name));
        let score = score.and_then(|score| Some(score.last()?.value));
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            escaped(&arm.name),
            arm.words(),
            arm.pulls,
            number(arm.mean),
            number(arm.sd),
            number(arm.chance),
            arm.timed_out,
            arm.missing,
            number(score)
        );
    }
    for (judge, score) in &bandit.held_out {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>held out</td><td></td><td></td><td></td><td></td><td></td><td></td><td class=\"number\">{}</td></tr>",
            escaped(judge),
            text::number(score.0)
        );
    }
    page.push_str("</table>\n");
}

fn lanes(page: &mut String, state: &RunState) {
    if state.lanes.is_empty() || state.elapsed_ms <= 0.0 {
        return;
    }
    page.push_str(
        "<h2>Time</h2>\n<table>\n<tr><th>lane</th><th>busy</th><th>share of the run</th></tr>\n",
    );
    for lane in Lane::ALL.into_iter().chain([Lane::Other]) {
        let Some(time) = state.lanes.get(&lane) else {
            continue;
        };
        let busy_ms = time.busy.length();
        let share = (busy_ms / state.elapsed_ms).clamp(0.0, 1.0) * 100.0;
        let busy = std::time::Duration::try_from_secs_f64(busy_ms / 1e3).unwrap_or_default();
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"number\">{}</td><td><meter max=\"100\" value=\"{share:.1}\"></meter> {share:.0} %</td></tr>",
            lane.name().replace('_', " "),
            format::duration(busy)
        );
    }
    page.push_str("</table>\n");
}

fn metrics(page: &mut String, state: &RunState) {
    if state.series.is_empty() {
        return;
    }
    page.push_str("<h2>Metrics</h2>\n<details><summary>first, last, least and most of each</summary>\n<table>\n<tr><th>metric</th><th>unit</th><th>first</th><th>last</th><th>least</th><th>most</th><th>values</th><th>not finite</th></tr>\n");
    for (name, series) in state.series.iter() {
        let unit = runlog::metrics::lookup(name).map_or("", |metric| metric.unit);
        let number = |value: Option<f64>| value.map_or_else(String::new, text::number);
        let bounds = series.bounds(0..series.len());
        let _ = writeln!(
            page,
            "<tr><td><code>{}</code></td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            escaped(name),
            escaped(unit),
            number(series.first().map(|point| point.value.0)),
            number(series.last().map(|point| point.value.0)),
            number(bounds.map(|bounds| bounds.min)),
            number(bounds.map(|bounds| bounds.max)),
            series.len(),
            series.non_finite()
        );
    }
    page.push_str("</table>\n</details>\n");
}

fn configuration(page: &mut String, extras: &Extras) {
    page.push_str("<h2>Configuration</h2>\n");
    if extras.changed.is_empty() {
        page.push_str("<p>Every key has its default.</p>\n");
    } else {
        page.push_str("<table>\n<tr><th>key</th><th>here</th><th>default</th></tr>\n");
        for (key, value, default) in &extras.changed {
            let _ = writeln!(
                page,
                "<tr><td><code>{}</code></td><td><code>{}</code></td><td class=\"muted\"><code>{}</code></td></tr>",
                escaped(key),
                escaped(value),
                escaped(default)
            );
        }
        page.push_str("</table>\n");
    }
    if !extras.experiment_yaml.is_empty() {
        let _ = writeln!(
            page,
            "<details><summary>experiment.yaml</summary>\n<pre>{}</pre>\n</details>",
            escaped(&extras.experiment_yaml)
        );
    }
}

fn dialogues(page: &mut String, extras: &Extras) {
    page.push_str("<h2>Dialogues</h2>\n");
    if extras.dialogues.is_empty() {
        page.push_str("<p>No rollouts are kept.</p>\n");
    }
    for row in &extras.dialogues {
        let score = row.score.map_or_else(|| "none".to_owned(), text::number);
        let _ = writeln!(
            page,
            "<details open><summary>step {}, score {score}, {} tokens, {}</summary>",
            row.step,
            row.response_ids.len(),
            escaped(&row.finish)
        );
        let messages: Vec<Json> = serde_json::from_str(&row.messages).unwrap_or_default();
        for message in &messages {
            let role = message["role"].as_str().unwrap_or("?");
            let _ = writeln!(
                page,
                "<div class=\"turn\"><b>{}</b><pre>{}</pre></div>",
                escaped(role),
                escaped(&shortened(&spoken(message)))
            );
        }
        page.push_str("</details>\n");
    }
}

/// The words of a message and its tool calls.
fn spoken(message: &Json) -> String {
    let mut spoken = match &message["content"] {
        Json::String(text) => text.clone(),
        Json::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        Json::Null => String::new(),
        other => other.to_string(),
    };
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        if !spoken.is_empty() {
            spoken.push('\n');
        }
        let _ = write!(spoken, "call {call}");
    }
    spoken
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}… (cut)", &text[..end]),
        None => text.to_owned(),
    }
}

const STYLE: &str = "\
body{font-family:system-ui,sans-serif;max-width:1240px;margin:2em auto;padding:0 1em;color:#262626;background:#fff;line-height:1.4}\
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em;border-bottom:1px solid #ddd}\
table{border-collapse:collapse;font-size:.9em}th,td{text-align:left;padding:.2em .8em .2em 0;vertical-align:top}\
tr+tr td{border-top:1px solid #eee}.number{text-align:right;font-variant-numeric:tabular-nums}\
.muted{color:#777}.good{color:#1a7f37;font-weight:bold}.bad{color:#b3261e;font-weight:bold}.caution{color:#9a6700;font-weight:bold}\
pre{white-space:pre-wrap;background:#f6f6f6;padding:.6em;margin:.2em 0;overflow-wrap:anywhere}\
.turn{margin:.4em 0 .4em 1em}svg{max-width:100%;height:auto}summary{cursor:pointer}meter{width:8em}";
