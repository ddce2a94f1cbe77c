//! Standard output of a command. A reader that left (`lathe … | head`) is not an error of ours.

use std::io::{self, Write};

use serde::Serialize;

use super::Failure;

#[derive(Debug)]
pub struct Output {
    stdout: io::Stdout,
}

impl Output {
    pub fn new() -> Self {
        Self {
            stdout: io::stdout(),
        }
    }

    /// One line, at once.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        let mut lock = self.stdout.lock();
        writeln!(lock, "{text}").map_err(|error| Failure::output(&error))?;
        lock.flush().map_err(|error| Failure::output(&error))
    }

    /// One JSON value on one line.
    pub fn json<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let text = serde_json::to_string(value).expect("what commands print has only string keys");
        self.line(&text)
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut lock = self.stdout.lock();
        lock.write_all(bytes)
            .map_err(|error| Failure::output(&error))?;
        lock.flush().map_err(|error| Failure::output(&error))
    }
}
