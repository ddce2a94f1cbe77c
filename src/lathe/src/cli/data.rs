//! `lathe data`: look at a data set, convert one, make one.

use std::path::Path;

use dialogue::chat::Chat;
use dialogue::data::{self, DataError, Histogram, Shown};
use dialogue::recipe::{Recipe, Split};
use runlog::exit_code;

use super::arguments::DataCommand;
use super::{Failure, Output};
use crate::headless::format;
use crate::terminal::{Role, Terminal};

const BAR_COLUMNS: usize = 30;
/// Of a training file, when `--rows` does not say; the test file has a quarter of it.
const DEFAULT_ROWS: u64 = 1000;

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Self::input(error.to_string())
    }
}

pub fn data(command: &DataCommand, out: &mut Output, terminal: Terminal) -> Result<i32, Failure> {
    match command {
        DataCommand::Show {
            file,
            rows,
            tokenizer,
            json,
        } => show(file, *rows, tokenizer.as_deref(), *json, out, terminal)?,
        DataCommand::Convert { input, output } => {
            let converted = data::convert(input, output)?;
            out.line(&format!(
                "{}: {} ({})",
                output.display(),
                format::plural(converted.rows, "row"),
                converted.columns.join(", ")
            ))?;
        }
        DataCommand::Make {
            name,
            out: directory,
            seed,
            rows,
        } => make(name, directory, *seed, *rows, out)?,
    }
    Ok(exit_code::OK)
}

fn show(
    file: &Path,
    samples: u64,
    tokenizer: Option<&Path>,
    json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    let chat = tokenizer
        .map(|directory| Chat::load(directory, None, &serde_json::Map::new()))
        .transpose()
        .map_err(|error| Failure::input(error.to_string()))?;
    let shown = data::show(file, "prompt", chat.as_ref(), &[], samples as usize)?;
    if json {
        return out.json(&shown);
    }
    print(&shown, out, terminal)
}

fn print(shown: &Shown, out: &mut Output, terminal: Terminal) -> Result<(), Failure> {
    let strong = |text: &str| terminal.paint(Role::Strong, text);
    out.line(&format!(
        "{}: {}",
        strong(&shown.path.display().to_string()),
        format::plural(shown.rows, "row")
    ))?;
    let widest = shown
        .schema
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    for (column, kind) in &shown.schema {
        out.line(&format!(
            "  {column:widest$}  {}",
            terminal.paint(Role::Muted, kind)
        ))?;
    }
    for (source, rows) in &shown.data_sources {
        let source = if source.is_empty() {
            "(no data_source)"
        } else {
            source
        };
        out.line(&format!("  {source}: {}", format::plural(*rows, "row")))?;
    }
    for (what, histogram) in [("characters", &shown.characters), ("tokens", &shown.tokens)] {
        if let Some(histogram) = histogram {
            out.line("")?;
            print_histogram(what, histogram, out, terminal)?;
        }
    }
    for sample in &shown.samples {
        out.line("")?;
        out.line(&strong(&format!("row {}", sample.row)))?;
        for line in sample.text.lines() {
            out.line(&format!("  {}", printable(line)))?;
        }
        if let Some(truth) = &sample.ground_truth {
            out.line(&format!("  ground truth: {truth}"))?;
        }
        for (name, text) in [("chosen", &sample.chosen), ("rejected", &sample.rejected)] {
            if let Some(text) = text {
                out.line(&format!(
                    "  {name}: {}",
                    printable(&text.replace('\n', " "))
                ))?;
            }
        }
    }
    Ok(())
}

/// Text of a data set may hold anything; it must not steer the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\t' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

fn print_histogram(
    what: &str,
    histogram: &Histogram,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    out.line(&format!(
        "{what}: {} to {}, median {}, p95 {}",
        histogram.min, histogram.max, histogram.median, histogram.p95
    ))?;
    let most = histogram
        .bins
        .iter()
        .map(|(_, count)| *count)
        .max()
        .unwrap_or(0)
        .max(1);
    for (start, count) in &histogram.bins {
        let columns = (*count as f64 / most as f64 * BAR_COLUMNS as f64).round() as usize;
        // A bin with rows is never without a mark.
        let bar = terminal
            .glyph("█", "#")
            .repeat(columns.max(usize::from(*count > 0)));
        let line = format!("  {start:>6}  {:>8}  {bar}", format::count(*count));
        out.line(line.trim_end())?;
    }
    Ok(())
}

fn make(
    name: &str,
    directory: &Path,
    seed: u64,
    rows: Option<u64>,
    out: &mut Output,
) -> Result<(), Failure> {
    let recipe = Recipe::parse(name).map_err(|error| Failure::usage(error.to_string()))?;
    std::fs::create_dir_all(directory).map_err(|error| {
        Failure::unexpected(format!("cannot create {}: {error}", directory.display()))
    })?;
    let rows = rows.unwrap_or(DEFAULT_ROWS);
    if rows == 0 {
        return Err(Failure::usage("--rows is 0; expected at least 1"));
    }
    for (split, rows) in [(Split::Train, rows), (Split::Test, rows.div_ceil(4))] {
        let path = directory.join(format!("{name}-{}.parquet", split.name()));
        let made = recipe.rows(rows as usize, seed, split);
        let written = data::write_parquet(&made, &path)?;
        out.line(&format!(
            "{}: {}",
            path.display(),
            format::plural(written.rows, "row")
        ))?;
    }
    Ok(())
}
