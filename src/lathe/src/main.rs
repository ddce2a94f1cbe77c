//! The program `lathe`: starts in milliseconds, links no libtorch, shows runs and starts them.

mod check;
mod cli;
mod export;
mod headless;
mod launch;
mod projecting;
mod terminal;
mod tui;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use cli::{Cli, Failure, Output};
use terminal::{Role, Terminal};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let is_help = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            // A reader that left is not worth a word.
            let _ = error.print();
            return exit(if is_help {
                runlog::exit_code::OK
            } else {
                runlog::exit_code::USAGE
            });
        }
    };
    let terminal = Terminal::detect();
    let code = match cli::execute(cli, &mut Output::new(), terminal) {
        Ok(code) => code,
        Err(failure) => {
            if let Failure::Told { message, .. } = &failure {
                eprintln!("{} {message}", terminal.paint_stderr(Role::Bad, "error:"));
            }
            failure.exit_code()
        }
    };
    exit(code)
}

fn exit(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
