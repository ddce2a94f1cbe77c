//! The same with a real slurmctld, slurmd and munged, and with a real head node of Ray's.
//!
//! Only `just cluster-test` starts them: it sets `LATHE_CLUSTER_TEST`. What a machine lacks is said, and skipped.

mod daemons;
mod head;
mod nodes;
mod slurmd;
mod trainer;
