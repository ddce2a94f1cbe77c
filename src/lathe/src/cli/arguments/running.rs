//! Starting runs, speaking to them, and where they lie.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

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
