//! `lathe ctl`: live control of a running run from the command line.

mod arms;
mod guards;

use std::time::Duration;

use remote::near::control::connect;
use runlog::control::{
    Answer, Applied, Client, ClientError, Command, GuardOrder, KNOBS, KnobState, Status, find_knob,
};
use runlog::exit_code;
use runlog::number::Number;
use serde_json::json;

use super::arguments::{CtlArguments, CtlCommand};
use super::{Failure, Output, runs};
use crate::headless::{self, format};
use crate::launch;
use crate::terminal::{Role, Terminal};

/// Without `--wait`: how long an answer may take that comes between two steps. What takes longer waits for a step's end.
const GLANCE: Duration = Duration::from_secs(1);
/// With `--wait`: longer than any step.
const AGES: Duration = Duration::from_secs(365 * 24 * 3600);

pub fn ctl(arguments: &CtlArguments, out: &mut Output, terminal: Terminal) -> Result<i32, Failure> {
    // What is wrong with the command is told whether the run lives or not.
    let commands = commands(arguments)?;
    let run_dir = runs::find(&arguments.place, &arguments.run)?;
    let mut client = connect(&run_dir, &Client::name("lathe ctl"), &launch::targets())?;
    if let Some(commands) = commands {
        let is_stop = commands.contains(&Command::Stop);
        let code = send(&mut client, commands, arguments, out)?;
        let is_here = run_dir.origin().is_none();
        if is_stop && arguments.wait && is_here && code == exit_code::OK {
            // Answered when its last checkpoint is on the disk; whoever waits wants to resume it, or its GPU.
            run_dir
                .wait_until_free()
                .map_err(|error| Failure::unexpected(error.to_string()))?;
        }
        return Ok(code);
    }
    let status = client.status()?;
    match arguments.command {
        CtlCommand::Knobs => knobs(&status, arguments.json, out, terminal)?,
        CtlCommand::Arm => arms::print(&status, arguments.json, out, terminal)?,
        CtlCommand::Guards => guards::print(&status, arguments.json, out, terminal)?,
        _ if arguments.json => out.json(&status)?,
        _ => print_status(&status, out, terminal)?,
    }
    Ok(exit_code::OK)
}

/// What to send; None: only the status is asked for.
fn commands(arguments: &CtlArguments) -> Result<Option<Vec<Command>>, Failure> {
    let values = arguments.values.as_slice();
    let command = match arguments.command {
        CtlCommand::Set => {
            if arguments.values.is_empty() {
                return Err(Failure::usage(
                    "set needs KEY=VALUE, such as actor.optim.lr=1e-5; `lathe ctl RUN knobs` lists the keys",
                ));
            }
            let sets = arguments.values.iter().map(|text| assignment(text));
            return sets.collect::<Result<_, _>>().map(Some);
        }
        CtlCommand::Pause => Some(Command::Pause),
        CtlCommand::Resume => Some(Command::Resume),
        CtlCommand::Step => Some(Command::Step),
        CtlCommand::Checkpoint => Some(Command::Checkpoint),
        CtlCommand::Stop => Some(Command::Stop),
        CtlCommand::Status | CtlCommand::Knobs | CtlCommand::Guards => None,
        CtlCommand::Mode => Some(mode(values)?),
        CtlCommand::Trip => Some(guard(GuardOrder::Trip, values)?),
        CtlCommand::Clear => Some(guard(GuardOrder::Clear, values)?),
        CtlCommand::Mute => Some(guard(GuardOrder::Mute { steps: None }, values)?),
        CtlCommand::Unmute => Some(guard(GuardOrder::Unmute, values)?),
        CtlCommand::RollBack => Some(roll_back(values)?),
        CtlCommand::Arm => arms::command(values)?,
    };
    let takes_some = matches!(
        command,
        Some(
            Command::Mode { .. }
                | Command::Guard { .. }
                | Command::Arm(_)
                | Command::RollBack { .. }
        )
    );
    if let (Some(value), false) = (arguments.values.first(), takes_some) {
        return Err(too_much(
            value,
            "set, mode, arm, guards' commands and roll_back take something",
        ));
    }
    Ok(command.map(|command| vec![command]))
}

fn too_much(value: &str, why: &str) -> Failure {
    Failure::usage(format!("`{value}` is too much: {why}"))
}

fn mode(values: &[String]) -> Result<Command, Failure> {
    let (name, staleness) = match values {
        [name] => (name, None),
        [name, bound] => {
            let bound = bound.parse().map_err(|_| {
                Failure::usage(format!(
                    "`{bound}` is no bound of staleness; expected a whole number, as in mode async 2"
                ))
            })?;
            (name, Some(bound))
        }
        [] => {
            return Err(Failure::usage(
                "mode needs its name: sync, one_step_off, async with a bound of staleness, or auto",
            ));
        }
        [_, _, more, ..] => return Err(too_much(more, "mode takes a name and a bound")),
    };
    Command::mode(name, staleness).map_err(Failure::usage)
}

fn guard(order: GuardOrder, values: &[String]) -> Result<Command, Failure> {
    let word = order.name();
    let (name, order) = match (values, order) {
        ([name], order) => (name, order),
        ([name, steps], GuardOrder::Mute { .. }) => {
            let steps = steps.parse().map_err(|_| {
                Failure::usage(format!(
                    "`{steps}` is no number of steps; expected one, as in mute kl 20"
                ))
            })?;
            (name, GuardOrder::Mute { steps: Some(steps) })
        }
        ([], _) => {
            return Err(Failure::usage(format!(
                "{word} needs a guard's name; `lathe ctl RUN guards` lists them"
            )));
        }
        ([_, .., more], _) => {
            return Err(too_much(more, &format!("{word} takes one guard")));
        }
    };
    Command::guard(name, order).map_err(Failure::usage)
}

fn roll_back(values: &[String]) -> Result<Command, Failure> {
    match values {
        [to] => {
            let to = to.parse().map_err(Failure::usage)?;
            Ok(Command::RollBack { to })
        }
        [] => Err(Failure::usage(
            "roll_back needs a checkpoint: best, good or a step; `lathe ctl RUN guards` lists them",
        )),
        [_, more, ..] => Err(too_much(more, "roll_back takes one checkpoint")),
    }
}

fn assignment(text: &str) -> Result<Command, Failure> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(Failure::usage(format!(
            "`{text}` is not KEY=VALUE, such as actor.optim.lr=1e-5"
        )));
    };
    if key.trim() == "trainer.mode" || key.trim() == "mode" {
        return Command::mode(value.trim(), None).map_err(Failure::usage);
    }
    let number = value.trim().parse().map_err(|_| {
        Failure::usage(format!(
            "{}: `{value}` is no number",
            find_knob(key.trim()).map_or(key, |knob| knob.name)
        ))
    })?;
    Command::set(key.trim(), number).map_err(Failure::usage)
}

/// Sends all, then tells what became of each, in order.
fn send(
    client: &mut Client,
    commands: Vec<Command>,
    arguments: &CtlArguments,
    out: &mut Output,
) -> Result<i32, Failure> {
    let asked = commands
        .into_iter()
        .map(|command| {
            let (id, first) = client.ask(command.clone())?;
            if arguments.json {
                out.json(&first)?;
            }
            Ok((command, id, first))
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut code = exit_code::OK;
    for (command, id, first) in asked {
        let last = if first.is_last() {
            first
        } else {
            match client.wait(id, if arguments.wait { AGES } else { GLANCE }) {
                Ok(last) => {
                    if arguments.json {
                        out.json(&last)?;
                    }
                    last
                }
                Err(ClientError::Silent { .. }) if !arguments.wait => first,
                // The run may close the connection before we have read that it stops.
                Err(ClientError::Closed { .. }) if !arguments.wait && command == Command::Stop => {
                    first
                }
                Err(error) => return Err(error.into()),
            }
        };
        match &last {
            Answer::Refused { reason, .. } => {
                code = exit_code::REFUSED;
                if !arguments.json {
                    eprintln!("{command} was refused: {reason}");
                }
            }
            _ if arguments.json => {}
            Answer::Applied { applied, .. } => out.line(&done(&command, applied))?,
            Answer::Accepted { when, .. } => {
                out.line(&format!("{command} is accepted and applies {when}"))?;
            }
            Answer::Status { .. } | Answer::Unknown => {
                out.line(&format!(
                    "{command} was answered in words of a newer version"
                ))?;
            }
        }
    }
    Ok(code)
}

/// `actor.optim.lr 1.00e-6 -> 1.00e-5, from step 13`
fn done(command: &Command, applied: &Applied) -> String {
    let step = applied.step;
    let note = applied.note.as_deref();
    let also = note.map_or_else(String::new, |note| format!("; {note}"));
    let (before, after) = (
        applied.before.as_deref().unwrap_or("?"),
        applied.after.as_deref().unwrap_or("?"),
    );
    match command {
        Command::Pause | Command::Resume | Command::Step if note.is_some() => {
            note.unwrap_or_default().to_owned()
        }
        Command::Pause => format!("paused after step {step}"),
        Command::Resume => format!("goes on after step {step}"),
        Command::Step => format!("trained step {step}, and paused"),
        Command::Checkpoint => format!(
            "saved {}",
            applied.note.as_deref().unwrap_or("a checkpoint")
        ),
        Command::Stop => format!("stopped after step {step}"),
        Command::Status => format!("at step {step}"),
        Command::Set { knob, value } => {
            let from = applied
                .from
                .map_or_else(|| "?".to_owned(), |from| format::number(from.0));
            let from_step = applied.from_step.unwrap_or(step);
            format!(
                "{} {from} -> {}, from step {from_step}{also}",
                knob.name,
                format::number(*value)
            )
        }
        Command::Mode { .. } => {
            let from_step = applied.from_step.unwrap_or(step);
            format!("mode {before} -> {after}, from step {from_step}{also}")
        }
        Command::Guard { guard, order } => {
            format!("{} {guard}: {before} -> {after}{also}", order.name())
        }
        Command::Arm(_) => {
            let from_step = applied
                .from_step
                .map_or_else(String::new, |from_step| format!(", from step {from_step}"));
            format!("{command}: {before} -> {after}{from_step}{also}")
        }
        Command::RollBack { .. } => {
            format!("rolled back after step {step}: {before} -> {after}{also}")
        }
    }
}

fn print_status(status: &Status, out: &mut Output, terminal: Terminal) -> Result<(), Failure> {
    out.line(&format!(
        "{}  {}, {} of {} trained",
        terminal.paint(Role::Strong, &status.run),
        status.doing,
        status.step,
        format::plural(status.total_steps, "step")
    ))?;
    if status.is_stopping {
        out.line("  was asked to stop")?;
    } else if status.is_paused && !status.doing.starts_with("paused") {
        out.line("  will pause after this step")?;
    }
    if status.waiting > 0 {
        let commands = format::plural(status.waiting, "command");
        out.line(&format!("  {commands} accepted, and not applied yet"))?;
    }
    if !status.mode.is_empty() {
        out.line(&format!("  mode {}", status.mode))?;
    }
    for wait in &status.waits {
        out.line(&format!("  waits for {}", wait.words()))?;
    }
    guards::print_alert(status, out)?;
    for line in headless::arms::lines(&status.arms, terminal) {
        out.line(&format!("  arm {line}"))?;
    }
    for state in &status.knobs {
        if let (Some(value), Some(first)) = (state.value, state.started_with)
            && value != first
        {
            out.line(&format!(
                "  {} {} (the experiment says {})",
                name(state),
                format::number(value.0),
                format::number(first.0)
            ))?;
        }
    }
    Ok(())
}

fn name(state: &KnobState) -> &str {
    find_knob(&state.key).map_or(&state.key, |knob| knob.name)
}

fn knobs(
    status: &Status,
    as_json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    let state_of = |key: &str| status.knobs.iter().find(|state| state.key == key);
    let widest = KNOBS.iter().map(|knob| knob.name.len()).max().unwrap_or(0);
    for knob in KNOBS {
        let state = state_of(knob.key);
        let value = state.and_then(|state| state.value);
        let why_not = match state {
            Some(state) => state.why_not.as_deref(),
            None => Some("the run is still setting up, or is of another version"),
        };
        if as_json {
            out.json(&json!({
                "key": knob.key, "name": knob.name, "value": value,
                "started_with": state.and_then(|state| state.started_with), "why_not": why_not,
                "range": knob.range(), "unit": knob.unit, "metric": knob.metric, "help": knob.help,
            }))?;
            continue;
        }
        let shown = value.map_or_else(|| "-".to_owned(), |Number(value)| format::number(value));
        let text = why_not.map_or_else(|| knob.range(), str::to_owned);
        out.line(&format!(
            "{:widest$}  {shown:>9}  {}",
            knob.name,
            terminal.paint(Role::Muted, &text)
        ))?;
        out.line(&format!(
            "{:widest$}  {:>9}  {}",
            "",
            "",
            terminal.paint(Role::Muted, knob.help)
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use experiment::keys::{self, Bound, Kind};
    use runlog::control::Knob;

    use super::*;

    /// Whether the experiment allows every value that the knob does.
    fn lies_within(knob: &Knob, kind: &Kind) -> bool {
        let low_fits = |low: Bound| match low {
            Bound::None => true,
            Bound::Closed(low) => knob.low >= low,
            Bound::Open(low) => knob.low > low || (knob.low == low && knob.is_low_open),
        };
        let high_fits = |high: Bound| match high {
            Bound::None => true,
            Bound::Closed(high) => knob.high <= high,
            Bound::Open(high) => knob.high < high || (knob.high == high && knob.is_high_open),
        };
        match *kind {
            Kind::Float { low, high } | Kind::Probability { low, high } => {
                !knob.is_whole && low_fits(low) && high_fits(high)
            }
            Kind::Int { min, max, .. } => {
                knob.is_whole && knob.low >= min as f64 && knob.high <= max as f64
            }
            _ => false,
        }
    }

    #[test]
    fn every_knob_is_a_key_of_the_experiment_with_its_short_name_unit_and_range() {
        for knob in KNOBS {
            let key = keys::find(knob.key).unwrap_or_else(|| panic!("{} is no key", knob.key));
            assert_eq!(key.unit, knob.unit, "{}", knob.key);
            assert_eq!(keys::canonical(knob.name).path, knob.key);
            assert!(
                lies_within(knob, &key.kind),
                "{}: {} against {:?}",
                knob.key,
                knob.range(),
                key.kind
            );
        }
    }

    #[test]
    fn an_assignment_is_a_knob_in_range_or_a_reason() {
        let reason = |text: &str| assignment(text).unwrap_err().to_string();
        assert_eq!(
            assignment("actor.optim.lr = 1e-5").unwrap().to_string(),
            "set actor.optim.lr = 0.00001"
        );
        assert_eq!(
            reason("actor.optim.lr"),
            "`actor.optim.lr` is not KEY=VALUE, such as actor.optim.lr=1e-5"
        );
        assert_eq!(
            reason("temperature=warm"),
            "rollout.temperature: `warm` is no number"
        );
        assert_eq!(
            assignment("trainer.mode=one_step_off").unwrap().to_string(),
            "mode one_step_off"
        );
        assert!(reason("mode=fast").contains("there are sync, one_step_off, async and auto"));
        assert!(reason("temprature=1").contains("did you mean rollout.temperature?"));
        assert!(reason("temperature=inf").contains("expected 0 < x <= 100"));
    }
}
