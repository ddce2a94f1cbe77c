//! `lathe bandit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum BanditCommand {
    /// Play policies in an environment whose truth is known, and print what each loses
    Simulate(SimulateArguments),
    /// List the policies with their formulas and the settings they read
    Policies,
}

#[derive(Debug, Args)]
#[command(after_help = "\
An environment names arms, what each gives, and policies; docs/bandit.md has its fields. All policies
meet the same contexts and values; the same file and seed give the same numbers, however many threads.

Examples:
  lathe bandit simulate experiments/bandits/judges.yaml
  lathe bandit simulate experiments/bandits/judges.yaml --policy thompson --policy ucb1 --runs 1000
  lathe bandit simulate experiments/bandits/prompts.yaml --format csv > regret.csv")]
pub struct SimulateArguments {
    /// The environment, YAML or JSON
    #[arg(value_name = "ENV")]
    pub environment: PathBuf,
    /// table: at the horizon, best first; csv: regret curves; json: a line a policy, with its curve
    #[arg(long, value_enum, default_value = "table")]
    pub format: SimulateFormat,
    /// Only the policies of these labels
    #[arg(long, value_name = "LABEL", num_args = 1)]
    pub policy: Vec<String>,
    /// Runs a policy [default: the file's, else 100]
    #[arg(long, value_name = "N")]
    pub runs: Option<u64>,
    /// Other seeds, other runs [default: the file's, else 0]
    #[arg(long)]
    pub seed: Option<u64>,
    /// [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimulateFormat {
    Table,
    Csv,
    Json,
}
