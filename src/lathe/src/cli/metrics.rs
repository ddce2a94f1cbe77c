//! `lathe metrics`: the table of every metric a run records.

use runlog::exit_code;
use runlog::metrics::{self, Direction, Group, Metric};
use serde_json::json;

use super::{Failure, Output};
use crate::terminal::{Role, Terminal};

pub fn metrics(
    filter: Option<&str>,
    markdown: bool,
    as_json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    if markdown {
        out.line(metrics::markdown().trim())?;
        return Ok(exit_code::OK);
    }
    let wanted = filter.unwrap_or_default().to_lowercase();
    // A concrete name such as `critic/score/mean` finds the pattern it belongs to.
    let named = filter.and_then(metrics::lookup);
    let matches = |metric: &Metric| {
        metric.name.to_lowercase().contains(&wanted)
            || metric.formula.to_lowercase().contains(&wanted)
            || named.is_some_and(|named| named.name == metric.name)
    };
    let mut found = false;
    for group in Group::ALL {
        let rows: Vec<&Metric> = metrics::TABLE
            .iter()
            .filter(|metric| metric.group == group && matches(metric))
            .collect();
        if rows.is_empty() {
            continue;
        }
        if !as_json {
            if found {
                out.line("")?;
            }
            out.line(&terminal.paint(Role::Strong, group.title()))?;
        }
        found = true;
        for metric in rows {
            print(metric, as_json, out, terminal)?;
        }
    }
    if !found {
        return Err(Failure::usage(format!(
            "no metric has `{}` in its name or formula; `lathe metrics` lists all",
            filter.unwrap_or_default()
        )));
    }
    Ok(exit_code::OK)
}

fn print(
    metric: &Metric,
    as_json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    let better = match metric.direction {
        Direction::Higher => Some("higher"),
        Direction::Lower => Some("lower"),
        Direction::Neither => None,
    };
    if as_json {
        return out.json(&json!({
            "name": metric.name, "unit": metric.unit, "better": better,
            "group": metric.group.title(), "formula": metric.formula,
        }));
    }
    let better = better.map_or_else(String::new, |better| format!(", {better} is better"));
    out.line(&format!(
        "  {}  {}",
        metric.name,
        terminal.paint(Role::Muted, &format!("{}{better}", metric.unit))
    ))?;
    out.line(&format!("      {}", metric.formula))
}
