//! This side of the line: conversations, launching, the copy of a run, its control socket, files that are fetched.

pub mod control;
pub mod launch;
pub mod link;
pub mod mirror;
pub mod pull;
