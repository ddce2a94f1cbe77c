//! One client's connection as the server holds it: whole lines come out, answers wait in a bounded buffer, nothing blocks.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::protocol::{Answer, MAX_LINE_BYTES};

/// Answers a client may leave unread before its connection is closed.
const MAX_UNREAD_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Connection {
    pub key: u64,
    pub stream: UnixStream,
    /// Requests that will get a further answer.
    pub waiting: usize,
    /// When bytes last came from it.
    pub heard: Instant,
    /// The start of a line.
    input: Vec<u8>,
    output: Vec<u8>,
    /// The client writes no more, or may not; it may still read.
    is_deaf: bool,
    is_broken: bool,
}

impl Connection {
    pub fn new(key: u64, stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            key,
            stream,
            waiting: 0,
            heard: Instant::now(),
            input: Vec::new(),
            output: Vec::new(),
            is_deaf: false,
            is_broken: false,
        })
    }

    pub fn wants_read(&self) -> bool {
        !self.is_deaf
    }

    pub fn wants_write(&self) -> bool {
        !self.output.is_empty()
    }

    /// Nothing will come in or go out any more.
    pub fn is_over(&self) -> bool {
        self.is_broken || (self.is_deaf && self.output.is_empty() && self.waiting == 0)
    }

    /// Reads what is there, at most one chunk, and gives the whole lines of it. Half a line at the end of all is dropped: a
    /// client that died in the middle of a request asked for nothing.
    pub fn read(&mut self, chunk: &mut [u8]) -> Vec<Vec<u8>> {
        if self.is_deaf || self.is_broken {
            return Vec::new();
        }
        match self.stream.read(chunk) {
            Ok(0) => self.is_deaf = true,
            Ok(count) => {
                self.heard = Instant::now();
                self.input.extend_from_slice(&chunk[..count]);
            }
            Err(error) if is_transient(&error) => {}
            Err(_) => self.is_broken = true,
        }
        let mut lines = Vec::new();
        let mut start = 0;
        while let Some(length) = self.input[start..].iter().position(|byte| *byte == b'\n') {
            let line = &self.input[start..start + length];
            if line.len() >= MAX_LINE_BYTES {
                break;
            }
            if !line.trim_ascii().is_empty() {
                lines.push(line.to_vec());
            }
            start += length + 1;
        }
        self.input.drain(..start);
        if self.input.len() >= MAX_LINE_BYTES {
            self.input = Vec::new();
            self.is_deaf = true;
            self.say(&Answer::Refused {
                id: None,
                reason: format!(
                    "a request has at most {MAX_LINE_BYTES} bytes; this connection is closed"
                ),
            });
        }
        lines
    }

    /// Queues an answer. A client that reads none of its answers is dropped.
    pub fn say(&mut self, answer: &Answer) {
        if self.output.len() > MAX_UNREAD_BYTES {
            self.is_broken = true;
        }
        if !self.is_broken {
            self.output.extend(answer.line());
        }
    }

    /// Writes as much as the client takes now.
    pub fn write(&mut self) {
        while !self.output.is_empty() && !self.is_broken {
            match self.stream.write(&self.output) {
                Ok(0) => self.is_broken = true,
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if is_transient(&error) => return,
                Err(_) => self.is_broken = true,
            }
        }
    }

    /// The client is gone in both directions.
    pub fn hang_up(&mut self) {
        self.is_broken = true;
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
