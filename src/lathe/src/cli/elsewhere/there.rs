//! What this program answers and does when another machine's lathe asks: hidden commands, started over ssh.

use std::path::Path;

use remote::far::{self, Here};
use runlog::exit_code;

use crate::launch::{self, Ending};

/// What answers on this machine when another asks.
pub fn here() -> Here {
    Here {
        version: env!("CARGO_PKG_VERSION"),
        find_trainer: || launch::find_trainer().map_err(|error| error.to_string()),
        exec_command: launch::EXEC_COMMAND,
        explain,
    }
}

fn explain(code: Option<i32>, signal: Option<i32>, log: &Path) -> (String, Vec<String>) {
    let ending = Ending {
        code,
        signal,
        log_lines: launch::last_lines(log, 12).unwrap_or_default(),
    };
    let reason = match code {
        Some(0) => "it ended by itself".to_owned(),
        Some(code) if code != launch::NOT_STARTED => {
            format!("the trainer ended with exit code {code}")
        }
        _ => ending.explanation(),
    };
    (reason, ending.log_lines)
}

/// `lathe __far`
pub fn answer() -> i32 {
    match far::serve(here()) {
        Ok(()) => exit_code::OK,
        // The line was cut: whoever asked will come again.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => exit_code::OK,
        Err(error) => {
            eprintln!("lathe: {error}");
            exit_code::UNEXPECTED
        }
    }
}

/// `lathe __supervise RUN`
pub fn supervise(run: &Path) -> i32 {
    match far::supervise(here(), run) {
        Ok(code) => code,
        Err(reason) => {
            eprintln!("lathe: {reason}");
            exit_code::UNEXPECTED
        }
    }
}

/// `lathe __join RUN`
pub fn join(run: &Path) -> i32 {
    match far::join_here(run) {
        Ok(()) => exit_code::OK,
        Err(reason) => {
            eprintln!("lathe: {reason}");
            exit_code::UNREACHABLE
        }
    }
}
