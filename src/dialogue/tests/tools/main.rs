//! Tools that reach out of the process: programs, sandboxes, servers.

mod command;
mod common;
