//! Every command, option and word of help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

mod bandit;
mod evaluate;
mod export;
mod foreign;
mod inputs;
mod kept;
mod running;
mod targets;

pub use self::foreign::ImportArguments;
pub use bandit::{BanditCommand, SimulateArguments, SimulateFormat};
pub use evaluate::{EvalArguments, WinrateArguments};
pub use export::ExportArguments;
pub use inputs::{CheckArguments, DataCommand, ModelCommand};
pub use kept::{CheckpointsArguments, CheckpointsCommand, RunsArguments, RunsCommand};
pub use running::{CtlArguments, CtlCommand, Form, RewardCommand, RunArguments, RunsPlace};
pub use targets::TargetCommand;

use targets::TARGETS_HELP;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    something unexpected: a bug or the machine
  2    wrong usage, or an experiment with errors
  3    input that cannot be used: model, tokenizer, data or libtorch missing or corrupt
  4    the run started and failed
  5    another program is writing to this run directory, or it holds a warm-up or evaluation already
  6    the run refused what `lathe ctl` asked of it
  7    `lathe ctl` cannot reach the run: it has ended, runs elsewhere, or does not answer; or a target cannot be reached
  8    `lathe run --resume` of a run whose every step is trained: nothing is left to do
  130  stopped on request: after one Ctrl-C with a checkpoint, after a second one at once and without
  129, 143  lathe was told to leave (SIGHUP, SIGTERM); the run goes on

Runs lie in ./runs, or where --runs or LATHE_RUNS says.
Colour only on terminals; NO_COLOR=1 turns it off.";

/// Online reinforcement learning of language models on multi-turn dialogues.
#[derive(Debug, Parser)]
#[command(
    name = "lathe",
    after_help = EXIT_CODES,
    disable_version_flag = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Cli {
    /// Print the versions of the program, of what it reads, and which trainer it found
    #[arg(short = 'V', long)]
    pub version: bool,

    #[command(flatten)]
    pub workbench: WorkbenchArguments,

    #[command(flatten)]
    pub place: RunsPlace,

    #[command(subcommand)]
    pub command: Option<Command>,
}

/// How the workbench looks and what it may do.
#[derive(Debug, Clone, Args)]
pub struct WorkbenchArguments {
    /// Print facts line by line instead of opening the workbench
    #[arg(long, global = true)]
    pub plain: bool,
    /// Change nothing: no run, no file
    #[arg(long, global = true)]
    pub read_only: bool,
    /// Theme: dark, light, high-contrast, colorblind-dark, colorblind-light, mono, or one of yours
    #[arg(long, global = true, value_name = "NAME")]
    pub theme: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Open the workbench on one run; of another tracker, too
    Watch {
        /// A path, a name, the start of an id, or `latest`; or where another tracker keeps runs
        run: OsString,
        #[command(flatten)]
        place: RunsPlace,
    },
    /// Open the workbench on a run as it was, on one time cursor
    Replay {
        /// A path, a name, the start of an id, or `latest`
        run: OsString,
        /// How many times as fast as it happened, 1 to 1000
        #[arg(long, default_value_t = 10.0, value_parser = speed)]
        speed: f64,
        /// Start where this step began
        #[arg(long, value_name = "STEP")]
        from: Option<u64>,
        #[command(flatten)]
        place: RunsPlace,
    },
    /// List the workbench's actions with their keys and ids
    Bindings {
        /// Only actions whose words contain this
        filter: Option<String>,
        /// As Markdown tables
        #[arg(long)]
        markdown: bool,
    },
    /// Train an experiment and watch it, or go on with a run that ended
    Run {
        #[command(flatten)]
        arguments: RunArguments,
        /// Go on in the directory of this run, from its newest whole checkpoint; its own experiment, with these overrides
        #[arg(long, value_name = "RUN", conflicts_with_all = ["name", "from"])]
        resume: Option<OsString>,
        /// Start a new run at a checkpoint of another: its weights, optimizer, step and place in the data, with this experiment's
        /// settings. A path, RUN:STEP, or a run, whose newest is taken
        #[arg(long, value_name = "CHECKPOINT")]
        from: Option<OsString>,
    },
    /// Warm a model up on demonstrations (supervised)
    Sft(RunArguments),
    /// Learn reward models
    Reward {
        #[command(subcommand)]
        command: RewardCommand,
    },
    /// Check an experiment, and try its data, tools and scorer on real rows
    Check(CheckArguments),
    /// Look at data sets, convert and make them
    Data {
        #[command(subcommand)]
        command: DataCommand,
    },
    /// Evaluate a model: accuracy with its error, votes, pass@k, perplexity, latency. Trains nothing
    Eval(EvalArguments),
    /// How often a judge prefers a model's answers to another's, with its error, and what is left of it at equal length
    Winrate(WinrateArguments),
    /// Fetch a pretrained model, or turn a GGUF file into a Hugging Face directory
    Model {
        #[command(subcommand)]
        command: ModelCommand,
    },
    /// Try the policies that choose among reward sources
    Bandit {
        #[command(subcommand)]
        command: BanditCommand,
    },
    /// List runs, or show one
    Runs(RunsArguments),
    /// Follow a run that was started elsewhere or left behind
    Follow {
        /// A path, a name, the start of an id, or `latest`
        run: OsString,
        #[command(flatten)]
        place: RunsPlace,
        #[command(flatten)]
        form: Form,
    },
    /// Write a run's metrics, curves or a report to a file
    Export(ExportArguments),
    #[command(
        about = "Put other trackers' runs among yours: verl, TensorBoard, W&B, trackio, MLflow, CSV, JSON lines"
    )]
    Import(ImportArguments),
    /// List a run's checkpoints, and remove those that no rule keeps
    Checkpoints(CheckpointsArguments),
    /// Ask a run to save a checkpoint and stop
    Stop {
        /// A path, a name, the start of an id, or `latest`
        run: OsString,
        #[command(flatten)]
        place: RunsPlace,
    },
    /// Control a running run: pause, resume, step, checkpoint, stop, set, status, knobs, mode, guards, arm, roll back
    Ctl(CtlArguments),
    /// List the machines that runs may be started on
    #[command(after_help = TARGETS_HELP)]
    Targets {
        /// JSON lines, one a target
        #[arg(long)]
        json: bool,
    },
    /// Look at a target: the line, versions, GPUs and who uses them, disk, libtorch, clock; and what to do about each
    Doctor {
        /// A target, or a host that `ssh` knows; `local` is this machine
        target: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Set a target up, log in to it, list its runs, adopt one
    Target {
        #[command(subcommand)]
        command: TargetCommand,
    },
    /// Fetch rollouts or checkpoints of a run on another machine: only what is not here, checked by hash
    Pull {
        /// A path, a name, the start of an id, or `latest`
        run: OsString,
        /// A checkpoint instead of the rollouts: its step, latest, or all
        #[arg(long, value_name = "STEP")]
        checkpoint: Option<String>,
        #[command(flatten)]
        place: RunsPlace,
    },
    /// List the experiment's keys with type, default and meaning
    Keys {
        /// Only keys whose path or meaning contains this
        filter: Option<String>,
        /// JSON lines
        #[arg(long)]
        json: bool,
    },
    /// List the metrics with unit, direction and formula
    Metrics {
        /// Only metrics whose name or formula contains this
        filter: Option<String>,
        /// As Markdown tables
        #[arg(long, conflicts_with_all = ["filter", "json"])]
        markdown: bool,
        /// JSON lines
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for your shell
    Completions { shell: Shell },
    /// Print the man page, or write it and one of each command into a folder (for packagers)
    Man { directory: Option<PathBuf> },
    /// Answers another machine's lathe on standard input and output
    #[command(name = remote::wire::FAR_COMMAND, hide = true)]
    Far,
    /// Watches over a run that was started from another machine
    #[command(name = remote::wire::SUPERVISE_COMMAND, hide = true)]
    Supervise { run: PathBuf },
    /// Joins standard input and output with the control socket of a run of this machine
    #[command(name = remote::wire::JOIN_COMMAND, hide = true)]
    Join { run: PathBuf },
    /// Starts verl for a run directory, follows it and records its end
    #[command(name = crate::launch::VERL_COMMAND, hide = true)]
    Verl {
        #[arg(long)]
        run_dir: PathBuf,
    },
    /// Holds verl: ends it when its watcher ends
    #[command(name = crate::launch::LEASH_COMMAND, hide = true)]
    Leash {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<OsString>,
    },
    /// Becomes verl, which the kernel kills when its parent ends
    #[command(name = crate::launch::LEASHED_COMMAND, hide = true)]
    Leashed {
        parent: u32,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<OsString>,
    },
    /// Becomes the trainer in a session of its own
    #[command(name = crate::launch::EXEC_COMMAND, hide = true)]
    ExecTrainer {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<OsString>,
    },
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (1.0..=1000.0).contains(&speed) => Ok(speed),
        _ => Err("expected a number from 1 to 1000".to_owned()),
    }
}
