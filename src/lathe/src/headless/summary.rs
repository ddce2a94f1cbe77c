//! The end of a run in a screenful: what improved, where time went, whether every sync was proved, where it lies.

use std::collections::BTreeMap;
use std::path::Path;

use runlog::alarms::{Alarms, Finding, Limits};
use runlog::control::ASYNC_ADVISOR;
use runlog::event::Lane;
use runlog::number::Number;
use runlog::run_dir::RunDir;
use runlog::state::{
    AlarmGroup, AlarmRecord, ControlRecord, Outcome, Percentiles, RunState, Series,
};

use super::judges::{self, Judges};
use super::rows::{ENTROPY, KL, LENGTH, REWARD, SFT_LOSS};
use super::sparkline::sparkline;
use super::{arms, format};
use crate::terminal::{Role, Terminal};

const LABEL_COLUMNS: usize = 15;
const SPARK_COLUMNS: usize = 24;
const BAR_COLUMNS: usize = 20;
/// Kinds of alarms, and trips of guards, shown one by one; the counts tell of the rest.
const ALARMS_SHOWN: usize = 5;
const TRIPS_SHOWN: usize = 6;
const CHANGES_SHOWN: usize = 6;

/// How the run stands, in one word and at most one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub word: String,
    pub role: Role,
    pub reason: Option<String>,
}

/// The whole text, lines without a newline.
pub fn lines(
    state: &RunState,
    run_dir: &Path,
    standing: &Standing,
    bad_lines: u64,
    judges: Option<&Judges>,
    terminal: Terminal,
) -> Vec<String> {
    let mut lines = vec![headline(state, standing, terminal)];
    if let Some(reason) = &standing.reason {
        lines.push(format!("  {reason}"));
    }
    lines.push(String::new());
    curves(&mut lines, state, terminal);
    lanes(&mut lines, state, terminal);
    bandit(&mut lines, state, judges, terminal);
    syncs(&mut lines, state, terminal);
    alarms(&mut lines, state, bad_lines, terminal);
    lines.push(labelled("run", &run_dir.display().to_string()));
    if let Some(checkpoint) = state.checkpoints.last() {
        let path = run_dir.join(&checkpoint.path);
        let words = match copied_from(run_dir) {
            Some((target, id)) if !path.exists() => format!(
                "{} on {target}; fetch it: lathe pull {id} --checkpoint latest",
                checkpoint.path
            ),
            _ => format!("{} (Hugging Face layout)", path.display()),
        };
        lines.push(labelled("model", &words));
    }
    lines
}

fn headline(state: &RunState, standing: &Standing, terminal: Terminal) -> String {
    let name = state
        .started
        .as_ref()
        .map_or("run", |started| started.experiment_name.as_str());
    let steps = match state.total_steps() {
        // Of another tracker's run it is not known.
        Some(0) => format::plural(state.step, "step"),
        Some(total) => format!(
            "{} of {}",
            format::count(state.step),
            format::plural(total, "step")
        ),
        None => "not started".to_owned(),
    };
    // Some trackers' logs have no times.
    let duration = if state.elapsed_ms > 0.0 {
        format!(" in {}", format::duration(seconds(state.elapsed_ms)))
    } else {
        String::new()
    };
    format!(
        "{}  {}  {steps}{duration}",
        terminal.paint(Role::Strong, name),
        terminal.paint(standing.role, &standing.word),
    )
}

/// The machine that a copy's run is on, and the run's id.
fn copied_from(run_dir: &Path) -> Option<(String, String)> {
    let run_dir = RunDir::open(run_dir).ok()?;
    let target = run_dir.origin()?.target()?.to_owned();
    Some((target, run_dir.info().id.clone()))
}

fn curves(lines: &mut Vec<String>, state: &RunState, terminal: Terminal) {
    let val: Vec<f64> = state.val_rewards().map(|(_, reward)| reward).collect();
    let mut any = !val.is_empty();
    if any {
        lines.push(curve("val reward", &val, true, terminal));
    }
    for (row, higher_is_better) in [
        (REWARD, true),
        (SFT_LOSS, false),
        (KL, false),
        (ENTROPY, false),
        (LENGTH, false),
    ] {
        let judged = matches!(row.label, "train reward" | "loss");
        if let Some((_, series)) = row.series(state) {
            any = true;
            let mut line = curve(
                row.label,
                series.values(),
                judged && higher_is_better,
                terminal,
            );
            note_non_finite(&mut line, series, terminal);
            lines.push(line);
        }
    }
    if any {
        lines.push(String::new());
    }
}

/// `label   0.412 -> 0.934  ▁▂▄█  +0.522`
fn curve(label: &str, values: &[f64], is_judged: bool, terminal: Terminal) -> String {
    let (first, last) = (values[0], values[values.len() - 1]);
    if values.len() == 1 {
        // From a number to itself would read as a change that failed to come.
        return format!("  {label:LABEL_COLUMNS$}{:>8}", format::number(last));
    }
    let arrow = terminal.glyph("→", "->");
    let span = format!(
        "{:>8} {arrow} {:<8}",
        format::number(first),
        format::number(last)
    );
    let mut line = format!(
        "  {label:LABEL_COLUMNS$}{span}  {}",
        sparkline(values, SPARK_COLUMNS, terminal)
    );
    if is_judged {
        let change = last - first;
        let role = if change > 0.0 { Role::Good } else { Role::Bad };
        let sign = if change > 0.0 { "+" } else { "" };
        line.push_str("  ");
        line.push_str(&terminal.paint(role, &format!("{sign}{}", format::number(change))));
    }
    line
}

fn note_non_finite(line: &mut String, series: Series<'_>, terminal: Terminal) {
    if series.non_finite() > 0 {
        let text = format!("  {} not finite", format::count(series.non_finite()));
        line.push_str(&terminal.paint(Role::Bad, &text));
    }
}

fn lanes(lines: &mut Vec<String>, state: &RunState, terminal: Terminal) {
    if state.lanes.is_empty() || state.elapsed_ms <= 0.0 {
        return;
    }
    lines.push("  time in each lane, share of the run".to_owned());
    let block = terminal.glyph("█", "#");
    for lane in Lane::ALL.into_iter().chain([Lane::Other]) {
        let Some(time) = state.lanes.get(&lane) else {
            continue;
        };
        let busy_ms = time.busy.length();
        let share = (busy_ms / state.elapsed_ms).clamp(0.0, 1.0);
        let bar = block.repeat((share * BAR_COLUMNS as f64).round() as usize);
        let name = lane.name().replace('_', " ");
        let line = format!(
            "    {name:14} {:>8} {:>4.0} %  {bar}",
            format::duration(seconds(busy_ms)),
            share * 100.0
        );
        lines.push(line.trim_end().to_owned());
    }
    if let Some(overlap) = state.overlap_frac() {
        lines.push(format!(
            "  {:LABEL_COLUMNS$}{:.0} % of generation ran while the learner worked",
            "overlap",
            overlap * 100.0
        ));
    }
    lines.push(String::new());
}

/// What is believed of each arm, and what judges that are held out say; of arms that are summed what each gives.
fn bandit(lines: &mut Vec<String>, state: &RunState, judges: Option<&Judges>, terminal: Terminal) {
    let Some(mut bandit) = state.bandit_summary() else {
        let arms = judges::lines(state, judges, terminal);
        if let Some((how, arms)) = arms.split_first() {
            lines.push(labelled("arms", how));
            lines.extend(arms.iter().map(|line| format!("    {line}")));
            lines.push(String::new());
        }
        return;
    };
    if let Some(judges) = judges.filter(|_| bandit.policy.is_empty()) {
        // Before the first update only the experiment knows.
        judges.policy_word().clone_into(&mut bandit.policy);
        bandit.arms = judges.in_order(std::mem::take(&mut bandit.arms));
    }
    let mut words = Vec::new();
    if !bandit.policy.is_empty() {
        words.push(bandit.policy.clone());
    }
    words.push(format::plural(bandit.choices, "choice"));
    words.push(format::plural(bandit.updates, "update"));
    for (name, value) in [
        ("estimated regret", bandit.regret),
        ("disagreement", bandit.disagreement),
        ("epsilon", bandit.epsilon),
        ("probe", bandit.probe_accuracy),
    ] {
        if let Some(value) = value {
            words.push(format!("{name} {}", format::number(value.0)));
        }
    }
    lines.push(labelled("bandit", &words.join(", ")));
    for line in arms::lines(&bandit.arms, terminal) {
        lines.push(format!("    {line}"));
    }
    for (judge, score) in &bandit.held_out {
        let score = format::number(score.0);
        lines.push(format!("    {judge}  held out, scores {score}"));
    }
    lines.push(String::new());
}

fn syncs(lines: &mut Vec<String>, state: &RunState, terminal: Terminal) {
    let Some(blocked) = Percentiles::of(state.syncs.iter().map(|sync| sync.blocked_ms)) else {
        return;
    };
    let unverified = state.syncs.iter().filter(|sync| !sync.is_verified).count() as u64;
    let proof = if unverified == 0 {
        terminal.paint(Role::Good, "all verified")
    } else {
        terminal.paint(
            Role::Bad,
            &format!("{} NOT verified", format::count(unverified)),
        )
    };
    let transfer = Percentiles::of(state.syncs.iter().map(|sync| sync.transfer_ms));
    let transfer = transfer.map_or(String::new(), |transfer| {
        format!(", transfer p50 {} ms", format::number(transfer.p50))
    });
    let text = format!(
        "{}, {proof}; blocked p95 {} ms{transfer}",
        format::count(state.syncs.len() as u64),
        format::number(blocked.p95)
    );
    lines.push(labelled("weight syncs", &text));
}

fn alarms(lines: &mut Vec<String>, state: &RunState, bad_lines: u64, terminal: Terminal) {
    if state.rollouts.missing_scores > 0 {
        lines.push(labelled(
            "missing scores",
            &format!(
                "{} of {}",
                format::count(state.rollouts.missing_scores),
                format::plural(state.rollouts.ended, "rollout")
            ),
        ));
    }
    // The alarm that a guard records says the same as its trip.
    let trips = &state.guards.trips;
    let (of_guards, others): (Vec<&AlarmRecord>, Vec<&AlarmRecord>) =
        (state.alarms.iter()).partition(|alarm| trips.iter().any(|trip| trip.is_told_by(alarm)));
    let count = match state.alarm_count - of_guards.len() as u64 {
        0 => "none".to_owned(),
        count => terminal.paint(Role::Caution, &format::count(count)),
    };
    lines.push(labelled("alarms", &count));
    let groups = AlarmGroup::of(others);
    let left_out = groups.len().saturating_sub(ALARMS_SHOWN);
    if left_out > 0 {
        lines.push(format!("    {left_out} other kinds before"));
    }
    for group in &groups[left_out..] {
        lines.push(format!("    {}", group.words()));
    }
    guards(lines, state, terminal);
    by_hand(lines, state, terminal);
    seen_in_curves(lines, state, terminal);
    if state.missing_events > 0 || bad_lines > 0 {
        let text = format!(
            "{} missing, {} unreadable",
            format::plural(state.missing_events, "event"),
            format::plural(bad_lines, "line")
        );
        lines.push(labelled("log", &terminal.paint(Role::Bad, &text)));
    }
}

/// What detectors find in the run's numbers, the latest of each kind.
fn seen_in_curves(lines: &mut Vec<String>, state: &RunState, terminal: Terminal) {
    let mut alarms = Alarms::new(Limits::default());
    alarms.follow(state);
    // The past is in the order of its ends.
    let found: BTreeMap<&str, &Finding> = (alarms.past().iter().chain(alarms.active()))
        .map(|finding| (finding.name, finding))
        .collect();
    if found.is_empty() {
        return;
    }
    let count = format::plural(found.len() as u64, "kind");
    lines.push(labelled(
        "seen in curves",
        &terminal.paint(Role::Caution, &count),
    ));
    for (name, finding) in found {
        let until = if finding.until_ms.is_some() {
            ", over by now"
        } else {
            ""
        };
        lines.push(format!(
            "    {} from step {}{until}: {}",
            name.replace('_', " "),
            finding.since_step,
            finding.message
        ));
    }
}

/// What people changed while the run ran; pauses and the like change nothing.
fn by_hand(lines: &mut Vec<String>, state: &RunState, terminal: Terminal) {
    let changes: Vec<&ControlRecord> = (state.controls.iter())
        .filter(|control| control.changes_training() && control.who != ASYNC_ADVISOR)
        .collect();
    if changes.is_empty() {
        return;
    }
    let count = format::plural(changes.len() as u64, "change");
    lines.push(labelled("by hand", &terminal.paint(Role::Muted, &count)));
    let left_out = changes.len().saturating_sub(CHANGES_SHOWN);
    if left_out > 0 {
        lines.push(format!("    {left_out} more before"));
    }
    for control in &changes[left_out..] {
        lines.push(format!("    {}", change(control)));
    }
}

/// `roll_back best from step 41: weights of step 40 -> weights of step 20, by ana@laptop`
fn change(control: &ControlRecord) -> String {
    let Outcome::Applied {
        from,
        to,
        from_step,
        before,
        after,
        ..
    } = &control.outcome
    else {
        return String::new();
    };
    let about = control.knob.as_ref().or(control.target.as_ref());
    let about = about.map_or_else(String::new, |about| format!(" {about}"));
    let number = |number: &Option<Number>| number.map(|number| format::number(number.0));
    let stood = before.clone().or_else(|| number(from));
    let stands = after.clone().or_else(|| number(to));
    let became = stood
        .zip(stands)
        .map_or_else(String::new, |(stood, stands)| {
            format!(": {stood} -> {stands}")
        });
    let step = from_step.unwrap_or(control.step);
    format!(
        "{}{about} from step {step}{became}, by {}",
        control.command, control.who
    )
}

/// What guards did, trip by trip.
fn guards(lines: &mut Vec<String>, state: &RunState, terminal: Terminal) {
    let trips = &state.guards.trips;
    if trips.is_empty() {
        return;
    }
    let count = format::plural(state.guards.trip_count(), "trip");
    lines.push(labelled("guards", &terminal.paint(Role::Caution, &count)));
    for trip in trips.iter().rev().take(TRIPS_SHOWN).rev() {
        let done: Vec<&str> = trip.done.iter().map(|done| done.after.as_str()).collect();
        lines.push(format!(
            "    {} after step {}: {}: {}",
            trip.guard,
            trip.step,
            trip.reason,
            done.join(", ")
        ));
    }
}

fn labelled(label: &str, text: &str) -> String {
    format!("  {label:LABEL_COLUMNS$}{text}")
}

fn seconds(milliseconds: f64) -> std::time::Duration {
    std::time::Duration::try_from_secs_f64(milliseconds / 1e3).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use runlog::number::Number;
    use runlog::{Event, EventKind};

    use super::*;

    #[test]
    fn an_alarm_that_says_the_same_as_a_guards_trip_is_counted_with_the_trips() {
        let alarm = |name: &str| EventKind::Alarm {
            name: name.to_owned(),
            step: Some(14),
            message: "actor/ppo_kl is 0.03, above 0.02".to_owned(),
        };
        let trip = EventKind::GuardTripped {
            guard: "kl".to_owned(),
            watched: "actor/ppo_kl".to_owned(),
            step: 14,
            since_step: 14,
            value: Number(0.03),
            limit: Number(0.02),
            reason: "actor/ppo_kl is 0.03, above 0.02".to_owned(),
            relapse: 0,
            done: Vec::new(),
            cools_until: None,
            by: None,
        };
        let counted = |kinds: Vec<EventKind>| -> Vec<String> {
            let events = kinds.into_iter().enumerate().map(|(at, kind)| Event {
                seq: at as u64,
                elapsed_ms: 28_500.0,
                kind,
            });
            let state = RunState::fold(&events.collect::<Vec<_>>());
            let terminal = Terminal {
                to_screen: false,
                errors_to_screen: false,
                unicode: false,
                color: false,
                color_stderr: false,
                plain: true,
            };
            let mut lines = Vec::new();
            alarms(&mut lines, &state, 0, terminal);
            let counts = lines.iter().filter(|line| !line.starts_with("    "));
            let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
            counts.map(words).collect()
        };
        assert_eq!(
            counted(vec![alarm("guard kl"), trip.clone()]),
            ["alarms none", "guards 1 trip"]
        );
        assert_eq!(
            counted(vec![alarm("guard kl"), trip, alarm("equal_rewards")]),
            ["alarms 1", "guards 1 trip"]
        );
    }
}
