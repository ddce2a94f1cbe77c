//! A command that could not do what was asked, and the exit code for it.

use std::io;

use runlog::control::ClientError;
use runlog::exit_code;
use runlog::run_dir::RunDirError;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What, where, and what to do; lowercase, no full stop.
    #[error("{message}")]
    Told { exit_code: i32, message: String },
    /// The reader of standard output has left. Silent.
    #[error("standard output was closed")]
    ReaderLeft,
}

impl Failure {
    pub fn usage(message: impl Into<String>) -> Self {
        Self::told(exit_code::USAGE, message)
    }

    pub fn input(message: impl Into<String>) -> Self {
        Self::told(exit_code::INPUT, message)
    }

    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::told(exit_code::UNEXPECTED, message)
    }

    pub fn told(exit_code: i32, message: impl Into<String>) -> Self {
        Self::Told {
            exit_code,
            message: message.into(),
        }
    }

    /// Of writing to standard output.
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::ReaderLeft;
        }
        Self::unexpected(format!("cannot write to standard output: {error}"))
    }

    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Told { exit_code, .. } => *exit_code,
            Self::ReaderLeft => exit_code::OK,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::told(exit_code::UNREACHABLE, error.to_string())
    }
}

impl From<RunDirError> for Failure {
    fn from(error: RunDirError) -> Self {
        let code = match &error {
            // What was named cannot be used, for whoever asks.
            RunDirError::Io { source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::NotADirectory
                        | io::ErrorKind::PermissionDenied
                        | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                exit_code::INPUT
            }
            RunDirError::Io { .. } => exit_code::UNEXPECTED,
            RunDirError::Busy { .. } => exit_code::BUSY,
            RunDirError::NotARun { .. }
            | RunDirError::Corrupt { .. }
            | RunDirError::Newer { .. } => exit_code::INPUT,
            RunDirError::NotFound { .. }
            | RunDirError::Ambiguous { .. }
            | RunDirError::NoRuns { .. } => exit_code::USAGE,
        };
        Self::told(code, error.to_string())
    }
}
