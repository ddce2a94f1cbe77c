//! Live control of a running run: commands over `control.sock` in its directory, one JSON line each, every one answered.
//!
//! ```text
//!  lathe ctl, TUI ─ Client ─► control.sock ─► Server (a thread) ─ Job, bounded ─► the run's loop, at its step boundaries
//!                     ◄──── accepted, then applied or refused ◄──── Reply ◄──────┘   and an event in the log
//! ```
//! - **Who may.** The socket has mode 0600, and the peer's user must be the run's user (the kernel says who it is).
//! - **Harmless.** A line that is no request is answered with `refused`; a longer one than [`MAX_LINE_BYTES`] closes its
//!   connection. A client that is slow, silent or gone costs the run nothing: the server never waits for one.
//! - **Deep directories.** A socket's address has room for 108 bytes, so both sides name it through their own open
//!   directory, `/proc/self/fd/N/control.sock`: nothing lies outside the run directory, and nothing is left to clean up.
//!
//! Knows how commands travel; what they do is the trainer's business.

/// A variable of the trainer's environment: however many signals ask it to end, they are one. Set where a scheduler signals every process
/// of a job, and what watches over the run too.
pub const ONE_SIGNAL: &str = "LATHE_ONE_SIGNAL";

mod arms;
mod client;
mod connection;
mod knobs;
mod orders;
mod protocol;
mod server;
mod socket;
#[cfg(test)]
mod tests;
mod waits;

pub use arms::{ArmOrder, ArmState, words as arm_words};
pub use client::{Client, ClientError, is_running};
pub use knobs::{Knob, KnobError, TABLE as KNOBS, find as find_knob};
pub use orders::{
    ALL_GUARDS, ASYNC_ADVISOR, CheckpointName, CheckpointState, GuardOrder, GuardState, RunMode,
    rung,
};
pub use protocol::{
    Answer, Applied, Command, KnobState, MAX_LINE_BYTES, MAX_STALENESS, Malformed, Request, Status,
};
pub use server::{Board, Job, Server, ServerError};
pub use socket::connect_now;
pub use waits::WaitState;
