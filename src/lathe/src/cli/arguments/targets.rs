//! What is done with targets, and how they are written.

use std::path::PathBuf;

use clap::Subcommand;

use super::RunsPlace;

pub(super) const TARGETS_HELP: &str = "\
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
    program, trainer, libtorch, python, ssh_config, connect_timeout, compression, listed
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
        /// Send Lathe's source and build it there in any case; done by itself for a machine that these programs do not run on, where the source
        /// is at hand
        #[arg(long)]
        build: bool,
        /// The folder of the source, a git checkout [default: this folder]
        #[arg(long, value_name = "DIR")]
        source: Option<PathBuf>,
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
