//! Runs on another machine, which is this one behind a real sshd with keys, configuration and known hosts of its own.
//!
//! Where there is no sshd, or no right to cut a network link, each test says so and does nothing; `just remote-test` runs them and
//! tells what it skipped.

mod building;
pub mod far;
mod faults;
mod launching;
mod line;
mod net;
mod places;
mod resuming;
mod sessions;
mod slow;
