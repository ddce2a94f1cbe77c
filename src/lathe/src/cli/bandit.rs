//! `lathe bandit`: the policies that choose among reward sources, and how they fare where the truth is known.

use std::path::Path;
use std::time::Duration;

use ::bandit::simulate::{Environment, Fault, Report, Segment, simulate};
use ::bandit::table::POLICIES;
use experiment::yaml::{self, Node, Value};
use indicatif::{ProgressBar, ProgressStyle};
use runlog::exit_code;
use serde_json::json;

use super::arguments::{BanditCommand, SimulateArguments, SimulateFormat};
use super::{Failure, Output};
use crate::headless::format;
use crate::terminal::{Role, Terminal};

pub fn bandit(
    command: &BanditCommand,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    match command {
        BanditCommand::Simulate(arguments) => play(arguments, out, terminal)?,
        BanditCommand::Policies => policies(out, terminal)?,
    }
    Ok(exit_code::OK)
}

fn policies(out: &mut Output, terminal: Terminal) -> Result<(), Failure> {
    for policy in POLICIES {
        out.line(&format!(
            "{}  {}",
            terminal.paint(Role::Strong, policy.name),
            terminal.paint(Role::Muted, &format!("reads {}", policy.reads.join(", ")))
        ))?;
        out.line(&format!("    {}", policy.says))?;
        out.line(&format!("    {}", policy.formula))?;
    }
    Ok(())
}

fn play(
    arguments: &SimulateArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    let environment = environment(arguments)?;
    let bar = progress(&environment, terminal);
    let threads = arguments
        .threads
        .map(|threads| threads as usize)
        .or_else(|| std::thread::available_parallelism().ok().map(Into::into))
        .unwrap_or(1);
    if arguments.format == SimulateFormat::Csv {
        out.line("policy,step,regret_mean,regret_se,regret_p05,regret_p95")?;
    }
    let mut reports = Vec::new();
    for entry in &environment.policies {
        bar.set_prefix(entry.label.clone());
        let report = simulate(&environment, entry, threads, &|| bar.inc(1));
        // What can be told at once is: a long simulation that is broken off leaves the policies that ended.
        match arguments.format {
            SimulateFormat::Table => reports.push(report),
            SimulateFormat::Csv => csv(&report, out)?,
            SimulateFormat::Json => out.json(&row(&environment, &report))?,
        }
    }
    bar.finish_and_clear();
    if arguments.format == SimulateFormat::Table {
        table(&environment, &reports, out, terminal)?;
    }
    Ok(())
}

/// The file's environment with what the command line says otherwise.
fn environment(arguments: &SimulateArguments) -> Result<Environment, Failure> {
    let path = &arguments.environment;
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::input(format!("cannot read {}: {error}", path.display())))?;
    let parsed = yaml::parse(&text);
    if let Some(fault) = parsed.faults.first() {
        return Err(at(path, fault.line, &fault.message));
    }
    let Some(root) = parsed.root else {
        return Err(at(path, 1, "is empty; expected horizon, arms and policies"));
    };
    let told = |fault: &Fault| at(path, line(&root, &fault.path), &fault.to_string());
    let mut environment = Environment::from_json(root.to_json()).map_err(|fault| told(&fault))?;
    if let Some(runs) = arguments.runs {
        environment.runs = runs;
    }
    if let Some(seed) = arguments.seed {
        environment.seed = seed;
    }
    environment
        .check()
        .map_err(|fault| Failure::usage(fault.to_string()))?;
    if !arguments.policy.is_empty() {
        let labels: Vec<String> = environment
            .policies
            .iter()
            .map(|entry| entry.label.clone())
            .collect();
        if let Some(unknown) = arguments.policy.iter().find(|name| !labels.contains(name)) {
            return Err(Failure::usage(format!(
                "--policy {unknown}: {} has none of this label; it has {}",
                path.display(),
                labels.join(", ")
            )));
        }
        environment
            .policies
            .retain(|entry| arguments.policy.contains(&entry.label));
    }
    Ok(environment)
}

fn at(path: &Path, line: u32, message: &str) -> Failure {
    Failure::usage(format!("{}:{line}: {message}", path.display()))
}

/// The line of the innermost value on the way that the file has.
fn line(root: &Node, path: &[Segment]) -> u32 {
    let (mut node, mut line) = (root, root.span.line);
    for segment in path {
        let next = match (segment, &node.value) {
            (Segment::Key(key), Value::Map(_)) => node
                .entry(key)
                .map(|entry| (entry.key_span.line, &entry.value)),
            (Segment::Index(index), Value::List(items)) => {
                items.get(*index).map(|item| (item.span.line, item))
            }
            _ => None,
        };
        let Some((found, inner)) = next else {
            break;
        };
        (line, node) = (found, inner);
    }
    line.max(1)
}

fn progress(environment: &Environment, terminal: Terminal) -> ProgressBar {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if !terminal.errors_to_screen || terminal.plain || is_dumb {
        return ProgressBar::hidden();
    }
    let characters = if terminal.unicode { "━╾─" } else { "=>-" };
    let style = ProgressStyle::with_template("{bar:28}  {pos}/{len} runs  eta {eta}  {prefix}")
        .expect("the template is well formed")
        .progress_chars(characters);
    let bar =
        ProgressBar::new(environment.runs * environment.policies.len() as u64).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn csv(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let label = if report.label.contains([',', '"']) {
        format!("\"{}\"", report.label.replace('"', "\"\""))
    } else {
        report.label.clone()
    };
    for point in &report.curve {
        out.line(&format!(
            "{label},{},{},{},{},{}",
            point.step, point.mean, point.se, point.p05, point.p95
        ))?;
    }
    Ok(())
}

fn row(environment: &Environment, report: &Report) -> serde_json::Value {
    let last = report.last();
    json!({
        "policy": report.label, "settings": report.settings,
        "horizon": environment.horizon, "runs": environment.runs, "seed": environment.seed,
        "regret_mean": last.mean, "regret_se": last.se, "regret_p05": last.p05, "regret_p95": last.p95,
        "random_regret": environment.random_regret(),
        "best_frac": report.best_frac, "best_frac_se": report.best_frac_se, "wrong_frac": report.wrong_frac,
        "timed_out_frac": report.timed_out_frac, "missing_frac": report.missing_frac, "clamped_frac": report.clamped_frac,
        "curve": report.curve,
    })
}

fn table(
    environment: &Environment,
    reports: &[Report],
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    let (plus_minus, dots) = (terminal.glyph("±", "+-"), terminal.glyph("…", "..."));
    out.line(&format!(
        "{} arms, {} pulls, mean of {} (seed {})",
        environment.arms.len(),
        format::count(environment.horizon),
        format::plural(environment.runs, "run"),
        environment.seed
    ))?;
    let mut sorted: Vec<&Report> = reports.iter().collect();
    sorted.sort_by(|a, b| a.last().mean.total_cmp(&b.last().mean));
    let mut rows = vec![
        [
            "policy",
            "regret",
            "5 to 95 %",
            "best arm chosen",
            "wrong arm at the end",
        ]
        .map(str::to_owned),
    ];
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    for report in &sorted {
        let last = report.last();
        // Runs that are all alike differ by rounding only.
        let se = if last.se < 1e-9 * last.mean {
            0.0
        } else {
            last.se
        };
        rows.push([
            report.label.clone(),
            format!(
                "{} {plus_minus} {}",
                format::number(last.mean),
                format::number(se)
            ),
            format!(
                "{} {dots} {}",
                format::number(last.p05),
                format::number(last.p95)
            ),
            percent(report.best_frac),
            report.wrong_frac.map_or_else(
                || "-".to_owned(),
                |share| format!("{} of runs", percent(share)),
            ),
        ]);
    }
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..5).map(width).collect();
    for (index, cells) in rows.iter().enumerate() {
        let line: Vec<String> = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| {
                if column == 0 {
                    format!("{cell:width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        let line = line.join("  ");
        out.line(&if index == 0 {
            terminal.paint(Role::Strong, &line)
        } else {
            line
        })?;
    }
    if let Some(regret) = environment.random_regret() {
        out.line(&format!(
            "an arm at random each time would lose {}",
            format::number(regret)
        ))?;
    }
    for report in reports {
        if report.clamped_frac > 0.0 {
            out.line(&terminal.paint(
                Role::Caution,
                &format!(
                    "{}: {} of the values lay outside value_range and counted as its end; set value_range, or posterior: gaussian",
                    report.label,
                    percent(report.clamped_frac)
                ),
            ))?;
        }
    }
    Ok(())
}
