//! Runs and checkpoints that are there.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};

use super::RunsPlace;

#[derive(Debug, Args)]
#[command(after_help = "\
Without --keep, --every and --best the experiment's own rules count (trainer.max_actor_ckpt_to_keep,
trainer.ckpt_keep_every, trainer.ckpt_keep_best). What the run's guards may go back to always stays.

Examples:
  lathe checkpoints latest
  lathe checkpoints latest prune --keep 2 --best 1 --dry-run")]
pub struct CheckpointsArguments {
    /// A path, a name, the start of an id, or `latest`
    pub run: OsString,
    pub command: Option<CheckpointsCommand>,
    /// Keep the newest N
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub keep: Option<usize>,
    /// Keep those of steps that are a multiple of N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub every: Option<u64>,
    /// Keep the N with the best value
    #[arg(long, value_name = "N")]
    pub best: Option<usize>,
    /// What says which is best, `*` for any text [default: that of the experiment]
    #[arg(long, value_name = "GLOB")]
    pub metric: Option<String>,
    /// With prune: only say what would go
    #[arg(long)]
    pub dry_run: bool,
    /// Read every byte and compare it with its checksum, instead of looking at the lengths
    #[arg(long)]
    pub verify: bool,
    /// JSON lines, one a checkpoint
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: RunsPlace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckpointsCommand {
    /// Remove what no rule keeps
    Prune,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RunsArguments {
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
    #[command(flatten)]
    pub place: RunsPlace,
    /// Ask every target of targets.yaml too, for all runs there, also those begun from other machines
    #[arg(long)]
    pub targets: bool,
    /// JSON lines, one a run
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Summary of one run: running, finished, dead or torn
    Show {
        /// A path, a name, the start of an id, or `latest`
        run: OsString,
        #[command(flatten)]
        place: RunsPlace,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}
