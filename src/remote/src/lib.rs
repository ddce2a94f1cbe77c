//! RUNS ELSEWHERE: where they may run, how to get there, what watches over them there, and the copy of them kept here.
//!
//! ```text
//!  targets.yaml ─► Target ─► ssh (the system's OpenSSH, one master a host) ─► `lathe __far` over there ─► far::serve
//!                    │                                                          │ store: files by hash
//!                    ├─ launch: files that are missing there, then "begin" ────►│ supervise: trainer, log.txt, exit.json
//!                    ├─ mirror: events.jsonl and log.txt by byte offset ◄───────│ stream
//!                    ├─ census: what a list shows of the runs there ◄───────────│ census
//!                    ├─ control: the run's control.sock, a channel of its own ─►│ control
//!                    └─ doctor, setup: what is there, what is missing           ├ facts
//!                                                                               └ cluster: Slurm or Ray gives the run its machine
//! ```
//! What crosses the line is [`wire`]: frames of JSON and bytes, never words of a shell; a command line there is one constant.
//! Knows nothing of screens, models or what events mean.

pub mod doctor;
pub mod far;
pub mod hash;
pub mod near;
mod pieces;
pub mod scheduler;
pub mod setup;
pub mod ssh;
pub mod targets;
pub mod wire;

pub use near::census::Census;
pub use near::link::{Link, LinkError};
pub use near::mirror::Keeper;
pub use ssh::Ssh;
pub use targets::{Target, Targets};
