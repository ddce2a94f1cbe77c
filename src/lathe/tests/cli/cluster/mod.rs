//! Runs that a scheduler gives their machine. Slurm's commands are played by a small program, Ray's API by a thread; `real` is the
//! same with a real slurmctld and slurmd and a real head node of Ray's, started by `just cluster-test` and skipped elsewhere.

mod launching;
pub mod queue;
mod ray;
mod real;
mod resuming;
mod slurm;
