//! `lathe check`: what is wrong with an experiment, what it would do, and whether what it names works.

use std::path::{Path, PathBuf};

use experiment::{Loaded, Severity};
use runlog::exit_code;
use serde_json::json;

use super::arguments::CheckArguments;
use super::experiment_file::{complaint_line, errors};
use super::{Failure, Output};
use crate::check::{self, DryRun, Finding, Options};
use crate::headless::format;
use crate::terminal::{Role, Terminal};

pub fn check(
    arguments: &CheckArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    // What a shell makes of `*.yaml`: an override has a `=`, or starts with `~`.
    let (overrides, more): (Vec<String>, Vec<String>) = arguments
        .overrides
        .iter()
        .cloned()
        .partition(|argument| argument.contains('=') || argument.starts_with('~'));
    let more: Vec<PathBuf> = more.into_iter().map(PathBuf::from).collect();
    let mut codes = Vec::new();
    for file in std::iter::once(&arguments.experiment).chain(&more) {
        let is_brief = !more.is_empty();
        codes.push(check_one(
            file, &overrides, arguments, is_brief, out, terminal,
        )?);
    }
    let worst = [exit_code::USAGE, exit_code::INPUT];
    Ok(worst
        .into_iter()
        .find(|code| codes.contains(code))
        .unwrap_or(exit_code::OK))
}

/// `is_brief`: of several files, only what is wrong with each.
fn check_one(
    file: &Path,
    overrides: &[String],
    arguments: &CheckArguments,
    is_brief: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let loaded = experiment::inspect(file, overrides);
    let options = Options {
        rows: arguments.rows,
        is_strict: arguments.strict,
        tell: |line| eprintln!("{line}"),
    };
    // With a wrong experiment the dry run would try defaults that nobody meant.
    let dry_run = (!loaded.has_errors()).then(|| check::dry_run(&loaded.experiment, file, options));
    let code = verdict(&loaded, dry_run.as_ref());
    if arguments.json {
        out.json(&json!({
            "experiment": file.display().to_string(),
            "is_ok": code == exit_code::OK,
            "exit_code": code,
            "complaints": loaded.complaints,
            "findings": dry_run.as_ref().map_or(&[][..], |run| &run.findings),
            "dry_run": dry_run,
            "effective": loaded.effective(),
        }))?;
        return Ok(code);
    }
    if let Some(dry_run) = &dry_run
        && !is_brief
    {
        out.line(&heading("effective experiment", terminal))?;
        out.line(loaded.effective_yaml().trim_end())?;
        print_dry_run(dry_run, out, terminal)?;
    }
    for complaint in &loaded.complaints {
        out.line(&complaint_line(complaint, |role, text| {
            terminal.paint(role, text)
        }))?;
    }
    for finding in dry_run.iter().flat_map(|run| &run.findings) {
        out.line(&finding_line(finding, |role, text| {
            terminal.paint(role, text)
        }))?;
    }
    out.line(&verdict_line(
        file,
        &loaded,
        dry_run.as_ref(),
        code,
        terminal,
    ))?;
    Ok(code)
}

fn verdict(loaded: &Loaded, dry_run: Option<&DryRun>) -> i32 {
    match dry_run {
        None => exit_code::USAGE,
        Some(_) if loaded.has_errors() => exit_code::USAGE,
        Some(run) if count(run, Severity::Error) > 0 => exit_code::INPUT,
        Some(_) => exit_code::OK,
    }
}

fn count(run: &DryRun, severity: Severity) -> u64 {
    run.findings
        .iter()
        .filter(|finding| finding.severity == severity)
        .count() as u64
}

fn verdict_line(
    file: &Path,
    loaded: &Loaded,
    dry_run: Option<&DryRun>,
    code: i32,
    terminal: Terminal,
) -> String {
    let warnings = loaded
        .complaints
        .iter()
        .filter(|complaint| complaint.severity == Severity::Warning)
        .count() as u64
        + dry_run.map_or(0, |run| count(run, Severity::Warning));
    let errors = errors(&loaded.complaints) + dry_run.map_or(0, |run| count(run, Severity::Error));
    let mut text = match code {
        exit_code::OK => terminal.paint(Role::Good, "ok"),
        _ => terminal.paint(Role::Bad, &format::plural(errors, "error")),
    };
    if warnings > 0 {
        text.push_str(", ");
        text.push_str(&format::plural(warnings, "warning"));
    }
    format!("{}: {text}", file.display())
}

fn heading(text: &str, terminal: Terminal) -> String {
    terminal.paint(Role::Strong, &format!("# {text}"))
}

/// `warning: model: …`
pub fn finding_line(finding: &Finding, paint: impl Fn(Role, &str) -> String) -> String {
    let (role, word) = match finding.severity {
        Severity::Error => (Role::Bad, "error:"),
        Severity::Warning => (Role::Caution, "warning:"),
        Severity::Note => (Role::Muted, "note:"),
    };
    format!(
        "{} {}: {}",
        paint(role, word),
        finding.area,
        finding.message
    )
}

fn print_dry_run(run: &DryRun, out: &mut Output, terminal: Terminal) -> Result<(), Failure> {
    if let Some(prompt) = &run.sample_prompt {
        out.line("")?;
        out.line(&heading("first prompt, as the model reads it", terminal))?;
        for line in prompt.lines() {
            out.line(&format!("  {line}"))?;
        }
    }
    out.line("")?;
    out.line(&heading("dry run", terminal))?;
    if let Some(model) = &run.model {
        let dtypes: Vec<&str> = model.dtypes.iter().map(String::as_str).collect();
        out.line(&format!(
            "model   {}, {} parameters, {}, {}",
            model.model_type,
            format::count(model.parameters),
            dtypes.join(" and "),
            format::bytes(model.bytes)
        ))?;
    }
    if !run.tools.is_empty() {
        out.line(&format!("tools   {}", run.tools.join(", ")))?;
        for noted in &run.tool_notes {
            out.line(&format!("        {}: {}", noted.tool, noted.note))?;
        }
    }
    for file in &run.files {
        let tokens = match (file.prompt_tokens_min, file.prompt_tokens_max) {
            (Some(min), Some(max)) => format!("; prompts of {min} to {max} tokens"),
            _ => String::new(),
        };
        out.line(&format!(
            "data    {}: {}, {} tried{tokens}",
            file.path.display(),
            format::plural(file.rows, "row"),
            format::count(file.rows_tried)
        ))?;
    }
    for scorer in &run.scorers {
        out.line(&format!(
            "scorer  {} for {}: the truth scores {}, nonsense {} ({})",
            scorer.scorer,
            scorer.data_source,
            format::number(scorer.truth_score),
            format::number(scorer.garbage_score),
            format::plural(scorer.rows, "row")
        ))?;
    }
    out.line("")
}
