//! The checks of `lathe check` on what would be started: every run of the plan is read, the first is tried on real rows.

use experiment::Severity;

use super::form::Source;
use super::sweep::Planned;
use crate::check::{self, Options};
use crate::headless::format;

/// Rows of each file to try, as `lathe check` does by itself.
const ROWS: u64 = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DryRun {
    Going,
    Done(Vec<Line>),
}

/// A fact, or a complaint with how bad it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub severity: Option<Severity>,
    pub text: String,
}

impl DryRun {
    /// None while it goes on.
    pub fn errors(&self) -> Option<usize> {
        match self {
            Self::Going => None,
            Self::Done(lines) => Some(
                lines
                    .iter()
                    .filter(|line| line.severity == Some(Severity::Error))
                    .count(),
            ),
        }
    }
}

fn fact(text: String) -> Line {
    Line {
        severity: None,
        text,
    }
}

/// Slow: reads data and weights' headers. For a job.
pub fn carry_out(source: &Source, plan: &[Planned]) -> DryRun {
    let file = source.path.display().to_string();
    let mut lines = Vec::new();
    for planned in plan {
        let loaded = experiment::from_text(&file, &source.text, &planned.overrides);
        let is_first = std::ptr::eq(planned, &raw const plan[0]);
        for complaint in &loaded.complaints {
            // What the first run says too is said once.
            let text = if planned.label.is_empty() || is_first {
                complaint.to_string()
            } else {
                format!("{}: {complaint}", planned.label)
            };
            let is_news = is_first || complaint.severity == Severity::Error;
            if is_news {
                lines.push(Line {
                    severity: Some(complaint.severity),
                    text,
                });
            }
        }
    }
    let Some(first) = plan.first() else {
        return DryRun::Done(lines);
    };
    let loaded = experiment::from_text(&file, &source.text, &first.overrides);
    if loaded.has_errors() {
        return DryRun::Done(lines);
    }
    let options = Options {
        rows: ROWS,
        is_strict: true,
        // The screen is the workbench's.
        tell: |_| (),
    };
    let run = check::dry_run(&loaded.experiment, &source.path, options);
    lines.extend(run.findings.iter().map(|finding| Line {
        severity: Some(finding.severity),
        text: format!("{}: {}", finding.area, finding.message),
    }));
    if let Some(model) = &run.model {
        lines.push(fact(format!(
            "model: {}, {} parameters, {}",
            model.model_type,
            format::count(model.parameters),
            format::bytes(model.bytes)
        )));
    }
    if !run.tools.is_empty() {
        lines.push(fact(format!("tools: {}", run.tools.join(", "))));
    }
    for file in &run.files {
        let tokens = match (file.prompt_tokens_min, file.prompt_tokens_max) {
            (Some(min), Some(max)) => format!("; prompts of {min} to {max} tokens"),
            _ => String::new(),
        };
        lines.push(fact(format!(
            "data: {}, {}, {} tried{tokens}",
            file.path.display(),
            format::plural(file.rows, "row"),
            format::count(file.rows_tried)
        )));
    }
    for scorer in &run.scorers {
        lines.push(fact(format!(
            "scorer: {} for {}: the truth scores {}, nonsense {}",
            scorer.scorer,
            scorer.data_source,
            format::number(scorer.truth_score),
            format::number(scorer.garbage_score)
        )));
    }
    DryRun::Done(lines)
}
