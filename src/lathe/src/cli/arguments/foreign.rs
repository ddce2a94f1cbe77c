//! What is said of other trackers' runs.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;

use super::RunsPlace;

#[derive(Debug, Args)]
#[command(after_help = "\
Reads verl's file and console logs, TensorBoard event files, offline runs of W&B, trackio, MLflow (files and SQLite), CSV and
JSON lines; the source is never written to. In a directory it takes every run that it finds; CSV, general JSON lines and
console logs only when they are named themselves, or with --format. Importing again goes on where the last import stopped.

Examples:
  lathe import wandb/offline-run-20261130_101112-abcd1234
  lathe import tb_logs --follow
  lathe import table.csv --step-column round --name baseline
  lathe watch mlruns                   # looks at runs without keeping them")]
pub struct ImportArguments {
    /// A file, a run's directory, or a directory of runs
    pub source: PathBuf,
    /// Go on reading while the run is written, until it ends or Ctrl-C
    #[arg(long)]
    pub follow: bool,
    /// Name of the run, where the source holds one [default: the source's]
    #[arg(long)]
    pub name: Option<String>,
    #[command(flatten)]
    pub reading: ReadingArguments,
    #[command(flatten)]
    pub place: RunsPlace,
    /// One JSON line a run
    #[arg(long)]
    pub json: bool,
}

/// What a source does not say itself.
#[derive(Debug, Clone, Default, Args)]
pub struct ReadingArguments {
    /// Whose log it is [default: as its content says]
    #[arg(long, value_name = "FORMAT", value_parser = format())]
    pub format: Option<foreign::Format>,
    /// Of CSV and JSON lines: the column that counts steps [default: the one that is called so; else rows are counted]
    #[arg(long, value_name = "COLUMN")]
    pub step_column: Option<String>,
    /// Of CSV and JSON lines: the column that holds times [default: timestamp, time, …]
    #[arg(long, value_name = "COLUMN")]
    pub time_column: Option<String>,
}

fn format() -> impl TypedValueParser<Value = foreign::Format> {
    PossibleValuesParser::new(foreign::Format::ALL.map(foreign::Format::name))
        .map(|name| foreign::Format::from_name(&name).expect("only names of formats are possible"))
}

impl ReadingArguments {
    pub fn options(&self) -> foreign::Options {
        foreign::Options {
            format: self.format,
            step_column: self.step_column.clone(),
            time_column: self.time_column.clone(),
        }
    }
}
