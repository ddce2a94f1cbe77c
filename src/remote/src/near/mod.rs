//! This side of the line: conversations, launching, the copy of a run and how long its cut line is left alone, the list of those there, a run's control socket, files that are fetched.

pub mod census;
pub mod control;
pub mod launch;
pub mod link;
pub mod mirror;
pub mod pull;
mod waits;
