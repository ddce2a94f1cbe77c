//! Tools that reach out of the process: programs, sandboxes, servers.

mod command;
mod common;
mod http;
mod mcp;
mod python;
mod search;
mod server;
