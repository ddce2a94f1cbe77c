//! The keys of a target: what each says, which kinds have it, and what sbatch's options are not the user's.

use super::TargetKind;

/// Every key of a target, with what it says.
pub const KEYS: &[(&str, &str)] = &[
    ("kind", "local, ssh, slurm or ray"),
    (
        "host",
        "the host as `ssh` takes it [default: the target's name; with slurm and ray: this machine]",
    ),
    (
        "folder",
        "where lathe keeps programs, files and runs there [default: .lathe, in the home directory]",
    ),
    (
        "program",
        "lathe's program there [default: what `lathe target setup` put there]",
    ),
    (
        "trainer",
        "lathe-trainer's program there [default: beside lathe]",
    ),
    (
        "python",
        "the Python there that has verl, for launch.engine: verl [default: launch.verl.python of the experiment]",
    ),
    (
        "libtorch",
        "the folder of libtorch's libraries there [default: beside the trainer]",
    ),
    (
        "gpus",
        "auto: one free GPU; as_is, none, a number of free ones, or a list such as [0, 1] [default: auto; with ray: none]",
    ),
    (
        "at_once",
        "runs at the same time there; others wait; with slurm: of one sweep [default: no limit]",
    ),
    ("models", "a folder there in which models are looked for"),
    ("environment", "variables for the trainer, NAME: value"),
    (
        "pass",
        "names of variables that the trainer gets as they are here, such as WANDB_API_KEY",
    ),
    ("ssh_config", "a file instead of ~/.ssh/config"),
    (
        "connect_timeout",
        "how long connecting may take, such as 10s [default: 10s]",
    ),
    (
        "compression",
        "compress what goes over the line [default: true]",
    ),
    (
        "listed",
        "page Runs and `lathe runs --targets` list all runs there, not only those begun here [default: true]",
    ),
    (
        "partition",
        "slurm: the partition, or several, as sbatch takes them [default: the cluster's]",
    ),
    ("account", "slurm: what the time is booked on"),
    ("qos", "slurm: the quality of service"),
    (
        "time",
        "slurm: the time limit as sbatch takes it, such as 12:00:00 or 2-12 [default: the partition's]",
    ),
    (
        "cpus",
        "slurm, ray: processors for the run [default: one; with ray: none are counted]",
    ),
    ("memory", "slurm, ray: memory for the run, such as 64G"),
    ("gpu_type", "slurm: which GPUs, such as a100"),
    (
        "constraint",
        "slurm: what the node must have, such as ib&nvme",
    ),
    (
        "requeue",
        "slurm: when the job goes into the queue again and the run goes on from its newest checkpoint: preempted (also when its node \
         failed), always (also at the end of its time), never [default: preempted]",
    ),
    (
        "warning",
        "slurm: how long before the end of its time the run saves a checkpoint and stops [default: 120s]",
    ),
    (
        "sbatch",
        "slurm: further options of sbatch, such as [--nice=100, --exclude=node3]",
    ),
    (
        "before",
        "slurm: lines of bash before the run's, such as [module load cuda]",
    ),
    (
        "address",
        "ray: its dashboard's address, as seen from this machine or from `host` [default: http://127.0.0.1:8265]",
    ),
    (
        "resources",
        "ray: its own resources for the run, NAME: count",
    ),
    (
        "token",
        "ray: the variable that holds its token [default: as Ray looks for it: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token]",
    ),
];

/// Keys that only some kinds of target have.
pub(super) const OF_KINDS: &[(&str, &[TargetKind])] = &[
    (
        "python",
        &[TargetKind::Ssh, TargetKind::Slurm, TargetKind::Ray],
    ),
    ("partition", &[TargetKind::Slurm]),
    ("account", &[TargetKind::Slurm]),
    ("qos", &[TargetKind::Slurm]),
    ("time", &[TargetKind::Slurm]),
    ("cpus", &[TargetKind::Slurm, TargetKind::Ray]),
    ("memory", &[TargetKind::Slurm, TargetKind::Ray]),
    ("gpu_type", &[TargetKind::Slurm]),
    ("constraint", &[TargetKind::Slurm]),
    ("requeue", &[TargetKind::Slurm]),
    ("warning", &[TargetKind::Slurm]),
    ("sbatch", &[TargetKind::Slurm]),
    ("before", &[TargetKind::Slurm]),
    ("address", &[TargetKind::Ray]),
    ("resources", &[TargetKind::Ray]),
    ("token", &[TargetKind::Ray]),
];

/// Options of sbatch that lathe gives itself, or that would have the job be something else.
pub(super) const OWN_OPTIONS: &[&str] = &[
    "--array",
    "--chdir",
    "--error",
    "--gres",
    "--input",
    "--job-name",
    "--no-requeue",
    "--nodes",
    "--ntasks",
    "--open-mode",
    "--output",
    "--parsable",
    "--requeue",
    "--signal",
    "--test-only",
    "--wait",
    "--wrap",
    "--export",
    "--export-file",
    "--het-group",
];
