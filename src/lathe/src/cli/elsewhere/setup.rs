//! `lathe target setup`: this build of lathe goes there, or the source, which is built there.

use std::path::Path;

use remote::Target;
use remote::near::launch::ShipError;
use remote::setup::build::{self, BuildError, News, Source};
use remote::setup::{self, Done, Programs, SetupError};
use runlog::exit_code;

use crate::cli::{Failure, Output};
use crate::headless::format;
use crate::launch;

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        let code = match &error {
            SetupError::Ssh(_)
            | SetupError::Link(_)
            | SetupError::Ship(ShipError::Link(_))
            | SetupError::Build(BuildError::Cut { .. } | BuildError::Ended { .. }) => {
                exit_code::UNREACHABLE
            }
            SetupError::Build(BuildError::NoSource { .. }) => exit_code::USAGE,
            _ => exit_code::INPUT,
        };
        Self::told(code, error.to_string())
    }
}

/// Sends these programs; builds them there where they do not run and the source is at hand, or where that is asked for.
pub(super) fn set_up(
    target: &Target,
    builds: bool,
    source: Option<&Path>,
) -> Result<Done, Failure> {
    if builds {
        return build(target, source);
    }
    match send(target)? {
        Err(unfit @ (SetupError::OtherMachine { .. } | SetupError::OldLibc { .. }))
            if source.is_some() || Source::open(Path::new(".")).is_ok() =>
        {
            eprintln!("{}; it is built there from the source", unfit.in_short());
            build(target, source)
        }
        done => Ok(done?),
    }
}

/// Sends these programs.
fn send(target: &Target) -> Result<Result<Done, SetupError>, Failure> {
    let lathe = std::env::current_exe()
        .map_err(|error| Failure::unexpected(format!("cannot find this program: {error}")))?;
    let sandbox = lathe.with_file_name("lathe-sandbox");
    let trainer = launch::find_trainer();
    if let Err(error) = &trainer {
        eprintln!("only lathe is put there: {error}");
    }
    let programs = Programs {
        sandbox: sandbox.is_file().then_some(sandbox),
        trainer: trainer.ok(),
        lathe,
    };
    Ok(setup::set_up(target, &programs, &mut |name, bytes| {
        eprintln!("sending {name} ({})", format::bytes(bytes));
    }))
}

/// Sends the source and builds it there; what the build says is shown as it comes.
fn build(target: &Target, source: Option<&Path>) -> Result<Done, Failure> {
    let source = Source::open(source.unwrap_or(Path::new(".")))?;
    let done = build::set_up(target, &source, &mut |news| match news {
        News::Sends { files, bytes } => eprintln!(
            "sending {} of the source ({})",
            format::plural(files as u64, "file"),
            format::bytes(bytes)
        ),
        News::Follows => eprintln!("a build goes on there already; what it says:"),
        News::Says(line) => eprintln!("{line}"),
    })?;
    Ok(done)
}

pub(super) fn tell(target: &Target, done: &Done, out: &mut Output) -> Result<i32, Failure> {
    out.line(&format!(
        "{}: programs are in {} ({} of {} sent); look at it: lathe doctor {}",
        target.name,
        done.folder,
        format::bytes(done.shipped.bytes),
        format::bytes(done.shipped.all_bytes),
        target.name
    ))?;
    if let Some(program) = &target.program {
        out.line(&format!(
            "runs there go on using {program}, which is named as `program` in targets.yaml"
        ))?;
    }
    Ok(exit_code::OK)
}
